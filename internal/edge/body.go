package edge

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime"
	"strconv"
	"strings"
	"unicode/utf8"

	"vingate/internal/decode"
)

// maxBody bounds a request's body. Fifty VINs with their model years take 3 KB.
const maxBody = 64 << 10

// body is the request's, of the one media type a route takes.
func (r *request) body(media string) ([]byte, *decode.Refusal) {
	given, _, err := mime.ParseMediaType(r.header("Content-Type"))
	if err != nil || given != media {
		return nil, decode.NewMediaUnsupported(media)
	}
	if coding := strings.TrimSpace(r.header("Content-Encoding")); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, decode.NewMediaUnsupported(media + " without a Content-Encoding")
	}
	most := maxBody
	if r.base64 {
		most = base64.StdEncoding.EncodedLen(maxBody)
	}
	if len(r.text) > most {
		return nil, decode.NewBodyTooLarge(maxBody)
	}
	if !r.base64 {
		return []byte(r.text), nil
	}
	body, err := base64.StdEncoding.DecodeString(r.text)
	switch {
	case err != nil && media != "application/json":
		return nil, decode.NewRequestInvalid(decode.FaultForm, 0)
	case err != nil:
		return nil, decode.NewRequestInvalid(decode.FaultNotJSON, 0)
	case len(body) > maxBody:
		return nil, decode.NewBodyTooLarge(maxBody)
	}
	return body, nil
}

// readVINs reads {"vins":["...",{"vin":"...","modelYear":2011}]}. It is strict, so that nothing that was meant is left out silently: a
// member it does not know, or one that is there twice, is refused. A value that is no VIN or no model year is that entry's own trouble,
// later. Nesting is never followed deeper than this form, whatever is sent.
func readVINs(body []byte) ([]decode.Question, *decode.Refusal) {
	if !utf8.Valid(body) {
		return nil, decode.NewRequestInvalid(decode.FaultNotJSON, 0)
	}
	d := &vinsReader{Decoder: json.NewDecoder(bytes.NewReader(body))}
	d.UseNumber()
	questions := d.read()
	return questions, d.refused
}

// vinsReader reads token by token. After a fault every token is nil.
type vinsReader struct {
	*json.Decoder
	refused *decode.Refusal
}

func (d *vinsReader) fault(f decode.Fault, entry int) {
	if d.refused == nil {
		d.refused = decode.NewRequestInvalid(f, entry)
	}
}

// next is the next token, nil after a fault.
func (d *vinsReader) next() json.Token {
	if d.refused != nil {
		return nil
	}
	t, err := d.Token()
	if err != nil {
		d.fault(decode.FaultNotJSON, 0)
		return nil
	}
	return t
}

func (d *vinsReader) more() bool { return d.refused == nil && d.More() }

func (d *vinsReader) read() (questions []decode.Question) {
	if d.next() != json.Delim('{') {
		d.fault(decode.FaultNoObject, 0)
	}
	seen := false
	for d.more() {
		switch name, _ := d.next().(string); {
		case !strings.EqualFold(name, "vins"):
			d.fault(decode.FaultMember, 0)
		case seen:
			d.fault(decode.FaultTwice, 0)
		default:
			seen = true
			questions = d.list()
		}
	}
	d.next() // the closing brace
	if d.refused == nil {
		if _, err := d.Token(); err != io.EOF {
			d.fault(decode.FaultNoObject, 0)
		}
	}
	if len(questions) == 0 {
		d.fault(decode.FaultEmpty, 0)
	}
	if d.refused != nil {
		return nil
	}
	return questions
}

func (d *vinsReader) list() (questions []decode.Question) {
	if d.next() != json.Delim('[') {
		d.fault(decode.FaultNoList, 0)
	}
	for d.more() {
		if len(questions) == decode.MaxBatch {
			d.refused = decode.NewBatchTooLarge()
			return nil
		}
		n := len(questions) + 1
		switch t := d.next().(type) {
		case string:
			questions = append(questions, decode.Question{VIN: t})
		case json.Number:
			d.fault(decode.FaultNumber, n)
		case json.Delim:
			if t != '{' {
				d.fault(decode.FaultEntry, n)
			}
			questions = append(questions, d.entry(n))
		default:
			d.fault(decode.FaultEntry, n)
		}
	}
	d.next() // the closing bracket
	return questions
}

// entry reads the members of {"vin":"...","modelYear":2011}, the nth entry.
func (d *vinsReader) entry(n int) (q decode.Question) {
	vin, year := false, false
	for d.more() {
		name, _ := d.next().(string)
		switch {
		case strings.EqualFold(name, "vin"):
			if vin {
				d.fault(decode.FaultEntryTwice, n)
			}
			switch t := d.next().(type) {
			case string:
				q.VIN, vin = t, true
			case json.Number:
				d.fault(decode.FaultNumber, n)
			default:
				d.fault(decode.FaultEntryVIN, n)
			}
		case strings.EqualFold(name, "modelYear"):
			if year {
				d.fault(decode.FaultEntryTwice, n)
			}
			year = true
			switch t := d.next().(type) {
			case json.Number:
				q.ModelYear = yearOf(t)
			case nil: // null is none
			default:
				d.fault(decode.FaultEntryYear, n)
			}
		default:
			d.fault(decode.FaultEntryMember, n)
		}
	}
	d.next() // the closing brace
	if !vin {
		d.fault(decode.FaultEntryVIN, n)
	}
	return q
}

// yearOf is a number as a model year, -1 for one that is none.
func yearOf(n json.Number) int {
	year, err := strconv.Atoi(n.String())
	if err != nil || year <= 0 { // 0 means "none given" from here on, and somebody gave one
		return -1
	}
	return year
}
