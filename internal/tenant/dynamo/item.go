package dynamo

import (
	"strconv"
	"strings"

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
	attrDay     = "d"       // and the number of a day: N: what was charged on it; with keys' tenants only
)

type item = map[string]types.AttributeValue

func number[N ~int | ~int64](n N) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(int64(n), 10)}
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

const tenantPrefix = "tenant#"

func accountKey(id string) item { return item{attrKey: text(tenantPrefix + id)} }

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
	a.Usage = usageOf(it)
	return a, nil
}

// usageOf reads what was charged on each day, nil for nothing. It decides nothing, so what cannot be read is left out.
func usageOf(it item) (usage map[tenant.Day]int) {
	for name, v := range it {
		number, is := strings.CutPrefix(name, attrDay)
		day, err := strconv.Atoi(number)
		n, ok := integer(v)
		if !is || err != nil || !ok {
			continue
		}
		if usage == nil {
			usage = map[tenant.Day]int{}
		}
		usage[tenant.Day(day)] = int(n)
	}
	return usage
}

func dayAttribute(d tenant.Day) string { return attrDay + strconv.Itoa(int(d)) }
