package vpic

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// DecodeBatch makes exactly one DecodeVINValuesBatch call for 1-50 queries. Err is
// always a *Error; what concerns one query alone is in its item.
//
// Rows are matched by VIN. The same question asked twice is sent once and answered
// twice. The same VIN with two model years cannot be told apart in the rows, so
// the second is left out, with a BadQuery in its item: ask for it alone. A query that
// is no VIN is left out likewise; when nothing remains, no call is made.
func (c *Client) DecodeBatch(ctx context.Context, qs []Query) (BatchAnswer, error) {
	form, items, e := planBatch(qs)
	if e != nil {
		return BatchAnswer{}, e
	}
	r, e := c.call(ctx, http.MethodPost, c.base+"/DecodeVINValuesBatch/", form)
	if e != nil {
		return BatchAnswer{}, e
	}
	rows, message, e := readEnvelope(r.body)
	if e != nil {
		return BatchAnswer{}, r.unusable(e)
	}
	matchRows(items, rows, r)
	return BatchAnswer{Items: items, Message: message, Quota: r.quota, FetchedAt: r.at, Took: r.took}, nil
}

// Answer is the item's row as the answer of a single call: NHTSA's own row and Message, in the envelope such a call has. There is
// none for an item with an error.
func (b BatchAnswer) Answer(i int) Answer {
	item := b.Items[i]
	if item.Err != nil {
		return Answer{}
	}
	message, _ := json.Marshal(b.Message) // a string
	criteria, _ := json.Marshal("VIN(s): " + item.query.VIN)
	var body bytes.Buffer
	body.Grow(len(item.row) + 512)
	for _, part := range [][]byte{[]byte(`{"Count":1,"Message":`), message, []byte(`,"SearchCriteria":`), criteria, []byte(`,"Results":[`), item.row, []byte(`]}`)} {
		body.Write(part)
	}
	return Answer{query: item.query, body: body.Bytes(), decoding: item.decoding, Quota: b.Quota, FetchedAt: b.FetchedAt, Took: b.Took}
}

// ReadBatch makes the answers of the body that a batch call for qs brought. Err is a *Error, as with DecodeBatch; when the body
// was fetched is the caller's to add.
func ReadBatch(body []byte, qs []Query) (BatchAnswer, error) {
	_, items, e := planBatch(qs)
	if e != nil {
		return BatchAnswer{}, e
	}
	r := reply{body: bytes.Clone(withoutBOM(body))}
	rows, message, e := readEnvelope(r.body)
	if e != nil {
		return BatchAnswer{}, r.unusable(e)
	}
	matchRows(items, rows, r)
	return BatchAnswer{Items: items, Message: message}, nil
}

// planBatch gives the form to send and an item for each query; those that are not
// sent already have their error.
func planBatch(qs []Query) (form string, items []BatchItem, e *Error) {
	if len(qs) == 0 {
		return "", nil, &Error{Kind: BadQuery, Reason: "a batch without a VIN"}
	}
	if len(qs) > MaxBatch {
		return "", nil, &Error{Kind: BadQuery, Reason: "more than 50 VINs in a batch"}
	}
	var data []string
	years := make(map[string]int, len(qs)) // of the VINs that are sent
	items = make([]BatchItem, len(qs))
	for i, q := range qs {
		items[i].query = q
		if e := q.check(); e != nil {
			items[i].Err = e
			continue
		}
		if q.Extended {
			items[i].Err = &Error{Kind: BadQuery, Reason: "an extended decode in a batch"}
			continue
		}
		key := strings.ToUpper(q.VIN)
		if year, sent := years[key]; sent {
			if year != q.ModelYear {
				items[i].Err = &Error{Kind: BadQuery, Reason: "the same VIN with another model year in one batch"}
			}
			continue
		}
		years[key] = q.ModelYear
		entry := q.VIN
		if q.ModelYear != 0 {
			entry += "," + strconv.Itoa(q.ModelYear)
		}
		data = append(data, entry)
	}
	if len(data) == 0 {
		return "", nil, &Error{Kind: BadQuery, Reason: "a batch without a usable VIN"}
	}
	// The format belongs in the body: in the query it has been ignored, and XML came.
	return "DATA=" + url.QueryEscape(strings.Join(data, ";")) + "&format=json", items, nil
}

// matchRows gives each item that was sent its row.
func matchRows(items []BatchItem, rows []json.RawMessage, r reply) {
	type match struct {
		row    json.RawMessage
		fields map[string]string
		err    *Error
	}
	found := make(map[string]match, len(rows))
	for _, row := range rows {
		fields, e := readFields(row)
		if e != nil {
			// Its VIN may be readable all the same, and then its item can say what is wrong.
			var only struct{ VIN string }
			if json.Unmarshal(row, &only) != nil {
				continue
			}
			fields = map[string]string{"VIN": only.VIN}
		}
		key := strings.ToUpper(strings.TrimSpace(fields["VIN"]))
		if before, twice := found[key]; !twice {
			found[key] = match{row, fields, e}
		} else if !bytes.Equal(before.row, row) {
			found[key] = match{before.row, before.fields, unusable("two different rows for this VIN")}
		}
	}
	for i := range items {
		item := &items[i]
		if item.Err != nil {
			continue
		}
		m, ok := found[strings.ToUpper(item.query.VIN)]
		e := m.err
		if !ok {
			e = unusable("no row for this VIN")
		}
		if e == nil {
			item.decoding, e = decode(m.fields)
		}
		if e != nil {
			item.Err = r.unusable(e)
			continue
		}
		item.row = m.row
	}
}
