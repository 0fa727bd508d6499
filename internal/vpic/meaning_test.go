package vpic

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func mustRead(t *testing.T, body []byte, vin string) Decoding {
	t.Helper()
	a, err := Read(body, Query{VIN: vin})
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	return a.Decoding()
}

func TestInterpretsACleanAnswer(t *testing.T) {
	d := mustRead(t, readFile(t, "testdata/clean.json"), pickup)
	if d.Outcome() != Clean || d.Make() != "FORD" || d.Model() != "F-150" || d.ModelYear() != 2021 || d.SuggestedVIN() != "" {
		t.Errorf("%s, %d %q %q, suggested %q", d.Outcome(), d.ModelYear(), d.Make(), d.Model(), d.SuggestedVIN())
	}
	if !slices.Equal(d.Codes(), []int{0}) || !slices.Equal(d.Messages(), []string{"VIN decoded clean. Check Digit (9th position) is correct"}) {
		t.Errorf("codes %v, messages %q", d.Codes(), d.Messages())
	}
	if len(d.Fields()) != 29 || d.Fields()["VehicleType"] != "TRUCK " || d.Fields()["BusType"] != "Not Applicable" {
		t.Errorf("%d fields, VehicleType %q, BusType %q: want all, as NHTSA sent them", len(d.Fields()), d.Fields()["VehicleType"], d.Fields()["BusType"])
	}
	if v, found := d.Fields()["Note"]; !found || v != "" {
		t.Errorf("an empty field is not kept")
	}
}

func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes row
		want    Outcome
	}{
		{"code 0 and all three", nil, Clean},
		{"an off-road note beside 0", row{"ErrorCode": "0,10"}, Clean},
		{"a glider note beside 0", row{"ErrorCode": "0,9"}, Warned},
		{"another year beside 0", row{"ErrorCode": "0,12"}, Warned},
		{"unexplained characters beside 0", row{"ErrorCode": "0,14"}, Warned},
		{"a check digit that does not compute", row{"ErrorCode": "1"}, Warned},
		{"the same with an off-road note", row{"ErrorCode": "1,10"}, Warned},
		{"the same with invalid characters", row{"ErrorCode": "1,400"}, Warned},
		{"1 with company", row{"ErrorCode": "1,4,14,400"}, Warned},
		{"a correction", row{"ErrorCode": "2"}, Warned},
		{"errors in few positions, all three known", row{"ErrorCode": "5,14"}, Warned},
		{"a code nobody knows yet", row{"ErrorCode": "0,15"}, Warned},
		{"an incomplete VIN, all three known", row{"ErrorCode": "6"}, Partial},
		{"an incomplete VIN among others", row{"ErrorCode": "5,6,14"}, Partial},
		{"no model", row{"ErrorCode": "5,14", "Model": ""}, Partial},
		{"no model although 0", row{"Model": ""}, Partial},
		{"no year", row{"ErrorCode": "11", "ModelYear": ""}, Partial},
		{"a year that is none", row{"ModelYear": "unknown"}, Partial},
		{"maker and year only", row{"ErrorCode": "8", "Make": "", "Model": ""}, Partial},
		{"make only", row{"ErrorCode": "8", "Model": "", "ModelYear": "", "Manufacturer": ""}, Partial},
		{"a model called Not Applicable", row{"Model": "Not Applicable"}, Partial},
		{"a make called Not Reported", row{"Make": " not reported "}, Partial},
		{"an unregistered maker", row{"ErrorCode": "7", "Make": "", "Model": "", "ModelYear": "", "Manufacturer": ""}, Unknown},
		{"an unregistered maker among others", row{"ErrorCode": "1,7,400", "Make": "", "Model": "", "Manufacturer": ""}, Unknown},
		{"an unregistered maker, whatever else is said", row{"ErrorCode": "7"}, Unknown},
		{"a year alone", row{"ErrorCode": "8", "Make": "", "Model": "", "Manufacturer": ""}, Unknown},
		{"blanks only", row{"Make": " ", "Model": "\t", "Manufacturer": "  "}, Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := mustRead(t, envelope(flat(accord, c.changes)), accord); d.Outcome() != c.want {
				t.Errorf("outcome %s, want %s", d.Outcome(), c.want)
			}
		})
	}
}

