package vpic

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Rows as NHTSA fills them: the vehicle, its maker and year only, its maker only, nothing.
var (
	identified = row{}
	makerYear  = row{"Make": "", "Model": ""}
	noModel    = row{"Model": ""}
	noYear     = row{"ModelYear": ""}
	nothing    = row{"Make": "", "Model": "", "ModelYear": "", "Manufacturer": ""}
)

const (
	clean     = "NHTSA decoded this VIN without complaint."
	remarked  = "NHTSA decoded this VIN, with a remark."
	warned    = "NHTSA decoded this VIN, with remarks that matter."
	given     = "The VIN is incomplete: what is shown is what NHTSA makes of the characters that were given."
	noDetails = "NHTSA has no details for this VIN at present, only what is shown."
	part      = "NHTSA could decode only a part of this VIN."
	noMaker   = "NHTSA does not know the maker of this VIN."
	noIdea    = "NHTSA has nothing about this VIN."
	mistyped  = " It may be mistyped."
)

func TestWhatAPersonReadsOfEveryCode(t *testing.T) {
	const (
		checkDigit   = "The check digit at position 9 does not fit the other characters."
		corrected    = "NHTSA found one wrong position and suggests a correction."
		correctedCD  = "NHTSA found one wrong position, taking the check digit to be right, and suggests a correction."
		severalWays  = "NHTSA found one wrong position and several ways to correct it."
		fewWrong     = "NHTSA found a few wrong positions."
		incomplete   = "The VIN is incomplete."
		unregistered = "The maker is not registered with NHTSA, or not yet in its public data."
		unknownYet   = "NHTSA has no details for this VIN at present."
		glider       = "NHTSA takes this for a glider, which is not a motor vehicle by itself."
		offRoad      = "NHTSA takes this for an off-road product, not certified as a motor vehicle."
		noYearCode   = "Position 10 stands for no model year."
		otherYear    = "The model year that was given does not fit position 10."
		unexplained  = "NHTSA cannot explain some of the characters."
		invalid      = "The VIN has characters that cannot stand where they are."
	)
	for _, c := range []struct {
		codes    string
		row      row
		outcome  Outcome
		sentence string
		remarks  []string
	}{
		{"0", identified, Clean, clean, nil},
		{"0", noModel, Partial, part, nil},
		{"1", identified, Warned, warned + mistyped, []string{checkDigit}},
		{"2", identified, Warned, warned + mistyped, []string{corrected}},
		{"3", identified, Warned, warned + mistyped, []string{correctedCD}},
		{"4", identified, Warned, warned + mistyped, []string{severalWays}},
		{"5", identified, Warned, warned + mistyped, []string{fewWrong}},
		{"5", noModel, Partial, part + mistyped, []string{fewWrong}},
		{"6", identified, Partial, given, []string{incomplete}},
		{"6", nothing, Unknown, noIdea, []string{incomplete}},
		{"7", nothing, Unknown, noMaker, []string{unregistered}},
		{"8", noModel, Partial, noDetails, []string{unknownYet}},
		{"8", makerYear, Partial, noDetails, []string{unknownYet}},
		{"8", nothing, Unknown, noIdea, []string{unknownYet}},
		{"9", identified, Warned, warned, []string{glider}},
		{"10", identified, Warned, warned, []string{offRoad}},
		{"11", noYear, Partial, part + mistyped, []string{noYearCode}},
		{"12", identified, Warned, warned, []string{otherYear}},
		{"14", identified, Warned, warned, []string{unexplained}},
		{"400", identified, Warned, warned + mistyped, []string{invalid}},

		// Code 0 with company.
		{"0,9", identified, Warned, warned, []string{glider}},
		{"0,10", identified, Clean, remarked, []string{offRoad}},
		{"0,12", identified, Warned, warned, []string{otherYear}},
		{"0,14", identified, Warned, warned, []string{unexplained}},
		// What NHTSA's own software calls clean besides.
		{"1,10", identified, Warned, warned + mistyped, []string{checkDigit, offRoad}},
		{"1,400", identified, Warned, warned + mistyped, []string{checkDigit, invalid}},
		{"1,10,400", identified, Warned, warned + mistyped, []string{checkDigit, offRoad, invalid}},
		// As observed.
		{"1,3", identified, Warned, warned + mistyped, []string{checkDigit, correctedCD}},
		{"1,4,14,400", identified, Warned, warned + mistyped, []string{checkDigit, severalWays, unexplained, invalid}},
		{"1,7,400", nothing, Unknown, noMaker + mistyped, []string{checkDigit, unregistered, invalid}},
		{"7,400", nothing, Unknown, noMaker + mistyped, []string{unregistered, invalid}},
		{"1,8,400", makerYear, Partial, noDetails + mistyped, []string{checkDigit, unknownYet, invalid}},
		{"4,14", identified, Warned, warned + mistyped, []string{severalWays, unexplained}},
		{"4,6,14", identified, Partial, given + mistyped, []string{severalWays, incomplete, unexplained}},
		{"5,6,14", noModel, Partial, given + mistyped, []string{fewWrong, incomplete, unexplained}},
		{"5,14", identified, Warned, warned + mistyped, []string{fewWrong, unexplained}},
		{"5,14", noModel, Partial, part + mistyped, []string{fewWrong, unexplained}},
		{"6,7", nothing, Unknown, noMaker, []string{incomplete, unregistered}},
		// One that NHTSA does not have yet.
		{"0,15", identified, Warned, warned, []string{"NHTSA answered with code 15, whose meaning is not known here."}},
	} {
		changes := row{"ErrorCode": c.codes, "ErrorText": ""}
		for k, v := range c.row {
			changes[k] = v
		}
		d := mustRead(t, envelope(flat(accord, changes)), accord)
		if d.Outcome() != c.outcome || d.Sentence() != c.sentence || !slices.Equal(d.Remarks(), c.remarks) {
			t.Errorf("codes %s, make %q, model %q: %s, %q, %q; want %s, %q, %q", c.codes, d.Make(), d.Model(), d.Outcome(), d.Sentence(), d.Remarks(), c.outcome, c.sentence, c.remarks)
		}
	}
	if s := (Decoding{}).Sentence(); s != "" || len((Decoding{}).Remarks()) != 0 {
		t.Errorf("no answer reads %q", s)
	}
}

