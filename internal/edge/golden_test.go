package edge

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/smithy-go"

	"vingate/internal/decode"
	"vingate/internal/gate"
	"vingate/internal/tenant"
	"vingate/internal/vpic"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Every route and every code, with full headers and bodies, through the real lanes.
var goldens = []struct {
	name    string
	arrange func(*testing.T, *edgeOf)
	request httpRequest
	code    decode.Code // of the problem, "" for a success
}{
	{"decode-live", nil, httpRequest{path: "/v1/vins/1hgcm-82633a004352"}, ""},
	{"decode-live-with-year", nil, httpRequest{path: "/v1/vins/" + accord, query: "modelYear=2003&colour=red"}, ""},
	{"decode-stored", stored(26 * time.Hour), httpRequest{path: "/v1/vins/" + accord}, ""},
	{"decode-stored-past-its-freshness", then(stored(8*24*time.Hour), failing(vpic.Error{Kind: vpic.Throttled, Status: 429, RetryAfter: 90 * time.Second})), httpRequest{path: "/v1/vins/" + accord}, ""},
	{"decode-refreshed", stored(8 * 24 * time.Hour), httpRequest{path: "/v1/vins/" + accord}, ""},
	{"decode-check-digit-advice", answering(map[string]string{"ErrorCode": "1", "ErrorText": "1 - Check Digit (9th position) does not calculate properly"}), httpRequest{path: "/v1/vins/1HGCM82603A004352"}, ""},
	{"decode-partial", answering(map[string]string{"ErrorCode": "5,14", "ErrorText": "5 - VIN has errors in few positions; 14 - Unable to provide information for some of the characters in the VIN.", "Model": "", "ModelYear": "", "SuggestedVIN": "1HGCM82!33A004352", "PossibleValues": "(8:569)"}), httpRequest{path: "/v1/vins/" + accord}, ""},
	{"decode-unknown", answering(map[string]string{"ErrorCode": "7", "ErrorText": "7 - Manufacturer is not registered with NHTSA", "Make": "", "Model": "", "ModelYear": "", "Manufacturer": ""}), httpRequest{path: "/v1/vins/" + accord}, ""},
	{"decode-head-stored", stored(time.Minute), httpRequest{method: "HEAD", path: "/v1/vins/" + accord}, ""},
	{"decode-prefetch-stored", stored(time.Minute), httpRequest{path: "/v1/vins/" + accord, header: map[string]string{"sec-purpose": "prefetch;prerender"}}, ""},
	{"decode-head-not-stored", nil, httpRequest{method: "HEAD", path: "/v1/vins/" + accord}, decode.NotStored},
	{"decode-prefetch-not-stored", nil, httpRequest{path: "/v1/vins/" + accord, header: map[string]string{"sec-purpose": "prefetch"}}, decode.NotStored},
	{"decode-head-table-down", tableDown, httpRequest{method: "HEAD", path: "/v1/vins/" + accord}, decode.CoordinationDown},
	{"decode-prefetch-table-down", tableDown, httpRequest{path: "/v1/vins/" + accord, header: map[string]string{"sec-purpose": "prefetch"}}, decode.CoordinationDown},
	{"decode-live-table-down", tableDown, httpRequest{path: "/v1/vins/" + accord}, ""},
	{"decode-options", nil, httpRequest{method: "OPTIONS", path: "/v1/vins/" + accord}, ""},
	{"vin-invalid", nil, httpRequest{path: "/v1/vins/1HGCM82633A00435O"}, decode.VINInvalid},
	{"vin-invalid-empty", nil, httpRequest{path: "/v1/vins/"}, decode.VINInvalid},
	{"model-year-invalid", nil, httpRequest{path: "/v1/vins/" + accord, query: "modelYear=2029"}, decode.ModelYearInvalid},
	{"api-key-unknown", nil, httpRequest{path: "/v1/vins/" + accord, header: map[string]string{"x-api-key": "vg_0123456789"}}, decode.APIKeyUnknown},
	{"api-key-forged", nil, with(forgedKey), decode.APIKeyUnknown},
	{"api-key-revoked", nil, with(revokedKey), decode.APIKeyRevoked},
	{"api-key-good", nil, with(goodKey), ""},
	{"api-key-good-stored-without-the-table", without(stored(time.Minute)), with(goodKey), ""},
	{"api-key-without-the-table", without(nil), with(goodKey), decode.CoordinationDown},
	{"rate-limited-tenant", drained, httpRequest{path: "/v1/vins/" + accord}, decode.RateLimited},
	{"rate-limited-tenant-with-key", drained, with(goodKey), decode.RateLimited},
	{"rate-limited", denied(gate.Refusal{Cause: gate.NoToken, RetryAfter: 2 * time.Second}), httpRequest{path: "/v1/vins/" + accord}, decode.RateLimited},
	{"rate-limited-operator", denied(gate.Refusal{Cause: gate.Held, Hold: gate.HoldOperator, RetryAfter: 10 * time.Minute}), httpRequest{path: "/v1/vins/" + accord}, decode.RateLimited},
	{"rate-limited-starting", denied(gate.Refusal{Cause: gate.Held, Hold: gate.HoldStarting, RetryAfter: 15 * time.Second}), httpRequest{path: "/v1/vins/" + accord}, decode.RateLimited},
	{"bulkhead-timeout", denied(gate.Refusal{Cause: gate.BulkheadFull, RetryAfter: time.Second}), httpRequest{path: "/v1/vins/" + accord}, decode.BulkheadTimeout},
	{"bulkhead-timeout-address", denied(gate.Refusal{Cause: gate.OwnFull, RetryAfter: time.Second}), httpRequest{path: "/v1/vins/" + accord}, decode.BulkheadTimeout},
	{"decode-queue-full", denied(gate.Refusal{Cause: gate.QueueFull, RetryAfter: 12 * time.Second}), httpRequest{path: "/v1/vins/" + accord}, decode.QueueFull},
	{"decode-wait-timeout", denied(gate.Refusal{Cause: gate.NoSlot, RetryAfter: 3 * time.Second}), httpRequest{path: "/v1/vins/" + accord}, decode.WaitTimeout},
	{"upstream-throttled-hold", denied(gate.Refusal{Cause: gate.Held, Hold: gate.HoldThrottled, RetryAfter: 44 * time.Second}), httpRequest{path: "/v1/vins/" + accord}, decode.UpstreamThrottled},
	{"upstream-unavailable-hold", denied(gate.Refusal{Cause: gate.Held, Hold: gate.HoldFailing, RetryAfter: 5 * time.Second}), httpRequest{path: "/v1/vins/" + accord}, decode.UpstreamUnavailable},
	{"upstream-throttled", failing(vpic.Error{Kind: vpic.Throttled, Status: 429, RetryAfter: 90 * time.Second}), httpRequest{path: "/v1/vins/" + accord}, decode.UpstreamThrottled},
	{"upstream-blocked", failing(vpic.Error{Kind: vpic.Throttled, Status: 403, Blocked: true}), httpRequest{path: "/v1/vins/" + accord}, decode.UpstreamThrottled},
	{"upstream-unavailable", failing(vpic.Error{Kind: vpic.Unavailable, Status: 503}), httpRequest{path: "/v1/vins/" + accord}, decode.UpstreamUnavailable},
	{"upstream-timeout", failing(vpic.Error{Kind: vpic.Timeout, Started: true}), httpRequest{path: "/v1/vins/" + accord}, decode.UpstreamTimeout},
	{"upstream-bad-response", failing(vpic.Error{Kind: vpic.BadResponse, Status: 200}), httpRequest{path: "/v1/vins/" + accord}, decode.UpstreamBadResponse},
	{"coordination-unavailable", broken, httpRequest{path: "/v1/vins/" + accord}, decode.CoordinationDown},
	{"internal", panicking, httpRequest{path: "/v1/vins/" + accord}, decode.Internal},
	{"batch", stored(26 * time.Hour), list(`{"vins":["1hgcm-82633a004352",{"vin":"` + suv + `","modelYear":2011},"1HGCM82633A00435O",{"vin":"` + suv + `","modelYear":2011},{"vin":"` + pickup + `","modelYear":1979},"` + suv + `"]}`), ""},
	{"batch-partly-refused", then(stored(time.Minute), denied(gate.Refusal{Cause: gate.NoToken, RetryAfter: 2 * time.Second})), list(`{"vins":["` + accord + `","` + pickup + `"]}`), ""},
	{"batch-refused", denied(gate.Refusal{Cause: gate.NoToken, RetryAfter: 2 * time.Second}), list(`{"vins":["` + accord + `","` + pickup + `"]}`), decode.RateLimited},
	{"batch-upstream-throttled", failing(vpic.Error{Kind: vpic.Throttled, Status: 429}), list(`{"vins":["` + accord + `"]}`), decode.UpstreamThrottled},
	{"batch-invalid-vin-alone", nil, list(`{"vins":[""]}`), ""},
	{"batch-empty", nil, list(`{"vins":[]}`), decode.RequestInvalid},
	{"batch-number", nil, list(`{"vins":["` + accord + `",12345678901234567]}`), decode.RequestInvalid},
	{"batch-too-large", nil, list(`{"vins":["` + strings.Repeat(accord+`","`, 50) + accord + `"]}`), decode.BatchTooLarge},
	{"batch-body-too-large", nil, list(`{"vins":["` + strings.Repeat("1", 64<<10) + `"]}`), decode.BodyTooLarge},
	{"batch-form", nil, httpRequest{method: "POST", path: "/v1/vins", header: map[string]string{"content-type": "application/x-www-form-urlencoded"}, body: "dmlucz0x", base64: true}, decode.MediaUnsupported},
	{"batch-get", nil, httpRequest{path: "/v1/vins"}, decode.MethodNotAllowed},
	{"batch-options", nil, httpRequest{method: "OPTIONS", path: "/v1/vins"}, ""},
	{"decode-not-modified", stored(time.Minute), httpRequest{path: "/v1/vins/" + accord, header: map[string]string{"if-none-match": `"x", W/"Li7lLSBcIvOB"`}}, ""},
	{"decode-robot-not-stored", nil, httpRequest{path: "/v1/vins/" + accord, header: map[string]string{"user-agent": "Mozilla/5.0 (compatible; Examplebot/2.1)"}}, decode.NotStored},
	{"batch-robot", stored(time.Minute), robot(list(`{"vins":["` + accord + `","` + pickup + `"]}`)), ""},
	{"dropin", nil, httpRequest{path: "/api/vehicles/DecodeVinValues/" + accord, query: "format=json&modelyear=2003"}, ""},
	{"dropin-another-case", nil, httpRequest{path: "/API/Vehicles/decodevinvalues/1hgcm82633a004352/", query: "FORMAT=JSON"}, ""},
	{"dropin-extended", nil, httpRequest{path: "/api/vehicles/DecodeVinValuesExtended/" + accord}, ""},
	{"dropin-no-vin-there-is", answering(map[string]string{"ErrorCode": "6,400", "ErrorText": "6 - Incomplete VIN; 400 - Invalid Characters Present", "Make": "", "Model": "", "ModelYear": "", "Manufacturer": ""}), httpRequest{path: "/api/vehicles/DecodeVinValues/OI"}, ""},
	{"dropin-stored", stored(26 * time.Hour), httpRequest{path: "/api/vehicles/DecodeVinValues/" + accord, query: "format=json"}, ""},
	{"dropin-head-not-stored", nil, httpRequest{method: "HEAD", path: "/api/vehicles/DecodeVinValues/" + accord}, decode.NotStored},
	{"dropin-xml", nil, httpRequest{path: "/api/vehicles/DecodeVinValues/" + accord, query: "format=xml"}, decode.FormatUnsupported},
	{"dropin-character", nil, httpRequest{path: "/api/vehicles/DecodeVinValues/1HGCM-82633A004352"}, decode.VINInvalid},
	{"dropin-empty", nil, httpRequest{path: "/api/vehicles/DecodeVinValues/"}, decode.VINInvalid},
	{"dropin-year", nil, httpRequest{path: "/api/vehicles/DecodeVinValues/" + accord, query: "modelyear=1066"}, decode.ModelYearInvalid},
	{"dropin-another-call", nil, httpRequest{path: "/api/vehicles/GetAllMakes", query: "format=json"}, decode.ResourceNotFound},
	{"dropin-refused", denied(gate.Refusal{Cause: gate.NoToken, RetryAfter: 2 * time.Second}), httpRequest{path: "/api/vehicles/DecodeVinValues/" + accord}, decode.RateLimited},
	{"dropin-batch", stored(time.Minute), form("DATA=1hgcm82633a004352; 5UXWX7C5*BA, 2011;1hgcm82633a004352;&format=json"), ""},
	{"dropin-batch-partly-refused", then(stored(time.Minute), denied(gate.Refusal{Cause: gate.NoToken, RetryAfter: 2 * time.Second})), form("data=" + accord + "%3b" + pickup), decode.RateLimited},
	{"dropin-batch-invalid", nil, form("DATA=" + accord + ";1HG?&format=json"), decode.VINInvalid},
	{"dropin-batch-two-years", nil, form("DATA=" + accord + ",2003;" + accord + "&format=json"), decode.VINRepeated},
	{"dropin-batch-csv", nil, form("DATA=" + accord + "&format=csv"), decode.FormatUnsupported},
	{"dropin-batch-too-large", nil, form("DATA=" + strings.Repeat(accord+";", 51)), decode.BatchTooLarge},
	{"dropin-batch-empty", nil, form("format=json"), decode.RequestInvalid},
	{"dropin-batch-json", nil, httpRequest{method: "POST", path: "/api/vehicles/DecodeVINValuesBatch/", header: map[string]string{"content-type": "application/json"}, body: `{}`}, decode.MediaUnsupported},
	{"dropin-batch-get", nil, httpRequest{path: "/api/vehicles/decodevinvaluesbatch"}, decode.MethodNotAllowed},
	{"cors-any", origins("*"), from("https://page.example", httpRequest{path: "/v1/vins/" + accord}), ""},
	{"cors-one", origins("https://page.example", "https://other.example"), from("https://page.example", httpRequest{path: "/v1/vins/" + accord}), ""},
	{"cors-another", origins("https://page.example"), from("https://evil.example", httpRequest{path: "/v1/vins/" + accord}), ""},
	{"cors-refusal", then(drained, origins("https://page.example")), from("https://page.example", httpRequest{path: "/v1/vins/" + accord}), decode.RateLimited},
	{"cors-preflight", origins("https://page.example"), from("https://page.example", httpRequest{method: "OPTIONS", path: "/v1/vins", header: map[string]string{"access-control-request-method": "POST"}}), ""},
	{"robots", nil, httpRequest{path: "/robots.txt"}, ""},
	{"capacity", nil, httpRequest{path: "/v1/capacity"}, ""},
	{"capacity-held", holding, httpRequest{path: "/v1/capacity"}, ""},
	{"capacity-unavailable", broken, httpRequest{path: "/v1/capacity"}, decode.CoordinationDown},
	{"healthz", nil, httpRequest{path: "/healthz"}, ""},
	{"healthz-head", nil, httpRequest{method: "HEAD", path: "/healthz"}, ""},
	{"not-found", nil, httpRequest{path: "/v2/vins/" + accord}, decode.ResourceNotFound},
	{"method-not-allowed", nil, httpRequest{method: "DELETE", path: "/v1/vins/" + accord}, decode.MethodNotAllowed},
	{"event-unsupported", nil, httpRequest{path: "/v1/vins/" + accord, version: "1.0"}, decode.EventUnsupported},
}

