package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"vingate/internal/config"
	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"
)

// Budget is the shared budget as an operator may use it.
type Budget interface {
	Inspect(context.Context) (dynamo.Inspection, error)
	ClockAhead(context.Context) (time.Duration, error)
	Tune(ctx context.Context, version int, k gate.Knobs) (dynamo.Change, error)
	Pause(context.Context, time.Duration) (dynamo.Change, error)
	Lift(ctx context.Context, force bool) (dynamo.Change, error)
	Init(context.Context, gate.Knobs, dynamo.Start) error
}

// Gate shows and changes a live gate.
type Gate struct {
	Budget Budget
	Name   string // of the upstream budget
	Table  string
}

// Show prints everything there is to know.
func (g *Gate) Show(ctx context.Context, w io.Writer, json bool) error {
	i, err := g.Budget.Inspect(ctx)
	if err != nil {
		return err
	}
	r := newReport(g.Name, g.Table, i)
	if json {
		return asJSON(w, r)
	}
	p := printer{w: w}
	p.line("gate %s in table %s, version %d, read %s\n", r.Gate, r.Table, r.Version, clock(r.ReadAt))
	p.table(append([][]string{
		{"slots", r.slots()},
		{"tokens", r.tokens()},
		{"line", r.line()},
		{"hold", r.Hold.words()},
		{"pause", r.Pause.words()},
	}, r.upstream()...))
	if ahead := r.clockWarning(i); ahead != "" {
		p.line("\nnote: %s", ahead)
	}
	if len(r.Tenants) > 0 {
		rows := [][]string{{"TENANT", "LIVE", "WAITING", "LONGEST"}}
		for _, t := range r.Tenants {
			rows = append(rows, []string{plain(t.Line), strconv.Itoa(t.Live), strconv.Itoa(t.Waiting), millis(t.OldestMs)})
		}
		p.line("")
		p.table(rows)
	}
	if len(r.Leases) > 0 {
		rows := [][]string{{"LEASE", "AGE", "ENDS IN", "ROUTE", "KEY"}}
		for _, l := range r.Leases {
			ends := millis(l.EndsInMs)
			if l.Dead {
				ends = "dead: its slot is free for the next admission"
			}
			rows = append(rows, []string{plain(l.ID), millis(l.AgeMs), ends, l.Route, l.Key})
		}
		p.line("")
		p.table(rows)
	}
	if len(r.Tickets) > 0 {
		rows := [][]string{{"TICKET", "WAITED", "PATIENCE", "ROUTE", "KEY", "TOKENS", "WEIGHT"}}
		for _, t := range r.Tickets {
			left := millis(t.LeftMs)
			if t.Dead {
				left = "over"
			}
			rows = append(rows, []string{plain(t.ID), millis(t.WaitedMs), left, t.Route, t.Key, strconv.Itoa(t.Cost), strconv.Itoa(t.Weight)})
		}
		p.line("")
		p.table(rows)
	}
	rows := [][]string{{"KNOB", "IN FORCE"}}
	for _, k := range r.Knobs {
		rows = append(rows, []string{k.Name, knobWords(k.Name, k.Value)})
	}
	p.line("")
	p.table(rows)
	return p.err
}

// knobWords says what a knob that is left open stands for.
func knobWords(name, value string) string {
	switch {
	case value == "0" && name == "KEY_SLOTS":
		return "(limit - 1)"
	case value == "0" && name == "BATCH_SLOTS":
		return "(half)"
	}
	return value
}

func millis(ms int64) string { return span(time.Duration(ms) * time.Millisecond) }

func (r report) slots() string {
	s := fmt.Sprintf("%d of %d live", r.InFlight, r.Limit)
	if r.Limit < r.MaxInFlight {
		s += fmt.Sprintf(" (shrunk, %d configured)", r.MaxInFlight)
	}
	return s
}

func (r report) tokens() string {
	return fmt.Sprintf("%d of %d (%v a second, burst %d less what clocks and delays take)", r.Tokens, r.MostTokens, r.RatePerSecond, r.Burst)
}

