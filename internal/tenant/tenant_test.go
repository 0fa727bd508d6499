package tenant

import (
	"context"
	"encoding/hex"
	"errors"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"vingate/internal/gate"
)

var (
	keyed = Plan{RatePerSecond: 2, Burst: 30}
	anon  = Plan{RatePerSecond: 1, Burst: 20}
)

// cabinet is a table of keys that counts who looks into it.
type cabinet struct {
	keys  map[Hash]Key
	reads int
	err   error
}

func (c *cabinet) Find(_ context.Context, h Hash) (Key, bool, error) {
	c.reads++
	if c.err != nil {
		return Key{}, false, c.err
	}
	k, ok := c.keys[h]
	return k, ok, nil
}

// give makes a key and puts it into the cabinet.
func (c *cabinet) give(n byte, k Key) (apiKey string) {
	apiKey, k.Hash = NewAPIKey([KeyEntropy]byte{n})
	if c.keys == nil {
		c.keys = map[Hash]Key{}
	}
	c.keys[k.Hash] = k
	return apiKey
}

func registryOf(t testing.TB, hashKey string, keys Keys) *Registry {
	t.Helper()
	r, err := New(Config{HashKey: []byte(hashKey), Keys: keys, Keyed: keyed, Anonymous: anon})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func registry(t testing.TB, hashKey string) *Registry { return registryOf(t, hashKey, &cabinet{}) }

func anonymous(t testing.TB, r *Registry, address string) Caller {
	t.Helper()
	c, err := r.Identify(context.Background(), "", address)
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

func TestACallerWithoutKeySharesTheAnonymousPlacesButNotTheBucket(t *testing.T) {
	r := registry(t, "0123456789abcdef")
	c := anonymous(t, r, "192.0.2.7")
	if got, want := c.Key(gate.Interactive), (gate.Key{Route: gate.Interactive, Tenant: "anon"}); got != want || !c.Anonymous {
		t.Errorf("Key = %v, want %v", got, want)
	}
	if c.ID == anonymous(t, r, "192.0.2.8").ID || c.Plan != (Plan{RatePerSecond: 1, Burst: 20, Weight: 1}) {
		t.Errorf("%+v", c)
	}
}

func TestAKeyStandsForItsTenantWithItsPlan(t *testing.T) {
	var c cabinet
	plain := c.give(1, Key{Tenant: "aaaaaaaaaaaa"})
	own := c.give(2, Key{Tenant: "bbbbbbbbbbbb", Plan: Plan{RatePerSecond: 0.5, Weight: 3, Interactive: 4, Batch: 1}})
	second := c.give(3, Key{Tenant: "bbbbbbbbbbbb"}) // of the same tenant, after a change
	r := registryOf(t, "0123456789abcdef", &c)
	for _, tc := range []struct {
		key  string
		want Caller
	}{
		{plain, Caller{ID: "aaaaaaaaaaaa", Plan: Plan{RatePerSecond: 2, Burst: 30, Weight: 1}}},
		{own, Caller{ID: "bbbbbbbbbbbb", Plan: Plan{RatePerSecond: 0.5, Burst: 30, Weight: 3, Interactive: 4, Batch: 1}}},
		{"  " + second + "\t", Caller{ID: "bbbbbbbbbbbb", Plan: Plan{RatePerSecond: 2, Burst: 30, Weight: 1}}},
	} {
		got, err := r.Identify(t.Context(), tc.key, "192.0.2.7")
		if err != nil || got != tc.want {
			t.Errorf("%+v, %v, want %+v", got, err, tc.want)
		}
	}
	got, _ := r.Identify(t.Context(), own, "192.0.2.7")
	if k := got.Key(gate.Batch); k != (gate.Key{Route: gate.Batch, Tenant: "bbbbbbbbbbbb"}) || got.Plan.Ceiling(gate.Batch) != 1 || got.Plan.Ceiling(gate.Interactive) != 4 {
		t.Errorf("%v, %+v", k, got.Plan)
	}
}

// Garbage costs no read: whoever tries keys learns nothing and burdens nobody.
func TestWhatCannotBeAKeyIsUnknownWithoutARead(t *testing.T) {
	var c cabinet
	good := c.give(1, Key{Tenant: "aaaaaaaaaaaa"})
	r := registryOf(t, "0123456789abcdef", &c)
	garbage := []string{"x", "vg_live_0123456789", strings.Repeat("k", 100_000), "a\r\nX-Evil: 1", "ключ", "\x00", strings.ToUpper(good), good + "a", good[:len(good)-1],
		"vg_" + strings.Repeat("a", 32) + "_" + strings.Repeat("a", 6), strings.Replace(good, "_", "-", 2), good[:3] + "1" + good[4:]}
	for i := range good { // every slip of one character
		other := byte('b')
		if good[i] == other {
			other = 'c'
		}
		garbage = append(garbage, good[:i]+string(other)+good[i+1:])
	}
	for _, k := range garbage {
		if c, err := r.Identify(t.Context(), k, "192.0.2.7"); !errors.Is(err, ErrAPIKeyUnknown) || c != (Caller{}) {
			t.Errorf("Identify(%.50q) = %v, %v, want ErrAPIKeyUnknown", k, c, err)
		}
	}
	if c.reads != 0 {
		t.Errorf("%d reads for garbage", c.reads)
	}
	if _, err := r.Identify(t.Context(), good, "192.0.2.7"); err != nil || c.reads != 1 {
		t.Errorf("the good one: %v, %d reads", err, c.reads)
	}
	if _, err := r.Identify(t.Context(), "  ", "192.0.2.7"); err != nil {
		t.Errorf("an empty header is no key: %v", err)
	}
}

func TestARevokedKeyIsRefusedOnEveryInstanceWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cabinet
		apiKey := c.give(1, Key{Tenant: "aaaaaaaaaaaa"})
		r := registryOf(t, "0123456789abcdef", &c)
		identify := func() error { _, err := r.Identify(t.Context(), apiKey, ""); return err }
		if err := identify(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		hash, _ := HashOf(apiKey)
		k := c.keys[hash]
		k.Revoked = time.Now()
		c.keys[hash] = k
		if err := identify(); err != nil || c.reads != 1 {
			t.Errorf("within the minute: %v, %d reads", err, c.reads)
		}
		time.Sleep(time.Second)
		for range 3 {
			if err := identify(); !errors.Is(err, ErrAPIKeyRevoked) {
				t.Errorf("after it: %v", err)
			}
		}
		if c.reads != 2 {
			t.Errorf("%d reads", c.reads)
		}
	})
}

