package chaos

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"vingate/internal/vin"
)

// Kind is one way to strike.
type Kind string

// What strikes. Those of the store and of NHTSA last for the fault's time, or concern so many calls.
const (
	Kill          Kind = "kill"           // SIGKILL
	Stop          Kind = "stop"           // SIGSTOP, and SIGCONT after the fault's time
	StoreLatency  Kind = "store-latency"  // every byte from the store comes late
	StoreReset    Kind = "store-reset"    // connections to the store are reset
	StoreThrottle Kind = "store-throttle" // the store throttles some calls
	StoreLost     Kind = "store-lost"     // the store applies some calls and the answer is dropped
	StoreOutage   Kind = "store-outage"   // nobody reaches the store
	NHTSA429      Kind = "nhtsa-429"
	NHTSA403      Kind = "nhtsa-403"
	NHTSA503      Kind = "nhtsa-503"
	NHTSASlow     Kind = "nhtsa-slow"
	NHTSATruncate Kind = "nhtsa-truncated"
	NHTSAHang     Kind = "nhtsa-hang"
	NHTSAReset    Kind = "nhtsa-reset"
	NHTSAWrongVIN Kind = "nhtsa-wrong-vin"
	KnobChange    Kind = "knobs" // another rate and limit come into force
)

// deck has every kind as often as it is dealt in one round.
var deck = []Kind{Kill, Kill, Kill, Stop, Stop, Stop, StoreLatency, StoreReset, StoreThrottle, StoreLost, StoreLost, StoreOutage, StoreOutage,
	NHTSA429, NHTSA403, NHTSA503, NHTSASlow, NHTSATruncate, NHTSAHang, NHTSAReset, NHTSAWrongVIN, KnobChange, KnobChange}

// brief says whether a run is too short for the whole deck: each kind strikes once then, and nothing stands still for long.
func (p Plan) brief() bool { return p.For < time.Minute }

// longestStop is of a SIGSTOP, in a brief run and else.
const longestStopBrief, longestStop = 6 * time.Second, 20 * time.Second

// Fault is one strike.
type Fault struct {
	At     time.Duration // after the start
	For    time.Duration // how long it lasts
	Kind   Kind
	Target int     // of kill and stop: the n-th living instance
	Amount float64 // share of the calls, seconds of Retry-After, milliseconds of latency, or the number of the knobs
}

// Visit is somebody who asks.
type Visit struct {
	At     time.Duration
	Client string
	VINs   []string
	Batch  bool          // one POST with all of them; else one GET each, all at once
	HangUp time.Duration // the client leaves after that; 0: it stays
	Obeys  bool          // it comes back when Retry-After says so, up to three times
}

// Numbers of the budget that the plan changes.
type Numbers struct {
	InFlight int
	Rate     float64
	Burst    int
}

// numbers are what KnobChange chooses from; the first is the beginning and the end.
var numbers = []Numbers{{4, 8, 24}, {2, 4, 24}, {6, 12, 24}, {3, 8, 24}}

// Plan is a whole history to be played.
type Plan struct {
	Seed      uint64
	For       time.Duration // the storm, and the calm after it
	Calm      time.Duration // from then on nothing strikes but NHTSA's last 429
	Instances int
	Steady    bool
	Skews     []time.Duration // of each instance's clock, by its id
	Faults    []Fault         // in order
	Visits    []Visit         // in order
}

// Skew is how far the clock of an instance is off.
func (p Plan) Skew(id int) time.Duration {
	if len(p.Skews) == 0 {
		return 0
	}
	return p.Skews[id%len(p.Skews)]
}