func (r report) line() string { return fmt.Sprintf("%d of %d waiting", r.Queued, r.MaxQueued) }

// because says who wants a hold.
var because = map[gate.HoldReason]string{
	gate.HoldThrottled: "NHTSA asked for it",
	gate.HoldFailing:   "NHTSA fails",
	gate.HoldStarting:  "made on old tables",
	gate.HoldOperator:  "by an operator",
}

func (h *holdReport) words() string {
	if h == nil {
		return "none"
	}
	why := because[gate.HoldReason(h.Reason)]
	if why == "" {
		why = plain(h.Reason)
	}
	return fmt.Sprintf("%s, %s more, until %s", why, time.Duration(h.Seconds)*time.Second, clock(h.Until))
}

func (r report) upstream() [][]string {
	latency := "no call yet"
	if r.LatencyMs > 0 {
		latency = fmt.Sprintf("%d ms, smoothed", r.LatencyMs)
	}
	rows := [][]string{{"upstream", latency}}
	var turns []string
	if r.Episodes > 0 {
		turns = append(turns, fmt.Sprintf("throttle episodes in a row: %d", r.Episodes))
	}
	if r.Failures > 0 {
		turns = append(turns, fmt.Sprintf("failures in a row: %d", r.Failures))
	}
	if r.Turned != nil {
		turns = append(turns, "limit last changed by itself "+span(r.ReadAt.Sub(*r.Turned))+" ago")
	}
	if len(turns) > 0 {
		rows = append(rows, []string{"history", strings.Join(turns, "; ")})
	}
	return rows
}

func (r report) clockWarning(i dynamo.Inspection) string {
	if err := clockFault(i.Ahead, i.State.Knobs.SkewBound); err != nil {
		return err.Error() + "; ages and ends are off by that"
	}
	return ""
}

// clockFault is what is wrong with this machine's clock, beyond what clocks may differ by anyway and what whole seconds cannot tell.
func clockFault(ahead, skew time.Duration) error {
	tolerance := skew + time.Second
	switch {
	case ahead > tolerance:
		return fmt.Errorf("this machine's clock is at least %s ahead of DynamoDB's", span(ahead))
	case ahead < -tolerance:
		return fmt.Errorf("this machine's clock is at least %s behind DynamoDB's", span(-ahead))
	}
	return nil
}

// inspect reads the gate for a change, which goes by this machine's clock.
func (g *Gate) inspect(ctx context.Context) (dynamo.Inspection, error) {
	i, err := g.Budget.Inspect(ctx)
	if err != nil {
		return i, err
	}
	if err := clockFault(i.Ahead, i.State.Knobs.SkewBound); err != nil {
		return i, fmt.Errorf("%w; the gate goes by the clock, so nothing was changed: set the clock right first", err)
	}
	return i, nil
}

// Set changes knobs, by texts under the variables' names, and prints old and new. getenv gives the functions' environment, which the
// knobs must fit.
func (g *Gate) Set(ctx context.Context, w io.Writer, changes map[string]string, getenv func(string) string) error {
	i, err := g.inspect(ctx)
	if err != nil {
		return err
	}
	k, err := config.Change(i.State.Knobs, changes, getenv)
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	p := printer{w: w}
	if k == i.State.Knobs {
		p.line("nothing to change: these are the numbers in force, version %d", i.State.Version)
		return p.err
	}
	c, err := g.Budget.Tune(ctx, i.State.Version, k)
	if errors.Is(err, dynamo.ErrChanged) {
		return fmt.Errorf("%w; look at `vingate gate show` and run this again", err)
	}
	if err != nil {
		return err
	}
	var rows [][]string
	add := func(name, before, after string) {
		if before != after {
			rows = append(rows, []string{name, before, "->", after})
		}
	}
	before := c.Before.Knobs.Named()
	for n, after := range c.After.Knobs.Named() {
		add(after.Knob, knobWords(after.Knob, before[n].Value), knobWords(after.Knob, after.Value))
	}
	add("slots in force", strconv.Itoa(c.Before.Limit), strconv.Itoa(c.After.Limit))
	add("version", strconv.Itoa(c.Before.Version), strconv.Itoa(c.After.Version))
	p.table(rows)
	if c.After.Limit < c.After.Knobs.MaxInFlight {
		p.line("note: NHTSA throttled or failed not long ago, so the slots in force grow by themselves, one for each %v of good answers", c.After.Knobs.LeaseTTL)
	}
	return p.err
}

