package link

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestALinkIsSlowedResetAndCutAndWholeAgain(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
	defer s.Close()
	l, err := New(strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	get := func() (time.Duration, error) {
		began := time.Now()
		res, err := client.Get("http://" + l.Addr())
		if err != nil {
			return 0, err
		}
		defer res.Body.Close()
		_, err = io.ReadAll(res.Body)
		return time.Since(began), err
	}
	whole := func(after string) {
		t.Helper()
		if _, err := get(); err != nil {
			t.Errorf("after %s: %v", after, err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	whole("the start")
	must(l.Slow(200))
	if took, err := get(); err != nil || took < 140*time.Millisecond {
		t.Errorf("slowed by 200 ms: %v %v", took, err)
	}
	must(l.Slow(0))
	whole("slowness")
	must(l.Reset(true))
	failed := 0
	for range 40 {
		if _, err := get(); err != nil {
			failed++
		}
	}
	if failed == 0 {
		t.Error("no connection was reset")
	}
	must(l.Reset(false))
	whole("resets")
	must(l.Cut(true))
	if _, err := get(); err == nil {
		t.Error("somebody got through a link that is cut")
	}
	must(l.Cut(false))
	whole("a cut")
}
