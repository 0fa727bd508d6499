package gcra

import (
	"testing"

	"pgregory.net/rapid"
)

func buckets() *rapid.Generator[Bucket] {
	return rapid.Custom(func(t *rapid.T) Bucket {
		return Bucket{
			T:   rapid.Int64Range(1, 2_000_000).Draw(t, "T"),
			Tau: rapid.Int64Range(0, 5_000_000).Draw(t, "Tau"),
			H:   rapid.Int64Range(0, 1_000_000).Draw(t, "H"),
		}
	})
}

// The window bound of the package comment: over every pair of admissions, at every distance.
func TestAnyWindowHoldsAtMostItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := buckets().Draw(t, "bucket")
		var tat, now int64
		var stamps []int64
		for range rapid.IntRange(1, 60).Draw(t, "arrivals") {
			now += rapid.SampledFrom([]int64{0, 1, b.T / 3, b.T, b.H, b.Tau + b.H + b.T}).Draw(t, "gap")
			if band := b.Choose(tat, now, 1); band != Dry {
				tat = b.Next(band, tat, now, 1)
				stamps = append(stamps, now)
			}
		}
		for i := range stamps {
			for j := i; j < len(stamps); j++ {
				if got, bound := int64(j-i+1), (stamps[j]-stamps[i]+b.Tau+b.H)/b.T+1; got > bound {
					t.Fatalf("%d calls within %d us, bound %d", got, stamps[j]-stamps[i], bound)
				}
			}
		}
	})
}

func TestTatNeverMovesBackAndBandsAreValidWhereChosen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := buckets().Draw(t, "bucket")
		now := rapid.Int64Range(0, 1e9).Draw(t, "now")
		tat := now + rapid.Int64Range(-3*(b.Tau+b.H+b.T), 3*(b.Tau+b.H+b.T)).Draw(t, "offset")
		cost := rapid.IntRange(1, 5).Draw(t, "cost")
		band := b.Choose(tat, now, cost)
		next := b.Next(band, tat, now, cost)
		if next < tat {
			t.Fatalf("tat moved from %d to %d", tat, next)
		}
		lo, hi := b.BusyRange(now, cost)
		switch band {
		case Busy:
			if tat < lo || tat > hi {
				t.Fatalf("busy chosen outside [%d, %d]", lo, hi)
			}
		case Reset:
			if tat >= now || !b.Fits(cost) {
				t.Fatalf("reset chosen with tat %d at %d, cost %d", tat, now, cost)
			}
		case Dry:
			if next != tat {
				t.Fatal("a refused call changed tat")
			}
			if b.Fits(cost) && tat <= hi {
				t.Fatalf("refused with tat %d <= %d", tat, hi)
			}
		}
	})
}

// Exact in both directions: one microsecond before Wait is over it still refuses, then it admits.
func TestWaitIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := buckets().Draw(t, "bucket")
		cost := rapid.IntRange(1, int(b.Tau/b.T)+1).Draw(t, "cost")
		now := rapid.Int64Range(0, 1e9).Draw(t, "now")
		tat := now + rapid.Int64Range(-b.T, 3*(b.Tau+b.T)).Draw(t, "ahead")
		wait := b.Wait(tat, now, cost)
		if (wait == 0) != (b.Choose(tat, now, cost) != Dry) {
			t.Fatalf("wait %d, but the choice is %v", wait, b.Choose(tat, now, cost))
		}
		if b.Choose(tat, now+wait, cost) == Dry {
			t.Fatalf("still dry after waiting %d us", wait)
		}
		if wait > 0 && b.Choose(tat, now+wait-1, cost) != Dry {
			t.Fatalf("admitted before the wait of %d us was over", wait)
		}
	})
}

func TestTokensCountsWhatIsReallyAdmitted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Bucket{
			T:   rapid.Int64Range(1_000, 500_000).Draw(t, "T"),
			Tau: rapid.Int64Range(0, 3_000_000).Draw(t, "Tau"),
			H:   rapid.Int64Range(0, 300_000).Draw(t, "H"),
		}
		now := int64(1e9)
		tat := now + rapid.Int64Range(-2*b.H-1, b.Tau+2*b.T).Draw(t, "offset")
		want, admitted := b.Tokens(tat, now), 0
		for b.Choose(tat, now, 1) != Dry {
			tat = b.Next(b.Choose(tat, now, 1), tat, now, 1)
			admitted++
		}
		if admitted != want {
			t.Fatalf("Tokens says %d, %d were admitted", want, admitted)
		}
	})
}

// Exact in both directions, like Wait.
func TestMoreSaysWhenTheNextTokenIsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := buckets().Draw(t, "bucket")
		now := rapid.Int64Range(0, 1e9).Draw(t, "now")
		tat := now + rapid.Int64Range(-b.T, 3*(b.Tau+b.T)).Draw(t, "ahead")
		n, more := b.Tokens(tat, now), b.More(tat, now)
		switch {
		case more == 0 && int64(n) <= b.Tau/b.T:
			t.Fatalf("%d tokens are no full bucket", n)
		case more == 0:
		case b.Tokens(tat, now+more) <= n:
			t.Fatalf("%d tokens, and after %d us %d", n, more, b.Tokens(tat, now+more))
		case b.Tokens(tat, now+more-1) > n:
			t.Fatalf("%d tokens before the %d us are over", b.Tokens(tat, now+more-1), more)
		}
	})
}

// zae-limiter#428: once drained, the bucket must recover on every path.
func TestZaeLimiter428_DrainedBucketRecovers(t *testing.T) {
	b := Bucket{T: 500_000, Tau: 1_000_000, H: 100_000}
	for _, idle := range []int64{b.T, b.Tau + b.T, b.Tau + b.T + b.H, 3_600_000_000} {
		var tat, now int64 = 0, 1
		for b.Choose(tat, now, 1) != Dry {
			tat = b.Next(b.Choose(tat, now, 1), tat, now, 1)
		}
		if b.Choose(tat, now+idle, 1) == Dry {
			t.Errorf("still dry %d us after it was drained", idle)
		}
	}
}
