package edge

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"pgregory.net/rapid"

	"vingate/internal/config"
	"vingate/internal/decode"
	"vingate/internal/observe"
	"vingate/internal/results"
	"vingate/internal/tenant"
	"vingate/internal/vpic"
)

// full is NHTSA's row for the car with every field that NHTSA has, most of them empty as they are there.
func full() map[string]string {
	r := map[string]string{}
	for _, g := range vpic.Groups() {
		for _, f := range g.Fields {
			r[f.Name] = ""
		}
	}
	for key, text := range row(map[string]string{
		"ABS": "Standard", "AirBagLocFront": "1st Row (Driver and Passenger)", "AirBagLocSide": "1st Row (Driver and Passenger)", "AirBagLocCurtain": "All Rows",
		"BusFloorConfigType": "Not Applicable", "CustomMotorcycleType": "Not Applicable", "DisplacementCC": "2998.832712", "DisplacementCI": "183", "DisplacementL": "2.998832712",
		"EngineConfiguration": "V-Shaped", "EngineCylinders": "6", "EngineHP": "240", "EngineKW": "178.9680", "EngineManufacturer": "Honda", "EngineModel": "J30A4",
		"FuelTypePrimary": "Gasoline", "GVWR": "Class 1C: 4,001 - 5,000 lb (1,814 - 2,268 kg)", "MakeID": "474", "ManufacturerId": "988", "ModelID": "1861",
		"MotorcycleChassisType": "Not Applicable", "MotorcycleSuspensionType": "Not Applicable", "NCSABodyType": "2-door sedan,hardtop,coupe", "NCSAMake": "Honda", "NCSAModel": "Accord",
		"OtherEngineInfo": "Three-way catalytic converter (TWC) / Closed loop fuel system", "PlantCity": "MARYSVILLE", "PlantCompanyName": "Honda of America Mfg., Inc.",
		"OtherRestraintSystemInfo": "Seat Belt (Front center, rear center and rear outboard): lap and shoulder / pretensioners in front", "PlantCountry": "UNITED STATES (USA)",
		"PlantState": "OHIO", "Pretensioner": "Standard", "SeatBeltsAll": "Manual", "Seats": "5", "SeatRows": "2", "Series": "Base", "SteeringLocation": "Left-Hand Drive (LHD)",
		"TPMS": "Indirect", "TractionControl": "Optional", "TrailerBodyType": "Not Applicable", "TrailerType": "Not Applicable", "TransmissionSpeeds": "5",
		"TransmissionStyle": "Automatic", "Trim": "EX-V6", "ValveTrainDesign": "Single Overhead Cam (SOHC)", "VehicleDescriptor": "1HGCM826*3A", "WheelBaseShort": "105.1",
		"WheelSizeFront": "17", "WheelSizeRear": "17", "Wheels": "4",
	}) {
		r[key] = text
	}
	return r
}

// hot is a handler as the function has it, which holds the car's answer in memory, and one invocation that asks for it. Its table cannot be
// reached, nor NHTSA.
func hot(t testing.TB) (invoke func() []byte) {
	t.Helper()
	e := &edgeOf{table: errDown}
	callers, err := tenant.New(tenant.Config{HashKey: []byte("0123456789abcdef"), Keys: (*playedKeys)(e),
		Keyed: tenant.Plan{RatePerSecond: 1, Burst: 20}, Anonymous: tenant.Plan{RatePerSecond: 1, Burst: 20}})
	if err != nil {
		t.Fatal(err)
	}
	q := vpic.Query{VIN: accord}
	store := results.New(results.Config{Client: (*playedTable)(e), Table: "results", Memory: 16 << 20,
		Lives: results.Lives{Hard: 720 * time.Hour, Soft: 168 * time.Hour, Negative: 24 * time.Hour}, Down: func() bool { return true }})
	a, err := vpic.Read(envelope("VIN(s): "+accord, full()), q)
	if err != nil {
		t.Fatal(err)
	}
	a.FetchedAt = time.Now().Add(-time.Minute)
	_, _ = store.Land(t.Context(), nil, a) // the table is down, so it is kept in memory alone
	service := decode.New(decode.Config{Gate: (*playedGate)(e), Tenants: (*playedTenants)(e), Upstream: (*playedUpstream)(e), Results: store,
		UpstreamTimeout: 10 * time.Second, RequestDeadline: 27 * time.Second, AfterCall: config.AfterCall})
	h := New(Config{Decoder: service, Gate: (*playedGate)(e), Callers: callers, Rates: (*playedTenants)(e), Version: "1.2.3", Memory: 16 << 20,
		Metrics: observe.NewMetrics(io.Discard, "INFO", "1.2.3", "vingate")})
	payload := gatewayEvent(t)
	return func() []byte {
		ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "8476a536-e9f4-11e8-9739-2dfe598c3fcd"})
		ctx, cancel := context.WithTimeout(ctx, 29*time.Second)
		defer cancel()
		out, err := h.Invoke(ctx, payload)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}

