package bulk

import (
	"fmt"
	"slices"
	"strings"

	"vingate/internal/vpic"
)

// Fields are NHTSA's raw fields that the records carry. The zero value is none.
type Fields struct {
	all   bool
	names []string // NHTSA's keys, in the order of the columns
}

// ParseFields reads "all" or names of NHTSA's fields with commas between, in any letter case; "" is none.
func ParseFields(text string) (Fields, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return Fields{}, nil
	}
	known := map[string]string{}
	all := Fields{all: true}
	for _, g := range vpic.Groups() {
		for _, f := range g.Fields {
			known[strings.ToLower(f.Name)] = f.Name
			all.names = append(all.names, f.Name)
		}
	}
	if strings.EqualFold(text, "all") {
		return all, nil
	}
	var chosen Fields
	seen := map[string]bool{}
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		name, ok := known[strings.ToLower(word)]
		if !ok {
			return Fields{}, fmt.Errorf(`NHTSA has no field %q; "all" takes every one of them, and GET /v1/vins/{vin} shows their names`, word)
		}
		if !seen[name] {
			seen[name] = true
			chosen.names = append(chosen.names, name)
		}
	}
	return chosen, nil
}

// of picks the fields out of an answer's.
func (f Fields) of(answer map[string]string) map[string]string {
	if f.all {
		return answer
	}
	var picked map[string]string
	for _, name := range f.names {
		if text := answer[name]; text != "" {
			if picked == nil {
				picked = map[string]string{}
			}
			picked[name] = text
		}
	}
	return picked
}

// others are the fields of an answer that have no column: those that NHTSA has added since.
func (f Fields) others(answer map[string]string) map[string]string {
	if !f.all {
		return nil
	}
	var more map[string]string
	for name, text := range answer {
		if vpic.FieldOf(name).Group == vpic.GroupOther {
			if more == nil {
				more = map[string]string{}
			}
			more[name] = text
		}
	}
	return more
}

// fit says whether a record with these fields may have been written under this choice. An answer has never no field at all.
func (f Fields) fit(written map[string]string) bool {
	if f.all {
		return len(written) > 0
	}
	for name := range written {
		if !slices.Contains(f.names, name) {
			return false
		}
	}
	return true
}
