package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vingate/internal/decode"
	"vingate/internal/gate"
	"vingate/internal/vpic"
)

func code(t *testing.T, res httpResponse) decode.Code {
	t.Helper()
	var p struct{ Code decode.Code }
	if err := json.Unmarshal([]byte(res.Body), &p); err != nil {
		t.Fatalf("%v in %s", err, res.Body)
	}
	return p.Code
}

// A decode has exactly these keys, in this order.
func TestTheAnswerHasItsKeysInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, e *edgeOf) {
		res := e.do(t, httpRequest{path: "/v1/vins/1hgcm-82633a004352"})
		d := json.NewDecoder(strings.NewReader(res.Body))
		var keys []string
		depth := 0
		for {
			token, err := d.Token()
			if err != nil {
				break
			}
			switch v := token.(type) {
			case json.Delim:
				if v == '{' || v == '[' {
					depth++
				} else {
					depth--
				}
			case string:
				if depth == 1 {
					keys = append(keys, v)
					if !strings.Contains("codes messages remarks possibleValues fields numbers provenance", v) {
						_, _ = d.Token() // its value
					}
				}
			}
		}
		want := "vin submitted modelYear make model outcome summary sentence codes messages remarks suggestedVin possibleValues fields numbers provenance"
		if got := strings.Join(keys, " "); got != want {
			t.Errorf("keys %s\nwant %s", got, want)
		}
		var a struct {
			VIN, Submitted, Make, Model, Outcome, Summary string
			ModelYear                                     int
			Fields                                        map[string]string
			Provenance                                    map[string]any
		}
		if err := json.Unmarshal([]byte(res.Body), &a); err != nil {
			t.Fatal(err)
		}
		if a.VIN != accord || a.Submitted != "1hgcm-82633a004352" || a.Make != "HONDA" || a.Model != "Accord" || a.ModelYear != 2003 || a.Outcome != "clean" || a.Summary != "2003 HONDA Accord" {
			t.Errorf("%+v", a)
		}
		for name, text := range row(nil) {
			got, there := a.Fields[name]
			if there != (text != "") || got != text {
				t.Errorf("field %s: %q, %v, NHTSA sent %q", name, got, there, text)
			}
		}
		if a.Provenance["source"] != "nhtsa" || a.Provenance["waitedMs"] != 3.0 || a.Provenance["upstreamMs"] != 412.0 || a.Provenance["shared"] != false || a.Provenance["stale"] != false {
			t.Errorf("provenance %v", a.Provenance)
		}
		second := e.do(t, httpRequest{path: "/v1/vins/1HGCM82633A004352"})
		if !strings.Contains(second.Body, `"source":"cache"`) || e.calls != 1 || e.spent != 1 {
			t.Errorf("the second time: %d calls, %d tokens, %s", e.calls, e.spent, second.Body)
		}
	})
}

func TestBadInputIsRefusedAndSpendsNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		req  httpRequest
		want decode.Code
	}{
		"empty":                     {httpRequest{path: "/v1/vins/"}, decode.VINInvalid},
		"16 characters":             {httpRequest{path: "/v1/vins/1HGCM82633A00435"}, decode.VINInvalid},
		"18 characters":             {httpRequest{path: "/v1/vins/1HGCM82633A0043521"}, decode.VINInvalid},
		"the letter I":              {httpRequest{path: "/v1/vins/1HGCM82633A00435I"}, decode.VINInvalid},
		"the letter Q":              {httpRequest{path: "/v1/vins/1HGCM82633A00435Q"}, decode.VINInvalid},
		"emoji":                     {httpRequest{path: "/v1/vins/1HGCM82633A00435🚗"}, decode.VINInvalid},
		"emoji, encoded":            {httpRequest{path: "/v1/vins/1HGCM82633A00435%F0%9F%9A%97"}, decode.VINInvalid},
		"NUL":                       {httpRequest{path: "/v1/vins/1HGCM82633A00435\x00"}, decode.VINInvalid},
		"NUL, encoded":              {httpRequest{path: "/v1/vins/1HGCM82633A00435%00"}, decode.VINInvalid},
		"a slash, encoded":          {httpRequest{path: "/v1/vins/1HGCM82633%2FA00435"}, decode.VINInvalid},
		"a slash, decoded":          {httpRequest{path: "/v1/vins/1HGCM82633/A00435"}, decode.VINInvalid},
		"a slash, twice encoded":    {httpRequest{path: "/v1/vins/1HGCM82633%252FA00435"}, decode.VINInvalid},
		"up":                        {httpRequest{path: "/v1/vins/../capacity"}, decode.VINInvalid},
		"up, encoded":               {httpRequest{path: "/v1/vins/..%2Fcapacity"}, decode.VINInvalid},
		"up, half encoded":          {httpRequest{path: "/v1/vins/%2e%2e/%2e%2e/healthz"}, decode.VINInvalid},
		"a slash behind":            {httpRequest{path: "/v1/vins/" + accord + "/"}, decode.VINInvalid},
		"two slashes":               {httpRequest{path: "/v1/vins//" + accord}, decode.VINInvalid},
		"a question mark, encoded":  {httpRequest{path: "/v1/vins/" + accord + "%3Fx=1"}, decode.VINInvalid},
		"a hash, decoded":           {httpRequest{path: "/v1/vins/" + accord + "#x"}, decode.VINInvalid},
		"a lone percent":            {httpRequest{path: "/v1/vins/" + accord[:16] + "%"}, decode.VINInvalid},
		"a backslash":               {httpRequest{path: `/v1/vins/1HGCM\82633A004352`}, decode.VINInvalid},
		"ten kilobytes":             {httpRequest{path: "/v1/vins/" + strings.Repeat("1", 10<<10)}, decode.VINInvalid},
		"invalid UTF-8, encoded":    {httpRequest{path: "/v1/vins/1HGCM82633A00435%FF"}, decode.VINInvalid},
		"a line break":              {httpRequest{path: "/v1/vins/1HGCM82633%0D%0AX-Evil:%201"}, decode.VINInvalid},
		"unknown all over":          {httpRequest{path: "/v1/vins/*****************"}, decode.VINInvalid},
		"a year of words":           {httpRequest{path: "/v1/vins/" + accord, query: "modelYear=new"}, decode.ModelYearInvalid},
		"a year too early":          {httpRequest{path: "/v1/vins/" + accord, query: "modelYear=1979"}, decode.ModelYearInvalid},
		"a year too late":           {httpRequest{path: "/v1/vins/" + accord, query: "modelYear=2029"}, decode.ModelYearInvalid},
		"a huge year":               {httpRequest{path: "/v1/vins/" + accord, query: "modelYear=99999999999999999999"}, decode.ModelYearInvalid},
		"a negative year":           {httpRequest{path: "/v1/vins/" + accord, query: "modelYear=-200"}, decode.ModelYearInvalid},
		"a signed year":             {httpRequest{path: "/v1/vins/" + accord, query: "modelYear=%2B200"}, decode.ModelYearInvalid},
		"the year 0":                {httpRequest{path: "/v1/vins/" + accord, query: "modelYear=0000"}, decode.ModelYearInvalid},
		"a year in hexadecimal":     {httpRequest{path: "/v1/vins/" + accord, query: "modelYear=0x7D"}, decode.ModelYearInvalid},
		"a year in other digits":    {httpRequest{path: "/v1/vins/" + accord, query: "modelYear=%D9%A2%D9%A0"}, decode.ModelYearInvalid},
		"two years":                 {httpRequest{path: "/v1/vins/" + accord, query: "modelYear=2003&modelYear=2004"}, decode.ModelYearInvalid},
		"two years, two spellings":  {httpRequest{path: "/v1/vins/" + accord, query: "modelYear=2003&modelyear=2004"}, decode.ModelYearInvalid},
		"two years in one":          {httpRequest{path: "/v1/vins/" + accord, query: "modelYear=2003,2004"}, decode.ModelYearInvalid},
		"a year and a semicolon":    {httpRequest{path: "/v1/vins/" + accord, query: "modelYear=1981;x=1"}, decode.ModelYearInvalid},
		"a semicolon and a year":    {httpRequest{path: "/v1/vins/" + accord, query: "x=1;modelYear=1981"}, decode.ModelYearInvalid},
		"a year that cannot decode": {httpRequest{path: "/v1/vins/" + accord, query: "modelYear=19%8G"}, decode.ModelYearInvalid},
		"a percent after a year":    {httpRequest{path: "/v1/vins/" + accord, query: "modelYear=2011%"}, decode.ModelYearInvalid},
		"a name that cannot decode": {httpRequest{path: "/v1/vins/" + accord, query: "%modelYear=2011"}, decode.ModelYearInvalid},
		"an encoded name, and junk": {httpRequest{path: "/v1/vins/" + accord, query: "%6dODEL%59ear=2011&%zz"}, decode.ModelYearInvalid},
		"an empty year, and junk":   {httpRequest{path: "/v1/vins/" + accord, query: "modelYear=&x=%zz;y"}, decode.ModelYearInvalid},
		"a key":                     {httpRequest{path: "/v1/vins/" + accord, header: map[string]string{"X-API-KEY": "x"}}, decode.APIKeyUnknown},
		"a key with a line break":   {httpRequest{path: "/v1/vins/" + accord, header: map[string]string{"x-api-key": "x\r\nSet-Cookie: a=b"}}, decode.APIKeyUnknown},
		"a key of a megabyte":       {httpRequest{path: "/v1/vins/" + accord, header: map[string]string{"x-api-key": strings.Repeat("k", 1<<20)}}, decode.APIKeyUnknown},
		"a method with a body":      {httpRequest{method: "POST", path: "/v1/vins/" + accord}, decode.MethodNotAllowed},
		"an invented method":        {httpRequest{method: strings.Repeat("M", 5000), path: "/healthz"}, decode.MethodNotAllowed},
		"a method in lower case":    {httpRequest{method: "get", path: "/healthz"}, decode.MethodNotAllowed},
		"another path":              {httpRequest{path: "/index.html"}, decode.ResourceNotFound},
		"an asset there is not":     {httpRequest{path: "/assets/page.css"}, decode.ResourceNotFound},
		"no path":                   {httpRequest{path: ""}, decode.ResourceNotFound},
		"a path in another case":    {httpRequest{path: "/V1/vins/" + accord}, decode.ResourceNotFound},
		"two slashes in front":      {httpRequest{path: "//v1/vins/" + accord}, decode.ResourceNotFound},
		"a dot in the path":         {httpRequest{path: "/v1/./capacity"}, decode.ResourceNotFound},
		"a slash after a route":     {httpRequest{path: "/healthz/"}, decode.ResourceNotFound},
		"a path that cannot decode": {httpRequest{path: "/%zz"}, decode.ResourceNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, e *edgeOf) {
				res := e.do(t, tc.req)
				checkHeaders(t, res)
				checkProblem(t, res, tc.want, false)
				checkLog(t, e)
				if e.calls != 0 || e.spent != 0 || len(e.items) != 0 {
					t.Errorf("%d calls, %d tokens, %d items", e.calls, e.spent, len(e.items))
				}
				if len(res.Body) > 1000 {
					t.Errorf("a problem of %d bytes: %s", len(res.Body), res.Body)
				}
			})
		})
	}
}

