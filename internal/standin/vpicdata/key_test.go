package vpicdata

import (
	"regexp"
	"strings"
	"testing"
)

func TestKeyMatches(t *testing.T) {
	for _, test := range []struct {
		key, text string
		want      bool
	}{
		{"", "CM826|3A004352", true},
		{"CM826", "CM826|3A004352", true},
		{"CM825", "CM826|3A004352", false},
		{"cm826", "CM826|3A004352", true},
		{"CM82[67]", "CM827|3A004352", true},
		{"CM82[67]", "CM828|3A004352", false},
		{"*****|*A", "CM826|3A004352", true},
		{"*****|*B", "CM826|3A004352", false},
		{"*****|*B", "CM826", false},
		{"******", "CM826|3A004352", true}, // '*' stands for the '|', too
		{"****A*", "CM82A|", true},
		{"[A-C1-5]", "B", true},
		{"[A-C1-5]", "3", true},
		{"[A-C1-5]", "D", false},
		{"[A-C1-5]", "-", false},
		{"[ABE-HL-V9]", "9", true},
		{"[ABE-HL-V9]", "K", false},
		{"[1-A-JT]", "9", true}, // 1 to A by code point, then '-', J and T
		{"[1-A-JT]", "A", true},
		{"[1-A-JT]", "B", false},
		{"[1-A-JT]", "T", true},
		{"[A-]", "-", true},
		{"[]", "A", false},
		{"[^AB]", "C", true},
		{"[^AB]", "A", false},
		{"[Z-A]", "M", false},
		{"*B[CFJM_______]", "XBJ", true},
		{"*B[CFJM_______]", "XBA", false},
		{"#", "5", true},
		{"#", "A", false},
		{"*", "?", true},
		{"?", "?", false}, // no key names it
		{"A", "", false},
	} {
		k, ok := compileKey(test.key)
		if !ok {
			t.Fatalf("key %q is refused", test.key)
		}
		if got := k.matches(test.text); got != test.want {
			t.Errorf("key %q matches %q: %v, want %v", test.key, test.text, got, test.want)
		}
	}
	if _, ok := compileKey("A[BC"); ok {
		t.Error("a class without an end is taken")
	}
}

func TestKeyOfDigitsGivesTheirText(t *testing.T) {
	for _, test := range []struct{ key, text, want string }{
		{"*##", "X12ZZ|3A004352", "12"},
		{"**#", "XY7", "7"},
		{"#*#", "1A2", "1A2"},
		{"*#", "X", ""},
	} {
		k, _ := compileKey(test.key)
		if got := k.formulaValue(test.text); got != test.want || !k.formula {
			t.Errorf("key %q takes %q from %q, want %q", test.key, got, test.text, test.want)
		}
	}
}

func TestNamedCharactersOfKeys(t *testing.T) {
	var p positionChars
	for _, text := range []string{"A*[B-D]", "*****|*[H-P]", "O", "******[2]", "*****|***********9"} {
		k, _ := compileKey(text)
		p.add(k)
	}
	for position, want := range map[int]string{4: "AO", 5: "", 6: "BCD", 9: "", 10: "2", 11: "HJKLMNP", 17: ""} {
		if got := p[position].list(); got != want {
			t.Errorf("position %d names %q, want %q", position, got, want)
		}
	}
}

func TestKeyText(t *testing.T) {
	for vin, want := range map[string]string{
		"": "", "1HG": "", "1HGC": "C", "1HGCM826": "CM826", "1HGCM8263": "CM826", "1HGCM82633": "CM826|3",
		"1HGCM82633A004352": "CM826|3A004352",
	} {
		if got := keyText(vin); got != want {
			t.Errorf("key text of %q is %q, want %q", vin, got, want)
		}
	}
}

// reference writes a key as a regular expression; nil for keys whose classes Go's
// regular expressions do not read like SQL.
func reference(key string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString("^(?s:")
	for i := 0; i < len(key); i++ {
		switch c := key[i]; {
		case c == '*':
			b.WriteString(".")
		case c == '#':
			b.WriteString("[0-9]")
		case c == '[':
			end := strings.IndexByte(key[i:], ']')
			if end < 2 {
				return nil
			}
			b.WriteString(strings.ReplaceAll(key[i:i+end+1], `\`, `\\`))
			i += end
		case bitOf(c) == 0:
			b.WriteString(`[^\x00-\x{10FFFF}]`) // nothing
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	b.WriteString(")")
	r, err := regexp.Compile(b.String())
	if err != nil {
		return nil
	}
	return r
}

var plainKey = regexp.MustCompile(`^([0-9A-Z*#|_]|\[([0-9A-Z_]|[0-9]-[0-9]|[A-Z]-[A-Z])+\])*$`)

func FuzzKey(f *testing.F) {
	for _, seed := range []string{"CM82[67]", "*****|*[AFK]", "*##", "[1-A-JT]", "*B[CFJM_______]", "[", "[]", "[^A]", "A]B", "[-]", "[A-", "******", strings.Repeat("[A-Z]", 40)} {
		f.Add(seed, "CM826|3A004352")
	}
	f.Fuzz(func(t *testing.T, key, text string) {
		k, ok := compileKey(key)
		if !ok {
			return
		}
		got := k.matches(text)
		if k.formula {
			k.formulaValue(text)
		}
		var p positionChars
		p.add(k)
		if p[9] != 0 {
			t.Fatalf("key %q names characters at the check digit", key)
		}
		if plainKey.MatchString(key) && plainKey.MatchString(strings.Trim(text, "|")) && len(text) < 100 {
			if r := reference(key); r != nil && r.MatchString(text) != got {
				t.Fatalf("key %q matches %q: %v, the regular expression %v says otherwise", key, text, got, r)
			}
		}
	})
}

func FuzzVINText(f *testing.F) {
	for _, seed := range []string{"", "1hgcm82633a004352", " 5UXWX7C5*BA ", "Ä\x00\xff", "1C9FA3822R1257465", strings.Repeat("9", 40), "ıſ"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		vin := vinText(text)
		if len(vin) > lastPosition || vinText(vin) != strings.TrimSpace(vin) {
			t.Fatalf("%q becomes %q", text, vin)
		}
		for i := range vin {
			if vin[i] < 0x20 || vin[i] > 0x7e {
				t.Fatalf("%q becomes %q", text, vin)
			}
		}
		if d := descriptorOf(vin); len(d) != 11 && len(d) != 14 {
			t.Fatalf("descriptor of %q is %q", vin, d)
		}
		if w := wmiOf(vin); len(w) > 6 {
			t.Fatalf("WMI of %q is %q", vin, w)
		}
		for _, from := range []int{13, 14, 15} {
			checkDigit(vin, from)
			for _, p := range invalidPositions(vin, from, false) {
				if p < 1 || p > len(vin) {
					t.Fatalf("invalid position %d of %q", p, vin)
				}
			}
		}
		keyText(vin)
	})
}
