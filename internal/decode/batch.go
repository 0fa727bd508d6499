package decode

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vingate/internal/gate"
	"vingate/internal/results"
	"vingate/internal/tenant"
	"vingate/internal/vin"
	"vingate/internal/vpic"
)

// MaxBatch is the largest number of questions in a batch, NHTSA's own.
const MaxBatch = vpic.MaxBatch

// Question is one of a batch.
type Question struct {
	VIN       string // as typed
	ModelYear int    // 0 when none is given
}

// BatchRequest is many questions asked together.
type BatchRequest struct {
	Questions []Question // 1 to MaxBatch
	AsNHTSA   bool       // as in Request
	Whole     bool       // what cannot be asked by its looks refuses the batch as a whole, before anything is spent
	Caller    tenant.Caller
	// Barred, if there is one, is why this caller can cause no call: what is not stored is refused with it.
	Barred *Refusal
}

// Item answers one question of a batch: with exactly one of its fields, Result when Refusal is nil.
type Item struct {
	Result  Result
	Refusal *Refusal
}

const (
	// piece is the number of VINs that costs Config.BatchTokenCost, once begun.
	piece = 10
	// tableAtOnce is how many stored answers are read or written at the same time for one batch.
	tableAtOnce = 10
)

// asked is one question to NHTSA and everybody in the batch who asks it.
type asked struct {
	query   vpic.Query
	places  []int // in the batch
	answer  results.Stored
	stored  bool
	trouble Code     // of a stored one, see Result
	refusal *Refusal // of a question that is not to be asked now
}

// DecodeBatch answers many questions with at most one call, under the batch route. There is one item for each question, in order;
// each has its own outcome. The error is a *Refusal and is about the batch as a whole: none of it can be asked at all.
//
// What is stored, asked twice, or no VIN is left out of the call, and what it costs counts only what is asked. There are no flights here:
// fifty leases for one call would cost more than the call that is rarely saved.
//
// NHTSA's rows name the VIN and not the model year that was given, so one call cannot tell two of them apart for one VIN. The first is
// asked; the other is refused with the shortest time to come back, by when the first is stored and out of its way.
func (s *Service) DecodeBatch(ctx context.Context, req BatchRequest) ([]Item, error) {
	began := s.Now()
	switch n := len(req.Questions); {
	case n == 0:
		return nil, NewRequestInvalid(FaultEmpty, 0)
	case n > MaxBatch:
		return nil, NewBatchTooLarge()
	}
	deadline := began.Add(s.RequestDeadline)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()

	items := make([]Item, len(req.Questions))
	refuseAll := func(questions []*asked, r *Refusal) {
		own := *r
		own.Waited = s.Now().Sub(began)
		for _, q := range questions {
			for _, i := range q.places {
				items[i] = Item{Refusal: &own}
			}
		}
	}

	// 1. vin
	var vins []vin.VIN
	var questions []*asked
	_ = s.Trace(ctx, "vin", func(context.Context) error {
		vins, questions = questionsOf(req, items, began)
		return nil
	})
	if req.Whole {
		if i := slices.IndexFunc(items, func(i Item) bool { return i.Refusal != nil }); i >= 0 {
			return nil, items[i].Refusal.in(i + 1)
		}
	}
	answer := func(q *asked, r Result) {
		r.Stored, r.Age = q.answer, q.answer.Age(s.Now())
		for _, i := range q.places {
			r.VIN = vins[i]
			items[i] = Item{Result: r}
		}
	}

	// 2. results. Trouble with the table is no reason to refuse, but for those who may have stored answers only.
	trouble := s.lookUpAll(ctx, questions)
	var missing []*asked
	for _, q := range questions {
		switch {
		case q.stored:
			answer(q, Result{Source: FromCache, Trouble: q.trouble})
		case q.refusal != nil:
			refuseAll([]*asked{q}, q.refusal)
		default:
			missing = append(missing, q)
		}
	}
	switch {
	case len(missing) == 0:
		return items, nil
	case req.Barred != nil && trouble:
		refuseAll(missing, refuse(CoordinationDown, sayStoreDown, retryStore))
		return items, nil
	case req.Barred != nil:
		refuseAll(missing, req.Barred)
		return items, nil
	}
	ask, later := oneYearEach(missing)

	// 4. tenant, 5. gate, 6. vpic, 7. release
	call, waited, refusal := s.askTogether(ctx, req.Caller, ask, deadline)
	if refusal != nil { // which keeps the others waiting as long
		refuseAll(missing, refusal)
		return items, nil
	}
	refuseAll(later, refuse(VINRepeated, sayVINRepeated, retrySoon))
	var landed []*asked
	for i, q := range ask {
		if err := call.Items[i].Err; err != nil {
			s.Log.WarnContext(ctx, "no answer from NHTSA", "vin", vin.Descriptor(q.query.VIN), "error", forLog(err))
			refuseAll([]*asked{q}, fromUpstream(err))
			continue
		}
		q.answer = s.Results.Live(call.Answer(i))
		landed = append(landed, q)
	}
	// 8. store
	saved := s.saveAll(ctx, landed)
	for i, q := range landed {
		answer(q, Result{Source: FromNHTSA, Waited: waited, Upstream: call.Took, Saved: saved[i]})
	}
	return items, nil
}

