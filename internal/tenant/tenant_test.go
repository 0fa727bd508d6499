package tenant

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"vingate/internal/gate"
)

func registry(t testing.TB, key string) *Registry {
	t.Helper()
	r, err := New([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func anonymous(t testing.TB, r *Registry, address string) Caller {
	t.Helper()
	c, err := r.Identify("", address)
	if err != nil {
		t.Fatalf("Identify(%q): %v", address, err)
	}
	return c
}

func TestWhoIsOneCaller(t *testing.T) {
	r := registry(t, "0123456789abcdef")
	for _, tc := range []struct {
		name, a, b string
		same       bool
	}{
		{"the same IPv4 address", "192.0.2.7", "192.0.2.7", true},
		{"two IPv4 addresses", "192.0.2.7", "192.0.2.8", false},
		{"two addresses of the loopback", "127.0.0.2", "127.0.0.3", false},
		{"an IPv4 address mapped into IPv6", "192.0.2.7", "::ffff:192.0.2.7", true},
		{"two mapped addresses, which share a /64", "::ffff:192.0.2.7", "::ffff:192.0.2.8", false},
		{"two addresses in one /64", "2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", true},
		{"two /64 in one /48", "2001:db8:1:2::1", "2001:db8:1:3::1", false},
		{"two spellings of an IPv6 address", "2001:db8:0:0:0:0:0:1", "2001:0DB8::1", true},
		{"a link-local address on two links", "fe80::1%eth0", "fe80::1%eth1", true},
		{"two texts that are no address", "", "not an address", true},
		{"no address and an address", "", "192.0.2.7", false},
		{"an address with a port is no address", "192.0.2.7:443", "192.0.2.7", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := anonymous(t, r, tc.a) == anonymous(t, r, tc.b); got != tc.same {
				t.Errorf("%q and %q one caller: %v, want %v", tc.a, tc.b, got, tc.same)
			}
		})
	}
}

func TestACallerWithoutKeySharesTheAnonymousPlaces(t *testing.T) {
	c := anonymous(t, registry(t, "0123456789abcdef"), "192.0.2.7")
	if !c.Anonymous {
		t.Error("not anonymous")
	}
	if got, want := c.Key(gate.Interactive), (gate.Key{Route: gate.Interactive, Tenant: "anon"}); got != want {
		t.Errorf("Key = %v, want %v", got, want)
	}
}

func TestAnyAPIKeyIsUnknown(t *testing.T) {
	r := registry(t, "0123456789abcdef")
	for _, k := range []string{"x", "vg_live_0123456789", strings.Repeat("k", 100_000), "a\r\nX-Evil: 1", "ключ", "\x00"} {
		if c, err := r.Identify(k, "192.0.2.7"); !errors.Is(err, ErrAPIKeyUnknown) || c != (Caller{}) {
			t.Errorf("Identify(%.20q) = %v, %v, want ErrAPIKeyUnknown", k, c, err)
		}
	}
	if _, err := r.Identify("  ", "192.0.2.7"); err != nil {
		t.Errorf("an empty header is no key: %v", err)
	}
}

func TestAHashKeyOfFifteenBytesIsRefused(t *testing.T) {
	if _, err := New([]byte("0123456789abcde")); err == nil {
		t.Error("taken")
	}
}

var shape = regexp.MustCompile(`^[A-Za-z0-9_-]{12}$`)

func TestProperty_AnIDShowsNothingOfTheAddressAndNeedsTheKey(t *testing.T) {
	one, other := registry(t, "0123456789abcdef"), registry(t, "0123456789abcdeg")
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "IPv4")
		a, _ := netip.AddrFromSlice(raw)
		id, err := one.Identify("", a.String())
		if err != nil || !shape.MatchString(id.ID) {
			t.Fatalf("Identify(%v) = %v, %v", a, id, err)
		}
		if strings.Contains(id.ID, a.String()) || strings.Contains(id.ID, hex.EncodeToString(raw)) {
			t.Fatalf("%v shows %v", id, a)
		}
		if again, _ := one.Identify("", a.String()); again != id {
			t.Fatalf("two names for %v: %v and %v", a, id, again)
		}
		if elsewhere, _ := other.Identify("", a.String()); elsewhere.ID == id.ID {
			t.Fatalf("the same name under another key: %v", id)
		}
	})
}

func FuzzIdentify(f *testing.F) {
	f.Add("", "192.0.2.7")
	f.Add("key", "2001:db8::1%eth0")
	f.Add(" \x00", "::ffff:1.2.3.4")
	r := registry(f, "0123456789abcdef")
	f.Fuzz(func(t *testing.T, key, address string) {
		c, err := r.Identify(key, address)
		if err != nil {
			if !errors.Is(err, ErrAPIKeyUnknown) || c != (Caller{}) {
				t.Errorf("Identify(%q, %q) = %v, %v", key, address, c, err)
			}
			return
		}
		if !shape.MatchString(c.ID) || !c.Anonymous {
			t.Errorf("Identify(%q, %q) = %v", key, address, c)
		}
	})
}
