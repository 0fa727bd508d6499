// Package gcra is the token bucket of the gate and of the tenants: the generic cell rate algorithm
// (ITU-T I.371, annex A, virtual scheduling), cut to what a conditional write can express.
//
// The whole bucket is one number, tat, the theoretical arrival time of the next call. A call conforms
// while tat <= now + Tau and then moves tat on by T. The textbook update tat' = max(tat, now) + T needs a
// max(), which a DynamoDB update expression has not, so there are two updates, each valid in a band of its own:
//
//	busy   tat' = tat + cost*T   while now - H <= tat <= now + Tau - (cost-1)*T
//	reset  tat' = now + cost*T   while tat < now
//
// In the overlap [now - H, now) both are valid: busy keeps the credit, reset forfeits less than H of it.
// The overlap is what lets a writer choose from a view that is slightly old and still succeed. Its price
// is that an idle bucket may hold H more credit than Tau alone.
//
// Promises, for calls stamped with times n1 <= n2 (package tests prove each):
//   - tat never moves back, so a refusal seen once stays right until tat - Tau;
//   - the calls stamped within [n1, n2] number at most (n2 - n1 + Tau + H)/T + 1.
//
// All times are microseconds since one epoch that the caller chooses.
package gcra

// Bucket is the shape of a token bucket in microseconds.
type Bucket struct {
	T   int64 // time for one token, > 0
	Tau int64 // burst tolerance, >= 0
	H   int64 // hysteresis: how far tat may lie behind now and keep its credit, >= 0
}

// Band says which of the two updates applies.
type Band byte

const (
	Dry   Band = iota // neither: not enough tokens
	Busy              // tat' = tat + cost*T
	Reset             // tat' = now + cost*T
)

func (b Band) String() string { return [...]string{"dry", "busy", "reset"}[b] }

// Fits reports whether a call of this cost can ever conform.
func (b Bucket) Fits(cost int) bool { return int64(cost-1)*b.T <= b.Tau }

// BusyRange is the closed interval of tat in which the busy update of this cost is valid at now.
// It is empty (lo > hi) only for a cost that never fits.
func (b Bucket) BusyRange(now int64, cost int) (lo, hi int64) {
	return now - b.H, now + b.Tau - int64(cost-1)*b.T
}

// Choose picks the update for a call of this cost from a view of tat. Busy is preferred: it stays valid when
// others advance tat meanwhile, and forfeits nothing.
func (b Bucket) Choose(tat, now int64, cost int) Band {
	if !b.Fits(cost) {
		return Dry
	}
	switch lo, hi := b.BusyRange(now, cost); {
	case tat >= lo && tat <= hi:
		return Busy
	case tat < now:
		return Reset
	}
	return Dry
}

// Next is tat after the update of the band. Dry leaves it.
func (b Bucket) Next(band Band, tat, now int64, cost int) int64 {
	switch band {
	case Busy:
		return tat + int64(cost)*b.T
	case Reset:
		return now + int64(cost)*b.T
	}
	return tat
}

// Tokens is the number of calls of cost 1 that would conform one after the other at now.
func (b Bucket) Tokens(tat, now int64) int {
	if tat < now-b.H {
		tat = now
	}
	if room := now + b.Tau - tat; room >= 0 {
		return int(room/b.T) + 1
	}
	return 0
}

// Most is Tokens of a bucket that nobody has drawn from for long.
func (b Bucket) Most() int { return max(0, int(b.Tau/b.T)+1) }

// More is the time from now until Tokens is one higher if nobody else comes, 0 when the bucket is full.
func (b Bucket) More(tat, now int64) int64 {
	n := int64(b.Tokens(tat, now))
	if tat <= now || n > b.Tau/b.T {
		return 0
	}
	return tat + n*b.T - b.Tau - now
}

// Wait is the time from now until a call of this cost conforms if nobody else comes, 0 when it does already.
func (b Bucket) Wait(tat, now int64, cost int) int64 {
	_, hi := b.BusyRange(now, cost)
	return max(0, tat-hi)
}
