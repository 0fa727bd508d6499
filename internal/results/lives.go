package results

import (
	"slices"
	"time"

	"vingate/internal/vpic"
)

// Lives says how long an answer is kept.
type Lives struct {
	Hard     time.Duration // a full answer
	Soft     time.Duration // any answer is fresh for at most this long
	Negative time.Duration // "not in NHTSA's data"
}

// incompleteLife is for answers that NHTSA is likely to complete: patterns are added every day.
const incompleteLife = 24 * time.Hour

// NHTSA's error codes that decide about the life.
const (
	codeUnregistered = 7  // the maker is not registered, or not yet public
	codeNoDetail     = 8  // maker known, no pattern
	codeNoYear       = 11 // position 10 is no model year
	codeUnexplained  = 14 // some characters are not in the maker's filing
)

func (l Lives) of(outcome vpic.Outcome, codes []int) time.Duration {
	has := func(code int) bool { return slices.Contains(codes, code) }
	switch {
	case outcome == vpic.Unknown || has(codeUnregistered):
		return min(l.Negative, l.Hard)
	case outcome == vpic.Partial || has(codeNoDetail) || has(codeNoYear) || has(codeUnexplained):
		return min(incompleteLife, l.Hard)
	}
	return l.Hard
}
