package edge

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vingate/internal/gate"
	"vingate/internal/tenant"
	"vingate/internal/vpic"
)

func TestIfNoneMatchIsAListComparedWeakly(t *testing.T) {
	const tag = `W/"abc-_1"`
	for header, want := range map[string]bool{
		"": false, "*": true, `W/"abc-_1"`: true, `"abc-_1"`: true, `"x", W/"abc-_1" ,"y"`: true, `W/"abc-_1"x`: false,
		`abc-_1`: false, `"ABC-_1"`: false, `w/"abc-_1"`: false, `"abc"`: false, `,,`: false,
	} {
		if got := matches(header, tag); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}

// A tag stands for one answer of NHTSA's in one shape: the same as long as that answer is kept, and never another's.
func TestAnAnswersTagIsItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, e *edgeOf) {
		seen := map[string]string{}
		ask := func(r httpRequest) string {
			t.Helper()
			res := e.do(t, r)
			tag := res.Headers["ETag"]
			if res.StatusCode != 200 || !regexp.MustCompile(`^W/"[A-Za-z0-9_-]+"$`).MatchString(tag) {
				t.Fatalf("%s", res)
			}
			return tag
		}
		for _, r := range []httpRequest{
			{path: "/v1/vins/" + accord}, {path: "/v1/vins/" + accord, query: "modelYear=2003"}, {path: "/v1/vins/" + pickup},
			{path: "/api/vehicles/DecodeVinValues/" + accord}, {path: "/api/vehicles/DecodeVinValuesExtended/" + accord},
		} {
			tag := ask(r)
			if other, there := seen[tag]; there {
				t.Errorf("%s?%s has the tag of %s", r.path, r.query, other)
			}
			seen[tag] = r.path
			time.Sleep(time.Hour)
			if again := ask(r); again != tag {
				t.Errorf("%s: %s, and an hour later %s", r.path, tag, again)
			}
			// Who has it is told so, by HEAD too, and that costs nothing.
			calls := e.calls
			for _, method := range []string{"GET", "HEAD"} {
				known := r
				known.method, known.header = method, map[string]string{"If-None-Match": tag}
				if res := e.do(t, known); res.StatusCode != 304 || res.Body != "" || res.Headers["ETag"] != tag || res.Headers["Content-Type"] != "" || res.Headers["Cache-Control"] == "" {
					t.Errorf("%s %s: %s", method, r.path, res)
				}
			}
			if e.calls != calls {
				t.Errorf("%s: asked NHTSA for what is known", r.path)
			}
		}
		time.Sleep(31 * 24 * time.Hour)
		if tag := ask(httpRequest{path: "/v1/vins/" + accord}); seen[tag] != "" {
			t.Error("another answer of NHTSA's has the tag of the one before")
		}
	})
}

func TestRobotsAndPrefetchesGetWhatIsStored(t *testing.T) {
	const (
		firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
		chrome  = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
		cubot   = "Mozilla/5.0 (Linux; Android 13; CUBOT P80) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/139.0.0.0 Mobile Safari/537.36"
	)
	for name, tc := range map[string]struct {
		header map[string]string
		asks   bool
	}{
		"nobody in particular":   {nil, true},
		"Firefox":                {map[string]string{"user-agent": firefox}, true},
		"Chrome":                 {map[string]string{"user-agent": chrome}, true},
		"a Cubot telephone":      {map[string]string{"user-agent": cubot}, true},
		"curl":                   {map[string]string{"user-agent": "curl/8.5.0"}, true},
		"a program":              {map[string]string{"user-agent": "python-requests/2.32.3"}, true},
		"a search engine":        {map[string]string{"user-agent": "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"}, false},
		"another":                {map[string]string{"user-agent": "Mozilla/5.0 (compatible; Yahoo! Slurp)"}, false},
		"a collector":            {map[string]string{"user-agent": "CCBot/2.0"}, false},
		"a robot on a Cubot":     {map[string]string{"user-agent": cubot + " Examplebot/1.0"}, false},
		"a preview of a link":    {map[string]string{"user-agent": "facebookexternalhit/1.1"}, false},
		"a robot with a key":     {map[string]string{"user-agent": "dealerbot/1.0", "x-api-key": goodKey}, true},
		"a prefetch":             {map[string]string{"sec-purpose": "prefetch"}, false},
		"a prerender":            {map[string]string{"Sec-Purpose": "prefetch;prerender"}, false},
		"an older prefetch":      {map[string]string{"purpose": "prefetch"}, false},
		"Firefox's old prefetch": {map[string]string{"x-moz": "prefetch"}, false},
		"a prefetch with a key":  {map[string]string{"sec-purpose": "prefetch", "x-api-key": goodKey}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, e *edgeOf) {
				for _, r := range []httpRequest{
					{path: "/v1/vins/" + accord, header: tc.header},
					{path: "/api/vehicles/decodevinvalues/" + pickup, header: tc.header},
				} {
					before := e.calls
					res := e.do(t, r)
					if asked := e.calls > before; asked != tc.asks || asked != (res.StatusCode == 200) {
						t.Errorf("%s: asked %v, %d", r.path, asked, res.StatusCode)
					}
				}
				e.do(t, httpRequest{path: "/v1/vins/" + accord})
				if res := e.do(t, httpRequest{path: "/v1/vins/" + accord, header: tc.header}); res.StatusCode != 200 || !strings.Contains(res.Body, `"source":"cache"`) {
					t.Errorf("what is stored: %s", res)
				}
			})
		})
	}
}

