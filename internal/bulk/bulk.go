// Package bulk decodes the VINs of a file through vingate's API, at the pace that vingate allows.
//
// It promises:
//
//   - Every line of the file gets a record of its own, or is left for the next run and counted as left. What it says of a vehicle is NHTSA's
//     answer for exactly the VIN and the year of that line; every other record has no word about a vehicle, and a reason in plain words.
//   - A VIN that stands in the file more than once is asked once.
//   - The record file is the only memory. What was written to it before a stop, a crash or a kill -9 is not asked again; a last line that
//     was torn is taken off and asked again; a file that is not the record of this input is not touched.
//   - A refusal is never repeated at once: not before the Retry-After it came with, nor before a growing pause where it has none.
//   - Memory does not grow with the file but for less than 100 bytes a line.
//
// The reader repairs nothing: a VIN that a spreadsheet turned into a number is reported as damaged.
package bulk

import (
	"strconv"
	"strings"
	"time"

	"vingate/internal/api"
	"vingate/internal/decode"
	"vingate/internal/vin"
)

// Row is one VIN of the input.
type Row struct {
	Line  int    // where it begins in the file, the first line being 1
	VIN   string // as it stands there
	Year  string // as it stands there, "" without a year column
	Fault string // why the line cannot be read, "" when it can
}

// Outcome is what became of a row.
type Outcome string

// The outcomes beside NHTSA's four, which package vpic has: clean, warned, partial, unknown.
const (
	Invalid Outcome = "invalid" // what stands there cannot be a VIN, or the year cannot be one
	Damaged Outcome = "damaged" // what stands there was one, before a spreadsheet or a wrong encoding, or the line cannot be read
	Refused Outcome = "refused" // nobody answered, for the reason given: it is asked again by the next run
)

// Record is what is known of a row in the end. Decoded is nil unless NHTSA answered.
type Record struct {
	Line       int      `json:"line"`
	VIN        string   `json:"vin"`
	Year       string   `json:"askedModelYear,omitempty"`
	Outcome    Outcome  `json:"outcome"`
	Reason     string   `json:"reason"`               // what NHTSA's answer amounts to, with its remarks, or why there is none
	Code       string   `json:"code,omitempty"`       // of the API, when there is no answer
	Suggestion string   `json:"suggestion,omitempty"` // another VIN that may be meant; it was not asked for
	Decoded    *Decoded `json:"decoded"`
}

// Decoded is NHTSA's answer.
type Decoded struct {
	VIN       string            `json:"vin"` // the VIN that was asked for
	ModelYear *int              `json:"modelYear"`
	Make      *string           `json:"make"`
	Model     *string           `json:"model"`
	Codes     []int             `json:"codes"`
	Source    string            `json:"source"` // nhtsa, or cache: stored by vingate
	FetchedAt time.Time         `json:"fetchedAt"`
	Fields    map[string]string `json:"fields,omitempty"` // the raw fields that were asked for, without the blank ones
}

// Key is what makes two rows the same question.
type Key struct {
	vin  [vin.Length]byte
	year uint16
}

func keyOf(value string, year int) Key {
	k := Key{year: uint16(year)}
	copy(k.vin[:], value)
	return k
}

func (k Key) question() api.Question {
	return api.Question{VIN: strings.TrimRight(string(k.vin[:]), "\x00"), ModelYear: int(k.year)}
}

// Key is the question that a record answers; ok is false for one without a decode.
func (r Record) Key() (k Key, ok bool) {
	if r.Decoded == nil || len(r.Decoded.VIN) > vin.Length {
		return Key{}, false
	}
	year, ok := yearOf(r.Year)
	return keyOf(r.Decoded.VIN, year), ok
}

// yearOf reads a year as it stands in a file; 0 is none.
func yearOf(text string) (year int, ok bool) {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && len(text) == 4 && n > 0
}

// judge gives the question of a row, or the record of a row that needs none.
func judge(row Row, now time.Time) (Key, *Record) {
	no := func(outcome Outcome, code decode.Code, reason, suggestion string) (Key, *Record) {
		return Key{}, &Record{Line: row.Line, VIN: row.VIN, Year: row.Year, Outcome: outcome, Reason: reason, Code: string(code), Suggestion: suggestion}
	}
	if row.Fault != "" {
		return no(Damaged, "", row.Fault, "")
	}
	v, err := vin.Parse(row.VIN)
	if fault, is := err.(*vin.Error); is {
		outcome := Invalid
		if fault.Reason == vin.ReasonSpreadsheet || fault.Character == "U+FFFD" {
			outcome = Damaged
		}
		return no(outcome, decode.VINInvalid, fault.Message, fault.Suggestion)
	}
	year, ok := yearOf(row.Year)
	if !ok || year != 0 && (year < decode.FirstModelYear || year > decode.LastModelYear(now)) {
		return no(Invalid, decode.ModelYearInvalid, decode.NewModelYearInvalid(now).Detail(), "")
	}
	return keyOf(v.Value, year), nil
}

// decoded is the record of a row that was answered, with the chosen raw fields.
func decoded(row Row, a *api.Answer, fields Fields) Record {
	r := Record{
		Line: row.Line, VIN: row.VIN, Year: row.Year, Outcome: Outcome(a.Outcome), Reason: strings.Join(append([]string{a.Sentence}, a.Remarks...), " "),
		Decoded: &Decoded{
			VIN: a.VIN, ModelYear: a.ModelYear, Make: a.Make, Model: a.Model, Codes: a.Codes,
			Source: a.Provenance.Source, FetchedAt: a.Provenance.FetchedAt.UTC(), Fields: fields.of(a.Fields),
		},
	}
	if a.SuggestedVIN != nil {
		r.Suggestion = *a.SuggestedVIN
	}
	return r
}

// refused is the record of a row that was not answered.
func refused(row Row, p *api.Problem) Record {
	r := Record{Line: row.Line, VIN: row.VIN, Year: row.Year, Outcome: Refused, Reason: p.Detail, Code: p.Code, Suggestion: p.Suggestion}
	if !p.Passing() {
		r.Outcome = Invalid
	}
	return r
}

// for another row with the same question.
func (r Record) forRow(row Row) Record {
	r.Line, r.VIN, r.Year = row.Line, row.VIN, row.Year
	return r
}
