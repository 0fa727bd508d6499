package chaos

import (
	"encoding/json"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/gate/dynamo"
)

// writes reads what the proxy saw.
func writes(seen []Applied) ([]Write, error) {
	var out []Write
	for _, a := range seen {
		names, attributes, err := a.names()
		if err != nil {
			return nil, err
		}
		if len(attributes) == 0 {
			continue // asked for none: not a write of the gate's
		}
		item, err := attributesOf(attributes)
		if err != nil {
			return nil, err
		}
		state, err := dynamo.Decode(item)
		if err != nil {
			return nil, err
		}
		out = append(out, Write{Sent: a.Sent, At: a.At, Lost: a.Lost, Names: names, State: state})
	}
	return out, nil
}

// attributesOf reads DynamoDB's JSON, of the types that the gate's item has.
func attributesOf(in map[string]json.RawMessage) (map[string]types.AttributeValue, error) {
	out := make(map[string]types.AttributeValue, len(in))
	for name, raw := range in {
		var v struct {
			N  *string
			S  *string
			SS []string
			M  map[string]json.RawMessage
		}
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, fmt.Errorf("attribute %q: %w", name, err)
		}
		switch {
		case v.N != nil:
			out[name] = &types.AttributeValueMemberN{Value: *v.N}
		case v.S != nil:
			out[name] = &types.AttributeValueMemberS{Value: *v.S}
		case v.SS != nil:
			out[name] = &types.AttributeValueMemberSS{Value: v.SS}
		case v.M != nil:
			m, err := attributesOf(v.M)
			if err != nil {
				return nil, err
			}
			out[name] = &types.AttributeValueMemberM{Value: m}
		default:
			return nil, fmt.Errorf("attribute %q has a type that the gate's item does not: %s", name, raw)
		}
	}
	return out, nil
}
