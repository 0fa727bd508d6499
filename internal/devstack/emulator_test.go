//go:build linux

package devstack

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAFunctionsAnswerIsToldFromItsFailure(t *testing.T) {
	for _, tc := range []struct {
		name, payload string
		failed        bool
		status        int
		out, notes    string
	}{
		{name: "a response", payload: `{"statusCode":200,"body":"{\"a\":1}","headers":{}}`, status: 200, out: "{\n  \"a\": 1\n}\n", notes: "HTTP 200 OK\n"},
		{name: "a refusal is an answer", payload: `{"statusCode":429,"body":"{}"}`, status: 429, out: "{}\n", notes: "HTTP 429 Too Many Requests\n"},
		{name: "base64", payload: `{"statusCode":200,"body":"aGk=","isBase64Encoded":true}`, status: 200, out: "hi\n", notes: "HTTP 200 OK\n"},
		{name: "no body", payload: `{"statusCode":204}`, status: 204, out: "\n", notes: "HTTP 204 No Content\n"},
		{name: "a bare object", payload: `{"warm":true}`, out: "{\n  \"warm\": true\n}\n"},
		{name: "a list", payload: `[1]`, out: "[\n  1\n]\n"},
		{name: "an error", payload: `{"errorMessage":"as asked","errorType":"errorString"}`, failed: true, out: "{\n  \"errorMessage\": \"as asked\",\n  \"errorType\": \"errorString\"\n}\n"},
		{name: "a timeout", payload: `Task timed out after 3.00 seconds`, failed: true, out: "Task timed out after 3.00 seconds\n"},
		{name: "nothing", payload: ``, failed: true, out: "\n"},
		{name: "base64 that is none", payload: `{"statusCode":200,"body":"?","isBase64Encoded":true}`, failed: true, status: 200, out: "?\n", notes: "HTTP 200 OK\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := readAnswer([]byte(tc.payload))
			if a.Failed != tc.failed || a.Status != tc.status {
				t.Errorf("failed %v status %d, want %v %d", a.Failed, a.Status, tc.failed, tc.status)
			}
			var out, notes strings.Builder
			a.Write(&out, &notes)
			if out.String() != tc.out || notes.String() != tc.notes {
				t.Errorf("printed %q and %q, want %q and %q", out.String(), notes.String(), tc.out, tc.notes)
			}
		})
	}
}

func FuzzAnswer(f *testing.F) {
	for _, s := range []string{`{"statusCode":200,"body":"aGk=","isBase64Encoded":true}`, `{"errorMessage":null}`, `null`, `{"statusCode":"x"}`, `[`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		a := readAnswer(payload)
		if !json.Valid(payload) && !a.Failed {
			t.Fatalf("%q is no answer", payload)
		}
		var out, notes strings.Builder
		a.Write(&out, &notes)
		if (notes.Len() > 0) != (a.Status != 0) {
			t.Fatalf("status %d, notes %q", a.Status, notes.String())
		}
	})
}

func TestInvokeUnderTheEmulator(t *testing.T) {
	rie := os.Getenv("VINGATE_RIE")
	if rie == "" {
		rie = filepath.Join(Find(".", os.Getenv).Bin, "aws-lambda-rie")
	}
	if _, err := os.Stat(rie); err != nil {
		t.Skipf("no runtime interface emulator at %s (`make invoke` builds it, VINGATE_RIE names another)", rie)
	}
	o, _ := options(t)
	e := Emulator{RIE: rie, Bootstrap: o.Bootstrap, Timeout: 5 * time.Second}
	o.Bootstrap = "" // no edge
	s := start(t, o)
	if s.EdgeURL != "" {
		t.Errorf("an edge at %s", s.EdgeURL)
	}
	for _, tc := range []struct {
		path, init string
		failed     bool
		status     int
	}{
		{path: "/x", status: 200},
		{path: "/invalid", status: 400},
		{path: "/raw"},
		{path: "/error", failed: true},
		{path: "/exit", failed: true},
		{path: "/x", init: "1", failed: true},
	} {
		t.Run(tc.path+tc.init, func(t *testing.T) {
			env := s.Env
			defer func() { s.Env = env }()
			s.Env = setEnv(s.Env, "FAIL_INIT", tc.init)
			a, err := s.Invoke(t.Context(), e, []byte(`{"version":"2.0","rawPath":"`+tc.path+`"}`))
			if err != nil {
				t.Fatal(err)
			}
			if a.Failed != tc.failed || a.Status != tc.status {
				t.Errorf("failed %v status %d, want %v %d: %s", a.Failed, a.Status, tc.failed, tc.status, a.Payload)
			}
			if tc.status == 200 && !strings.Contains(string(a.Body), s.StoreURL) {
				t.Errorf("body %s lacks the store's address", a.Body)
			}
		})
	}
	if _, err := s.Invoke(t.Context(), e, []byte(`{`)); err == nil {
		t.Error("an event that is not JSON was accepted")
	}
	e.RIE = "nowhere/rie"
	if _, err := s.Invoke(t.Context(), e, []byte(`{}`)); err == nil || !strings.Contains(err.Error(), `"nowhere/rie"`) {
		t.Errorf("%v", err)
	}
}
