package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"vingate/internal/decode"
	"vingate/internal/observe"
	"vingate/internal/tenant"
)

// lister answers a list with what it has.
type lister struct {
	Decoder
	items []decode.Item
}

func (l lister) DecodeBatch(context.Context, decode.BatchRequest) ([]decode.Item, error) {
	return l.items, nil
}

type asCaller tenant.Caller

func (c asCaller) Identify(context.Context, string, string) (tenant.Caller, error) {
	return tenant.Caller(c), nil
}

// A line of metrics has one value of each dimension, so a list that is refused with several codes is told in several lines, and each VIN is
// counted once.
func TestAListsRefusalsAreCountedByTheirCodes(t *testing.T) {
	var out bytes.Buffer
	refused := func(code decode.Code) decode.Item { return decode.Item{Refusal: &decode.Refusal{Code: code}} }
	h := New(Config{Decoder: lister{items: []decode.Item{refused(decode.VINInvalid), refused(decode.UpstreamTimeout), refused(decode.VINInvalid)}},
		Callers: asCaller{ID: "aaaaaaaaaaaa"}, Metrics: observe.NewMetrics(&out, "", "test", "vingate/test")})
	const event = `{"version":"2.0","rawPath":"/v1/vins","headers":{"content-type":"application/json"},"body":"{\"vins\":[\"1\",\"2\",\"3\"]}",` +
		`"requestContext":{"requestId":"r","stage":"$default","http":{"method":"POST","path":"/v1/vins","sourceIp":"192.0.2.1"}}}`
	if _, err := h.Invoke(t.Context(), []byte(event)); err != nil {
		t.Fatal(err)
	}
	refusals, requests := map[string]float64{}, 0.0
	for line := range strings.Lines(out.String()) {
		var l struct {
			Code, Route, Class string
			Refusals, Requests float64
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		refusals[l.Code] += l.Refusals
		requests += l.Requests
		if l.Route != "/v1/vins" || l.Requests > 0 && l.Class != "key" {
			t.Errorf("%s", line)
		}
	}
	if requests != 1 || len(refusals) != 2 || refusals["VIN_INVALID"] != 2 || refusals["UPSTREAM_TIMEOUT"] != 1 {
		t.Errorf("%v requests, refused %v\n%s", requests, refusals, &out)
	}
}