var rateItem = regexp.MustCompile(`^"(tenant|upstream-budget)";r=(\d+);t=(\d+)$`)

// draft-ietf-httpapi-ratelimit-headers: whoever obeys Retry-After is not told another time beside it.
func TestProperty_NoRateIsLaterThanRetryAfter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		left := rapid.IntRange(0, 30).Draw(rt, "left")
		next := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(rt, "next"))
		wait := time.Duration(rapid.IntRange(1, 90).Draw(rt, "wait")) * time.Second
		bubble(t, func(t *testing.T, e *edgeOf) {
			e.view = func() (gate.View, error) {
				return gate.View{Knobs: gate.Knobs{Burst: 10, RatePerSecond: 0.3}, Tokens: left, NextToken: next, ReadAt: noon}, nil
			}
			denied(gate.Refusal{Cause: gate.NoToken, RetryAfter: wait})(t, e)
			res := e.do(t, httpRequest{path: "/v1/vins/" + accord})
			after, err := strconv.Atoi(res.Headers["Retry-After"])
			if err != nil || res.Headers["RateLimit-Policy"] != `"tenant";q=20;w=20, "upstream-budget";q=10;w=34` {
				t.Fatalf("%s", res)
			}
			items := strings.Split(res.Headers["RateLimit"], ", ")
			if len(items) != 2 {
				t.Fatalf("RateLimit %q", res.Headers["RateLimit"])
			}
			for _, item := range items {
				m := rateItem.FindStringSubmatch(item)
				if m == nil {
					t.Fatalf("RateLimit %q", item)
				}
				if r, _ := strconv.Atoi(m[2]); m[1] == "upstream-budget" && r != min(left, 10) {
					t.Errorf("%d are left, and it says %s", left, item)
				}
				if s, _ := strconv.Atoi(m[3]); s > after {
					t.Errorf("%s is later than Retry-After %d", item, after)
				}
			}
		})
	})
}

func TestRatesAreToldWhereTheyPlayARole(t *testing.T) {
	for name, tc := range map[string]struct {
		arrange func(*testing.T, *edgeOf)
		request httpRequest
		want    string // of RateLimit, "" for none
	}{
		"a live answer":            {nil, httpRequest{path: "/v1/vins/" + accord}, `"tenant";r=19;t=1, "upstream-budget";r=6;t=1`},
		"a stored answer":          {stored(time.Minute), httpRequest{path: "/v1/vins/" + accord}, ""},
		"no VIN":                   {nil, httpRequest{path: "/v1/vins/x"}, ""},
		"trouble at NHTSA":         {failing(vpic.Error{Kind: vpic.Unavailable}), httpRequest{path: "/v1/vins/" + accord}, ""},
		"a list":                   {nil, list(`{"vins":["` + accord + `"]}`), `"tenant";r=19;t=1, "upstream-budget";r=6;t=1`},
		"a stored list":            {stored(time.Minute), list(`{"vins":["` + accord + `"]}`), ""},
		"nothing is known":         {unseen, httpRequest{path: "/v1/vins/" + accord}, ""},
		"only the caller is known": {unseenGate, httpRequest{path: "/v1/vins/" + accord}, `"tenant";r=19;t=1`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, e *edgeOf) {
				if tc.arrange != nil {
					tc.arrange(t, e)
				}
				res := e.do(t, tc.request)
				if got := res.Headers["RateLimit"]; got != tc.want || (got == "") != (res.Headers["RateLimit-Policy"] == "") {
					t.Errorf("RateLimit %q, want %q; policy %q", got, tc.want, res.Headers["RateLimit-Policy"])
				}
			})
		})
	}
}