func TestTolerantReading(t *testing.T) {
	d := mustRead(t, envelope(flat(accord, row{
		"Make": " HONDA  ", "ModelYear": 2003, "Doors": nil, "Turbo": true, "DisplacementL": 2.998832712, "NewIn2027": "kept", "Nested": row{"a": []int{1}},
		"SuggestedVIN": "1HGCM8263!A004352 ",
	})), accord)
	if d.Make() != "HONDA" || d.ModelYear() != 2003 || d.SuggestedVIN() != "1HGCM8263!A004352" {
		t.Errorf("make %q, year %d, suggested %q", d.Make(), d.ModelYear(), d.SuggestedVIN())
	}
	for key, want := range map[string]string{
		"Make": " HONDA  ", "ModelYear": "2003", "Doors": "", "Turbo": "true", "DisplacementL": "2.998832712", "NewIn2027": "kept", "Nested": `{"a":[1]}`,
	} {
		if got, found := d.Fields()[key]; !found || got != want {
			t.Errorf("field %s = %q, want %q", key, got, want)
		}
	}

	for name, c := range map[string]struct{ row, asked string }{
		"the caller's own spelling comes back": {"1hgcm82633a004352", accord},
		"NHTSA's spelling for a small one":     {accord, "1hgcm82633a004352"},
		"blanks around it":                     {" " + accord + " ", accord},
		"a partial VIN":                        {suv, suv},
	} {
		if _, err := Read(envelope(flat(c.row, nil)), Query{VIN: c.asked}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	mustRead(t, append([]byte("\xEF\xBB\xBF"), envelope(flat(accord, nil))...), accord)

	if d := mustRead(t, envelope(flat(accord, row{"SuggestedVIN": strings.ToLower(accord)})), accord); d.SuggestedVIN() != "" {
		t.Errorf("the VIN itself is suggested")
	}
}

func TestRefusesWhatIsNoAnswer(t *testing.T) {
	good := string(envelope(flat(accord, nil)))
	for _, c := range []struct{ name, body string }{
		{"nothing", ""},
		{"blanks", " \r\n"},
		{"HTML", "<!DOCTYPE html><p>" + canary},
		{"XML", `<?xml version="1.0"?><Response><Count>1</Count></Response>`},
		{"a truncated answer", good[:len(good)-20]},
		{"garbage behind the answer", good + canary},
		{"a second answer behind it", good + good},
		{"a list", "[" + good + "]"},
		{"null", "null"},
		{"a text", `"` + canary + `"`},
		{"invalid UTF-8", strings.Replace(good, "HONDA", "HOND\xff", 1)},
		{"no Results", `{"Count":1,"Message":"Results returned successfully."}`},
		{"Results null", `{"Results":null}`},
		{"Results in small letters", strings.Replace(good, `"Results"`, `"results"`, 1)},
		{"Results an object", `{"Results":{"VIN":"` + accord + `"}}`},
		{"Message no text", strings.Replace(good, `"Results returned successfully."`, `{"a":1}`, 1)},
		{"no row", string(envelope())},
		{"two rows", string(envelope(flat(accord, nil), flat(accord, nil)))},
		{"a row that is null", `{"Results":[null]}`},
		{"a row that is a list", `{"Results":[["` + canary + `"]]}`},
		{"another VIN in the row", string(envelope(flat(pickup, nil)))},
		{"no VIN in the row", string(envelope(flat(accord, row{"VIN": absent})))},
		{"the long form", `{"Results":[{"Value":"HONDA","ValueId":"474","Variable":"Make","VariableId":26}]}`},
		{"an ERROR message without a row", string(envelopeWith("ERROR: Invalid Year Submitted – Pre-1981 Year Decode Attempt"))},
		{"an ERROR message with a row", string(envelopeWith("ERROR: "+canary, flat(accord, nil)))},
		{"an execution error", string(envelopeWith("Execution Error "+canary, flat(accord, nil)))},
		{"no ErrorCode", string(envelope(flat(accord, row{"ErrorCode": absent})))},
		{"an empty ErrorCode", string(envelope(flat(accord, row{"ErrorCode": " "})))},
		{"an ErrorCode of commas", string(envelope(flat(accord, row{"ErrorCode": ",,"})))},
		{"an ErrorCode in words", string(envelope(flat(accord, row{"ErrorCode": "0 - VIN decoded clean " + canary})))},
		{"a negative ErrorCode", string(envelope(flat(accord, row{"ErrorCode": "-1"})))},
		{"a huge ErrorCode", string(envelope(flat(accord, row{"ErrorCode": "99999999999999999999"})))},
		{"a structured Make", string(envelope(flat(accord, row{"Make": row{"a": canary}})))},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Read([]byte(c.body), Query{VIN: accord})
			var e *Error
			if !errors.As(err, &e) || e.Kind != BadResponse || e.Reason == "" || e.Started || e.Status != 0 {
				t.Fatalf("Read = %+v, %#v, want a BadResponse", d, err)
			}
			if d.Fields() != nil || d.Outcome() != "" {
				t.Errorf("a refusal brings a vehicle: %+v", d)
			}
			mustNotLeak(t, err)
		})
	}
	if _, err := Read(envelope(flat("", nil)), Query{}); err == nil {
		t.Error("no VIN matches no VIN")
	}
}

