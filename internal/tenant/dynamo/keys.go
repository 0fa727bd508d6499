package dynamo

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/ddb"
	"vingate/internal/tenant"
)

// The attributes of a key's item, key#<SHA-256 of the key in hex>. Numbers of the plan that are 0 are left out.
const (
	keyPrefix       = "key#"
	attrTenant      = "tenant"
	attrLabel       = "label"
	attrRate        = "rate"
	attrBurst       = "burst"
	attrWeight      = "weight"
	attrInteractive = "interactive"
	attrBatch       = "batch"
	attrCreated     = "createdAt" // seconds since 1970
	attrRevoked     = "revokedAt" // likewise; absent: it is not
)

func keyItem(h tenant.Hash) item { return item{attrKey: text(keyPrefix + h.String())} }

// encodeKey is the whole item of a key.
func encodeKey(k tenant.Key) item {
	it := keyItem(k.Hash)
	it[attrTenant], it[attrLabel], it[attrCreated] = text(k.Tenant), text(k.Label), number(k.Created.Unix())
	for name, n := range map[string]int{attrBurst: k.Plan.Burst, attrWeight: k.Plan.Weight, attrInteractive: k.Plan.Interactive, attrBatch: k.Plan.Batch} {
		if n != 0 {
			it[name] = number(n)
		}
	}
	if r := k.Plan.RatePerSecond; r != 0 {
		it[attrRate] = &types.AttributeValueMemberN{Value: strconv.FormatFloat(r, 'f', -1, 64)}
	}
	if !k.Revoked.IsZero() {
		it[attrRevoked] = number(k.Revoked.Unix())
	}
	return it
}

// decodeKey is strict: a key that cannot be read whole lets nobody in.
func decodeKey(it item) (k tenant.Key, err error) {
	pk, _ := it[attrKey].(*types.AttributeValueMemberS)
	if pk == nil {
		return k, damaged("a key without a name")
	}
	digest, err := hex.DecodeString(strings.TrimPrefix(pk.Value, keyPrefix))
	if err != nil || len(digest) != len(k.Hash) {
		return k, damaged("a key whose name is no hash")
	}
	copy(k.Hash[:], digest)
	bad := func(name string) (tenant.Key, error) {
		return tenant.Key{}, damaged("the key %s has an unreadable %q", k.Hash.Prefix(), name)
	}
	for name, to := range map[string]*string{attrTenant: &k.Tenant, attrLabel: &k.Label} {
		v, ok := it[name].(*types.AttributeValueMemberS)
		if !ok || name == attrTenant && v.Value == "" {
			return bad(name)
		}
		*to = v.Value
	}
	for name, to := range map[string]*time.Time{attrCreated: &k.Created, attrRevoked: &k.Revoked} {
		v, there := it[name]
		if !there && name == attrRevoked {
			continue
		}
		at, ok := integer(v)
		if !ok {
			return bad(name)
		}
		*to = time.Unix(at, 0).UTC()
	}
	for name, to := range map[string]*int{attrBurst: &k.Plan.Burst, attrWeight: &k.Plan.Weight, attrInteractive: &k.Plan.Interactive, attrBatch: &k.Plan.Batch} {
		v, there := it[name]
		n, ok := integer(v)
		if there && !ok {
			return bad(name)
		}
		*to = int(n)
	}
	if v, there := it[attrRate]; there {
		n, ok := v.(*types.AttributeValueMemberN)
		if !ok {
			return bad(attrRate)
		}
		if k.Plan.RatePerSecond, err = strconv.ParseFloat(n.Value, 64); err != nil {
			return bad(attrRate)
		}
	}
	if faults := k.Plan.Validate(); len(faults) > 0 {
		return bad(faults[0].Knob)
	}
	return k, nil
}

// Find reads what is kept of a key. The read is strongly consistent: a key works as soon as it is shown to its owner.
func (s *Store) Find(ctx context.Context, h tenant.Hash) (key tenant.Key, found bool, err error) {
	err = patiently(ctx, func(ctx context.Context) (err error) {
		key, found, err = s.find(ctx, h)
		return err
	})
	if err != nil {
		return tenant.Key{}, false, fail(ctx, "find a key", err)
	}
	return key, found, nil
}

func (s *Store) find(ctx context.Context, h tenant.Hash) (key tenant.Key, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.attempt)
	defer cancel()
	out, err := s.Client.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String(s.Table), Key: keyItem(h), ConsistentRead: aws.Bool(true)}, once)
	if err != nil || out.Item == nil {
		return tenant.Key{}, false, err
	}
	if key, err = decodeKey(out.Item); err != nil {
		return tenant.Key{}, false, err
	}
	if subtle.ConstantTimeCompare(key.Hash[:], h[:]) != 1 {
		return tenant.Key{}, false, damaged("the table answered with another key")
	}
	return key, true, nil
}

// KeyClient is the part of *dynamodb.Client that changing keys needs.
type KeyClient interface {
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
	TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
}

// Keyring gives out and takes back API keys. It is for tools: patient, and repeated by the SDK.
type Keyring struct {
	Client KeyClient
	Table  string
}

// ErrKeyGone: the key that was to be changed is not there, or it is revoked already.
var ErrKeyGone = errors.New("there is no such key, or it is revoked already")

