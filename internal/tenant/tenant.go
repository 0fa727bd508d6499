// Package tenant says who is asking and what he may use. It is pure but for the keys it looks up; package tenant/dynamo keeps keys and
// accounts.
//
// It promises that a caller is known only by a keyed hash or a random id: neither an API key nor a client address leaves this package in
// clear, and without the hash key the hash cannot be turned back by trying all addresses. What cannot be an API key is refused
// without asking anybody. A key that is revoked is refused on every instance within a minute.
//
// A tenant's own token bucket (Account) is looked at before the shared budget and charged after its grant, so that whoever is refused,
// for whatever reason, has spent nothing:
//
//   - Exact. An account seen dry is dry until it says otherwise: refusals cost no write, and from memory not even a read.
//   - Once. A charge is guarded by the id of what was granted, so repeating it changes nothing; nothing is ever refunded.
//   - Bounded. A look may be a second old, and charges come after the grant: what was let through meanwhile charges into debt, which the
//     tenant then waits for. In any window of w seconds a tenant's calls number at most burst + rate x (w + 2 x skew bound), and what
//     the shared budget grants him within one second and his places.
package tenant

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"vingate/internal/gate"
	"vingate/internal/lru"
)

// Caller is who asks.
type Caller struct {
	// ID is 12 characters: of an anonymous caller the keyed hash of the address, else the random id of the tenant. It may be logged.
	ID string
	// Anonymous callers are told apart by their address, but share the places of one bulkhead.
	Anonymous bool
	// Plan has no zeros but for places that are the gate's to say.
	Plan Plan
}

// Key is the caller's bulkhead on a route.
func (c Caller) Key(route gate.Route) gate.Key {
	if c.Anonymous {
		return gate.Key{Route: route, Tenant: gate.Anonymous}
	}
	return gate.Key{Route: route, Tenant: c.ID}
}

// addressPlaces is how many of the places that all anonymous callers share one address may hold.
const addressPlaces = 4

// Own is how many places of its bulkhead the caller may hold, where others share it; 0: nobody does.
func (c Caller) Own() int {
	if c.Anonymous {
		return addressPlaces
	}
	return 0
}

// ErrAPIKeyUnknown: the caller shows an API key that nobody was given. Such a caller is refused rather than taken for an
// anonymous one, who has other limits than the key's owner expects.
var ErrAPIKeyUnknown = errors.New("the API key is not known")

// ErrAPIKeyRevoked: the key was somebody's once.
var ErrAPIKeyRevoked = errors.New("the API key is revoked")

// Keys finds what is kept of an API key.
type Keys interface {
	Find(context.Context, Hash) (key Key, found bool, err error)
}

// Config of a registry.
type Config struct {
	HashKey   []byte // the same on all instances, at least 16 bytes
	Keys      Keys
	Keyed     Plan             // of a key whose own plan leaves something open
	Anonymous Plan             // of a client address
	Now       func() time.Time // wall clock; time.Now when nil
}

const (
	// leastKey is the shortest hash key, in bytes.
	leastKey = 16
	// keyLife is how long a look at the table counts, also one that found nothing.
	keyLife = time.Minute
	// cachedKeys bounds the memory, for keys and, apart from them, for what was shown and is none: no flood of the latter can drive out
	// a key that is in use.
	cachedKeys = 1024
)

// Registry knows the callers. It is safe for use by many goroutines.
type Registry struct {
	Config
	known, unknown *lru.Cache[Hash, looked]
}

// looked is what one look at the table found.
type looked struct {
	key   Key
	found bool
	at    time.Time // when it was asked for, not when the answer came
}

// New makes a registry.
func New(c Config) (*Registry, error) {
	if len(c.HashKey) < leastKey {
		return nil, errors.New("tenant: the hash key needs at least 16 bytes")
	}
	for name, p := range map[string]*Plan{"keyed": &c.Keyed, "anonymous": &c.Anonymous} {
		*p = p.Or(Plan{})
		if faults := p.Validate(); len(faults) > 0 {
			return nil, fmt.Errorf("tenant: %s plan: %v", name, faults[0])
		}
		if p.RatePerSecond == 0 || p.Burst == 0 {
			return nil, fmt.Errorf("tenant: the %s plan needs a rate and a burst", name)
		}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.HashKey = append([]byte(nil), c.HashKey...)
	return &Registry{Config: c, known: lru.New[Hash, looked](cachedKeys), unknown: lru.New[Hash, looked](cachedKeys)}, nil
}

// Identify says who is asking. apiKey is the X-Api-Key header, "" when there is none. address is the client's own as the
// front door saw it on the connection, never a header the caller can write. The error is ErrAPIKeyUnknown, ErrAPIKeyRevoked, or that
// of Keys, who could not say.
func (r *Registry) Identify(ctx context.Context, apiKey, address string) (Caller, error) {
	if apiKey = strings.TrimSpace(apiKey); apiKey == "" {
		return Caller{ID: r.hash("address", network(address)), Anonymous: true, Plan: r.Anonymous}, nil
	}
	hash, ok := HashOf(apiKey)
	if !ok {
		return Caller{}, ErrAPIKeyUnknown
	}
	l, err := r.look(ctx, hash)
	switch {
	case err != nil:
		return Caller{}, err
	case !l.found:
		return Caller{}, ErrAPIKeyUnknown
	case l.key.RevokedBy(r.Now()):
		return Caller{}, ErrAPIKeyRevoked
	}
	return Caller{ID: l.key.Tenant, Plan: l.key.Plan.Or(r.Keyed)}, nil
}

// look finds a key in memory or in the table. A look that failed is not kept.
func (r *Registry) look(ctx context.Context, hash Hash) (looked, error) {
	now := r.Now().Round(0) // a frozen instance's monotonic clock may have stood still
	for _, cache := range []*lru.Cache[Hash, looked]{r.known, r.unknown} {
		if l, ok := cache.Get(hash); ok {
			if age := now.Sub(l.at); age >= 0 && age < keyLife {
				return l, nil
			}
		}
	}
	key, found, err := r.Keys.Find(ctx, hash)
	if err != nil {
		return looked{}, err
	}
	l := looked{key, found, now}
	if found {
		r.known.Put(hash, l)
	} else {
		r.unknown.Put(hash, l)
	}
	return l, nil
}

// network is the part of an address that stands for one subscriber: an IPv4 address, or the /64 of an IPv6 address, in
// which a subscriber can make up as many as he likes. What is no address at all shares one name.
func network(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return "none"
	}
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a.String()
	}
	p, err := a.Prefix(64)
	if err != nil { // cannot be: 64 bits fit into an IPv6 address
		return "none"
	}
	return p.String()
}

// hash is 72 bits of HMAC-SHA256. The kind keeps an address and another sort of name that read alike apart.
func (r *Registry) hash(kind, name string) string {
	mac := hmac.New(sha256.New, r.HashKey)
	mac.Write([]byte(kind + "\x00" + name))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:9])
}
