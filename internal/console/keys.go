package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"vingate/internal/gate"
	"vingate/internal/tenant"
	"vingate/internal/tenant/dynamo"
)

// Ring is where the keys are.
type Ring interface {
	Create(context.Context, tenant.Key) error
	List(context.Context) ([]tenant.Key, error)
	Usage(context.Context) (map[string]map[tenant.Day]int, error)
	Revoke(context.Context, tenant.Hash, time.Time) error
	Rotate(ctx context.Context, old tenant.Hash, end time.Time, k tenant.Key) error
}

// Keys gives out and takes back API keys.
type Keys struct {
	Ring   Ring
	Now    func() time.Time
	Random func([]byte) // fills with random bytes; crypto/rand
}

// longestLabel is in characters: it has to fit into a line of the list.
const longestLabel = 60

// Create makes a key for a new tenant and prints it. The error names every fault of label and plan.
func (k *Keys) Create(ctx context.Context, w io.Writer, label string, plan tenant.Plan, json bool) error {
	var faults []string
	if utf8.RuneCountInString(label) > longestLabel || strings.ContainsFunc(label, func(r rune) bool { return !unicode.IsPrint(r) }) {
		faults = append(faults, fmt.Sprintf("--label: not up to %d printable characters", longestLabel))
	}
	for _, f := range plan.Validate() {
		faults = append(faults, "--"+f.String())
	}
	if len(faults) > 0 {
		return fmt.Errorf("no key was made: %s", strings.Join(faults, "; "))
	}
	var id [8]byte
	k.Random(id[:])
	apiKey, key := k.make(tenant.NewID(id), label, plan)
	if err := k.Ring.Create(ctx, key); err != nil {
		return err
	}
	return k.show(w, apiKey, key, nil, json)
}

// make makes a key; nothing is kept.
func (k *Keys) make(id, label string, plan tenant.Plan) (apiKey string, key tenant.Key) {
	var random [tenant.KeyEntropy]byte
	k.Random(random[:])
	key = tenant.Key{Tenant: id, Label: label, Plan: plan, Created: k.Now().UTC().Truncate(time.Second)}
	apiKey, key.Hash = tenant.NewAPIKey(random)
	return apiKey, key
}

// List prints every key without the keys themselves.
func (k *Keys) List(ctx context.Context, w io.Writer, json bool) error {
	keys, bad := k.Ring.List(ctx)
	if keys == nil && bad != nil {
		return bad
	}
	if json {
		list := make([]keyJSON, 0, len(keys))
		for _, key := range keys {
			list = append(list, k.json(key))
		}
		return errors.Join(asJSON(w, list), bad)
	}
	if len(keys) == 0 {
		p := printer{w: w}
		p.line("there are no API keys; `vingate keys create` makes one")
		return errors.Join(p.err, bad)
	}
	rows := [][]string{{"HASH", "TENANT", "LINE", "LABEL", "RATE", "BURST", "WEIGHT", "PLACES", "BATCHES", "CREATED (UTC)", "REVOKED (UTC)"}}
	number := func(n int) string {
		if n == 0 {
			return "default"
		}
		return strconv.Itoa(n)
	}
	for _, key := range keys {
		p, rate, revoked := key.Plan, "default", ""
		if p.RatePerSecond != 0 {
			rate = strconv.FormatFloat(p.RatePerSecond, 'g', -1, 64) + "/s"
		}
		if !key.Revoked.IsZero() {
			revoked = key.Revoked.UTC().Format("2006-01-02 15:04")
			if !key.RevokedBy(k.Now()) {
				revoked = "on " + revoked
			}
		}
		rows = append(rows, []string{key.Hash.Prefix(), plain(key.Tenant), string(gate.FlowOf(key.Tenant)), plain(key.Label), rate,
			number(p.Burst), strconv.Itoa(max(1, p.Weight)), number(p.Interactive), number(p.Batch), key.Created.UTC().Format("2006-01-02 15:04"), revoked})
	}
	return errors.Join(table(w, rows), bad)
}

// Revoke ends the keys that ref names, after a while. One is revoked, or with all every one of a tenant.
func (k *Keys) Revoke(ctx context.Context, w io.Writer, ref string, after time.Duration, all bool) error {
	keys, err := k.find(ctx, ref)
	if err != nil {
		return err
	}
	if len(keys) > 1 && !all {
		return fmt.Errorf("%w; --all revokes them together", ambiguous(ref, keys))
	}
	end := k.end(after)
	p := printer{w: w}
	for _, key := range keys {
		if err := k.Ring.Revoke(ctx, key.Hash, end); err != nil {
			return fmt.Errorf("the key %s of %s: %w", key.Hash.Prefix(), owner(key), err)
		}
		p.line("revoked the key %s of %s: %s", key.Hash.Prefix(), owner(key), k.ends(end))
	}
	return p.err
}

// Rotate makes a new key with the tenant, the label and the plan of the one that ref names, prints it, and ends the old one after a while.
func (k *Keys) Rotate(ctx context.Context, w io.Writer, ref string, overlap time.Duration, json bool) error {
	keys, err := k.find(ctx, ref)
	if err != nil {
		return err
	}
	if len(keys) > 1 {
		return ambiguous(ref, keys)
	}
	old := keys[0]
	end := k.end(overlap)
	if !old.Revoked.IsZero() && old.Revoked.Before(end) {
		return fmt.Errorf("the key %s ends already, on %s; nothing was changed", old.Hash.Prefix(), clock(old.Revoked))
	}
	apiKey, key := k.make(old.Tenant, old.Label, old.Plan)
	if err := k.Ring.Rotate(ctx, old.Hash, end, key); err != nil {
		return err
	}
	old.Revoked = end
	return k.show(w, apiKey, key, &old, json)
}

