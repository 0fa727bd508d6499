package standin

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestStartsOverflowIsTold(t *testing.T) {
	clock := newClock()
	r := newRecorder(clock.Now())
	r.startsKept, r.vinsKept = 3, 2
	first := clock.Now().UnixMicro()
	for i := range 5 {
		r.begin(clock.Now)()
		r.asked([]string{fmt.Sprint("VIN", i)})
		clock.advance(time.Microsecond)
	}
	s := r.read()
	if want := []int64{first + 2, first + 3, first + 4}; !slices.Equal(s.Starts, want) || !s.Overflowed || s.StartsDropped != 2 {
		t.Errorf("starts %v (%v, %d dropped), want %v", s.Starts, s.Overflowed, s.StartsDropped, want)
	}
	if len(s.VINs) != 2 || s.VINsDropped != 3 || s.Calls != 5 {
		t.Errorf("VINs %v, %d dropped, %d calls", s.VINs, s.VINsDropped, s.Calls)
	}
	r.asked([]string{"vin0"})
	if s := r.read(); s.VINs["VIN0"] != 2 {
		t.Errorf("a kept VIN is no longer counted: %v", s.VINs)
	}
	r.reset(clock.Now())
	if s := r.read(); s.Overflowed || s.StartsDropped != 0 || len(s.Starts) != 0 || s.VINsDropped != 0 {
		t.Errorf("after a reset: %+v", s)
	}
}

func TestAReadingIsACopy(t *testing.T) {
	r := newRecorder(time.Time{})
	r.begin(time.Now)()
	r.answered("x")
	s := r.read()
	s.Starts[0], s.Answers["x"] = 0, 9
	if again := r.read(); again.Starts[0] == 0 || again.Answers["x"] != 1 {
		t.Errorf("a reader changed the stats: %+v", again)
	}
}

func TestCallsInParallelAreAllCountedInOrder(t *testing.T) {
	r := newRecorder(time.Now())
	var done sync.WaitGroup
	for range 16 {
		done.Go(func() {
			for range 200 {
				end := r.begin(time.Now)
				r.answered(AnswerDecoded)
				end()
				end()
			}
		})
	}
	done.Wait()
	s := r.read()
	if s.Calls != 3200 || s.Current != 0 || s.Peak < 1 || s.Peak > 16 || s.Answers[AnswerDecoded] != 3200 || len(s.Starts) != 3200 {
		t.Errorf("calls %d, current %d, peak %d, answers %v, %d starts", s.Calls, s.Current, s.Peak, s.Answers, len(s.Starts))
	}
	if !slices.IsSorted(s.Starts) {
		t.Error("starts are not in order")
	}
}
