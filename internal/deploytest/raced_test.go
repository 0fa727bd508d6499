//go:build unix

package deploytest

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"vingate/internal/edge"
)

// Lambda may hand an instance several requests at once (AWS_LAMBDA_MAX_CONCURRENCY, which aws-lambda-go obeys). The built function, with the
// race detector in it where the tests have it, answers sixteen at a time of every kind, and nothing of one gets into another.
func TestOneInstanceAnswersManyAtOnceWithoutARace(t *testing.T) {
	s := newStack(t)
	s.keepGate()
	_ = s.front.Close()
	s.front = s.lambda(theTemplate(t), "DecodeFunction", "decode", s.decode, 1, 16)
	s.nhtsa.mode.Store("slow")
	same := s.vin()
	var wg sync.WaitGroup
	answered := make(chan string, 200)
	for i := range 16 {
		wg.Go(func() {
			for n := range 4 {
				vin := same
				if n%2 == 1 {
					vin = s.vin()
				}
				path := "/v1/vins/" + vin
				switch (i + n) % 5 {
				case 3:
					path = "/v1/capacity"
				case 4:
					_, _ = s.front.Invoke(t.Context(), []byte(`{"source":"`+edge.WarmupSource+`"}`))
				}
				res, err := http.Get(s.front.URL() + path)
				if err != nil {
					t.Error(err)
					return
				}
				var body struct{ VIN string }
				err = json.NewDecoder(res.Body).Decode(&body)
				_ = res.Body.Close()
				if err != nil || res.StatusCode >= 500 || res.StatusCode == http.StatusOK && strings.HasPrefix(path, "/v1/vins") && body.VIN != vin {
					t.Errorf("%s: %d, %q, %v", path, res.StatusCode, body.VIN, err)
				}
				answered <- path
			}
		})
	}
	wg.Wait()
	if n := len(s.front.Instances()); n != 1 || len(answered) != 64 {
		t.Errorf("%d instances, %d answers", n, len(answered))
	}
	_ = s.front.Close()
	time.Sleep(50 * time.Millisecond)
	if out := s.out.String(); strings.Contains(out, "DATA RACE") || strings.Contains(out, "panic") {
		t.Errorf("%s", out)
	}
}

// A warm instance answers the event that keeps it warm at once, and spends nothing.
func TestAWarmUpOfAWarmInstanceIsQuickAndSpendsNothing(t *testing.T) {
	s := newStack(t)
	s.keepGate()
	var quickest time.Duration
	for n := range 12 {
		r, err := s.front.Invoke(t.Context(), []byte(`{"source":"`+edge.WarmupSource+`"}`))
		if err != nil || string(r.Payload) != `{"warm":true}` {
			t.Fatalf("%v %s", err, r.Payload)
		}
		if n > 0 && (quickest == 0 || r.Duration < quickest) {
			quickest = r.Duration
		}
	}
	if quickest >= 5*time.Millisecond { // on a busy machine single ones take longer
		t.Errorf("the quickest of eleven took %v", quickest)
	}
	s.decode.mu.Lock()
	defer s.decode.mu.Unlock()
	for c := range s.decode.calls {
		if c.op != "GetItem" || c.pk != "gate#nhtsa" {
			t.Errorf("it asked for %+v", c)
		}
	}
	if s.nhtsa.busy.Load() != 0 {
		t.Error("it called NHTSA")
	}
}
