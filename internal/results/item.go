package results

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

type item = map[string]types.AttributeValue

// Names of the item's attributes. The table's time to live is set on attrExpires.
const (
	attrKey     = "pk"
	attrFormat  = "v"
	attrBody    = "b"
	attrFetched = "f"       // ms since 1970
	attrExpires = "expires" // seconds since 1970
	attrLeader  = "l"       // of the flight
	attrEnd     = "u"       // of the flight, ms since 1970; absent when it is over
	attrVerdict = "w"       // "<leader> <reason> <ms since 1970>"
	attrSlow    = "s"       // "<calls> <ms since 1970>"
	attrRest    = "p"       // "<ms since 1970> <reason>"
)

// encode is the row as an item.
func encode(key string, r Row) item {
	it := item{attrKey: text(key), attrExpires: number(r.Expires)}
	if r.Fetched != 0 {
		it[attrFormat], it[attrBody], it[attrFetched] = number(r.Format), &types.AttributeValueMemberB{Value: r.Packed}, number(r.Fetched)
	}
	if r.Flight.Leader != "" {
		it[attrLeader] = text(r.Flight.Leader)
	}
	if r.Flight.End != 0 {
		it[attrEnd] = number(r.Flight.End)
	}
	if r.Verdict != (Verdict{}) {
		it[attrVerdict] = text(r.Verdict.String())
	}
	if r.Slow != (Slow{}) {
		it[attrSlow] = text(r.Slow.String())
	}
	if r.Rest != (Rest{}) {
		it[attrRest] = text(r.Rest.String())
	}
	return it
}

// decode reads an item; nil is one that does not exist. What cannot be read counts as absent, and the error says what it is: it
// shows nothing of the item.
func decode(it item) (Row, error) {
	var r Row
	var damaged []string
	note := func(name string, ok bool) {
		if _, there := it[name]; there && !ok {
			damaged = append(damaged, name)
		}
	}
	var ok bool
	r.Format, ok = integer(it[attrFormat])
	note(attrFormat, ok)
	var fetched, end int64
	fetched, ok = integer(it[attrFetched])
	note(attrFetched, ok && fetched > 0)
	end, ok = integer(it[attrEnd])
	note(attrEnd, ok)
	r.Fetched, r.Flight.End = Millis(fetched), Millis(end)
	r.Expires, ok = integer(it[attrExpires])
	note(attrExpires, ok)
	b, ok := it[attrBody].(*types.AttributeValueMemberB)
	note(attrBody, ok)
	if ok {
		r.Packed = b.Value
	}
	r.Flight.Leader, ok = words(it[attrLeader])
	note(attrLeader, ok)
	s, ok := words(it[attrVerdict])
	if ok {
		r.Verdict, ok = parseVerdict(s)
	}
	note(attrVerdict, ok)
	if s, ok = words(it[attrSlow]); ok {
		r.Slow, ok = parseSlow(s)
	}
	note(attrSlow, ok)
	if s, ok = words(it[attrRest]); ok {
		r.Rest, ok = parseRest(s)
	}
	note(attrRest, ok)
	if len(damaged) > 0 {
		return r, fmt.Errorf("unreadable: %s", strings.Join(damaged, ", "))
	}
	if r.Fetched == 0 && r.Packed != nil || r.Fetched != 0 && (r.Packed == nil || r.Format == 0 || r.Expires == 0) {
		return r, errors.New("half an answer")
	}
	return r, nil
}

func (v Verdict) String() string { return fmt.Sprintf("%s %s %d", v.Leader, v.Reason, v.RetryAt) }
func (s Slow) String() string    { return fmt.Sprintf("%d %d", s.Calls, s.Last) }
func (r Rest) String() string    { return fmt.Sprintf("%d %s", r.Until, r.Reason) }

func parseVerdict(s string) (Verdict, bool) {
	parts := strings.Split(s, " ")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" {
		return Verdict{}, false
	}
	at, ok := parseInt(parts[2])
	return Verdict{parts[0], parts[1], Millis(at)}, ok
}

func parseSlow(s string) (Slow, bool) {
	calls, last, found := strings.Cut(s, " ")
	n, ok := parseInt(calls)
	at, okAt := parseInt(last)
	if !found || !ok || !okAt || n < 1 || n > 1<<30 {
		return Slow{}, false
	}
	return Slow{int(n), Millis(at)}, true
}

func parseRest(s string) (Rest, bool) {
	until, reason, found := strings.Cut(s, " ")
	at, ok := parseInt(until)
	if !found || !ok || strings.Contains(reason, " ") {
		return Rest{}, false
	}
	return Rest{Millis(at), reason}, true
}

// parseInt takes what is written by us: no sign but a minus, no leading zero.
func parseInt(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == s
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number[T ~int64](n T) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(int64(n), 10)}
}

func integer(v types.AttributeValue) (int64, bool) {
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		return 0, false
	}
	i, err := strconv.ParseInt(n.Value, 10, 64)
	return i, err == nil
}

