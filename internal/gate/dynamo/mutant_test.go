package dynamo

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"vingate/internal/gate"
)

// met is a write and the state that it meets.
type met struct {
	state gate.State
	write gate.Write
	x     *expression
}

// meetings are writes that were planned on the state they meet, on one that has moved on, or on one that is the same but for one thing.
func meetings() *rapid.Generator[met] {
	return rapid.Custom(func(t *rapid.T) met {
		state := arbitrary(t)
		seen := state
		if rapid.IntRange(0, 3).Draw(t, "moved on") == 0 {
			if w, _ := arbitraryWrite(t, state, "between"); w != nil && w.Holds(state) {
				state = w.Apply(state)
			}
		}
		w, x := arbitraryWrite(t, seen, "new")
		if w != nil && rapid.Bool().Draw(t, "differs") {
			state = differing(t, state, w)
		}
		return met{state, w, x}
	})
}

// slip is an expression that was got wrong: one clause of it says something else, or nothing.
type slip struct {
	kind     string // of the write
	clause   string // of the condition, or of the update
	instead  string // "": it is left out
	ofUpdate bool
}

var (
	verbs        = regexp.MustCompile(`\b(SET|REMOVE|ADD|DELETE) `)
	placeholders = regexp.MustCompile(`[#:]\w+`)
)

// clauses are the parts of an update under their verbs, or those of a condition, which has none.
func (s slip) on(in *dynamodb.UpdateItemInput) (slipped *dynamodb.UpdateItemInput, has bool) {
	change := func(parts []string) []string {
		var left []string
		for _, part := range parts {
			switch {
			case part != s.clause:
				left = append(left, part)
			case s.instead != "":
				left, has = append(left, s.instead), true
			default:
				has = true
			}
		}
		return left
	}
	out := *in
	if s.ofUpdate {
		var update []string
		at := verbs.FindAllStringIndex(*in.UpdateExpression, -1)
		for n, verb := range at {
			end := len(*in.UpdateExpression)
			if n+1 < len(at) {
				end = at[n+1][0]
			}
			if parts := change(strings.Split(strings.TrimSpace((*in.UpdateExpression)[verb[1]:end]), ", ")); len(parts) > 0 {
				update = append(update, (*in.UpdateExpression)[verb[0]:verb[1]]+strings.Join(parts, ", "))
			}
		}
		out.UpdateExpression = aws.String(strings.Join(update, " "))
	} else if parts := change(conjuncts(*in.ConditionExpression)); len(parts) > 0 {
		out.ConditionExpression = aws.String(strings.Join(parts, " AND "))
	} else {
		out.ConditionExpression = nil
	}
	// What is not used is an error.
	used := map[string]bool{}
	for _, p := range placeholders.FindAllString(aws.ToString(out.UpdateExpression)+" "+aws.ToString(out.ConditionExpression), -1) {
		used[p] = true
	}
	out.ExpressionAttributeNames, out.ExpressionAttributeValues = maps.Clone(in.ExpressionAttributeNames), maps.Clone(in.ExpressionAttributeValues)
	maps.DeleteFunc(out.ExpressionAttributeNames, func(p, _ string) bool { return !used[p] })
	maps.DeleteFunc(out.ExpressionAttributeValues, func(p string, _ types.AttributeValue) bool { return !used[p] })
	if len(out.ExpressionAttributeNames) == 0 {
		out.ExpressionAttributeNames = nil
	}
	if len(out.ExpressionAttributeValues) == 0 {
		out.ExpressionAttributeValues = nil
	}
	return &out, has
}

// conjuncts splits a condition at its ANDs, but for those of BETWEEN.
func conjuncts(condition string) []string {
	var out []string
	for _, part := range strings.Split(condition, " AND ") {
		if n := len(out); n > 0 && strings.Contains(out[n-1], " BETWEEN ") && !strings.Contains(out[n-1], " AND ") {
			out[n-1] += " AND " + part
			continue
		}
		out = append(out, part)
	}
	return out
}

