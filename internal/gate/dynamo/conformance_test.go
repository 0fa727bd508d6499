package dynamo

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"vingate/internal/gate"
	"vingate/internal/meter"
)

const noon = gate.Micros(12 * 3600 * 1e6)

func testKnobs() gate.Knobs {
	return gate.Knobs{
		MaxInFlight: 4, RatePerSecond: 20, Burst: 40, MaxQueued: 24,
		BulkheadInteractive: 8, BulkheadBatch: 2, BulkheadAnon: 16,
		LeaseTTL: 15 * time.Second, SkewBound: 250 * time.Millisecond, StartGrace: 250 * time.Millisecond, Attempt: gate.Attempt,
	}
}

var keys = []gate.Key{
	{Route: gate.Interactive, Tenant: gate.Anonymous}, {Route: gate.Interactive, Tenant: "alice"}, {Route: gate.Interactive, Tenant: "bob"},
	{Route: gate.Batch, Tenant: "alice"}, {Route: gate.Batch, Tenant: "bob"},
}

// arbitrary is any state the gate may be in, with live and dead leases, at noon.
func arbitrary(t *rapid.T) gate.State {
	k := testKnobs()
	s := gate.NewState(k, noon, false)
	s.Version = rapid.IntRange(1, 2).Draw(t, "version")
	s.Limit = rapid.IntRange(1, 4).Draw(t, "limit")
	s.TAT = noon + gate.Micros(rapid.SampledFrom([]int64{-10_000_000, -370_000, -360_000, -1, 0, 1, 300_000, 720_000, 720_001, 3_000_000}).Draw(t, "tat"))
	if rapid.IntRange(0, 5).Draw(t, "held") == 0 {
		s.Hold, s.Reason = noon.Millis()+gate.Millis(rapid.IntRange(-1, 1).Draw(t, "hold")), gate.HoldThrottled
	}
	if rapid.IntRange(0, 5).Draw(t, "paused") == 0 {
		s.Pause = noon.Millis() + gate.Millis(rapid.SampledFrom([]int{-60_000, -1, 0, 1, 60_000}).Draw(t, "pause"))
	}
	s.Latency = gate.Millis(rapid.IntRange(0, 900).Draw(t, "latency"))
	for i := range rapid.IntRange(0, 4).Draw(t, "leases") {
		id, key := rapid.SampledFrom([]string{"flowA", "flowB", "lease"}).Draw(t, "holder")+fmt.Sprint("l", i), rapid.SampledFrom(keys).Draw(t, "key")
		s.Leases[id] = noon.Millis() + gate.Millis(rapid.SampledFrom([]int{-60_000, -251, -250, 0, 15_000}).Draw(t, "end"))
		ids := append(s.Places[key.Place()], id)
		slices.Sort(ids)
		s.Places[key.Place()] = ids
		if key.Route == gate.Batch {
			s.Batch = append(s.Batch, id)
			slices.Sort(s.Batch)
		}
		own(t, &s, id)
	}
	s.Failures = rapid.IntRange(0, 5).Draw(t, "failures")
	s.Turned = noon.Millis() - gate.Millis(rapid.SampledFrom([]int{0, 60_000}).Draw(t, "turned"))
	s.VirtualTime = rapid.SampledFrom([]int64{0, 2520, 123456789012}).Draw(t, "virtual time")
	line := rapid.Bool().Draw(t, "a line")
	for i, id := range []string{"flowA0", "flowB1", "flowA2", "flowC3"} {
		if !line || !rapid.Bool().Draw(t, "waits") {
			continue
		}
		arrival := noon.Millis() - gate.Millis(1000*i)
		s.Tickets[id] = gate.Ticket{Arrival: arrival, Deadline: arrival + gate.Millis(rapid.SampledFrom([]int{100, 3000, 60_000}).Draw(t, "waits for")),
			Cost: rapid.IntRange(1, 3).Draw(t, "tokens"), Weight: rapid.IntRange(1, 10).Draw(t, "weight")}
		key := rapid.SampledFrom(keys).Draw(t, "waits as")
		ids := append(s.Places[key.Place()], id)
		slices.Sort(ids)
		s.Places[key.Place()] = ids
		f := gate.Flow(id[:5])
		turn, known := s.Flows[f]
		if !known {
			turn = gate.Turn{Tag: s.VirtualTime + int64(rapid.SampledFrom([]int{0, 0, 252, -252}).Draw(t, "tag")), Since: arrival}
			turn.Tag = max(0, turn.Tag)
		}
		turn.Count++
		s.Flows[f] = turn
		own(t, &s, id)
	}
	return s
}

