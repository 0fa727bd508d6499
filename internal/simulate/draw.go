package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// ranks draws VINs by popularity: the k-th is asked for in proportion to k^-z.
type ranks struct {
	n, z, span, power float64
}

func newRanks(n int, z float64) ranks {
	r := ranks{n: float64(n), z: z}
	if math.Abs(z-1) < 1e-6 {
		r.span = math.Log(r.n + 1)
	} else {
		r.span = math.Pow(r.n+1, 1-z) - 1
		r.power = 1 / (1 - z)
	}
	return r
}

// at is the rank, from 0 on, below which that share of the requests lies.
func (r ranks) at(share float64) float64 {
	if r.power == 0 {
		return math.Exp(share*r.span) - 1
	}
	return math.Pow(share*r.span+1, r.power) - 1
}

// draw is a VIN, -1 when each request asks for another.
func (r ranks) draw(rng *rand.Rand) int32 {
	if r.n == 0 {
		return -1
	}
	return int32(min(r.n-1, max(0, r.at(rng.Float64()))))
}

// upTo is how many of the most popular VINs are asked for in that share of the requests.
func (r ranks) upTo(share float64) int {
	if r.n == 0 || share <= 0 {
		return 0
	}
	return int(min(r.n, max(0, math.Round(r.at(share)))))
}

// oracle watches the windows: in every one of w seconds at most burst + rate x w calls start. It knows how much beyond rate x w the fullest
// window held.
type oracle struct {
	rate    float64
	n       float64
	least   float64
	fullest float64
}

func (o *oracle) start(seconds float64) {
	level := o.n - o.rate*seconds
	if o.n == 0 || level < o.least {
		o.least = level
	}
	o.n++
	o.fullest = max(o.fullest, level+1-o.least)
}

// name is a tenant's.
func name(stream, n int) string { return fmt.Sprintf("t%02d-%08d", stream, n) }
