//go:build unix

package deploytest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/decode"
	"vingate/internal/devstack"
	"vingate/internal/edge"
	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"
	"vingate/internal/keeper"
	"vingate/internal/locallambda"
	"vingate/internal/logtest"
	"vingate/internal/observe"
	"vingate/internal/tables"
	"vingate/internal/tenant"
	tenants "vingate/internal/tenant/dynamo"
	"vingate/internal/vin"
)

// call is one request to DynamoDB, as it was on the wire.
type call struct {
	op, table, pk string
	attributes    string // that a Scan asks for
}

// desk stands between a function and the store: it notes every call, and can be closed.
type desk struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[call]int
	down  atomic.Bool
}

func newDesk(store string) *desk {
	d := &desk{calls: map[call]int{}}
	client := &http.Client{}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var in struct {
			TableName            string
			Key, Item            map[string]map[string]any
			ProjectionExpression string
			TransactItems        []map[string]struct {
				TableName string
				Key, Item map[string]map[string]any
			}
		}
		_ = json.Unmarshal(body, &in)
		c := call{op: r.Header.Get("X-Amz-Target"), table: in.TableName, attributes: in.ProjectionExpression}
		c.op = c.op[strings.LastIndex(c.op, ".")+1:]
		c.pk = leading(in.Key, in.Item)
		parts := []call{c}
		if c.op == "TransactWriteItems" { // it needs the rights of its parts
			parts = nil
			for _, item := range in.TransactItems {
				for op, part := range item {
					parts = append(parts, call{op: op + "Item", table: part.TableName, pk: leading(part.Key, part.Item)})
				}
			}
		}
		d.mu.Lock()
		for _, c := range parts {
			d.calls[c]++
		}
		d.mu.Unlock()
		if d.down.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		out, err := http.NewRequestWithContext(r.Context(), r.Method, store+r.URL.Path, bytes.NewReader(body))
		if err == nil {
			out.Header = r.Header
			var res *http.Response
			if res, err = client.Do(out); err == nil {
				defer res.Body.Close()
				for name, v := range res.Header {
					w.Header()[name] = v
				}
				w.WriteHeader(res.StatusCode)
				_, _ = io.Copy(w, res.Body)
				return
			}
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	return d
}

// leading is the key of whichever item is there, "" for none.
func leading(items ...map[string]map[string]any) string {
	for _, it := range items {
		if pk, ok := it[tables.Key]["S"].(string); ok {
			return pk
		}
	}
	return ""
}

// nhtsa answers for NHTSA, well or badly.
type nhtsa struct {
	*httptest.Server
	row  map[string]any
	mode atomic.Value // string
	busy atomic.Int64
}

func newNHTSA(t *testing.T) *nhtsa {
	t.Helper()
	var clean struct{ Results []map[string]any }
	if err := json.Unmarshal([]byte(read(t, "internal/vpic/testdata/clean.json")), &clean); err != nil {
		t.Fatal(err)
	}
	n := &nhtsa{row: clean.Results[0]}
	n.mode.Store("well")
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.busy.Add(1)
		defer n.busy.Add(-1)
		vins := []string{r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]}
		if r.Method == http.MethodPost {
			_ = r.ParseForm()
			vins = nil
			for _, line := range strings.Split(r.Form.Get("DATA"), ";") {
				if v, _, _ := strings.Cut(strings.TrimSpace(line), ","); v != "" {
					vins = append(vins, v)
				}
			}
		}
		switch n.mode.Load().(string) {
		case "throttles":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		case "fails":
			w.WriteHeader(http.StatusInternalServerError)
			return
		case "babbles":
			_, _ = io.WriteString(w, "<html>")
			return
		case "hangs":
			<-r.Context().Done()
			return
		case "slow", "brisk":
			took := 400 * time.Millisecond
			if n.mode.Load() == "brisk" {
				took = 40 * time.Millisecond
			}
			select {
			case <-r.Context().Done():
			case <-time.After(took):
			}
		}
		var rows []map[string]any
		for _, v := range vins {
			row := map[string]any{}
			for k, f := range n.row {
				row[k] = f
			}
			row["VIN"] = v
			rows = append(rows, row)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"Count": len(rows), "Message": "Results returned successfully", "SearchCriteria": "", "Results": rows})
	}))
	return n
}

// stack is both built functions with the template's variables, behind a front door.
type stack struct {
	t              *testing.T
	bin, home      string
	client         *dynamodb.Client
	decode, keeper *desk
	nhtsa          *nhtsa
	front, keep    *locallambda.Server
	gate           *dynamo.Store
	out            *logtest.Buffer
	serial         atomic.Int64
}

