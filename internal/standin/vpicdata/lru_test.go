package vpicdata

import (
	"errors"
	"sync"
	"testing"
)

func TestLRUKeepsWhatWasUsedLast(t *testing.T) {
	l := newLRU[int, int](2)
	loads := 0
	get := func(key int) {
		t.Helper()
		if v, err := l.get(key, func() (int, error) { loads++; return key * 10, nil }); err != nil || v != key*10 {
			t.Fatalf("get %d: %d, %v", key, v, err)
		}
	}
	for _, key := range []int{1, 2, 1, 3, 1} { // 2 goes
		get(key)
	}
	if loads != 3 || l.len() != 2 {
		t.Errorf("%d loads, %d kept, want 3 and 2", loads, l.len())
	}
	get(2)
	if loads != 4 {
		t.Errorf("%d loads, want 4", loads)
	}
}

func TestLRUDoesNotKeepFailures(t *testing.T) {
	l := newLRU[int, int](2)
	broken := errors.New("broken")
	if _, err := l.get(1, func() (int, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Fatalf("error is %v", err)
	}
	if v, err := l.get(1, func() (int, error) { return 5, nil }); v != 5 || err != nil {
		t.Errorf("after a failure: %d, %v", v, err)
	}
}

func TestLRUInParallel(t *testing.T) {
	l := newLRU[int, int](10)
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() {
			for i := range 1000 {
				if v, err := l.get(i%25, func() (int, error) { return i % 25, nil }); err != nil || v != i%25 {
					t.Errorf("get %d: %d, %v", i%25, v, err)
				}
			}
		})
	}
	done.Wait()
	if l.len() != 10 {
		t.Errorf("%d kept, want 10", l.len())
	}
}