// Create puts a new key into the table.
func (r *Keyring) Create(ctx context.Context, k tenant.Key) error {
	it := encodeKey(k)
	_, err := r.Client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: aws.String(r.Table), Item: it,
		ConditionExpression:                 aws.String("attribute_not_exists(pk)"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) && reflect.DeepEqual(failed.Item, it) {
		return nil // the SDK asked twice, and this is our own
	}
	if err != nil {
		return fail(ctx, "create a key", err)
	}
	return nil
}

// page bounds one read of a scan, so that a tool never takes much of the table's capacity at once.
const page = 200

// List returns every key, the oldest first. Keys that cannot be read are left out and told of in the error.
func (r *Keyring) List(ctx context.Context) ([]tenant.Key, error) {
	var (
		keys []tenant.Key
		bad  []error
		next item
	)
	for {
		out, err := r.Client.Scan(ctx, &dynamodb.ScanInput{
			TableName: aws.String(r.Table), ConsistentRead: aws.Bool(true), Limit: aws.Int32(page), ExclusiveStartKey: next,
			FilterExpression: aws.String("begins_with(pk, :key)"), ExpressionAttributeValues: item{":key": text(keyPrefix)},
		})
		if err != nil {
			return nil, fail(ctx, "list the keys", err)
		}
		for _, it := range out.Items {
			if k, err := decodeKey(it); err == nil {
				keys = append(keys, k)
			} else {
				bad = append(bad, fail(ctx, "list the keys", err))
			}
		}
		if next = out.LastEvaluatedKey; len(next) == 0 {
			break
		}
	}
	slices.SortFunc(keys, func(a, b tenant.Key) int {
		return cmp.Or(a.Created.Compare(b.Created), slices.Compare(a.Hash[:], b.Hash[:]))
	})
	return keys, errors.Join(bad...)
}

// Usage is what each tenant with a key was charged on each of the last days, by tenant.
func (r *Keyring) Usage(ctx context.Context) (map[string]map[tenant.Day]int, error) {
	all := map[string]map[tenant.Day]int{}
	for next := item(nil); ; {
		out, err := r.Client.Scan(ctx, &dynamodb.ScanInput{
			TableName: aws.String(r.Table), Limit: aws.Int32(page), ExclusiveStartKey: next,
			FilterExpression:         aws.String("begins_with(pk, :tenant) AND attribute_not_exists(#x)"),
			ExpressionAttributeNames: map[string]string{"#x": attrExpires}, ExpressionAttributeValues: item{":tenant": text(tenantPrefix)},
		})
		if err != nil {
			return nil, fail(ctx, "read the usage", err)
		}
		for _, it := range out.Items {
			pk, _ := it[attrKey].(*types.AttributeValueMemberS)
			if usage := usageOf(it); pk != nil && usage != nil {
				all[strings.TrimPrefix(pk.Value, tenantPrefix)] = usage
			}
		}
		if next = out.LastEvaluatedKey; len(next) == 0 {
			return all, nil
		}
	}
}

// Revoke ends a key at a time, or earlier if it ends earlier already. ErrKeyGone: nothing was changed.
func (r *Keyring) Revoke(ctx context.Context, h tenant.Hash, at time.Time) error {
	_, err := r.Client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: aws.String(r.Table), Key: keyItem(h),
		UpdateExpression: aws.String("SET " + attrRevoked + " = :at"), ConditionExpression: aws.String(revocable),
		ExpressionAttributeValues:           item{":at": number(at.Unix())},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		if old, ok := integer(failed.Item[attrRevoked]); ok && old == at.Unix() {
			return nil // the SDK asked twice
		}
		return &Error{Op: "revoke a key", Fault: ddb.Contended, Err: ErrKeyGone}
	}
	if err != nil {
		return fail(ctx, "revoke a key", err)
	}
	return nil
}

const revocable = "attribute_exists(pk) AND (attribute_not_exists(" + attrRevoked + ") OR " + attrRevoked + " > :at)"

// Rotate puts a new key into the table and ends the old one at a time, both or neither. ErrKeyGone: nothing was changed.
func (r *Keyring) Rotate(ctx context.Context, old tenant.Hash, end time.Time, k tenant.Key) error {
	_, err := r.Client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
		{Put: &types.Put{TableName: aws.String(r.Table), Item: encodeKey(k), ConditionExpression: aws.String("attribute_not_exists(pk)")}},
		{Update: &types.Update{TableName: aws.String(r.Table), Key: keyItem(old),
			UpdateExpression: aws.String("SET " + attrRevoked + " = :at"), ConditionExpression: aws.String(revocable),
			ExpressionAttributeValues: item{":at": number(end.Unix())}}},
	}})
	var canceled *types.TransactionCanceledException
	if errors.As(err, &canceled) && slices.ContainsFunc(canceled.CancellationReasons, func(r types.CancellationReason) bool {
		return aws.ToString(r.Code) == "ConditionalCheckFailed"
	}) {
		return &Error{Op: "rotate a key", Fault: ddb.Contended, Err: ErrKeyGone}
	}
	if err != nil {
		return fail(ctx, "rotate a key", err)
	}
	return nil
}
