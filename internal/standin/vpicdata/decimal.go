package vpicdata

import (
	"fmt"
	"math/big"
	"strings"
)

// decimal is a number with the fixed places of NHTSA's database (SQL Server), so
// that derived values have NHTSA's digits: 2.4 litres are 146.45698582735 cubic
// inches, not a rounded float.
type decimal struct {
	unscaled *big.Int
	scale    int // places after the point
	digits   int // precision
}

// maxDigits is the greatest precision of the database's decimals.
const maxDigits = 38

// parseDecimal reads digits with at most one point. Blanks around are allowed.
func parseDecimal(text string) (decimal, bool) {
	text = strings.TrimSpace(text)
	whole, fraction, _ := strings.Cut(text, ".")
	all := whole + fraction
	if all == "" || len(all) > maxDigits || strings.Trim(all, "0123456789") != "" {
		return decimal{}, false
	}
	n, ok := new(big.Int).SetString(all, 10)
	if !ok {
		return decimal{}, false
	}
	return decimal{n, len(fraction), max(1, len(strings.TrimLeft(whole, "0"))+len(fraction))}, true
}

// times has the places of both factors.
func (d decimal) times(o decimal) decimal {
	return decimal{new(big.Int).Mul(d.unscaled, o.unscaled), d.scale + o.scale, d.digits + o.digits + 1}
}

// by divides. The result has at least 6 places, cut and not rounded.
func (d decimal) by(o decimal) (decimal, bool) {
	if o.unscaled.Sign() == 0 {
		return decimal{}, false
	}
	scale := max(6, d.scale+o.digits+1)
	n := new(big.Int).Mul(d.unscaled, pow10(scale+o.scale-d.scale))
	return decimal{n.Quo(n, o.unscaled), scale, d.digits - d.scale + o.scale + scale}, true
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// String writes all places, also zeros: "3500.0".
func (d decimal) String() string {
	digits := d.unscaled.String()
	if d.scale == 0 {
		return digits
	}
	if missing := d.scale + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	return digits[:len(digits)-d.scale] + "." + digits[len(digits)-d.scale:]
}

// formula derives one element from another: the value, an operator, a constant.
type formula struct {
	divide   bool
	constant decimal
}

// parseFormula reads the two shapes that NHTSA's table of conversions has:
// "#x# * 16.387064" and "#x# / 1000.".
func parseFormula(text string) (formula, error) {
	parts := strings.Fields(text)
	if len(parts) == 3 && parts[0] == "#x#" && (parts[1] == "*" || parts[1] == "/") {
		if constant, ok := parseDecimal(parts[2]); ok {
			return formula{parts[1] == "/", constant}, nil
		}
	}
	return formula{}, fmt.Errorf("conversion formula %q is not understood", text)
}

// apply derives the value. What is not a number becomes "0", as in NHTSA's code.
func (f formula) apply(value string) string {
	x, ok := parseDecimal(value)
	if !ok {
		return "0"
	}
	if !f.divide {
		x = x.times(f.constant)
	} else if x, ok = x.by(f.constant); !ok {
		return "0"
	}
	if x.digits > maxDigits {
		return "0"
	}
	return x.String()
}