func TestNobodyCanChangeAnAnswer(t *testing.T) {
	body := envelope(flat(accord, row{"ErrorCode": "1,14"}))
	a, err := Read(body, Query{VIN: accord})
	if err != nil {
		t.Fatal(err)
	}
	clear(body)
	clear(a.Body())
	a.Fields()["Make"] = "FORD"
	a.Decoding().Fields()["Make"] = "FORD"
	a.Codes()[0] = 0
	if again, err := Read(a.Body(), a.Query()); err != nil || again.Make() != "HONDA" {
		t.Errorf("the body is another one: %v", err)
	}
	if a.Make() != "HONDA" || a.Fields()["Make"] != "HONDA" || !slices.Equal(a.Codes(), []int{1, 14}) {
		t.Errorf("changed: %q, %q, %v", a.Make(), a.Fields()["Make"], a.Codes())
	}
	items, err := ReadBatch(envelope(flat(accord, nil)), []Query{{VIN: accord}})
	if err != nil {
		t.Fatal(err)
	}
	item := items.Items[0]
	clear(item.Row())
	item.Fields()["Make"] = "FORD"
	if item.Make() != "HONDA" || !strings.Contains(string(item.Row()), "HONDA") {
		t.Errorf("changed: %q, %s", item.Make(), item.Row())
	}
}

func TestCountIsNeverLookedAt(t *testing.T) {
	good := string(envelope(flat(accord, nil)))
	for _, count := range []string{"0", "1", "134", "-1", `"1"`, "null", "{}"} {
		mustRead(t, []byte(strings.Replace(good, `"Count":136`, `"Count":`+count, 1)), accord)
	}
}

func TestReadCodes(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []int
	}{
		{"0", []int{0}},
		{"1,4,14,400", []int{1, 4, 14, 400}},
		{" 5 , 6,14 ", []int{5, 6, 14}},
		{"14,1,1,", []int{1, 14}},
		{"1; 8; 400", []int{1, 8, 400}},
		{"", nil},
		{"0 - clean", nil},
		{"1,x", nil},
		{"1 4", nil},
		{"٣", nil},
		{strings.Repeat("1,", 65), nil},
	} {
		if got, ok := readCodes(c.in); !slices.Equal(got, c.want) || ok != (c.want != nil) {
			t.Errorf("readCodes(%q) = %v, %v, want %v", c.in, got, ok, c.want)
		}
	}
}

// nhtsaTexts are NHTSA's own texts; that of 7 holds a semicolon.
var nhtsaTexts = map[int]string{
	0:   "VIN decoded clean. Check Digit (9th position) is correct",
	1:   "Check Digit (9th position) does not calculate properly",
	2:   "VIN corrected, error in one position",
	4:   "VIN corrected, error in one position only (indicated by ! in Suggested VIN), multiple matches found",
	5:   "VIN has errors in few positions",
	6:   "Incomplete VIN",
	7:   "Manufacturer is not registered with NHTSA for sale or importation in the U.S. for use on U.S roads; Please contact the manufacturer directly for more information",
	8:   "No detailed data available currently",
	14:  "Unable to provide information for some of the characters in the VIN, based on the manufacturer submission.",
	400: "Invalid Characters Present",
}

func errorText(codes []int) string {
	parts := make([]string, len(codes))
	for i, c := range codes {
		parts[i] = fmt.Sprintf("%d - %s", c, nhtsaTexts[c])
	}
	return strings.Join(parts, "; ")
}

