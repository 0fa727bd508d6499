package vin

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// MaxInput is the most bytes Parse looks at. A VIN in full-width letters with an
// invisible character behind each stays far below it.
const MaxInput = 512

// clipRunes bounds how much of an input an Error repeats.
const clipRunes = 64

// text is an input on its way to a VIN.
type text struct {
	trimmed string // outer blanks and quotes gone, inner ones kept, upper case
	raw     []rune // spaces and dashes gone, letter case kept
	upper   []rune // raw in upper case, rune by rune
	changes []Change
}

func normalise(s string) text {
	var t text
	note := func(c Change, did bool) {
		if did {
			t.changes = append(t.changes, c)
		}
	}

	s = strings.ToValidUTF8(s, "\uFFFD")
	visible := strings.Map(dropInvisible, s)
	note(FormatRemoved, len(visible) != len(s))
	// Some forms decompose into invisible fillers, hence the second pass.
	plain := strings.Map(dropInvisible, norm.NFKC.String(visible))
	note(FormsReplaced, plain != visible)

	var trimmed, unquoted bool
	for {
		inner := strings.TrimSpace(plain)
		bare := strings.TrimFunc(inner, isQuote)
		trimmed = trimmed || len(inner) != len(plain)
		unquoted = unquoted || len(bare) != len(inner)
		if len(bare) == len(plain) {
			break
		}
		plain = bare
	}
	note(Trimmed, trimmed)
	note(QuotesRemoved, unquoted)

	var spaces, dashes, raised bool
	for _, r := range plain {
		switch {
		case unicode.Is(unicode.Zs, r):
			spaces = true
		case isDash(r):
			dashes = true
		default:
			u := unicode.ToUpper(r)
			raised = raised || u != r
			t.raw = append(t.raw, r)
			t.upper = append(t.upper, u)
		}
	}
	note(SpacesRemoved, spaces)
	note(DashesRemoved, dashes)
	note(UpperCased, raised)
	t.trimmed = strings.ToUpper(plain)
	return t
}

// dropInvisible removes what has no width: format characters (byte order mark,
// zero-width space and joiners, soft hyphen, direction marks), variation
// selectors, the grapheme joiner and the blank fillers.
func dropInvisible(r rune) rune {
	if r < 0x80 {
		return r
	}
	switch {
	case unicode.Is(unicode.Cf, r), unicode.Is(unicode.Variation_Selector, r):
		return -1
	}
	switch r {
	case '\u034F', '\u115F', '\u1160', '\u17B4', '\u17B5', '\u3164', '\uFFA0':
		return -1
	}
	return r
}

// isDash covers the dashes that text programs put in place of a hyphen.
func isDash(r rune) bool {
	switch r {
	case '-':
		return true
	case '\u2212', // minus
		'\u2043', // hyphen bullet
		'\u02D7', // modifier letter minus
		'\u30FC': // the long-vowel mark that a Japanese keyboard gives for -
		return true
	}
	return r >= 0x80 && unicode.Is(unicode.Pd, r)
}

func isQuote(r rune) bool {
	switch r {
	case '"', '\'', '`', '\u2032':
		return true
	}
	return r >= 0x80 && unicode.Is(unicode.Quotation_Mark, r)
}

// Classes of a character in a normalised text; those from allowed on may stand in a VIN.
const (
	foreign    = iota // no VIN contains it
	confusable        // I, O, Q
	allowed
)

var class = func() (c [128]uint8) {
	for r := '0'; r <= '9'; r++ {
		c[r] = allowed
	}
	for r := 'A'; r <= 'Z'; r++ {
		c[r] = allowed
	}
	c['*'] = allowed
	for _, r := range "IOQ" {
		c[r] = confusable
	}
	return c
}()

// meant gives the digit that I, O or Q is usually read from.
func meant(c byte) byte {
	if c == 'I' {
		return '1'
	}
	return '0'
}

// show gives a character that can stand in a message, its number where it cannot.
func show(r rune) string {
	if r != '\uFFFD' && unicode.IsPrint(r) && !unicode.Is(unicode.M, r) {
		return string(r)
	}
	const hex = "0123456789ABCDEF"
	s := make([]byte, 0, 8)
	for shift := 20; shift >= 0; shift -= 4 {
		d := hex[r>>shift&15]
		if len(s) == 0 && d == '0' && shift >= 16 {
			continue
		}
		s = append(s, d)
	}
	return "U+" + string(s)
}

// clip keeps the beginning of s: enough to recognise it, never kilobytes.
func clip(s string) string {
	const most = clipRunes * utf8.UTFMax
	cut := len(s) > most
	if cut {
		s = s[:most]
		for i := 0; i < utf8.UTFMax-1 && len(s) > 0; i++ {
			if r, size := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || size > 1 {
				break
			}
			s = s[:len(s)-1]
		}
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	n := 0
	for i := range s {
		if n == clipRunes {
			return s[:i] + "…"
		}
		n++
	}
	if cut {
		s += "…"
	}
	return s
}

// spreadsheetNumber recognises 1.23E+16, also with a decimal comma or without decimals.
func spreadsheetNumber(s string) bool {
	mantissa, exponent, found := strings.Cut(s, "E")
	if !found || mantissa == "" || mantissa[0] < '0' || mantissa[0] > '9' {
		return false
	}
	decimals := mantissa[1:]
	marked := false
	if decimals != "" {
		if decimals[0] != '.' && decimals[0] != ',' {
			return false
		}
		decimals, marked = decimals[1:], true
	}
	if strings.HasPrefix(exponent, "+") {
		exponent, marked = exponent[1:], true
	}
	return marked && exponent != "" && len(exponent) <= 3 && digits(decimals) && digits(exponent)
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