// stored decodes once and lets the time pass.
func stored(age time.Duration) func(*testing.T, *edgeOf) {
	return func(t *testing.T, e *edgeOf) {
		e.do(t, httpRequest{path: "/v1/vins/" + accord})
		time.Sleep(age)
	}
}

// list posts a list of VINs.
func list(body string) httpRequest {
	return httpRequest{method: "POST", path: "/v1/vins", header: map[string]string{"content-type": "application/json"}, body: body}
}

// form posts a form, as API Gateway hands it over.
func form(body string) httpRequest {
	return httpRequest{method: "POST", path: "/api/vehicles/DecodeVINValuesBatch/", header: map[string]string{"content-type": "application/x-www-form-urlencoded"},
		body: base64.StdEncoding.EncodeToString([]byte(body)), base64: true}
}

func robot(r httpRequest) httpRequest {
	r.header["user-agent"] = "Mozilla/5.0 (compatible; Examplebot/2.1)"
	return r
}

func from(origin string, r httpRequest) httpRequest {
	if r.header == nil {
		r.header = map[string]string{}
	}
	r.header["origin"] = origin
	return r
}

func origins(list ...string) func(*testing.T, *edgeOf) {
	return func(_ *testing.T, e *edgeOf) { e.Origins = list }
}

// then arranges one thing after the other.
func then(first, second func(*testing.T, *edgeOf)) func(*testing.T, *edgeOf) {
	return func(t *testing.T, e *edgeOf) { first(t, e); second(t, e) }
}

