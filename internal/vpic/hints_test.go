package vpic

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSuggestedVINIsPassedOnAndRead(t *testing.T) {
	for _, c := range []struct {
		name, in, suggested, correction string
		doubted                         []int
	}{
		{"none", "", "", "", nil},
		{"the VIN itself", strings.ToLower(accord) + " ", "", "", nil},
		{"a whole one", "1HGCM82633A004353", "1HGCM82633A004353", "1HGCM82633A004353", nil},
		{"one marked position", "1HGCM8263!A004352", "1HGCM8263!A004352", "", []int{10}},
		{"several, with blanks behind", "5YJSA3D!*EF!  ", "5YJSA3D!*EF!", "", []int{8, 12}},
		{"a partial one", "5YJSA3DS*EF", "5YJSA3DS*EF", "", nil},
		{"letters that no VIN contains are no correction", "1HGCM82633AOO4353", "1HGCM82633AOO4353", "", nil},
		{"longer than a VIN", "1HGCM82633A00435!!", "1HGCM82633A00435!!", "", []int{17}},
	} {
		d := mustRead(t, envelope(flat(accord, row{"SuggestedVIN": c.in})), accord)
		if d.SuggestedVIN() != c.suggested || d.Correction() != c.correction || !slices.Equal(d.Doubted(), c.doubted) {
			t.Errorf("%s: %q, correction %q, doubted %v", c.name, d.SuggestedVIN(), d.Correction(), d.Doubted())
		}
	}
}

func TestPossibleValuesAreReadAsPositions(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []Possible
	}{
		{"", nil},
		{"(11:01)", []Possible{{11, "01"}}},
		{"(4:HMP)(8:9KPRT)(11:B)", []Possible{{4, "HMP"}, {8, "9KPRT"}, {11, "B"}}},
		{" ( 4 : HM ) (8:9) ", []Possible{{4, "HM"}, {8, "9"}}},
		{"(8:12)(4:A)", []Possible{{8, "12"}, {4, "A"}}},
		{"(4:AAB)", []Possible{{4, "AB"}}},
		// What is not of this form ends the list.
		{"(4:HMP)(8:9K", []Possible{{4, "HMP"}}},
		{"(4:HMP)(8:)(11:B)", []Possible{{4, "HMP"}}},
		{"(4:HMP)(18:A)", []Possible{{4, "HMP"}}},
		{"(4:H)(4:M)", []Possible{{4, "H"}}},
		{"(0:A)", nil},
		{"(-4:A)", nil},
		{"(4:a)", nil},
		{"(4:[A-C])", nil},
		{"(4:A", nil},
		{"4:A)", nil},
		{"(4)", nil},
		{"()", nil},
		{"Unused position(s): 4", nil},
	} {
		d := mustRead(t, envelope(flat(accord, row{"PossibleValues": c.in})), accord)
		if got := d.PossibleValues(); !slices.Equal(got, c.want) || d.Fields()["PossibleValues"] != c.in {
			t.Errorf("%q is read as %v, kept as %q; want %v", c.in, got, d.Fields()["PossibleValues"], c.want)
		}
	}
}

