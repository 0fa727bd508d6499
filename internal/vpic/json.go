package vpic

import (
	"bytes"
	"encoding/json"
	"maps"
)

// JSON is the decoding as the API gives it: an object, with NHTSA's fields that are not blank. It is written here, so that no other package has words of its
// own for a part of a vehicle.
func (d Decoding) JSON() []byte {
	type possible struct {
		Position   int    `json:"position"`
		Characters string `json:"characters"`
	}
	shown := struct {
		ModelYear    *int                `json:"modelYear"`
		Make         *string             `json:"make"`
		Model        *string             `json:"model"`
		Outcome      Outcome             `json:"outcome"`
		Summary      string              `json:"summary"`
		Sentence     string              `json:"sentence"`
		Codes        []int               `json:"codes"`
		Messages     []string            `json:"messages"`
		Remarks      []string            `json:"remarks"`
		SuggestedVIN *string             `json:"suggestedVin"`
		Possible     []possible          `json:"possibleValues"`
		Fields       map[string]string   `json:"fields"`
		Numbers      map[string]*float64 `json:"numbers"`
	}{
		orNull(d.ModelYear()), orNull(d.Make()), orNull(d.Model()), d.Outcome(), d.Summary(), d.Sentence(), d.codes, d.Messages(), d.Remarks(),
		orNull(d.SuggestedVIN()), []possible{}, d.Fields(), d.Numbers(),
	}
	maps.DeleteFunc(shown.Fields, func(_, text string) bool { return text == "" })
	for _, p := range d.PossibleValues() {
		shown.Possible = append(shown.Possible, possible(p))
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(shown); err != nil {
		panic(err) // these types cannot fail
	}
	return bytes.TrimSpace(b.Bytes())
}

// orNull is nil, null in JSON, for what is absent.
func orNull[T comparable](v T) *T {
	var absent T
	if v == absent {
		return nil
	}
	return &v
}
