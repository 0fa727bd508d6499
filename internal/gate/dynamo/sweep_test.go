package dynamo

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"vingate/internal/gate"
)

func TestASweepCountsAndRemovesWhatCrashedInstancesLeft(t *testing.T) {
	w := &wire{}
	s := initialised(t, w)
	lease := mustAcquire(t, s, keys[1])
	if got, err := s.Sweep(t.Context()); err != nil || got.Leases != 0 || len(got.After.Leases) != 1 {
		t.Fatalf("a live lease: %+v, %v", got, err)
	}
	before, writes := state(t, s), w.Count("UpdateItem")
	s.Now = func() time.Time { return lease.End.Add(s.seen.Knobs.SkewBound + 2*time.Millisecond) }
	got, err := s.Sweep(t.Context())
	if err != nil || got.Leases != 1 || got.Tickets != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	after := state(t, s)
	if len(after.Leases) != 0 || len(after.Places) != 0 || after.TAT != before.TAT || after.Version != before.Version {
		t.Errorf("left %+v of %+v", after, before)
	}
	if !reflect.DeepEqual(normal(got.After), normal(after)) {
		t.Errorf("it says %+v is left, and it is %+v", got.After, after)
	}
	if got, err := s.Sweep(t.Context()); err != nil || got.Leases != 0 {
		t.Errorf("again: %+v, %v", got, err)
	}
	if n := w.Count("UpdateItem") - writes; n != 1 {
		t.Errorf("%d writes, want one", n)
	}
}

func TestALongSweepFits(t *testing.T) {
	s := newStore(t, nil)
	st := gate.NewState(testKnobs(), noon, false)
	for i := range 64 {
		id := string(rune('a'+i%26)) + string(rune('A'+i/26)) + "xxxxx"
		key := gate.Key{Route: gate.Interactive, Tenant: id}
		st.Leases["lease"+id], st.Places[key.Place()] = 1, []string{"lease" + id}
		if i < 24 {
			queued := gate.Key{Route: gate.Batch, Tenant: id}
			st.Tickets[id+"t"] = gate.Ticket{Deadline: 1, Cost: 1, Weight: 1}
			st.Flows[gate.Flow((id + "t")[:5])] = gate.Turn{Count: 1}
			st.Places[queued.Place()] = []string{id + "t"}
		}
	}
	put(s, st)
	got, err := s.Sweep(t.Context())
	if err != nil || got.Leases != 64 || got.Tickets != 24 || len(got.After.Places) != 0 || len(got.After.Flows) != 0 {
		t.Fatalf("%d leases, %d tickets, left %+v, %v", got.Leases, got.Tickets, got.After, err)
	}
}

func TestASweepWithoutAGateSaysSo(t *testing.T) {
	if _, err := newStore(t, nil).Sweep(t.Context()); err == nil {
		t.Error("no error")
	}
}

// What a crashed instance held is counted by whoever takes it along: an admission, or a claim out of the line.
func TestAnAdmissionTellsWhatItReclaimed(t *testing.T) {
	s := initialised(t, &wire{})
	var told []int
	s.Reclaimed = func(_ context.Context, leases int) { told = append(told, leases) }
	first, second := mustAcquire(t, s, keys[1]), mustAcquire(t, s, keys[2])
	if len(told) != 0 {
		t.Errorf("told of %v with nothing dead", told)
	}
	s.Now = func() time.Time { return second.End.Add(s.seen.Knobs.SkewBound + 2*time.Millisecond) }
	mustAcquire(t, s, keys[0])
	if !slices.Equal(told, []int{2}) {
		t.Errorf("told of %v, want two of %s and %s", told, first.ID, second.ID)
	}
}
