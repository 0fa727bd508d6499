package bulk

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Format writes records, one on each line, and reads them back.
type Format interface {
	header() []byte // the first line of the file, empty when there is none
	encode(Record) ([]byte, error)
	decode(line []byte) (Record, error) // of a line without its end
	// cells are a row's own as the format writes them, for comparison.
	cells(Row) (vin, year string)
}

// FormatOf is the format for a file by its name.
func FormatOf(path string, fields Fields) (Format, error) {
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".csv":
		return newCSVFormat(fields), nil
	case ".jsonl", ".ndjson":
		return jsonlFormat{fields}, nil
	}
	return nil, fmt.Errorf("the name of the file to write must end in .csv or .jsonl, not %q", filepath.Base(path))
}

// jsonlFormat is one JSON object a line.
type jsonlFormat struct{ fields Fields }

func (jsonlFormat) header() []byte { return nil }

func (jsonlFormat) encode(r Record) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(r)
	return b.Bytes(), err
}

var (
	errNoRecord    = errors.New("not a record of vingate's")
	errOtherFields = errors.New("a record that was written with other --fields")
)

func (f jsonlFormat) decode(line []byte) (Record, error) {
	var r Record
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil || d.More() || r.Line < 1 || r.Outcome == "" {
		return Record{}, errNoRecord
	}
	if r.Decoded != nil && !f.fields.fit(r.Decoded.Fields) {
		return Record{}, errOtherFields
	}
	return r, nil
}

func (jsonlFormat) cells(row Row) (string, string) { return row.VIN, row.Year }

// ownColumns stand in front of NHTSA's fields. vingate's names have underscores, NHTSA's have not.
var ownColumns = []string{"line", "vin", "asked_model_year", "outcome", "reason", "code", "suggestion", "decoded_vin", "model_year", "make", "model",
	"nhtsa_codes", "source", "fetched_at"}

// columnOthers holds, with all fields, what NHTSA has added since this program was made.
const columnOthers = "other_fields"

// csvFormat is a table for spreadsheets. A record is one line of the file: line breaks in cells become blanks.
type csvFormat struct{ fields Fields }

func newCSVFormat(fields Fields) csvFormat { return csvFormat{fields} }

func (f csvFormat) columns() []string {
	c := slices.Concat(ownColumns, f.fields.names)
	if f.fields.all {
		c = append(c, columnOthers)
	}
	return c
}

func (f csvFormat) header() []byte { return csvLine(f.columns()) }

func (f csvFormat) encode(r Record) ([]byte, error) {
	cells := make([]string, 0, len(ownColumns)+len(f.fields.names)+1)
	cells = append(cells, strconv.Itoa(r.Line), r.VIN, r.Year, string(r.Outcome), r.Reason, r.Code, r.Suggestion)
	if d := r.Decoded; d != nil {
		cells = append(cells, d.VIN, orEmpty(d.ModelYear), orEmpty(d.Make), orEmpty(d.Model), joinInts(d.Codes), d.Source, d.FetchedAt.Format(time.RFC3339Nano))
		for _, name := range f.fields.names {
			cells = append(cells, d.Fields[name])
		}
		if more := f.fields.others(d.Fields); more != nil {
			b, err := json.Marshal(more)
			if err != nil {
				return nil, err
			}
			cells = append(cells, string(b))
		}
	}
	for len(cells) < len(ownColumns)+len(f.fields.names) || f.fields.all && len(cells) == len(ownColumns)+len(f.fields.names) {
		cells = append(cells, "")
	}
	for i := range cells {
		cells[i] = protect(cells[i])
	}
	return csvLine(cells), nil
}

func (f csvFormat) decode(text []byte) (Record, error) {
	reader := csv.NewReader(bytes.NewReader(text))
	columns := f.columns()
	reader.FieldsPerRecord = len(columns)
	c, err := reader.Read()
	if err != nil {
		return Record{}, errNoRecord
	}
	n, err := strconv.Atoi(c[0])
	if err != nil || n < 1 || c[3] == "" {
		return Record{}, errNoRecord
	}
	r := Record{Line: n, VIN: c[1], Year: c[2], Outcome: Outcome(c[3]), Reason: c[4], Code: c[5], Suggestion: c[6]}
	if c[7] == "" {
		return r, nil
	}
	d := &Decoded{VIN: c[7], Make: orNil(c[9]), Model: orNil(c[10]), Source: c[12]}
	if c[8] != "" {
		year, err := strconv.Atoi(c[8])
		if err != nil {
			return Record{}, errNoRecord
		}
		d.ModelYear = &year
	}
	for word := range strings.FieldsSeq(c[11]) {
		code, err := strconv.Atoi(word)
		if err != nil {
			return Record{}, errNoRecord
		}
		d.Codes = append(d.Codes, code)
	}
	if d.FetchedAt, err = time.Parse(time.RFC3339Nano, c[13]); err != nil {
		return Record{}, errNoRecord
	}
	d.Fields = map[string]string{}
	for i, name := range f.fields.names {
		if text := c[len(ownColumns)+i]; text != "" {
			d.Fields[name] = text
		}
	}
	if more := c[len(c)-1]; f.fields.all && more != "" && json.Unmarshal([]byte(more), &d.Fields) != nil {
		return Record{}, errNoRecord
	}
	r.Decoded = d
	return r, nil
}

func (f csvFormat) cells(row Row) (string, string) { return protect(row.VIN), protect(row.Year) }

// csvLine is one line of CSV; the cells have no line breaks.
func csvLine(cells []string) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.Write(cells) // neither the separator nor the buffer can fail
	w.Flush()
	return b.Bytes()
}

// protect makes a text harmless in a spreadsheet, which would run a cell that begins like a formula. Doing it twice changes nothing.
func protect(text string) string {
	text = strings.Map(func(r rune) rune {
		switch r {
		case '\n', '\r', '\v', '\f', '\x85', '\u2028', '\u2029':
			return ' '
		case 0:
			return '\uFFFD'
		}
		return r
	}, text)
	// A spreadsheet skips blanks in front, and takes the full-width forms for the signs.
	bare := strings.TrimLeft(text, " \u00A0\u3000")
	for _, sign := range []string{"=", "+", "-", "@", "\t", "\uFF1D", "\uFF0B", "\uFF0D", "\uFF20"} {
		if strings.HasPrefix(bare, sign) {
			return "'" + text
		}
	}
	return text
}

func orEmpty[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

func orNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func joinInts(list []int) string {
	var words []string
	for _, n := range list {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, " ")
}
