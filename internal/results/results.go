// Package results keeps NHTSA's answers, in the memory of the instance and in a table, and lets all instances together ask each question
// once. It promises that what it gives back is NHTSA's own answer to exactly that VIN, model year and kind of call, byte for byte, not older
// than it may be: an item past its end counts as absent although the table still has it, and an item that cannot be read, or that
// answers another question, counts as absent and is reported. Only answers are stored, never errors.
//
// Of all who ask a question without an answer one is elected, by one conditional write, and flies: it asks NHTSA, and its next write stores the
// answer and ends the flight. The others watch by reads. A leader that dies is followed by another when its flight's time is over on every
// clock; what it writes after that changes no other flight, and an older answer never takes the place of a newer one.
//
// Trouble with the table is a *StoreError. A caller goes on without stored answers then.
package results

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/ddb"
	"vingate/internal/lru"
	"vingate/internal/vpic"
)

// API is what is used of a DynamoDB client.
type API interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
}

// Config of a store. NewID, Down and Now may be nil.
type Config struct {
	Client    API
	Table     string
	Lives     Lives
	Memory    int64            // bytes of answers kept in memory; 0 keeps none
	SkewBound time.Duration    // how far any instance's clock may be off
	NewID     func() string    // 48 random bits or more, without a blank; 60 of crypto/rand when nil
	Down      func() bool      // the table is known not to answer: nothing is stored meanwhile
	Now       func() time.Time // wall clock
}

// Store is the results table and this instance's memory of it. It is safe for use by many goroutines.
type Store struct {
	Config
	memory *lru.Cache[string, kept]
	opened *lru.Cache[string, *opened]
	packed unpacker
}

// Budgets. A slow table must not hold up a decode for long.
const (
	attempt     = 100 * time.Millisecond
	lookBudget  = 300 * time.Millisecond
	writeBudget = 300 * time.Millisecond
	retryPause  = 20 * time.Millisecond
	maxWrites   = 3           // of one landing: others may land or be elected meanwhile
	farAhead    = time.Minute // no clock is so far ahead, so no answer was fetched then

	// DownAfter is for the guard of the table: one look at a table that does not answer is enough to know it.
	DownAfter = 150 * time.Millisecond
)

// New makes a store over a table; it makes no call.
func New(cfg Config) *Store {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = func() string { return rand.Text()[:12] }
	}
	if cfg.Down == nil {
		cfg.Down = func() bool { return false }
	}
	return &Store{Config: cfg, memory: newMemory(cfg.Memory), opened: newOpened(cfg.Memory)}
}

// Stored is an answer with its life. Took and Quota of the answer are zero when it is not live.
type Stored struct {
	vpic.Answer
	FreshFor time.Duration // from FetchedAt, at most Life
	Life     time.Duration // from FetchedAt
}

// Age of the answer at a time, never negative: clocks differ.
func (s Stored) Age(now time.Time) time.Duration { return max(0, now.Sub(s.FetchedAt)) }

// span is the life on the clock; the zero Stored has the zero span.
func (s Stored) span() Span {
	if s.FetchedAt.IsZero() {
		return Span{}
	}
	return Span{Fresh: MillisOf(s.FetchedAt.Add(s.FreshFor)), End: MillisOf(s.FetchedAt.Add(s.Life))}
}

// Found is what a look found: the row, what it means, and its answer where that may be shown.
type Found struct {
	Row
	Standing
	Answer Stored // zero: there is none
	Damage error  // a *CorruptError: something in the item cannot be used, and counts as absent

	item item
}

// Has says whether there is an answer that may be shown.
func (f Found) Has() bool { return !f.Answer.FetchedAt.IsZero() }

// Key is the item's key: vin#<VIN>#<model year or ->#<v, or x for the Extended call>.
func Key(q vpic.Query) string {
	year, kind := "-", "v"
	if q.ModelYear != 0 {
		year = strconv.Itoa(q.ModelYear)
	}
	if q.Extended {
		kind = "x"
	}
	return "vin#" + q.VIN + "#" + year + "#" + kind
}