func TestGoodInputInOtherFormsDecodes(t *testing.T) {
	for name, req := range map[string]httpRequest{
		"lower case, dashes":      {path: "/v1/vins/1hgcm-82633a004352"},
		"blanks, encoded":         {path: "/v1/vins/%201HGCM82633A004352%20"},
		"blanks, decoded":         {path: "/v1/vins/ 1HGCM82633A004352 "},
		"full-width, encoded":     {path: "/v1/vins/%EF%BC%91HGCM82633A004352"},
		"in a stage":              {path: "/prod/v1/vins/" + accord, stage: "prod"},
		"in a stage named v1":     {path: "/v1/v1/vins/" + accord, stage: "v1"},
		"custom domain, no stage": {path: "/v1/vins/" + accord, stage: "prod"},
		"a year":                  {path: "/v1/vins/" + accord, query: "modelYear=2003"},
		"a year, another case":    {path: "/v1/vins/" + accord, query: "modelyear=2003"},
		"the same year twice":     {path: "/v1/vins/" + accord, query: "modelYear=2003&modelYear=2003"},
		"an empty year":           {path: "/v1/vins/" + accord, query: "modelYear="},
		"a name with blanks":      {path: "/v1/vins/" + accord, query: "+modelYear%20=2003"},
		"junk without a year":     {path: "/v1/vins/" + accord, query: "x=%zz;y&year=%"},
		"an empty key":            {path: "/v1/vins/" + accord, header: map[string]string{"x-api-key": ""}},
		"unknown parameters":      {path: "/v1/vins/" + accord, query: "format=json&callback=alert(1)"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, e *edgeOf) {
				var asked vpic.Query
				e.upstream = func(q vpic.Query) (map[string]string, error) { asked = q; return row(nil), nil }
				if res := e.do(t, req); res.StatusCode != 200 {
					t.Errorf("%s", res)
				}
				if asked.VIN != accord || (asked.ModelYear == 2003) != strings.Contains(req.query, "2003") {
					t.Errorf("asked %+v", asked)
				}
			})
		})
	}
}

