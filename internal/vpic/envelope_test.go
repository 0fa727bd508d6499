package vpic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// What a client of NHTSA's gets is NHTSA's: only the spelling of the VIN is the caller's, as there.
func TestABodyForAnotherSpellingIsTheSameBody(t *testing.T) {
	body := nhtsaBody(row{"Note": `Trim: <EX> & "V6"`, "Trim": "é", "ExtraKey": nil, "Doors": json.Number("4")})
	a, err := Read(body, Query{VIN: accord})
	if err != nil {
		t.Fatal(err)
	}
	if got := a.BodyFor(accord); string(got) != string(body) {
		t.Errorf("in the query's own spelling:\n%s\nwant\n%s", got, body)
	}
	lower := strings.ToLower(accord)
	got := a.BodyFor(lower)
	if want := strings.ReplaceAll(string(body), accord, lower); string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	again, err := Read(got, Query{VIN: accord})
	if err != nil || !reflect.DeepEqual(again.Codes(), a.Codes()) || again.Outcome() != a.Outcome() {
		t.Errorf("read again: %v, %+v", err, again)
	}
}

func TestABatchBodyHasTheRowsInTheirOrder(t *testing.T) {
	first, err := Read(nhtsaBody(nil), Query{VIN: accord})
	if err != nil {
		t.Fatal(err)
	}
	second, err := Read(envelope(flat(suv, row{"ErrorCode": "6"})), Query{VIN: suv})
	if err != nil {
		t.Fatal(err)
	}
	got := BatchBody([]Answer{second, first, second}, []string{suv, accord, strings.ToLower(suv)})
	b, err := ReadBatch(got, []Query{{VIN: accord}})
	if err != nil || b.Items[0].Err != nil || !reflect.DeepEqual(b.Items[0].Fields(), first.Fields()) {
		t.Errorf("%v, %+v", err, b)
	}
	var e struct {
		Count          int
		Message        string
		SearchCriteria *string
		Results        []map[string]string
	}
	if err := json.Unmarshal(got, &e); err != nil {
		t.Fatal(err)
	}
	if e.Count != 3 || e.SearchCriteria == nil || *e.SearchCriteria != "" || e.Message != b.Message || len(e.Results) != 3 ||
		e.Results[0]["VIN"] != suv || e.Results[1]["VIN"] != accord || e.Results[2]["VIN"] != strings.ToLower(suv) || e.Results[2]["ErrorCode"] != "6" {
		t.Errorf("%s", got)
	}
}

// nhtsaBody is a body in NHTSA's order and manner.
func nhtsaBody(changes row) []byte {
	var r, out bytes.Buffer
	e := json.NewEncoder(&r)
	e.SetEscapeHTML(false)
	_ = e.Encode(flat(accord, changes))
	fmt.Fprintf(&out, `{"Count":1,"Message":"Results returned successfully.","SearchCriteria":"VIN(s): %s","Results":[%s]}`, accord, bytes.TrimSpace(r.Bytes()))
	return out.Bytes()
}
