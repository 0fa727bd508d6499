package vpicdata

import "strings"

// These rules are written again here and not taken from the product's own VIN
// package: what the product is tested against must not share its mistakes.

// vinText is a VIN as NHTSA's procedure sees it: trimmed, upper case, 17 characters
// at most, one byte each. What is not ASCII becomes '?', which no rule accepts.
func vinText(submitted string) string {
	var b strings.Builder
	for _, r := range strings.ToUpper(strings.TrimSpace(submitted)) {
		if b.Len() == lastPosition {
			break
		}
		if r < 0x20 || r > 0x7e {
			r = '?'
		}
		b.WriteByte(byte(r))
	}
	return b.String()
}

// at is the character at a position from 1; 0 behind the end.
func at(vin string, position int) byte {
	if position > len(vin) {
		return 0
	}
	return vin[position-1]
}

// wmiOf is the maker's part: positions 1-3, and 12-14 too for small makers.
func wmiOf(vin string) string {
	wmi := vin[:min(3, len(vin))]
	if at(vin, 3) == '9' && len(vin) >= 14 {
		wmi += vin[11:14]
	}
	return wmi
}

// descriptorOf is the VIN without check digit and serial number.
func descriptorOf(vin string) string {
	v := (vin + "*****************")[:lastPosition]
	v = v[:8] + "*" + v[9:]
	if v[2] == '9' {
		return v[:14]
	}
	return v[:11]
}

const (
	vinLetters   = "ABCDEFGHJKLMNPRSTUVWXYZ"
	yearLetters  = "ABCDEFGHJKLMNPRSTVWXY" // position 10, 2010 and on
	digitLetters = "0123456789"
)

// yearOf reads position 10 as a year from 2010 to 2039; 0 if it is no year.
func yearOf(vin string) int {
	c := at(vin, 10)
	if i := strings.IndexByte(yearLetters, c); c != 0 && i >= 0 {
		return 2010 + i
	}
	if c >= '1' && c <= '9' {
		return 2031 + int(c-'1')
	}
	return 0
}

// checkValues are the values of 49 CFR 565.15(c).
var checkValues = func() (values [256]int) {
	for i := range values {
		values[i] = -1
	}
	for i := range digitLetters {
		values[digitLetters[i]] = i
	}
	for i, v := range []int{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 7, 9, 2, 3, 4, 5, 6, 7, 8, 9} {
		values[vinLetters[i]] = v
	}
	return values
}()

var checkWeights = [lastPosition]int{8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2}

// checkDigit computes position 9 of a complete VIN. It is '?' when a character
// cannot stand where it does; serialFrom is the first position that takes digits only.
func checkDigit(vin string, serialFrom int) byte {
	if len(vin) != lastPosition {
		return '?'
	}
	sum := 0
	for i := range lastPosition {
		c := vin[i]
		if checkValues[c] < 0 || i+1 >= serialFrom && (c < '0' || c > '9') || i+1 == 10 && yearOf(vin) == 0 {
			return '?'
		}
		sum += checkValues[c] * checkWeights[i]
	}
	return "0123456789X"[sum%11]
}

// serialStart is the first position of the serial number's digits.
func serialStart(vin string, m *maker) int {
	switch {
	case at(vin, 3) == '9':
		return 15
	case m.lightDuty():
		return 13
	default:
		return 14
	}
}

// invalidPositions are those whose character NHTSA does not allow there. Unknown
// characters ('*') are allowed everywhere but in position 10.
func invalidPositions(vin string, serialFrom int, ignoreCheckDigit bool) []int {
	var bad []int
	for p := 1; p <= len(vin); p++ {
		c := at(vin, p)
		ok := true
		switch {
		case p == 9:
			ok = ignoreCheckDigit || c == '*' || c == 'X' || strings.IndexByte(digitLetters, c) >= 0
		case p == 10:
			ok = yearOf(vin) != 0
		case p < serialFrom:
			ok = c == '*' || checkValues[c] >= 0
		default:
			ok = c == '*' || strings.IndexByte(digitLetters, c) >= 0
		}
		if !ok {
			bad = append(bad, p)
		}
	}
	return bad
}