// However a query is spelt or broken: a year in it is asked for, or refused. It is never left out.
func TestProperty_AYearIsNeverSilentlyLeftOut(t *testing.T) {
	seen := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		name := ""
		for _, c := range []byte("modelYear") {
			name += rapid.SampledFrom([]string{string(c), strings.ToUpper(string(c)), strings.ToLower(string(c)), fmt.Sprintf("%%%02x", c), fmt.Sprintf("%%%02X", c)}).Draw(t, "character")
		}
		junk := rapid.SampledFrom([]string{"", "", "", "&", "&x=1&", ";", ";x", "%", "%zz", "%8", "+", "%20", "&y=%zz&", "&=&", "#", "?", "&modelYear=", "\x00", "é", "=", "&&"})
		r := request{query: junk.Draw(t, "before") + name + junk.Draw(t, "behind the name") + "=" + junk.Draw(t, "before the year") + "1981" + junk.Draw(t, "behind")}
		year, ok := r.modelYear()
		seen[ok && year == 1981]++
		if !ok || year == 1981 {
			return
		}
		if year != 0 {
			t.Fatalf("%q gives %d", r.query, year)
		}
		// Only where the junk has made another name of it, or parted it from its year.
		values, err := url.ParseQuery(r.query)
		if err != nil {
			t.Fatalf("%q cannot be read, and gives no year", r.query)
		}
		for name, texts := range values {
			if strings.EqualFold(strings.TrimSpace(name), "modelYear") && strings.TrimSpace(strings.Join(texts, "")) != "" {
				t.Fatalf("%q gives no year", r.query)
			}
		}
	})
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("%v: the property showed too little", seen)
	}
}

func TestAWarmUpComesFirstAndSpendsNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		payload string
		arrange func(*testing.T, *edgeOf)
		want    string
	}{
		"scheduled":                    {`{"source":"vingate.warmup"}`, nil, `{"warm":true}`},
		"beside an event of any shape": {`{"source":"vingate.warmup","version":"9","rawPath":"/v1/vins/` + accord + `"}`, nil, `{"warm":true}`},
		"with the store down":          {`{"source":"vingate.warmup"}`, broken, `{"warm":false}`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, e *edgeOf) {
				primed := 0
				e.prime = func(context.Context) error { primed++; return nil }
				if tc.arrange != nil {
					tc.arrange(t, e)
				}
				out, err := e.Invoke(t.Context(), []byte(tc.payload))
				if err != nil || string(out) != tc.want {
					t.Errorf("Invoke = %s, %v", out, err)
				}
				if e.calls != 0 || e.spent != 0 || tc.arrange == nil && primed != 1 {
					t.Errorf("%d calls, %d tokens, primed %d times", e.calls, e.spent, primed)
				}
			})
		})
	}
}

func TestAMisdirectedEventIsAnErrorOfTheFunction(t *testing.T) {
	for name, payload := range map[string]string{
		"nothing":             ``,
		"not JSON":            `vin=1HGCM82633A004352`,
		"half of an object":   `{"version":"2.0"`,
		"a list":              `[1,2]`,
		"an empty object":     `{}`,
		"another schedule":    `{"version":"0","source":"aws.events","detail-type":"Scheduled Event"}`,
		"a queue's messages":  `{"Records":[{"body":"1HGCM82633A004352"}]}`,
		"a version, no HTTP":  `{"version":"2.0"}`,
		"a version of a list": `{"version":[2]}`,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, e *edgeOf) {
				out, err := e.Invoke(t.Context(), []byte(payload))
				var event *EventError
				if out != nil || !errors.As(err, &event) {
					t.Errorf("Invoke = %s, %v, want an *EventError", out, err)
				}
				if strings.Contains(err.Error()+e.log.String(), accord) {
					t.Errorf("%v, logged %s", err, e.log.String())
				}
			})
		})
	}
}

// aws-lambda-go#297: the wrong event type gives silently empty fields.
func TestAWSLambdaGo297_AnotherPayloadFormatIsRefused(t *testing.T) {
	for name, payload := range map[string]string{
		"REST API, format 1.0": `{"version":"1.0","resource":"/{proxy+}","path":"/v1/vins/` + accord + `","httpMethod":"GET","requestContext":{"stage":"prod"}}`,
		"load balancer":        `{"httpMethod":"GET","path":"/healthz","requestContext":{"elb":{}}}`,
		"a format to come":     `{"version":"3.0","rawPath":"/healthz","requestContext":{"http":{"method":"GET"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, e *edgeOf) {
				res := e.invoke(t, []byte(payload))
				if res.StatusCode != 500 || code(t, res) != decode.EventUnsupported || e.calls != 0 {
					t.Errorf("%s", res)
				}
			})
		})
	}
}

func TestAPanicEndsOneRequestOnly(t *testing.T) {
	bubble(t, func(t *testing.T, e *edgeOf) {
		e.view = func() (gate.View, error) { panic("a view of " + strings.Repeat("x", 500)) }
		res := e.do(t, httpRequest{path: "/v1/capacity"})
		if res.StatusCode != 500 || code(t, res) != decode.Internal {
			t.Errorf("%s", res)
		}
		if !strings.Contains(e.log.String(), `"panic":"a view of xxx`) || !strings.Contains(e.log.String(), "routes.go") {
			t.Errorf("logged %s", e.log.String())
		}
		if res := e.do(t, httpRequest{path: "/healthz"}); res.StatusCode != 200 {
			t.Errorf("afterwards: %s", res)
		}
	})
}

func TestTheAnswerIsReadyASecondBeforeTheInvocationEnds(t *testing.T) {
	bubble(t, func(t *testing.T, e *edgeOf) {
		e.Decoder = decoderFunc(func(ctx context.Context, _ decode.Request) (decode.Result, error) {
			<-ctx.Done()
			return decode.Result{}, errors.New("out of time")
		})
		began := time.Now()
		res := e.do(t, httpRequest{path: "/v1/vins/" + accord})
		if took := time.Since(began); took != 28*time.Second || res.StatusCode != 500 {
			t.Errorf("%d after %v", res.StatusCode, took)
		}
		if strings.Contains(res.Body, "out of time") || !strings.Contains(e.log.String(), "out of time") {
			t.Errorf("an error of ours belongs into the log: %s", res.Body)
		}
	})
}

