package chaos

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// asJSON is DynamoDB's JSON of an item.
func asJSON(item map[string]types.AttributeValue) map[string]any {
	out := map[string]any{}
	for name, v := range item {
		switch v := v.(type) {
		case *types.AttributeValueMemberN:
			out[name] = map[string]any{"N": v.Value}
		case *types.AttributeValueMemberS:
			out[name] = map[string]any{"S": v.Value}
		case *types.AttributeValueMemberSS:
			out[name] = map[string]any{"SS": v.Value}
		case *types.AttributeValueMemberM:
			out[name] = map[string]any{"M": asJSON(v.Value)}
		}
	}
	return out
}

func TestTheProxyLosesAndThrottlesAndTakesDownWhatWasApplied(t *testing.T) {
	state := write(10, map[string]float64{"lease-1": 16}).State
	state.Places = map[gate.Place][]string{gate.Key{Route: gate.Interactive, Tenant: "t"}.Place(): {"lease-1"}}
	state.Tickets, state.Flows = map[string]gate.Ticket{}, map[gate.Flow]gate.Turn{}
	left, err := json.Marshal(map[string]any{"Attributes": asJSON(dynamo.Encode(state))})
	if err != nil {
		t.Fatal(err)
	}
	var applied atomic.Int32
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		applied.Add(1)
		_, _ = w.Write(left)
	}))
	defer store.Close()
	p, err := StartProxy(store.URL, "gate#x", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	call := func(op, body string) (int, string, error) {
		req, _ := http.NewRequest("POST", "http://"+p.Addr(), strings.NewReader(body))
		req.Header.Set("X-Amz-Target", "DynamoDB_20120810."+op)
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			return 0, "", err
		}
		defer func() { _ = res.Body.Close() }()
		said, err := io.ReadAll(res.Body)
		return res.StatusCode, string(said), err
	}
	const update = `{"Key":{"pk":{"S":"gate#x"}},"ExpressionAttributeNames":{"#l":"lease-1"},"ExpressionAttributeValues":{":s":{"SS":["lease-2"]},":n":{"N":"1"}}}`

	if status, said, err := call("UpdateItem", update); err != nil || status != 200 || said != string(left) {
		t.Errorf("a plain call: %d %s %v", status, said, err)
	}
	_, _, _ = call("GetItem", update)
	_, _, _ = call("UpdateItem", `{"Key":{"pk":{"S":"tenant#x"}}}`)
	p.Lose(1)
	if _, _, err := call("UpdateItem", update); err == nil {
		t.Error("an answer that was to be lost came")
	}
	p.Lose(0)
	p.Throttle(1)
	if status, said, err := call("UpdateItem", update); err != nil || status != 400 || !strings.Contains(said, "#ProvisionedThroughputExceededException") {
		t.Errorf("throttled: %d %s %v", status, said, err)
	}
	p.Throttle(0)
	if n := applied.Load(); n != 4 {
		t.Errorf("the store applied %d calls, want 4: the lost one too, the throttled one not", n)
	}
	seen := p.Take()
	if len(seen) != 2 || len(p.Take()) != 0 || seen[0].Lost || !seen[1].Lost {
		t.Fatalf("%d calls taken down: %+v", len(seen), seen)
	}
	w, err := writes(seen)
	if err != nil {
		t.Fatal(err)
	}
	w[0].State.Owned = nil // an empty set is none
	if !reflect.DeepEqual(w[0].State, state) {
		t.Errorf("the state that was left\n%+v, want\n%+v", w[0].State, state)
	}
	if !slices.Contains(w[0].Names, "lease-1") || !slices.Contains(w[0].Names, "lease-2") || slices.Contains(w[0].Names, "1") {
		t.Errorf("names %v", w[0].Names)
	}
}

func TestAnItemThatIsNoGatesIsAnError(t *testing.T) {
	for _, answer := range []string{`{`, `{"Attributes":{"L":{"BOOL":true}}}`, `{"Attributes":{"L":{"N":"1"}}}`, `{"Attributes":{"l":{"M":{"x":{"B":"AA=="}}}}}`} {
		if _, err := writes([]Applied{{Request: []byte(`{}`), Response: []byte(answer)}}); err == nil {
			t.Errorf("%s was taken", answer)
		}
	}
	if _, err := writes([]Applied{{Request: []byte(`[]`), Response: []byte(`{}`)}}); err == nil {
		t.Error("a request that is none was taken")
	}
}