// questionsOf reads what was typed. What is refused by its looks has its item already; the same question is there once.
func questionsOf(req BatchRequest, items []Item, now time.Time) (vins []vin.VIN, questions []*asked) {
	vins = make([]vin.VIN, len(req.Questions))
	known := map[string]*asked{}
	for i, typed := range req.Questions {
		query, v, refusal := read(typed, req.AsNHTSA, now)
		if refusal != nil {
			items[i] = Item{Refusal: refusal}
			continue
		}
		vins[i] = v
		key := results.Key(query)
		if q, twice := known[key]; twice {
			q.places = append(q.places, i)
			continue
		}
		known[key] = &asked{query: query, places: []int{i}}
		questions = append(questions, known[key])
	}
	return vins, questions
}

// read is the question to NHTSA, or why it is none.
func read(q Question, asNHTSA bool, now time.Time) (vpic.Query, vin.VIN, *Refusal) {
	parse := vin.Parse
	if asNHTSA {
		parse = vin.ForNHTSA
	}
	v, err := parse(q.VIN)
	if err != nil {
		return vpic.Query{}, v, vinInvalid(err)
	}
	if q.ModelYear != 0 && (q.ModelYear < FirstModelYear || q.ModelYear > LastModelYear(now)) {
		return vpic.Query{}, v, NewModelYearInvalid(now)
	}
	return vpic.Query{VIN: v.Value, ModelYear: q.ModelYear}, v, nil
}

// oneYearEach parts those that one call can answer from those whose VIN it asks with another model year.
func oneYearEach(questions []*asked) (ask, later []*asked) {
	for _, q := range questions {
		if slices.ContainsFunc(ask, func(other *asked) bool { return other.query.VIN == q.query.VIN }) {
			later = append(later, q)
		} else {
			ask = append(ask, q)
		}
	}
	return ask, later
}

// askTogether makes the one call of a batch, or says why there is none.
func (s *Service) askTogether(ctx context.Context, caller tenant.Caller, ask []*asked, deadline time.Time) (call vpic.BatchAnswer, waited time.Duration, refusal *Refusal) {
	if !s.worthACall(deadline) {
		return call, 0, busy()
	}
	queries := make([]vpic.Query, len(ask))
	for i, q := range ask {
		queries[i] = q.query
	}
	c := claim{caller: caller, route: gate.Batch, cost: s.batchCost(len(ask)), wait: s.MaxWaitBatch}
	if refusal, _ := s.mayAsk(ctx, c, deadline); refusal != nil {
		return call, 0, refusal
	}
	began := s.Now()
	lease, refusal, _ := s.acquire(ctx, c, deadline)
	if refusal != nil {
		return call, 0, refusal
	}
	waited = s.Now().Sub(began)
	defer s.charge(ctx, c, lease)()
	refusal, _ = s.callUnder(ctx, lease, deadline, fmt.Sprintf("batch of %d", len(queries)),
		func(ctx context.Context) (_ vpic.Quota, _ time.Duration, err error) {
			call, err = s.Upstream.DecodeBatch(ctx, queries)
			return call.Quota, call.Took, err
		},
		func(*Refusal, verdict) {})
	return call, waited, refusal
}

// batchCost is what a call for n VINs takes of a bucket.
func (s *Service) batchCost(n int) int { return s.BatchTokenCost * ((n + piece - 1) / piece) }

// lookUpAll finds the stored answers, past their freshness too: a list refreshes nothing. Trouble says that the table could not be read: then
// nobody knows of what is not in memory, and is not kept waiting for it.
func (s *Service) lookUpAll(ctx context.Context, questions []*asked) (trouble bool) {
	var down atomic.Bool
	s.each(ctx, len(questions), func(i int) {
		q := questions[i]
		kept, remembered := s.Results.Remembered(q.query)
		if remembered && (kept.Kind == results.Fresh || kept.Until != 0) {
			q.answer, q.stored, q.trouble = kept.Answer, true, Code(kept.Reason)
			return
		}
		if !down.Load() {
			row, err := s.look(ctx, q.query, "cache")
			switch {
			case err != nil:
				down.Store(true)
			case row.Kind == results.Refused:
				q.refusal = s.tooSlow(row)
				return
			default:
				q.answer, q.stored, q.trouble = row.Answer, row.Has(), Code(row.Reason)
				return
			}
		}
		if remembered {
			q.answer, q.stored, q.trouble = kept.Answer, true, CoordinationDown
		}
	})
	return down.Load()
}

// saveAll stores live answers and says which are in the table now. A table that fails with one is left alone with the rest; that it has a newer
// answer to one is no failure.
func (s *Service) saveAll(ctx context.Context, questions []*asked) (saved []bool) {
	saved = make([]bool, len(questions))
	var down atomic.Bool
	s.each(ctx, len(questions), func(i int) {
		if !down.Load() {
			var err error
			if saved[i], err = s.land(ctx, nil, questions[i].answer.Answer); err != nil {
				down.Store(true)
			}
		}
	})
	return saved
}

// each does something for 0 to n-1, several at a time, and returns when all is done. A panic is passed on to the caller.
func (s *Service) each(ctx context.Context, n int, do func(i int)) {
	var next atomic.Int64
	var wait sync.WaitGroup
	var once sync.Once
	var panicked any
	for range min(n, tableAtOnce) {
		wait.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					once.Do(func() { panicked = p })
					s.Log.ErrorContext(ctx, "panic in a batch", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				}
			}()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wait.Wait()
	if panicked != nil {
		panic(errors.New("panic in a batch, logged before"))
	}
}
