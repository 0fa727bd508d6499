package tenant

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"strings"
	"time"
)

// An API key reads vg_<32 characters>_<6 characters>: 160 random bits, and 30 bits of a hash of them. The last part makes no key
// harder to guess; it tells a slip of the hand, and any garbage, from a key without asking the table.
const (
	keyPrefix   = "vg_"
	keyBody     = 32
	keyChecksum = 6
	keyLength   = len(keyPrefix) + keyBody + 1 + keyChecksum
)

// KeyEntropy is the number of random bytes in a key.
const KeyEntropy = 20

var lower32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Hash is the SHA-256 of an API key, by which it is known here. A key is random, so its hash needs neither salt nor slowness:
// there is nothing to guess from.
type Hash [sha256.Size]byte

// String is the hash in hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Prefix is enough of the hash for a person to name a key by.
func (h Hash) Prefix() string { return h.String()[:12] }

// NewAPIKey makes a key of random bytes. It is shown to its owner once; only the hash is kept.
func NewAPIKey(random [KeyEntropy]byte) (apiKey string, hash Hash) {
	body := lower32.EncodeToString(random[:])
	apiKey = keyPrefix + body + "_" + checksum(body)
	return apiKey, sha256.Sum256([]byte(apiKey))
}

// HashOf is the hash of what somebody shows as a key. ok is false when it cannot be one.
func HashOf(apiKey string) (hash Hash, ok bool) {
	if len(apiKey) != keyLength || !strings.HasPrefix(apiKey, keyPrefix) {
		return Hash{}, false
	}
	body, sum, _ := strings.Cut(apiKey[len(keyPrefix):], "_")
	if _, err := lower32.DecodeString(body); err != nil || len(body) != keyBody ||
		subtle.ConstantTimeCompare([]byte(sum), []byte(checksum(body))) != 1 {
		return Hash{}, false
	}
	return sha256.Sum256([]byte(apiKey)), true
}

func checksum(body string) string {
	sum := sha256.Sum256([]byte("vingate API key " + body))
	return lower32.EncodeToString(sum[:])[:keyChecksum]
}

// NewID makes the name of a tenant of random bytes: 12 characters that need no quoting anywhere.
func NewID(random [8]byte) string { return lower32.EncodeToString(random[:])[:12] }

// Key is what is kept of an API key.
type Key struct {
	Hash    Hash
	Tenant  string // id of the tenant, which stays when the key is changed for another
	Label   string // for the operator
	Plan    Plan
	Created time.Time
	Revoked time.Time // from then on the key is refused; zero: it is not
}

// RevokedBy says whether the key is refused at a time.
func (k Key) RevokedBy(now time.Time) bool { return !k.Revoked.IsZero() && !now.Before(k.Revoked) }
