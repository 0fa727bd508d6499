package dynamo

import (
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/gate"
	"vingate/internal/tenant"
)

// The attributes of a tenant's item. Short names: it is written with every admission.
const (
	attrKey     = "pk"      // tenant#<id>
	attrTAT     = "t"       // N: microseconds since gate.Epoch
	attrRecent  = "r"       // M: id of a charge -> N, when, in milliseconds
	attrExpires = "expires" // N: seconds since 1970; with anonymous tenants only
)

type item = map[string]types.AttributeValue

func number[N ~int | ~int64](n N) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(int64(n), 10)}
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func accountKey(id string) item { return item{attrKey: text("tenant#" + id)} }

// integer reads a number. ok is false when there is something else, or nothing.
func integer(v types.AttributeValue) (n int64, ok bool) {
	if v, is := v.(*types.AttributeValueMemberN); is {
		n, err := strconv.ParseInt(v.Value, 10, 64)
		return n, err == nil
	}
	return 0, false
}

// decode reads an account. No item is an account that has used nothing.
func decode(it item) (tenant.Account, error) {
	if it == nil {
		return tenant.Account{}, nil
	}
	a := tenant.Account{There: true, Recent: map[string]gate.Millis{}}
	tat, ok := integer(it[attrTAT])
	if !ok {
		return tenant.Account{}, damaged("an account's %q is no whole number", attrTAT)
	}
	a.TAT = gate.Micros(tat)
	recent, ok := it[attrRecent].(*types.AttributeValueMemberM)
	if !ok {
		return tenant.Account{}, damaged("an account's %q is no map", attrRecent)
	}
	for id, v := range recent.Value {
		at, ok := integer(v)
		if !ok {
			return tenant.Account{}, damaged("an account has a charge without its time")
		}
		a.Recent[id] = gate.Millis(at)
	}
	if v, there := it[attrExpires]; there {
		if a.Expires, ok = integer(v); !ok || a.Expires <= 0 {
			return tenant.Account{}, damaged("an account's %q is no time", attrExpires)
		}
	}
	return a, nil
}
