package vin

import (
	"fmt"
	"strings"
)

// ForNHTSA reads s as NHTSA's own service does, for callers who speak to it and expect its answer also where there is no VIN: 1 to 17
// digits, letters and '*', in any letter case, outer blanks aside. I, O and Q are among them. Nothing else is undone or refused; err is
// a *Error.
//
// What it lets through is safe in a URL path and in a form body, like a VIN of Parse.
func ForNHTSA(s string) (VIN, error) {
	value := strings.Map(upperASCII, strings.Trim(s, " \t\r\n"))
	refused := func(e Error) (VIN, error) {
		e.Submitted = clip(s)
		return VIN{}, &e
	}
	switch {
	case value == "":
		return refused(Error{Reason: ReasonEmpty, Message: "No VIN was given."})
	case len(s) > MaxInput:
		return refused(Error{Reason: ReasonLength, Message: "This is much too long for a VIN, which has 17 characters."})
	}
	position := 0
	for _, r := range value {
		position++
		if r >= 0x80 || class[r] == foreign {
			return refused(Error{Reason: ReasonCharacter, Position: position, Character: show(r),
				Message: fmt.Sprintf("Position %d is %s, which no VIN contains.", position, show(r))})
		}
	}
	if position > Length {
		return refused(Error{Reason: ReasonLength, Message: fmt.Sprintf("This has %d characters; a VIN has 17.", position)})
	}
	return VIN{Value: value, Submitted: s}, nil
}

// upperASCII leaves alone what only Unicode takes for another form of a Latin letter, such as the long s.
func upperASCII(r rune) rune {
	if 'a' <= r && r <= 'z' {
		return r - 'a' + 'A'
	}
	return r
}
