package tenant

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestProperty_AKeyIsRecognisedAndASlipIsNot(t *testing.T) {
	shape := regexp.MustCompile(`^vg_[a-z2-7]{32}_[a-z2-7]{6}$`)
	rapid.Check(t, func(t *rapid.T) {
		var random [KeyEntropy]byte
		copy(random[:], rapid.SliceOfN(rapid.Byte(), KeyEntropy, KeyEntropy).Draw(t, "random"))
		apiKey, hash := NewAPIKey(random)
		if !shape.MatchString(apiKey) {
			t.Fatalf("a key reads %s", apiKey)
		}
		if got, ok := HashOf(apiKey); !ok || got != hash {
			t.Fatalf("HashOf(%s) = %v, %v, want %v", apiKey, got, ok, hash)
		}
		i := rapid.IntRange(0, len(apiKey)-1).Draw(t, "at")
		slip := apiKey[:i] + rapid.StringMatching("[a-z2-7_]").Draw(t, "slip") + apiKey[i+1:]
		if _, ok := HashOf(slip); ok != (slip == apiKey) {
			t.Fatalf("HashOf(%s) is taken: %v; the key is %s", slip, ok, apiKey)
		}
		if strings.Contains(apiKey, hash.Prefix()) || !strings.HasPrefix(hash.String(), hash.Prefix()) {
			t.Fatalf("%s, %s", apiKey, hash)
		}
	})
}

// Two letters changed for each other are the most usual slip after a wrong one.
func TestSwappedLettersAreNoKey(t *testing.T) {
	apiKey, _ := NewAPIKey([KeyEntropy]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	for i := range len(apiKey) - 1 {
		swapped := apiKey[:i] + string(apiKey[i+1]) + string(apiKey[i]) + apiKey[i+2:]
		if _, ok := HashOf(swapped); ok && swapped != apiKey {
			t.Errorf("%s is taken for a key", swapped)
		}
	}
}

func TestAnIDNeedsNoQuoting(t *testing.T) {
	if id := NewID([8]byte{255, 254, 253, 252, 251, 250, 249, 248}); !regexp.MustCompile(`^[a-z2-7]{12}$`).MatchString(id) {
		t.Error(id)
	}
}

func FuzzHashOf(f *testing.F) {
	apiKey, _ := NewAPIKey([KeyEntropy]byte{7})
	f.Add(apiKey)
	f.Add("vg_")
	f.Fuzz(func(t *testing.T, s string) {
		if _, ok := HashOf(s); ok && (len(s) != keyLength || s[3+keyBody+1:] != checksum(s[3:3+keyBody])) {
			t.Errorf("%q is taken for a key", s)
		}
	})
}
