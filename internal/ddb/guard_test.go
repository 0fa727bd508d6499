package ddb

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"
)

// played answers as it is told to.
type played struct {
	asked atomic.Int32
	play  func(context.Context) error
}

func (p *played) GetItem(ctx context.Context, _ *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	p.asked.Add(1)
	return &dynamodb.GetItemOutput{}, p.play(ctx)
}

func (p *played) UpdateItem(ctx context.Context, _ *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	p.asked.Add(1)
	return &dynamodb.UpdateItemOutput{}, p.play(ctx)
}

func (p *played) PutItem(ctx context.Context, _ *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	p.asked.Add(1)
	return &dynamodb.PutItemOutput{}, p.play(ctx)
}

const after = 300 * time.Millisecond

func fine(context.Context) error    { return nil }
func refused(context.Context) error { return errors.New("connection refused") }
func hung(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// read asks with an attempt's time, and says how long it took.
func read(t *testing.T, g *Guard) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = g.GetItem(ctx, &dynamodb.GetItemInput{})
	return time.Since(began), err
}

func isDown(err error) bool {
	var down *DownError
	return errors.As(err, &down)
}

// P11: within a second the first time, and 100 ms while the table is known to be down.
func TestOnlyTheFirstWaitForATableThatDoesNotAnswer(t *testing.T) {
	for name, play := range map[string]func(context.Context) error{"refused": refused, "hung": hung} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := &played{play: play}
				g := NewGuard(table, time.Now, after)
				began := time.Now()
				for !g.Down() {
					if _, err := read(t, g); err == nil || isDown(err) {
						t.Fatalf("not down yet, and %v", err)
					}
					time.Sleep(20 * time.Millisecond)
				}
				if took := time.Since(began); took < after || took > 600*time.Millisecond {
					t.Errorf("known after %v", took)
				}
				table.asked.Store(0)
				told := 0 // also who makes a probe in vain: he does not try again
				for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(time.Millisecond) {
					took, err := read(t, g)
					if took > probeTime {
						t.Errorf("took %v", took)
					}
					if !isDown(err) {
						t.Errorf("told %v", err)
					}
					if took == 0 {
						told++
					}
				}
				if table.asked.Load() < 25 || table.asked.Load() > 41 || told < 1000 {
					t.Errorf("asked %d times in 10 s, told %d times", table.asked.Load(), told)
				}
			})
		})
	}
}

func TestATableThatIsBackIsUsedWithTheNextProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &played{play: refused}
		g := NewGuard(table, time.Now, after)
		for range 100 {
			_, _ = read(t, g)
			time.Sleep(10 * time.Millisecond)
		}
		table.play = fine
		back := time.Now()
		for {
			if _, err := read(t, g); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(back); took > 350*time.Millisecond || g.Down() {
			t.Errorf("used again after %v, down %v", took, g.Down())
		}
		table.play = refused
		if _, err := read(t, g); isDown(err) || g.Down() {
			t.Errorf("one failure, and %v", err)
		}
	})
}

// Long after the trouble, in an instance that nobody asked meanwhile, a crowd comes in one instant: one of it probes, and all are served.
func TestACrowdThatComesAfterTheTroubleIsNotToldOfIt(t *testing.T) {
	for name, tc := range map[string]struct {
		play func(context.Context) error
		back bool
	}{
		"it is back": {func(context.Context) error { time.Sleep(30 * time.Millisecond); return nil }, true},
		"it refuses": {refused, false},
		"it hangs":   {hung, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := &played{play: refused}
				g := NewGuard(table, time.Now, after)
				for !g.Down() {
					_, _ = read(t, g)
					time.Sleep(20 * time.Millisecond)
				}
				time.Sleep(time.Minute)
				table.play = tc.play
				table.asked.Store(0)
				var crowd sync.WaitGroup
				for range 20 {
					crowd.Go(func() {
						took, err := read(t, g)
						if isDown(err) == tc.back || !tc.back && took > probeTime {
							t.Errorf("%v after %v", err, took)
						}
					})
				}
				crowd.Wait()
				if !tc.back && table.asked.Load() > 1 {
					t.Errorf("%d probes", table.asked.Load())
				}
			})
		})
	}
}

// What was taken is given back through a table that is down too, and tells when it is not any more.
func TestWritesGoThroughAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &played{play: refused}
		g := NewGuard(table, time.Now, after)
		for range 100 {
			_, _ = read(t, g)
			time.Sleep(10 * time.Millisecond)
		}
		table.asked.Store(0)
		if _, err := g.UpdateItem(t.Context(), nil); err == nil || isDown(err) || table.asked.Load() != 1 {
			t.Errorf("an update: %v, asked %d times", err, table.asked.Load())
		}
		if _, err := g.PutItem(t.Context(), nil); err == nil || isDown(err) || table.asked.Load() != 2 {
			t.Errorf("a put: %v, asked %d times", err, table.asked.Load())
		}
		table.play = func(context.Context) error { return &types.ConditionalCheckFailedException{} }
		_, _ = g.UpdateItem(t.Context(), nil)
		if g.Down() {
			t.Error("down, although a condition has just failed, which is an answer")
		}
	})
}

func TestWhatSaysNothingAboutTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &played{play: hung}
		g := NewGuard(table, time.Now, after)
		for range 100 { // callers who leave, and callers who had no time to begin with
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(30*time.Millisecond, cancel)
			_, _ = g.GetItem(ctx, nil)
			ctx, cancel = context.WithTimeout(t.Context(), 30*time.Millisecond)
			_, _ = g.GetItem(ctx, nil)
			cancel()
		}
		if g.Down() {
			t.Error("down by the callers' own time")
		}
		table.play = refused
		for range 100 { // failures far from one another
			_, _ = read(t, g)
			time.Sleep(forgetting + time.Millisecond)
		}
		if g.Down() {
			t.Error("down by failures that are not one trouble")
		}
	})
}

// Whatever happened when: one answer, and the table is up; no answer for the time it takes, and it is down; while it is down there
// is a probe whenever one is due, also on a clock that jumps.
func TestProperty_ATableIsDownOnlyWithoutAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
		var h health
		sinceAnswer := 0
		for range rapid.IntRange(1, 80).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{-3600_000, 0, 1, 20, 120, 500, 2000, 3600_000}).Draw(t, "ms")) * time.Millisecond)
			was := h.down(after)
			probe, down := h.ask(now, after, probeEvery)
			if (down != nil || probe) != was {
				t.Fatalf("down %v, and the read: probe %v, %v", was, probe, down)
			}
			if down != nil {
				later := h
				if again, _ := later.ask(now.Add(probeEvery), after, probeEvery); !again {
					t.Fatal("no probe when one is due")
				}
				continue
			}
			if rapid.Bool().Draw(t, "answers") {
				h.learn(now, after, "")
				sinceAnswer = 0
			} else {
				h.learn(now, after, Unreachable)
				sinceAnswer++
			}
			if h.down(after) && sinceAnswer < 2 {
				t.Fatalf("down after %d failures", sinceAnswer)
			}
		}
	})
}
