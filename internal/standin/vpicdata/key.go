package vpicdata

import "strings"

// charSet is a set of characters that may stand at one place of a VIN.
type charSet uint64

// anyChar is the set of a '*': every character, also those without a bit.
const anyChar = ^charSet(0)

const (
	digitChars charSet = 1<<10 - 1
	vinChars   charSet = 1<<36 - 1 // digits, then A to Z
)

// mixups are the letters that no VIN has.
var mixups = bitOf('I') | bitOf('O') | bitOf('Q')

// charOrder lists the characters in the order of their bits. The first 36 are in
// the order in which NHTSA lists possible values.
const charOrder = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ|*-_"

var charBits = func() (bits [256]charSet) {
	for i := range charOrder {
		bits[charOrder[i]] = 1 << i
	}
	return bits
}()

// bitOf is the set of one character; empty for characters that no key can name.
func bitOf(c byte) charSet { return charBits[c] }

func (s charSet) has(c byte) bool { return s == anyChar || s&bitOf(c) != 0 }

// list writes the digits and letters of the set, digits first.
func (s charSet) list() string {
	var b strings.Builder
	for i := range 36 {
		if s&(1<<i) != 0 {
			b.WriteByte(charOrder[i])
		}
	}
	return b.String()
}

// key is a pattern's key: what has to stand at positions 4 to 8, and after a '|'
// at positions 10 to 17. A vehicle matches if its own text begins with it, so
// that a short key says nothing about the positions behind it.
//
// NHTSA's keys use these signs: '*' any character; [..] one of a class, with
// ranges such as A-H, all kinds mixed ([A-C1-5]); '|' the place of the check
// digit, itself; '#' a digit, whose text is the value (only '#' at the ends of
// that text matter). Everything else is itself. '_' occurs inside classes only,
// where it means nothing, and one class is written [1-A-JT]: by the code points
// that is 1 to A, '-', J and T.
type key struct {
	units  []charSet
	ranged uint32 // bit i: unit i is a class with a range or a negation

	// The value's place for a key with '#': units formulaFrom to formulaTo-1.
	formula                bool
	formulaFrom, formulaTo int

	// NHTSA's last resorts when two patterns of one element are equally new.
	rankLength int    // characters without '*'
	rankText   string // text without brackets
}

// compileKey reads a key. It returns false for text that is no key (a class that
// does not end); such a pattern matches nothing.
func compileKey(text string) (key, bool) {
	text = strings.ToUpper(text)
	k := key{
		units:      make([]charSet, 0, len(text)),
		rankLength: len(text) - strings.Count(text, "*"),
		rankText:   strings.NewReplacer("[", "", "]", "").Replace(text),
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '*':
			k.units = append(k.units, anyChar)
		case '#':
			if !k.formula {
				k.formula, k.formulaFrom = true, len(k.units)
			}
			k.units = append(k.units, digitChars)
			k.formulaTo = len(k.units)
		case '[':
			end := strings.IndexByte(text[i:], ']')
			if end < 0 {
				return key{}, false
			}
			set, ranged := compileClass(text[i+1 : i+end])
			if ranged && len(k.units) < 32 {
				k.ranged |= 1 << len(k.units)
			}
			k.units = append(k.units, set)
			i += end
		default:
			k.units = append(k.units, bitOf(c))
		}
	}
	return k, true
}

// compileClass reads the inside of a class.
func compileClass(text string) (set charSet, ranged bool) {
	negated := strings.HasPrefix(text, "^")
	if negated {
		text, ranged = text[1:], true
	}
	for i := 0; i < len(text); i++ {
		if i+2 < len(text) && text[i+1] == '-' {
			for c := int(text[i]); c <= int(text[i+2]); c++ {
				set |= bitOf(byte(c))
			}
			ranged = true
			i += 2
			continue
		}
		set |= bitOf(text[i])
	}
	if negated {
		set = ^set & (1<<len(charOrder) - 1)
	}
	return set, ranged
}

// matches says whether text, a VIN's positions 4-8, '|' and 10-17, begins with k.
func (k key) matches(text string) bool {
	if len(text) < len(k.units) {
		return false
	}
	for i, u := range k.units {
		if !u.has(text[i]) {
			return false
		}
	}
	return true
}

// formulaValue is the part of text that stands where the key has its digits.
func (k key) formulaValue(text string) string {
	if k.formulaTo > len(text) {
		return ""
	}
	return text[k.formulaFrom:k.formulaTo]
}

// lastPosition is the last position of a VIN that a key can speak of.
const lastPosition = 17

// positionChars holds, by VIN position, the characters that keys name there.
// Wildcards name none.
type positionChars [lastPosition + 1]charSet

// add notes what k names.
func (p *positionChars) add(k key) {
	for i, u := range k.units {
		position := i + 4
		if position > lastPosition {
			return
		}
		if position == 9 || u == anyChar {
			continue
		}
		u &= vinChars
		if k.ranged&(1<<i) != 0 {
			u &^= mixups // a range A-Z does not mean that O is used
		}
		p[position] |= u
	}
}

func (p *positionChars) merge(o *positionChars) {
	for i := range p {
		p[i] |= o[i]
	}
}

// keyText is what a VIN's patterns are matched against.
func keyText(vin string) string {
	if len(vin) <= 3 {
		return ""
	}
	text := vin[3:min(8, len(vin))]
	if len(vin) > 9 {
		text += "|" + vin[9:min(lastPosition, len(vin))]
	}
	return text
}
