// Package testdata tries to say something about a vehicle without NHTSA. The compiler refuses each line that is marked.
package testdata

import (
	"encoding/json"
	"time"

	"vingate/internal/vpic"
)

func typical() vpic.Decoding {
	return vpic.Decoding{fields: map[string]string{"Make": "FORD"}} // want "cannot refer to unexported field fields"
}

func positional() vpic.Decoding {
	return vpic.Decoding{map[string]string{"Make": "FORD"}, []int{0}, vpic.Clean} // want "unexported field fields" "unexported field codes" "unexported field outcome"
}

func known(d *vpic.Decoding) {
	d.Make = "FORD"                // want "cannot assign to"
	d.fields["Make"] = "FORD"      // want "d.fields undefined"
	d.Fields()["Make"] = "FORD"    // a copy
	_ = json.Unmarshal(nil, d)     // reaches no field
	*d = vpic.Decoding{}           // says nothing
	d.outcome = vpic.Clean         // want "d.outcome undefined"
	(*d).Outcome() = vpic.Clean    // want "cannot assign to"
	d.Groups()[0].Values[0] = fake // the caller's own list
}

var fake = vpic.Value{text: "FORD"} // want "cannot refer to unexported field text"

func ownBody(q vpic.Query) vpic.Answer {
	return vpic.Answer{query: q, body: []byte("{}"), FetchedAt: time.Now()} // want "cannot refer to unexported field query" "cannot refer to unexported field body"
}

func sibling(q vpic.Query, other vpic.Answer) vpic.Answer {
	other.query = q                                // want "other.query undefined"
	other.decoding = vpic.Decoding{}               // want "other.decoding undefined"
	return vpic.Answer{decoding: other.Decoding()} // want "cannot refer to unexported field decoding"
}

func exchanged(a, b vpic.BatchItem) {
	a.query, a.row = b.Query(), b.Row() // want "a.query undefined" "a.row undefined"
	clear(a.Row())                      // a copy
}

func filled() vpic.BatchItem {
	return vpic.BatchItem{row: []byte("{}")} // want "cannot refer to unexported field row"
}
