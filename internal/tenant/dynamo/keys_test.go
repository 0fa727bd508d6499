package dynamo

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"vingate/internal/ddb/ddbtest"
	"vingate/internal/tables"
	"vingate/internal/tenant"
)

var day = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// keyring has a table of its own, and the retries that tools have.
func keyring(t *testing.T) (*Keyring, *ddbtest.Wire, *Store) {
	t.Helper()
	name := fmt.Sprint("keys", tenants.Add(1))
	if _, err := tables.Create(t.Context(), realClient, tables.Names{Coordination: name, Results: "results"}); err != nil {
		t.Fatal(err)
	}
	client, wire := ddbtest.On(realClient)
	o := client.Options()
	o.Retryer = retry.NewStandard(func(s *retry.StandardOptions) {
		s.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
	})
	client = dynamodb.New(o)
	return &Keyring{Client: client, Table: name}, wire, New(Config{Client: client, Table: name, Now: time.Now, SkewBound: skew})
}

func newKey(n byte, k tenant.Key) tenant.Key {
	_, k.Hash = tenant.NewAPIKey([tenant.KeyEntropy]byte{n})
	if k.Tenant == "" {
		k.Tenant = fmt.Sprint("tenant", n)
	}
	if k.Created.IsZero() {
		k.Created = day.Add(time.Duration(n) * time.Second)
	}
	return k
}

func create(t *testing.T, r *Keyring, keys ...tenant.Key) {
	t.Helper()
	for _, k := range keys {
		if err := r.Create(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAKeyIsFoundAsItWasMade(t *testing.T) {
	r, _, s := keyring(t)
	for n, k := range []tenant.Key{
		{},
		{Label: "Dealer Müller, \"two\"\nlines"},
		{Plan: tenant.Plan{RatePerSecond: 0.125, Burst: 7, Weight: 10, Interactive: 3, Batch: 1}, Revoked: day.Add(time.Hour)},
	} {
		k = newKey(byte(n), k)
		create(t, r, k)
		got, found, err := s.Find(t.Context(), k.Hash)
		if err != nil || !found || !reflect.DeepEqual(got, k) {
			t.Errorf("%+v, %v, %v, want %+v", got, found, err, k)
		}
	}
	if _, found, err := s.Find(t.Context(), newKey(99, tenant.Key{}).Hash); found || err != nil {
		t.Errorf("a key nobody made: %v, %v", found, err)
	}
}

func TestProperty_AKeySurvivesItsItem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := newKey(rapid.Byte().Draw(t, "key"), tenant.Key{Label: rapid.String().Draw(t, "label"), Plan: tenant.Plan{
			RatePerSecond: rapid.SampledFrom([]float64{0, 0.001, 1.0 / 3, 1000}).Draw(t, "rate"), Burst: rapid.IntRange(0, 10000).Draw(t, "burst"),
			Weight: rapid.IntRange(0, 10).Draw(t, "weight"), Interactive: rapid.IntRange(0, 9).Draw(t, "places"), Batch: rapid.IntRange(0, 9).Draw(t, "batches")}})
		if rapid.Bool().Draw(t, "revoked") {
			k.Revoked = day
		}
		if got, err := decodeKey(encodeKey(k)); err != nil || !reflect.DeepEqual(got, k) {
			t.Fatalf("%+v became %+v, %v", k, got, err)
		}
	})
}

// A key that cannot be read whole lets nobody in, and the error shows nothing of what stands there.
func TestADamagedKeyIsRefusedWhole(t *testing.T) {
	for name, damage := range map[string]func(item){
		"no tenant":        func(it item) { delete(it, attrTenant) },
		"an empty tenant":  func(it item) { it[attrTenant] = text("") },
		"no label":         func(it item) { delete(it, attrLabel) },
		"no beginning":     func(it item) { delete(it, attrCreated) },
		"an end in words":  func(it item) { it[attrRevoked] = text("tomorrow") },
		"a burst in words": func(it item) { it[attrBurst] = text("secretive") },
		"half a burst":     func(it item) { it[attrBurst] = &types.AttributeValueMemberN{Value: "1.5"} },
		"a rate in words":  func(it item) { it[attrRate] = text("fast") },
		"too high a rate":  func(it item) { it[attrRate] = number(5000) },
		"a weight of 11":   func(it item) { it[attrWeight] = number(11) },
		"no name":          func(it item) { delete(it, attrKey) },
		"no hash":          func(it item) { it[attrKey] = text("key#12") },
	} {
		it := encodeKey(newKey(1, tenant.Key{Label: "secretive"}))
		damage(it)
		if k, err := decodeKey(it); err == nil || strings.Contains(err.Error(), "secretive") {
			t.Errorf("%s: read as %+v, %v", name, k, err)
		}
	}
}