func TestMessages(t *testing.T) {
	long := "14 - " + strings.Repeat("unexplained ", 50)
	for _, c := range []struct {
		name  string
		codes []int
		text  string
		want  []string
	}{
		{"one", []int{6}, "6 - Incomplete VIN", []string{"Incomplete VIN"}},
		{"a text with a semicolon", []int{1, 7, 400}, errorText([]int{1, 7, 400}), []string{nhtsaTexts[1], nhtsaTexts[7], nhtsaTexts[400]}},
		{"blanks at the end", []int{2}, "2 - VIN corrected, error in one position ;", []string{"VIN corrected, error in one position"}},
		{"no blank behind the semicolon", []int{5, 6}, "5 - few;6 - Incomplete", []string{"few", "Incomplete"}},
		{"a note behind 0", []int{0}, "0 - VIN decoded clean. NOTE: Check Digit Exception - granted.", []string{"VIN decoded clean. NOTE: Check Digit Exception - granted."}},
		{"1 is not 14", []int{1, 14}, "14 - Unable", []string{words[1].says, "Unable"}},
		{"a code that ErrorCode does not name is no cut", []int{5}, "5 - few; 6 - Incomplete VIN", []string{"few; 6 - Incomplete VIN"}},
		{"no text at all", []int{7, 400}, "", []string{words[7].says, words[400].says}},
		{"an empty text", []int{7, 400}, "7 - ; 400 - Invalid", []string{words[7].says, "Invalid"}},
		{"a code nobody knows, with a text", []int{15}, "15 - Something new", []string{"Something new"}},
		{"a code nobody knows, without", []int{15}, "", []string{"NHTSA answered with code 15, whose meaning is not known here."}},
		{"a cut in mid-word", []int{14}, long[:500], []string{strings.TrimPrefix(long[:500], "14 - ") + "…"}},
		{"a cut before the last code", []int{5, 14, 400}, ("5 - few; " + long)[:500], []string{"few", strings.TrimPrefix(("5 - few; " + long)[:500], "5 - few; 14 - ") + "…", words[400].says}},
	} {
		if got := messages(c.codes, c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s: messages(%v, %.60q) = %q, want %q", c.name, c.codes, c.text, got, c.want)
		}
	}
}

func TestMessagesAreNHTSAsTextsInOrder(t *testing.T) {
	all := make([]int, 0, len(nhtsaTexts))
	for c := range nhtsaTexts {
		all = append(all, c)
	}
	slices.Sort(all)
	rapid.Check(t, func(t *rapid.T) {
		var codes []int
		for _, c := range all {
			if rapid.Bool().Draw(t, fmt.Sprint("code ", c)) {
				codes = append(codes, c)
			}
		}
		text := errorText(codes)
		if len(text) >= textLimit {
			t.Skip("NHTSA would cut this")
		}
		for i, m := range messages(codes, text) {
			if m != nhtsaTexts[codes[i]] {
				t.Fatalf("message of %d in %q = %q", codes[i], text, m)
			}
		}
	})
}

// The captured answers of NHTSA, where they are at hand.