// Every set of up to five of NHTSA's codes, which is one more than was ever seen together, with every kind of row.
func TestEveryCombinationOfCodesReadsAsSentences(t *testing.T) {
	raw := regexp.MustCompile(`^[\d\s,;.-]*$|\d\s*[;,]\s*\d+\s*[;,]?\s*\d*$|- `)
	var codes []int
	for code := range words {
		codes = append(codes, code)
	}
	slices.Sort(codes)
	sentences, seen := map[string]bool{}, map[string]bool{}
	for set := uint(1); set < 1<<len(codes); set++ {
		if bits.OnesCount(set) > 5 {
			continue
		}
		var in []int
		for i, code := range codes {
			if set>>i&1 == 1 {
				in = append(in, code)
			}
		}
		for _, r := range []row{identified, makerYear, noModel, noYear, nothing} {
			fields := map[string]string{"VIN": accord, "Make": "HONDA", "Model": "Accord", "ModelYear": "2003", "Manufacturer": "AMERICAN HONDA"}
			for key, text := range r {
				fields[key] = text.(string)
			}
			fields["ErrorCode"] = strings.Trim(strings.ReplaceAll(fmt.Sprint(in), " ", ","), "[]")
			d, e := decode(fields)
			if e != nil {
				t.Fatal(e)
			}
			remarks := d.Remarks()
			if len(remarks) != len(slices.DeleteFunc(slices.Clone(in), func(code int) bool { return code == 0 })) {
				t.Fatalf("codes %v: %d remarks", in, len(remarks))
			}
			for _, s := range append(remarks, d.Sentence()) {
				if !seen[s] && (!sentence.MatchString(s) || raw.MatchString(s)) {
					t.Fatalf("codes %v: %q is no sentence", in, s)
				}
				seen[s] = true
			}
			sentences[d.Sentence()] = true
			if d.Outcome() == Unknown != (strings.HasPrefix(d.Sentence(), noMaker) || strings.HasPrefix(d.Sentence(), noIdea)) {
				t.Fatalf("codes %v, %s: %q", in, d.Outcome(), d.Sentence())
			}
		}
	}
	if len(sentences) != 14 {
		t.Errorf("%d different sentences: %v", len(sentences), sentences)
	}
}

var sentence = regexp.MustCompile(`^[A-Z][^\n]*[a-z0-9A-Z]\.$`)