// with shows a key.
func with(apiKey string) httpRequest {
	return httpRequest{path: "/v1/vins/" + accord, header: map[string]string{"x-api-key": apiKey}}
}

// without takes the table of the keys away.
func without(then func(*testing.T, *edgeOf)) func(*testing.T, *edgeOf) {
	return func(t *testing.T, e *edgeOf) {
		if then != nil {
			then(t, e)
		}
		e.keysDown = errDown
	}
}

// drained is a tenant who has used all he had.
func drained(_ *testing.T, e *edgeOf) {
	e.look = func() (*tenant.Refusal, error) { return &tenant.Refusal{RetryAfter: 7 * time.Second}, nil }
}

func answering(changes map[string]string) func(*testing.T, *edgeOf) {
	return func(_ *testing.T, e *edgeOf) {
		e.upstream = func(q vpic.Query) (map[string]string, error) {
			time.Sleep(412 * time.Millisecond)
			r := row(changes)
			r["VIN"] = q.VIN
			return r, nil
		}
	}
}

func denied(r gate.Refusal) func(*testing.T, *edgeOf) {
	return func(_ *testing.T, e *edgeOf) {
		e.gate = func() (*gate.Refusal, error) { time.Sleep(40 * time.Millisecond); return &r, nil }
	}
}

