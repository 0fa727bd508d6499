package lru

import (
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestTheOneUnusedForLongestGoes(t *testing.T) {
	c := New[string, int](2)
	c.Put("a", 1)
	c.Put("b", 2)
	if v, ok := c.Get("a"); v != 1 || !ok {
		t.Errorf("a is %d, %v", v, ok)
	}
	c.Put("c", 3)
	if _, ok := c.Get("b"); ok {
		t.Error("b is kept, though a was used after it")
	}
	if v, ok := c.Get("a"); v != 1 || !ok {
		t.Errorf("a is %d, %v", v, ok)
	}
}

func TestACacheForNothingKeepsOne(t *testing.T) {
	c := New[int, int](0)
	c.Put(1, 1)
	if c.Put(2, 2); c.Len() != 1 {
		t.Errorf("%d are kept", c.Len())
	}
}

// Held against a list that is searched from end to end.
func TestProperty_ItIsAListInTheOrderOfUse(t *testing.T) {
	type pair struct{ key, value int }
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 4).Draw(t, "limit")
		c := New[int, int](limit)
		var model []pair
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key := rapid.IntRange(0, 6).Draw(t, "key")
			at := slices.IndexFunc(model, func(p pair) bool { return p.key == key })
			if rapid.Bool().Draw(t, "get") {
				v, ok := c.Get(key)
				if ok != (at >= 0) || ok && v != model[at].value {
					t.Fatalf("%d is %d, %v in %v", key, v, ok, model)
				}
				if ok {
					model = append(slices.Delete(slices.Clone(model), at, at+1), model[at])
				}
				continue
			}
			next := pair{key, 1}
			if at >= 0 {
				next.value = model[at].value + 1
				model = slices.Delete(model, at, at+1)
			}
			c.Update(key, func(old int, ok bool) int {
				if ok != (at >= 0) {
					t.Fatalf("%d: there is %v, want %v", key, ok, at >= 0)
				}
				return old + 1
			})
			if model = append(model, next); len(model) > limit {
				model = model[1:]
			}
			if c.Len() != len(model) {
				t.Fatalf("%d kept, want %d", c.Len(), len(model))
			}
		}
	})
}

func TestTheBoundIsWhatTheValuesTakeTogether(t *testing.T) {
	c := Sized(100, func(key string, value []byte) uint64 { return uint64(len(key) + len(value)) })
	c.Put("a", make([]byte, 49))
	c.Put("b", make([]byte, 49))
	c.Get("a")
	c.Put("c", make([]byte, 9)) // b goes, and leaves room
	if _, ok := c.Get("b"); ok || c.Len() != 2 {
		t.Errorf("b is kept: %v, of %d", ok, c.Len())
	}
	c.Put("a", make([]byte, 89)) // a grows: 90 and 10 fit
	if c.Len() != 2 {
		t.Errorf("%d are kept, and all of them fit", c.Len())
	}
	c.Put("c", make([]byte, 10)) // c grows: a goes
	if _, ok := c.Get("a"); ok || c.Len() != 1 {
		t.Errorf("a is kept: %v, of %d", ok, c.Len())
	}
	c.Put("d", make([]byte, 100)) // too large by itself
	if _, ok := c.Get("d"); ok || c.Len() != 1 {
		t.Errorf("a value larger than the bound is kept: %v, beside %d", ok, c.Len())
	}
	c.Put("c", make([]byte, 100))
	if _, ok := c.Get("c"); ok {
		t.Error("the old value is kept in place of one that is too large")
	}
	if Sized(0, func(int, int) uint64 { return 1 }).Len() != 0 {
		t.Error("an empty cache holds something")
	}
}

// A limiter's memory that lost a change would let somebody through twice.
func TestNoChangeIsLost(t *testing.T) {
	c := New[string, int](1)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 20 {
				c.Update("k", func(old int, _ bool) int { return old + 1 })
			}
		})
	}
	wg.Wait()
	if n, _ := c.Get("k"); n != 1000 {
		t.Errorf("%d of 1000 changes are there", n)
	}
}
