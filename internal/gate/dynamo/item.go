package dynamo

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	attrPause   = "p" // N: milliseconds, the operator's pause; absent when none
	attrLatency = "u" // N: milliseconds
	attrTurned  = "x" // N: milliseconds, when the limit last turned
	attrEpisode = "n" // N: throttle episodes in a row
	attrFailed  = "c" // N: hard failures in a row
	attrLeases  = "l" // M: id -> N, end in milliseconds
	attrQueue   = "q" // M: id -> N, a ticket, see packTicket
	attrFlows   = "f" // M: flow -> N, its turn, see packTurn
	attrVirtual = "v" // N: virtual time, in the unit of packTurn
	attrBatch   = "z" // SS: ids of live batch leases; absent when none
	// and one string set for each bulkhead in use, named by gate.Place, and for each flow with a bound of its own, see attrOwned
)

// attrOwned is the name of a flow's own set, SS: its ids without the flow that they begin with.
func attrOwned(f gate.Flow) string { return "o" + string(f) }

// member is an id in its flow's own set.
func member(id string) string { return strings.TrimPrefix(id, string(gate.FlowOfID(id))) }

func members(ids []string) []string {
	var short []string
	for _, id := range ids {
		short = append(short, member(id))
	}
	return short
}

type item = map[string]types.AttributeValue

// number writes any of the state's integers.
func number[N ~int | ~int64](n N) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(int64(n), 10)}
}

func text[S ~string](s S) types.AttributeValue { return &types.AttributeValueMemberS{Value: string(s)} }

func set(ids ...string) types.AttributeValue { return &types.AttributeValueMemberSS{Value: ids} }

// packTicket: milliseconds of arrival, tenths of a second of patience (3 digits), weight (1 digit, 0 for 10), tokens (3 digits).
func packTicket(t gate.Ticket) types.AttributeValue {
	tenths := (t.Deadline - t.Arrival) / 100
	return number(((int64(t.Arrival)*1000+int64(tenths))*10+int64(t.Weight%10))*1000 + int64(t.Cost))
}

func unpackTicket(n int64) gate.Ticket {
	t := gate.Ticket{Cost: int(n % 1000), Weight: int(n / 1000 % 10), Arrival: gate.Millis(n / 1e7)}
	if t.Weight == 0 {
		t.Weight = 10
	}
	t.Deadline = t.Arrival + gate.Millis(n/1e4%1000)*100
	return t
}

// A turn is one number of up to 38 digits: the tag, 12 digits of milliseconds since when, 2 digits of tickets. So a flow's
// place is compared, and a ticket added to it, in one operation; and v + n gives a newcomer the virtual time of the moment.
func packTurn(t gate.Turn) string {
	return strings.TrimLeft(fmt.Sprintf("%d%012d%02d", t.Tag, t.Since, t.Count), "0")
}

func unpackTurn(s string) (t gate.Turn, err error) {
	s = strings.Repeat("0", max(0, 15-len(s))) + s
	cut := len(s) - 14
	tag, err1 := strconv.ParseInt(s[:cut], 10, 64)
	since, err2 := strconv.ParseInt(s[cut:cut+12], 10, 64)
	count, err3 := strconv.Atoi(s[cut+12:])
	return gate.Turn{Tag: tag, Since: gate.Millis(since), Count: count}, errors.Join(err1, err2, err3)
}

func turn(t gate.Turn) types.AttributeValue { return &types.AttributeValueMemberN{Value: packTurn(t)} }

// virtual is a virtual time in the unit of packTurn.
func virtual(tag int64) types.AttributeValue {
	if tag == 0 {
		return number(0)
	}
	return turn(gate.Turn{Tag: tag})
}

// encode is the whole item of a state.
func encode(pk string, s gate.State) item {
	leases, tickets, flows := item{}, item{}, item{}
	for id, end := range s.Leases {
		leases[id] = number(end)
	}
	for id, t := range s.Tickets {
		tickets[id] = packTicket(t)
	}
	for f, t := range s.Flows {
		flows[string(f)] = turn(t)
	}
	it := item{
		attrKey: text(pk), attrVersion: number(s.Version), attrLimit: number(s.Limit), attrKnobs: text(s.Knobs.Pack()),
		attrTAT: number(s.TAT), attrHold: number(s.Hold), attrReason: text(s.Reason), attrLatency: number(s.Latency),
		attrTurned: number(s.Turned), attrEpisode: number(s.Episodes), attrFailed: number(s.Failures),
		attrLeases: &types.AttributeValueMemberM{Value: leases}, attrQueue: &types.AttributeValueMemberM{Value: tickets},
		attrFlows: &types.AttributeValueMemberM{Value: flows}, attrVirtual: virtual(s.VirtualTime),
	}
	for place, ids := range s.Places {
		it[string(place)] = set(ids...)
	}
	if s.Pause != 0 {
		it[attrPause] = number(s.Pause)
	}
	for f, ids := range s.Owned {
		it[attrOwned(f)] = set(members(ids)...)
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
		Leases: map[string]gate.Millis{}, Places: map[gate.Place][]string{}, Owned: map[gate.Flow][]string{},
		Tickets: map[string]gate.Ticket{}, Flows: map[gate.Flow]gate.Turn{}, VirtualTime: d.turn(attrVirtual).Tag,
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
	tickets, flows := decoder{it: d.children(attrQueue)}, decoder{it: d.children(attrFlows)}
	for id := range tickets.it {
		s.Tickets[id] = unpackTicket(tickets.number(id))
	}
	for f := range flows.it {
		s.Flows[gate.Flow(f)] = flows.turn(f)
	}
	for name := range it {
		switch {
		case name == attrPause:
			s.Pause = gate.Millis(d.number(name))
		case name == attrBatch:
			s.Batch = d.set(name)
		case gate.IsPlace(name):
			s.Places[gate.Place(name)] = d.set(name)
		case len(name) == 1+len(gate.FlowOf("")) && name[0] == 'o':
			f := gate.Flow(name[1:])
			for _, short := range d.set(name) {
				s.Owned[f] = append(s.Owned[f], string(f)+short)
			}
		}
	}
	if s.Limit < 1 {
		d.fault(attrLimit, "a limit of at least 1")
	}
	return s, errors.Join(slices.Concat(d.errs, leases.errs, tickets.errs, flows.errs)...)
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

func (d *decoder) turn(name string) gate.Turn {
	if v, ok := d.it[name].(*types.AttributeValueMemberN); ok {
		if t, err := unpackTurn(v.Value); err == nil {
			return t
		}
	}
	d.fault(name, "a turn")
	return gate.Turn{}
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
