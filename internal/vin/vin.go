// Package vin normalises and checks vehicle identification numbers.
//
// It promises that what Parse lets through is 17 characters, or 3 to 17 with '*'
// for what is unknown, of the digits and capital letters without I, O and Q:
// safe in a URL path, in a form body and as a key. Parsing a result again gives
// the same value and changes nothing.
//
// Normalisation only undoes what copying does to a text: byte order marks and
// other invisible characters, full-width and other compatibility forms, outer
// blanks, wrapping quotes, inner spaces, dashes, lower case. Every step that did
// something is named in VIN.Changes. What would change the meaning, such as O
// for 0, is never done: Parse refuses and offers it as Error.Suggestion. A
// suggestion is always a text that Parse accepts as it stands.
//
// A VIN may be odd without being wrong: makers outside North America need no
// check digit, and NHTSA itself keeps a list of real VINs whose check digit
// does not compute. Such remarks are Advice and never a reason to refuse.
//
// The package is pure: no clock, no state, no I/O.
package vin

import (
	"fmt"
	"strings"
)

// Length is the number of characters of a complete VIN (ISO 3779, 49 CFR 565).
const Length = 17

// MinPartial is the least number of characters of a VIN with unknown ones.
const MinPartial = 3

// Change names one thing that normalisation did to what was submitted.
type Change string

// The changes, in the order in which they are made.
const (
	FormatRemoved Change = "invisible-characters-removed"
	FormsReplaced Change = "character-forms-replaced" // full-width and other compatibility forms
	Trimmed       Change = "trimmed"
	QuotesRemoved Change = "quotes-removed"
	SpacesRemoved Change = "spaces-removed"
	DashesRemoved Change = "dashes-removed"
	UpperCased    Change = "upper-cased"
)

// Codes of Advice.
const (
	AdviceCheckDigit = "check-digit"
	AdviceModelYear  = "model-year-position"
)

// Advice is a remark about a VIN that is never a reason to refuse it.
type Advice struct {
	Code     string // AdviceCheckDigit or AdviceModelYear
	Position int    // 1-based
	Message  string // one or two plain sentences
}

// VIN is a normalised VIN: 17 characters, or 3-17 with '*' for unknown ones.
type VIN struct {
	Value     string
	Submitted string // as it came, at most MaxInput bytes
	Changes   []Change
	Advice    []Advice
}

// Partial says whether some characters are unknown: left out or '*'.
func (v VIN) Partial() bool { return len(v.Value) < Length || strings.Contains(v.Value, "*") }

// Descriptor is the serial-free form that may be logged; see the function Descriptor.
func (v VIN) Descriptor() string { return Descriptor(v.Value) }

// Descriptor gives the part of a VIN that tells the kind of vehicle but not
// which one, as NHTSA's VehicleDescriptor does: positions 1-8, '*' in place of the
// check digit, 10-11; with 9 at position 3 also 12-14, which belong to a small
// maker's identifier there. A shorter text gives what it has of these positions.
//
// It is safe for any text: the result has at most 14 characters, and whatever no
// VIN contains comes out as '?'.
func Descriptor(value string) string {
	var b [14]byte
	n := 0
	for i := 0; i < len(value) && n < len(b); i++ {
		if n == 11 && b[2] != '9' {
			break
		}
		switch c := value[i]; {
		case i == 8:
			b[n] = '*'
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c == '*':
			b[n] = c
		case c >= 'a' && c <= 'z':
			b[n] = c - 'a' + 'A'
		default:
			b[n] = '?'
		}
		n++
	}
	return string(b[:n])
}

// Reasons of an Error.
const (
	ReasonEmpty       = "empty"
	ReasonLength      = "length"
	ReasonCharacter   = "character"   // one that no VIN contains, I, O and Q among them
	ReasonLookAlike   = "look-alike"  // a Cyrillic or Greek letter in place of a Latin one
	ReasonImportMark  = "import-mark" // 18 characters with a leading I, from door-label scans
	ReasonSpreadsheet = "spreadsheet" // 1.23E+16: the digits are lost
	ReasonUnknown     = "all-unknown" // nothing but '*'
)

// Error says why something cannot be a VIN. All its texts are short, however
// long the input was.
type Error struct {
	Reason     string // machine word, one of the Reason constants
	Position   int    // 1-based in the normalised text, 0 for the whole
	Character  string // the offending character, "U+0009" for one that cannot be shown, "" for the whole
	Message    string // plain words for a person
	Suggestion string // what may have been meant, never applied; "" when there is none
	Submitted  string // the beginning of what came
}