// gatewayEvent is an event as API Gateway sends it for a browser's request.
func gatewayEvent(t testing.TB) []byte {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"version": "2.0", "routeKey": "$default", "rawPath": "/v1/vins/" + accord, "rawQueryString": "",
		"headers": map[string]string{
			"accept": "application/json, text/plain, */*", "accept-encoding": "gzip, deflate, br", "accept-language": "en-US,en;q=0.9", "content-length": "0",
			"host": "abcdefghij.execute-api.us-east-1.amazonaws.com", "user-agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
			"x-amzn-trace-id": "Root=1-5759e988-bd862e3fe1be46a994272793", "x-forwarded-for": address, "x-forwarded-port": "443", "x-forwarded-proto": "https",
		},
		"requestContext": map[string]any{
			"accountId": "123456789012", "apiId": "abcdefghij", "domainName": "abcdefghij.execute-api.us-east-1.amazonaws.com", "domainPrefix": "abcdefghij",
			"http":      map[string]string{"method": "GET", "path": "/v1/vins/" + accord, "protocol": "HTTP/1.1", "sourceIp": address, "userAgent": "Mozilla/5.0"},
			"requestId": "JKJaXmPLvHcESHA=", "routeKey": "$default", "stage": "$default", "time": "01/Jun/2026:12:00:00 +0000", "timeEpoch": 1780315200123,
		},
		"isBase64Encoded": false,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// An answer in memory costs no call and no rendering. To render it takes 1,100 allocations more.
func TestAnAnswerInMemoryIsReady(t *testing.T) {
	const most = 280
	invoke := hot(t)
	if out := invoke(); !bytes.Contains(out, []byte(`"statusCode":200`)) { // and makes it ready
		t.Fatalf("%s", out)
	}
	if n := testing.AllocsPerRun(200, func() { invoke() }); n > most {
		t.Errorf("%.0f allocations, want at most %d", n, most)
	} else {
		t.Logf("%.0f allocations", n)
	}
}

func TestWhatIsReadyReadsAsIfMadeForTheRequest(t *testing.T) {
	for _, path := range []string{
		"/v1/vins/" + accord, "/v1/vins/" + strings.ToLower(accord), "/v1/vins/%20" + accord,
		"/api/vehicles/DecodeVinValues/" + accord, "/api/vehicles/DecodeVinValues/" + strings.ToLower(accord), "/api/vehicles/DecodeVinValuesExtended/" + accord,
	} {
		for _, accept := range []string{"", "gzip"} {
			t.Run(path+" "+accept, func(t *testing.T) {
				bubble(t, func(t *testing.T, e *edgeOf) {
					e.upstream = func(q vpic.Query) (map[string]string, error) { return full(), nil }
					get := httpRequest{path: path, query: "format=json", header: map[string]string{"accept-encoding": accept}}
					anew := &edgeOf{Handler: New(e.Config)}
					anew.Memory = 0
					e.do(t, get) // live
					for age := range 3 {
						got, want := e.do(t, get), anew.do(t, get)
						if got.Binary {
							got.Body, want.Body = unzipped(t, got.Body), unzipped(t, want.Body)
						}
						if got.String() != want.String() {
							t.Errorf("got\n%s\nwant\n%s", got, want)
						}
						if got.Headers["Age"] != fmt.Sprint(age) {
							t.Errorf("aged %s after %d s", got.Headers["Age"], age)
						}
						time.Sleep(time.Second)
					}
				})
			})
		}
	}
}

// Whoever asks for whatever in whatever order, with little room for what is ready and answers that grow old and are replaced: each body is what an
// instance without any memory would make of the table.
func TestWhoeverAsksForWhateverWhatIsReadyIsHis(t *testing.T) {
	const seed, steps = 20261202, 300
	bubble(t, func(t *testing.T, e *edgeOf) {
		rng := rand.New(rand.NewPCG(seed, 1))
		fetched := 0
		e.upstream = func(q vpic.Query) (map[string]string, error) {
			fetched++
			r := full()
			r["VIN"], r["ModelYear"], r["Trim"] = q.VIN, fmt.Sprint(max(q.ModelYear, 2001)), fmt.Sprintf("T%d <%s>", fetched, strings.Repeat("x", rng.IntN(500)))
			return r, nil
		}
		lives := results.Lives{Hard: 720 * time.Hour, Soft: 168 * time.Hour, Negative: 24 * time.Hour}
		handler := func(kept, ready int64) *edgeOf {
			cfg := e.Config
			cfg.Memory = ready
			cfg.Decoder = decode.New(decode.Config{Gate: (*playedGate)(e), Tenants: (*playedTenants)(e), Upstream: (*playedUpstream)(e),
				Results:         results.New(results.Config{Client: (*playedTable)(e), Table: "results", Memory: kept, Lives: lives}),
				UpstreamTimeout: 10 * time.Second, RequestDeadline: 27 * time.Second, AfterCall: config.AfterCall})
			return &edgeOf{Handler: New(cfg)}
		}
		hot, cold := handler(256<<10, 400<<10), handler(0, 0)
		pick := func(list ...string) string { return list[rng.IntN(len(list))] }
		tag := "none"
		for n := range steps {
			vin := pick(accord, "1HGCM82633A004353", "5UXWX7C5*BA")
			if rng.IntN(3) == 0 {
				vin = strings.ToLower(vin)
			}
			get := httpRequest{method: pick("GET", "GET", "GET", "HEAD"), path: pick("/v1/vins/", "/v1/vins/%20", "/api/vehicles/DecodeVinValues/", "/api/vehicles/DecodeVinValuesExtended/") + vin,
				query:  "format=json&modelYear=" + pick("", "2003", "2004"),
				header: map[string]string{"Accept-Encoding": pick("", "gzip", "gzip;q=0, *", "br, *"), "If-None-Match": pick("", "", tag, `"x", `+tag, "*")}}
			if strings.HasPrefix(get.path, "/api/") {
				get.query = strings.ToLower(get.query)
			}
			ask := get
			ask.method, ask.header = "GET", nil
			hot.do(t, ask) // asked, stored, refreshed, or stored already
			got, want := hot.do(t, get), cold.do(t, get)
			if got.StatusCode == 200 {
				tag = got.Headers["ETag"]
			}
			if got.Binary {
				got.Body, want.Body = unzipped(t, got.Body), unzipped(t, want.Body)
			}
			if got.String() != want.String() || got.StatusCode != 200 && got.StatusCode != 304 {
				t.Fatalf("seed %d, step %d, %+v: got\n%s\nwant\n%s", seed, n, get, got, want)
			}
			if rng.IntN(10) == 0 {
				time.Sleep(time.Duration(rng.Int64N(int64(200 * time.Hour))))
			} else {
				time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second))))
			}
		}
		if hot.ready.Len() == 0 || fetched < 60 {
			t.Errorf("%d are ready, %d were fetched: too little has happened", hot.ready.Len(), fetched)
		}
	})
}

