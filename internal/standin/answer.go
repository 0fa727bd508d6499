package standin

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"strconv"

	"vingate/internal/standin/vpicdata"
)

// successMessage is NHTSA's, also for a VIN that it knows nothing of.
const successMessage = "Results returned successfully. NOTE: Any missing decoded values should be interpreted as NHTSA does not have data on the specific variable. Missing value should NOT be interpreted as an indication that a feature or technology is unavailable for a vehicle."

// Messages of answers without rows.
const (
	pre1981Message  = "ERROR: Invalid Year Submitted – Pre-1981 Year Decode Attempt"
	tooManyVINs     = "ERROR: The number of VINs exceeds the maximum of 50"
	emptyBatchError = "ERROR: No VINs submitted"
)

// Media types.
const (
	jsonType  = "application/json; charset=utf-8"
	xmlType   = "application/xml; charset=utf-8"
	csvType   = "text/csv; charset=utf-8"
	htmlType  = "text/html; charset=utf-8"
	plainType = "text/plain; charset=utf-8"
)

// answer is NHTSA's envelope.
type answer struct {
	Count          int
	Message        string
	SearchCriteria string
	Results        []vpicdata.Row
}

// encode writes the answer and names its media type.
func (a answer) encode(f format) (body []byte, contentType string, err error) {
	switch f {
	case formatJSON:
		body, err = a.json()
		return body, jsonType, err
	case formatCSV:
		body, err = a.csv()
		return body, csvType, err
	default:
		body, err = a.xml()
		return body, xmlType, err
	}
}

func (a answer) json() ([]byte, error) {
	if a.Results == nil {
		a.Results = []vpicdata.Row{} // [] and not null
	}
	return marshal(a)
}

// marshal writes '&', '<' and '>' as they are, like NHTSA.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func (a answer) xml() ([]byte, error) {
	var b bytes.Buffer
	element := func(name, text string) {
		fmt.Fprintf(&b, "<%s>", name)
		xml.EscapeText(&b, []byte(text)) // a Buffer takes everything
		fmt.Fprintf(&b, "</%s>", name)
	}
	b.WriteString("<Response>")
	element("Count", strconv.Itoa(a.Count))
	element("Message", a.Message)
	element("SearchCriteria", a.SearchCriteria)
	b.WriteString("<Results>")
	for _, row := range a.Results {
		b.WriteString("<DecodedVINValues>")
		for _, f := range vpicdata.Fields() {
			element(f, row[f])
		}
		b.WriteString("</DecodedVINValues>")
	}
	b.WriteString("</Results></Response>")
	return b.Bytes(), nil
}

func (a answer) csv() ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	fields := vpicdata.Fields()
	if err := w.Write(fields); err != nil {
		return nil, err
	}
	for _, row := range a.Results {
		record := make([]string, len(fields))
		for i, f := range fields {
			record[i] = row[f]
		}
		if err := w.Write(record); err != nil {
			return nil, err
		}
	}
	w.Flush()
	return b.Bytes(), w.Error()
}

// htmlPage is what a block or a gateway sends instead of an answer.
func htmlPage(title, text string) []byte {
	return fmt.Appendf(nil, "<!DOCTYPE html>\n<html><head><title>%s</title></head>\n<body><h1>%s</h1>\n<p>%s</p>\n<hr><address>vpic-standin (not NHTSA)</address></body></html>\n", title, title, text)
}
