package bulk

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	"vingate/internal/api"
)

// Book is where records go, and what it has is not asked again. A Ledger is one.
type Book interface {
	// Has says whether the row is finished.
	Has(Row) (bool, error)
	// Answered gives the record of another row that answers the same question.
	Answered(Key) (Record, bool, error)
	// Append keeps records; nothing of them is lost when it has returned.
	Append([]Record) error
}

// Run is one run over the rows of an input.
type Run struct {
	Next func() (Row, error) // the rows, ended by io.EOF
	Book Book
	// Ask puts up to Batch questions, as api.Client.Batch does. It is called by one goroutine, one call after the other.
	Ask    func(context.Context, []api.Question) ([]api.Result, error)
	Fields Fields
	Batch  int // questions in one call, 1 to api.MaxBatch
	// Tries is how often a VIN is asked for that is refused by itself, alone or while others are answered, before the run goes on without it.
	Tries int
	// Patience is how long the run goes on without one VIN being answered. A wait that would exceed it is not begun.
	Patience time.Duration

	Before Survey // what the book has of the input
	// Report is told of every change, by the same goroutine. It may be nil.
	Report func(State)
	Jitter func() float64 // 0 to 1
}

// Survey is what a run will find.
type Survey struct {
	Total  int             // rows of the input
	Done   int             // those that have a record to which nothing can be added
	Counts map[Outcome]int // of these
}

// State is how far a run is.
type State struct {
	Total  int             // rows of the input
	Done   int             // rows that are finished, in this run and before
	Before int             // of these, before this run
	Asked  int             // VINs that were asked for in this run, repetitions not counted
	Calls  int             // calls that were made
	Counts map[Outcome]int // of the finished ones

	RowsPerSecond float64       // 0 as long as nobody can say
	Left          time.Duration // by that speed; 0 as long as nobody can say
	Wait          *Wait         // nil while working
}

// Wait is a pause before the next call.
type Wait struct {
	Until time.Time
	For   time.Duration
	Why   string // in a few words
	Told  bool   // the length is that of a Retry-After
}

// End says how a run ended.
type End string

// The ends of a run.
const (
	Complete    End = "complete"    // every row has a record; some may be refused
	Interrupted End = "interrupted" // by the caller
	OutOfTime   End = "out of time" // refused until Patience is over, or would be before the next call may be made
	Unusable    End = "unusable"    // the API cannot be reached, also within Patience, or refuses the caller: Err says it
)

// Summary is what a run came to.
type Summary struct {
	State
	End  End
	Err  error         // of Unusable, and the last refusal of OutOfTime
	Wait time.Duration // of OutOfTime: how long the next call would have had to wait
}

// question is one that is under way, with the rows that wait for its answer.
type question struct {
	key   Key
	rows  []Row
	tries int
	due   time.Time
	last  *api.Problem
	// suspect is the size of the calls that it may be in since one with it came to nothing; 0 as long as none did. Suspects are asked among
	// themselves, in ever smaller calls, so that a VIN that spoils a call is found and stops only itself.
	suspect int
}

// How many rows may be under way, in batches, and how many records that needed no call are kept before they are written.
const (
	openBatches = 20
	mostReady   = 1000
)

// run is a Run at work.
type run struct {
	Run
	state State
	speed speed

	open    map[Key]*question
	line    []*question // those not in a call, by when they came
	rows    int         // of all questions
	ended   bool        // the input is
	ready   []Record
	size    int       // of the next call, up to Batch: halved by calls that come to nothing, as large ones may be too much, and grown again
	failed  int       // calls in a row that came to nothing and did not say when to come back
	reached bool      // vingate has answered once
	settled time.Time // when a VIN was answered last
	noted   map[Key]Record
}

// Do asks for every row that the book does not have. The error is that of the input or of the book; what the API does is in the summary. When ctx
// ends, the call that is being made is waited for and its records are kept; none is begun.
func (r Run) Do(ctx context.Context) (Summary, error) {
	w := &run{Run: r, open: map[Key]*question{}, size: r.Batch, settled: time.Now(), noted: map[Key]Record{}}
	w.state = State{Total: r.Before.Total, Done: r.Before.Done, Before: r.Before.Done, Counts: map[Outcome]int{}}
	maps.Copy(w.state.Counts, r.Before.Counts)
	w.speed.add(w.settled, 0)
	s, err := w.do(ctx)
	s.State = w.state
	return s, err
}

