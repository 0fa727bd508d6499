package vpic

import (
	_ "embed"
	"slices"
	"strings"
)

// Field is one key of NHTSA's flat answers as a person reads it.
type Field struct {
	Name    string // NHTSA's key
	Label   string // NHTSA's label, units included; the key itself where there is none
	Group   string // the group it is sorted into
	Numeric bool   // NHTSA's value is a number
}

// Group is one of NHTSA's groups of fields.
type Group struct {
	Name   string // NHTSA's own, with a slash between a group and a part of it, or one of the two below
	Fields []Field
}

// Groups that are not NHTSA's.
const (
	GroupAnswer = "About this answer" // what the row says of the VIN and of itself rather than of the vehicle
	GroupOther  = "Other"             // keys that are not known here, as NHTSA may add any day
)

//go:embed fields.txt
var fieldsText string

var (
	groups = parseFields(fieldsText)
	fields = func() map[string]Field {
		m := make(map[string]Field)
		for _, g := range groups {
			for _, f := range g.Fields {
				m[f.Name] = f
			}
		}
		return m
	}()
)

// parseFields reads fields.txt, which says how it is written.
func parseFields(text string) []Group {
	var list []Group
	for line := range strings.Lines(text) {
		switch line = strings.TrimRight(line, "\n"); {
		case line == "", line[0] == '#':
		case line[0] != ' ':
			list = append(list, Group{Name: line})
		default:
			g := &list[len(list)-1]
			p := strings.SplitN(line, "|", 3)
			g.Fields = append(g.Fields, Field{strings.TrimSpace(p[0]), strings.TrimSpace(p[2]), g.Name, strings.TrimSpace(p[1]) == "number"})
		}
	}
	return list
}

// Groups gives every field of NHTSA's flat answers, each in one group, in the order in which a person reads them. It is a
// copy. A key that an answer has beyond these belongs to GroupOther.
func Groups() []Group {
	list := slices.Clone(groups)
	for i := range list {
		list[i].Fields = slices.Clone(list[i].Fields)
	}
	return list
}

// FieldOf tells what is known of a key. One that is not known is its own label, a text, and in GroupOther.
func FieldOf(name string) Field {
	if f, known := fields[name]; known {
		return f
	}
	return Field{Name: name, Label: name, Group: GroupOther}
}