// A slow answer counts from when it was asked for: a key revoked behind its back is not kept for longer.
func TestTheMinuteBeginsWithTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cabinet{}
		apiKey := c.give(1, Key{Tenant: "aaaaaaaaaaaa"})
		r := registryOf(t, "0123456789abcdef", slow{&c, 400 * time.Millisecond})
		for range 2 {
			if _, err := r.Identify(t.Context(), apiKey, ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(keyLife - 400*time.Millisecond)
		}
		if c.reads != 2 {
			t.Errorf("%d reads", c.reads)
		}
	})
}

type slow struct {
	Keys
	by time.Duration
}

func (s slow) Find(ctx context.Context, h Hash) (Key, bool, error) {
	k, ok, err := s.Keys.Find(ctx, h)
	time.Sleep(s.by)
	return k, ok, err
}

// A key that is changed for another may live on for a while. Its end needs no look at the table.
func TestAKeyThatEndsLaterIsGoodUntilThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cabinet
		apiKey := c.give(1, Key{Tenant: "aaaaaaaaaaaa", Revoked: time.Now().Add(10 * time.Second)})
		r := registryOf(t, "0123456789abcdef", &c)
		if _, err := r.Identify(t.Context(), apiKey, ""); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if _, err := r.Identify(t.Context(), apiKey, ""); !errors.Is(err, ErrAPIKeyRevoked) || c.reads != 1 {
			t.Errorf("%v, %d reads", err, c.reads)
		}
	})
}