func (w *run) do(ctx context.Context) (Summary, error) {
	w.report()
	for {
		if ctx.Err() != nil {
			end := Interrupted
			if w.state.Done >= w.state.Total {
				end = Complete
			}
			return Summary{End: end}, w.flush()
		}
		batch, err := w.gather(ctx)
		if err != nil {
			return Summary{}, errors.Join(err, w.flush())
		}
		var held time.Duration
		var why error
		told := true
		switch {
		case len(batch) > 0 && ctx.Err() == nil:
			held, told, why = w.ask(ctx, batch)
			if err := w.flush(); err != nil {
				return Summary{}, err
			}
			if why != nil && held < 0 {
				return Summary{End: Unusable, Err: why}, nil
			}
		case len(batch) == 0 && len(w.line) == 0 && w.ended:
			return Summary{End: Complete}, w.flush()
		case len(batch) == 0 && len(w.line) > 0:
			first := w.line[0]
			for _, q := range w.line {
				if q.due.Before(first.due) {
					first = q
				}
			}
			held, why, told = time.Until(first.due), first.last, first.last.RetryAfter() > 0
		}
		if held <= 0 || ctx.Err() != nil {
			continue
		}
		if time.Since(w.settled)+held > w.Patience {
			w.giveUp()
			end := OutOfTime
			if p := (*api.Problem)(nil); !errors.As(why, &p) {
				end = Unusable
			}
			return Summary{End: end, Err: why, Wait: held}, w.flush()
		}
		if err := w.flush(); err != nil {
			return Summary{}, err
		}
		w.wait(ctx, held, told, why)
	}
}

// gather takes what may be asked now: first what was refused before, then new rows.
func (w *run) gather(ctx context.Context) ([]*question, error) {
	var batch []*question
	now := time.Now()
	// One call answers one model year for a VIN.
	repeated := func(k Key) bool {
		return slices.ContainsFunc(batch, func(q *question) bool { return q.key.vin == k.vin })
	}
	most, suspect := w.size, 0 // the first in line says with whom it goes
	rest := w.line[:0]
	for _, q := range w.line {
		ripe := !q.due.After(now)
		if ripe && len(batch) == 0 && q.suspect > 0 {
			most, suspect = q.suspect, q.suspect
		}
		if ripe && len(batch) < most && q.suspect == suspect && !repeated(q.key) {
			batch = append(batch, q)
		} else {
			rest = append(rest, q)
		}
	}
	clear(w.line[len(rest):])
	w.line = rest
	for suspect == 0 && len(batch) < most && w.rows < openBatches*w.Batch && !w.ended && ctx.Err() == nil {
		row, err := w.Next()
		if err == io.EOF {
			w.ended = true
			break
		}
		if err != nil {
			return batch, err
		}
		if has, err := w.Book.Has(row); err != nil {
			return batch, err
		} else if has {
			continue
		}
		k, record := judge(row, now)
		if record == nil {
			if record, err = w.answered(k, row); err != nil {
				return batch, err
			}
		}
		switch q := w.open[k]; {
		case record != nil:
			if w.finish(*record); len(w.ready) >= mostReady {
				if err := w.flush(); err != nil {
					return batch, err
				}
			}
		case q != nil:
			q.rows = append(q.rows, row)
			w.rows++
		default:
			q = &question{key: k, rows: []Row{row}}
			w.open[k] = q
			w.rows++
			w.state.Asked++
			if repeated(k) {
				w.back([]*question{q})
			} else {
				batch = append(batch, q)
			}
		}
	}
	return batch, nil
}

// answered gives the record of a row whose question was answered before, or was given up in this run.
func (w *run) answered(k Key, row Row) (*Record, error) {
	r, ok := w.noted[k]
	if !ok {
		var err error
		if r, ok, err = w.Book.Answered(k); err != nil || !ok {
			return nil, err
		}
	}
	r = r.forRow(row)
	return &r, nil
}

