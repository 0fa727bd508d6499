package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/config"
	"vingate/internal/decode"
	"vingate/internal/gate"
	"vingate/internal/logtest"
	"vingate/internal/results"
	"vingate/internal/tenant"
	"vingate/internal/vpic"
)

const (
	accord  = "1HGCM82633A004352"
	pickup  = "1FTMW1T88MFA00001"
	suv     = "5UXWX7C5*BA"
	address = "198.51.100.77"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 123e6, time.UTC)

// row is NHTSA's row for the car, cut to a dozen fields.
func row(changes map[string]string) map[string]string {
	r := map[string]string{"BodyClass": "Coupe", "BusType": "Not Applicable", "Doors": "2", "ErrorCode": "0",
		"ErrorText": "0 - VIN decoded clean. Check Digit (9th position) is correct", "Make": "HONDA", "Manufacturer": "AMERICAN HONDA MOTOR CO., INC.",
		"Model": "Accord", "ModelYear": "2003", "Note": "Trim: <EX> & \"V6\"", "SuggestedVIN": "", "Turbo": "", "VIN": accord, "VehicleType": "PASSENGER CAR "}
	maps.Copy(r, changes)
	return r
}

// envelope has NHTSA's order of keys, and its characters as they are.
func envelope(criteria string, rows ...map[string]string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(struct {
		Count          int
		Message        string
		SearchCriteria string
		Results        []map[string]string
	}{len(rows), "Results returned successfully.", criteria, rows})
	if err != nil {
		panic(err)
	}
	return bytes.TrimSpace(b.Bytes())
}

// edgeOf is a handler over the real lanes. The shared budget, NHTSA and the results table are played.
type edgeOf struct {
	*Handler
	mu       sync.Mutex
	spent    int // tokens
	calls    int
	items    map[string]map[string]types.AttributeValue
	log      logtest.Buffer
	upstream func(vpic.Query) (map[string]string, error) // row of the answer
	batched  [][]vpic.Query                              // batch calls
	gate     func() (*gate.Refusal, error)
	view     func() (gate.View, error)
	prime    func(context.Context) error
	table    error // what every call of the results table brings
	look     func() (*tenant.Refusal, error)
	charges  []string // tenants
	keys     map[tenant.Hash]tenant.Key
	keysDown error
}

// Keys that somebody was given.
var (
	goodKey, goodHash       = tenant.NewAPIKey([tenant.KeyEntropy]byte{1})
	revokedKey, revokedHash = tenant.NewAPIKey([tenant.KeyEntropy]byte{2})
	forgedKey, _            = tenant.NewAPIKey([tenant.KeyEntropy]byte{3})
)

// bubble runs f at noon of a day on which no time passes by itself.
func bubble(t *testing.T, f func(*testing.T, *edgeOf)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(noon))
		f(t, play(t, nil))
	})
}

// play makes a handler. Where NHTSA is nil, it is played too.
func play(t *testing.T, nhtsa decode.Upstream) *edgeOf {
	t.Helper()
	e := &edgeOf{items: map[string]map[string]types.AttributeValue{}}
	if nhtsa == nil {
		nhtsa = (*playedUpstream)(e)
	}
	e.upstream = func(q vpic.Query) (map[string]string, error) {
		time.Sleep(412 * time.Millisecond)
		return row(map[string]string{"VIN": q.VIN}), nil
	}
	e.gate = func() (*gate.Refusal, error) { time.Sleep(3 * time.Millisecond); return nil, nil }
	e.view = func() (gate.View, error) {
		return gate.View{Limit: 4, Knobs: gate.Knobs{MaxInFlight: 4, Burst: 10, RatePerSecond: 2}, InFlight: 1, Tokens: 6, NextToken: 130 * time.Millisecond, Queued: 0, KnobsVersion: 3, ReadAt: noon}, nil
	}
	e.prime = func(context.Context) error { return nil }
	e.look = func() (*tenant.Refusal, error) { return nil, nil }
	e.keys = map[tenant.Hash]tenant.Key{
		goodHash:    {Hash: goodHash, Tenant: "abcdefghijkl"},
		revokedHash: {Hash: revokedHash, Tenant: "mnopqrstuvwx", Revoked: noon},
	}
	callers, err := tenant.New(tenant.Config{HashKey: []byte("0123456789abcdef"), Keys: (*playedKeys)(e),
		Keyed: tenant.Plan{RatePerSecond: 1, Burst: 20}, Anonymous: tenant.Plan{RatePerSecond: 1, Burst: 20}})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewJSONHandler(&e.log, nil))
	service := decode.New(decode.Config{
		Gate: (*playedGate)(e), Tenants: (*playedTenants)(e), Upstream: nhtsa,
		Results:      results.New(results.Config{Client: (*playedTable)(e), Table: "results", Lives: results.Lives{Hard: 720 * time.Hour, Soft: 168 * time.Hour, Negative: 24 * time.Hour}}),
		MaxWaitBatch: 15 * time.Second, UpstreamTimeout: 10 * time.Second, RequestDeadline: 27 * time.Second, AfterCall: config.AfterCall, Log: log,
	})
	e.Handler = New(Config{Decoder: service, Gate: (*playedGate)(e), Callers: callers, Rates: (*playedTenants)(e), Version: "1.2.3", Memory: 1 << 20, Log: log})
	return e
}

