package vpicdata

import (
	"slices"
	"strconv"
	"strings"
)

// NHTSA's error codes.
const (
	codeClean         = 0
	codeCheckDigit    = 1
	codeCorrected     = 2
	codeCorrectedByCD = 3
	codeOneWrong      = 4
	codeSomeWrong     = 5
	codeIncomplete    = 6
	codeUnknownMaker  = 7
	codeNoDetails     = 8
	codeGlider        = 9
	codeOffRoad       = 10
	codeYearPosition  = 11
	codeYearDisagrees = 12
	codeUnexplained   = 14
	codeInvalidChars  = 400
)

// errorCode is a row of NHTSA's table of error codes. The texts are NHTSA's.
type errorCode struct {
	text   string
	weight int    // a decode with a greater sum is the better one
	extra  string // begins AdditionalErrorText
}

var errorCodes = map[int]errorCode{
	codeClean:         {text: "0 - VIN decoded clean. Check Digit (9th position) is correct"},
	codeCheckDigit:    {text: "1 - Check Digit (9th position) does not calculate properly", weight: -5},
	codeCorrected:     {text: "2 - VIN corrected, error in one position", weight: -100},
	codeCorrectedByCD: {text: "3 - VIN corrected, error in one position (assuming Check Digit is correct)", weight: -100},
	codeOneWrong: {text: "4 - VIN corrected, error in one position only (indicated by ! in Suggested VIN), multiple matches found", weight: -200,
		extra: "In the Possible values section, the Numeric value before the : indicates the position in error and the values after the : indicate the possible values that are allowed in this position."},
	codeSomeWrong: {text: "5 - VIN has errors in few positions", weight: -300,
		extra: "The error positions are indicated by ! in Suggested VIN. In the Possible values section, each pair of parenthesis indicate information about each error position in VIN . The Numeric value before the : indicates the position in error and the values after the : indicate the possible values that are allowed in this position"},
	codeIncomplete:    {text: "6 - Incomplete VIN", weight: -10},
	codeUnknownMaker:  {text: "7 - Manufacturer is not registered with NHTSA for sale or importation in the U.S. for use on U.S roads; Please contact the manufacturer directly for more information", weight: -10000},
	codeNoDetails:     {text: "8 - No detailed data available currently", weight: -1000},
	codeGlider:        {text: "9 - Glider Warning - A \"Glider\" is not a \"motor vehicle\", as defined in 49 U.S.C. 30102(a)(6), and cannot be assigned a VIN that meets 49 CFR Part 565 requirements"},
	codeOffRoad:       {text: "10 - Off-Road Vehicle Warning – This is not a Vehicle Identification Number (VIN) for a motor vehicle. This indicates that the manufacturer did not certify this product as complying with the Federal Motor Vehicle Safety Standards that are applicable to motor vehicles as defined in 49 U.S.C. 30102."},
	codeYearPosition:  {text: "11 - Incorrect Model Year - Position 10 does not match valid model year codes (I, O, Q, U, Z, 0). Decoded data may not be accurate.", weight: -20},
	codeYearDisagrees: {text: "12 - Model Year Warning - Model Year entered for decoding with VIN does not match the model year based on the 10th position in VIN.", weight: -20},
	codeUnexplained:   {text: "14 - Unable to provide information for some of the characters in the VIN, based on the manufacturer submission.", weight: -30},
	codeInvalidChars:  {text: "400 - Invalid Characters Present", weight: -40},
}

// Notes that NHTSA adds.
const (
	offRoadNote    = " NOTE: Disregard if this is an off-road vehicle PIN, as check digit calculation may not be accurate."
	incompleteNote = "Incomplete Vehicle Warning - Please be advised that the vehicle may have been altered and may not be an accurate representation of the vehicle in its current condition."
	yearNote       = "The Model Year decoded for this VIN may be incorrect. If you know the Model year, please enter it and decode again to get more accurate information."
)

// textLimit is where NHTSA cuts its error texts, in characters.
const textLimit = 500

// codeSet is the set of codes of one decode, in ascending order.
type codeSet []int

func (s *codeSet) add(code int) {
	if i, found := slices.BinarySearch(*s, code); !found {
		*s = slices.Insert(*s, i, code)
	}
}

func (s codeSet) has(code int) bool {
	_, found := slices.BinarySearch(s, code)
	return found
}

// nothingWrong says whether only notes and unexplained characters are left.
func (s codeSet) nothingWrong() bool {
	for _, c := range s {
		switch c {
		case codeGlider, codeOffRoad, codeYearDisagrees, codeUnexplained:
		default:
			return false
		}
	}
	return true
}

func (s codeSet) weight() (sum int) {
	for _, c := range s {
		sum += errorCodes[c].weight
	}
	return sum
}

// String is NHTSA's ErrorCode: "1,4,14,400".
func (s codeSet) String() string {
	parts := make([]string, len(s))
	for i, c := range s {
		parts[i] = strconv.Itoa(c)
	}
	return strings.Join(parts, ",")
}

// text is NHTSA's ErrorText.
func (s codeSet) text(offRoad bool) string {
	parts := make([]string, len(s))
	for i, c := range s {
		parts[i] = errorCodes[c].text
		if c == codeCheckDigit && offRoad {
			parts[i] += offRoadNote
		}
	}
	return cut(strings.Join(parts, "; "))
}

func cut(text string) string {
	if runes := []rune(text); len(runes) > textLimit {
		return string(runes[:textLimit])
	}
	return text
}