// end is when a key ends that is to end after a while: a whole second, and not a later one.
func (k *Keys) end(after time.Duration) time.Time {
	return k.Now().Add(max(0, after)).UTC().Truncate(time.Second)
}

// ends says it in words.
func (k *Keys) ends(end time.Time) string {
	if end.After(k.Now()) {
		return "it ends on " + clock(end)
	}
	return "every instance refuses it within 60 s"
}

var hashPrefix = regexp.MustCompile(`^[0-9a-f]{6,64}$`)

// find lists the keys in use that ref names: a key itself, the beginning of its hash, or the id of its tenant. It is never an empty list.
func (k *Keys) find(ctx context.Context, ref string) ([]tenant.Key, error) {
	all, err := k.Ring.List(ctx)
	if err != nil && all == nil {
		return nil, err
	}
	hash, isKey := tenant.HashOf(ref)
	named := fmt.Sprintf("is named %q", ref)
	if isKey {
		named = "has this text" // which is not printed
	}
	var found []tenant.Key
	gone := ""
	for _, key := range all {
		is := key.Tenant == ref || hashPrefix.MatchString(ref) && strings.HasPrefix(key.Hash.String(), ref)
		if isKey {
			is = key.Hash == hash
		}
		switch {
		case !is:
		case key.RevokedBy(k.Now()):
			gone = fmt.Sprintf("; %s is revoked since %s", key.Hash.Prefix(), clock(key.Revoked))
		default:
			found = append(found, key)
		}
	}
	if len(found) == 0 {
		if !isKey && strings.HasPrefix(ref, "vg_") {
			return nil, errors.New("this is not an API key: it is cut short or mistyped")
		}
		return nil, fmt.Errorf("no key in use %s%s; name one by the beginning of its hash (6 characters or more), by its tenant, or by the key itself", named, gone)
	}
	return found, nil
}

func ambiguous(ref string, keys []tenant.Key) error {
	var names []string
	for _, key := range keys {
		names = append(names, fmt.Sprintf("%s (%s)", key.Hash.Prefix(), owner(key)))
	}
	return fmt.Errorf("%q names %d keys: %s", ref, len(keys), strings.Join(names, ", "))
}

// owner names whose key it is.
func owner(key tenant.Key) string {
	if key.Label == "" {
		return "tenant " + plain(key.Tenant)
	}
	return fmt.Sprintf("tenant %s, %q", plain(key.Tenant), key.Label)
}

type planJSON struct {
	RatePerSecond float64 `json:"ratePerSecond,omitempty"`
	Burst         int     `json:"burst,omitempty"`
	Weight        int     `json:"weight,omitempty"`
	Interactive   int     `json:"interactive,omitempty"`
	Batch         int     `json:"batch,omitempty"`
}

type keyJSON struct {
	APIKey  string   `json:"apiKey,omitempty"`
	Hash    string   `json:"hash"`
	Tenant  string   `json:"tenant"`
	Line    string   `json:"line"`
	Label   string   `json:"label"`
	Plan    planJSON `json:"plan"`
	Created string   `json:"createdAt"`
	Revoked string   `json:"revokedAt,omitempty"`
	Old     *keyJSON `json:"old,omitempty"`
}

func (k *Keys) json(key tenant.Key) keyJSON {
	j := keyJSON{Hash: key.Hash.Prefix(), Tenant: key.Tenant, Line: string(gate.FlowOf(key.Tenant)), Label: key.Label, Plan: planJSON(key.Plan),
		Created: key.Created.UTC().Format(time.RFC3339)}
	if !key.Revoked.IsZero() {
		j.Revoked = key.Revoked.UTC().Format(time.RFC3339)
	}
	return j
}

// show prints a new key, this once.
func (k *Keys) show(w io.Writer, apiKey string, key tenant.Key, old *tenant.Key, json bool) error {
	if json {
		j := k.json(key)
		j.APIKey = apiKey
		if old != nil {
			o := k.json(*old)
			j.Old = &o
		}
		return asJSON(w, j)
	}
	p := printer{w: w}
	p.line("a new API key for %s:\n\n  %s\n", owner(key), apiKey)
	p.line("It is shown this once and kept nowhere. It belongs into the header X-Api-Key.")
	p.line("plan: %s", planWords(key.Plan))
	p.line("hash: %s, its name in `vingate keys list`", key.Hash.Prefix())
	if old != nil {
		p.line("The old key %s is revoked: %s.", old.Hash.Prefix(), k.ends(old.Revoked))
	}
	return p.err
}

func planWords(p tenant.Plan) string {
	words := []string{"the default rate", "the default burst", fmt.Sprintf("weight %d", max(1, p.Weight)), "the gate's places"}
	if p.RatePerSecond != 0 {
		words[0] = fmt.Sprintf("%v a second", p.RatePerSecond)
	}
	if p.Burst != 0 {
		words[1] = fmt.Sprintf("%d at once", p.Burst)
	}
	if p.Interactive != 0 || p.Batch != 0 {
		of := func(n int) string {
			if n == 0 {
				return "the gate's"
			}
			return strconv.Itoa(n)
		}
		words[3] = fmt.Sprintf("%s places for decodes, %s for batches", of(p.Interactive), of(p.Batch))
	}
	return strings.Join(words, ", ")
}

// The table's own ring.
var _ Ring = (*dynamo.Keyring)(nil)
