package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

const accord = "1HGCM82633A004352"

func answerFor(vin string) string {
	return fmt.Sprintf(`{"vin":%q,"submitted":%q,"modelYear":2003,"make":"HONDA","model":"Accord","outcome":"clean","summary":"2003 HONDA Accord",
"codes":[0],"messages":["fine"],"suggestedVin":null,"fields":{"Make":"HONDA"},"provenance":{"source":"nhtsa","fetchedAt":"2026-06-01T12:00:00.000Z","ageSeconds":0,"stale":false,"waitedMs":1,"upstreamMs":6,"shared":false}}`, vin, vin)
}

func refusalOf(status int, code string, after int) string {
	return fmt.Sprintf(`{"type":"urn:x","title":"Title","status":%d,"detail":"A sentence.","code":%q,"retryAfterSeconds":%d,"waitedMs":3}`, status, code, after)
}

// serving answers every call with what handle does, and counts the calls.
func serving(t *testing.T, handle http.HandlerFunc) (*Client, *int) {
	t.Helper()
	calls := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { calls++; handle(w, r) }))
	t.Cleanup(s.Close)
	c, err := New(s.URL+"/", "vg_key", "test/1", Transport(), func() time.Time { return noon })
	if err != nil {
		t.Fatal(err)
	}
	return c, &calls
}

func send(status int, contentType, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const (
	plainJSON   = "application/json"
	problemJSON = "application/problem+json"
)

func TestALookupIsOneGetWithTheKeyAndTheYear(t *testing.T) {
	c, calls := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "GET" || r.URL.Path != "/v1/vins/5UXWX7C5*BA" || r.URL.RawQuery != "modelYear=2011" || r.Header.Get("X-Api-Key") != "vg_key" || r.UserAgent() != "test/1" {
			t.Errorf("%s %s %v", r.Method, r.URL.RequestURI(), r.Header)
		}
		send(200, plainJSON, answerFor("5UXWX7C5*BA"))(w, r)
	})
	got, err := c.Lookup(t.Context(), Question{"5UXWX7C5*BA", 2011})
	if err != nil || got.Answer == nil || *got.Answer.Make != "HONDA" || got.Problem != nil || !got.Answer.Provenance.FetchedAt.Equal(noon) {
		t.Errorf("%+v, %v", got, err)
	}
	if *calls != 1 {
		t.Errorf("%d calls", *calls)
	}
}

func TestABatchIsOnePostAndItsResultsStandInTheOrderOfTheQuestions(t *testing.T) {
	c, calls := serving(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if want := `{"vins":["` + accord + `",{"vin":"5UXWX7C5*BA","modelYear":2011}]}`; r.Method != "POST" || r.URL.Path != "/v1/vins" ||
			string(body) != want || r.Header.Get("Content-Type") != plainJSON {
			t.Errorf("%s %s %s %v", r.Method, r.URL, body, r.Header)
		}
		send(200, plainJSON, `{"results":[{"vin":"`+accord+`","status":200,"answer":`+answerFor(accord)+`},{"vin":"5UXWX7C5*BA","status":429,"problem":`+refusalOf(429, "RATE_LIMITED", 7)+`}]}`)(w, r)
	})
	got, err := c.Batch(t.Context(), []Question{{accord, 0}, {"5UXWX7C5*BA", 2011}})
	if err != nil || len(got) != 2 || got[0].Answer == nil || got[1].Problem == nil || got[1].Problem.RetryAfter() != 7*time.Second || got[1].Answer != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if *calls != 1 {
		t.Errorf("%d calls", *calls)
	}
	for _, n := range []int{0, 51} {
		if _, err := c.Batch(t.Context(), make([]Question, n)); err == nil || *calls != 1 {
			t.Errorf("%d questions: %v, %d calls", n, err, *calls)
		}
	}
}

