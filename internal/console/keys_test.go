package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"vingate/internal/tenant"
	"vingate/internal/tenant/dynamo"
)

// keysAt makes keys from a random source that counts.
func keysAt(r *ring, now *time.Time) *Keys {
	n := byte(0)
	return &Keys{Ring: r, Now: func() time.Time { return *now }, Random: func(b []byte) {
		for i := range b {
			n++
			b[i] = n*37 + byte(i)
		}
	}}
}

func TestKeysFromTheirMakingToTheirEnd(t *testing.T) {
	r, now := &ring{}, noon.Add(300*time.Millisecond)
	k := keysAt(r, &now)
	create := printed(t, func(b *bytes.Buffer) error {
		return k.Create(t.Context(), b, "Dealer Müller, Berlin", tenant.Plan{RatePerSecond: 2.5, Burst: 50, Weight: 2, Batch: 4}, false)
	})
	golden(t, "keys-create", create)
	apiKey := strings.TrimSpace(strings.Split(create, "\n")[2])
	if h, ok := tenant.HashOf(apiKey); !ok || h != r.keys[0].Hash {
		t.Fatalf("%q is not the key that was made", apiKey)
	}
	golden(t, "keys-create-json", printed(t, func(b *bytes.Buffer) error { return k.Create(t.Context(), b, "", tenant.Plan{Weight: 1}, true) }))

	now = now.Add(24 * time.Hour)
	golden(t, "keys-rotate", printed(t, func(b *bytes.Buffer) error {
		return k.Rotate(t.Context(), b, r.keys[0].Hash.Prefix(), 48*time.Hour, false)
	}))
	golden(t, "keys-rotate-json", printed(t, func(b *bytes.Buffer) error { return k.Rotate(t.Context(), b, r.keys[1].Tenant, 0, true) }))
	if old, next := r.keys[0], r.keys[2]; next.Tenant != old.Tenant || next.Label != old.Label || next.Plan != old.Plan || next.Hash == old.Hash {
		t.Errorf("%+v became %+v", old, next)
	}
	golden(t, "keys-list", printed(t, func(b *bytes.Buffer) error { return k.List(t.Context(), b, false) }))

	for _, name := range []string{"keys-list", "keys-list-json"} { // no list shows a key
		out := printed(t, func(b *bytes.Buffer) error { return k.List(t.Context(), b, name == "keys-list-json") })
		if golden(t, name, out); strings.Contains(out, "vg_") {
			t.Errorf("%s shows a key: %s", name, out)
		}
	}

	// Whoever found the key somewhere can revoke it by itself, and is not shown it once more.
	out := printed(t, func(b *bytes.Buffer) error { return k.Revoke(t.Context(), b, apiKey, 0, false) })
	if golden(t, "keys-revoke", out); strings.Contains(out, apiKey) || !r.keys[0].RevokedBy(now) {
		t.Errorf("%s, %+v", out, r.keys[0])
	}
	golden(t, "keys-revoke-later", printed(t, func(b *bytes.Buffer) error {
		return k.Revoke(t.Context(), b, r.keys[2].Hash.String(), time.Hour, false)
	}))
	if r.keys[2].RevokedBy(now) || !r.keys[2].RevokedBy(now.Add(time.Hour)) {
		t.Errorf("%+v", r.keys[2])
	}
}

func TestAReferenceNamesOneKeyInUseOrNothingHappens(t *testing.T) {
	r, now := &ring{}, noon
	k := keysAt(r, &now)
	add := func(id, label string, revoked bool) tenant.Key {
		_, key := k.make(id, label, tenant.Plan{})
		if revoked {
			key.Revoked = noon
		}
		r.keys = append(r.keys, key)
		return key
	}
	one, two, gone := add("aaaaaaaaaaaa", "one", false), add("aaaaaaaaaaaa", "two", false), add("bbbbbbbbbbbb", "gone", true)
	stranger, _ := tenant.NewAPIKey([tenant.KeyEntropy]byte{9})
	for ref, want := range map[string]string{
		"":                      `no key in use is named ""`,
		one.Hash.Prefix()[:5]:   "no key in use is named",
		"cccccccccccc":          "no key in use is named",
		gone.Hash.Prefix():      "is revoked since 2026-06-01 12:00:00 UTC",
		"bbbbbbbbbbbb":          "is revoked since",
		"aaaaaaaaaaaa":          "names 2 keys: " + one.Hash.Prefix() + ` (tenant aaaaaaaaaaaa, "one"), ` + two.Hash.Prefix(),
		stranger:                "no key in use has this text",
		stranger[:20]:           "not an API key: it is cut short or mistyped",
		"\x1b[2J":               `named "\x1b[2J"`,
		one.Hash.Prefix() + "f": "no key in use is named",
	} {
		before := len(r.keys)
		for op, do := range map[string]func(*bytes.Buffer) error{
			"revoke": func(b *bytes.Buffer) error { return k.Revoke(t.Context(), b, ref, 0, false) },
			"rotate": func(b *bytes.Buffer) error { return k.Rotate(t.Context(), b, ref, 0, false) },
		} {
			var b bytes.Buffer
			if err := do(&b); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), stranger) || b.Len() > 0 {
				t.Errorf("%s %q: %v, want %s; printed %s", op, ref, err, want, b.String())
			}
		}
		if len(r.keys) != before || !r.keys[0].Revoked.IsZero() || !r.keys[1].Revoked.IsZero() {
			t.Fatalf("%q changed something", ref)
		}
	}
	golden(t, "keys-revoke-all", printed(t, func(b *bytes.Buffer) error { return k.Revoke(t.Context(), b, "aaaaaaaaaaaa", 0, true) }))
	if !r.keys[0].RevokedBy(now) || !r.keys[1].RevokedBy(now) {
		t.Errorf("%+v", r.keys)
	}
}