// Live gives a live answer the life it has when it is stored.
func (s *Store) Live(a vpic.Answer) Stored {
	life := s.Lives.of(a.Outcome(), a.Codes())
	return Stored{Answer: a, Life: life, FreshFor: min(life, s.Lives.Soft)}
}

// Look reads the row of a question, eventually consistent: a look that misses what is there is put right by the election that follows it, and what it shows
// of a flight or a verdict is true of a moment ago. The error is a *StoreError: nobody knows what is there.
func (s *Store) Look(ctx context.Context, q vpic.Query) (Found, error) { return s.look(ctx, q, false) }

func (s *Store) look(ctx context.Context, q vpic.Query, consistent bool) (Found, error) {
	ctx, cancel := context.WithTimeout(ctx, lookBudget)
	defer cancel()
	var last error
	for {
		it, err := s.get(ctx, q, consistent)
		if err == nil {
			f := s.read(it, q)
			s.remember(q, f)
			return f, nil
		}
		if last == nil || ctx.Err() == nil { // what the budget's end cut short says less than the try before it
			last = err
		}
		if fault, _ := ddb.Classify(ctx, err); !fault.WorthRetrying() || !pause(ctx) {
			return Found{}, storeError(ctx, "read", last)
		}
	}
}

func (s *Store) get(ctx context.Context, q vpic.Query, consistent bool) (item, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	out, err := s.Client.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String(s.Table), Key: item{attrKey: text(Key(q))}, ConsistentRead: aws.Bool(consistent)}, once)
	if err != nil {
		return nil, err
	}
	return out.Item, nil
}

// read turns an item into what it means now.
func (s *Store) read(it item, q vpic.Query) Found {
	now := s.now()
	row, err := decode(it)
	f := Found{Row: row, item: it}
	if err != nil {
		f.Damage = &CorruptError{Reason: "damaged", Err: err}
	} else if f.Answer, err = s.unpack(row, q, now); err != nil {
		f.Damage = err
	}
	f.Standing = row.Stands(MillisOf(now), f.Answer.span())
	return f
}

// unpack is the row's answer, zero where there is none that may be shown now. The error is a *CorruptError.
func (s *Store) unpack(r Row, q vpic.Query, now time.Time) (Stored, error) {
	return s.shown(r, now, func() (Stored, error) {
		answer, _, err := s.understand(r, q)
		return answer, err
	})
}

// shown is the row's answer, as it was understood, where it may be shown now.
func (s *Store) shown(r Row, now time.Time, understood func() (Stored, error)) (Stored, error) {
	fetched, end := r.Fetched.Time(), time.Unix(r.Expires, 0)
	switch {
	case r.Fetched == 0 || !now.Before(end):
		return Stored{}, nil
	case r.Format != format:
		return Stored{}, &CorruptError{Reason: "another format"}
	case fetched.After(now.Add(farAhead)) || end.Before(fetched.Truncate(time.Second)):
		return Stored{}, &CorruptError{Reason: "an impossible time"}
	}
	stored, err := understood()
	if err != nil || stored.Age(now) >= stored.Life {
		return Stored{}, err
	}
	return stored, nil
}

// understand reads the row's body, whose size it tells. The error is a *CorruptError.
func (s *Store) understand(r Row, q vpic.Query) (stored Stored, size int, err error) {
	body, err := s.packed.unpack(r.Packed)
	if err != nil {
		return Stored{}, 0, &CorruptError{Reason: "an unreadable body", Err: err}
	}
	answer, err := vpic.Read(body, q)
	if err != nil {
		return Stored{}, 0, &CorruptError{Reason: "not an answer to this question", Err: err}
	}
	answer.FetchedAt = r.Fetched.Time()
	stored = s.Live(answer)
	// The configured life may have become shorter since the item was written. Nor does one become longer that was shorter then: the table may
	// have deleted the item.
	stored.Life = min(stored.Life, time.Unix(r.Expires, 0).Sub(answer.FetchedAt))
	stored.FreshFor = min(stored.FreshFor, stored.Life)
	return stored, len(body), nil
}