// blind is a gate nobody has looked at.
type blind struct{ Gate }

func (blind) Seen() (gate.View, bool) { return gate.View{}, false }

// forgetful knows no caller.
type forgetful struct{}

func (forgetful) Left(tenant.Caller) (int, time.Duration, bool) { return 0, 0, false }

func unseenGate(_ *testing.T, e *edgeOf) { e.Gate = blind{e.Gate} }

func unseen(t *testing.T, e *edgeOf) {
	unseenGate(t, e)
	e.Rates = forgetful{}
}

func TestALargeBodyIsCompressedForWhoTakesIt(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "gzip, deflate, br": true, "deflate, gzip;q=0.5": true, "*": true, "br, *;q=0.1": true,
		"identity": false, "br": false, "gzip;q=0": false, "gzip; q=0.000": false, "*, gzip;q=0": false, "*;q=0": false, "gzip;q=x": false, "xgzip": false,
	} {
		t.Run(accept, func(t *testing.T) {
			bubble(t, func(t *testing.T, e *edgeOf) {
				e.upstream = func(q vpic.Query) (map[string]string, error) {
					return row(map[string]string{"VIN": q.VIN, "Note": strings.Repeat("a remark of NHTSA's ", 100)}), nil
				}
				get := httpRequest{path: "/v1/vins/" + accord, header: map[string]string{"accept-encoding": accept}}
				e.do(t, httpRequest{path: get.path})
				plain := e.do(t, httpRequest{path: get.path}) // from the store, as the next one is
				res := e.do(t, get)
				if res.Binary != want || (res.Headers["Content-Encoding"] == "gzip") != want || res.Headers["Vary"] != "Accept-Encoding" || res.Headers["ETag"] != plain.Headers["ETag"] {
					t.Fatalf("%v %v", res.Binary, res.Headers)
				}
				body := res.Body
				if want {
					body = unzipped(t, res.Body)
					if len(res.Body) > len(body)/2 {
						t.Errorf("%d bytes became %d", len(body), len(res.Body))
					}
				}
				if body != plain.Body {
					t.Errorf("got\n%s\nwant\n%s", body, plain.Body)
				}
				// What is small stays as it is, and HEAD has no body.
				if small := e.do(t, httpRequest{path: "/healthz", header: get.header}); small.Binary || small.Headers["Vary"] != "" {
					t.Errorf("%s", small)
				}
				get.method = "HEAD"
				if head := e.do(t, get); head.Body != "" || head.Binary {
					t.Errorf("%s", head)
				}
			})
		})
	}
}

// unzipped is what a client makes of a body that API Gateway has decoded.
func unzipped(t *testing.T, body string) string {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestOneOriginIsNotAnother(t *testing.T) {
	for _, tc := range []struct {
		origins []string
		origin  string
		want    string
	}{
		{nil, "https://page.example", ""},
		{[]string{"*"}, "https://page.example", "*"},
		{[]string{"*"}, "", "*"},
		{[]string{"https://page.example"}, "https://page.example", "https://page.example"},
		{[]string{"https://page.example"}, "https://page.example.evil.example", ""},
		{[]string{"https://page.example"}, "http://page.example", ""},
		{[]string{"https://page.example"}, "https://page.example:8443", ""},
		{[]string{"https://page.example"}, "null", ""},
		{[]string{"https://page.example"}, "", ""},
	} {
		t.Run(fmt.Sprint(tc.origins, tc.origin), func(t *testing.T) {
			bubble(t, func(t *testing.T, e *edgeOf) {
				e.Origins = tc.origins
				for _, r := range []httpRequest{{path: "/healthz"}, {path: "/nowhere"}, {path: "/v1/vins/x"}, {method: "OPTIONS", path: "/v1/vins"}} {
					res := e.do(t, from(tc.origin, r))
					if got := res.Headers["Access-Control-Allow-Origin"]; got != tc.want {
						t.Errorf("%s %s: %q, want %q", r.method, r.path, got, tc.want)
					}
					if hangs := len(tc.origins) > 0 && tc.origins[0] != "*"; hangs != (res.Headers["Vary"] == "Origin") {
						t.Errorf("%s: Vary %q", r.path, res.Headers["Vary"])
					}
				}
			})
		})
	}
}