func failing(err vpic.Error) func(*testing.T, *edgeOf) {
	return func(_ *testing.T, e *edgeOf) {
		err.Took, err.Reason = 800*time.Millisecond, "the reason for the log"
		e.upstream = func(vpic.Query) (map[string]string, error) { time.Sleep(err.Took); return nil, &err }
	}
}

func broken(_ *testing.T, e *edgeOf) {
	e.gate = func() (*gate.Refusal, error) { time.Sleep(400 * time.Millisecond); return nil, errDown }
	e.view = func() (gate.View, error) { time.Sleep(400 * time.Millisecond); return gate.View{}, errDown }
	e.prime = func(context.Context) error { return errDown }
}

func tableDown(_ *testing.T, e *edgeOf) {
	e.table = &smithy.GenericAPIError{Code: "AccessDeniedException", Message: "no"}
}

func panicking(_ *testing.T, e *edgeOf) {
	e.upstream = func(vpic.Query) (map[string]string, error) { panic("index out of range") }
}

func holding(_ *testing.T, e *edgeOf) {
	e.view = func() (gate.View, error) {
		return gate.View{Limit: 2, Knobs: gate.Knobs{MaxInFlight: 4, Burst: 10, RatePerSecond: 0.5}, Queued: 7, HeldFor: 29100 * time.Millisecond, Hold: gate.HoldThrottled, KnobsVersion: 3, ReadAt: noon}, nil
	}
}