// Draw draws a plan. In the storm, the first three quarters, faults come out of a shuffled deck, so that each kind strikes; with steady they are
// five seconds apart and last until half a minute before the end, else the deck is dealt at least once, however short the run is. Of less than a minute
// it has each kind once. The calm begins with a 429.
func Draw(seed uint64, last time.Duration, instances int, steady bool) Plan {
	r := rand.New(rand.NewPCG(seed, 7))
	p := Plan{Seed: seed, For: last, Calm: last * 3 / 4, Instances: instances, Steady: steady}
	for range 64 { // within the bound of 250 ms, the ends included
		p.Skews = append(p.Skews, time.Duration(r.IntN(501)-250)*time.Millisecond)
	}
	if steady {
		p.Calm = max(p.Calm, last-30*time.Second)
	}
	deck, longest := deck, longestStop
	if p.brief() {
		deck, longest = slices.Compact(slices.Sorted(slices.Values(deck))), longestStopBrief
	}
	strikes := int(p.Calm / (5 * time.Second))
	if !steady {
		strikes = max(strikes, len(deck))
	}
	gap := p.Calm / time.Duration(strikes)
	var cards []Kind
	for i := range strikes {
		if len(cards) == 0 {
			cards = slices.Clone(deck)
			r.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
			if p.brief() { // the one outage comes before any pause that NHTSA asks for, in which nobody would call anyhow
				n := slices.Index(cards, StoreOutage)
				cards[0], cards[n] = cards[n], cards[0]
			}
		}
		f := strike(r, cards[0], longest, time.Duration(i)*gap+gap/4+time.Duration(r.Int64N(int64(gap/2))))
		if f.Kind != Stop { // what stands still may be thawed by the calm; all else is to be seen whole
			f.At = min(f.At, p.Calm-f.For-time.Second)
		}
		p.Faults = append(p.Faults, f)
		cards = cards[1:]
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return int(a.At - b.At) })
	// One pause with nothing beside it, which nobody can fail to hear.
	p.Faults = append(p.Faults, Fault{At: p.Calm + 2*time.Second, For: 4 * time.Second, Kind: NHTSA429, Amount: 4})
	p.Visits = traffic(r, last)
	return p
}

func strike(r *rand.Rand, k Kind, longest, at time.Duration) Fault {
	f := Fault{At: at, Kind: k, Target: r.IntN(1000)}
	between := func(a, b time.Duration) time.Duration { return a + time.Duration(r.Int64N(int64(b-a))) }
	switch k {
	case Stop:
		f.For = between(time.Second, longest)
	case StoreLatency:
		f.For, f.Amount = between(time.Second, 4*time.Second), float64(20+r.IntN(60))
	case StoreReset:
		f.For = between(500*time.Millisecond, 1500*time.Millisecond)
	case StoreOutage:
		f.For = between(2*time.Second, 5*time.Second)
	case StoreThrottle, StoreLost:
		f.For, f.Amount = between(2*time.Second, 5*time.Second), 0.1+0.3*r.Float64()
	case NHTSA429, NHTSA403:
		f.For, f.Amount = 5*time.Second, float64(3+r.IntN(3))
	case NHTSA503, NHTSASlow, NHTSATruncate, NHTSAHang, NHTSAReset, NHTSAWrongVIN:
		f.For = between(time.Second, 4*time.Second)
	case KnobChange:
		f.Amount = float64(1 + r.IntN(len(numbers)-1))
	}
	return f
}

// Client is one who asks. Each has VINs of his own, so that a call at NHTSA tells for whom it was.
type Client struct {
	Name    string
	Address string // the source of his connections
	Keyed   bool   // with an API key
	first   int    // of his serial numbers
	keys    int    // comes with so many; 0: with one
}

// Clients are all who come. What is keyed has its own places, the others share those of interactive:anon.
var Clients = []Client{
	{"anna", "127.0.0.11", false, 100_000, 0}, {"bert", "127.0.0.12", false, 150_000, 0}, {"cleo", "127.0.0.13", false, 200_000, 0},
	{"tabs", "127.0.0.14", false, 250_000, 0}, {"scraper", "127.0.0.15", false, 300_000, 0},
	{"keyed-1", "127.0.0.21", true, 400_000, 0}, {"keyed-2", "127.0.0.22", true, 450_000, 0}, {"keyed-3", "127.0.0.23", true, 500_000, 0},
	{"dealer", "127.0.0.24", true, 550_000, 0},
	{"first", "127.0.0.32", true, 600_000, 3}, {"eager", "127.0.0.33", true, 650_000, 0}, {"newcomer", "127.0.0.34", true, 700_000, 6},
	{"lone", "127.0.0.31", true, 800_000, 0}, {"crowd", "127.0.0.40", true, 850_000, 20}, {"last", "127.0.0.39", true, 900_000, 0},
}

const serials = 50_000 // of each client

