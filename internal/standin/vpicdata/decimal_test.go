package vpicdata

import (
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The expected digits are those of NHTSA's answers.
func TestConversionsHaveNHTSAsDigits(t *testing.T) {
	for _, test := range []struct{ formula, value, want string }{
		{"#x# / 0.016387064 ", "3.5", "213.58310433156"},
		{"#x# / 0.016387064 ", "2.4", "146.45698582735"},
		{"#x# / 0.016387064 ", "1.6", "97.63799055157"},
		{"#x# / 0.016387064 ", "5.0", "305.11872047366"},
		{"#x# * 1000", "3.5", "3500.0"},
		{"#x# * 1000", "2", "2000"},
		{"#x# * 16.387064 ", "181.8", "2979.1682352"},
		{"#x# * 0.016387064 ", "183", "2.998832712"},
		{"#x# / 1000.", "650", "0.650000"},
		{"#x# * 1000", " 2.0 ", "2000.0"},
		{"#x# * 1000", "TBD", "0"},
		{"#x# * 1000", "", "0"},
		{"#x# * 1000", ".", "0"},
		{"#x# * 1000", "-2", "0"},
		{"#x# / 0", "2", "0"},
		{"#x# * 1000", strings.Repeat("9", 38), "0"},
	} {
		f, err := parseFormula(test.formula)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.apply(test.value); got != test.want {
			t.Errorf("%s with %q is %s, want %s", test.formula, test.value, got, test.want)
		}
	}
	for _, text := range []string{"", "#x#", "#x# + 1", "#x# * x", "2 * #x#"} {
		if _, err := parseFormula(text); err == nil {
			t.Errorf("formula %q is taken", text)
		}
	}
}

func TestDivisionIsCutAndNeverTooLarge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.StringMatching(`[0-9]{1,6}(\.[0-9]{0,4})?`).Draw(t, "a")
		b := rapid.StringMatching(`[1-9][0-9]{0,3}(\.[0-9]{0,6})?`).Draw(t, "b")
		x, _ := parseDecimal(a)
		y, _ := parseDecimal(b)
		q, ok := x.by(y)
		if !ok {
			t.Fatal("division failed")
		}
		number := func(text string) *big.Rat {
			r, ok := new(big.Rat).SetString(strings.TrimSuffix(text, "."))
			if !ok {
				t.Fatalf("%q is no number", text)
			}
			return r
		}
		exact := new(big.Rat).Quo(number(a), number(b))
		rest := new(big.Rat).Sub(exact, number(q.String()))
		if rest.Sign() < 0 || rest.Cmp(new(big.Rat).SetFrac(big.NewInt(1), pow10(q.scale))) >= 0 {
			t.Fatalf("%s / %s = %s", a, b, q)
		}
	})
}