func TestAnUnknownKeyIsLookedUpOnceAMinuteAndDrivesOutNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cabinet
		good := c.give(0, Key{Tenant: "aaaaaaaaaaaa"})
		r := registryOf(t, "0123456789abcdef", &c)
		if _, err := r.Identify(t.Context(), good, ""); err != nil {
			t.Fatal(err)
		}
		forged, _ := NewAPIKey([KeyEntropy]byte{1: 1})
		for range 5 {
			if _, err := r.Identify(t.Context(), forged, ""); !errors.Is(err, ErrAPIKeyUnknown) {
				t.Fatal(err)
			}
		}
		if c.reads != 2 {
			t.Errorf("%d reads for two keys", c.reads)
		}
		for n := range 2 * cachedKeys {
			k, _ := NewAPIKey([KeyEntropy]byte{2: 1, 3: byte(n), 4: byte(n >> 8)})
			if _, err := r.Identify(t.Context(), k, ""); !errors.Is(err, ErrAPIKeyUnknown) {
				t.Fatal(err)
			}
		}
		reads := c.reads
		if _, err := r.Identify(t.Context(), good, ""); err != nil || c.reads != reads {
			t.Errorf("%v; a flood of forged keys drove out one in use", err)
		}
		if n := r.unknown.Len() + r.known.Len(); n > 2*cachedKeys {
			t.Errorf("%d keys are kept", n)
		}
		time.Sleep(keyLife)
		if _, err := r.Identify(t.Context(), forged, ""); !errors.Is(err, ErrAPIKeyUnknown) || c.reads != reads+1 {
			t.Errorf("%v, %d reads", err, c.reads-reads)
		}
	})
}

// A table that is down says nothing about a key: the error is passed on, and not kept.
func TestAKeyThatCannotBeLookedUpIsNeitherKnownNorUnknown(t *testing.T) {
	down := errors.New("down")
	c := cabinet{err: down}
	apiKey := c.give(1, Key{Tenant: "aaaaaaaaaaaa"})
	r := registryOf(t, "0123456789abcdef", &c)
	if got, err := r.Identify(t.Context(), apiKey, ""); !errors.Is(err, down) || got != (Caller{}) {
		t.Errorf("%v, %v", got, err)
	}
	c.err = nil
	if _, err := r.Identify(t.Context(), apiKey, ""); err != nil {
		t.Errorf("when it is back: %v", err)
	}
}

func TestARegistryNeedsAHashKeyAndPlans(t *testing.T) {
	good := Config{HashKey: []byte("0123456789abcdef"), Keyed: keyed, Anonymous: anon}
	for name, spoil := range map[string]func(*Config){
		"a hash key of 15 bytes": func(c *Config) { c.HashKey = c.HashKey[:15] },
		"no plan for keys":       func(c *Config) { c.Keyed = Plan{} },
		"a burst of none":        func(c *Config) { c.Anonymous.Burst = 0 },
		"a weight of 11":         func(c *Config) { c.Keyed.Weight = 11 },
	} {
		c := good
		spoil(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}

var shape = regexp.MustCompile(`^[A-Za-z0-9_-]{12}$`)

func TestProperty_AnIDShowsNothingOfTheAddressAndNeedsTheKey(t *testing.T) {
	one, other := registry(t, "0123456789abcdef"), registry(t, "0123456789abcdeg")
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "IPv4")
		a, _ := netip.AddrFromSlice(raw)
		id, err := one.Identify(context.Background(), "", a.String())
		if err != nil || !shape.MatchString(id.ID) {
			t.Fatalf("Identify(%v) = %v, %v", a, id, err)
		}
		if strings.Contains(id.ID, a.String()) || strings.Contains(id.ID, hex.EncodeToString(raw)) {
			t.Fatalf("%v shows %v", id, a)
		}
		if again, _ := one.Identify(context.Background(), "", a.String()); again != id {
			t.Fatalf("two names for %v: %v and %v", a, id, again)
		}
		if elsewhere, _ := other.Identify(context.Background(), "", a.String()); elsewhere.ID == id.ID {
			t.Fatalf("the same name under another key: %v", id)
		}
	})
}

func FuzzIdentify(f *testing.F) {
	var c cabinet
	f.Add("", "192.0.2.7")
	f.Add("key", "2001:db8::1%eth0")
	f.Add(" \x00", "::ffff:1.2.3.4")
	f.Add(c.give(1, Key{Tenant: "aaaaaaaaaaaa"}), "")
	r := registryOf(f, "0123456789abcdef", &c)
	f.Fuzz(func(t *testing.T, key, address string) {
		c, err := r.Identify(t.Context(), key, address)
		if err != nil {
			if !errors.Is(err, ErrAPIKeyUnknown) || c != (Caller{}) {
				t.Errorf("Identify(%q, %q) = %v, %v", key, address, c, err)
			}
			return
		}
		if !shape.MatchString(c.ID) || c.Anonymous != (strings.TrimSpace(key) == "") {
			t.Errorf("Identify(%q, %q) = %v", key, address, c)
		}
	})
}