type decoderFunc func(context.Context, decode.Request) (decode.Result, error)

func (f decoderFunc) Decode(ctx context.Context, r decode.Request) (decode.Result, error) {
	return f(ctx, r)
}

func (f decoderFunc) DecodeBatch(ctx context.Context, r decode.BatchRequest) (items []decode.Item, err error) {
	for _, q := range r.Questions {
		result, err := f(ctx, decode.Request{VIN: q.VIN, ModelYear: q.ModelYear, Caller: r.Caller, Barred: r.Barred})
		if err != nil {
			return nil, err
		}
		items = append(items, decode.Item{Result: result})
	}
	return items, nil
}

func TestManyInvocationsAtOnceAreAnsweredEach(t *testing.T) {
	bubble(t, func(t *testing.T, e *edgeOf) {
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				vin := accord[:16] + string("0123456789"[i%10])
				res := e.do(t, httpRequest{path: "/v1/vins/" + vin})
				if res.StatusCode != 200 || !strings.HasPrefix(res.Body, `{"vin":"`+vin+`"`) {
					t.Errorf("%s", res)
				}
			})
		}
		wg.Wait()
		if e.calls != 10 || e.spent != 10 {
			t.Errorf("%d calls and %d tokens for 10 VINs", e.calls, e.spent)
		}
		if n := strings.Count(e.log.String(), `"coldStart":true`); n != 1 {
			t.Errorf("%d cold starts", n)
		}
	})
}

func TestSharedAnswersSaySo(t *testing.T) {
	bubble(t, func(t *testing.T, e *edgeOf) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		collapsed := 0
		for range 5 {
			wg.Go(func() {
				res := e.do(t, httpRequest{path: "/v1/vins/" + accord})
				mu.Lock()
				defer mu.Unlock()
				says := strings.Contains(res.Body, `"shared":true`)
				if status := res.Headers["Cache-Status"] == "vingate; fwd=uri-miss; fwd-status=200; stored; collapsed"; status != says {
					t.Errorf("%s", res)
				}
				if says {
					collapsed++
				}
			})
		}
		wg.Wait()
		if collapsed != 4 {
			t.Errorf("%d of 5 say that they shared", collapsed)
		}
	})
}