func words(v types.AttributeValue) (string, bool) {
	s, ok := v.(*types.AttributeValueMemberS)
	if !ok || s.Value == "" {
		return "", false
	}
	return s.Value, true
}

// expression is a write as DynamoDB takes it.
type expression struct {
	names       map[string]string
	values      item
	conditions  []string
	set, remove []string
}

func newExpression() *expression { return &expression{names: map[string]string{}, values: item{}} }

// name stands for an attribute: some of their names are reserved words.
func (x *expression) name(attr string) string {
	x.names["#"+attr] = attr
	return "#" + attr
}

func (x *expression) value(name string, v types.AttributeValue) string {
	x.values[name] = v
	return name
}

func (x *expression) when(format string, args ...any) {
	x.conditions = append(x.conditions, fmt.Sprintf(format, args...))
}

func (x *expression) put(attr string, v types.AttributeValue) {
	x.set = append(x.set, x.name(attr)+" = "+x.value(":"+attr, v))
}

func (x *expression) drop(attrs ...string) {
	for _, a := range attrs {
		x.remove = append(x.remove, x.name(a))
	}
}

// is demands that an attribute is as it was seen, whatever it holds.
func (x *expression) is(attr string, seen item) {
	if v, there := seen[attr]; there {
		x.when("%s = %s", x.name(attr), x.value(":seen"+attr, v))
	} else {
		x.when("attribute_not_exists(%s)", x.name(attr))
	}
}

func (x *expression) input(table, key string) *dynamodb.UpdateItemInput {
	var update []string
	if len(x.set) > 0 {
		update = append(update, "SET "+strings.Join(x.set, ", "))
	}
	if len(x.remove) > 0 {
		update = append(update, "REMOVE "+strings.Join(x.remove, ", "))
	}
	in := &dynamodb.UpdateItemInput{
		TableName: aws.String(table), Key: item{attrKey: text(key)},
		UpdateExpression: aws.String(strings.Join(update, " ")), ConditionExpression: aws.String(strings.Join(x.conditions, " AND ")),
		ExpressionAttributeNames:            maps.Clone(x.names),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if len(x.values) > 0 {
		in.ExpressionAttributeValues = maps.Clone(x.values)
	}
	return in
}

// The writes of a row as expressions: their clauses stand in the order of Holds and Apply. seen is the item they were planned on: it is met
// as it was, also where parts of it cannot be read.

func elect(w Elect, seen item) *expression {
	x := newExpression()
	x.is(attrLeader, seen)
	x.is(attrFetched, seen)
	x.put(attrLeader, text(w.Flight.Leader))
	x.put(attrEnd, number(w.Flight.End))
	if w.Alone {
		x.put(attrExpires, number(w.Ends))
		x.drop(attrFormat, attrBody, attrFetched)
	}
	return x
}

func land(w Land) *expression {
	x := newExpression()
	fetched, leader := x.name(attrFetched), x.name(attrLeader)
	x.when("(attribute_not_exists(%s) OR %s < %s)", fetched, fetched, x.value(":"+attrFetched, number(w.Fetched)))
	switch {
	case w.Keeps != "":
		x.when("%s = %s", leader, x.value(":keeps", text(w.Keeps)))
	case w.Leader != "":
		x.when("(attribute_not_exists(%s) OR %s = %s)", leader, leader, x.value(":leader", text(w.Leader)))
	default:
		x.when("attribute_not_exists(%s)", leader)
	}
	setAnswer(x, w)
	return x
}

// replace is land in the place of what cannot be read.
func replace(w Land, seen item) *expression {
	x := newExpression()
	x.is(attrLeader, seen)
	x.is(attrFetched, seen)
	setAnswer(x, w)
	return x
}

func setAnswer(x *expression, w Land) {
	x.put(attrFormat, number(w.Format))
	x.put(attrBody, &types.AttributeValueMemberB{Value: w.Packed})
	x.put(attrFetched, number(w.Fetched))
	x.put(attrExpires, number(w.Expires))
	if w.Keeps == "" {
		x.drop(attrLeader, attrEnd)
	}
	x.drop(attrVerdict, attrSlow, attrRest)
}

func quit(w Quit) *expression {
	x := newExpression()
	x.when("%s = %s", x.name(attrLeader), x.value(":leader", text(w.Leader)))
	x.drop(attrEnd)
	if w.Verdict != (Verdict{}) {
		x.put(attrVerdict, text(w.Verdict.String()))
	}
	if w.Slow != (Slow{}) {
		x.put(attrSlow, text(w.Slow.String()))
	}
	if w.Rest != (Rest{}) {
		x.put(attrRest, text(w.Rest.String()))
	}
	return x
}

func deferred(w Defer, seen item) *expression {
	x := newExpression()
	x.is(attrLeader, seen)
	x.is(attrFetched, seen)
	x.put(attrRest, text(w.Rest.String()))
	return x
}