// ask makes the call. A positive time is a pause that everything has to keep, told by the refusal or not; a negative one is the end.
func (w *run) ask(ctx context.Context, batch []*question) (held time.Duration, told bool, why error) {
	questions := make([]api.Question, len(batch))
	for i, q := range batch {
		questions[i] = q.key.question()
	}
	w.state.Calls++
	results, err := w.Ask(context.WithoutCancel(ctx), questions)
	var p *api.Problem
	if err != nil {
		if errors.As(err, &p) && p.Passing() {
			w.reached = true
			results = make([]api.Result, len(batch)) // everybody is refused alike
			for i := range results {
				results[i].Problem = p
			}
		} else if p != nil || !w.reached {
			w.back(batch)
			return -1, false, err
		}
	}
	if err != nil && results == nil {
		w.back(batch)
		w.failed++
		return pause(w.failed, w.Jitter()), false, err
	}
	w.reached = true
	now := time.Now()
	settled := false
	var shared, own *api.Problem // the refusals with the longest wait
	for i, q := range batch {
		problem := results[i].Problem
		switch {
		case problem == nil:
			settled = true
			for _, row := range q.rows {
				w.finish(decoded(row, results[i].Answer, w.Fields))
			}
			w.close(q)
			continue
		case !problem.Passing():
			settled = true
			w.refuse(q, problem)
			continue
		case problem.Shared():
			if shared == nil || problem.RetryAfter() > shared.RetryAfter() {
				shared = problem
			}
		default:
			if own == nil || problem.RetryAfter() > own.RetryAfter() {
				own = problem
			}
		}
		q.last = problem
	}
	for i, q := range batch {
		problem := results[i].Problem
		if problem == nil || !problem.Passing() {
			continue
		}
		if !problem.Shared() && (settled || len(batch) == 1) {
			if q.tries++; q.tries >= w.Tries {
				w.refuse(q, problem)
				continue
			}
		}
		if q.due = now.Add(problem.RetryAfter()); problem.RetryAfter() == 0 {
			q.due = now.Add(pause(max(q.tries, 1), w.Jitter()))
		}
		w.back([]*question{q})
	}
	if settled {
		w.settled = now
		w.size = min(w.Batch, w.size+1+w.Batch/10)
	}
	switch {
	case shared != nil && shared.RetryAfter() > 0:
		w.failed = 0
		return shared.RetryAfter(), true, shared
	case shared != nil:
		w.failed++
		return pause(w.failed, w.Jitter()), false, shared
	case own != nil && !settled: // not one of them: it is not about the VIN, or one of them spoils the call
		half := max(1, len(batch)/2)
		if batch[0].suspect == 0 {
			w.size = half
		}
		for _, q := range batch {
			q.suspect = half
		}
		w.failed++
		return max(own.RetryAfter(), pause(w.failed, w.Jitter())), own.RetryAfter() > 0, own
	}
	w.failed = 0
	return 0, false, nil
}

// back puts questions back into line.
func (w *run) back(batch []*question) { w.line = append(w.line, batch...) }

// refuse ends a question without an answer.
func (w *run) refuse(q *question, p *api.Problem) {
	for _, row := range q.rows {
		r := refused(row, p)
		w.finish(r)
		w.noted[q.key] = r // of other rows with the same VIN later
	}
	w.close(q)
}

func (w *run) close(q *question) {
	delete(w.open, q.key)
	w.rows -= len(q.rows)
}

// giveUp writes down why the rows were refused that were asked and not answered.
func (w *run) giveUp() {
	for _, q := range w.line {
		if q.last != nil {
			w.refuse(q, q.last)
		}
	}
	w.line = nil
}

// finish keeps a record for the next flush.
func (w *run) finish(r Record) {
	w.ready = append(w.ready, r)
	w.state.Done++
	w.state.Counts[r.Outcome]++
}

func (w *run) flush() error {
	if len(w.ready) == 0 {
		return nil
	}
	slices.SortStableFunc(w.ready, func(a, b Record) int { return cmp.Compare(a.Line, b.Line) })
	if err := w.Book.Append(w.ready); err != nil {
		return err
	}
	w.ready = w.ready[:0]
	w.speed.add(time.Now(), w.state.Done-w.state.Before)
	w.report()
	return nil
}

func (w *run) report() {
	if w.Report == nil {
		return
	}
	s := w.state
	s.RowsPerSecond = w.speed.perSecond(time.Now())
	if rest := s.Total - s.Done; s.RowsPerSecond > 0 && rest > 0 {
		s.Left = time.Duration(float64(rest) / s.RowsPerSecond * float64(time.Second))
	}
	w.Report(s)
}

// wait pauses until the time is over or ctx ends.
func (w *run) wait(ctx context.Context, d time.Duration, told bool, why error) {
	w.state.Wait = &Wait{Until: time.Now().Add(d), For: d, Told: told, Why: inShort(why)}
	w.report()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	w.state.Wait = nil
	w.report()
}

// inShort is why, in a few words: how long it takes stands beside it.
func inShort(err error) string {
	var p *api.Problem
	if !errors.As(err, &p) {
		return err.Error()
	}
	return cmp.Or(p.Title, p.Detail)
}