func TestANewerAnswerIsNotShownAsTheOlderWas(t *testing.T) {
	bubble(t, func(t *testing.T, e *edgeOf) {
		trim := "EX"
		e.upstream = func(q vpic.Query) (map[string]string, error) { return row(map[string]string{"Trim": trim}), nil }
		get := httpRequest{path: "/v1/vins/" + accord}
		for _, trim = range []string{"EX", "LX"} {
			e.do(t, get)
			if res := e.do(t, get); !strings.Contains(res.Body, `"Trim":"`+trim+`"`) || res.Headers["Age"] != "0" {
				t.Errorf("want trim %s: %s", trim, res)
			}
			time.Sleep(800 * time.Hour) // past its end
		}
	})
}

func TestProperty_PartsAreOneMemberOfGzip(t *testing.T) {
	h := New(Config{})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.Byte(), 0, 5000)
		plain := text.Draw(t, "ready")
		p := parts{before: text.Draw(t, "before"), after: text.Draw(t, "after"), ready: &ready{plain, h.deflated(plain)}}
		body := slices.Concat(p.before, p.ready.plain, p.after)
		zipped, ok := p.gzipped(body)
		if !ok {
			t.Fatal("not zipped")
		}
		in := bytes.NewReader(zipped)
		z, err := gzip.NewReader(in)
		if err != nil {
			t.Fatal(err)
		}
		z.Multistream(false) // not every client reads on behind the first member
		got, err := io.ReadAll(z)
		if err != nil || !bytes.Equal(got, body) || in.Len() != 0 {
			t.Fatalf("%d bytes came back as %d, %v, %d left over", len(body), len(got), err, in.Len())
		}
	})
}

