package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"vingate/internal/ddb"
	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"
)

// settings is all that an instance is told at its start.
type settings struct {
	Peer    string `json:"peer"`
	Store   string `json:"store"` // address of the store
	Table   string `json:"table"` // in DynamoDB
	Name    string `json:"name"`  // of the budget, another for each run
	Rate    int    `json:"rate"`
	Burst   int    `json:"burst"`
	Slots   int    `json:"slots"`
	LeaseMs int64  `json:"leaseMs"`
	Queue   int    `json:"queue"`  // how many may wait in an instance that has a line of its own
	SkewMs  int64  `json:"skewMs"` // by which its clock is ahead
}

func (s settings) now() time.Time { return time.Now().Add(time.Duration(s.SkewMs) * time.Millisecond) }

// question is one call that wants to be made.
type question struct {
	ID         int    `json:"id"`
	Tenant     string `json:"tenant"`
	PatienceMs int64  `json:"patienceMs"` // how long it may stand in a line, where there is one
	HoldMs     int64  `json:"holdMs"`     // how long the call takes once it is admitted
}

// line is what an instance says: that it is ready, what became of a question, and that an admitted call is over. Times are the machine's own in
// microseconds, whatever the instance's clock says.
type line struct {
	Is      string `json:"is"` // ready, admitted, refused, failed or over
	ID      int    `json:"id"`
	Asked   int64  `json:"asked"`
	At      int64  `json:"at"`
	RetryMs int64  `json:"retryMs"` // until it should ask again, -1 where it is not told
	Error   string `json:"error"`
}

// limiter is one instance's limiter in Go. Acquire admits with a release, refuses with how long to stay away (negative: it does not say), or fails.
type limiter interface {
	Acquire(ctx context.Context, tenant string, patience time.Duration) (release func(context.Context), retry time.Duration, err error)
}

// serve answers questions until there are no more.
func serve(ctx context.Context, l limiter, in io.Reader, out io.Writer) error {
	var mouth sync.Mutex
	say := func(what line) {
		mouth.Lock()
		defer mouth.Unlock()
		_ = json.NewEncoder(out).Encode(what) // who asked has gone: nothing is left to say
	}
	say(line{Is: "ready"})
	var calls sync.WaitGroup
	defer calls.Wait()
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return err
		}
		calls.Go(func() {
			asked := time.Now().UnixMicro()
			release, retry, err := l.Acquire(ctx, q.Tenant, time.Duration(q.PatienceMs)*time.Millisecond)
			at := time.Now().UnixMicro()
			switch {
			case err != nil:
				say(line{Is: "failed", ID: q.ID, Asked: asked, At: at, Error: err.Error()})
			case release == nil:
				told := retry.Milliseconds()
				if retry < 0 {
					told = -1
				}
				say(line{Is: "refused", ID: q.ID, Asked: asked, At: at, RetryMs: told})
			default:
				say(line{Is: "admitted", ID: q.ID, Asked: asked, At: at})
				time.Sleep(time.Duration(q.HoldMs) * time.Millisecond)
				say(line{Is: "over", ID: q.ID, At: time.Now().UnixMicro()})
				release(ctx)
			}
		})
	}
	return lines.Err()
}

// open makes the limiter of an instance that is written in Go.
func open(s settings) (limiter, error) {
	switch s.Peer {
	case "vingate":
		client, err := storeClient(s.Store)
		if err != nil {
			return nil, err
		}
		return vingate{dynamo.New(dynamo.Config{Client: client, Table: s.Table, Name: s.Name, Now: s.now, NewID: func() string { return rand.Text()[:6] }}), s.now}, nil
	case "redis_rate":
		rdb := redis.NewClient(&redis.Options{Addr: s.Store})
		return redisRate{redis_rate.NewLimiter(rdb), s.Name, redis_rate.Limit{Rate: s.Rate, Burst: s.Burst, Period: time.Second}}, nil
	}
	return nil, fmt.Errorf("%q is not written in Go", s.Peer)
}

// storeClient is the one that the function has.
func storeClient(url string) (dynamo.Client, error) {
	client, err := ddb.New(func(name string) string {
		return map[string]string{"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_DYNAMODB": url}[name]
	}, ddb.RequestPath())
	if err != nil {
		return nil, err
	}
	return ddb.NewGuard(client, time.Now, dynamo.DownAfter), nil
}

// vingate is the gate as the function has it.
type vingate struct {
	store *dynamo.Store
	now   func() time.Time
}

func (v vingate) Acquire(ctx context.Context, tenant string, patience time.Duration) (func(context.Context), time.Duration, error) {
	l, refusal, err := v.store.Acquire(ctx, gate.Request{Key: gate.Key{Route: gate.Interactive, Tenant: tenant}, Patience: patience})
	if err != nil {
		return nil, 0, err
	}
	if l == nil {
		return nil, refusal.RetryAfter, nil
	}
	if v.now().After(l.StartBy) { // the answer came too late: no call is made
		return nil, time.Second, v.store.Release(ctx, l, gate.Outcome{Kind: gate.Abandoned})
	}
	began := v.now()
	return func(ctx context.Context) {
		_ = v.store.Release(ctx, l, gate.Outcome{Kind: gate.Succeeded, Took: v.now().Sub(began)}) // what could not be given back expires
	}, 0, nil
}

// knobs of vingate's gate.
func (b budget) knobs() gate.Knobs {
	return gate.Knobs{
		MaxInFlight: b.Slots, RatePerSecond: float64(b.Rate), Burst: b.Burst, MaxQueued: b.Queue,
		BulkheadInteractive: 16, BulkheadBatch: 2, BulkheadAnon: 16,
		LeaseTTL: b.Lease, SkewBound: 250 * time.Millisecond, StartGrace: 250 * time.Millisecond, Attempt: gate.Attempt,
	}
}

// redisRate is redis_rate: a rate only, by the Redis server's clock.
type redisRate struct {
	limiter *redis_rate.Limiter
	key     string
	limit   redis_rate.Limit
}

func (r redisRate) Acquire(ctx context.Context, _ string, _ time.Duration) (func(context.Context), time.Duration, error) {
	got, err := r.limiter.Allow(ctx, r.key, r.limit)
	if err != nil {
		return nil, 0, err
	}
	if got.Allowed == 0 {
		return nil, got.RetryAfter, nil
	}
	return func(context.Context) {}, 0, nil
}

var errEnded = errors.New("the instance has ended")
