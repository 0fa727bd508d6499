package vin

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// suggest looks for the one VIN that was probably meant, "" when there is none
// or more than one. Whatever it gives is accepted by Parse as it stands.
func (t text) suggest() string {
	latin := make([]rune, len(t.upper))
	for i, r := range t.upper {
		latin[i] = r
		if l, _ := lookAlike(t.raw[i]); l != 0 {
			latin[i] = l
		}
	}
	whole := string(latin)

	candidates := []string{whole}
	// Scanners may send the * that frames every Code 39 label.
	framed := strings.Trim(whole, "*")
	if len(framed) == len(whole)-2 {
		candidates = append(candidates, framed)
	}
	if len(framed) == Length+1 && framed[0] == 'I' {
		candidates = append(candidates, framed[1:])
	}
	if rest, found := strings.CutPrefix(whole, "VIN"); found {
		candidates = append(candidates, rest)
	}
	if only := onlyVIN(t.trimmed); only != "" {
		candidates = append(candidates, only)
	}
	// Stray punctuation. For a partial VIN one stray character is believed, no more:
	// there is no length to confirm it.
	clean := strings.Map(func(r rune) rune {
		if r >= 0x80 || class[r] == foreign {
			return -1
		}
		return r
	}, whole)
	if len(clean) == Length || utf8.RuneCountInString(whole)-len(clean) == 1 {
		candidates = append(candidates, clean)
	}
	// A short text may be meant as a partial VIN. From position 12 on a missing
	// character is more likely a slip somewhere than an unknown end.
	if open := whole + "*"; len(whole) <= 11 && accepted(open) {
		candidates = append(candidates, open)
	}

	for _, c := range candidates {
		if c = digitsMeant(c); accepted(c) {
			return c
		}
	}
	return ""
}

// digitsMeant puts the digits in that I, O and Q are usually read from.
func digitsMeant(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && class[r] == confusable {
			return rune(meant(byte(r)))
		}
		return r
	}, s)
}

// onlyVIN finds the one complete VIN among the words of s: "VIN: ...", an address
// that ends in one. Two different ones are a list, and there is no telling.
func onlyVIN(s string) string {
	found := ""
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if len(word) != Length || !accepted(digitsMeant(word)) || word == found {
			continue
		}
		if found != "" {
			return ""
		}
		found = word
	}
	return found
}

// lookAlike gives the Latin capital that a Cyrillic or Greek letter is mistaken
// for and the name of its script, 0 when it is none. Small letters are looked up as
// they are: a small nu looks like a v, the capital like an N.
func lookAlike(r rune) (latin rune, script string) {
	if r < 0x80 {
		return 0, ""
	}
	latin, found := lookAlikes[r]
	if !found {
		return 0, ""
	}
	if unicode.Is(unicode.Greek, r) {
		return latin, "Greek"
	}
	return latin, "Cyrillic"
}

var lookAlikes = func() map[rune]rune {
	m := make(map[rune]rune)
	add := func(foreign, latin string) {
		l := []rune(latin)
		for i, r := range []rune(foreign) {
			m[r] = l[i]
		}
	}
	add("\u0410\u0412\u0421\u0415\u041D\u0406\u0408\u041A\u041C\u041E\u0420\u0405\u0422\u0425\u0423\u04AE\u051A\u051C\u04C0",
		"ABCEHIJKMOPSTXYYQWI") // Cyrillic capitals
	add("\u0430\u0432\u0441\u0435\u043D\u0456\u0458\u043A\u043C\u043E\u0440\u0455\u0442\u0445\u0443\u04AF\u051B\u051D\u04CF",
		"ABCEHIJKMOPSTXYYQWI") // Cyrillic small letters
	add("\u0391\u0392\u0395\u0396\u0397\u0399\u039A\u039C\u039D\u039F\u03A1\u03A4\u03A5\u03A7\u037F",
		"ABEZHIKMNOPTYXJ") // Greek capitals
	add("\u03B1\u03B5\u03B9\u03BA\u03BD\u03BF\u03C1\u03C4\u03C5\u03C7\u03C9\u03B3\u03B7\u03F3",
		"AEIKVOPTUXWYNJ") // Greek small letters
	return m
}()
