package dynamo

import (
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/gate"
)

// Encode is the item that a state is kept in, without the key "pk".
func Encode(s gate.State) map[string]types.AttributeValue {
	it := encode("", s)
	delete(it, attrKey)
	return it
}

// Decode is the state that an item keeps. It is strict: an item that cannot be understood whole is an error. Attributes that
// are none of the gate's are passed over.
func Decode(it map[string]types.AttributeValue) (gate.State, error) { return decode(it) }
