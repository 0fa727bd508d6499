package vpic

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// State tells apart what an empty looking field can mean.
type State string

const (
	Absent        State = "absent"         // NHTSA has nothing: blank, "Not Reported", or no such key. It does not say that the vehicle lacks it
	NotApplicable State = "not-applicable" // NHTSA says that it does not apply, mostly because of the type of vehicle
	Reported      State = "reported"
)

// Value is one field of an answer for show. Like a Decoding, nobody else can make one that says anything.
type Value struct {
	field Field
	state State
	text  string
}

// Field is what the value is of.
func (v Value) Field() Field { return v.field }

// State tells what stands in the field, "" where there is no value.
func (v Value) State() State { return v.state }

// Text is trimmed, and "" unless reported.
func (v Value) Text() string { return v.text }

// Number is that of a numeric field, in the label's unit, nil when it is not reported or no number.
//
// A numeric field whose text is no number (NHTSA has "TBD" cylinders) is reported, in NHTSA's word, and has no
// number. No number is ever read out of a text that holds more than one.
func (v Value) Number() *float64 {
	if v.state != Reported || !v.field.Numeric {
		return nil
	}
	return number(v.field.Name, v.text)
}

// ValueGroup is one of the groups with the values of an answer.
type ValueGroup struct {
	Name   string
	Values []Value
}

// Value gives a field by NHTSA's key.
func (d Decoding) Value(key string) Value {
	switch text := strings.TrimSpace(d.fields[key]); {
	case isNotApplicable(text):
		return Value{FieldOf(key), NotApplicable, ""}
	case text == "" || isNotReported(text):
		return Value{FieldOf(key), Absent, ""}
	default:
		return Value{FieldOf(key), Reported, text}
	}
}

// Groups gives every value of the answer in NHTSA's groups, absent ones included, and behind them those of keys that are not
// known here. There are none where there is no answer.
func (d Decoding) Groups() []ValueGroup {
	if d.fields == nil {
		return nil
	}
	var list []ValueGroup
	for _, g := range groups {
		values := make([]Value, len(g.Fields))
		for i, f := range g.Fields {
			values[i] = d.Value(f.Name)
		}
		list = append(list, ValueGroup{g.Name, values})
	}
	var others []Value
	for _, key := range slices.Sorted(maps.Keys(d.fields)) {
		if _, known := fields[key]; !known {
			others = append(others, d.Value(key))
		}
	}
	if others != nil {
		list = append(list, ValueGroup{GroupOther, others})
	}
	return list
}

// Numbers gives the numeric fields in which NHTSA sent something, by its keys: the number, or nil where it is none.
func (d Decoding) Numbers() map[string]*float64 {
	m := make(map[string]*float64)
	for key, text := range d.fields {
		if fields[key].Numeric && strings.TrimSpace(text) != "" {
			m[key] = d.Value(key).Number()
		}
	}
	return m
}

func isNotApplicable(s string) bool { return strings.EqualFold(s, "Not Applicable") }
func isNotReported(s string) bool   { return strings.EqualFold(s, "Not Reported") }

// name gives a text for show, "" for the answers that say there is none.
func name(s string) string {
	if s = strings.TrimSpace(s); isNotApplicable(s) || isNotReported(s) {
		return ""
	}
	return s
}

// maxNumber bounds a number's text; NHTSA's longest have sixteen characters.
const maxNumber = 24

// number reads digits with at most one point between or before them; whatever else stands in the field is nil.
func number(key, s string) *float64 {
	if key == "ModelYear" {
		if y := float64(year(s)); y != 0 {
			return &y
		}
		return nil
	}
	whole, decimals, point := strings.Cut(s, ".")
	if len(s) > maxNumber || !digits(whole) || !digits(decimals) || whole == "" && decimals == "" || point && decimals == "" {
		return nil
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return nil
	}
	return &n
}

func digits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// year reads a model year; whatever else stands in the field is 0.
func year(s string) int {
	s = strings.TrimSpace(s)
	if len(s) != 4 || !digits(s) {
		return 0
	}
	n, _ := strconv.Atoi(s) // four digits
	if n < 1886 || n > 2099 {
		return 0
	}
	return n
}
