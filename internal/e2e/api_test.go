package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"vingate/internal/standin"
)

// ask sends a request and gives its answer.
func ask(t *testing.T, method, url, contentType, body string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: res.StatusCode, header: res.Header, text: string(b)}
	_ = json.Unmarshal(b, &a.body)
	return a
}

func (p *product) list(t *testing.T, body string) answer {
	t.Helper()
	return ask(t, "POST", p.EdgeURL+"/v1/vins", "application/json", body)
}

func quoted(vins []string) string {
	b, _ := json.Marshal(map[string]any{"vins": vins})
	return string(b)
}

// rows are the results of a list.
func rows(t *testing.T, a answer) (list []map[string]any) {
	t.Helper()
	results, _ := a.body["results"].([]any)
	if a.status != 200 || len(results) == 0 {
		t.Fatalf("%d %s", a.status, a.text)
	}
	for _, r := range results {
		list = append(list, r.(map[string]any))
	}
	return list
}

// The document's examples are what the product says, but for times, places in time and names of requests.
func TestTheDocumentsExamplesAreAnswersOfTheProduct(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(places.Root, "infra", "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Examples map[string]struct{ Value any }
		}
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	p := start(t, 1, 1, "ANON_RATE_PER_SECOND=0.1", "ANON_BURST=5")
	get := func(path string) func() answer {
		return func() answer { return ask(t, "GET", p.EdgeURL+path, "", "") }
	}
	list := func(body string) func() answer { return func() answer { return p.list(t, body) } }
	examples := []struct {
		name string
		ask  func() answer
	}{
		{"capacity", get("/v1/capacity")},
		{"answer", get("/v1/vins/1hgcm-82633a004352")},
		{"partial", get("/v1/vins/5UXWX7C5*BA?modelYear=2011")},
		{"results", list(`{"vins":["5uxwx7c5*ba","1HGCM82633A00435O"]}`)},
		{"nhtsa", get("/api/vehicles/DecodeVinValues/1HGCM82633A004352?format=json&modelyear=2003")},
		{"vinInvalid", get("/v1/vins/1HGCM82633A00435O")},
		{"modelYearInvalid", get("/v1/vins/1HGCM82633A004352?modelYear=1066")},
		{"requestInvalid", list(`{"vins":["1HGCM82633A004352",12345678901234567]}`)},
		{"batchTooLarge", list(quoted(make([]string, 51)))},
		{"formatUnsupported", get("/api/vehicles/DecodeVinValues/1HGCM82633A004352?format=xml")},
		{"rateLimited", func() answer {
			p.decode(t, accords(1)[0]) // the last of five
			return get("/v1/vins/1HGCM82633A004353")()
		}},
	}
	for _, e := range examples {
		want, there := doc.Components.Examples[e.name]
		delete(doc.Components.Examples, e.name)
		a := e.ask()
		// Numbers of YAML and of JSON compare by their text.
		if got := still(t, a.body); !there || got != still(t, want.Value) {
			t.Errorf("%s is in the document:\n%s\nthe product says:\n%s\nas it came: %s", e.name, still(t, want.Value), got, a.text)
		}
	}
	if left := slices.Collect(maps.Keys(doc.Components.Examples)); len(left) > 0 {
		t.Errorf("examples that nobody holds against the product: %v", left)
	}
}

