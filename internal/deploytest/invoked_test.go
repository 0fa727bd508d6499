//go:build unix

package deploytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"vingate/internal/devstack"
)

// lacks finds what an answer has otherwise than it is wanted. An object may have more than is wanted; everything else is compared whole.
func lacks(where string, got, want any) []string {
	switch want := want.(type) {
	case object:
		have, ok := got.(object)
		if !ok {
			return []string{fmt.Sprintf("%s is %v, want an object", where, got)}
		}
		var faults []string
		for key, v := range want {
			faults = append(faults, lacks(where+"."+key, have[key], v)...)
		}
		return faults
	case []any:
		have, ok := got.([]any)
		if !ok || len(have) != len(want) {
			return []string{fmt.Sprintf("%s is %v, want a list of %d", where, got, len(want))}
		}
		var faults []string
		for i, v := range want {
			faults = append(faults, lacks(fmt.Sprintf("%s[%d]", where, i), have[i], v)...)
		}
		return faults
	}
	if !reflect.DeepEqual(got, want) {
		return []string{fmt.Sprintf("%s is %v, want %v", where, got, want)}
	}
	return nil
}

func TestAnswerCheckCanFail(t *testing.T) {
	parse := func(s string) (v any) {
		if err := json.Unmarshal([]byte(s), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	got := parse(`{"a":1,"b":[{"c":"x","d":2},3],"e":null}`)
	wantNone(t, lacks("", got, parse(`{"a":1,"b":[{"c":"x"},3],"e":null}`)))
	for says, want := range map[string]string{".a is 1": `{"a":2}`, ".b[0].c is x": `{"b":[{"c":"y"},3]}`, "want a list of 1": `{"b":[3]}`, ".f is <nil>": `{"f":1}`, "want an object": `{"a":{}}`} {
		wantFinding(t, lacks("", got, parse(want)), says)
	}
}

// Every sample event, under AWS's own emulator, has the answer that lies beside: make invoke EVENT=events/... shows it.
func TestEverySampleEventHasItsAnswerUnderTheEmulator(t *testing.T) {
	places := devstack.Find(".", os.Getenv)
	rie := os.Getenv("VINGATE_RIE")
	if rie == "" {
		rie = filepath.Join(places.Bin, "aws-lambda-rie")
	}
	if _, err := os.Stat(rie); err != nil {
		t.Skipf("no runtime interface emulator at %s (`make invoke` builds it, VINGATE_RIE names another)", rie)
	}
	upstream := newNHTSA(t)
	for name, text := range map[string]string{"Make": "HONDA", "Model": "Accord", "ModelYear": "2003"} {
		upstream.row[name] = text
	}
	s, err := devstack.Start(t.Context(), devstack.Options{Dynoxide: places.Dynoxide, UpstreamURL: upstream.URL + "/api/vehicles",
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "RATE_PER_SECOND=20", "RATE_BURST=60"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	t.Cleanup(upstream.Close)
	files, err := filepath.Glob(filepath.Join(root, "events", "*.json"))
	if err != nil || len(files) < 6 {
		t.Fatalf("found %d events: %v", len(files), err)
	}
	bin := bootstraps(t)
	for _, file := range files {
		name := filepath.Base(file)
		if name == "env.json" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			function := "decode"
			if name == "keeper.json" {
				function = "keeper"
			}
			a, err := s.Invoke(t.Context(), devstack.Emulator{RIE: rie, Bootstrap: filepath.Join(bin, function), Timeout: 28 * time.Second}, []byte(read(t, "events/"+name)))
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			expected := read(t, "internal/deploytest/testdata/answers/"+name)
			if err := errors.Join(json.Unmarshal(a.Payload, &got), json.Unmarshal([]byte(expected), &want)); err != nil {
				t.Fatalf("%v in %s", err, a.Payload)
			}
			// The body is a text in the payload: looked into like the rest.
			if m, ok := got.(object); ok && a.Status != 0 {
				var body any
				if err := json.Unmarshal(a.Body, &body); err != nil {
					t.Fatalf("%v in %s", err, a.Body)
				}
				m["body"] = body
			}
			wantNone(t, lacks("", got, want))
			if a.Failed {
				t.Error("the function failed")
			}
		})
	}
}
