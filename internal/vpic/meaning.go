package vpic

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Decoding is the meaning of one row of NHTSA's answer. Nobody outside of this package can make one that says anything:
// whatever a caller shows of a vehicle came from NHTSA, in this row.
type Decoding struct {
	fields  map[string]string
	codes   []int
	outcome Outcome
}

// Outcome is what the row amounts to, "" where there is no row.
func (d Decoding) Outcome() Outcome { return d.outcome }

// Codes are those of ErrorCode, ascending, each once.
func (d Decoding) Codes() []int { return slices.Clone(d.codes) }

// Messages has one text for each code, in the codes' order: NHTSA's own where it sent one.
func (d Decoding) Messages() []string { return messages(d.codes, d.fields["ErrorText"]) }

// Fields holds every key NHTSA sent, with the raw texts, empty ones included. It is a copy.
func (d Decoding) Fields() map[string]string { return maps.Clone(d.fields) }

// Make is trimmed for show, "" when absent.
func (d Decoding) Make() string { return name(d.fields["Make"]) }

// Model is trimmed for show, "" when absent.
func (d Decoding) Model() string { return name(d.fields["Model"]) }

// ModelYear is 0 when absent or not a year.
func (d Decoding) ModelYear() int { return year(d.fields["ModelYear"]) }

// Summary is year, make and model as NHTSA has them, "" when it has none.
func (d Decoding) Summary() string {
	var parts []string
	if y := d.ModelYear(); y != 0 {
		parts = append(parts, strconv.Itoa(y))
	}
	for _, s := range []string{d.Make(), d.Model()} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, " ")
}

// Read makes the answer to q of a live or kept envelope; err is a *Error of kind BadResponse. When it was fetched is the
// caller's to add.
func Read(body []byte, q Query) (Answer, error) {
	body = bytes.Clone(withoutBOM(body))
	d, e := interpret(body, q)
	if e != nil {
		return Answer{}, e
	}
	return Answer{query: q, body: body, decoding: d}, nil
}

func interpret(body []byte, q Query) (Decoding, *Error) {
	rows, e := readRows(body)
	if e != nil {
		return Decoding{}, e
	}
	if len(rows) > 1 {
		return Decoding{}, unusable("more than one row")
	}
	fields, e := readFields(rows[0])
	if e != nil {
		return Decoding{}, e
	}
	if !sameVIN(fields["VIN"], q.VIN) {
		return Decoding{}, unusable("the row is for another VIN")
	}
	return decode(fields)
}

func unusable(reason string) *Error { return &Error{Kind: BadResponse, Reason: reason} }

func sameVIN(row, asked string) bool {
	return asked != "" && strings.EqualFold(strings.TrimSpace(row), strings.TrimSpace(asked))
}

func withoutBOM(body []byte) []byte { return bytes.TrimPrefix(body, []byte("\xEF\xBB\xBF")) }

// readRows gives the rows of an envelope, at least one.
func readRows(body []byte) ([]json.RawMessage, *Error) {
	rows, _, e := readEnvelope(body)
	return rows, e
}

// readEnvelope gives the rows of an envelope, at least one, and its Message.
func readEnvelope(body []byte) (rows []json.RawMessage, message string, e *Error) {
	if start := bytes.TrimLeft(body, " \t\r\n"); len(start) == 0 {
		return nil, "", unusable("an empty body")
	} else if start[0] == '<' {
		return nil, "", unusable("XML or HTML in place of JSON")
	}
	if !utf8.Valid(body) {
		return nil, "", unusable("the body is not UTF-8")
	}
	// A map, since struct fields would also match keys in another letter case.
	var envelope map[string]json.RawMessage
	if err := json.Unmarshal(body, &envelope); err != nil {
		return nil, "", unusable("the body is not one JSON object")
	}
	if raw, found := envelope["Message"]; found && json.Unmarshal(raw, &message) != nil {
		return nil, "", unusable("the envelope's Message is not a text")
	}
	if reason := errorMessage(message); reason != "" {
		return nil, "", unusable(reason)
	}
	if raw, found := envelope["Results"]; found && json.Unmarshal(raw, &rows) != nil {
		return nil, "", unusable("the envelope's Results is not a list")
	}
	if len(rows) == 0 {
		return nil, "", unusable("no row")
	}
	return rows, message, nil
}

// errorMessage recognises an envelope whose Message is an error, and says which in
// words of our own; "" for all others.
func errorMessage(message string) string {
	m := strings.ToLower(strings.TrimSpace(message))
	switch {
	case !strings.HasPrefix(m, "error") && !strings.Contains(m, "execution error"):
		return ""
	case strings.Contains(m, "pre-1981"):
		return "an error message in place of a decode: model years before 1981 are not decoded"
	}
	return "an error message in place of a decode"
}