func FuzzInvoke(f *testing.F) {
	f.Add([]byte(`{"source":"vingate.warmup"}`))
	f.Add(httpRequest{path: "/v1/vins/" + accord, query: "modelYear=2003"}.payload())
	f.Add(list(`{"vins":["` + accord + `",{"vin":"x","modelYear":2003}]}`).payload())
	f.Add(form("DATA=" + accord + ",2003;x&format=json").payload())
	f.Add([]byte(`{"version":"2.0","rawPath":"/v1/vins/%zz","requestContext":{"stage":"v1","http":{"method":"GET"}}}`))
	f.Add([]byte(`{"version":"2.0","headers":null,"requestContext":{"http":{"method":"HEAD","sourceIp":"::1"}}}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		fuzzed(t, payload)
	})
}

func FuzzRoute(f *testing.F) {
	f.Add("GET", "/v1/vins/"+accord, "modelYear=2003", "$default", "", "", "", false)
	f.Add("HEAD", "/v1/vins/%2e%2e/x", "modelYear=%zz", "v1", "k", "", "", false)
	f.Add("OPTIONS", "/v1/capacity", "", "", "\x00", "", "", false)
	f.Add("GET", "/API/vehicles/decodevinvalues/1hg%2f/", "FORMAT=xml&modelyear=1;2", "", "", "", "", false)
	f.Add("POST", "/v1/vins", "", "", "", "application/json; charset=x", `{"vins":["x",{"vin":"y","modelYear":1e9}]}`, false)
	f.Add("POST", "/api/vehicles/DecodeVINValuesBatch/", "format=csv", "", "", "application/x-www-form-urlencoded", "REFUQT1hJTIwO2IsMjAwMw==", true)
	f.Fuzz(func(t *testing.T, method, path, query, stage, key, contentType, body string, encoded bool) {
		fuzzed(t, httpRequest{method: method, path: path, query: query, stage: stage, body: body, base64: encoded,
			header: map[string]string{"x-api-key": key, "content-type": contentType, "if-none-match": query, "origin": key, "user-agent": contentType}}.payload())
	})
}

// mayCall are the requests that can cause a call, by method and what the path holds in lower case.
var mayCall = map[string][]string{"GET": {"/v1/vins/", "/api/vehicles/decodevinvalues"}, "POST": {"/v1/vins", "/api/vehicles/decodevinvaluesbatch"}}

// fuzzed: whatever comes, the answer is a response of ours, and only who may has called.
func fuzzed(t *testing.T, payload []byte) {
	calls := 0
	h := New(Config{
		Version: "1", Gate: quietGate{}, Origins: []string{"https://page.example"},
		Callers: anybody{},
		Decoder: decoderFunc(func(_ context.Context, r decode.Request) (decode.Result, error) {
			if !r.StoredOnly && r.Barred == nil {
				calls++
			}
			return decode.Result{}, decode.NewInternal()
		}),
	})
	out, err := h.Invoke(context.Background(), payload)
	if err != nil {
		var event *EventError
		if !errors.As(err, &event) || calls > 0 {
			t.Fatalf("%v after %d calls", err, calls)
		}
		return
	}
	if string(out) == `{"warm":true}` {
		return
	}
	var res httpResponse
	if err := json.Unmarshal(out, &res); err != nil || res.StatusCode < 200 || res.StatusCode > 599 {
		t.Fatalf("%s, %v", out, err)
	}
	checkValues(t, res)
	var e event
	_ = json.Unmarshal(payload, &e)
	method := e.RequestContext.HTTP.Method
	page := method == "GET" && strings.HasSuffix(e.RawPath, "/") // perhaps behind a stage
	if calls > 0 && !page && !slices.ContainsFunc(mayCall[method], func(in string) bool { return strings.Contains(strings.ToLower(e.RawPath), in) }) {
		t.Fatalf("%d calls for %s %q", calls, method, e.RawPath)
	}
}

func checkValues(t *testing.T, res httpResponse) {
	t.Helper()
	for name, value := range res.Headers {
		if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Fatalf("header %s: %q", name, value)
		}
	}
	if res.StatusCode >= 400 && res.Body != "" && !json.Valid([]byte(res.Body)) {
		t.Fatalf("body %q", res.Body)
	}
}

// The sample events are answered as their names promise.
func TestTheSampleEventsAreAnswered(t *testing.T) {
	for name, want := range map[string]struct {
		status int
		says   string
	}{
		"decode":            {200, `{"vin":"` + accord + `"`},
		"lower-case-dashes": {200, `{"vin":"` + accord + `","submitted":"1hgcm`},
		"batch":             {200, `{"results":[{"vin":"` + accord + `","status":200`},
		"drop-in":           {200, `{"Count":1,"Message":"`},
		"drop-in-batch":     {200, `{"Count":2,"Message":"`},
		"invalid":           {400, `VIN_INVALID`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, e *edgeOf) {
				payload, err := os.ReadFile("../../events/" + name + ".json")
				if err != nil {
					t.Fatal(err)
				}
				if res := e.invoke(t, payload); res.StatusCode != want.status || !strings.Contains(res.Body, want.says) {
					t.Errorf("%s", res)
				}
			})
		})
	}
}
