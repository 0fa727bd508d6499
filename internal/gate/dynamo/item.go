package dynamo

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/gate"
)

// The attributes of the gate item. One letter each: the item is written with every admission, and its first KB is one
// write unit. None is a reserved word.
const (
	attrKey     = "pk"
	attrVersion = "e" // N: version of the knobs
	attrLimit   = "L" // N: slots in force
	attrKnobs   = "k" // S: gate.Knobs.Pack
	attrTAT     = "t" // N: microseconds
	attrHold    = "h" // N: milliseconds
	attrReason  = "r" // S: why held
	attrLatency = "u" // N: milliseconds
	attrTurned  = "x" // N: milliseconds, when the limit last turned
	attrEpisode = "n" // N: throttle episodes in a row
	attrFailed  = "c" // N: hard failures in a row
	attrLeases  = "l" // M: id -> N, end in milliseconds
	attrQueue   = "q" // M: id -> ticket; present and empty: newcomers do not pass waiters
	attrBatch   = "z" // SS: ids of live batch leases; absent when none
	// and one string set for each bulkhead in use, named by gate.Place
)

type item = map[string]types.AttributeValue

// number writes any of the state's integers.
func number[N ~int | ~int64](n N) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(int64(n), 10)}
}

func text[S ~string](s S) types.AttributeValue { return &types.AttributeValueMemberS{Value: string(s)} }

func set(ids ...string) types.AttributeValue { return &types.AttributeValueMemberSS{Value: ids} }

// encode is the whole item of a state without tickets.
func encode(pk string, s gate.State) item {
	leases := item{}
	for id, end := range s.Leases {
		leases[id] = number(end)
	}
	it := item{
		attrKey: text(pk), attrVersion: number(s.Version), attrLimit: number(s.Limit), attrKnobs: text(s.Knobs.Pack()),
		attrTAT: number(s.TAT), attrHold: number(s.Hold), attrReason: text(s.Reason), attrLatency: number(s.Latency),
		attrTurned: number(s.Turned), attrEpisode: number(s.Episodes), attrFailed: number(s.Failures),
		attrLeases: &types.AttributeValueMemberM{Value: leases}, attrQueue: &types.AttributeValueMemberM{Value: item{}},
	}
	for place, ids := range s.Places {
		it[string(place)] = set(ids...)
	}
	if len(s.Batch) > 0 {
		it[attrBatch] = set(s.Batch...)
	}
	return it
}

// decode is strict: a gate that cannot be read whole is not used (P11).
func decode(it item) (gate.State, error) {
	d := decoder{it: it}
	s := gate.State{
		Version: int(d.number(attrVersion)), Limit: int(d.number(attrLimit)),
		TAT: gate.Micros(d.number(attrTAT)), Hold: gate.Millis(d.number(attrHold)), Reason: gate.HoldReason(d.text(attrReason)),
		Latency: gate.Millis(d.number(attrLatency)),
		Turned:  gate.Millis(d.number(attrTurned)), Episodes: int(d.number(attrEpisode)), Failures: int(d.number(attrFailed)),
		Leases: map[string]gate.Millis{}, Places: map[gate.Place][]string{},
	}
	knobs, err := gate.UnpackKnobs(d.text(attrKnobs))
	if err != nil {
		d.errs = append(d.errs, err)
	}
	s.Knobs = knobs
	leases := decoder{it: d.children(attrLeases)}
	for id := range leases.it {
		s.Leases[id] = gate.Millis(leases.number(id))
	}
	d.errs = append(d.errs, leases.errs...)
	s.Queued = len(d.children(attrQueue))
	for name := range it {
		switch {
		case name == attrBatch:
			s.Batch = d.set(name)
		case gate.IsPlace(name):
			s.Places[gate.Place(name)] = d.set(name)
		}
	}
	if s.Limit < 1 {
		d.fault(attrLimit, "a limit of at least 1")
	}
	return s, errors.Join(d.errs...)
}

// decoder collects every fault of an item instead of stopping at the first.
type decoder struct {
	it   item
	errs []error
}

func (d *decoder) fault(name, want string) {
	d.errs = append(d.errs, fmt.Errorf("gate item: attribute %q is %T, not %s", name, d.it[name], want))
}

func (d *decoder) number(name string) int64 {
	if v, ok := d.it[name].(*types.AttributeValueMemberN); ok {
		if n, err := strconv.ParseInt(v.Value, 10, 64); err == nil {
			return n
		}
	}
	d.fault(name, "a whole number")
	return 0
}

func (d *decoder) text(name string) string {
	if v, ok := d.it[name].(*types.AttributeValueMemberS); ok {
		return v.Value
	}
	d.fault(name, "a string")
	return ""
}

func (d *decoder) children(name string) item {
	if v, ok := d.it[name].(*types.AttributeValueMemberM); ok {
		return v.Value
	}
	d.fault(name, "a map")
	return nil
}

func (d *decoder) set(name string) []string {
	if v, ok := d.it[name].(*types.AttributeValueMemberSS); ok {
		ids := slices.Clone(v.Value)
		slices.Sort(ids)
		return ids
	}
	d.fault(name, "a string set")
	return nil
}