// Led is a flight that its holder leads.
type Led struct {
	ID    string
	Query vpic.Query
	Until time.Time // on this instance's clock: all that the leader does is over by then
	Slow  Slow      // as it was found
}

// Silence is how long the question is refused if the flight's call is not answered in time; 0: it may be asked again at once.
func (l *Led) Silence(now time.Time) time.Duration {
	if l.Slow.slower(MillisOf(now)).Calls < slowCalls {
		return 0
	}
	return slowTime
}

// Elect asks to lead the flight for what was found, until a time on this instance's clock. Of many one is elected. Who is not has met what it is to
// do now in met, at no further cost.
//
// With an error, a *StoreError, nobody knows whether the caller was elected. What it then does alone it may end with Land or Quit all the same: they
// change nothing but its own flight.
func (s *Store) Elect(ctx context.Context, q vpic.Query, f Found, until time.Time) (led *Led, met Found, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeBudget)
	defer cancel()
	led = &Led{ID: s.NewID(), Query: q, Until: until, Slow: f.Slow}
	end := endOf(MillisOf(until), s.SkewBound)
	for {
		it, err := s.update(ctx, q, elect(f.PlanElect(led.ID, end, f.Answer.span()), f.item))
		switch {
		case err == nil && it == nil:
			return led, f, nil
		case err == nil:
			f = s.read(*it, q)
			s.remember(q, f)
		default:
			if fault, _ := ddb.Classify(ctx, err); !fault.WorthRetrying() || !pause(ctx) {
				return led, Found{}, storeError(ctx, "write", err)
			}
			// It may have been applied, or may be yet.
			again, lookErr := s.look(ctx, q, true)
			if lookErr != nil {
				return led, Found{}, storeError(ctx, "write", err)
			}
			f = again
		}
		if f.Flight.Leader == led.ID {
			return led, f, nil
		}
		if err == nil || f.Kind != Lead && (f.Kind != Stale || f.Until != 0) {
			return nil, f, nil
		}
	}
}

// Land stores a live answer and ends its flight; led is nil for one that had none. stored is false when the table has an answer as new. It goes
// on when ctx has ended, and bounds itself. The error is a *StoreError or a *CorruptError.
func (s *Store) Land(ctx context.Context, led *Led, a vpic.Answer) (stored bool, err error) {
	packed, err := pack(a.Body())
	if err != nil {
		return false, &CorruptError{Reason: "the body cannot be compressed", Err: err}
	}
	w := Land{Format: format, Packed: packed, Fetched: MillisOf(a.FetchedAt),
		Expires: seconds(MillisOf(a.FetchedAt.Add(s.Lives.of(a.Outcome(), a.Codes()))))} // rounded up: a life of a fraction of a second is not over before it begins
	if led != nil {
		w.Leader = led.ID
	}
	s.keep(a.Query(), Row{Format: w.Format, Packed: w.Packed, Fetched: w.Fetched, Expires: w.Expires})
	if s.Down() {
		return false, &StoreError{Op: "write", Fault: ddb.Down, Err: errors.New("not tried")}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*writeBudget)
	defer cancel()
	x := land(w)
	for range maxWrites {
		it, err := s.patiently(ctx, a.Query(), x)
		if err != nil {
			return false, storeError(ctx, "write", err)
		}
		if it == nil {
			return true, nil
		}
		met, err := decode(*it)
		switch ok := false; {
		case err != nil, met.Fetched > w.Fetched.plus(farAhead): // it cannot be used, and would stand in the way of what can
			x = replace(w, *it)
		case met.Fetched == w.Fetched && bytes.Equal(met.Packed, w.Packed): // by a try whose answer was lost
			return true, nil
		default:
			if w, ok = w.PlanLand(met); !ok {
				return false, nil
			}
			x = land(w)
		}
	}
	return false, &StoreError{Op: "write", Fault: ddb.Contended, Err: errors.New("the row changed under every attempt")}
}

