package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fault is one thing that is wrong.
type Fault struct {
	Variable string
	Value    string // as shown to a person: quoted, or a description of a secret
	Problem  string
	Fix      string // may be empty when Problem says it
}

func (f Fault) String() string {
	s := f.Variable + "=" + f.Value + ": " + f.Problem
	if f.Fix != "" {
		s += "; " + f.Fix
	}
	return s
}

// Error holds all faults of a configuration, in the order of Variables.
type Error struct{ Faults []Fault }

func (e *Error) Error() string {
	var b strings.Builder
	if len(e.Faults) == 1 {
		b.WriteString("configuration: 1 fault")
	} else {
		fmt.Fprintf(&b, "configuration: %d faults", len(e.Faults))
	}
	for _, f := range e.Faults {
		b.WriteString("\n  " + f.String())
	}
	return b.String()
}

// reader reads variables and gathers faults.
type reader struct {
	getenv    func(string) string
	variables map[string]Variable
	faults    []Fault
	faulty    map[string]bool
}

func newReader(getenv func(string) string) *reader {
	r := &reader{getenv: getenv, variables: map[string]Variable{}, faulty: map[string]bool{}}
	for _, v := range Variables() {
		r.variables[v.Name] = v
	}
	return r
}

func (r *reader) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	order := map[string]int{}
	for i, v := range Variables() {
		order[v.Name] = i
	}
	slices.SortStableFunc(r.faults, func(a, b Fault) int { return order[a.Variable] - order[b.Variable] })
	return &Error{Faults: r.faults}
}

// sound says that none of the variables has a fault so far.
func (r *reader) sound(names ...string) bool {
	for _, n := range names {
		if r.faulty[n] {
			return false
		}
	}
	return true
}

func (r *reader) fault(name, problem, fix string) {
	r.faulty[name] = true
	r.faults = append(r.faults, Fault{Variable: name, Value: r.shown(name), Problem: problem, Fix: fix})
}

// shown is what of a value may stand in a message.
func (r *reader) shown(name string) string {
	v, known := r.variables[name]
	raw := r.getenv(name)
	switch {
	case !known:
		return "(not a variable)"
	case raw == "" && v.Default != "":
		return strconv.Quote(v.Default) + " (default)"
	case raw == "":
		return "(unset)"
	case v.Secret:
		return Secret(raw).String()
	}
	const most = 80
	if len(raw) > most {
		return strconv.QuoteToASCII(raw[:most]) + "... (" + strconv.Itoa(len(raw)) + " bytes)"
	}
	return strconv.QuoteToASCII(raw)
}

// text is the variable's value or its default, without blanks around it.
func (r *reader) text(name string) string {
	v, known := r.variables[name]
	if !known {
		panic("config: " + name + " is not in Variables")
	}
	if s := strings.TrimSpace(r.getenv(name)); s != "" {
		return s
	}
	return v.Default
}

// secret is taken byte by byte, blanks included.
func (r *reader) secret(name string, least int) Secret {
	v := r.getenv(name)
	if len(v) < least {
		r.fault(name, fmt.Sprintf("needs at least %d bytes", least), "put a long random text there, for example from: openssl rand -base64 32")
	}
	return Secret(v)
}

// integer reads a whole number. A variable without value and default is 0.
func (r *reader) integer(name string, lo, hi int) int {
	s := r.text(name)
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < int64(lo) || n > int64(hi) {
		r.fault(name, "is not a whole number that fits", fmt.Sprintf("use %d to %d%s", lo, hi, r.example(name)))
		return 0
	}
	return int(n)
}

func (r *reader) number(name string, lo, hi float64) float64 {
	f, err := strconv.ParseFloat(r.text(name), 64)
	if err != nil || math.IsNaN(f) || f < lo || f > hi {
		r.fault(name, "is not a number that fits", fmt.Sprintf("use %v to %v%s", lo, hi, r.example(name)))
		return 0
	}
	return f
}

func (r *reader) duration(name string, lo, hi time.Duration) time.Duration {
	d, err := time.ParseDuration(r.text(name))
	if err != nil || d < lo || d > hi {
		r.fault(name, "is not a duration that fits", fmt.Sprintf("use %v to %v, written with a unit%s", lo, hi, r.example(name)))
		return 0
	}
	return d
}

func (r *reader) example(name string) string {
	if d := r.variables[name].Default; d != "" {
		return ", such as " + d
	}
	return ""
}
