package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"vingate/internal/standin"
)

// spoken is what a client of NHTSA's was told.
type spoken struct {
	Outcomes []struct {
		Value  map[string]any
		Thrown string
	}
	Statuses []int
}

// nodeClient runs npm's @shaggytools/nhtsa-api-wrapper against an origin.
func nodeClient(t *testing.T, origin string, calls ...[]any) spoken {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node here")
	}
	in, err := json.Marshal(calls)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, "testdata/nhtsa-client.mjs",
		filepath.Join(places.Root, "tools", "npm", "node_modules", "@shaggytools", "nhtsa-api-wrapper"), origin)
	cmd.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var s spoken
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return s
}

// NHTSA's clients keep their code: what they are told through vingate is what NHTSA tells them, to the byte of every field, live and stored.
func TestAClientOfNHTSAsIsToldWhatNHTSAWouldTellIt(t *testing.T) {
	p := start(t, 2, 1)
	calls := [][]any{
		{"DecodeVinValues", "1HGCM82633A004352", map[string]any{"modelYear": 2003}},
		{"DecodeVinValues", "1HGCM82633A004352"},
		{"DecodeVinValues", "1hgcm82633a004352"},
		{"DecodeVinValues", "5UXWX7C5*BA", map[string]any{"modelYear": "2011"}},
		{"DecodeVinValues", "5UXWX7C5"},
		{"DecodeVinValues", "1HGCM82633A00435O"},
		{"DecodeVinValues", "QQQ"},
		{"DecodeVinValuesExtended", "1FTMW1T88MFA00001"},
		{"DecodeVinValuesBatch", "5UXWX7C5*BA, 2011; 1HGCM82633A004352;1ftmw1t88mfa00001"},
		{"DecodeVinValuesBatch", "5UXWX7C5*BA, 2011; 5UXWX7C5*BA,2011 ;XXX;"},
	}
	want := nodeClient(t, p.StandInURL, calls...)
	for _, run := range []string{"live", "stored"} {
		before := p.stats(t).Calls
		got := nodeClient(t, p.EdgeURL, calls...)
		for i := range calls {
			if want.Outcomes[i].Thrown != "" || len(want.Outcomes[i].Value["Results"].([]any)) == 0 {
				t.Fatalf("%v at the stand-in: %s", calls[i], want.Outcomes[i].Thrown)
			}
			if !reflect.DeepEqual(got.Outcomes[i], want.Outcomes[i]) {
				t.Errorf("%s: %v\ngot  %v\nwant %v", run, calls[i], got.Outcomes[i], want.Outcomes[i])
			}
		}
		made := p.stats(t).Calls - before
		// Of ten questions two are another's in another spelling, one batch has one VIN that is new, and one has one.
		if run == "live" && made != 9 || run == "stored" && made != 0 {
			t.Errorf("%s: %d calls to NHTSA", run, made)
		}
	}
}

func TestAClientOfNHTSAsIsToldOfARefusalAsAnError(t *testing.T) {
	p := start(t, 1, 1, "ANON_RATE_PER_SECOND=0.1", "ANON_BURST=5")
	var calls [][]any
	for range 5 {
		calls = append(calls, []any{"DecodeVinValues", accords(9)[len(calls)]})
	}
	calls = append(calls, []any{"DecodeVinValues", accords(9)[8]}, []any{"DecodeVinValuesBatch", accords(9)[0] + ";" + accords(9)[7]}, []any{"DecodeVinValues", accords(9)[0]})
	got := nodeClient(t, p.EdgeURL, calls...)
	if want := []int{200, 200, 200, 200, 200, 429, 429, 200}; !reflect.DeepEqual(got.Statuses, want) {
		t.Errorf("statuses %v, want %v", got.Statuses, want)
	}
	for i, o := range got.Outcomes {
		refused := got.Statuses[i] != 200
		if refused != (o.Thrown != "") || refused != (o.Value == nil) || refused && !strings.Contains(o.Thrown, "429") {
			t.Errorf("%v: %+v", calls[i], o)
		}
	}
	if n := p.stats(t).Calls; n != 5 {
		t.Errorf("%d calls to NHTSA", n)
	}
}

// Whatever NHTSA's trouble is, the drop-in never dresses it up as NHTSA's answer.
func TestTroubleAtNHTSAIsNeverA200OfTheDropIn(t *testing.T) {
	vins := accords(len(kindsOfTrouble))
	for i, kind := range kindsOfTrouble {
		t.Run(string(kind), func(t *testing.T) {
			p := start(t, 1, 1, "UPSTREAM_TIMEOUT=1s")
			p.faults(t, standin.Faults{Rules: []standin.Rule{{Kind: kind}}})
			for _, ask := range []func() (*http.Response, error){
				func() (*http.Response, error) {
					return http.Get(p.EdgeURL + "/api/vehicles/decodevinvalues/" + vins[i])
				},
				func() (*http.Response, error) {
					return http.PostForm(p.EdgeURL+"/api/vehicles/decodevinvaluesbatch/", url.Values{"data": {vins[i]}})
				},
			} {
				res, err := ask()
				if err != nil {
					t.Fatal(err)
				}
				var body map[string]any
				err = json.NewDecoder(res.Body).Decode(&body)
				_ = res.Body.Close()
				if err != nil || res.StatusCode < 429 || res.Header.Get("Content-Type") != "application/problem+json" || res.Header.Get("Retry-After") == "" {
					t.Errorf("%s, %v, %v", res.Status, res.Header, body)
				}
				for _, key := range []string{"Results", "Message", "Count"} {
					if body[key] != nil {
						t.Errorf("a refusal with %s: %v", key, body)
					}
				}
			}
		})
	}
}

// kindsOfTrouble are one of each status that NHTSA's trouble has here.
var kindsOfTrouble = []standin.Kind{standin.HTTP429, standin.WrongVIN, standin.Hang}
