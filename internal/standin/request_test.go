package standin

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func FuzzCall(f *testing.F) {
	for _, seed := range [][3]string{
		{"GET", "/api/vehicles/DecodeVinValues/1HG?format=json&modelyear=2011", ""},
		{"GET", "/API/VEHICLES/decodevinvaluesextended/%2F%20*?FORMAT=csv", ""},
		{"GET", "/api/vehicles/DecodeVinValues//", ""},
		{"GET", "/api/vehicles/DecodeVinValues/%zz", ""},
		{"POST", "/api/vehicles/DecodeVINValuesBatch/", "DATA=1HG,2011;2HG;,&format=json"},
		{"POST", "/api/vehicles/DecodeVINValuesBatch", "data=%31%48+;;;=&&=&format"},
		{"GET", "/%2e%2e/api", ""},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, method, target, body string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(target, "/") {
			return
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.Method, r.URL = method, u
		call, bad := parseCall(r, body)
		if bad != nil {
			if bad.status < 400 || bad.status > 499 || bad.message == "" || bad.kind == "" {
				t.Fatalf("refused with %+v", bad)
			}
			return
		}
		if call.format != formatJSON && call.format != formatXML && call.format != formatCSV {
			t.Fatalf("format %q", call.format)
		}
		if !call.batch && (len(call.queries) != 1 || call.queries[0].VIN == "") {
			t.Fatalf("single call with %+v", call.queries)
		}
		if !call.batch {
			call.criteria()
		}
		for _, q := range call.queries {
			if call.batch && (strings.Contains(q.VIN, ";") || strings.Contains(q.VIN, ",") || strings.TrimSpace(q.VIN) != q.VIN || q.VIN == "") {
				t.Fatalf("batch entry %q", q.VIN)
			}
		}
	})
}
