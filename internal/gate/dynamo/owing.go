package dynamo

import (
	"context"
	"slices"
	"time"

	"vingate/internal/gate"
)

// owing is what this instance could not give back while the table did not answer: a lease whose release failed, or an id that may have left a lease or
// a ticket. Nothing waits for it; with the next request after the table's return it is given back, so that an outage does not
// cost places for a lease's whole time on top. An instance that is not asked again gives nothing back: then it expires.
type owing struct {
	id    string
	key   gate.Key
	until time.Time // from then on it is over by itself
}

// mostOwing bounds the memory: an instance has few calls under way.
const mostOwing = 64

func (s *Store) owe(id string, key gate.Key, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.owing) < mostOwing && !slices.ContainsFunc(s.owing, func(o owing) bool { return o.id == id }) {
		s.owing = append(s.owing, owing{id, key, until})
	}
}

// settle gives back what is owed, if anything is, within a short time. What cannot be given back yet is owed still.
func (s *Store) settle(ctx context.Context) {
	s.mu.Lock()
	debts := s.owing
	s.owing = nil
	s.mu.Unlock()
	if len(debts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupBudget)
	defer cancel()
	for n, o := range debts {
		if !s.Now().Before(o.until) {
			continue
		}
		if err := s.giveBack(ctx, o.id, o.key); err != nil {
			for _, rest := range debts[n:] {
				s.owe(rest.id, rest.key, rest.until)
			}
			return
		}
	}
}

// giveBack gives back ticket or lease of an id, whichever there is.
func (s *Store) giveBack(ctx context.Context, id string, key gate.Key) error {
	view, _, err := s.view(ctx, 0)
	for range gate.MaxTries {
		if err != nil {
			return err
		}
		var x *expression
		if w, queued := view.PlanCancel(id, key); queued {
			x = cancelTicket(w)
		} else {
			// Also when no lease is seen: an admission may land after the look.
			x = free(gate.Free{ID: id, Place: key.Place(), Batch: key.Route == gate.Batch, Episodes: -1})
		}
		var met *gate.State
		if _, met, err = s.update(ctx, x); err == nil && met == nil {
			return nil
		} else if err == nil {
			if _, queued := met.Tickets[id]; !queued {
				if _, leased := met.Leases[id]; !leased {
					return nil
				}
			}
			view = *met
		}
	}
	return err
}
