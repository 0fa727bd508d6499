package lru

import (
	"slices"
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