// readFields gives the texts of one flat row.
func readFields(row json.RawMessage) (map[string]string, *Error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(row, &raw); err != nil || raw == nil {
		return nil, unusable("the row is not an object")
	}
	fields := make(map[string]string, len(raw))
	for key, value := range raw {
		switch value[0] {
		case '"':
			var s string
			if err := json.Unmarshal(value, &s); err != nil {
				return nil, unusable("the row holds an unreadable text")
			}
			fields[key] = s
		case 'n':
			fields[key] = ""
		case '{', '[':
			if slices.Contains(readKeys[:], key) {
				return nil, unusable("the row's " + key + " is not a text")
			}
			fields[key] = string(value)
		default: // a number or a truth value
			fields[key] = string(value)
		}
	}
	return fields, nil
}

// readKeys are the keys whose texts decide what a row means.
var readKeys = [...]string{"VIN", "ErrorCode", "ErrorText", "Make", "Model", "ModelYear", "Manufacturer", "SuggestedVIN"}

func decode(fields map[string]string) (Decoding, *Error) {
	codes, ok := readCodes(fields["ErrorCode"])
	if !ok {
		return Decoding{}, unusable("the row has no readable ErrorCode")
	}
	d := Decoding{fields: fields, codes: codes}
	d.outcome = outcome(d, name(fields["Manufacturer"]) != "")
	return d, nil
}

// outcome is the table of the package comment.
func outcome(d Decoding, manufacturer bool) Outcome {
	switch {
	case slices.Contains(d.codes, 7), d.Make() == "" && d.Model() == "" && !manufacturer:
		return Unknown
	case d.Make() == "" || d.Model() == "" || d.ModelYear() == 0, slices.Contains(d.codes, 6):
		return Partial
	case slices.Equal(d.codes, []int{0}), slices.Equal(d.codes, []int{0, 10}):
		return Clean
	}
	return Warned
}

// maxCodes and maxCodeDigits bound a list of codes; NHTSA has sixteen codes of up to three digits.
const (
	maxCodes      = 64
	maxCodeDigits = 6
)

// readCodes reads ErrorCode, a list of numbers joined by commas. Blanks, stray
// separators and semicolons are tolerated, anything else is not.
func readCodes(s string) (codes []int, ok bool) {
	for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' || r == ';' }) {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		if len(part) > maxCodeDigits || len(codes) == maxCodes || !digits(part) {
			return nil, false
		}
		n, _ := strconv.Atoi(part) // a few digits, as was just seen
		codes = append(codes, n)
	}
	slices.Sort(codes)
	codes = slices.Compact(codes)
	return codes, len(codes) > 0
}

// textLimit is the number of characters at which NHTSA cuts ErrorText and AdditionalErrorText.
const textLimit = 500

// messages gives one sentence for each code: NHTSA's where ErrorText has it, else
// our own. ErrorText joins "N - text" with "; ", but a text may hold a semicolon
// itself (that of 7 does): so it is cut only in front of a code that ErrorCode names.
func messages(codes []int, errorText string) []string {
	type span struct{ head, text int } // where "N - " begins and ends
	spans := make([]span, len(codes))
	from := 0
	for i, code := range codes {
		head, text := findCode(errorText, from, code)
		spans[i] = span{head, text}
		if head >= 0 {
			from = text
		}
	}

	out := make([]string, len(codes))
	end, last := len(errorText), true
	for i := len(codes) - 1; i >= 0; i-- {
		if spans[i].head >= 0 {
			out[i] = strings.Trim(errorText[spans[i].text:end], "; \t\r\n")
			if last && out[i] != "" && utf8.RuneCountInString(errorText) >= textLimit {
				out[i] += "…"
			}
			end, last = spans[i].head, false
		}
		if out[i] == "" {
			out[i] = ownWords(codes[i])
		}
	}
	return out
}

// findCode finds "N - " at the start of s or behind a semicolon, from an offset on.
func findCode(s string, from, code int) (head, text int) {
	number := strconv.Itoa(code)
	for at := from; at < len(s); {
		rest := strings.TrimLeft(s[at:], " ")
		if after, found := strings.CutPrefix(rest, number); found && (at == 0 || s[at-1] == ';') {
			if after, found = strings.CutPrefix(strings.TrimLeft(after, " "), "-"); found {
				return at, len(s) - len(after)
			}
		}
		next := strings.IndexByte(s[at:], ';')
		if next < 0 {
			break
		}
		at += next + 1
	}
	return -1, -1
}
