package vin

import "fmt"

// checkWeights are the weights of 49 CFR 565.15(c), table IV.
var checkWeights = [Length]int{8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2}

// checkValues are the values of the letters, table III; 0 for those that no VIN contains.
var checkValues = [26]int{
	1, 2, 3, 4, 5, 6, 7, 8, 0, // A-I
	1, 2, 3, 4, 5, 0, 7, 0, 9, // J-R
	2, 3, 4, 5, 6, 7, 8, 9, // S-Z
}

// CheckDigit computes the check digit that 49 CFR 565.15(c) gives a VIN, '0'-'9'
// or 'X' for a remainder of ten. What stands at position 9 plays no part. It is
// false when the value has not 17 characters or another of them is unknown or
// none of a VIN's.
func CheckDigit(value string) (byte, bool) {
	if len(value) != Length {
		return 0, false
	}
	sum := 0
	for i := range Length {
		c := value[i]
		switch {
		case i == 8:
		case c >= '0' && c <= '9':
			sum += int(c-'0') * checkWeights[i]
		case c >= 'A' && c <= 'Z' && checkValues[c-'A'] != 0:
			sum += checkValues[c-'A'] * checkWeights[i]
		default:
			return 0, false
		}
	}
	if sum %= 11; sum == 10 {
		return 'X', true
	}
	return byte('0' + sum%11), true
}

// yearCodes are the codes of position 10 from 1980 on, 49 CFR 565.15(d), table VII.
// They come round every thirty years.
const yearCodes = "ABCDEFGHJKLMNPRSTVWXY123456789"

const firstYear = 1980

// ModelYearCandidates gives the two model years that position 10 can stand for,
// the likelier first, or nil when position 10 is missing or no year code.
//
// For cars, multipurpose vehicles and light trucks position 7 tells them apart: a
// digit means 1980-2009, a letter 2010-2039 (49 CFR 565.15(d)(1)). Heavy vehicles,
// buses, motorcycles and trailers do not keep to that, and the kind of vehicle is not in
// the VIN itself: so both years are given, and the order is a hint, no verdict.
// When position 7 is unknown the earlier year stands first.
func ModelYearCandidates(value string) []int {
	if len(value) < 10 {
		return nil
	}
	for i := range len(yearCodes) {
		if yearCodes[i] != value[9] {
			continue
		}
		early, late := firstYear+i, firstYear+len(yearCodes)+i
		if seven := value[6]; seven >= 'A' && seven <= 'Z' {
			return []int{late, early}
		}
		return []int{early, late}
	}
	return nil
}

// advise gives the remarks about an accepted value.
func advise(value string) []Advice {
	var advice []Advice
	if want, ok := CheckDigit(value); ok && value[8] != '*' && value[8] != want {
		advice = append(advice, Advice{
			Code: AdviceCheckDigit, Position: 9,
			Message: fmt.Sprintf("Position 9 is %c, but the check digit computed from the other characters is %c: one of them may be mistyped. "+
				"VINs made for markets outside North America often have no check digit.", value[8], want),
		})
	}
	if len(value) >= 10 && ModelYearCandidates(value) == nil {
		message := fmt.Sprintf("Position 10 is %c, which stands for no model year in North America.", value[9])
		if value[9] == '*' {
			message = "Position 10, which tells the model year, is unknown: giving the model year helps."
		}
		advice = append(advice, Advice{Code: AdviceModelYear, Position: 10, Message: message})
	}
	return advice
}