func (e *Error) Error() string { return e.Message }

// Parse normalises s; err is always a *Error.
func Parse(s string) (VIN, error) {
	if len(s) > MaxInput {
		return VIN{}, &Error{
			Reason:    ReasonLength,
			Message:   "This is much too long for a VIN, which has 17 characters.",
			Submitted: clip(s),
		}
	}
	t := normalise(s)
	if fault := t.fault(); fault != nil {
		fault.Submitted = clip(s)
		return VIN{}, fault
	}
	value := string(t.upper)
	return VIN{Value: value, Submitted: s, Changes: t.changes, Advice: advise(value)}, nil
}

// fault gives the one thing to say about a text that cannot be a VIN, the most
// telling first, or nil.
func (t text) fault() *Error {
	n := len(t.upper)
	if n == 0 {
		return &Error{Reason: ReasonEmpty, Message: "No VIN was given."}
	}
	if spreadsheetNumber(t.trimmed) {
		return &Error{
			Reason: ReasonSpreadsheet,
			Message: "A spreadsheet turned this VIN into a number and its last digits are lost. " +
				"Copy the VIN again from where it came from, into a column formatted as text.",
		}
	}
	for i, r := range t.upper {
		if r < 0x80 && class[r] != foreign {
			continue
		}
		e := &Error{Reason: ReasonCharacter, Position: i + 1, Character: show(r), Suggestion: t.suggest()}
		latin, script := lookAlike(t.raw[i])
		switch {
		case latin != 0:
			e.Reason, e.Character = ReasonLookAlike, show(t.raw[i]) // as it came: a small nu is no capital one
			e.Message = fmt.Sprintf("Position %d is the %s letter %s, which only looks like the Latin %c.", i+1, script, e.Character, latin)
		case r == '\uFFFD':
			e.Message = fmt.Sprintf("Position %d cannot be read: the text was damaged on its way.", i+1)
		default:
			e.Message = fmt.Sprintf("Position %d is %s, which no VIN contains.", i+1, e.Character)
		}
		return e
	}
	value := string(t.upper)
	partial := strings.Contains(value, "*")
	switch {
	case n == Length+1 && value[0] == 'I' && accepted(value[1:]):
		return &Error{
			Reason: ReasonImportMark, Position: 1, Character: "I", Suggestion: value[1:],
			Message: "This has 18 characters and begins with I, the import mark that some door labels carry in front of the VIN.",
		}
	case n > Length:
		return &Error{
			Reason: ReasonLength, Suggestion: t.suggest(),
			Message: fmt.Sprintf("This has %d characters; a VIN has 17.", n),
		}
	case n < MinPartial && partial:
		return &Error{
			Reason:  ReasonLength,
			Message: fmt.Sprintf("This has %s; a VIN with unknown characters needs at least 3.", characters(n)),
		}
	case n < Length && !partial:
		return &Error{
			Reason: ReasonLength, Suggestion: t.suggest(),
			Message: fmt.Sprintf("This has %s; a VIN has 17. Where some are unknown, write * for them.", characters(n)),
		}
	}
	for i := range len(value) {
		if c := value[i]; class[c] == confusable {
			return &Error{
				Reason: ReasonCharacter, Position: i + 1, Character: string(c), Suggestion: t.suggest(),
				Message: fmt.Sprintf("Position %d is the letter %c, which no VIN contains; the digit %c is often meant.", i+1, c, meant(c)),
			}
		}
	}
	if strings.Trim(value, "*") == "" {
		return &Error{Reason: ReasonUnknown, Message: "This has only unknown characters; at least one must be known."}
	}
	return nil
}

// accepted says whether Parse takes s as it stands.
func accepted(s string) bool {
	stars := 0
	for i := range len(s) {
		if s[i] >= 0x80 || class[s[i]] < allowed {
			return false
		}
		if s[i] == '*' {
			stars++
		}
	}
	if stars == 0 {
		return len(s) == Length
	}
	return len(s) >= MinPartial && len(s) <= Length && stars < len(s)
}

func characters(n int) string {
	if n == 1 {
		return "1 character"
	}
	return fmt.Sprintf("%d characters", n)
}
