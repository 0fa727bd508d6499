package vpic

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEveryFieldIsInOneGroupWithALabel(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range Groups() {
		if g.Name == "" || g.Name == GroupOther || len(g.Fields) == 0 || seen[g.Name] {
			t.Errorf("group %q with %d fields", g.Name, len(g.Fields))
		}
		seen[g.Name] = true
		for _, f := range g.Fields {
			if f.Name == "" || f.Label == "" || f.Group != g.Name || seen["field "+f.Name] {
				t.Errorf("field %+v in group %q", f, g.Name)
			}
			seen["field "+f.Name] = true
			if FieldOf(f.Name) != f {
				t.Errorf("FieldOf(%q) = %+v, in its group it is %+v", f.Name, FieldOf(f.Name), f)
			}
		}
	}
	if n := len(fields); n != 154 {
		t.Errorf("%d fields, NHTSA sends 154", n)
	}
	if first, last := Groups()[0], Groups()[len(groups)-1]; first.Fields[0].Name != "ModelYear" || last.Name != GroupAnswer {
		t.Errorf("begins with %q and ends with %q", first.Fields[0].Name, last.Name)
	}
}

func TestAnUnknownKeyIsItsOwnLabelAmongTheOthers(t *testing.T) {
	if got, want := FieldOf("NewIn2027"), (Field{"NewIn2027", "NewIn2027", GroupOther, false}); got != want {
		t.Errorf("FieldOf = %+v, want %+v", got, want)
	}
}

func TestGroupsGivesACopy(t *testing.T) {
	Groups()[0].Fields[0].Label = "changed"
	if Groups()[0].Fields[0].Label != "Model Year" {
		t.Error("what one caller changes, others see")
	}
}

// NHTSA's own table of elements and keys, where it is at hand.
func TestLabelsAndGroupsAreNHTSAs(t *testing.T) {
	dir := samples(t)
	var elements []struct{ Code, Label, Group, Type string }
	var keys []string
	for name, into := range map[string]any{"element-labels-groups.json": &elements, "field-names-154.json": &keys} {
		if err := json.Unmarshal(readFile(t, filepath.Join(dir, name)), into); err != nil {
			t.Fatal(err)
		}
	}
	ours := []string{"MakeID", "ManufacturerId", "ModelID", "VIN"} // NHTSA's table does not have them
	for _, key := range keys {
		f, known := fields[key]
		if !known {
			t.Errorf("%s is in no group", key)
			continue
		}
		i := slices.IndexFunc(elements, func(e struct{ Code, Label, Group, Type string }) bool { return e.Code == key })
		if i < 0 {
			if !slices.Contains(ours, key) || f.Group != GroupAnswer || f.Numeric != strings.HasSuffix(strings.ToUpper(key), "ID") {
				t.Errorf("%+v is not in NHTSA's table", f)
			}
			continue
		}
		e := elements[i]
		if e.Group == "" {
			e.Group = GroupAnswer
		}
		if want := (Field{key, e.Label, e.Group, e.Type == "int" || e.Type == "decimal"}); f != want {
			t.Errorf("%+v, NHTSA has %+v", f, want)
		}
	}
	if len(keys) != len(fields) {
		t.Errorf("%d fields, NHTSA has %d keys", len(fields), len(keys))
	}
}