// What is put together by hand is read by other people's readers too, which are stricter here and there than Go's.
func TestOtherReadersOfGzipReadWhatIsReady(t *testing.T) {
	const seed = 20261201
	h, rng, dir := New(Config{}), rand.New(rand.NewPCG(seed, 1)), t.TempDir()
	text := func(most int) []byte {
		b := make([]byte, rng.IntN(most+1))
		for i := range b {
			b[i] = byte(rng.IntN(1 + rng.IntN(256)))
		}
		return b
	}
	var files []string
	var want []byte
	for n := range 60 {
		most := []int{0, 1, 300, math.MaxUint16}[n%4]
		plain := text(70_000)
		p := parts{before: text(most), after: text(most), ready: &ready{plain, h.deflated(plain)}}
		body := slices.Concat(p.before, plain, p.after)
		zipped, ok := p.gzipped(body)
		name := filepath.Join(dir, fmt.Sprintf("%02d.gz", n))
		if err := os.WriteFile(name, zipped, 0o600); err != nil || !ok {
			t.Fatal(ok, err)
		}
		files, want = append(files, name), append(want, body...)
	}
	for _, reader := range [][]string{
		{"gzip", "-dc"},
		{"node", "-e", "for (const f of process.argv.slice(1)) require('fs').writeSync(1, require('zlib').gunzipSync(require('fs').readFileSync(f)))"},
		{"python3", "-c", "import sys, zlib\nfor f in sys.argv[1:]:\n  d = zlib.decompressobj(31)\n  out = d.decompress(open(f, 'rb').read())\n  assert d.eof and not d.unused_data\n  sys.stdout.buffer.write(out)"},
	} {
		t.Run(reader[0], func(t *testing.T) {
			if _, err := exec.LookPath(reader[0]); err != nil {
				t.Skip(err)
			}
			got, err := exec.CommandContext(t.Context(), reader[0], append(reader[1:], files...)...).Output()
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes came back as %d, %v (seed %d)", len(want), len(got), err, seed)
			}
		})
	}
}

// A VIN as somebody typed it is part of the body, and may be as long as a request's line.
func TestWhatDoesNotFitIntoABlockIsZippedAsAWhole(t *testing.T) {
	h := New(Config{})
	p := &parts{before: make([]byte, 1<<16), ready: &ready{deflated: h.deflated(nil)}}
	if _, ok := p.gzipped(p.before); ok {
		t.Error("a block holds more than it can")
	}
	p.before = p.before[1:]
	if _, ok := p.gzipped(p.before); !ok {
		t.Error("a full block is refused")
	}
	res := h.compressed(&request{header: func(string) string { return "gzip" }},
		&response{header: map[string]string{}, body: bytes.Repeat([]byte("long"), 1<<14), parts: &parts{before: make([]byte, 1<<16)}})
	if got := unzipped(t, base64.StdEncoding.EncodeToString(res.body)); got != strings.Repeat("long", 1<<14) {
		t.Errorf("%d bytes", len(got))
	}
}

func TestReadyBodiesAreBounded(t *testing.T) {
	const each = 1000
	cache := newReady(readyShare * 10 * (each + readyOverhead))
	for i := range 30 {
		cache.Put(fmt.Sprint(10+i), &ready{plain: make([]byte, each-302), deflated: make([]byte, 300)})
	}
	if cache.Len() != 10 {
		t.Errorf("%d are kept", cache.Len())
	}
}

// hello is what the smallest function there is does with an event.
func hello(payload []byte) ([]byte, error) {
	var event map[string]any
	if err := json.Unmarshal(payload, &event); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err := json.NewEncoder(&b).Encode(map[string]any{"statusCode": 200, "body": "hello"})
	return b.Bytes(), err
}

// What a stored answer costs beside a function that does nothing.
func BenchmarkAStoredAnswer(b *testing.B) {
	b.Run("hello", func(b *testing.B) {
		payload := gatewayEvent(b)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := hello(payload); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("from memory", func(b *testing.B) {
		invoke := hot(b)
		b.ReportAllocs()
		for b.Loop() {
			invoke()
		}
	})
}