// Put stores a live answer that no flight was for.
func (s *Store) Put(ctx context.Context, a vpic.Answer) error {
	_, err := s.Land(ctx, nil, a)
	return err
}

// Failure is how a flight ended that brought no answer.
type Failure struct {
	Reason     string        // what those who followed are told, without a blank; "": each of them stands for itself
	RetryAfter time.Duration // with a Reason
	TimedOut   bool          // NHTSA did not answer in time
	Rest       string        // why the answer that there is rests now, without a blank; "": it does not
}

// Quit ends a flight that brought no answer, so that nobody waits for it. It goes on when ctx has ended, and bounds itself. The error is a
// *StoreError: the flight ends by itself then.
func (s *Store) Quit(ctx context.Context, led *Led, f Failure) error {
	now := MillisOf(s.now())
	w := Quit{Leader: led.ID}
	if f.Reason != "" {
		w.Verdict = Verdict{led.ID, f.Reason, now.plus(f.RetryAfter)}
	}
	if f.TimedOut {
		w.Slow = led.Slow.slower(now)
	}
	if f.Rest != "" {
		w.Rest = Rest{now.plus(RestTime), f.Rest}
		s.hush(led.Query, w.Rest)
	}
	if s.Down() {
		return &StoreError{Op: "write", Fault: ddb.Down, Err: errors.New("not tried")}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeBudget)
	defer cancel()
	if _, err := s.patiently(ctx, led.Query, quit(w)); err != nil {
		return storeError(ctx, "write", err)
	}
	return nil
}

// Defer lets the answer that was found rest for RestTime, for all instances.
func (s *Store) Defer(ctx context.Context, q vpic.Query, f Found, reason string) error {
	rest := Rest{MillisOf(s.now()).plus(RestTime), reason}
	s.hush(q, rest)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeBudget)
	defer cancel()
	if _, err := s.patiently(ctx, q, deferred(Defer{f.Seen(), rest}, f.item)); err != nil {
		return storeError(ctx, "write", err)
	}
	return nil
}

// patiently repeats a write that may be applied twice without harm, for as long as ctx lasts and it may help. met is the item whose condition
// failed.
func (s *Store) patiently(ctx context.Context, q vpic.Query, x *expression) (met *item, err error) {
	var last error
	for {
		met, err := s.update(ctx, q, x)
		if err == nil {
			return met, nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if fault, _ := ddb.Classify(ctx, err); !fault.WorthRetrying() || !pause(ctx) {
			return nil, last
		}
	}
}

// update sends one write once. met is the item its condition failed on, nil when it was applied.
func (s *Store) update(ctx context.Context, q vpic.Query, x *expression) (met *item, err error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	_, err = s.Client.UpdateItem(ctx, x.input(s.Table, Key(q)), once)
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		it := item(failed.Item)
		return &it, nil
	}
	return nil, err
}

// now is wall time: a frozen instance's monotonic clock may have stood still.
func (s *Store) now() time.Time { return s.Now().Round(0) }

// once forbids the SDK to repeat: what is repeated here looks first whether it must.
func once(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

// pause waits before the next attempt; false: there is no time for one.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(retryPause):
		return ctx.Err() == nil
	}
}

// CorruptError: an item is there but cannot be used. It counts as absent. It shows nothing of the item.
type CorruptError struct {
	Reason string
	Err    error
}

func (e *CorruptError) Error() string {
	s := "a stored answer cannot be used: " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *CorruptError) Unwrap() error { return e.Err }

// StoreError: the table could not be read or written.
type StoreError struct {
	Op    string // read or write
	Fault ddb.Fault
	Err   error
}

func (e *StoreError) Error() string {
	return fmt.Sprintf("results table: %s: %s: %v", e.Op, e.Fault, e.Err)
}

func (e *StoreError) Unwrap() error { return e.Err }

func storeError(ctx context.Context, op string, err error) error {
	var known *StoreError
	if errors.As(err, &known) {
		return known
	}
	fault, _ := ddb.Classify(ctx, err)
	return &StoreError{Op: op, Fault: fault, Err: err}
}
