package vin

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

const accord = "1HGCM82633A004352"

func mustParse(t *testing.T, s string) VIN {
	t.Helper()
	v, err := Parse(s)
	if err != nil {
		t.Fatalf("Parse(%q) refused it: %v", s, err)
	}
	return v
}

func mustRefuse(t *testing.T, s string) *Error {
	t.Helper()
	v, err := Parse(s)
	if err == nil {
		t.Fatalf("Parse(%q) = %q, want a refusal", s, v.Value)
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("Parse(%q): error of type %T, want *Error", s, err)
	}
	return e
}

func TestParseAccepts(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		changes        []Change
	}{
		{"a VIN as it stands", accord, accord, nil},
		{"lower case", "1hgcm82633a004352", accord, []Change{UpperCased}},
		{"inner spaces", "1HG CM826 33A 004352", accord, []Change{SpacesRemoved}},
		{"dashes", "1HGCM-82633-A004352", accord, []Change{DashesRemoved}},
		{"lower case with dashes", "1hgcm-82633a004352", accord, []Change{DashesRemoved, UpperCased}},
		{"an en dash and a minus", "1HGCM\u201382633\u2212A004352", accord, []Change{DashesRemoved}},
		{"a non-breaking hyphen", "1HGCM\u201182633A004352", accord, []Change{FormsReplaced, DashesRemoved}},
		{"outer blanks", "  " + accord + "\t", accord, []Change{Trimmed}},
		{"a line end from a file", accord + "\r\n", accord, []Change{Trimmed}},
		{"wrapping quotes", `"` + accord + `"`, accord, []Change{QuotesRemoved}},
		{"curly quotes and blanks in turn", "\u201C " + accord + " \u201D ", accord, []Change{Trimmed, QuotesRemoved}},
		{"the apostrophe of a spreadsheet", "'" + accord, accord, []Change{QuotesRemoved}},
		{"a byte order mark", "\uFEFF" + accord, accord, []Change{FormatRemoved}},
		{"zero-width characters inside", "1HG\u200BCM8\u200D2633A004352\u2060", accord, []Change{FormatRemoved}},
		{"a soft hyphen", "1HGCM\u00AD82633A004352", accord, []Change{FormatRemoved}},
		{"direction marks", "\u202A" + accord + "\u202C", accord, []Change{FormatRemoved}},
		{"no-break spaces", "1HGCM\u00A082633A004352\u00A0", accord, []Change{FormsReplaced, Trimmed, SpacesRemoved}},
		{"full-width characters", "１ＨＧＣＭ８２６３３Ａ００４３５２", accord, []Change{FormsReplaced}},
		{"full-width small letters", "１ｈｇＣＭ８２６３３Ａ００４３５２", accord, []Change{FormsReplaced, UpperCased}},
		{"a wrong check digit", "1FBNE3BE1CDB23596", "1FBNE3BE1CDB23596", nil},
		{"a letter as check digit", "WVWZZZ1KZAW000001", "WVWZZZ1KZAW000001", nil},
		{"a partial VIN", "5UXWX7C5*BA", "5UXWX7C5*BA", nil},
		{"the shortest partial VIN", "5U*", "5U*", nil},
		{"17 characters with unknown ones", "1HGCM826*3A******", "1HGCM826*3A******", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := mustParse(t, c.in)
			if v.Value != c.want || v.Submitted != c.in || !slices.Equal(v.Changes, c.changes) {
				t.Errorf("Parse(%q) = %q, submitted %q, changes %q; want %q, %q", c.in, v.Value, v.Submitted, v.Changes, c.want, c.changes)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		name, in   string
		reason     string
		position   int
		character  string
		suggestion string
	}{
		{"nothing", "", ReasonEmpty, 0, "", ""},
		{"only blanks, quotes and dashes", " \"\u200B- ' ", ReasonEmpty, 0, "", ""},
		{"O for 0", "1HGCM82633A00435O", ReasonCharacter, 17, "O", "1HGCM82633A004350"},
		{"I for 1", "IHGCM82633A004352", ReasonCharacter, 1, "I", accord},
		{"Q for 0", "1HGCM82633AQ04352", ReasonCharacter, 12, "Q", accord},
		{"a small i", "1HGCM82633A00435i", ReasonCharacter, 17, "I", "1HGCM82633A004351"},
		{"all of them, the first is named", "IHGCM82633AOQ4352", ReasonCharacter, 1, "I", accord},
		{"O in a partial VIN", "5UXWX7C5*BO", ReasonCharacter, 11, "O", "5UXWX7C5*B0"},
		{"a position counted without the dashes", "1HG-CM8-2633A00435O", ReasonCharacter, 17, "O", "1HGCM82633A004350"},
		{"16 characters", accord[:16], ReasonLength, 0, "", ""},
		{"18 characters", accord + "7", ReasonLength, 0, "", ""},
		{"11 characters without an asterisk", "5UXWX7C50BA", ReasonLength, 0, "", "5UXWX7C50BA*"},
		{"3 characters", "1HG", ReasonLength, 0, "", "1HG*"},
		{"1 character", "1", ReasonLength, 0, "", ""},
		{"a short word", "HELLO", ReasonLength, 0, "", ""},
		{"2 characters with an asterisk", "1*", ReasonLength, 0, "", ""},
		{"18 characters with an asterisk", "1HGCM82633A00435*2", ReasonLength, 0, "", ""},
		{"asterisks only", "*****************", ReasonUnknown, 0, "", ""},
		{"an import mark", "I" + accord, ReasonImportMark, 1, "I", accord},
		{"an import mark and an O", "I1HGCM82633A00435O", ReasonLength, 0, "", "1HGCM82633A004350"},
		{"the frame of a Code 39 label", "*" + accord + "*", ReasonLength, 0, "", accord},
		{"frame and import mark", "*I" + accord + "*", ReasonLength, 0, "", accord},
		{"the word VIN in front", "VIN " + accord, ReasonLength, 0, "", accord},
		{"a label in front", "VIN: " + accord, ReasonCharacter, 4, ":", accord},
		{"an address", "https://example.test/v1/vins/" + accord + "?modelYear=2003", ReasonCharacter, 6, ":", accord},
		{"a spreadsheet formula", `="` + accord + `"`, ReasonCharacter, 1, "=", accord},
		{"a full stop behind", accord + ".", ReasonCharacter, 18, ".", accord},
		{"a full stop behind a partial VIN", "5UXWX7C5*BA.", ReasonCharacter, 12, ".", "5UXWX7C5*BA"},
		{"two different VINs", accord + ", 1FTMW1T88MFA00001", ReasonCharacter, 18, ",", ""},
		{"two VINs on two lines", accord + "\n1FTMW1T88MFA00001", ReasonCharacter, 18, "U+000A", ""},
		{"a slash", "1HGCM8/633A004352", ReasonCharacter, 7, "/", ""},
		{"a question mark", "1HGCM8?633A004352", ReasonCharacter, 7, "?", ""},
		{"a hash", "1HGCM8#633A004352", ReasonCharacter, 7, "#", ""},
		{"a percent sign", "1HGCM8%633A004352", ReasonCharacter, 7, "%", ""},
		{"a backslash", `1HGCM8\633A004352`, ReasonCharacter, 7, `\`, ""},
		{"an exclamation mark", "1FA6P8C0!M!100001", ReasonCharacter, 9, "!", ""},
		{"a NUL", "1HGCM8\x002633A004352", ReasonCharacter, 7, "U+0000", accord},
		{"a DEL", "1HGCM8\x7f633A004352", ReasonCharacter, 7, "U+007F", ""},
		{"an inner tab", "1HGCM8\t2633A004352", ReasonCharacter, 7, "U+0009", accord},
		{"a letter with an accent", "1HGCM8É633A004352", ReasonCharacter, 7, "É", ""},
		{"a lone combining accent", "\u03011HGCM82633A004352", ReasonCharacter, 1, "U+0301", accord},
		{"an emoji", "1HGCM8\U0001F697633A004352", ReasonCharacter, 7, "\U0001F697", ""},
		{"damaged text", "1HGCM8\xff633A004352", ReasonCharacter, 7, "U+FFFD", ""},
		{"a Cyrillic Es", "1HG\u0421M82633A004352", ReasonLookAlike, 4, "\u0421", accord},
		{"small Cyrillic letters", "1hg\u0441m82633\u0430004352", ReasonLookAlike, 4, "\u0441", accord},
		{"a Cyrillic O that was a zero", "1HGCM82633A\u041E04352", ReasonLookAlike, 12, "\u041E", accord},
		{"a Greek Alpha", "1HGCM82633\u0391004352", ReasonLookAlike, 11, "\u0391", accord},
		{"a small Greek nu for a v", "w\u03BDwzzz1kzaw000001", ReasonLookAlike, 2, "\u03BD", "WVWZZZ1KZAW000001"},
		{"a number of a spreadsheet", "1.23E+16", ReasonSpreadsheet, 0, "", ""},
		{"the same with a decimal comma", "1,23457e+16", ReasonSpreadsheet, 0, "", ""},
		{"the same without decimals", "1E+16", ReasonSpreadsheet, 0, "", ""},
		{"the same, quoted", `"1.2345678901234568e+16" `, ReasonSpreadsheet, 0, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := mustRefuse(t, c.in)
			if e.Reason != c.reason || e.Position != c.position || e.Character != c.character || e.Suggestion != c.suggestion {
				t.Errorf("Parse(%q): %s at %d %q, suggestion %q; want %s at %d %q, suggestion %q", c.in,
					e.Reason, e.Position, e.Character, e.Suggestion, c.reason, c.position, c.character, c.suggestion)
			}
			if e.Submitted != strings.ToValidUTF8(c.in, "\uFFFD") {
				t.Errorf("Submitted = %q, want what came", e.Submitted)
			}
			if e.Message == "" || !strings.HasSuffix(e.Message, ".") || e.Error() != e.Message {
				t.Errorf("Message = %q, want a sentence", e.Message)
			}
			if c.position > 0 && c.reason != ReasonImportMark && !strings.Contains(e.Message, "osition") {
				t.Errorf("Message = %q, want the position in it", e.Message)
			}
		})
	}
}

func TestHugeInputIsRefusedWithShortText(t *testing.T) {
	for _, in := range []string{
		strings.Repeat("A", 16<<20),
		strings.Repeat(" ", 1<<20) + accord,
		strings.Repeat("\U0001F697", 1000),
		strings.Repeat("\xf0\x9f", 1000),
		strings.Repeat("\xff", 1000),
		strings.Repeat("\uFDFA", MaxInput/3), // eighteen characters each after NFKC
		strings.Repeat("*", MaxInput),
	} {
		e := mustRefuse(t, in)
		for _, s := range []string{e.Message, e.Submitted, e.Suggestion, e.Character} {
			if utf8.RuneCountInString(s) > 200 || !utf8.ValidString(s) {
				t.Errorf("input of %d bytes: text of %d characters, valid %v", len(in), utf8.RuneCountInString(s), utf8.ValidString(s))
			}
		}
	}
	huge := strings.Repeat("A", 16<<20)
	if n := testing.AllocsPerRun(10, func() { _, _ = Parse(huge) }); n > 10 {
		t.Errorf("refusing 16 MiB allocates %v times", n)
	}
}

func TestSubmittedOfAnErrorIsCutBetweenCharacters(t *testing.T) {
	e := mustRefuse(t, strings.Repeat("é", 100))
	if want := strings.Repeat("é", clipRunes) + "…"; e.Submitted != want {
		t.Errorf("Submitted = %q, want %q", e.Submitted, want)
	}
	e = mustRefuse(t, "a"+strings.Repeat("\U0001F697", 1000))
	if !strings.HasPrefix(e.Submitted, "a\U0001F697") || !strings.HasSuffix(e.Submitted, "\U0001F697…") {
		t.Errorf("Submitted = %q, want whole characters", e.Submitted)
	}
}

func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		name, in string
		codes    []string
	}{
		{"a right check digit", accord, nil},
		{"X as check digit", "1M8GDM9AXKP042788", nil},
		{"a wrong check digit", "1FBNE3BE1CDB23596", []string{AdviceCheckDigit}},
		{"a letter that is no check digit", "WVWZZZ1KZAW000001", []string{AdviceCheckDigit}},
		{"a real VIN on NHTSA's exception list", "ZACCJABT0FPB71014", []string{AdviceCheckDigit}},
		{"an unknown check digit", "1HGCM826*3A004352", nil},
		{"another unknown character", "1HGCM82633A00435*", nil},
		{"a position 10 that is no year", "11111111101111111", []string{AdviceCheckDigit, AdviceModelYear}},
		{"a partial VIN", "5UXWX7C5*BA", nil},
		{"a partial VIN whose position 10 is no year", "5UXWX7C5*ZA", []string{AdviceModelYear}},
		{"a partial VIN without position 10", "5UXWX7C5*", nil},
		{"an unknown position 10", "5UXWX7C5**A", []string{AdviceModelYear}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var codes []string
			for _, a := range mustParse(t, c.in).Advice {
				codes = append(codes, a.Code)
				if want := map[string]int{AdviceCheckDigit: 9, AdviceModelYear: 10}[a.Code]; a.Position != want || a.Message == "" {
					t.Errorf("advice %+v, want position %d and a message", a, want)
				}
			}
			if !slices.Equal(codes, c.codes) {
				t.Errorf("advice for %q = %q, want %q", c.in, codes, c.codes)
			}
		})
	}
}

func TestCheckDigit(t *testing.T) {
	for _, c := range []struct {
		in   string
		want byte
		ok   bool
	}{
		{"1M8GDM9AXKP042788", 'X', true},
		{"11111111111111111", '1', true},
		{accord, '3', true},
		{"1HGCM826*3A004352", '3', true},
		{"1FTMW1T88MFA00001", '8', true},
		{"00000000000000000", '0', true},
		{"1HGCM8263OA004352", 0, false},
		{"1HGCM82633A00435*", 0, false},
		{"1hgcm82633a004352", 0, false},
		{"1HGCM82633A00435", 0, false},
		{"", 0, false},
	} {
		if got, ok := CheckDigit(c.in); got != c.want || ok != c.ok {
			t.Errorf("CheckDigit(%q) = %q, %v, want %q, %v", c.in, got, ok, c.want, c.ok)
		}
	}
}

func TestModelYearCandidates(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []int
	}{
		{"a car with a digit at position 7", accord, []int{2003, 2033}},
		{"a truck with a letter at position 7", "1FTMW1TE8MFA00001", []int{2021, 1991}},
		{"the first code", "1HGCM826*A", []int{1980, 2010}},
		{"the last code", "1HGCM8A6*9", []int{2039, 2009}},
		{"an unknown position 7", "1HGCM8*6*3A", []int{2003, 2033}},
		{"Z is no code", "1HGCM826*ZA", nil},
		{"U is no code", "1HGCM826*UA", nil},
		{"0 is no code", "1HGCM826*0A", nil},
		{"an unknown position 10", "1HGCM826**A", nil},
		{"no position 10", "1HGCM826*", nil},
	} {
		if got := ModelYearCandidates(c.in); !slices.Equal(got, c.want) {
			t.Errorf("%s: ModelYearCandidates(%q) = %v, want %v", c.name, c.in, got, c.want)
		}
	}
}

// modelYearCode is the code of a model year, 1980-2039: the other way round than ModelYearCandidates.
func modelYearCode(year int) (byte, bool) {
	if year < firstYear || year >= firstYear+2*len(yearCodes) {
		return 0, false
	}
	return yearCodes[(year-firstYear)%len(yearCodes)], true
}

func TestModelYearCodeComesRoundEveryThirtyYears(t *testing.T) {
	for year := 1980; year < 2040; year++ {
		code, ok := modelYearCode(year)
		if !ok || strings.ContainsRune("IOQUZ0", rune(code)) {
			t.Fatalf("modelYearCode(%d) = %q, %v", year, code, ok)
		}
		if years := ModelYearCandidates("1HGCM826*" + string(code)); !slices.Contains(years, year) {
			t.Errorf("code %q of %d stands for %v", code, year, years)
		}
	}
	for _, year := range []int{-1, 0, 1979, 2040} {
		if code, ok := modelYearCode(year); ok {
			t.Errorf("modelYearCode(%d) = %q, want none", year, code)
		}
	}
}

func TestDescriptor(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"a complete VIN", accord, "1HGCM826*3A"},
		{"a small maker's VIN has its identifier too", "1G9CM82633A123456", "1G9CM826*3A123"},
		{"a partial VIN", "5UXWX7C5*BA", "5UXWX7C5*BA"},
		{"a short one", "5UX*", "5UX*"},
		{"no check digit is shown", "5UXWX7C50", "5UXWX7C5*"},
		{"unknown characters", "1*9CM82633A1*3456", "1*9CM826*3A1*3"},
		{"nothing", "", ""},
		{"something that is no VIN", "a\n\x00é\"<b>cdefghijklmnop", "A??????B*CD"},
	} {
		if got := Descriptor(c.in); got != c.want {
			t.Errorf("%s: Descriptor(%q) = %q, want %q", c.name, c.in, got, c.want)
		}
	}
}

// Public reports; each names a kind of fault.

func TestPyvin_8_CheckDigitIsAdviceNeverARefusal(t *testing.T) {
	for _, in := range []string{"1FBNE3BE1CDB23596", "WVWZZZ1KZAW000001", "ZACCJABT0FPB71014"} {
		v := mustParse(t, in)
		if len(v.Advice) != 1 || v.Advice[0].Code != AdviceCheckDigit {
			t.Errorf("Parse(%q): advice %+v, want the check digit", in, v.Advice)
		}
	}
}

func TestJ1939_84_964_RemainderTenIsX(t *testing.T) {
	if got, ok := CheckDigit("1M8GDM9AXKP042788"); got != 'X' || !ok {
		t.Errorf("CheckDigit = %q, %v, want X", got, ok)
	}
	if v := mustParse(t, "1M8GDM9AXKP042788"); len(v.Advice) != 0 {
		t.Errorf("advice %+v for a right VIN", v.Advice)
	}
	if v := mustParse(t, "1M8GDM9A1KP042788"); len(v.Advice) != 1 {
		t.Errorf("no advice for 1 in place of X")
	}
}

func TestOnStarJS_57_LowerCaseDecodes(t *testing.T) {
	if v := mustParse(t, "1hgcm82633a004352"); v.Value != accord {
		t.Errorf("Value = %q", v.Value)
	}
}

func TestAvniServer_908_ByteOrderMarkAndItsKindAreStripped(t *testing.T) {
	for _, in := range []string{
		"\uFEFF" + accord, "\uFEFF\"" + accord + "\"", "\u200B" + accord, accord + "\u00A0", "1HGCM 82633-A004352",
		"\u2018" + accord + "\u2019", "１HGCM82633A004352", accord + "\uFE0F",
	} {
		if v := mustParse(t, in); v.Value != accord || len(v.Changes) == 0 {
			t.Errorf("Parse(%q) = %q with changes %q", in, v.Value, v.Changes)
		}
	}
}

func TestSmsMobilePortable_10_ImportMarkIsSuggestedNotApplied(t *testing.T) {
	e := mustRefuse(t, "I1HGCM82633A004352")
	if e.Suggestion != accord || e.Reason != ReasonImportMark {
		t.Errorf("%s, suggestion %q", e.Reason, e.Suggestion)
	}
}

func TestCorgi_35_BothDecadesAreGiven(t *testing.T) {
	// A bus of 2016 with a digit at position 7, which only cars must not have.
	if got := ModelYearCandidates("4UZABRDT0GCHA0001"); !slices.Contains(got, 2016) || !slices.Contains(got, 1986) {
		t.Errorf("candidates %v, want 1986 and 2016", got)
	}
}

// Properties.

const alphabet = "0123456789ABCDEFGHJKLMNPRSTUVWXYZ"

func drawVIN(t *rapid.T) string {
	return rapid.StringOfN(rapid.RuneFrom([]rune(alphabet)), Length, Length, -1).Draw(t, "vin")
}

func TestEveryCompleteVINIsAcceptedAsItStands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawVIN(t)
		v, err := Parse(in)
		if err != nil || v.Value != in || v.Changes != nil || v.Partial() {
			t.Fatalf("Parse(%q) = %+v, %v", in, v, err)
		}
	})
}

func TestWhatCopyingDoesIsUndone(t *testing.T) {
	between := []string{"", "", "", " ", "-", "\u200B", "\uFEFF", "\u2013", "\u00A0", "\u00AD"}
	around := []string{"", " ", "\t", "\r\n", "\"", "'", "\uFEFF", "\u201C", "\u3000"}
	rapid.Check(t, func(t *rapid.T) {
		want := drawVIN(t)
		var b strings.Builder
		b.WriteString(strings.Join(rapid.SliceOfN(rapid.SampledFrom(around), 0, 4).Draw(t, "before"), ""))
		for _, r := range want {
			switch rapid.IntRange(0, 2).Draw(t, "form") {
			case 1:
				r = []rune(strings.ToLower(string(r)))[0]
			case 2:
				r += 0xFEE0 // full width
			}
			b.WriteRune(r)
			b.WriteString(rapid.SampledFrom(between).Draw(t, "between"))
		}
		b.WriteString(strings.Join(rapid.SliceOfN(rapid.SampledFrom(around), 0, 4).Draw(t, "after"), ""))
		v, err := Parse(b.String())
		if err != nil || v.Value != want {
			t.Fatalf("Parse(%q) = %q, %v, want %q", b.String(), v.Value, err, want)
		}
	})
}

func TestASingleWrongCharacterChangesTheCheckDigitOrTheAnswer(t *testing.T) {
	// Modulo 11 with these weights misses only characters of equal value.
	rapid.Check(t, func(t *rapid.T) {
		in := []byte(drawVIN(t))
		want, _ := CheckDigit(string(in))
		i := rapid.IntRange(0, Length-1).Draw(t, "position")
		old := in[i]
		in[i] = alphabet[rapid.IntRange(0, len(alphabet)-1).Draw(t, "character")]
		got, ok := CheckDigit(string(in))
		same := i == 8 || value(old) == value(in[i])
		if !ok || (got == want) != same {
			t.Fatalf("position %d %c for %c: check digit %c, was %c", i+1, in[i], old, got, want)
		}
	})
}

// value is the table as the regulation prints it, row by row.
func value(c byte) int {
	for v, row := range []string{"0", "1AJ", "2BKS", "3CLT", "4DMU", "5ENV", "6FW", "7GPX", "8HY", "9RZ"} {
		if strings.IndexByte(row, c) >= 0 {
			return v
		}
	}
	return -1
}

// holds checks what the package promises of any input.
func holds(t interface {
	Helper()
	Fatalf(string, ...any)
}, in string) {
	t.Helper()
	v, err := Parse(in)
	if err == nil {
		again, err := Parse(v.Value)
		if err != nil || again.Value != v.Value || len(again.Changes) != 0 {
			t.Fatalf("Parse(%q) = %q, but parsed again %q, changes %q, %v", in, v.Value, again.Value, again.Changes, err)
		}
		if v.Value != in && len(v.Changes) == 0 {
			t.Fatalf("Parse(%q) = %q without a change named", in, v.Value)
		}
		if len(v.Value) < MinPartial || len(v.Value) > Length || strings.Trim(v.Value, alphabet+"*") != "" {
			t.Fatalf("Parse(%q) = %q", in, v.Value)
		}
		if d := v.Descriptor(); len(d) > 11 && v.Value[2] != '9' || len(d) > 14 || len(d) > len(v.Value) {
			t.Fatalf("Descriptor of %q = %q", v.Value, d)
		}
		return
	}
	e, ok := err.(*Error)
	if !ok {
		t.Fatalf("Parse(%q): %T", in, err)
	}
	if e.Reason == "" || e.Message == "" || e.Position < 0 || (e.Position == 0) != (e.Character == "") {
		t.Fatalf("Parse(%q): %+v", in, e)
	}
	for _, s := range []string{e.Message, e.Submitted, e.Character, e.Suggestion} {
		if len(s) > 4*(clipRunes+50) || !utf8.ValidString(s) {
			t.Fatalf("Parse(%q): text %q", in, s)
		}
	}
	if e.Suggestion != "" {
		if v, err := Parse(e.Suggestion); err != nil || v.Value != e.Suggestion {
			t.Fatalf("Parse(%q) suggests %q, which is refused: %v", in, e.Suggestion, err)
		}
	}
}

func TestAnyTextIsAcceptedOrRefusedInOrder(t *testing.T) {
	pieces := rapid.SampledFrom([]string{
		accord, "1HG", "I", "O", "Q", "*", " ", "-", "\"", "'", ".", "/", "%", "E+", "1.2", "VIN", "\uFEFF", "\u0410", "\u03BD", "\u0131", "\u017F",
		"ß", "ﬁ", "\u00B4", "\t", "\n", "\x00", "\xff", "Ａ", "\U0001D400", "\u1680", "\u3164", "½",
	})
	rapid.Check(t, func(t *rapid.T) {
		if rapid.Bool().Draw(t, "pieces") {
			holds(t, strings.Join(rapid.SliceOfN(pieces, 0, 20).Draw(t, "in"), ""))
		} else {
			holds(t, rapid.String().Draw(t, "in"))
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", accord, "1hgcm-82633a004352", "\uFEFF\"" + accord + "\"\r\n", "１ＨＧＣＭ８２６３３Ａ００４３５２", "I" + accord, "1HGCM82633A00435O",
		"5UXWX7C5*BA", "*" + accord + "*", "VIN: " + accord, "1HG\u0421M82633A004352", "1.23E+16", "../../etc", "%2F", "\xff\xfe", "*****",
		strings.Repeat("\uFDFA", 20), strings.Repeat("A", 600), "1G9CM82633A123456",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) { holds(t, in) })
}

func FuzzDescriptor(f *testing.F) {
	for _, s := range []string{"", accord, "1G9CM82633A123456", "5UX*", "é\x00\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		d := Descriptor(in)
		if len(d) > 14 || len(d) > len(in) || strings.Trim(d, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ*?") != "" {
			t.Fatalf("Descriptor(%q) = %q", in, d)
		}
	})
}

func FuzzCheckDigit(f *testing.F) {
	for _, s := range []string{"", accord, "1M8GDM9AXKP042788", "1HGCM826\xff3A004352", "é1HGCM82633A0043"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, ok := CheckDigit(in)
		if !ok {
			if got != 0 {
				t.Fatalf("CheckDigit(%q) = %q, false", in, got)
			}
			return
		}
		if len(in) != Length || strings.IndexByte("0123456789X", got) < 0 {
			t.Fatalf("CheckDigit(%q) = %q", in, got)
		}
		// It is right where it stands, and what stood there played no part.
		with := in[:8] + string(got) + in[9:]
		if again, ok := CheckDigit(with); !ok || again != got {
			t.Fatalf("CheckDigit(%q) = %q, %v, of %q it is %q", with, again, ok, in, got)
		}
	})
}

func FuzzModelYearCandidates(f *testing.F) {
	for _, s := range []string{"", accord, "1FTMW1TE8MFA00001", "1HGCM826*Z", "1HGCM8\xff6*\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		years := ModelYearCandidates(in)
		if years == nil {
			return
		}
		for _, year := range years {
			if code, ok := modelYearCode(year); !ok || code != in[9] {
				t.Fatalf("ModelYearCandidates(%q) = %v, but the code of %d is %q", in, years, year, code)
			}
		}
		if len(years) != 2 || max(years[0], years[1])-min(years[0], years[1]) != 30 {
			t.Fatalf("ModelYearCandidates(%q) = %v", in, years)
		}
	})
}

// Who speaks NHTSA's own language is understood as NHTSA understands him, and nothing that could leave a path or a form comes through.
func TestForNHTSA(t *testing.T) {
	for s, want := range map[string]string{
		"1HGCM82633A004352": "1HGCM82633A004352", " 1hgcm82633a004352\r\n": "1HGCM82633A004352", "5uxwx7c5*ba": "5UXWX7C5*BA",
		"I": "I", "*": "*", "OOOOOOOOOOOOOOOOO": "OOOOOOOOOOOOOOOOO", "123": "123",
	} {
		if v, err := ForNHTSA(s); err != nil || v.Value != want || v.Submitted != s || len(v.Changes)+len(v.Advice) != 0 {
			t.Errorf("%q: %+v, %v", s, v, err)
		}
	}
	for s, want := range map[string]Error{
		"":                              {Reason: ReasonEmpty},
		" \t":                           {Reason: ReasonEmpty},
		"1HGCM-82633A004352":            {Reason: ReasonCharacter, Position: 6, Character: "-"},
		"1HGCM82633A004352/..":          {Reason: ReasonCharacter, Position: 18, Character: "/"},
		"1HG?format=xml":                {Reason: ReasonCharacter, Position: 4, Character: "?"},
		"A;B":                           {Reason: ReasonCharacter, Position: 2, Character: ";"},
		"１HGCM82633A004352":             {Reason: ReasonCharacter, Position: 1, Character: "１"},
		"1HG\x00":                       {Reason: ReasonCharacter, Position: 4, Character: "U+0000"},
		"1HGſ":                          {Reason: ReasonCharacter, Position: 4, Character: "ſ"},
		"1HG\xff":                       {Reason: ReasonCharacter, Position: 4, Character: "U+FFFD"},
		"1HGCM82633A0043521":            {Reason: ReasonLength},
		strings.Repeat("1", MaxInput+1): {Reason: ReasonLength},
	} {
		_, err := ForNHTSA(s)
		var e *Error
		if !errors.As(err, &e) || e.Reason != want.Reason || e.Position != want.Position || e.Character != want.Character || e.Message == "" || e.Suggestion != "" {
			t.Errorf("%q: %+v", s, err)
		}
	}
}

func FuzzForNHTSA(f *testing.F) {
	f.Add("1HGCM82633A004352")
	f.Add("5uxwx7c5*ba ")
	f.Add("ſ\xff")
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ForNHTSA(s)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || len(e.Message) > 200 || v.Value != "" {
				t.Fatalf("%v, %+v", err, v)
			}
			return
		}
		if len(v.Value) < 1 || len(v.Value) > Length || strings.Trim(v.Value, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ*") != "" {
			t.Fatalf("%q comes through as %q", s, v.Value)
		}
		if again, err := ForNHTSA(v.Value); err != nil || again.Value != v.Value {
			t.Fatalf("%q again: %+v, %v", v.Value, again, err)
		}
	})
}