// own lets an id count against a bound of its flow's own, or not.
func own(t *rapid.T, s *gate.State, id string) {
	if rapid.Bool().Draw(t, "owned") {
		f := gate.FlowOfID(id)
		s.Owned[f] = append(s.Owned[f], id)
		slices.Sort(s.Owned[f])
	}
}

// The heart of the package: on any state, any write the core can plan (also one planned on another state, so that it meets
// a state that has moved on) is applied by DynamoDB exactly if the core says it holds, and leaves exactly the state the core says.
func TestEveryWriteMeansTheSameInTheCoreAndInTheStore(t *testing.T) {
	store := newStore(t, nil)
	applied, failed := map[string]int{}, map[string]int{}
	check := func(t *rapid.T) {
		state := arbitrary(t)
		seen := state
		switch rapid.IntRange(0, 4).Draw(t, "moved on") {
		case 0:
			seen = arbitrary(t)
		case 1, 2: // a little: one more write came in between
			if w, _ := arbitraryWrite(t, state, "between"); w != nil && w.Holds(state) {
				state = w.Apply(state)
			}
		}
		w, x := arbitraryWrite(t, seen, "new")
		if w == nil {
			t.Skip("nothing to write")
		}
		if rapid.IntRange(0, 4).Draw(t, "differs") == 0 {
			state = differing(t, state, w)
		}
		put(store, state)
		after, met, err := store.send(context.Background(), x) // like update, with time enough on a busy machine
		if err != nil {
			t.Fatalf("%v\n%s\nIF %s", err, aws.ToString(x.input("", "").UpdateExpression), aws.ToString(x.input("", "").ConditionExpression))
		}
		kind := fmt.Sprintf("%T", w)
		if holds := w.Holds(state); holds != (met == nil) {
			t.Fatalf("the core says %v, DynamoDB says %v\n%+v\non %+v", holds, met == nil, w, state)
		}
		got, want := after, state
		if met != nil {
			if got, err = decode(met); err != nil {
				t.Fatal(err)
			}
			failed[kind]++
		} else {
			want = w.Apply(state)
			applied[kind]++
		}
		if !reflect.DeepEqual(normal(got), normal(want)) {
			t.Fatalf("DynamoDB has\n%+v, the core\n%+v\nafter %+v", got, want, w)
		}
	}
	for range 10 {
		rapid.Check(t, check)
	}
	t.Logf("applied %v, failed %v", applied, failed)
	for _, kind := range []string{"gate.Admit", "gate.Enqueue", "gate.Claim", "gate.Cancel", "gate.Free"} {
		if applied[kind] < 10 || failed[kind] < 5 {
			t.Errorf("%s: %d applied and %d failed: this shows little", kind, applied[kind], failed[kind])
		}
	}
}

// differing is a state with one thing changed after a write was planned, so that the write fails by this one alone.
func differing(t *rapid.T, s gate.State, w gate.Write) gate.State {
	s = s.Clone()
	id := reflect.ValueOf(w).FieldByName("ID").String()
	flow := string(gate.FlowOfID(id))
	later := noon.Millis() + 60_000
	full := func(n int) (ids []string) {
		for i := range n {
			ids = append(ids, fmt.Sprintf("%sw%02d", flow, i))
		}
		return ids
	}
	switch rapid.SampledFrom([]string{"version", "limit", "bucket", "hold", "pause", "landed", "slots", "places", "own", "batch", "queued", "line", "ticket", "gone", "turn", "virtual", "sets"}).Draw(t, "differs in") {
	case "version":
		s.Version++
	case "limit":
		s.Limit = s.Limit%s.Knobs.MaxInFlight + 1
	case "bucket":
		s.TAT += 60_000_000
	case "hold":
		s.Hold, s.Reason = later, gate.HoldThrottled
	case "pause":
		s.Pause = later
	case "landed": // once before
		s.Leases[id] = later
	case "slots":
		for i := range s.Limit - len(s.Leases) {
			s.Leases[fmt.Sprint("other", i)] = later
		}
	case "places":
		most := rapid.SampledFrom([]int{s.Knobs.BulkheadBatch, s.Knobs.BulkheadInteractive, s.Knobs.BulkheadAnon}).Draw(t, "place")
		for _, key := range keys {
			s.Places[key.Place()] = full(most)
		}
	case "own":
		s.Owned[gate.Flow(flow)] = full(rapid.IntRange(1, 4).Draw(t, "own"))
	case "batch":
		s.Batch = full(s.Knobs.BulkheadBatch)
	case "queued": // once before
		s.Tickets[id] = gate.Ticket{Arrival: noon.Millis(), Deadline: later, Cost: 1, Weight: 1}
	case "line":
		for i := range s.Knobs.MaxQueued - len(s.Tickets) {
			s.Tickets[fmt.Sprint("other", i)] = gate.Ticket{Arrival: noon.Millis(), Deadline: later, Cost: 1, Weight: 1}
		}
	case "ticket":
		if ticket, there := s.Tickets[id]; there {
			ticket.Deadline += 100
			s.Tickets[id] = ticket
		}
	case "gone":
		delete(s.Tickets, id)
	case "turn":
		if turn, there := s.Flows[gate.Flow(flow)]; there {
			turn.Since++
			s.Flows[gate.Flow(flow)] = turn
		}
	case "virtual":
		s.VirtualTime += 1_000_000_000_000
	case "sets":
		for p, ids := range s.Places {
			s.Places[p] = append(slices.Clone(ids), "zlast")
		}
		for f, ids := range s.Owned {
			s.Owned[f] = append(ids, string(f)+"zlast")
		}
	}
	return s
}

