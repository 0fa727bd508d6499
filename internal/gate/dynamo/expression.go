package dynamo

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/gate"
	"vingate/internal/gcra"
)

// expression collects the clauses of one UpdateItem.
type expression struct {
	cond, set, remove, add, del []string
	names                       map[string]string
	values                      item
}

func newExpression() *expression { return &expression{names: map[string]string{}, values: item{}} }

// name gives an attribute or map key its placeholder.
func (x *expression) name(placeholder, name string) string {
	x.names[placeholder] = name
	return placeholder
}

func (x *expression) value(placeholder string, v types.AttributeValue) string {
	x.values[placeholder] = v
	return placeholder
}

func (x *expression) when(format string, args ...any) {
	x.cond = append(x.cond, fmt.Sprintf(format, args...))
}

// input is the UpdateItem. On success it returns the new item, on a failed condition the one it met: both free of charge.
func (x *expression) input(table, pk string) *dynamodb.UpdateItemInput {
	var update []string
	for _, c := range []struct {
		verb    string
		clauses []string
	}{{"SET", x.set}, {"REMOVE", x.remove}, {"ADD", x.add}, {"DELETE", x.del}} {
		if len(c.clauses) > 0 {
			update = append(update, c.verb+" "+strings.Join(c.clauses, ", "))
		}
	}
	in := &dynamodb.UpdateItemInput{
		TableName: aws.String(table), Key: item{attrKey: text(pk)},
		UpdateExpression:                    aws.String(strings.Join(update, " ")),
		ConditionExpression:                 aws.String(strings.Join(x.cond, " AND ")),
		ExpressionAttributeNames:            x.names,
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if len(x.values) > 0 {
		in.ExpressionAttributeValues = x.values
	}
	return in
}

// notHeld is that neither a hold nor the operator's pause is in force.
func (x *expression) notHeld(now gate.Micros) {
	ms := x.value(":ms", number(now.Millis()))
	x.when("h <= %s", ms)
	x.when("(attribute_not_exists(p) OR p <= %s)", ms)
}

// admit is gate.Admit as an expression: the clauses stand in the order of Admit.Checks and Admit.Apply.
func admit(w gate.Admit) *expression {
	x := newExpression()
	id, place := x.name("#i", w.ID), x.name("#b", string(w.Place))
	x.when("e = %s", x.value(":e", number(w.Version)))
	x.when("L = %s", x.value(":L", number(w.Limit)))
	x.when("size(q) = %s", x.value(":drops", number(len(w.Drops.Tickets))))
	x.notHeld(w.Now)
	x.when("attribute_not_exists(l.%s)", id)
	x.when("size(l) < %s", x.value(":slots", number(w.Limit+len(w.Dead))))
	x.set = append(x.set, fmt.Sprintf("l.%s = %s", id, x.value(":end", number(w.End))))
	if w.Band == gcra.Busy {
		x.when("t BETWEEN %s AND %s", x.value(":lo", number(w.Lo)), x.value(":hi", number(w.Hi)))
		x.set = append(x.set, "t = t + "+x.value(":step", number(w.Step)))
	} else {
		x.when("t < %s", x.value(":now", number(w.Now)))
		x.set = append(x.set, "t = "+x.value(":next", number(w.Now+w.Step)))
	}
	gone := x.gone(w.Dead, w.Drops)
	x.join(place, ":b", w.ID, w.SeenPlace, gone.at[w.Place], w.PlaceCap)
	delete(gone.at, w.Place)
	x.own(w.ID, w.SeenOwn, w.OwnCap, gone)
	if w.Batch {
		x.join(attrBatch, ":z", w.ID, w.SeenBatch, gone.batch, w.BatchCap)
		gone.batch = nil
	}
	x.leave(gone)
	return x
}

// enqueue is gate.Enqueue as an expression.
func enqueue(w gate.Enqueue) *expression {
	x := newExpression()
	id, place := x.name("#i", w.ID), x.name("#b", string(w.Place))
	x.when("e = %s", x.value(":e", number(w.Version)))
	x.notHeld(w.Now)
	x.when("attribute_not_exists(l.%s)", id)
	x.when("attribute_not_exists(q.%s)", id)
	x.when("size(q) < %s", x.value(":tickets", number(w.QueueCap+len(w.Drops.Tickets))))
	x.set = append(x.set, fmt.Sprintf("q.%s = %s", id, x.value(":ticket", packTicket(w.Ticket))))
	gone := x.gone(nil, w.Drops)
	x.join(place, ":b", w.ID, w.Seen, gone.at[w.Place], w.PlaceCap)
	delete(gone.at, w.Place)
	x.own(w.ID, w.SeenOwn, w.OwnCap, gone)
	x.leave(gone)
	x.turn("#f", ":f", w.Turn)
	return x
}

// claim is gate.Claim as an expression.
func claim(w gate.Claim) *expression {
	x := newExpression()
	id := x.name("#i", w.ID)
	x.when("e = %s", x.value(":e", number(w.Version)))
	x.when("L = %s", x.value(":L", number(w.Limit)))
	x.notHeld(w.Now)
	x.when("q.%s = %s", id, x.value(":ticket", packTicket(w.Ticket)))
	x.when("attribute_not_exists(l.%s)", id)
	x.when("size(l) < %s", x.value(":slots", number(w.Slots+len(w.Dead))))
	x.remove = append(x.remove, "q."+id)
	x.set = append(x.set, fmt.Sprintf("l.%s = %s", id, x.value(":end", number(w.End))))
	x.when("t BETWEEN %s AND %s", x.value(":lo", number(w.Lo)), x.value(":hi", number(w.Hi)))
	if w.Band == gcra.Busy {
		x.set = append(x.set, "t = t + "+x.value(":step", number(w.Step)))
	} else {
		x.set = append(x.set, "t = "+x.value(":next", number(w.Now+w.Step)))
	}
	if w.QueueMax > 0 {
		x.when("size(q) <= %s", x.value(":most", number(w.QueueMax)))
	}
	if w.Advances {
		x.when("v <= %s", x.value(":tag", virtual(w.Tag)))
		x.set = append(x.set, "v = :tag")
	} else {
		x.when("v >= %s", x.value(":tag", virtual(w.Tag)))
	}
	gone := x.gone(w.Dead, w.Drops)
	if w.SeenPlace != nil {
		x.replace(x.name("#b", string(w.Place)), ":b", "", w.SeenPlace, gone.at[w.Place])
		delete(gone.at, w.Place)
	}
	if w.Batch {
		x.join(attrBatch, ":z", w.ID, w.SeenBatch, gone.batch, w.BatchCap)
		gone.batch = nil
	}
	x.leave(gone)
	x.turn("#f", ":f", w.Turn)
	return x
}

// cancelTicket is gate.Cancel as an expression.
func cancelTicket(w gate.Cancel) *expression {
	x := newExpression()
	id := x.name("#i", w.ID)
	x.when("attribute_exists(q.%s)", id)
	x.remove = append(x.remove, "q."+id)
	x.del = append(x.del, x.name("#b", string(w.Place))+" "+x.value(":i", set(w.ID)))
	x.disown(w.ID)
	x.turn("#f", ":f", w.Turn)
	return x
}

// gone is who leaves which set with a write.
type gone struct {
	at    map[gate.Place][]string
	own   map[gate.Flow][]string
	batch []string
}

// gone removes dead leases and expired tickets, each exactly as it was seen.
func (x *expression) gone(dead []gate.DeadLease, drops gate.Drops) gone {
	g := gone{at: map[gate.Place][]string{}, own: map[gate.Flow][]string{}}
	leaves := func(id string, place gate.Place, owned bool) {
		if place != "" {
			g.at[place] = append(g.at[place], id)
		}
		if owned {
			f := gate.FlowOfID(id)
			g.own[f] = append(g.own[f], member(id))
		}
	}
	for n, d := range dead {
		id := x.name(fmt.Sprintf("#d%d", n), d.ID)
		x.when("l.%s = %s", id, x.value(fmt.Sprintf(":d%d", n), number(d.End)))
		x.remove = append(x.remove, "l."+id)
		leaves(d.ID, d.Place, d.Owned)
		if d.Batch {
			g.batch = append(g.batch, d.ID)
		}
	}
	for n, d := range drops.Tickets {
		id := x.name(fmt.Sprintf("#x%d", n), d.ID)
		x.when("q.%s = %s", id, x.value(fmt.Sprintf(":x%d", n), packTicket(d.Ticket)))
		x.remove = append(x.remove, "q."+id)
		leaves(d.ID, d.Place, d.Owned)
	}
	for n, c := range drops.Turns {
		x.turn(fmt.Sprintf("#g%d", n), fmt.Sprintf(":g%d", n), c)
	}
	return g
}

// leave takes them out of their sets.
func (x *expression) leave(g gone) {
	for n, p := range slices.Sorted(maps.Keys(g.at)) {
		x.del = append(x.del, x.name(fmt.Sprintf("#p%d", n), string(p))+" "+x.value(fmt.Sprintf(":p%d", n), set(g.at[p]...)))
	}
	for n, f := range slices.Sorted(maps.Keys(g.own)) {
		x.del = append(x.del, x.name(fmt.Sprintf("#o%d", n), attrOwned(f))+" "+x.value(fmt.Sprintf(":o%d", n), set(g.own[f]...)))
	}
	if len(g.batch) > 0 {
		x.del = append(x.del, attrBatch+" "+x.value(":z", set(g.batch...)))
	}
}

// turn is gate.TurnChange as clauses.
func (x *expression) turn(name, value string, c gate.TurnChange) {
	path := "f." + x.name(name, string(c.Flow))
	switch c.How {
	case gate.Newcomer:
		x.when("attribute_not_exists(%s)", path)
		x.set = append(x.set, path+" = v + "+x.value(value, turn(gate.Turn{Tag: c.Next.Tag, Since: c.Next.Since, Count: 1})))
	case gate.Join:
		lo, hi := c.Seen, c.Seen
		lo.Count, hi.Count = 0, c.Most
		x.when("%s BETWEEN %s AND %s", path, x.value(value+"lo", turn(lo)), x.value(value+"hi", turn(hi)))
		x.set = append(x.set, path+" = "+path+" + "+x.value(value, number(1)))
	default:
		x.when("%s = %s", path, x.value(value, turn(c.Seen)))
		if c.Next.Count == 0 {
			x.remove = append(x.remove, path)
		} else {
			x.set = append(x.set, path+" = "+x.value(value+"next", turn(c.Next)))
		}
	}
}

// join adds id to a set below its cap; or, where dead ids of the same set go with it, puts a new set in the place of
// exactly the one that was seen, because ADD and DELETE on one set cannot stand in one update.
func (x *expression) join(attr, placeholder, id string, seen, dead []string, below int) {
	if seen == nil {
		x.when("(attribute_not_exists(%s) OR size(%s) < %s)", attr, attr, x.value(placeholder+"cap", number(below)))
		x.add = append(x.add, attr+" "+x.value(placeholder, set(id)))
		return
	}
	x.replace(attr, placeholder, id, seen, dead)
}

// own joins the set of the flow's own, where the request has a bound of its own.
func (x *expression) own(id string, seen []string, below int, g gone) {
	if below == 0 {
		return
	}
	f := gate.FlowOfID(id)
	x.join(x.name("#o", attrOwned(f)), ":o", member(id), members(seen), g.own[f], below)
	delete(g.own, f)
}

// disown leaves it; who does not stand in it leaves nothing.
func (x *expression) disown(id string) {
	if short := member(id); short != "" {
		x.del = append(x.del, x.name("#o", attrOwned(gate.FlowOfID(id)))+" "+x.value(":o", set(short)))
	}
}

// replace puts the set that was seen, without the dead and with id, in the place of exactly the one that was seen.
func (x *expression) replace(attr, placeholder, id string, seen, dead []string) {
	var next []string
	if id != "" {
		next = append(next, id)
	}
	for _, other := range seen {
		if other != id && !slices.Contains(dead, other) {
			next = append(next, other)
		}
	}
	x.when("%s = %s", attr, x.value(placeholder+"seen", set(seen...)))
	x.set = append(x.set, attr+" = "+x.value(placeholder, set(next...)))
}

// free is gate.Free as an expression.
func free(w gate.Free) *expression {
	x := newExpression()
	id := x.name("#i", w.ID)
	x.when("attribute_exists(l.%s)", id)
	x.remove = append(x.remove, "l."+id)
	ids := x.value(":i", set(w.ID))
	x.del = append(x.del, x.name("#b", string(w.Place))+" "+ids)
	x.disown(w.ID)
	if w.Batch {
		x.del = append(x.del, attrBatch+" "+ids)
	}
	if w.Latency > 0 {
		x.set = append(x.set, "u = "+x.value(":u", number(w.Latency)))
	}
	if w.Hold > 0 {
		x.when("h < %s", x.value(":h", number(w.Hold)))
		x.set = append(x.set, "h = :h", "r = "+x.value(":r", text(w.Reason)))
	}
	if w.NewLimit > 0 {
		x.when("L = %s", x.value(":L", number(w.SeenLimit)))
		if w.Grows() {
			x.when("h <= %s", x.value(":now", number(w.Now)))
		}
		x.set = append(x.set, "L = "+x.value(":limit", number(w.NewLimit)), "x = "+x.value(":now", number(w.Now)))
	}
	switch w.Failures {
	case gate.CountFailure:
		x.set = append(x.set, "c = c + "+x.value(":one", number(1)))
	case gate.ForgetFailures:
		x.set = append(x.set, "c = "+x.value(":zero", number(0)))
	}
	if w.Episodes >= 0 {
		x.set = append(x.set, "n = "+x.value(":n", number(w.Episodes)))
	}
	return x
}
