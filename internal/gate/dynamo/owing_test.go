package dynamo

import (
	"context"
	"testing"
	"time"

	"vingate/internal/ddb/ddbtest"
	"vingate/internal/gate"
)

var bob = gate.Key{Route: gate.Interactive, Tenant: "bob"}

// A lease that could not be given back because the table did not answer is given back with the instance's next request.
func TestWhatCouldNotBeGivenBackIsGivenBackLater(t *testing.T) {
	for name, next := range map[string]func(*Store) (*gate.Lease, *gate.Refusal, error){
		"asking": func(s *Store) (*gate.Lease, *gate.Refusal, error) {
			return s.Acquire(context.Background(), gate.Request{Key: bob})
		},
		"looking ahead": func(s *Store) (*gate.Lease, *gate.Refusal, error) {
			if r, err := s.Foresee(context.Background(), &gate.Request{Key: bob}); r != nil || err != nil {
				return nil, r, err
			}
			return s.Acquire(context.Background(), gate.Request{Key: bob})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, wire := ddbtest.On(realClient)
			s := newStore(t, nil)
			s.Client = client
			k := testKnobs()
			k.MaxInFlight = 2
			if err := s.Init(context.Background(), k, FullBucket); err != nil {
				t.Fatal(err)
			}
			first, second := mustAcquire(t, s, alice), mustAcquire(t, s, bob)
			wire.Script(func(string, int) ddbtest.Fault { return ddbtest.Fault{Cut: true} })
			for _, l := range []*gate.Lease{first, second} {
				if err := s.Release(context.Background(), l, gate.Outcome{Kind: gate.Succeeded}); err == nil {
					t.Fatal("released without a table")
				}
			}
			s.seenAt = time.Time{}
			if _, _, err := next(s); err == nil || len(s.owing) != 2 {
				t.Errorf("without a table: %v, %d are owed", err, len(s.owing))
			}
			wire.Script(nil)
			s.seenAt = time.Time{}
			l, refusal, err := next(s)
			if l == nil || err != nil || len(s.owing) != 0 {
				t.Fatalf("with the table: %+v, %v, %d are owed", refusal, err, len(s.owing))
			}
			if view, err := s.View(context.Background()); err != nil || view.InFlight != 1 {
				t.Errorf("%d are live, %v", view.InFlight, err)
			}
		})
	}
}

// What is over by itself, or was reclaimed, is owed no more.
func TestNothingIsOwedForEver(t *testing.T) {
	s := initialised(t, &wire{})
	now := time.Now()
	s.Now = func() time.Time { return now }
	s.owe("flowAx", alice, now.Add(time.Second))
	s.owe("flowAx", alice, now.Add(time.Second)) // once is enough
	s.owe("flowAy", alice, now)
	if len(s.owing) != 2 {
		t.Errorf("%d are owed", len(s.owing))
	}
	s.settle(context.Background())
	if len(s.owing) != 0 {
		t.Errorf("%+v are owed", s.owing)
	}
	for i := range 2 * mostOwing {
		s.owe(string(rune('a'+i)), alice, now.Add(time.Second))
	}
	if len(s.owing) != mostOwing {
		t.Errorf("%d are owed", len(s.owing))
	}
	s.owing = s.owing[:2] // as many as a busy machine can give back in the time there is for it
	l := mustAcquire(t, s, bob)
	if err := s.Release(context.Background(), l, gate.Outcome{Kind: gate.Succeeded}); err != nil {
		t.Fatal(err)
	}
	if err := s.Release(context.Background(), l, gate.Outcome{Kind: gate.Succeeded}); err == nil || len(s.owing) != 0 {
		t.Errorf("a lease that is gone: %v, %d are owed", err, len(s.owing))
	}
}