func TestNotesAreReadFromNHTSAsSentences(t *testing.T) {
	cutAt := func(s string) string { return strings.Repeat("x", textLimit-utf8.RuneCountInString(s)) + s }
	for _, c := range []struct {
		name, in string
		want     Notes
	}{
		{"nothing", "", Notes{}},
		{"something else", "Please note that 4,5 are fine.", Notes{}},
		{"one unused position", "…in this position. Unused position(s): 11.", Notes{Unexplained: []int{11}}},
		{"the old form", "…in this position Unused position(s): 8;", Notes{Unexplained: []int{8}}},
		{"several", "Unused position(s): 4,8,11.", Notes{Unexplained: []int{4, 8, 11}}},
		{"with blanks, out of order, twice", "Unused position(s): 8, 4 ,8.", Notes{Unexplained: []int{4, 8}}},
		{"no position", "Unused position(s): 0,4.", Notes{}},
		{"one that no VIN has", "Unused position(s): 4,18.", Notes{Unexplained: []int{4}}},
		{"invalid characters", "Invalid character(s): 9:!, 11:I.", Notes{Invalid: []Invalid{{9, "!"}, {11, "I"}}}},
		{"the old form with blanks", "Unused position(s): 11; Invalid character(s): 9:!         , 11:!;", Notes{Unexplained: []int{11}, Invalid: []Invalid{{9, "!"}, {11, "!"}}}},
		{"a comma that is invalid", "Invalid character(s): 9:,, 11:!.", Notes{Invalid: []Invalid{{9, ","}, {11, "!"}}}},
		{"no character", "Invalid character(s): 9, 11:!.", Notes{}},
		{"both warnings", "Incomplete Vehicle Warning - Please be advised. The Model Year decoded for this VIN may be incorrect. If you know", Notes{IncompleteVehicle: true, YearDoubtful: true}},
		{"cut behind a number: it may have been 11", cutAt("Unused position(s): 4,1"), Notes{Unexplained: []int{4}}},
		{"cut behind a comma", cutAt("Unused position(s): 4,"), Notes{Unexplained: []int{4}}},
		{"cut before the first", cutAt("Unused position(s): "), Notes{}},
		{"cut behind a character", cutAt("Invalid character(s): 9:!, 11:!"), Notes{Invalid: []Invalid{{9, "!"}}}},
		{"cut in the sentence", cutAt("Unused posit"), Notes{}},
		{"as long as the cut, but with its end", cutAt("Unused position(s): 4,8,11."), Notes{Unexplained: []int{4, 8, 11}}},
	} {
		d := mustRead(t, envelope(flat(accord, row{"AdditionalErrorText": c.in})), accord)
		if got := d.Notes(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// NHTSA's captured answers, where they are at hand.
func TestCapturedHints(t *testing.T) {
	dir := samples(t)
	for _, c := range []struct {
		file, vin string
		doubted   []int
		possible  []Possible
		notes     Notes
	}{
		{"01-clean-1FTMW1T88MFA00001.json", pickup, nil, nil, Notes{}},
		{"11-codes-4_14-my1985-JM1GC3111FU937813.json", "JM1GC3111FU937813", []int{11}, []Possible{{11, "01"}}, Notes{Unexplained: []int{11}}},
		{"12-codes-5_14-partial-2LMDJ9JL0HE297971.json", "2LMDJ9JL0HE297971", []int{4, 8, 11}, []Possible{{4, "HMP"}, {8, "9KPRT"}, {11, "B"}}, Notes{Unexplained: []int{4, 8, 11}}},
		{"13-code0-checkdigit-exception-ZACCJABT0FPB71014.json", "ZACCJABT0FPB71014", nil, nil, Notes{CheckDigitException: true}},
		{"14-codes-5_14-make-no-model-1FAUVP5U913895730.json", "1FAUVP5U913895730", []int{4, 5, 6, 11},
			[]Possible{{4, "FHK"}, {5, "MPT"}, {6, "13456789"}, {11, "05ABCDEFGHJKLMNPRTUWXYZ"}}, Notes{Unexplained: []int{4, 5, 6, 7, 11}}},
	} {
		d := mustRead(t, readFile(t, filepath.Join(dir, c.file)), c.vin)
		if !slices.Equal(d.Doubted(), c.doubted) || !slices.Equal(d.PossibleValues(), c.possible) || !reflect.DeepEqual(d.Notes(), c.notes) {
			t.Errorf("%s: doubted %v, possible %v, notes %+v", c.file, d.Doubted(), d.PossibleValues(), d.Notes())
		}
	}
}

func FuzzSuggestedVIN(f *testing.F) {
	for _, s := range []string{"", accord, "5YJSA3D!*EF!  ", "!!!!!!!!!!!!!!!!!!!!", "é!"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d := Decoding{fields: map[string]string{"VIN": pickup, "SuggestedVIN": s}}
		for _, p := range d.Doubted() {
			if p < 1 || p > vinLength || d.SuggestedVIN()[p-1] != '!' {
				t.Fatalf("%q doubts position %d", s, p)
			}
		}
		if c := d.Correction(); c != "" && (len(c) != vinLength || d.Doubted() != nil || c != d.SuggestedVIN()) {
			t.Fatalf("%q corrects to %q", s, c)
		}
	})
}

func FuzzPossibleValues(f *testing.F) {
	for _, s := range []string{"", "(4:HMP)(8:9KPRT)(11:B)", "(11:01", "((:))", "(4:A)(4:B)", "(17:*)", "( 9 : X )"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list := parsePossible(s)
		var written strings.Builder
		seen := map[int]bool{}
		for _, p := range list {
			if p.Position < 1 || p.Position > vinLength || seen[p.Position] || p.Characters == "" || once(p.Characters) != p.Characters ||
				strings.Trim(p.Characters, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || !strings.Contains(s, p.Characters[:1]) {
				t.Fatalf("%q is read as %v", s, list)
			}
			seen[p.Position] = true
			written.WriteString("(" + string(rune('0'+p.Position/10)) + string(rune('0'+p.Position%10)) + ":" + p.Characters + ")")
		}
		if again := parsePossible(written.String()); !slices.Equal(again, list) {
			t.Fatalf("%q is read as %v, and again as %v", s, list, again)
		}
	})
}

func FuzzNotes(f *testing.F) {
	for _, s := range []string{"", "Unused position(s): 4,8,11.", "Invalid character(s): 9:!         , 11:!;", "Unused position(s):Invalid character(s):", strings.Repeat("é", 490) + "Unused position(s): 1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n := parseNotes(s)
		for i, p := range n.Unexplained {
			if p < 1 || p > vinLength || i > 0 && p <= n.Unexplained[i-1] {
				t.Fatalf("%q leaves %v unexplained", s, n.Unexplained)
			}
		}
		for i, c := range n.Invalid {
			if c.Position < 1 || c.Position > vinLength || utf8.RuneCountInString(c.Character) != 1 || !utf8.ValidString(c.Character) || i > 0 && c.Position <= n.Invalid[i-1].Position {
				t.Fatalf("%q makes %v invalid", s, n.Invalid)
			}
		}
		// A text that was cut says nothing that the whole one does not.
		runes := []rune(s)
		if !utf8.ValidString(s) || len(runes) <= textLimit {
			return
		}
		short := parseNotes(string(runes[:textLimit]))
		for _, p := range short.Unexplained {
			if !slices.Contains(n.Unexplained, p) {
				t.Fatalf("%q, cut, leaves %v unexplained, whole %v", s, short.Unexplained, n.Unexplained)
			}
		}
		for _, c := range short.Invalid {
			if !slices.Contains(n.Invalid, c) {
				t.Fatalf("%q, cut, makes %v invalid, whole %v", s, short.Invalid, n.Invalid)
			}
		}
	})
}