func TestTheListHasEveryKeyAndNothingElse(t *testing.T) {
	r, _, _ := keyring(t)
	var want []tenant.Key
	for n := range byte(30) {
		k := newKey(n, tenant.Key{Label: strings.Repeat("x", 400)})
		want = append(want, k)
	}
	for n := range want {
		create(t, r, want[(n*7)%len(want)])
	}
	for n := range 2 * page { // more than one page of others
		if _, err := realClient.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(r.Table), Item: accountKey(fmt.Sprint(n))}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := r.List(t.Context())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%d keys of %d, %v", len(got), len(want), err)
	}
	bad := keyItem(newKey(200, tenant.Key{}).Hash)
	if _, err := realClient.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(r.Table), Item: bad}); err != nil {
		t.Fatal(err)
	}
	if got, err := r.List(t.Context()); len(got) != len(want) || err == nil || !strings.Contains(err.Error(), newKey(200, tenant.Key{}).Hash.Prefix()) {
		t.Errorf("with a damaged one: %d keys, %v", len(got), err)
	}
}

func TestAKeyIsRevokedOnceAndNeverForLonger(t *testing.T) {
	r, _, s := keyring(t)
	k := newKey(1, tenant.Key{})
	create(t, r, k)
	revoked := func() time.Time {
		got, _, err := s.Find(t.Context(), k.Hash)
		if err != nil {
			t.Fatal(err)
		}
		return got.Revoked
	}
	later, at := day.Add(24*time.Hour), day.Add(time.Hour)
	for _, end := range []time.Time{later, at} { // a key that ends tomorrow can be ended today
		if err := r.Revoke(t.Context(), k.Hash, end); err != nil || !revoked().Equal(end) {
			t.Errorf("%v, %v", err, revoked())
		}
	}
	if err := r.Revoke(t.Context(), k.Hash, later); !errors.Is(err, ErrKeyGone) || !revoked().Equal(at) {
		t.Errorf("%v, %v", err, revoked())
	}
	absent := newKey(2, tenant.Key{})
	if err := r.Revoke(t.Context(), absent.Hash, at); !errors.Is(err, ErrKeyGone) {
		t.Errorf("%v", err)
	}
	if _, found, _ := s.Find(t.Context(), absent.Hash); found {
		t.Error("revoking made a key")
	}
}

func TestAKeyIsChangedForAnotherWholeOrNotAtAll(t *testing.T) {
	r, _, s := keyring(t)
	old, next, other := newKey(1, tenant.Key{}), newKey(2, tenant.Key{Tenant: "tenant1"}), newKey(3, tenant.Key{})
	create(t, r, old)
	end := day.Add(time.Hour)
	if err := r.Rotate(t.Context(), old.Hash, end, next); err != nil {
		t.Fatal(err)
	}
	for _, k := range []tenant.Key{old, next} {
		got, found, err := s.Find(t.Context(), k.Hash)
		if err != nil || !found || got.Tenant != "tenant1" || got.RevokedBy(end) != (k.Hash == old.Hash) {
			t.Errorf("%+v, %v, %v", got, found, err)
		}
	}
	for name, hash := range map[string]tenant.Hash{"a revoked one": old.Hash, "none": newKey(9, tenant.Key{}).Hash} {
		if err := r.Rotate(t.Context(), hash, end.Add(time.Hour), other); !errors.Is(err, ErrKeyGone) {
			t.Errorf("%s: %v", name, err)
		}
		if _, found, _ := s.Find(t.Context(), other.Hash); found {
			t.Errorf("%s: a new key was made for it", name)
		}
	}
}

// The SDK repeats a call whose answer is lost, and is then told that its own write is in the way.
func TestALostAnswerOfAToolIsNoError(t *testing.T) {
	r, wire, s := keyring(t)
	k, next := newKey(1, tenant.Key{Label: "a"}), newKey(2, tenant.Key{})
	lose := func(op string, n int) ddbtest.Fault { return ddbtest.Fault{Lost: n == 1 && op != "GetItem"} }
	wire.Script(lose)
	create(t, r, k)
	if n := wire.Count("PutItem"); n != 2 {
		t.Errorf("%d writes: this shows nothing", n)
	}
	if err := r.Create(t.Context(), newKey(1, tenant.Key{Label: "another"})); err == nil {
		t.Error("a key was replaced")
	}
	wire.Script(lose)
	if err := r.Revoke(t.Context(), k.Hash, day); err != nil {
		t.Error(err)
	}
	create(t, r, next)
	wire.Script(lose)
	if err := r.Rotate(t.Context(), next.Hash, day, newKey(3, tenant.Key{})); err != nil {
		t.Error(err)
	}
	for n, revoked := range map[byte]bool{1: true, 2: true, 3: false} {
		if got, found, err := s.Find(context.Background(), newKey(n, tenant.Key{}).Hash); err != nil || !found || got.Revoked.IsZero() == revoked {
			t.Errorf("key %d: %+v, %v, %v", n, got, found, err)
		}
	}
}
