package vpic

import (
	"slices"
	"strconv"
	"strings"
)

// What a person reads about an answer. It stands here and nowhere else; API, page and command line take it from here.
// NHTSA's own texts are in Decoding.Messages.

// Sentence says in words what the answer amounts to: what Outcome is to a program.
func (d Decoding) Sentence() string {
	var s string
	has := func(code int) bool { return slices.Contains(d.codes, code) }
	switch d.outcome {
	case Clean:
		s = "NHTSA decoded this VIN without complaint."
		if len(d.codes) > 1 {
			s = "NHTSA decoded this VIN, with a remark."
		}
	case Warned:
		s = "NHTSA decoded this VIN, with remarks that matter."
	case Partial:
		switch {
		case has(6):
			s = "The VIN is incomplete: what is shown is what NHTSA makes of the characters that were given."
		case has(8):
			s = "NHTSA has no details for this VIN at present, only what is shown."
		default:
			s = "NHTSA could decode only a part of this VIN."
		}
	case Unknown:
		s = "NHTSA has nothing about this VIN."
		if has(7) {
			s = "NHTSA does not know the maker of this VIN."
		}
	default:
		return ""
	}
	if slices.ContainsFunc(d.codes, func(code int) bool { return words[code].mistyped }) {
		s += " It may be mistyped."
	}
	return s
}

// Remarks says in words what NHTSA remarked, the codes in their order and then the notes. There are none for code 0, which says
// that all is well.
func (d Decoding) Remarks() []string {
	notes := d.Notes()
	list := []string{}
	for _, code := range d.codes {
		switch {
		case code == 0:
		case code == 14 && notes.Unexplained != nil:
			list = append(list, "NHTSA cannot explain the "+characters(notes.Unexplained)+" with what the maker has filed.")
		case code == 400 && notes.Invalid != nil:
			at := make([]int, len(notes.Invalid))
			for i, invalid := range notes.Invalid {
				at[i] = invalid.Position
			}
			list = append(list, "The "+characters(at)+" cannot stand there.")
		default:
			list = append(list, ownWords(code))
		}
	}
	for _, p := range d.PossibleValues() {
		list = append(list, p.Sentence())
	}
	for _, note := range []struct {
		is   bool
		says string
	}{
		{notes.CheckDigitException, "NHTSA knows that the check digit of this VIN does not compute and excuses it."},
		{notes.YearDoubtful, "NHTSA is not sure of the model year. If you know it, give it and decode again."},
		{notes.IncompleteVehicle, "NHTSA warns that this is an incomplete vehicle, which may have been altered since it left its maker."},
	} {
		if note.is {
			list = append(list, note.says)
		}
	}
	return list
}

// Sentence says what can stand at the position.
func (p Possible) Sentence() string {
	s := "At position " + strconv.Itoa(p.Position) + " NHTSA expects "
	switch c := strings.Split(p.Characters, ""); len(c) {
	case 1:
		return s + c[0] + "."
	default:
		return s + "one of " + strings.Join(c, ", ") + "."
	}
}

// characters names those at some positions.
func characters(positions []int) string {
	if len(positions) == 1 {
		return "character at position " + strconv.Itoa(positions[0])
	}
	s := "characters at positions "
	for i, p := range positions {
		switch {
		case i == len(positions)-1:
			s += " and "
		case i > 0:
			s += ", "
		}
		s += strconv.Itoa(p)
	}
	return s
}

// ownWords say what a code means.
func ownWords(code int) string {
	if w, found := words[code]; found {
		return w.says
	}
	return "NHTSA answered with code " + strconv.Itoa(code) + ", whose meaning is not known here."
}

var words = map[int]struct {
	says     string
	mistyped bool // NHTSA doubts the VIN itself
}{
	0:   {"NHTSA decoded this VIN without complaint.", false},
	1:   {"The check digit at position 9 does not fit the other characters.", true},
	2:   {"NHTSA found one wrong position and suggests a correction.", true},
	3:   {"NHTSA found one wrong position, taking the check digit to be right, and suggests a correction.", true},
	4:   {"NHTSA found one wrong position and several ways to correct it.", true},
	5:   {"NHTSA found a few wrong positions.", true},
	6:   {"The VIN is incomplete.", false},
	7:   {"The maker is not registered with NHTSA, or not yet in its public data.", false},
	8:   {"NHTSA has no details for this VIN at present.", false},
	9:   {"NHTSA takes this for a glider, which is not a motor vehicle by itself.", false},
	10:  {"NHTSA takes this for an off-road product, not certified as a motor vehicle.", false},
	11:  {"Position 10 stands for no model year.", true},
	12:  {"The model year that was given does not fit position 10.", false},
	14:  {"NHTSA cannot explain some of the characters.", false},
	400: {"The VIN has characters that cannot stand where they are.", true},
}
