package vpic

import (
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestAbsentNotApplicableAndReportedAreToldApart(t *testing.T) {
	n := func(f float64) *float64 { return &f }
	for _, c := range []struct {
		name, key string
		in        any
		state     State
		text      string
		number    *float64
	}{
		{"a text", "BodyClass", "Coupe", Reported, "Coupe", nil},
		{"a text with blanks behind it", "VehicleType", "TRUCK ", Reported, "TRUCK", nil},
		{"a blank", "BodyClass", "", Absent, "", nil},
		{"blanks", "BodyClass", "  ", Absent, "", nil},
		{"null", "BodyClass", nil, Absent, "", nil},
		{"a key that is not there", "BodyClass", absent, Absent, "", nil},
		{"not applicable", "BusType", "Not Applicable", NotApplicable, "", nil},
		{"not applicable in other letters", "BusType", " NOT APPLICABLE ", NotApplicable, "", nil},
		{"not reported", "Series", "Not Reported", Absent, "", nil},
		{"none is an answer", "BodyClass", "None", Reported, "None", nil},
		{"a key of tomorrow", "NewIn2027", "kept", Reported, "kept", nil},
		{"a number in a text's place stays a text", "Trim", "535", Reported, "535", nil},

		{"a whole number", "Doors", "4", Reported, "4", n(4)},
		{"a number in JSON", "Doors", 4, Reported, "4", n(4)},
		{"no doors", "Doors", "0", Reported, "0", n(0)},
		{"decimals", "DisplacementL", "2.998832712", Reported, "2.998832712", n(2.998832712)},
		{"decimals of nothing", "BasePrice", "53475.00", Reported, "53475.00", n(53475)},
		{"no digit before the point", "DisplacementL", ".5", Reported, ".5", n(0.5)},
		{"a blank number", "Doors", "", Absent, "", nil},
		{"a number that does not apply", "BusLength", "Not Applicable", NotApplicable, "", nil},
		{"a word in a number's place, as NHTSA has it", "EngineCylinders", "TBD", Reported, "TBD", nil},
		{"a range is no number", "Seats", "5-7", Reported, "5-7", nil},
		{"two numbers are none", "Seats", "5, 7", Reported, "5, 7", nil},
		{"a unit", "CurbWeightLB", "3000 lb", Reported, "3000 lb", nil},
		{"thousands set apart", "CurbWeightLB", "3,000", Reported, "3,000", nil},
		{"an exponent", "CurbWeightLB", "3e3", Reported, "3e3", nil},
		{"hexadecimal", "CurbWeightLB", "0x10", Reported, "0x10", nil},
		{"a sign", "CurbWeightLB", "-3", Reported, "-3", nil},
		{"infinity", "CurbWeightLB", "Inf", Reported, "Inf", nil},
		{"no number", "CurbWeightLB", "NaN", Reported, "NaN", nil},
		{"a point alone", "CurbWeightLB", ".", Reported, ".", nil},
		{"a point behind", "CurbWeightLB", "3.", Reported, "3.", nil},
		{"other digits", "Doors", "٤", Reported, "٤", nil},
		{"more digits than a number has", "Doors", strings.Repeat("9", 25), Reported, strings.Repeat("9", 25), nil},
		{"a weight class is a text", "GVWR", "Class 1: 6,000 lb or less (2,722 kg or less)", Reported, "Class 1: 6,000 lb or less (2,722 kg or less)", nil},
		{"a year", "ModelYear", "2003", Reported, "2003", n(2003)},
		{"a year of three digits", "ModelYear", "203", Reported, "203", nil},
	} {
		d := mustRead(t, envelope(flat(accord, row{c.key: c.in})), accord)
		v := d.Value(c.key)
		if v.Field() != FieldOf(c.key) || v.State() != c.state || v.Text() != c.text || !sameNumber(v.Number(), c.number) {
			t.Errorf("%s: %s %q %s, want %s %q %s", c.name, v.State(), v.Text(), shown(v.Number()), c.state, c.text, shown(c.number))
		}
		if v.Field().Numeric && c.state != Absent && !sameNumber(d.Numbers()[c.key], c.number) {
			t.Errorf("%s: among the numbers it is %s", c.name, shown(d.Numbers()[c.key]))
		}
	}
}

func sameNumber(a, b *float64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

func shown(n *float64) string {
	if n == nil {
		return "null"
	}
	return strconv.FormatFloat(*n, 'g', -1, 64)
}

func TestNumbersAreTheNumericFieldsThatSaySomething(t *testing.T) {
	d := mustRead(t, envelope(flat(accord, row{"Doors": "4", "Seats": " ", "EngineCylinders": "TBD", "BusLength": "Not Applicable", "Trim": "535", "Soon": 7})), accord)
	var got []string
	for key, n := range d.Numbers() {
		got = append(got, key+" "+shown(n))
	}
	slices.Sort(got)
	if want := []string{"BusLength null", "Doors 4", "EngineCylinders null", "ModelYear 2003"}; !slices.Equal(got, want) {
		t.Errorf("numbers %q, want %q", got, want)
	}
}

func TestEveryKeyOfAnAnswerIsInOneOfItsGroups(t *testing.T) {
	d := mustRead(t, envelope(flat(accord, row{"NewIn2027": "kept", "AlsoNew": ""})), accord)
	seen := map[string]int{}
	list := d.Groups()
	for _, g := range list {
		for _, v := range g.Values {
			seen[v.Field().Name]++
			if v.Field().Group != g.Name {
				t.Errorf("%s of %q is in %q", v.Field().Name, v.Field().Group, g.Name)
			}
		}
	}
	for key := range d.Fields() {
		if seen[key] != 1 {
			t.Errorf("%s is shown %d times", key, seen[key])
		}
	}
	other := list[len(list)-1]
	if len(seen) != 156 || other.Name != GroupOther || len(other.Values) != 2 || other.Values[0].Field().Name != "AlsoNew" || other.Values[1].Text() != "kept" {
		t.Errorf("%d fields, the others are %+v", len(seen), other)
	}
	plain := mustRead(t, envelope(flat(accord, nil)), accord).Groups()
	if len(plain) != len(groups) || plain[0].Values[0].Text() != "2003" || (Decoding{}).Groups() != nil {
		t.Errorf("%d groups, begins with %+v", len(plain), plain[0].Values[0])
	}
}

// NHTSA's captured answers, where they are at hand: what a numeric field says is a number, and nothing that is said gets lost.
func TestCapturedNumbers(t *testing.T) {
	dir := samples(t)
	files, err := filepath.Glob(filepath.Join(dir, "[01]*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	numeric := 0
	for _, file := range files {
		var envelope struct{ Results []map[string]any }
		if err := json.Unmarshal(readFile(t, file), &envelope); err != nil || len(envelope.Results) == 0 {
			continue // the table of codes, and what is no answer
		}
		for _, r := range envelope.Results {
			if r["ErrorCode"] == nil {
				continue // the long form
			}
			vin := r["VIN"].(string)
			d := mustRead(t, mustJSON(map[string]any{"Results": []any{r}}), vin)
			for key, text := range d.Fields() {
				v := d.Value(key)
				if s := strings.TrimSpace(text); (v.State() == Absent) != (s == "") || (v.State() == Reported) != (v.Text() == s && s != "") {
					t.Errorf("%s: %s is %q, read as %s %q", filepath.Base(file), key, text, v.State(), v.Text())
				}
				if v.State() == Reported && v.Field().Numeric {
					if numeric++; v.Number() == nil {
						t.Errorf("%s: %s is %q, which is no number", filepath.Base(file), key, text)
					}
				}
			}
		}
	}
	if numeric < 100 {
		t.Errorf("%d numbers seen", numeric)
	}
}

func FuzzNumber(f *testing.F) {
	for _, s := range []string{"", "4", "2.998832712", ".5", "5.", ".", "1e9", "TBD", "0x1p-2", "1_000", "5-7", "999999999999999999999999"} {
		f.Add("Doors", s)
		f.Add("ModelYear", s)
	}
	f.Fuzz(func(t *testing.T, key, s string) {
		n := number(key, s)
		if n == nil {
			return
		}
		again, err := strconv.ParseFloat(s, 64)
		switch {
		case key == "ModelYear":
			if *n < 1886 || *n > 2099 || *n != math.Trunc(*n) {
				t.Fatalf("year %v of %q", *n, s)
			}
		case err != nil || *n != again || *n < 0 || math.IsInf(*n, 0) || strings.Trim(s, "0123456789.") != "":
			t.Fatalf("%q is read as %v", s, *n)
		}
	})
}