// A refusal is a value with all it says; what stands in front of vingate is told apart.
func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		name    string
		handle  http.HandlerFunc
		code    string
		after   time.Duration
		passing bool
		shared  bool
		whole   bool // the lookup's error rather than its result
	}{
		{"a dry budget", send(429, problemJSON, refusalOf(429, "RATE_LIMITED", 7), "Retry-After", "7"), "RATE_LIMITED", 7 * time.Second, true, true, false},
		{"the header asks for longer than the body", send(503, problemJSON, refusalOf(503, "UPSTREAM_THROTTLED", 7), "Retry-After", "90"), "UPSTREAM_THROTTLED", 90 * time.Second, true, true, false},
		{"NHTSA did not answer", send(504, problemJSON, refusalOf(504, "UPSTREAM_TIMEOUT", 0)), "UPSTREAM_TIMEOUT", 0, true, false, false},
		{"not a VIN", send(400, problemJSON, refusalOf(400, "VIN_INVALID", 0)), "VIN_INVALID", 0, false, false, false},
		{"a key nobody has", send(401, problemJSON, refusalOf(401, "API_KEY_UNKNOWN", 0)), "API_KEY_UNKNOWN", 0, false, false, true},
		{"a revoked key", send(403, problemJSON, refusalOf(403, "API_KEY_REVOKED", 0)), "API_KEY_REVOKED", 0, false, false, true},
		{"the gateway throttles", send(429, plainJSON, `{"message":"Too Many Requests"}`), "", 0, true, true, true},
		{"the gateway names a date", send(503, "text/html", "<html>", "Retry-After", noon.Add(90*time.Second).Format(http.TimeFormat)), "", 90 * time.Second, true, true, true},
		{"a date that is over", send(503, "text/html", "<html>", "Retry-After", noon.Add(-time.Hour).Format(http.TimeFormat)), "", 0, true, true, true},
		{"a time beyond all measure", send(503, problemJSON, refusalOf(503, "UPSTREAM_THROTTLED", 1<<40)), "UPSTREAM_THROTTLED", 30 * 24 * time.Hour, true, true, false},
		{"a time below zero", send(429, problemJSON, refusalOf(429, "RATE_LIMITED", -7)), "RATE_LIMITED", 0, true, true, false},
		{"a problem without a code", send(500, problemJSON, `{"title":"x"}`), "", 0, true, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, calls := serving(t, tc.handle)
			check := func(kind string, p *Problem, err error) {
				t.Helper()
				if err != nil && !errors.As(err, &p) || p == nil {
					t.Fatalf("%s: %v", kind, err)
				}
				if p.Code != tc.code || p.RetryAfter() != tc.after || p.Passing() != tc.passing || p.Shared() != tc.shared || p.Detail == "" {
					t.Errorf("%s: %+v", kind, p)
				}
			}
			one, err := c.Lookup(t.Context(), Question{VIN: accord})
			if (err != nil) != tc.whole {
				t.Errorf("lookup: %v", err)
			}
			check("lookup", one.Problem, err)
			_, err = c.Batch(t.Context(), []Question{{VIN: accord}})
			check("batch", nil, err)
			if *calls != 2 {
				t.Errorf("%d calls for two questions", *calls)
			}
		})
	}
}

// P8 at the client: nothing is handed out as the decode of a VIN that is not one.
func TestWhatDoesNotHoldTogetherIsNoAnswer(t *testing.T) {
	result := func(vin, rest string) string { return `{"results":[{"vin":"` + vin + `",` + rest + `}]}` }
	other := "1HGCM82633A004353"
	for _, tc := range []struct {
		name, want string
		handle     http.HandlerFunc
		lookupToo  bool
	}{
		{"a page", "status 200", send(200, "text/html", "<html>"), true},
		{"half an answer", "not readable JSON", send(200, plainJSON, `{"vin":"`+accord), true},
		{"a redirect", "points elsewhere", send(301, "text/html", "", "Location", "https://elsewhere.example/"), true},
		{"no such path", "status 404", send(404, "text/html", "<html>"), true},
		{"another VIN", "another VIN", send(200, plainJSON, answerFor(other)), false},
		{"another VIN in a result", "another VIN", send(200, plainJSON, result(accord, `"status":200,"answer":`+answerFor(other))), false},
		{"results for another VIN", "order", send(200, plainJSON, result(other, `"status":200,"answer":`+answerFor(other))), false},
		{"too few results", "answers for 0", send(200, plainJSON, `{"results":[]}`), false},
		{"a result that is neither", "neither", send(200, plainJSON, result(accord, `"status":200`)), false},
		{"a result that is both", "neither", send(200, plainJSON, result(accord, `"status":200,"answer":`+answerFor(accord)+`,"problem":`+refusalOf(429, "RATE_LIMITED", 1))), false},
		{"an answer with a status of a refusal", "neither", send(200, plainJSON, result(accord, `"status":429,"answer":`+answerFor(accord))), false},
		{"a refusal that is none", "does not say why", send(200, plainJSON, result(accord, `"status":429,"problem":{}`)), false},
		{"an answer without an outcome", "what it is worth", send(200, plainJSON, result(accord, `"status":200,"answer":{"vin":"`+accord+`"}`)), false},
		{"an endless answer", "too large", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", plainJSON)
			for chunk := strings.Repeat(" ", 1<<20); r.Context().Err() == nil; {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
			}
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, _ := serving(t, tc.handle)
			var foreign *ForeignError
			if tc.name != "another VIN" {
				if got, err := c.Batch(t.Context(), []Question{{VIN: accord}}); !errors.As(err, &foreign) || !strings.Contains(err.Error(), tc.want) || got != nil {
					t.Errorf("batch: %v, %v", got, err)
				}
			}
			if tc.lookupToo || tc.name == "another VIN" {
				if got, err := c.Lookup(t.Context(), Question{VIN: accord}); !errors.As(err, &foreign) || !strings.Contains(err.Error(), tc.want) || got.Answer != nil {
					t.Errorf("lookup: %v, %v", got, err)
				}
			}
		})
	}
}