// The test that holds the expressions against the core can fail: each of these slips of an expression, among them those that DynamoDB makes easy (the
// size of a missing attribute is no number, and NOT turns that into true), is told apart from the core by some write on some state.
func TestEverySlipOfAnExpressionIsToldApartFromTheCore(t *testing.T) {
	if raceDetector {
		t.Skip("thousands of calls of the SDK: `make test` runs it without the race detector")
	}
	const (
		bulkhead = "(attribute_not_exists(#b) OR size(#b) < :bcap)"
		places   = "(attribute_not_exists(#o) OR size(#o) < :ocap)"
		pause    = "(attribute_not_exists(p) OR p <= :ms)"
	)
	slips := map[string]slip{
		"one slot too many":                     {"Admit", "size(l) < :slots", "size(l) <= :slots", false},
		"the slots of the dead forgotten":       {"Admit", "size(l) < :slots", "size(l) < :L", false},
		"any limit":                             {"Admit", "L = :L", "", false},
		"any version":                           {"Admit", "e = :e", "", false},
		"an id that is there":                   {"Admit", "attribute_not_exists(l.#i)", "", false},
		"while it is held":                      {"Admit", "h <= :ms", "", false},
		"held until this moment":                {"Admit", "h <= :ms", "h < :ms", false},
		"while it is paused":                    {"Admit", pause, "", false},
		"only where there was a pause once":     {"Admit", pause, "p <= :ms", false},
		"past those who wait":                   {"Admit", "size(q) = :drops", "", false},
		"a bulkhead that nobody is in is full":  {"Admit", bulkhead, "size(#b) < :bcap", false},
		"a bulkhead by NOT size < n":            {"Admit", bulkhead, "NOT size(#b) < :bcap", false},
		"one place too many":                    {"Admit", bulkhead, "(attribute_not_exists(#b) OR size(#b) <= :bcap)", false},
		"own places by NOT size < n":            {"Enqueue", places, "NOT size(#o) < :ocap", false},
		"one place of one's own too many":       {"Enqueue", places, "(attribute_not_exists(#o) OR size(#o) <= :ocap)", false},
		"own places not looked at":              {"Admit", places, "", false},
		"a set that has changed is replaced":    {"Admit", "#b = :bseen", "", false},
		"a dead lease that is gone":             {"Admit", "l.#d0 = :d0", "", false},
		"the bucket is not looked at":           {"Admit", "t BETWEEN :lo AND :hi", "", false},
		"one ticket too many":                   {"Enqueue", "size(q) < :tickets", "size(q) <= :tickets", false},
		"queued while it is held":               {"Enqueue", "h <= :ms", "", false},
		"queued by old knobs":                   {"Enqueue", "e = :e", "", false},
		"queued twice":                          {"Enqueue", "attribute_not_exists(q.#i)", "", false},
		"a newcomer who was here":               {"Enqueue", "attribute_not_exists(f.#f)", "", false},
		"any number of tickets of a flow":       {"Enqueue", "f.#f BETWEEN :flo AND :fhi", "", false},
		"a claim without its ticket":            {"Claim", "q.#i = :ticket", "", false},
		"a claim by old knobs":                  {"Claim", "e = :e", "", false},
		"a claim while it is held":              {"Claim", "h <= :ms", "", false},
		"a claim while it is paused":            {"Claim", pause, "", false},
		"a claim of a flow that moved on":       {"Claim", "f.#f = :f", "", false},
		"virtual time goes back":                {"Claim", "v <= :tag", "", false},
		"a ticket that is gone is given up":     {"Cancel", "attribute_exists(q.#i)", "", false},
		"a flow that moved on is given up":      {"Cancel", "f.#f = :f", "", false},
		"a stale release":                       {"Free", "attribute_exists(l.#i)", "", false},
		"a hold is shortened":                   {"Free", "h < :h", "", false},
		"the limit turns from anything":         {"Free", "L = :L", "", false},
		"the limit grows while it is held":      {"Free", "h <= :now", "", false},
		"the token is not taken":                {"Admit", "t = t + :step", "t = t", true},
		"an idle bucket keeps its credit":       {"Admit", "t = :next", "t = t", true},
		"the place is not taken":                {"Admit", "#b :b", "", true},
		"the own place is not taken":            {"Admit", "#o :o", "", true},
		"the dead keep their slots":             {"Admit", "l.#d0", "", true},
		"the lease has no end":                  {"Admit", "l.#i = :end", "l.#i = :L", true},
		"no ticket":                             {"Enqueue", "q.#i = :ticket", "", true},
		"a ticket counts twice":                 {"Enqueue", "f.#f = f.#f + :f", "f.#f = :fhi", true},
		"the ticket stays":                      {"Claim", "q.#i", "", true},
		"virtual time stands still":             {"Claim", "v = :tag", "", true},
		"the place of a ticket stays taken":     {"Cancel", "#b :i", "", true},
		"the own place of a ticket stays taken": {"Cancel", "#o :o", "", true},
		"the place of a lease stays taken":      {"Free", "#b :i", "", true},
		"the own place of a lease stays taken":  {"Free", "#o :o", "", true},
		"the slot of a lease stays taken":       {"Free", "l.#i", "", true},
		"the batch's slot stays taken":          {"Free", "z :i", "", true},
		"a failure is not counted":              {"Free", "c = c + :one", "", true},
	}
	// The same meetings for all: each slip takes those that have its clause.
	const most = 12_000
	var all []met
	for seed := range most {
		if c := meetings().Example(seed); c.write != nil {
			all = append(all, c)
		}
	}
	for name, m := range slips {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, nil)
			tried := 0
			for _, c := range all {
				if reflect.TypeOf(c.write).Name() != m.kind {
					continue
				}
				in, has := m.on(c.x.input(s.Table, s.pk))
				if !has {
					continue
				}
				tried++
				put(s, c.state)
				_, err := s.Client.UpdateItem(context.Background(), in)
				var failed *types.ConditionalCheckFailedException
				if err != nil && !errors.As(err, &failed) {
					if strings.Contains(err.Error(), "ValidationException") && strings.Contains(err.Error(), "does not exist") {
						return // told apart: it changes what is not there
					}
					t.Fatalf("%v\n%s\nIF %s", err, aws.ToString(in.UpdateExpression), aws.ToString(in.ConditionExpression))
				}
				want := c.state
				if c.write.Holds(c.state) {
					want = c.write.Apply(c.state)
				}
				if got, err := decode(stored(t, s)); err != nil || !reflect.DeepEqual(normal(got), normal(want)) {
					return // told apart
				}
			}
			t.Errorf("%d writes have %q, and none is told apart", tried, m.clause)
		})
	}
}