type playedGate edgeOf

func (g *playedGate) Foresee(context.Context, *gate.Request) (*gate.Refusal, error) { return nil, nil }

func (g *playedGate) Acquire(_ context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
	refusal, err := g.gate()
	if refusal != nil || err != nil {
		return nil, refusal, err
	}
	g.mu.Lock()
	g.spent += r.Cost
	g.mu.Unlock()
	now := time.Now().Round(0)
	return &gate.Lease{ID: "lease", Key: r.Key, Granted: now, StartBy: now.Add(250 * time.Millisecond), CallBy: now.Add(13500 * time.Millisecond), End: now.Add(15 * time.Second)}, nil, nil
}
func (g *playedGate) Release(context.Context, *gate.Lease, gate.Outcome) error { return nil }
func (g *playedGate) View(context.Context) (gate.View, error)                  { return g.view() }
func (g *playedGate) Seen() (gate.View, bool) {
	v, err := g.view()
	return v, err == nil
}
func (g *playedGate) Prime(ctx context.Context) error { return g.prime(ctx) }

type playedTenants edgeOf

func (p *playedTenants) Look(context.Context, tenant.Caller, int) (*tenant.Refusal, error) {
	return p.look()
}

func (p *playedTenants) Left(tenant.Caller) (int, time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r, _ := p.look(); r != nil {
		return 0, r.RetryAfter - 600*time.Millisecond, true
	}
	return 20 - len(p.charges), 700 * time.Millisecond, true
}

func (p *playedTenants) Charge(_ context.Context, c tenant.Caller, _ string, _ int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.charges = append(p.charges, c.ID)
	return nil
}

type playedKeys edgeOf

func (p *playedKeys) Find(_ context.Context, h tenant.Hash) (tenant.Key, bool, error) {
	if p.keysDown != nil {
		time.Sleep(500 * time.Millisecond)
		return tenant.Key{}, false, p.keysDown
	}
	k, ok := p.keys[h]
	return k, ok, nil
}

type playedUpstream edgeOf

func (u *playedUpstream) Decode(_ context.Context, q vpic.Query) (vpic.Answer, error) {
	u.mu.Lock()
	u.calls++
	u.mu.Unlock()
	began := time.Now()
	r, err := u.upstream(q)
	if err != nil {
		return vpic.Answer{}, err
	}
	a, err := vpic.Read(envelope("VIN(s): "+q.VIN, r), q)
	a.FetchedAt, a.Took = time.Now(), time.Since(began)
	return a, err
}

func (u *playedUpstream) DecodeBatch(_ context.Context, qs []vpic.Query) (vpic.BatchAnswer, error) {
	u.mu.Lock()
	u.calls++
	u.batched = append(u.batched, qs)
	u.mu.Unlock()
	began := time.Now()
	var rows []map[string]string
	for _, q := range qs {
		r, err := u.upstream(q)
		var lost *vpic.Error
		switch {
		case errors.As(err, &lost) && lost.Kind == vpic.BadResponse && len(qs) > 1: // of this VIN alone
		case err != nil:
			return vpic.BatchAnswer{}, err
		default:
			rows = append(rows, r)
		}
	}
	all, err := vpic.ReadBatch(envelope("", rows...), qs)
	all.FetchedAt, all.Took = time.Now(), time.Since(began)
	return all, err
}

