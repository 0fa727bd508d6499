package dynamo

import (
	"fmt"
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

// admit is gate.Admit as an expression: the clauses stand in the order of Admit.Holds and Admit.Apply.
func admit(w gate.Admit) *expression {
	x := newExpression()
	id, place := x.name("#i", w.ID), x.name("#b", string(w.Place))
	x.when("e = %s", x.value(":e", number(w.Version)))
	x.when("L = %s", x.value(":L", number(w.Limit)))
	x.when("size(q) = %s", x.value(":zero", number(0)))
	x.when("h <= %s", x.value(":ms", number(w.Now.Millis())))
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

	deadAt := map[gate.Place][]string{}
	var deadBatch []string
	for n, d := range w.Dead {
		dead := x.name(fmt.Sprintf("#d%d", n), d.ID)
		x.when("l.%s = %s", dead, x.value(fmt.Sprintf(":d%d", n), number(d.End)))
		x.remove = append(x.remove, "l."+dead)
		if d.Place != "" {
			deadAt[d.Place] = append(deadAt[d.Place], d.ID)
		}
		if d.Batch {
			deadBatch = append(deadBatch, d.ID)
		}
	}
	x.join(place, ":b", w.ID, w.SeenPlace, deadAt[w.Place], w.PlaceCap)
	delete(deadAt, w.Place)
	n := 0
	for p, ids := range deadAt {
		x.del = append(x.del, x.name(fmt.Sprintf("#p%d", n), string(p))+" "+x.value(fmt.Sprintf(":p%d", n), set(ids...)))
		n++
	}
	slices.Sort(x.del)
	switch {
	case w.Batch:
		x.join(attrBatch, ":z", w.ID, w.SeenBatch, deadBatch, w.BatchCap)
	case len(deadBatch) > 0:
		x.del = append(x.del, attrBatch+" "+x.value(":z", set(deadBatch...)))
	}
	return x
}

// join adds id to a set below its cap; or, where dead ids of the same set go with it, puts a new set in the place of
// exactly the one that was seen, because ADD and DELETE on one set cannot stand in one update.
func (x *expression) join(attr, placeholder, id string, seen, dead []string, below int) {
	if seen == nil {
		x.when("(attribute_not_exists(%s) OR size(%s) < %s)", attr, attr, x.value(placeholder+"cap", number(below)))
		x.add = append(x.add, attr+" "+x.value(placeholder, set(id)))
		return
	}
	next := []string{id}
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
