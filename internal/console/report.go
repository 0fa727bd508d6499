package console

import (
	"cmp"
	"slices"
	"time"

	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"
)

// report is a gate at one moment, in the shape in which it is printed, drawn and encoded.
type report struct {
	Gate    string    `json:"gate"`
	Table   string    `json:"table"`
	ReadAt  time.Time `json:"readAt"`
	Version int       `json:"version"`

	Limit       int `json:"limit"`
	MaxInFlight int `json:"maxInFlight"`
	InFlight    int `json:"inFlight"`

	Tokens        int     `json:"tokens"`
	MostTokens    int     `json:"mostTokens"`
	RatePerSecond float64 `json:"ratePerSecond"`
	Burst         int     `json:"burst"`

	Queued    int `json:"queued"`
	MaxQueued int `json:"maxQueued"`

	Hold  *holdReport `json:"hold"`  // the gate's own
	Pause *holdReport `json:"pause"` // the operator's

	LatencyMs int64      `json:"latencyMs"`
	Failures  int        `json:"failuresInARow"`
	Episodes  int        `json:"throttleEpisodesInARow"`
	Turned    *time.Time `json:"limitTurnedAt"`

	Tenants []tenantReport `json:"tenants"`
	Leases  []leaseReport  `json:"leases"`
	Tickets []ticketReport `json:"tickets"`
	Knobs   []knobReport   `json:"knobs"`
}

type holdReport struct {
	Reason  string    `json:"reason"`
	Until   time.Time `json:"until"`
	Seconds int64     `json:"seconds"`
}

// tenantReport is one of those between whom the line is fair, known by the hash that its ids begin with.
type tenantReport struct {
	Line     string `json:"line"`
	Live     int    `json:"live"`
	Waiting  int    `json:"waiting"`
	OldestMs int64  `json:"oldestMs"` // of its tickets, else of its leases
}

type leaseReport struct {
	ID       string `json:"id"`
	Line     string `json:"line"`
	Key      string `json:"key"`
	Route    string `json:"route"`
	AgeMs    int64  `json:"ageMs"`
	EndsInMs int64  `json:"endsInMs"`
	Dead     bool   `json:"dead"` // past its end: the next admission takes its slot
}

type ticketReport struct {
	ID       string `json:"id"`
	Line     string `json:"line"`
	Key      string `json:"key"`
	Route    string `json:"route"`
	WaitedMs int64  `json:"waitedMs"`
	LeftMs   int64  `json:"leftMs"` // of its patience
	Cost     int    `json:"cost"`
	Weight   int    `json:"weight"`
	Dead     bool   `json:"dead"`
}

type knobReport struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func newReport(name, table string, i dynamo.Inspection) report {
	s, now := i.State, gate.MicrosOf(i.At)
	ms := now.Millis()
	bucket := s.Knobs.Bucket()
	r := report{
		Gate: name, Table: table, ReadAt: i.At.UTC(), Version: s.Version,
		Limit: s.Limit, MaxInFlight: s.Knobs.MaxInFlight,
		Tokens: bucket.Tokens(int64(s.TAT), int64(now)), MostTokens: bucket.Most(),
		RatePerSecond: s.Knobs.RatePerSecond, Burst: s.Knobs.Burst, MaxQueued: s.Knobs.MaxQueued,
		Hold: newHold(gate.Hold{Until: s.Hold, Reason: s.Reason}, i.At), Pause: newHold(gate.Hold{Until: s.Pause, Reason: gate.HoldOperator}, i.At), LatencyMs: int64(s.Latency), Failures: s.Failures, Episodes: s.Episodes,
		Tenants: []tenantReport{}, Leases: []leaseReport{}, Tickets: []ticketReport{},
	}
	if s.Turned > 0 {
		at := s.Turned.Time().UTC()
		r.Turned = &at
	}
	for _, n := range s.Knobs.Named() {
		r.Knobs = append(r.Knobs, knobReport{n.Knob, n.Value})
	}
	places := map[string]gate.Place{}
	for p, ids := range s.Places {
		for _, id := range ids {
			places[id] = p
		}
	}
	skew := gate.Millis(s.Knobs.SkewBound.Milliseconds())
	tenants := map[string]*tenantReport{}
	of := func(id string) *tenantReport {
		line := id[:min(len(id), flowLength)]
		if tenants[line] == nil {
			tenants[line] = &tenantReport{Line: line}
		}
		return tenants[line]
	}
	for id, end := range s.Leases {
		t := of(id)
		l := leaseReport{ID: id, Line: t.Line, Key: string(places[id]), Route: route(places[id]),
			AgeMs: int64(ms - end + gate.Millis(s.Knobs.LeaseTTL.Milliseconds())), EndsInMs: int64(end - ms), Dead: ms > end+skew}
		r.Leases = append(r.Leases, l)
		if !l.Dead {
			r.InFlight++
			t.Live++
			t.OldestMs = max(t.OldestMs, l.AgeMs)
		}
	}
	for id, ticket := range s.Tickets {
		t := of(id)
		k := ticketReport{ID: id, Line: t.Line, Key: string(places[id]), Route: route(places[id]),
			WaitedMs: int64(ms - ticket.Arrival), LeftMs: int64(ticket.Deadline - ms), Cost: ticket.Cost, Weight: ticket.Weight, Dead: ms > ticket.Deadline+skew}
		r.Tickets = append(r.Tickets, k)
		if k.Dead {
			continue
		}
		r.Queued++
		if t.Waiting == 0 {
			t.OldestMs = 0
		}
		t.Waiting++
		t.OldestMs = max(t.OldestMs, k.WaitedMs)
	}
	for _, t := range tenants {
		if t.Live+t.Waiting > 0 { // else all it has is dead
			r.Tenants = append(r.Tenants, *t)
		}
	}
	// Whoever takes most stands first; among equals the order does not jump.
	slices.SortFunc(r.Tenants, func(a, b tenantReport) int {
		return cmp.Or(cmp.Compare(b.Live+b.Waiting, a.Live+a.Waiting), cmp.Compare(a.Line, b.Line))
	})
	slices.SortFunc(r.Leases, func(a, b leaseReport) int {
		return cmp.Or(cmp.Compare(b.AgeMs, a.AgeMs), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(r.Tickets, func(a, b ticketReport) int {
		return cmp.Or(cmp.Compare(b.WaitedMs, a.WaitedMs), cmp.Compare(a.ID, b.ID))
	})
	return r
}

// flowLength is the length of gate.Flow.
var flowLength = len(gate.FlowOf(""))

func route(p gate.Place) string {
	switch {
	case p == "":
		return ""
	case p[0] == 'b':
		return string(gate.Batch)
	}
	return string(gate.Interactive)
}

// newHold is nil for one that is over.
func newHold(h gate.Hold, now time.Time) *holdReport {
	until := h.Until.Time().UTC()
	if !until.After(now) {
		return nil
	}
	return &holdReport{Reason: string(h.Reason), Until: until, Seconds: int64((until.Sub(now) + time.Second - 1) / time.Second)}
}
