package vpic

import (
	"bytes"
	"encoding/json"
)

// BodyFor is the body as NHTSA sends it to a caller who spells the VIN like this: NHTSA repeats the spelling it was asked with, in
// SearchCriteria and in the row. All else is the answer's own, in NHTSA's order. The spelling must differ from the query's VIN in letter
// case at most.
func (a Answer) BodyFor(spelled string) []byte {
	if spelled == a.query.VIN {
		return a.Body()
	}
	return enclose("VIN(s): "+spelled, []Answer{a}, []string{spelled})
}

// BatchBody is what NHTSA sends for these answers together, in this order: their own rows, each with the VIN as the caller spells it.
func BatchBody(answers []Answer, spelled []string) []byte { return enclose("", answers, spelled) }

// enclose puts the rows of answers into one envelope. Every answer has exactly one row that can be read, or there would be no Answer.
func enclose(criteria string, answers []Answer, spelled []string) []byte {
	var e struct {
		Count          int
		Message        string
		SearchCriteria string
		Results        []map[string]json.RawMessage // written with sorted keys, as NHTSA's are
	}
	e.Count, e.SearchCriteria = len(answers), criteria
	for i, a := range answers {
		rows, message, _ := readEnvelope(a.body)
		var row map[string]json.RawMessage
		_ = json.Unmarshal(rows[0], &row)
		row["VIN"], _ = json.Marshal(spelled[i])
		e.Message = message
		e.Results = append(e.Results, row)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // NHTSA writes them as they are
	_ = enc.Encode(e)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