func TestGolden(t *testing.T) {
	seen := map[decode.Code]bool{}
	_, document := apiDocument(t)
	for _, g := range goldens {
		t.Run(g.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, e *edgeOf) {
				if g.arrange != nil {
					g.arrange(t, e)
				}
				calls := e.calls
				res := e.do(t, g.request)
				head := g.request.method == "HEAD"
				if head && e.calls != calls || strings.Contains(g.name, "prefetch") && e.calls != calls {
					t.Error("a HEAD or a prefetch caused a call")
				}
				checkHeaders(t, res)
				if g.code == "" {
					if res.StatusCode >= 300 && res.StatusCode != 304 {
						t.Errorf("status %d", res.StatusCode)
					}
					for _, c := range codesIn(res.Body) {
						seen[c] = true
					}
				} else {
					seen[g.code] = true
					checkProblem(t, res, g.code, head)
				}
				checkLog(t, e)
				for _, fault := range deviations(document, g.request, res) {
					t.Error(fault)
				}

				name := filepath.Join("testdata", "golden", g.name+".http")
				if *update {
					if err := os.WriteFile(name, []byte(res.String()), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				if got := res.String(); got != string(want) {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			})
		})
	}
	for _, c := range decode.Codes() {
		if !seen[c] {
			t.Errorf("no golden file for %s", c)
		}
	}
	files, _ := filepath.Glob("testdata/golden/*.http")
	if len(files) != len(goldens) {
		t.Errorf("%d golden files for %d cases", len(files), len(goldens))
	}
}