func TestCapturedAnswers(t *testing.T) {
	dir := samples(t)
	for _, c := range []struct {
		file, vin     string
		outcome       Outcome
		make, model   string
		year          int
		codes         []int
		suggested     string
		lastMessageIs string
	}{
		{"01-clean-1FTMW1T88MFA00001.json", pickup, Clean, "FORD", "F-150", 2021, []int{0}, "", "VIN decoded clean. Check Digit (9th position) is correct"},
		{"02-clean-modelyear-1FTMW1T88MFA00001.json", pickup, Clean, "FORD", "F-150", 2021, []int{0}, "", ""},
		{"03-extended-1FTMW1T88MFA00001.json", pickup, Clean, "FORD", "F-150", 2021, []int{0}, "", ""},
		{"04-partial-code6-5UXWX7C5_BA-my2011.json", suv, Partial, "BMW", "X3", 2011, []int{6}, "", "Incomplete VIN"},
		{"07-clean-2026-154keys-3VV3B7AX9NM000001.json", "3VV3B7AX9NM000001", Clean, "VOLKSWAGEN", "Tiguan", 2022, []int{0}, "", ""},
		{"08-clean-2026-hybrid-KMHC85LCXHU000001.json", "KMHC85LCXHU000001", Clean, "HYUNDAI", "Ioniq", 2017, []int{0}, "", ""},
		{"09-code8-make-no-model-KL4MRSUC0TL588504.json", "KL4MRSUC0TL588504", Partial, "BUICK", "", 2026, []int{8}, "", "No detailed data available currently"},
		{"10-code8-no-make-JA45ELZ45TS282752.json", "JA45ELZ45TS282752", Partial, "", "", 2026, []int{8}, "", ""},
		{"11-codes-4_14-my1985-JM1GC3111FU937813.json", "JM1GC3111FU937813", Warned, "MAZDA", "626", 1985, []int{4, 14}, "JM1GC3111F!937813", nhtsaTexts[14]},
		{"12-codes-5_14-partial-2LMDJ9JL0HE297971.json", "2LMDJ9JL0HE297971", Warned, "LINCOLN", "MKX", 2017, []int{5, 14}, "2LM!J9J!0H!297971", nhtsaTexts[14]},
		{"13-code0-checkdigit-exception-ZACCJABT0FPB71014.json", "ZACCJABT0FPB71014", Clean, "JEEP", "Renegade", 2015, []int{0}, "", ""},
		{"14-codes-5_14-make-no-model-1FAUVP5U913895730.json", "1FAUVP5U913895730", Partial, "FORD", "", 2001, []int{5, 14}, "1FA!!!5U91!895730", nhtsaTexts[14]},
	} {
		t.Run(c.file, func(t *testing.T) {
			d := mustRead(t, readFile(t, filepath.Join(dir, c.file)), c.vin)
			if d.Outcome() != c.outcome || d.Make() != c.make || d.Model() != c.model || d.ModelYear() != c.year ||
				!slices.Equal(d.Codes(), c.codes) || d.SuggestedVIN() != c.suggested {
				t.Errorf("%s: %d %q %q, codes %v, suggested %q", d.Outcome(), d.ModelYear(), d.Make(), d.Model(), d.Codes(), d.SuggestedVIN())
			}
			if last := d.Messages()[len(d.Messages())-1]; c.lastMessageIs != "" && last != c.lastMessageIs {
				t.Errorf("last message %q, want %q", last, c.lastMessageIs)
			}
			if len(d.Fields()) != 148 && len(d.Fields()) != 154 {
				t.Errorf("%d fields", len(d.Fields()))
			}
		})
	}
	for file, vin := range map[string]string{
		"06-longform-codes-1_4_14_400-1FA6P8C0xMx100001.json": "1FA6P8C0!M!100001",
		"15-http404-no-vin.json":                              accord,
	} {
		if d, err := Read(readFile(t, filepath.Join(dir, file)), Query{VIN: vin}); err == nil {
			t.Errorf("%s: %+v, want a refusal", file, d)
		}
	}
}

// Public reports; each names a kind of fault.

func TestPelican_37_CodesAreReadAsPlainWords(t *testing.T) {
	d := mustRead(t, envelope(flat(accord, row{"ErrorCode": "1; 8; 400", "ErrorText": "", "Model": ""})), accord)
	if !slices.Equal(d.Codes(), []int{1, 8, 400}) || d.Outcome() != Partial || d.Make() != "HONDA" {
		t.Errorf("codes %v, %s, make %q", d.Codes(), d.Outcome(), d.Make())
	}
	for i, m := range d.Messages() {
		if strings.Trim(m, "0123456789;, ") == "" || !strings.HasSuffix(m, ".") {
			t.Errorf("message of code %d is %q, want a sentence", d.Codes()[i], m)
		}
	}
}

func TestPyvin_8_WrongCheckDigitIsDecodedAndSuggestionPassedOn(t *testing.T) {
	d := mustRead(t, envelope(flat(accord, row{"ErrorCode": "1,3", "SuggestedVIN": "1HGCM82633A004353"})), accord)
	if d.Outcome() != Warned || d.SuggestedVIN() != "1HGCM82633A004353" || d.Model() != "Accord" {
		t.Errorf("%s, suggested %q, model %q", d.Outcome(), d.SuggestedVIN(), d.Model())
	}
}

func TestVinliAndroidNet_77_ModelYearIsANumberOrNothing(t *testing.T) {
	for in, want := range map[string]int{
		"2003": 2003, " 2003 ": 2003, "": 0, "0": 0, "0000": 0, "203": 0, "20031": 0, "-203": 0, "2e03": 0, "9999": 0, "٢٠٠٣": 0,
		"Not Applicable": 0, "5 - VIN has errors in few positions": 0, "2003.0": 0,
	} {
		d := mustRead(t, envelope(flat(accord, row{"ModelYear": in})), accord)
		if d.ModelYear() != want || d.Fields()["ModelYear"] != in {
			t.Errorf("ModelYear %q is read as %d, kept as %q; want %d", in, d.ModelYear(), d.Fields()["ModelYear"], want)
		}
	}
}

