package standin

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestEveryCallIsToldWithItsStartItsEndAndItsAnswer(t *testing.T) {
	clock := newClock()
	j := newJournal()
	first := j.begin(clock.Now, "one")
	clock.advance(time.Microsecond)
	second := j.begin(clock.Now, "two")
	first.asked([]string{" abc "})
	clock.advance(time.Microsecond)
	first.answered("http-429", "2")
	first.end(clock.Now)
	clock.advance(time.Microsecond)
	first.end(clock.Now) // the caller hung up later: that ends nothing again
	second.asked(nil)
	at := newClock().Now().UnixMicro()
	want := []Call{
		{Start: at, End: at + 2, Kind: "http-429", VINs: []string{"ABC"}, RetryAfter: "2", By: "one"},
		{Start: at + 1, By: "two"},
	}
	if got := j.read(0); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := j.read(at + 1); !reflect.DeepEqual(got, want[1:]) || len(j.read(at+2)) > 0 {
		t.Errorf("since the second: %+v", got)
	}
}

func TestTheJournalKeepsTheLastCalls(t *testing.T) {
	j := newJournal()
	for range 2*keptCalls + 10 {
		j.begin(time.Now, "x")
	}
	if n := len(j.read(0)); n != keptCalls || len(j.calls) > 2*keptCalls {
		t.Errorf("%d told, %d kept", n, len(j.calls))
	}
}

func TestCallsAreServed(t *testing.T) {
	s, err := New(Config{Decoder: fakeDecoder{}})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/api/vehicles/DecodeVinValues/1hgcm82633a004352?format=json", nil)
	r.Header.Set("User-Agent", "somebody")
	s.ServeHTTP(httptest.NewRecorder(), r)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", "/_standin/calls", nil))
	var calls []Call
	if err := json.Unmarshal(w.Body.Bytes(), &calls); err != nil || len(calls) != 1 {
		t.Fatalf("%v %s", err, w.Body)
	}
	if c := calls[0]; c.By != "somebody" || c.Kind != AnswerDecoded || c.End < c.Start || len(c.VINs) != 1 || c.VINs[0] != "1HGCM82633A004352" {
		t.Errorf("%+v", c)
	}
	for since, want := range map[string]int{"x": 400, fmt.Sprint(calls[0].Start): 200, fmt.Sprint(calls[0].Start + 1): 200} {
		w = httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("GET", "/_standin/calls?since="+since, nil))
		if empty := strings.TrimSpace(w.Body.String()) == "[]"; w.Code != want || empty != (since == fmt.Sprint(calls[0].Start+1)) {
			t.Errorf("since %s: %d %s", since, w.Code, w.Body)
		}
	}
	w = httptest.NewRecorder()
	if s.ServeHTTP(w, httptest.NewRequest("POST", "/_standin/calls", nil)); w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
}
