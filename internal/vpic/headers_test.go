package vpic

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []string
		date   string
		want   time.Duration
	}{
		{"none", nil, "", 0},
		{"seconds", []string{"30"}, "", 30 * time.Second},
		{"blanks around", []string{" 30 "}, "", 30 * time.Second},
		{"zero is a second", []string{"0"}, "", time.Second},
		{"more than an hour is an hour", []string{"86400"}, "", time.Hour},
		{"more digits than fit", []string{strings.Repeat("9", 40)}, "", time.Hour},
		{"a number just beyond 32 bits", []string{"4294967296"}, "", time.Hour},
		{"a date", []string{"Mon, 30 Nov 2026 12:01:30 GMT"}, "", 90 * time.Second},
		{"a date by the answer's own clock", []string{"Mon, 30 Nov 2026 09:00:20 GMT"}, "Mon, 30 Nov 2026 09:00:00 GMT", 20 * time.Second},
		{"a date beside an unreadable clock", []string{"Mon, 30 Nov 2026 12:01:30 GMT"}, "noon", 90 * time.Second},
		{"a date in the past", []string{"Mon, 30 Nov 2026 11:00:00 GMT"}, "", time.Second},
		{"a date far away", []string{"Mon, 30 Nov 2099 12:00:00 GMT"}, "", time.Hour},
		{"the old forms of a date", []string{"Monday, 30-Nov-26 12:00:10 GMT"}, "", 10 * time.Second},
		{"several, the longest", []string{"5", "60", "7"}, "", time.Minute},
		{"a negative number", []string{"-5"}, "", 0},
		{"a fraction", []string{"1.5"}, "", 0},
		{"words", []string{"soon"}, "", 0},
		{"nothing in it", []string{""}, "", 0},
		{"foreign digits", []string{"٣٠"}, "", 0},
	} {
		if got := retryAfter(c.values, c.date, noon); got != c.want {
			t.Errorf("%s: retryAfter(%q, %q) = %s, want %s", c.name, c.values, c.date, got, c.want)
		}
	}
}

func TestQuotaHeaders(t *testing.T) {
	for _, c := range []struct {
		name   string
		header map[string]string
		want   Quota
	}{
		{"none", nil, Quota{}},
		{"something left", map[string]string{"RateLimit": `"ip";r=29;t=12`}, Quota{}},
		{"nothing left", map[string]string{"RateLimit": `"ip";r=0;t=12`}, Quota{Exhausted: true, RetryAfter: 12 * time.Second}},
		{"one of two policies has nothing left", map[string]string{"RateLimit": `"ip";r=29;t=1, "all";r=0;t=40`}, Quota{true, 40 * time.Second}},
		{"nothing left, no time", map[string]string{"RateLimit": `"ip";r=0`}, Quota{Exhausted: true}},
		{"the older draft", map[string]string{"RateLimit": "limit=10, remaining=0, reset=7"}, Quota{true, 7 * time.Second}},
		{"fields apart", map[string]string{"RateLimit-Remaining": "0", "RateLimit-Reset": "9"}, Quota{true, 9 * time.Second}},
		{"X fields with a Unix time", map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1796040030"}, Quota{true, 30 * time.Second}},
		{"X fields with something left", map[string]string{"X-RateLimit-Remaining": "10", "X-RateLimit-Reset": "9"}, Quota{}},
		{"a reset of days is an hour", map[string]string{"RateLimit": `"ip";r=0;t=864000`}, Quota{true, time.Hour}},
		{"Retry-After wins", map[string]string{"RateLimit": `"ip";r=0;t=12`, "Retry-After": "3"}, Quota{true, 3 * time.Second}},
		{"Retry-After alone", map[string]string{"Retry-After": "3"}, Quota{true, 3 * time.Second}},
		{"unreadable counts", map[string]string{"RateLimit": `"ip";r=-0;t=x`, "X-RateLimit-Remaining": "none"}, Quota{}},
	} {
		h := make(http.Header)
		for k, v := range c.header {
			h.Set(k, v)
		}
		if got := readQuota(h, noon); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "0", "30", "99999999999999999999", "Mon, 30 Nov 2026 12:01:30 GMT", "-1", "1.5", "Mon, 30 Nov 0000 12:01:30 GMT"} {
		f.Add(s, "")
		f.Add(s, "Mon, 30 Nov 2026 12:00:00 GMT")
		f.Add("5", s)
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		if got := retryAfter([]string{value}, date, noon); got != 0 && (got < time.Second || got > time.Hour) {
			t.Fatalf("retryAfter(%q, %q) = %s", value, date, got)
		}
	})
}

func FuzzQuota(f *testing.F) {
	for _, s := range []string{"", `"ip";r=0;t=12`, "limit=10, remaining=0, reset=7", "0", ";;==,,", `"a;b,c";r=00`} {
		f.Add(s, s, s)
	}
	f.Fuzz(func(t *testing.T, limit, remaining, reset string) {
		h := http.Header{"Ratelimit": {limit}, "X-Ratelimit-Remaining": {remaining}, "X-Ratelimit-Reset": {reset}}
		q := readQuota(h, noon)
		if q.RetryAfter != 0 && (!q.Exhausted || q.RetryAfter < time.Second || q.RetryAfter > time.Hour) {
			t.Fatalf("%+v", q)
		}
	})
}