// lines are the first eleven characters of VINs of several makers; the ninth is the check digit.
var lines = []string{"1HGCM826_3A", "5YJSA1E2_HF", "1FTFW1ET_EF", "WBA3A5C5_CF", "JTDKB20U_93", "1G1ZT528_6F", "2T1BURHE_JC", "3VWDX7AJ_DM"}

// VINOf is the n-th VIN of a client: a made-up serial number and a true check digit.
func VINOf(client string, n int) string {
	i := slices.IndexFunc(Clients, func(c Client) bool { return c.Name == client })
	serial := Clients[i].first + n%serials
	v := []byte(fmt.Sprintf("%s%06d", lines[(n+n/serials)%len(lines)], serial)) // when the numbers are used up, with other lines
	v[8] = '0'
	v[8], _ = vin.CheckDigit(string(v))
	return string(v)
}

// ClientOf is whose VIN that is, "" of nobody's.
func ClientOf(vin string) string {
	if len(vin) != 17 {
		return ""
	}
	var serial int
	if _, err := fmt.Sscanf(vin[11:], "%06d", &serial); err != nil {
		return ""
	}
	for _, c := range Clients {
		if serial >= c.first && serial < c.first+serials {
			return c.Name
		}
	}
	return ""
}

// keyOf is the name of the key with which a client asks about one of its VINs: its own, but of one that comes with many.
func keyOf(client, vin string) string {
	if i := slices.IndexFunc(Clients, func(c Client) bool { return c.Name == client }); i >= 0 && Clients[i].keys > 0 {
		return fmt.Sprint(client, "-", number(vin)%Clients[i].keys)
	}
	return client
}

// number is which of its client's VINs one is.
func number(vin string) int {
	var serial int
	if _, err := fmt.Sscanf(vin[11:], "%06d", &serial); err != nil {
		return 0
	}
	return serial % serials
}

// traffic is about twice what the budget allows.
func traffic(r *rand.Rand, last time.Duration) []Visit {
	var out []Visit
	next := map[string]int{}
	fresh := func(client string, n int) []string {
		vins := make([]string, n)
		for i := range vins {
			vins[i] = VINOf(client, next[client])
			next[client]++
		}
		return vins
	}
	every := func(mean time.Duration, visit func(at time.Duration) Visit) {
		for at := time.Duration(float64(mean) * r.ExpFloat64()); at < last; at += time.Duration(float64(mean) * r.ExpFloat64()) {
			v := visit(at)
			v.At = at
			if r.IntN(20) == 0 {
				v.HangUp = 50*time.Millisecond + time.Duration(r.Int64N(int64(time.Second)))
			}
			out = append(out, v)
		}
	}
	for _, c := range []string{"anna", "bert", "cleo", "keyed-1", "keyed-2", "keyed-3"} {
		every(900*time.Millisecond, func(time.Duration) Visit {
			v := Visit{Client: c, Obeys: true}
			if n := next[c]; n > 0 && r.IntN(5) == 0 {
				v.VINs = []string{VINOf(c, r.IntN(n))} // known already, most likely
			} else {
				v.VINs = fresh(c, 1)
			}
			return v
		})
	}
	every(150*time.Millisecond, func(time.Duration) Visit { return Visit{Client: "scraper", VINs: fresh("scraper", 1)} })
	every(7*time.Second, func(time.Duration) Visit {
		return Visit{Client: "dealer", VINs: fresh("dealer", 50), Batch: true, Obeys: true}
	})
	every(5*time.Second, func(time.Duration) Visit {
		v := fresh("tabs", 1)
		return Visit{Client: "tabs", VINs: slices.Repeat(v, 8)}
	})
	every(6*time.Second, func(time.Duration) Visit { return Visit{Client: "keyed-1", VINs: fresh("keyed-1", 5)} })
	slices.SortStableFunc(out, func(a, b Visit) int { return int(a.At - b.At) })
	return out
}

// Print writes the faults for a person.
func (p Plan) Print(w io.Writer) {
	_, _ = fmt.Fprintf(w, "seed %d: %v with %d instances, %d faults, %d visits\n", p.Seed, p.For, p.Instances, len(p.Faults), len(p.Visits))
	for _, f := range p.Faults {
		_, _ = fmt.Fprintf(w, "  %8.3fs  %-16s for %-8v amount %.2f target %d\n", f.At.Seconds(), f.Kind, f.For.Round(time.Millisecond), f.Amount, f.Target)
	}
}