type playedTable edgeOf

func (p *playedTable) GetItem(_ context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.table != nil {
		return nil, p.table
	}
	return &dynamodb.GetItemOutput{Item: p.items[in.Key["pk"].(*types.AttributeValueMemberS).Value]}, nil
}

// UpdateItem takes every condition for met: in these tests nobody else is there.
func (p *playedTable) UpdateItem(_ context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.table != nil {
		return nil, p.table
	}
	key := in.Key["pk"].(*types.AttributeValueMemberS).Value
	item := maps.Clone(p.items[key])
	if item == nil {
		item = maps.Clone(in.Key)
	}
	set, remove, _ := strings.Cut(strings.TrimPrefix(*in.UpdateExpression, "SET "), "REMOVE ")
	for clause := range strings.SplitSeq(set, ", ") {
		if name, value, ok := strings.Cut(strings.TrimSpace(clause), " = "); ok {
			item[in.ExpressionAttributeNames[name]] = in.ExpressionAttributeValues[value]
		}
	}
	for name := range strings.SplitSeq(remove, ", ") {
		delete(item, in.ExpressionAttributeNames[name])
	}
	p.items[key] = item
	return &dynamodb.UpdateItemOutput{}, nil
}

// http is a request as API Gateway hands it over.
type httpRequest struct {
	method, path, query string
	header              map[string]string
	stage               string
	version             string
	body                string
	base64              bool
}

func (r httpRequest) payload() []byte {
	e := events.APIGatewayV2HTTPRequest{Version: r.version, RouteKey: "$default", RawPath: r.path, RawQueryString: r.query, Headers: r.header}
	e.Body, e.IsBase64Encoded = r.body, r.base64
	if e.Version == "" {
		e.Version = "2.0"
	}
	e.RequestContext.Stage = r.stage
	if r.stage == "" {
		e.RequestContext.Stage = "$default"
	}
	e.RequestContext.RequestID = "JKJaXmPLvHcESHA="
	e.RequestContext.HTTP.Method, e.RequestContext.HTTP.Path, e.RequestContext.HTTP.SourceIP = r.method, r.path, address
	if r.method == "" {
		e.RequestContext.HTTP.Method = "GET"
	}
	b, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return b
}

// httpResponse is what API Gateway makes of the handler's answer.
type httpResponse struct {
	StatusCode int               `json:"statusCode"`
	Headers    map[string]string `json:"headers"`
	Body       string            `json:"body"`
	Binary     bool              `json:"isBase64Encoded"`
}

// do sends a request through the handler.
func (e *edgeOf) do(t *testing.T, r httpRequest) httpResponse {
	t.Helper()
	return e.invoke(t, r.payload())
}

func (e *edgeOf) invoke(t *testing.T, payload []byte) httpResponse {
	t.Helper()
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "8476a536-e9f4-11e8-9739-2dfe598c3fcd"})
	ctx, cancel := context.WithTimeout(ctx, 29*time.Second)
	defer cancel()
	out, err := e.Invoke(ctx, payload)
	if err != nil {
		t.Fatalf("Invoke: %v", err)
	}
	var res httpResponse
	d := json.NewDecoder(bytes.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&res); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return res
}

// String is the response as it stands in a golden file.
func (r httpResponse) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n", r.StatusCode)
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		fmt.Fprintf(&b, "%s: %s\n", name, r.Headers[name])
	}
	fmt.Fprintf(&b, "\n%s", r.Body)
	return b.String()
}

var errDown = errors.New("dial tcp 10.0.0.1:443: connection refused")

type quietGate struct{}

func (quietGate) View(context.Context) (gate.View, error) {
	return gate.View{Knobs: gate.Knobs{MaxInFlight: 4, RatePerSecond: 2, Burst: 10}}, nil
}
func (quietGate) Seen() (gate.View, bool)     { return gate.View{}, false }
func (quietGate) Prime(context.Context) error { return nil }

type anybody struct{}

func (anybody) Identify(context.Context, string, string) (tenant.Caller, error) {
	return tenant.Caller{ID: "x"}, nil
}