// Init makes a gate where there is none. On new tables nobody can have called NHTSA, and the bucket is full; on any other it is empty, and nobody
// starts for one lease time.
func (g *Gate) Init(ctx context.Context, w io.Writer, k gate.Knobs, newTables bool) error {
	ahead, err := g.Budget.ClockAhead(ctx)
	if err != nil {
		return err
	}
	if err := clockFault(ahead, k.SkewBound); err != nil {
		return fmt.Errorf("%w; the gate goes by the clock, so none was made: set the clock right first", err)
	}
	start, how := dynamo.EmptyAndHeld, fmt.Sprintf("its bucket is empty, and nobody starts for %v, because calls of an older gate may still run", k.LeaseTTL)
	if newTables {
		start, how = dynamo.FullBucket, "its bucket is full"
	}
	if err := g.Budget.Init(ctx, k, start); err != nil {
		if errors.Is(err, dynamo.ErrExists) {
			return fmt.Errorf("%w; nothing was changed: `vingate gate set` changes its numbers", err)
		}
		return err
	}
	p := printer{w: w}
	p.line("made the gate %s in table %s: %d calls at once, %v a second, burst %d; %s", g.Name, g.Table, k.MaxInFlight, k.RatePerSecond, k.Burst, how)
	return p.err
}

// Hold is the kill switch: nobody starts a call to NHTSA for d. It takes the place of an earlier one.
func (g *Gate) Hold(ctx context.Context, w io.Writer, d time.Duration) error {
	if _, err := g.inspect(ctx); err != nil {
		return err
	}
	c, err := g.Budget.Pause(ctx, d)
	if err != nil {
		return err
	}
	p := printer{w: w}
	p.line("held until %s: no instance starts a call to NHTSA. Calls under way (%d) end by themselves.", clock(c.After.Pause.Time()), len(c.After.Leases))
	if c.After.Hold > c.After.Pause {
		p.line("note: the gate is held for longer than that: %s, until %s", because[c.After.Reason], clock(c.After.Hold.Time()))
	}
	return p.err
}

// Clear ends the operator's pause, with force any hold.
func (g *Gate) Clear(ctx context.Context, w io.Writer, force bool) error {
	i, err := g.inspect(ctx)
	if err != nil {
		return err
	}
	c, err := g.Budget.Lift(ctx, force)
	p := printer{w: w}
	if errors.Is(err, dynamo.ErrNothingToDo) {
		if i, err = g.Budget.Inspect(ctx); err != nil {
			return err
		}
		if h := newReport(g.Name, g.Table, i).Hold; h != nil {
			return fmt.Errorf("not cleared, since it is no operator's: %s. --force clears it all the same", h.words())
		}
		p.line("nothing to clear: the gate is not held")
		return p.err
	}
	if err != nil {
		return err
	}
	before, after := newReport(g.Name, g.Table, dynamo.Inspection{State: c.Before, At: i.At}), newReport(g.Name, g.Table, dynamo.Inspection{State: c.After, At: i.At})
	if h := before.Pause; h != nil {
		p.line("cleared the hold (%s) that would have lasted until %s", because[gate.HoldOperator], clock(h.Until))
	}
	if h := before.Hold; h != nil && after.Hold == nil {
		p.line("cleared the hold (%s) that would have lasted until %s", because[c.Before.Reason], clock(h.Until))
	}
	if h := after.Hold; h != nil {
		p.line("still in force: %s", h.words())
	} else {
		p.line("the gate is open: %d slots in force", c.After.Limit)
	}
	return p.err
}