// arbitraryWrite is any write that can be planned on a state, nil when the draw gives none.
func arbitraryWrite(t *rapid.T, seen gate.State, id string) (gate.Write, *expression) {
	owner := func(id string) gate.Key {
		for _, key := range keys {
			if slices.Contains(seen.Places[key.Place()], id) {
				return key
			}
		}
		return rapid.SampledFrom(keys).Draw(t, "of")
	}
	switch rapid.SampledFrom([]string{"enter", "enter", "claim", "claim", "cancel", "free"}).Draw(t, "write") {
	case "enter":
		r := gate.Request{ID: rapid.SampledFrom([]string{"flowA", "flowB", "flowC"}).Draw(t, "flow") + id, Key: rapid.SampledFrom(keys).Draw(t, "asks"),
			Own: rapid.SampledFrom([]int{0, 1, 2, 4}).Draw(t, "own"), Cost: rapid.IntRange(1, 3).Draw(t, "cost"), Weight: rapid.IntRange(1, 10).Draw(t, "weight"),
			Patience: rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(t, "patience")}
		switch a, e, _ := seen.Plan(noon, r); {
		case a != nil:
			return *a, admit(*a)
		case e != nil:
			return *e, enqueue(*e)
		}
	case "claim":
		id := rapid.SampledFrom([]string{"flowA0", "flowB1", "flowA2", "flowC3"}).Draw(t, "ticket")
		if _, there := seen.Tickets[id]; there {
			if c, rest, refusal := seen.PlanClaim(noon, gate.Request{ID: id, Key: owner(id)}, nil); refusal == nil && rest == 0 {
				return c, claim(c)
			}
		}
	case "cancel":
		id := rapid.SampledFrom([]string{"flowA0", "flowB1", "flowA2", "flowC3"}).Draw(t, "ticket")
		if c, there := seen.PlanCancel(id, owner(id)); there {
			return c, cancelTicket(c)
		}
	case "free":
		id := rapid.SampledFrom(append(slices.Sorted(maps.Keys(seen.Leases)), "flowAgone")).Draw(t, "lease")
		f := seen.PlanRelease(noon, &gate.Lease{ID: id, Key: owner(id)}, rapid.SampledFrom([]gate.Outcome{
			{Kind: gate.Succeeded, Took: 300 * time.Millisecond}, {Kind: gate.Abandoned}, {Kind: gate.Throttled, RetryAfter: time.Second}, {Kind: gate.Failed},
		}).Draw(t, "outcome"))
		return f, free(f)
	}
	return nil, nil
}

// normal makes empty and missing sets the same: DynamoDB knows no empty set.
func normal(s gate.State) gate.State {
	s = s.Clone()
	if len(s.Batch) == 0 {
		s.Batch = nil
	}
	return s
}

func put(s *Store, state gate.State) {
	if _, err := s.Client.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: aws.String(s.Table), Item: encode(s.pk, state)}); err != nil {
		panic(err)
	}
}

func TestStateSurvivesTheItemUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := arbitrary(t)
		got, err := decode(encode("gate#x", s))
		if err != nil || !reflect.DeepEqual(normal(got), normal(s)) {
			t.Fatalf("%+v\nbecame %+v, %v", s, got, err)
		}
	})
}