const (
	coordination = "CoordinationTable" // called as in the template, so that grants and calls can be compared
	resultsTable = "ResultsTable"
)

// newStack starts everything but the gate, which is the keeper's to make. extra is more of the functions' environment.
func newStack(t *testing.T, extra ...string) *stack {
	t.Helper()
	s := &stack{t: t, bin: bootstraps(t), home: t.TempDir(), out: &logtest.Buffer{}}
	store, err := devstack.StartStore(t.Context(), devstack.Options{Dynoxide: devstack.Find(".", os.Getenv).Dynoxide})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	s.client = store.Client
	if _, err := tables.Create(t.Context(), s.client, tables.Names{Coordination: coordination, Results: resultsTable}); err != nil {
		t.Fatal(err)
	}
	s.gate = devstack.NewGateStore(s.client, coordination)
	s.decode, s.keeper, s.nhtsa = newDesk(store.StoreURL), newDesk(store.StoreURL), newNHTSA(t)
	t.Cleanup(s.decode.Close)
	t.Cleanup(s.keeper.Close)
	t.Cleanup(s.nhtsa.CloseClientConnections)
	t.Cleanup(s.nhtsa.Close)
	tpl := theTemplate(t)
	s.front = s.lambda(tpl, "DecodeFunction", "decode", s.decode, 3, 16, extra...)
	s.keep = s.lambda(tpl, "KeeperFunction", "keeper", s.keeper, 1, 1, extra...)
	return s
}

// built is the folder of the functions as they are shipped, for this machine; with the race detector in them where the tests have it.
var built string

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(built)
	os.Exit(code)
}

func bootstraps(t *testing.T) string {
	t.Helper()
	if built != "" {
		return built
	}
	dir, err := os.MkdirTemp("", "deploytest")
	if err != nil {
		t.Fatal(err)
	}
	for _, fn := range []string{"decode", "keeper"} {
		args, cgo := []string{"build", "-tags", "lambda.norpc", "-o", filepath.Join(dir, fn), "vingate/functions/" + fn}, "0"
		if raced { // without the tag, so that what is compiled for the tests is used again
			args, cgo = []string{"build", "-race", "-o", filepath.Join(dir, fn), "vingate/functions/" + fn}, "1"
		}
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, b)
		}
	}
	built = dir
	return dir
}

// lambda runs a function with the template's own variables, but for those that would make the test long.
func (s *stack) lambda(tpl template, id, binary string, store *desk, instances, concurrency int, extra ...string) *locallambda.Server {
	s.t.Helper()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "AWS_REGION=us-east-1"}
	value := tpl.environment(id)
	for name := range tpl.variables(tpl.resources(serverlessFunction)[id]) {
		env = append(env, name+"="+value(name))
	}
	env = append(env, "AWS_ENDPOINT_URL_DYNAMODB="+store.URL, "UPSTREAM_URL="+s.nhtsa.URL+"/api/vehicles", "METRICS_NAMESPACE=vingate/test",
		"LEASE_TTL=2700ms", "UPSTREAM_TIMEOUT=800ms", "MAX_WAIT=300ms", "BULKHEAD_WAIT=150ms", "RATE_PER_SECOND=20", "RATE_BURST=60",
		"ANON_RATE_PER_SECOND=1000", "ANON_BURST=10000")
	env = append(env, extra...)
	l, err := locallambda.Start(s.t.Context(), locallambda.Options{Bootstrap: filepath.Join(s.bin, binary), Instances: instances, Concurrency: concurrency,
		Env: env, Log: s.out, FunctionName: id, Drain: time.Second,
		Sampled: slices.ContainsFunc(extra, func(v string) bool { return strings.HasPrefix(v, "AWS_XRAY_DAEMON_ADDRESS=") })})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = l.Close() })
	return l
}

// vin is one that nobody has asked for yet.
func (s *stack) vin() string {
	v := []byte(fmt.Sprintf("1HGCM82603A%06d", 200_000+s.serial.Add(1)))
	v[8], _ = vin.CheckDigit(string(v))
	return string(v)
}

// get asks, and returns the code of a refusal, "" for none.
func (s *stack) get(path, key string) string {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.front.URL()+path, nil)
	if err != nil {
		return err.Error()
	}
	if key != "" {
		req.Header.Set("X-Api-Key", key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	var p struct{ Code string }
	_ = json.NewDecoder(res.Body).Decode(&p)
	return p.Code
}

// atOnce asks for n new VINs together and returns the codes of the refusals.
func (s *stack) atOnce(n int) []string {
	codes := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		path := "/v1/vins/" + s.vin()
		wg.Go(func() { codes[i] = s.get(path, "") })
	}
	wg.Wait()
	return codes
}

