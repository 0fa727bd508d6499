package vpic

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const vinLength = 17

// SuggestedVIN is trimmed; '!' marks positions NHTSA doubts. It is "" when absent or the VIN itself.
func (d Decoding) SuggestedVIN() string {
	s := strings.TrimSpace(d.fields["SuggestedVIN"])
	if sameVIN(d.fields["VIN"], s) {
		return ""
	}
	return s
}

// Correction is a SuggestedVIN that is whole, without a mark: something to decode instead, should the person agree. It is ""
// when there is none.
func (d Decoding) Correction() string {
	s := d.SuggestedVIN()
	if len(s) != vinLength || strings.Trim(s, "0123456789ABCDEFGHJKLMNPRSTUVWXYZ") != "" {
		return ""
	}
	return s
}

// Doubted are the positions, from 1, that SuggestedVIN marks with '!'.
func (d Decoding) Doubted() []int { return doubted(d.SuggestedVIN()) }

func doubted(suggested string) []int {
	var list []int
	for i := range min(len(suggested), vinLength) {
		if suggested[i] == '!' {
			list = append(list, i+1)
		}
	}
	return list
}

// Possible is what NHTSA would accept at a position it takes for wrong.
type Possible struct {
	Position   int    // from 1
	Characters string // at least one, each once
}

// PossibleValues is NHTSA's list of what wrong positions can be, in its order. What cannot be read of it is left out; the
// raw text stands in Fields.
func (d Decoding) PossibleValues() []Possible { return parsePossible(d.fields["PossibleValues"]) }

// parsePossible reads "(4:HMP)(8:9KPRT)" up to what is not of this form.
func parsePossible(s string) []Possible {
	var list []Possible
	for {
		rest, opened := strings.CutPrefix(strings.TrimSpace(s), "(")
		group, after, closed := strings.Cut(rest, ")")
		at, characters, ok := strings.Cut(group, ":")
		if !opened || !closed || !ok {
			return list
		}
		p := Possible{position(strings.TrimSpace(at)), once(strings.TrimSpace(characters))}
		if p.Position == 0 || p.Characters == "" || strings.Trim(p.Characters, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" ||
			slices.ContainsFunc(list, func(before Possible) bool { return before.Position == p.Position }) {
			return list
		}
		list, s = append(list, p), after
	}
}

// once leaves the first of equal characters.
func once(s string) string {
	var b strings.Builder
	for _, r := range s {
		if !strings.ContainsRune(b.String(), r) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// position reads a position of a VIN, 0 when it is none.
func position(s string) int {
	if len(s) > 2 || !digits(s) {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > vinLength {
		return 0
	}
	return n
}

// Notes are what NHTSA's AdditionalErrorText and ErrorText add to the codes, as far as it is of use to a program. The texts
// themselves stand in Fields; NHTSA cuts them at 500 characters, and what the cut may have damaged is left out here.
type Notes struct {
	Unexplained         []int     // positions whose character the maker's filing does not explain
	Invalid             []Invalid // characters that cannot stand where they do
	IncompleteVehicle   bool      // built to be completed by somebody else, and may have been altered
	YearDoubtful        bool      // NHTSA is not sure of the model year and asks for it
	CheckDigitException bool      // the maker got the check digit wrong, and NHTSA knows
}

// Invalid is a character that cannot stand at its position.
type Invalid struct {
	Position  int // from 1
	Character string
}

// Notes are those of the answer.
func (d Decoding) Notes() Notes {
	n := parseNotes(d.fields["AdditionalErrorText"])
	n.CheckDigitException = strings.Contains(d.fields["ErrorText"], "Check Digit Exception")
	return n
}

func parseNotes(s string) Notes {
	n := Notes{
		IncompleteVehicle: strings.Contains(s, "Incomplete Vehicle Warning"),
		YearDoubtful:      strings.Contains(s, "The Model Year decoded for this VIN may be incorrect"),
	}
	if _, list, found := strings.Cut(s, "Unused position(s):"); found {
		for _, item := range listed(list, whole(s), false) {
			n.Unexplained = append(n.Unexplained, item.Position)
		}
	}
	if _, list, found := strings.Cut(s, "Invalid character(s):"); found {
		n.Invalid = listed(list, whole(s), true)
	}
	return n
}

// whole says whether a text surely has its own end.
func whole(s string) bool { return utf8.RuneCountInString(s) < textLimit }

// listed reads "4,8,11." or "9:!   , 11:I;" up to what is not of this form, ascending and each position once. Unless the text is whole, an item that
// touches its end may have been longer and is left out.
func listed(s string, whole, named bool) []Invalid {
	var list []Invalid
	for {
		s = strings.TrimLeft(s, " ")
		end := 0
		for end < len(s) && s[end] >= '0' && s[end] <= '9' {
			end++
		}
		item := Invalid{Position: position(s[:end])}
		s = s[end:]
		if named && item.Position != 0 {
			r, size := rune(0), 0
			if rest, found := strings.CutPrefix(s, ":"); found {
				s = rest
				r, size = utf8.DecodeRuneInString(s)
			}
			if size == 0 || r == utf8.RuneError {
				break
			}
			item.Character, s = s[:size], s[size:]
		}
		s = strings.TrimLeft(s, " ")
		if item.Position == 0 || s == "" && !whole {
			break
		}
		if !slices.ContainsFunc(list, func(before Invalid) bool { return before.Position == item.Position }) {
			list = append(list, item)
		}
		rest, more := strings.CutPrefix(s, ",")
		if !more {
			break
		}
		s = rest
	}
	slices.SortStableFunc(list, func(a, b Invalid) int { return a.Position - b.Position })
	return list
}