func TestARedirectIsNotFollowedSoTheKeyStaysHere(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("followed") }))
	defer elsewhere.Close()
	c, _ := serving(t, send(307, "text/html", "", "Location", elsewhere.URL))
	if _, err := c.Batch(t.Context(), []Question{{VIN: accord}}); err == nil {
		t.Error("no error")
	}
}

func TestNobodyThereIsUnreachableAndNoErrorHoldsTheKeyOrTheVIN(t *testing.T) {
	c, _ := serving(t, func(w http.ResponseWriter, _ *http.Request) {
		h, _, _ := w.(http.Hijacker).Hijack()
		_ = h.Close()
	})
	_, broken := c.Lookup(t.Context(), Question{VIN: accord})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, stopped := c.Lookup(cancelled, Question{VIN: accord})
	gone, err := New("http://127.0.0.1:1", "vg_key", "test/1", Transport(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	_, refused := gone.Batch(t.Context(), []Question{{VIN: accord}})
	for _, err := range []error{broken, stopped, refused} {
		var u *UnreachableError
		if !errors.As(err, &u) || strings.Contains(err.Error(), "vg_key") || strings.Contains(err.Error(), accord) {
			t.Errorf("%v", err)
		}
	}
	if !errors.Is(stopped, context.Canceled) {
		t.Errorf("%v", stopped)
	}
}

func TestAddressAndKeyAreChecked(t *testing.T) {
	for _, base := range []string{"", "127.0.0.1:8080", "ftp://x", "http://", "http://u:p@x", "http://x?y=1", "http://x#y", "http://x\n"} {
		if _, err := New(base, "", "", nil, time.Now); err == nil {
			t.Errorf("%q is taken", base)
		}
	}
	for _, key := range []string{"a b", "a\r\nX: y", "ключ"} {
		if _, err := New("http://x", key, "", nil, time.Now); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("%q: %v", key, err)
		}
	}
	c, err := New("https://x.example/stage/", "", "", nil, time.Now)
	if err != nil || c.URL() != "https://x.example/stage" {
		t.Errorf("%v, %v", c, err)
	}
}

func FuzzResponses(f *testing.F) {
	f.Add(200, plainJSON, `{"results":[{"vin":"`+accord+`","status":200,"answer":`+answerFor(accord)+`}]}`)
	f.Add(200, plainJSON, answerFor(accord))
	f.Add(429, problemJSON, refusalOf(429, "RATE_LIMITED", 7))
	f.Add(503, "text/html", "<html>")
	f.Fuzz(func(t *testing.T, status int, contentType, body string) {
		c, err := New("http://x", "", "", roundTrip(func() *http.Response {
			return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(body))}
		}), func() time.Time { return noon })
		if err != nil {
			t.Fatal(err)
		}
		results, err := c.Batch(t.Context(), []Question{{VIN: accord}})
		if err == nil && (len(results) != 1 || (results[0].Answer == nil) == (results[0].Problem == nil)) {
			t.Errorf("%+v", results)
		}
		one, lookup := c.Lookup(t.Context(), Question{VIN: accord})
		for _, r := range append(results, one) {
			if r.Answer != nil && (r.Answer.VIN != accord || status != 200 || !json.Valid([]byte(body))) {
				t.Errorf("answered with %+v out of %d %q", r.Answer, status, body)
			}
			if r.Problem != nil && (r.Problem.Status < 400 || r.Problem.RetryAfter() < 0) {
				t.Errorf("refused with %+v", r.Problem)
			}
		}
		_ = lookup
	})
}

type roundTrip func() *http.Response

func (f roundTrip) RoundTrip(*http.Request) (*http.Response, error) { return f(), nil }