// until asks for new VINs, some at once, until somebody is refused with a code.
func (s *stack) until(code string, atOnce int) {
	s.t.Helper()
	var seen []string
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); {
		codes := s.atOnce(atOnce)
		if slices.Contains(codes, code) {
			return
		}
		seen = append(seen, codes...)
	}
	s.t.Errorf("nobody was refused with %s, but with %v", code, seen)
}

// keepGate lets the keeper come.
func (s *stack) keepGate() {
	s.t.Helper()
	r, err := s.keep.Invoke(s.t.Context(), []byte(`{"source":"`+keeper.Source+`"}`))
	if err != nil || r.FunctionError != "" {
		s.t.Errorf("the keeper: %v %s", err, r.Payload)
	}
}

// tune changes numbers of the gate, and ends whatever holds it.
func (s *stack) tune(change func(*gate.Knobs)) {
	s.t.Helper()
	s.lift()
	i, err := s.gate.Inspect(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	k := i.State.Knobs
	k.MaxInFlight, k.MaxQueued, k.BulkheadAnon, k.RatePerSecond, k.Burst = 4, 24, 16, 20, 60
	change(&k)
	if _, err := s.gate.Tune(s.t.Context(), i.State.Version, k); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stack) lift() { _, _ = s.gate.Lift(s.t.Context(), true) }

// operated is what a day in the life of a stack leaves behind.
type operated struct {
	decode, keeper map[call]int
	lines          []map[string]any // of stdout, those that are JSON
	live, stored   use              // of one decode in a quiet hour
}

// use is what one request took.
type use struct {
	writes, reads float64 // DynamoDB's units
	logged        int     // bytes of its line
}

// used finds the requests from one source among lines of stdout, and returns the dearest.
func used(text, source string) (u use) {
	for line := range strings.Lines(text) {
		var l struct {
			Message, Source       string
			Shared                bool
			WriteUnits, ReadUnits float64
		}
		i := strings.IndexByte(line, '{')
		if i < 0 || json.Unmarshal([]byte(line[i:]), &l) != nil || l.Message != "request" || l.Source != source || l.Shared {
			continue
		}
		u = use{max(u.writes, l.WriteUnits), max(u.reads, l.ReadUnits), max(u.logged, len(line)-i)}
	}
	return u
}

// day is the one that was lived through.
var day operated

// operate runs the stack through everything an operator may meet. It is run once for all the tests that look at it.
func operate(t *testing.T) *operated {
	t.Helper()
	o := &day
	if o.lines != nil {
		return o
	}
	s := newStack(t)
	ctx := t.Context()

	// A deployment: no gate yet, then the keeper's.
	if code := s.get("/v1/vins/"+s.vin(), ""); code != string(decode.CoordinationDown) {
		t.Errorf("without a gate: %q", code)
	}
	s.keepGate()
	warm, err := s.front.Invoke(ctx, []byte(`{"source":"`+edge.WarmupSource+`"}`))
	if err != nil || string(warm.Payload) != `{"warm":true}` {
		t.Errorf("warm-up: %v %s", err, warm.Payload)
	}
	time.Sleep(1100 * time.Millisecond) // what is known of a table without a gate is over

	// A quiet hour: live, stored, shared, a key's, a list.
	first := "/v1/vins/" + s.vin()
	for range 2 {
		if code := s.get(first, ""); code != "" {
			t.Errorf("a decode: %s", code)
		}
	}
	for _, i := range s.front.Instances() {
		_ = s.front.Kill(ctx, i.ID)
	}
	if code := s.get(first, ""); code != "" { // another instance has it from the table
		t.Errorf("a stored answer: %s", code)
	}
	o.live, o.stored = used(s.out.String(), "nhtsa"), used(s.out.String(), "cache")
	s.nhtsa.mode.Store("slow")
	same := "/v1/vins/" + s.vin()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { s.get(same, "") })
	}
	wg.Wait()
	s.nhtsa.mode.Store("well")
	apiKey, hash := tenant.NewAPIKey([tenant.KeyEntropy]byte{1})
	ring := tenants.Keyring{Client: s.client, Table: coordination}
	if err := ring.Create(ctx, tenant.Key{Hash: hash, Tenant: "aaaaaaaaaaaa", Label: "test", Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if code := s.get("/v1/vins/"+s.vin(), apiKey); code != "" {
		t.Errorf("with a key: %s", code)
	}
	list, _ := json.Marshal(map[string]any{"vins": []string{s.vin(), s.vin(), "1HGCM82633A00435O"}})
	if res, err := http.Post(s.front.URL()+"/v1/vins", "application/json", bytes.NewReader(list)); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("a list: %v %v", err, res)
	}
	s.get("/v1/capacity", "")
	s.keepGate()

	// Crowds: too many places of one key, too long a line, no slot in time, no token.
	s.nhtsa.mode.Store("brisk") // so that who waits can be served in time, and one place is all there is
	s.tune(func(k *gate.Knobs) { k.MaxInFlight, k.MaxQueued = 1, 1 })
	s.until("DECODE_QUEUE_FULL", 8)
	s.nhtsa.mode.Store("slow")
	s.tune(func(k *gate.Knobs) { k.BulkheadAnon = 1 })
	s.until("BULKHEAD_TIMEOUT", 4)
	s.tune(func(k *gate.Knobs) { k.MaxInFlight = 1 })
	s.until("DECODE_WAIT_TIMEOUT", 4)
	s.nhtsa.mode.Store("well")
	s.tune(func(k *gate.Knobs) { k.RatePerSecond, k.Burst = 1, 4 })
	for range 4 { // of those who are sent away, one in twelve writes
		s.until("RATE_LIMITED", 12)
	}
	s.keepGate() // these numbers are not the environment's

	// NHTSA's bad days.
	s.tune(func(*gate.Knobs) {})
	s.nhtsa.mode.Store("babbles")
	s.until("UPSTREAM_BAD_RESPONSE", 1)
	s.nhtsa.mode.Store("hangs")
	s.until("UPSTREAM_TIMEOUT", 1)
	s.nhtsa.mode.Store("fails")
	s.until("UPSTREAM_UNAVAILABLE", 2)
	for range 8 {
		s.atOnce(1)
	}
	s.keepGate() // held by failing
	s.tune(func(*gate.Knobs) {})
	s.nhtsa.mode.Store("throttles")
	s.until("UPSTREAM_THROTTLED", 1)
	s.keepGate() // held by throttled
	s.lift()
	if _, err := s.gate.Pause(ctx, time.Minute); err != nil {
		t.Error(err)
	}
	s.keepGate() // held by an operator
	s.tune(func(*gate.Knobs) {})
	s.nhtsa.mode.Store("well")
	s.until("", 1)

	// An instance dies with a call under way, and the keeper finds what it held.
	s.nhtsa.mode.Store("hangs")
	lost := make(chan struct{})
	go func() { defer close(lost); s.get("/v1/vins/"+s.vin(), "") }()
	for deadline := time.Now().Add(5 * time.Second); s.nhtsa.busy.Load() == 0 && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	for _, i := range s.front.Instances() {
		if i.InFlight > 0 {
			_ = s.front.Kill(ctx, i.ID)
		}
	}
	<-lost
	s.nhtsa.mode.Store("well")
	time.Sleep(3 * time.Second)
	s.keepGate()

	// The table is down, then gone, then there again without its gate.
	s.decode.down.Store(true)
	s.until("COORDINATION_UNAVAILABLE", 1)
	s.decode.down.Store(false)
	if _, err := s.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: aws.String(coordination),
		Key: map[string]types.AttributeValue{tables.Key: &types.AttributeValueMemberS{Value: "gate#nhtsa"}}}); err != nil {
		t.Fatal(err)
	}
	s.keepGate() // made again, held while it starts
	_ = s.front.Close()
	_ = s.keep.Close()

	// A fault of ours cannot be provoked from outside: the same handler with a decoder that has one.
	faulty := edge.New(edge.Config{Decoder: defect{}, Callers: anybody{}, Metrics: observe.NewMetrics(s.out, "", "test", "vingate/test")})
	if _, err := faulty.Invoke(ctx, []byte(read(t, "events/decode.json"))); err != nil {
		t.Error(err)
	}

	if strings.Contains(s.out.String(), "DATA RACE") {
		t.Error("the race detector found something")
	}
	o.decode, o.keeper = s.decode.calls, s.keeper.calls
	for line := range strings.Lines(s.out.String()) {
		var l map[string]any
		if i := strings.IndexByte(line, '{'); i >= 0 && json.Unmarshal([]byte(line[i:]), &l) == nil {
			o.lines = append(o.lines, l)
		}
	}
	if t.Failed() {
		t.Logf("%s", s.out)
	}
	return o
}

type defect struct{ edge.Decoder }

func (defect) Decode(context.Context, decode.Request) (decode.Result, error) { panic("a defect") }

type anybody struct{}

func (anybody) Identify(context.Context, string, string) (tenant.Caller, error) {
	return tenant.Caller{ID: "aaaaaaaaaaaa", Anonymous: true}, nil
}