func TestNoKeyIsMadeOfABadPlanAndEveryFaultIsTold(t *testing.T) {
	r, now := &ring{}, noon
	err := keysAt(r, &now).Create(t.Context(), &bytes.Buffer{}, "\x1b]0;evil\x07", tenant.Plan{RatePerSecond: -1, Burst: 20000, Weight: 11, Interactive: -1, Batch: 5000}, false)
	for _, want := range []string{"no key was made", "--label", "--rate", "--burst", "--weight", "--interactive", "--batch"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %s", err, want)
		}
	}
	if len(r.keys) != 0 {
		t.Error("a key was made")
	}
}

// A key is shown after it is kept: nobody is given one that the table does not know.
func TestAKeyThatCouldNotBeKeptIsNotShown(t *testing.T) {
	r, now := &ring{err: &dynamo.Error{Op: "create a key", Fault: "denied", Err: errors.New("x")}}, noon
	var b bytes.Buffer
	if err := keysAt(r, &now).Create(t.Context(), &b, "a", tenant.Plan{}, false); err == nil || b.Len() > 0 {
		t.Errorf("%v; printed %q", err, b.String())
	}
}

func TestAKeyThatEndsSoonerIsNotMadeToLastLonger(t *testing.T) {
	r, now := &ring{}, noon
	k := keysAt(r, &now)
	_, key := k.make("aaaaaaaaaaaa", "", tenant.Plan{})
	key.Revoked = noon.Add(time.Hour)
	r.keys = append(r.keys, key)
	if err := k.Rotate(t.Context(), &bytes.Buffer{}, "aaaaaaaaaaaa", 48*time.Hour, false); err == nil || len(r.keys) != 1 || !r.keys[0].Revoked.Equal(noon.Add(time.Hour)) {
		t.Errorf("%v, %+v", err, r.keys)
	}
}

func TestAnEmptyListSaysHowToBegin(t *testing.T) {
	now := noon
	k := keysAt(&ring{}, &now)
	if out := printed(t, func(b *bytes.Buffer) error { return k.List(t.Context(), b, false) }); !strings.Contains(out, "vingate keys create") {
		t.Error(out)
	}
	var list []any
	if err := json.Unmarshal([]byte(printed(t, func(b *bytes.Buffer) error { return k.List(t.Context(), b, true) })), &list); err != nil || list == nil {
		t.Errorf("%v, %v", list, err)
	}
}

// What others wrote reaches a terminal as plain characters.
func TestALabelThatWouldTakeOverTheTerminalDoesNot(t *testing.T) {
	r, now := &ring{}, noon
	k := keysAt(r, &now)
	_, key := k.make("aaaaaaaaaaaa", "a\x1b[2J\rb\tc\nd", tenant.Plan{})
	r.keys = append(r.keys, key)
	out := printed(t, func(b *bytes.Buffer) error { return k.List(t.Context(), b, false) })
	if strings.ContainsAny(out, "\x1b\r\t") || strings.Count(out, "\n") != 2 {
		t.Errorf("%q", out)
	}
}

func TestUsageIsToldByTenantAndDay(t *testing.T) {
	r, now := &ring{}, noon
	k := keysAt(r, &now)
	golden(t, "keys-usage-none", printed(t, func(b *bytes.Buffer) error { return k.Usage(t.Context(), b, false) }))
	for id, label := range map[string]string{"aaaaaaaaaaaa": "Dealer"} {
		_, key := k.make(id, label, tenant.Plan{})
		_, next := k.make(id, label, tenant.Plan{}) // the key it was changed for
		r.keys = append(r.keys, key, next)
	}
	_, idle := k.make("bbbbbbbbbbbb", "Idle", tenant.Plan{})
	r.keys = append(r.keys, idle)
	today := tenant.DayOf(noon)
	r.usage = map[string]map[tenant.Day]int{"aaaaaaaaaaaa": {today: 12, today - 1: 340, today - 7: 5, today - 8: 99}}
	golden(t, "keys-usage", printed(t, func(b *bytes.Buffer) error { return k.Usage(t.Context(), b, false) }))
	golden(t, "keys-usage-json", printed(t, func(b *bytes.Buffer) error { return k.Usage(t.Context(), b, true) }))
	r.err = errors.New("denied")
	r.keys = nil
	if err := k.Usage(t.Context(), &bytes.Buffer{}, false); err == nil {
		t.Error("no error")
	}
}