// still is a body without what differs each time.
func still(t *testing.T, v any) string {
	t.Helper()
	var strip func(any) any
	strip = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			out := map[string]any{}
			for name, x := range v {
				switch name {
				case "fetchedAt", "readAt", "waitedMs", "upstreamMs", "ageSeconds", "instance", "retryAfterSeconds", "tokens":
					out[name] = fmt.Sprintf("%T", x)[:3] // a text stays a text; whole numbers are int here and float64 there
					if _, text := x.(string); !text {
						out[name] = "number"
					}
				case "detail":
					out[name], _, _ = strings.Cut(fmt.Sprint(x), " Try again in ")
				default:
					out[name] = strip(x)
				}
			}
			return out
		case []any:
			out := make([]any, len(v))
			for i, x := range v {
				out[i] = strip(x)
			}
			return out
		}
		return v
	}
	b, err := json.MarshalIndent(strip(v), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAListOfFiftyIsOneCallOfFiveTokens(t *testing.T) {
	p := start(t, 3, 1)
	vins := accords(50)
	before, _ := get(p.EdgeURL + "/v1/capacity")
	first := rows(t, p.list(t, quoted(vins)))
	for i, r := range first {
		if r["vin"] != vins[i] || r["status"] != 200.0 || r["answer"].(map[string]any)["vin"] != vins[i] {
			t.Fatalf("row %d: %v", i, r)
		}
	}
	s := p.stats(t)
	if s.Calls != 1 || len(s.VINs) != 50 {
		t.Errorf("NHTSA saw %d calls and %d VINs", s.Calls, len(s.VINs))
	}
	after, _ := get(p.EdgeURL + "/v1/capacity")
	if used := before.body["tokens"].(float64) - after.body["tokens"].(float64); used < 3 || used > 5 { // some may have come back meanwhile
		t.Errorf("%v tokens were used", used)
	}
	// Again, alone or together, each is stored.
	for i, r := range rows(t, p.list(t, quoted(vins))) {
		a := r["answer"].(map[string]any)
		if a["provenance"].(map[string]any)["source"] != "cache" || !reflect.DeepEqual(a["fields"], first[i]["answer"].(map[string]any)["fields"]) {
			t.Fatalf("row %d: %v", i, r)
		}
	}
	honest(t, vins[7], p.decode(t, vins[7]))
	if n := p.stats(t).Calls; n != 1 {
		t.Errorf("NHTSA saw %d calls", n)
	}
	p.empty(t)
}

// vpic-api#9: one bad row in a batch was everybody's trouble.
func TestAWrongRowInABatchIsItsOwnVINsTrouble(t *testing.T) {
	p := start(t, 1, 1)
	vins := accords(10)
	p.faults(t, standin.Faults{Rules: []standin.Rule{{Kind: standin.WrongVIN, VIN: vins[3]}}})
	refused := 0
	for i, r := range rows(t, p.list(t, quoted(vins))) {
		if r["status"] == 200.0 {
			honest(t, vins[i], answer{status: 200, body: r["answer"].(map[string]any)})
			continue
		}
		refused++
		problem := r["problem"].(map[string]any)
		if r["status"] != 502.0 || problem["code"] != "UPSTREAM_BAD_RESPONSE" || r["answer"] != nil {
			t.Errorf("row %d: %v", i, r)
		}
	}
	if refused != 1 {
		t.Errorf("%d of ten are refused", refused)
	}
	// Only that one is asked again.
	p.faults(t, standin.Faults{})
	for i, r := range rows(t, p.list(t, quoted(vins))) {
		if r["status"] != 200.0 {
			t.Errorf("row %d: %v", i, r)
		}
	}
	s := p.stats(t)
	again := 0
	for _, n := range s.VINs {
		if n == 2 {
			again++
		}
	}
	if s.Calls != 2 || again != 1 {
		t.Errorf("%d calls, %d VINs asked twice", s.Calls, again)
	}
}

// Nothing that is malformed costs anything, or stands in the log.
func TestBadInputSpendsNothingAndIsNotLogged(t *testing.T) {
	p := start(t, 1, 1, "RATE_PER_SECOND=0.1", "RATE_BURST=10")
	const serial = "77A4711K"
	vin := "1HGCM826" + serial + "9" // 17 characters of a VIN, 18 with what is added below
	full := func(body string) func() answer { return func() answer { return p.list(t, body) } }
	path := func(path string) func() answer {
		return func() answer {
			return raw(t, p.EdgeURL, "GET "+path+" HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\r\n")
		}
	}
	header := func(lines string) func() answer {
		return func() answer {
			return raw(t, p.EdgeURL, "GET /v1/vins/"+vin+" HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n"+lines+"\r\n\r\n")
		}
	}
	body := func(contentType, body string) func() answer {
		return func() answer { return ask(t, "POST", p.EdgeURL+"/v1/vins", contentType, body) }
	}
	deep := strings.Repeat("[", 30_000)
	before := p.stats(t)
	capacity, _ := get(p.EdgeURL + "/v1/capacity")
	for name, tc := range map[string]struct {
		ask    func() answer
		status int
		code   string
	}{
		"empty":                       {path("/v1/vins/"), 400, "VIN_INVALID"},
		"16 characters":               {path("/v1/vins/" + vin[1:]), 400, "VIN_INVALID"},
		"18 characters":               {path("/v1/vins/" + vin + "9"), 400, "VIN_INVALID"},
		"the letter I":                {path("/v1/vins/I" + vin[1:]), 400, "VIN_INVALID"},
		"the letter O":                {path("/v1/vins/O" + vin[1:]), 400, "VIN_INVALID"},
		"the letter Q":                {path("/v1/vins/Q" + vin[1:]), 400, "VIN_INVALID"},
		"emoji":                       {path("/v1/vins/%F0%9F%9A%97" + vin[1:]), 400, "VIN_INVALID"},
		"full-width I":                {path("/v1/vins/%EF%BC%A9" + vin[1:]), 400, "VIN_INVALID"},
		"NUL":                         {path("/v1/vins/%00" + vin[1:]), 400, "VIN_INVALID"},
		"a slash, encoded":            {path("/v1/vins/" + vin + "%2F"), 400, "VIN_INVALID"},
		"up, encoded":                 {path("/v1/vins/..%2f" + vin), 400, "VIN_INVALID"},
		"ten kilobytes":               {path("/v1/vins/" + strings.Repeat(vin, 600)), 400, "VIN_INVALID"},
		"invalid UTF-8 in the path":   {path("/v1/vins/%FF" + vin[1:]), 400, "VIN_INVALID"},
		"a huge model year":           {path("/v1/vins/" + vin + "?modelYear=99999999999999999999"), 400, "MODEL_YEAR_INVALID"},
		"a header in a key":           {header("X-Api-Key: k%0d%0aX-Evil: " + vin), 401, "API_KEY_UNKNOWN"},
		"a key like a VIN":            {header("X-Api-Key: " + vin), 401, "API_KEY_UNKNOWN"},
		"a bomb of depth":             {full(`{"vins":` + deep), 400, "REQUEST_INVALID"},
		"a bomb of depth in an entry": {full(`{"vins":[{"vin":` + deep), 400, "REQUEST_INVALID"},
		"a bomb of size":              {full(`{"vins":["` + strings.Repeat("9", 70_000) + `"]}`), 413, "BODY_TOO_LARGE"},
		"a bomb of numbers":           {full(`{"vins":[1e` + strings.Repeat("9", 60_000) + `]}`), 400, "REQUEST_INVALID"},
		"51 VINs":                     {full(quoted(slices.Repeat([]string{vin}, 51))), 413, "BATCH_TOO_LARGE"},
		"a number as VIN":             {full(`{"vins":[12345678901234567]}`), 400, "REQUEST_INVALID"},
		"a member twice":              {full(`{"vins":["` + vin + `"],"vins":["` + vin + `"]}`), 400, "REQUEST_INVALID"},
		"a member of an entry twice":  {full(`{"vins":[{"vin":"` + vin + `","VIN":"` + vin + `"}]}`), 400, "REQUEST_INVALID"},
		"a member nobody knows":       {full(`{"vins":["` + vin + `"],"make":"x"}`), 400, "REQUEST_INVALID"},
		"no JSON":                     {full(vin), 400, "REQUEST_INVALID"},
		"something behind it":         {full(`{"vins":["` + vin + `"]}{}`), 400, "REQUEST_INVALID"},
		"an empty list":               {full(`{"vins":[]}`), 400, "REQUEST_INVALID"},
		"an empty body":               {full(``), 400, "REQUEST_INVALID"},
		"invalid UTF-8 in a name":     {full("{\"vi\xffns\":[\"" + vin + "\"]}"), 400, "REQUEST_INVALID"},
		"a wrong content type":        {body("text/plain", quoted([]string{vin})), 415, "MEDIA_TYPE_UNSUPPORTED"},
		"no content type":             {body("", quoted([]string{vin})), 415, "MEDIA_TYPE_UNSUPPORTED"},
		"a method":                    {func() answer { return ask(t, "DELETE", p.EdgeURL+"/v1/vins/"+vin, "", "") }, 405, "METHOD_NOT_ALLOWED"},
		"another path":                {path("/v2/" + vin), 404, "NOT_FOUND"},
		"a drop-in's wrong character": {path("/api/vehicles/DecodeVinValues/" + vin + "-"), 400, "VIN_INVALID"},
		"a drop-in's other format":    {path("/api/vehicles/DecodeVinValues/" + vin + "?format=xml"), 406, "FORMAT_UNSUPPORTED"},
	} {
		a := tc.ask()
		if a.status != tc.status || a.body["code"] != tc.code || a.header.Get("Content-Type") != "application/problem+json" || len(a.text) > 1000 {
			t.Errorf("%s: %d %s, want %d %s", name, a.status, a.text, tc.status, tc.code)
		}
		if a.header.Get("X-Evil") != "" {
			t.Errorf("%s: a header of the caller's own: %v", name, a.header)
		}
	}
	// In a list each entry has its own.
	for i, r := range rows(t, p.list(t, `{"vins":["","🚗",{"vin":"`+vin+`","modelYear":1e99},{"vin":"`+vin+`","modelYear":-1}," \ud800","`+"\xff"+vin[1:]+`"]}`)) {
		if r["status"] != 400.0 || r["answer"] != nil {
			t.Errorf("entry %d: %v", i, r)
		}
	}
	if after := p.stats(t); after.Calls != before.Calls {
		t.Errorf("%d calls to NHTSA", after.Calls-before.Calls)
	}
	after, _ := get(p.EdgeURL + "/v1/capacity")
	for _, name := range []string{"inFlight", "queued", "knobsVersion"} {
		if after.body[name] != capacity.body[name] {
			t.Errorf("%s was %v and is %v", name, capacity.body[name], after.body[name])
		}
	}
	if after.body["tokens"].(float64) < capacity.body["tokens"].(float64) {
		t.Errorf("tokens were %v and are %v", capacity.body["tokens"], after.body["tokens"])
	}
	if log := p.log.String(); strings.Contains(log, serial[3:]) || strings.Contains(log, "X-Evil") {
		t.Error("what came stands in the log in clear")
	}
}

// raw sends a request as it stands.
func raw(t *testing.T, origin, request string) answer {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(origin, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(all))
}

// parse reads a response as it came.
func parse(t *testing.T, text string) answer {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
	if err != nil {
		t.Fatalf("%v: %.200q", err, text)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: res.StatusCode, header: res.Header, text: string(b)}
	_ = json.Unmarshal(b, &a.body)
	return a
}
