package page

import (
	"strings"
	"time"
	"unicode/utf8"

	"vingate/internal/decode"
	"vingate/internal/vin"
)

// Refusal is an answer without a decode as the page shows it. Nothing about a vehicle can stand in it.
type Refusal struct {
	Code     string
	State    State
	Headline string
	Says     string
	Kept     string // what did not happen
	Wrong    bool   // it is what was typed that cannot be

	Seconds int    // until it can be tried again; 0 where that changes nothing
	Wait    string // the same in words
	Link    string // the same lookup
	VIN     string
	Year    string
	Plate   *Plate
	Instead *Instead
}

// Refused makes the refusal for a lookup.
func Refused(r *decode.Refusal, asked Lookup) *Refusal {
	p := &Refusal{
		Code: string(r.Code), State: refused(r.Code, r.Scope), Headline: r.Code.Title(), Says: r.Sentence, Kept: "Nothing was decoded.",
		Wrong: r.Code == decode.VINInvalid || r.Code == decode.ModelYearInvalid,
		Link:  asked.link(), VIN: asked.VIN, Year: asked.ModelYear,
	}
	if p.Wrong {
		p.Kept = "NHTSA was not asked."
	}
	if r.RetryAfter > 0 {
		p.Seconds, p.Wait = int(r.RetryAfter/time.Second), decode.InWords(r.RetryAfter)
	}
	if r.Suggestion != "" {
		p.Instead = instead(r.Suggestion, asked.ModelYear)
	}
	// The position counts in the text as it was read. Where that is plainly what was typed, it is shown there.
	typed := []rune(tidy(asked.VIN))
	if r.Position > 0 && r.Position <= len(typed) && len(typed) <= vin.Length && string(typed[r.Position-1]) == r.Character && utf8.ValidString(asked.VIN) {
		p.Plate = plate(string(typed), []Mark{{Position: r.Position, Says: "is no character of a VIN."}})
	}
	return p
}

// blank says whether nothing was typed.
func (l Lookup) Blank() bool { return strings.TrimSpace(l.VIN) == "" }
