// Package tenant says who is asking. It promises that a caller is known only by a keyed hash: neither an API key nor a
// client address leaves this package in clear, and without the hash key the hash cannot be turned back by trying all addresses.
package tenant

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/netip"
	"strings"

	"vingate/internal/gate"
)

// Caller is who asks.
type Caller struct {
	// ID is the keyed hash, 12 characters of base64url. It may be logged.
	ID string
	// Anonymous callers are told apart by their address, but share the places of one bulkhead.
	Anonymous bool
}

// Key is the caller's bulkhead on a route.
func (c Caller) Key(route gate.Route) gate.Key {
	if c.Anonymous {
		return gate.Key{Route: route, Tenant: gate.Anonymous}
	}
	return gate.Key{Route: route, Tenant: c.ID}
}

// ErrAPIKeyUnknown: the caller shows an API key that nobody was given. Such a caller is refused rather than taken for an
// anonymous one, who has other limits than the key's owner expects.
var ErrAPIKeyUnknown = errors.New("the API key is not known")

// leastKey is the shortest hash key, in bytes.
const leastKey = 16

// Registry knows the callers. It is safe for use by many goroutines.
type Registry struct{ hashKey []byte }

// New makes a registry that hashes with hashKey, which must be the same on all instances and at least 16 bytes.
func New(hashKey []byte) (*Registry, error) {
	if len(hashKey) < leastKey {
		return nil, errors.New("tenant: the hash key needs at least 16 bytes")
	}
	return &Registry{hashKey: append([]byte(nil), hashKey...)}, nil
}

// Identify says who is asking. apiKey is the X-Api-Key header, "" when there is none. address is the client's own as the
// front door saw it on the connection, never a header the caller can write. No API keys have been given out, so the
// error of a caller who shows one is ErrAPIKeyUnknown.
func (r *Registry) Identify(apiKey, address string) (Caller, error) {
	if strings.TrimSpace(apiKey) != "" {
		return Caller{}, ErrAPIKeyUnknown
	}
	return Caller{ID: r.hash("address", network(address)), Anonymous: true}, nil
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
	mac := hmac.New(sha256.New, r.hashKey)
	mac.Write([]byte(kind + "\x00" + name))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:9])
}