// A gate that cannot be read whole is not used.
func TestDamagedItemIsRefusedWhole(t *testing.T) {
	good := gate.NewState(testKnobs(), noon, false)
	for name, damage := range map[string]func(item){
		"no limit":          func(it item) { delete(it, attrLimit) },
		"limit 0":           func(it item) { it[attrLimit] = number(0) },
		"tat is text":       func(it item) { it[attrTAT] = text("1") },
		"tat is a fraction": func(it item) { it[attrTAT] = &types.AttributeValueMemberN{Value: "1.5"} },
		"no leases":         func(it item) { delete(it, attrLeases) },
		"no queue":          func(it item) { delete(it, attrQueue) },
		"lease without end": func(it item) { it[attrLeases].(*types.AttributeValueMemberM).Value["a"] = text("x") },
		"bad knobs":         func(it item) { it[attrKnobs] = text("1,2,3") },
		"batch is a string": func(it item) { it[attrBatch] = text("a") },
		"place is a list":   func(it item) { it[string(keys[0].Place())] = &types.AttributeValueMemberL{} },
		"hold is missing":   func(it item) { delete(it, attrHold) },
		"own is a number":   func(it item) { it[attrOwned("flowA")] = number(1) },
		"pause is text":     func(it item) { it[attrPause] = text("x") },
	} {
		it := encode("gate#x", good)
		damage(it)
		if s, err := decode(it); err == nil {
			t.Errorf("%s: read as %+v", name, s)
		}
	}
}

func TestItemIsSmall(t *testing.T) {
	s := gate.NewState(testKnobs(), noon, false)
	for i := range 6 {
		key := gate.Key{Route: gate.Interactive, Tenant: fmt.Sprint("tenant", i)}
		id := fmt.Sprintf("id%06d", i)
		s.Leases[id] = noon.Millis() + 15000
		s.Places[key.Place()] = []string{id}
	}
	if n := meter.Size(encode("gate#nhtsa", s)); n > 400 {
		t.Errorf("6 leases of 6 keys make an item of %d bytes", n)
	}
}

// Six leases and ten tickets of sixteen addresses, each with a set of its own besides the one that they share, are one write unit too.
func TestSixteenAddressesAreOneWriteUnit(t *testing.T) {
	s := gate.NewState(testKnobs(), noon, false)
	late := gate.MicrosOf(time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC))
	s.TAT, s.Turned, s.Hold, s.Reason, s.Latency, s.VirtualTime = late, late.Millis(), late.Millis(), gate.HoldThrottled, 612, 2520*1e6
	for i := range 16 {
		f := gate.FlowOf(fmt.Sprint("address", i))
		id := string(f) + fmt.Sprintf("%06d", i)
		s.Places[keys[0].Place()] = append(s.Places[keys[0].Place()], id)
		s.Owned[f] = []string{id}
		if i < 6 {
			s.Leases[id] = late.Millis() + 15_000
			continue
		}
		s.Tickets[id] = gate.Ticket{Arrival: late.Millis(), Deadline: late.Millis() + 3000, Cost: 1, Weight: 1}
		s.Flows[f] = gate.Turn{Tag: s.VirtualTime + 2520, Since: late.Millis(), Count: 1}
	}
	if n := meter.Size(encode("gate#nhtsa", s)); n > 1024 || len(s.Owned) != 16 {
		t.Errorf("%d bytes with %d addresses", n, len(s.Owned))
	}
}

func TestLongestExpressionFits(t *testing.T) {
	k := testKnobs()
	k.MaxInFlight, k.Burst = 64, 1000
	s := gate.NewState(k, noon, false)
	for i := range 64 {
		key := gate.Key{Route: []gate.Route{gate.Interactive, gate.Batch}[i%2], Tenant: fmt.Sprint("tenant", i)}
		id := fmt.Sprintf("f%04did%04d", i, i)
		s.Leases[id] = 1
		s.Places[key.Place()] = []string{id}
		s.Owned[gate.FlowOfID(id)] = append(s.Owned[gate.FlowOfID(id)], id)
		if key.Route == gate.Batch {
			s.Batch = append(s.Batch, id)
		}
	}
	w, _, refusal := s.Plan(noon, gate.Request{ID: "f0001new", Own: 4, Key: gate.Key{Route: gate.Batch, Tenant: "tenant1"}})
	if refusal != nil {
		t.Fatal(refusal)
	}
	store := newStore(t, nil)
	put(store, s)
	after, met, err := store.update(context.Background(), admit(*w))
	if err != nil || met != nil {
		t.Fatalf("64 dead leases in one write: %v, %v", met, err)
	}
	if len(after.Leases) != 1 || len(after.Places) != 1 || len(after.Batch) != 1 || len(after.Owned) != 1 {
		t.Errorf("left over: %+v", after)
	}
	in := admit(*w).input("", "")
	if c, u := len(*in.ConditionExpression), len(*in.UpdateExpression); c > 4096 || u > 4096 {
		t.Errorf("expressions of %d and %d bytes, DynamoDB takes 4096", c, u)
	}
}