// reasons are all that Read may say: none is built from what NHTSA sent.
var reasons = func() []string {
	r := []string{
		"an empty body", "XML or HTML in place of JSON", "the body is not UTF-8", "the body is not one JSON object",
		"the envelope's Message is not a text", "the envelope's Results is not a list", "no row", "more than one row",
		"an error message in place of a decode", "an error message in place of a decode: model years before 1981 are not decoded",
		"the row is not an object", "the row holds an unreadable text", "the row is for another VIN", "the row has no readable ErrorCode",
	}
	for _, key := range readKeys {
		r = append(r, "the row's "+key+" is not a text")
	}
	return r
}()

func FuzzRead(f *testing.F) {
	good := envelope(flat(accord, nil))
	for _, b := range [][]byte{
		good, good[:100], append([]byte("\xEF\xBB\xBF"), good...), envelope(), envelope(flat(accord, row{"ErrorCode": "1,7,400", "ErrorText": errorText([]int{1, 7, 400})})),
		envelopeWith("ERROR: Pre-1981"), []byte("<html>"), []byte("null"), []byte(`{"Results":[{"VIN":"` + accord + `","ErrorCode":0,"x":[1, 2 ] ,"y": null , "z":1e5 }]}`),
		[]byte(`{"Results":[{"VIN":"` + accord + `","ErrorCode":"5","ErrorText":";;5 -; 5 - "}]}`),
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := Read(body, Query{VIN: accord})
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Kind != BadResponse || !slices.Contains(reasons, e.Reason) {
				t.Fatalf("error %#v", err)
			}
			return
		}
		if len(d.Codes()) == 0 || len(d.Messages()) != len(d.Codes()) || slices.Contains(d.Messages(), "") || !slices.IsSorted(d.Codes()) {
			t.Fatalf("codes %v, messages %q", d.Codes(), d.Messages())
		}
		if !strings.EqualFold(strings.TrimSpace(d.Fields()["VIN"]), accord) {
			t.Fatalf("row of %q", d.Fields()["VIN"])
		}
		identified := d.Make() != "" && d.Model() != "" && d.ModelYear() != 0
		switch d.Outcome() {
		case Clean:
			if !identified || d.Codes()[0] != 0 {
				t.Fatalf("clean: %+v", d)
			}
		case Warned:
			if !identified {
				t.Fatalf("warned: %+v", d)
			}
		case Partial, Unknown:
		default:
			t.Fatalf("outcome %q", d.Outcome())
		}
	})
}

func FuzzErrorCode(f *testing.F) {
	for _, s := range []string{"0", "5,6,14", "1; 8; 400", ",,", "-1", "1,1", " 7 ", "999999", "9999999", strings.Repeat("1,", 70)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		codes, ok := readCodes(s)
		if ok != (len(codes) > 0) || !slices.IsSorted(codes) || len(slices.Compact(slices.Clone(codes))) != len(codes) {
			t.Fatalf("%q is read as %v, %v", s, codes, ok)
		}
		var texts []string
		for _, code := range codes {
			if code < 0 || !strings.Contains(s, strconv.Itoa(code)) {
				t.Fatalf("%q has no code %d", s, code)
			}
			texts = append(texts, strconv.Itoa(code))
		}
		if again, _ := readCodes(strings.Join(texts, ",")); !slices.Equal(again, codes) {
			t.Fatalf("%q is read as %v, and again as %v", s, codes, again)
		}
	})
}

func FuzzErrorText(f *testing.F) {
	for _, s := range []string{"", errorText([]int{1, 7, 400}), "5 - few;6 - Incomplete", ";;7 - ", "7 - ; 400 - ", "14 - " + strings.Repeat("unexplained ", 50)} {
		f.Add(s, uint8(1), uint8(7))
	}
	f.Fuzz(func(t *testing.T, s string, a, b uint8) {
		codes := slices.Compact([]int{int(min(a, b)), int(max(a, b))})
		got := messages(codes, s)
		if len(got) != len(codes) {
			t.Fatalf("%d messages for %v", len(got), codes)
		}
		for i, m := range got {
			if m == "" || m != ownWords(codes[i]) && !strings.Contains(s, strings.TrimSuffix(m, "…")) {
				t.Fatalf("message of %d in %q is %q", codes[i], s, m)
			}
		}
	})
}
