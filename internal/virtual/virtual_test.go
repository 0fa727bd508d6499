package virtual

import (
	"testing"
	"time"
)

func TestTimeBeginsWhereItIsTold(t *testing.T) {
	begin := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	real := time.Now()
	var from, until time.Time
	Time(t, begin)(func() {
		from = time.Now()
		time.Sleep(24 * time.Hour)
		until = time.Now()
	})
	if !from.Equal(begin) || until.Sub(from) != 24*time.Hour || time.Since(real) > time.Hour {
		t.Errorf("from %v until %v", from, until)
	}
	Time(t, time.Time{})(func() { from = time.Now() })
	if from.Year() != 2000 {
		t.Errorf("without a beginning it begins at %v", from)
	}
}