// codesIn are those of the problems in an answer to a list.
func codesIn(body string) (codes []decode.Code) {
	var list struct {
		Results []struct {
			Problem struct{ Code decode.Code }
		}
	}
	_ = json.Unmarshal([]byte(body), &list)
	for _, r := range list.Results {
		codes = append(codes, r.Problem.Code)
	}
	return codes
}

// checkHeaders holds what is true of every response.
func checkHeaders(t *testing.T, res httpResponse) {
	t.Helper()
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Request-Id": "JKJaXmPLvHcESHA="} {
		if res.Headers[name] != want {
			t.Errorf("%s: %q, want %q", name, res.Headers[name], want)
		}
	}
	if res.StatusCode == 405 && res.Headers["Allow"] == "" {
		t.Error("405 without Allow")
	}
	if res.StatusCode == 401 && res.Headers["WWW-Authenticate"] == "" {
		t.Error("401 without WWW-Authenticate")
	}
	if res.StatusCode == 429 || res.StatusCode == 503 {
		if n, err := strconv.Atoi(res.Headers["Retry-After"]); err != nil || n < 1 {
			t.Errorf("Retry-After: %q", res.Headers["Retry-After"])
		}
	}
	if res.StatusCode >= 400 && res.Headers["Cache-Control"] != "no-store" {
		t.Errorf("Cache-Control: %q", res.Headers["Cache-Control"])
	}
	for name, value := range res.Headers {
		if strings.ContainsAny(name+value, "\r\n\x00") {
			t.Errorf("header %q: %q", name, value)
		}
	}
}

// problemKeys are all keys a problem may have. None of a decode's is among them.
var problemKeys = []string{"type", "title", "status", "detail", "instance", "code", "retryAfterSeconds", "waitedMs", "scope", "position", "character", "suggestion"}

func checkProblem(t *testing.T, res httpResponse, code decode.Code, head bool) {
	t.Helper()
	if res.StatusCode != code.Status() || res.Headers["Content-Type"] != "application/problem+json" {
		t.Errorf("%d %s, want %d and a problem", res.StatusCode, res.Headers["Content-Type"], code.Status())
	}
	if head {
		if res.Body != "" {
			t.Errorf("a HEAD with the body %s", res.Body)
		}
		return
	}
	var p map[string]any
	if err := json.Unmarshal([]byte(res.Body), &p); err != nil {
		t.Fatalf("%v in %s", err, res.Body)
	}
	for key := range p {
		if !slices.Contains(problemKeys, key) {
			t.Errorf("a refusal with the key %q", key)
		}
	}
	if p["code"] != string(code) || p["status"] != float64(code.Status()) || p["detail"] == "" || p["title"] == "" || p["waitedMs"] == nil {
		t.Errorf("problem %v", p)
	}
	if !regexp.MustCompile(`^urn:vingate:problem:[a-z-]+$`).MatchString(p["type"].(string)) {
		t.Errorf("type %v", p["type"])
	}
	if retry, ok := p["retryAfterSeconds"].(float64); ok && res.Headers["Retry-After"] != strconv.Itoa(int(retry)) {
		t.Errorf("retryAfterSeconds %v, Retry-After %q", retry, res.Headers["Retry-After"])
	}
	for _, word := range []string{"HONDA", "Accord", "Coupe", "reason for the log", "index out of range", "10.0.0.1", address} {
		if strings.Contains(res.String(), word) {
			t.Errorf("%q left the edge in %s", word, res)
		}
	}
	if strings.Contains(res.String(), accord[11:]) && code != decode.VINInvalid {
		t.Errorf("the serial left the edge in %s", res)
	}
}

// checkLog: nothing of the caller stands in the log in clear.
func checkLog(t *testing.T, e *edgeOf) {
	t.Helper()
	lines := e.log.String()
	for _, secret := range []string{accord[9:], "198.51.100", "vg_", "modelYear=", "/v1/vins/1"} {
		if strings.Contains(strings.ToUpper(lines), strings.ToUpper(secret)) {
			t.Errorf("%q is logged: %s", secret, lines)
		}
	}
	if !strings.Contains(lines, `"msg":"request"`) && !strings.Contains(lines, "unsupported event") {
		t.Errorf("the request is not logged: %s", lines)
	}
}