func TestRemarksSayWhere(t *testing.T) {
	for _, c := range []struct {
		name string
		row  row
		want []string
	}{
		{"one unexplained character and what it can be", row{"ErrorCode": "4,14", "PossibleValues": "(11:01)", "AdditionalErrorText": "In the Possible values section, the Numeric value before the : indicates the position in error. Unused position(s): 11."},
			[]string{words[4].says, "NHTSA cannot explain the character at position 11 with what the maker has filed.", "At position 11 NHTSA expects one of 0, 1."}},
		{"several", row{"ErrorCode": "5,14", "PossibleValues": "(4:HMP)(8:9KPRT)(11:B)", "AdditionalErrorText": "The error positions are indicated by ! Unused position(s): 4,8,11."},
			[]string{words[5].says, "NHTSA cannot explain the characters at positions 4, 8 and 11 with what the maker has filed.",
				"At position 4 NHTSA expects one of H, M, P.", "At position 8 NHTSA expects one of 9, K, P, R, T.", "At position 11 NHTSA expects B."}},
		{"invalid ones", row{"ErrorCode": "1,400", "AdditionalErrorText": "Invalid character(s): 9:!         , 11:!;"},
			[]string{words[1].says, "The characters at positions 9 and 11 cannot stand there."}},
		{"a year that is not sure", row{"ErrorCode": "0", "AdditionalErrorText": "The Model Year decoded for this VIN may be incorrect. If you know the Model year, please enter it and decode again to get more accurate informati"},
			[]string{"NHTSA is not sure of the model year. If you know it, give it and decode again."}},
		{"an incomplete vehicle", row{"ErrorCode": "0", "AdditionalErrorText": "Incomplete Vehicle Warning - Please be advised that the vehicle may have been altered."},
			[]string{"NHTSA warns that this is an incomplete vehicle, which may have been altered since it left its maker."}},
		{"an excused check digit", row{"ErrorCode": "0", "ErrorText": "0 - VIN decoded clean. NOTE: Check Digit Exception - The check digit was given an exception."},
			[]string{"NHTSA knows that the check digit of this VIN does not compute and excuses it."}},
		{"positions without their codes say nothing", row{"ErrorCode": "0", "AdditionalErrorText": "Unused position(s): 4. Invalid character(s): 9:!."}, []string{}},
	} {
		d := mustRead(t, envelope(flat(accord, c.row)), accord)
		if !slices.Equal(d.Remarks(), c.want) {
			t.Errorf("%s: %q, want %q", c.name, d.Remarks(), c.want)
		}
	}
}

func TestARemarkIsASentenceWhateverNHTSASends(t *testing.T) {
	pieces := rapid.SampledFrom([]string{"(4:HM)", "(4:", "(8:9K)", ")", "Unused position(s): ", "Invalid character(s): ", "4", "11", ",", ".", ";", "9:!", "!", " ", "5YJ", "\n", "é", "Check Digit Exception", "14 - x"})
	text := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(pieces, 0, 12).Draw(t, "pieces"), "") })
	rapid.Check(t, func(t *rapid.T) {
		d, e := decode(map[string]string{"VIN": accord, "Make": "HONDA", "ErrorCode": rapid.SampledFrom([]string{"0", "5,14", "1,400", "4,14,400", "77"}).Draw(t, "codes"),
			"ErrorText": text.Draw(t, "text"), "AdditionalErrorText": text.Draw(t, "more"), "PossibleValues": text.Draw(t, "possible"), "SuggestedVIN": text.Draw(t, "suggested")})
		if e != nil {
			t.Fatal(e)
		}
		for _, s := range append(d.Remarks(), d.Sentence()) {
			if !sentence.MatchString(s) {
				t.Fatalf("%q is no sentence", s)
			}
		}
	})
}

func TestEveryCodeOfNHTSAHasWords(t *testing.T) {
	var table []struct {
		ID   int    `json:"id"`
		Name string `json:"name"`
	}
	b, err := os.ReadFile(filepath.Join(samples(t), "16-errorcode-table.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &table); err != nil {
		t.Fatal(err)
	}
	for _, c := range table {
		if words[c.ID].says == "" {
			t.Errorf("no words of our own for code %d", c.ID)
		}
		want := strings.TrimSpace(strings.TrimPrefix(c.Name, fmt.Sprintf("%d - ", c.ID)))
		if got := messages([]int{c.ID}, c.Name); got[0] != want {
			t.Errorf("message of %d = %q, want %q", c.ID, got[0], want)
		}
	}
	if len(table) != len(words) {
		t.Errorf("words for %d codes, NHTSA has %d", len(words), len(table))
	}
}
