//go:build unix

package locallambda

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
)

var update = flag.Bool("update", false, "write the golden files")

var someTime = time.Date(2026, 3, 9, 7, 5, 1, 234e6, time.FixedZone("CET", 3600))

func request(method, target, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	r.RemoteAddr = "127.0.0.2:40001"
	r.Host = "127.0.0.1:8080"
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080})))
}

func TestEventsAreThoseOfAnHTTPAPI(t *testing.T) {
	peer := func(r *http.Request, addr string) *http.Request { r.RemoteAddr = addr; return r }
	for name, tc := range map[string]struct {
		r    *http.Request
		body string
	}{
		"get-with-query-cookies-and-repeated-headers": {r: request("GET", "/v1/vins/1HGCM82633A004352?modelYear=2003&a=1&a=2&b=%2C+x&c&%zz=%zz", "",
			"User-Agent", "curl/8.5.0", "Accept", "text/html", "Accept", "application/json", "X-Api-Key", "k",
			"Cookie", "a=1; b=2", "Cookie", "c=3", "Connection", "keep-alive", "X-Forwarded-For", "203.0.113.9")},
		"path-is-decoded": {r: request("GET", "/v1/vins/%EF%BC%91HG%20%2fCM?x=%20y", "")},
		"json-is-plain": {r: request("POST", "/v1/vins", "", "Content-Type", "application/json; charset=utf-8", "Content-Length", "16"),
			body: `{"vins":["1HG"]}`},
		"form-is-base64":             {r: request("POST", "/api/vehicles/DecodeVINValuesBatch/", "", "Content-Type", "application/x-www-form-urlencoded"), body: "DATA=1HG%3B&format=json"},
		"no-content-type-is-base64":  {r: request("POST", "/", ""), body: "hello"},
		"text-is-plain":              {r: request("PUT", "/", "", "Content-Type", "TEXT/csv"), body: "vin\r\n1HG"},
		"peer-of-ipv6":               {r: peer(request("HEAD", "/", ""), "[fe80::1%eth0]:443")},
		"peer-of-ipv4-in-ipv6":       {r: peer(request("GET", "/", ""), "[::ffff:127.0.0.3]:443")},
		"empty-body-is-not-encoded":  {r: request("POST", "/", "", "Content-Type", "application/octet-stream")},
		"vendors-json-is-base64":     {r: request("POST", "/", "", "Content-Type", "application/problem+json"), body: "{}"},
		"broken-parameter-keeps-typ": {r: request("POST", "/", "", "Content-Type", "application/json; charset"), body: "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			ev := newEvent(tc.r, []byte(tc.body), "AbCdEfGhIjKlMnO=", "Root=1-00000000-000000000000000000000000", someTime)
			got, err := json.MarshalIndent(ev, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			// Functions read it with aws-lambda-go: it must know every field.
			dec := json.NewDecoder(bytes.NewReader(got))
			dec.DisallowUnknownFields()
			if err := dec.Decode(new(events.APIGatewayV2HTTPRequest)); err != nil {
				t.Error(err)
			}
			file := filepath.Join("testdata", "events", name+".json")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func FuzzEvent(f *testing.F) {
	f.Add("/a%20b", "a=1&a=2&;%zz", "a=1;;b", "application/json;", []byte("x"), "1.2.3.4:5")
	f.Add("/", "", "", "text/", []byte{0xff}, "nonsense")
	f.Add("", "&&==", ";", ";;", []byte{}, "[::1%a]:1")
	f.Fuzz(func(t *testing.T, path, query, cookie, contentType string, body []byte, remote string) {
		r := request("POST", "/", "")
		r.URL.Path, r.URL.RawQuery, r.RemoteAddr = path, query, remote
		r.Header["Cookie"], r.Header["Content-Type"] = []string{cookie}, []string{contentType}
		ev := newEvent(r, body, "id", "trace", someTime)
		if _, err := json.Marshal(ev); err != nil {
			t.Fatalf("the event has no JSON: %v", err)
		}
		got := []byte(ev.Body)
		if ev.IsBase64Encoded {
			var err error
			if got, err = base64.StdEncoding.DecodeString(ev.Body); err != nil {
				t.Fatal(err)
			}
		}
		if string(got) != string(body) {
			t.Fatalf("body %q became %q", body, got)
		}
		for _, c := range ev.Cookies {
			if strings.TrimSpace(c) != c || c == "" || strings.Contains(c, ";") {
				t.Fatalf("cookie %q of %q", c, cookie)
			}
		}
	})
}

func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		`{"statusCode":200,"headers":{"a":"b","c":1,"d":true,"e":null},"cookies":["a=1"],"body":"aGk=","isBase64Encoded":true}`,
		`{"statusCode":"404"}`, `{"hello":1}`, `"text"`, `null`, `[1]`, ``, `{`, `{"statusCode":200,"body":{}}`, `{"statusCode":1e3}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		res, err := parseResponse(payload)
		if err != nil {
			return
		}
		if res.status < 200 || res.status > 599 {
			t.Fatalf("status %d of %q", res.status, payload)
		}
		rec := httptest.NewRecorder()
		res.write(rec) // must not panic
		if rec.Code != res.status {
			t.Fatalf("wrote %d, want %d", rec.Code, res.status)
		}
	})
}

func TestAnswersAreReadAsAnHTTPAPIReadsThem(t *testing.T) {
	for _, tc := range []struct {
		name, payload string
		status        int // 0: no answer can be made of it
		headers       map[string]string
		cookies       []string
		body          string
	}{
		{name: "an object without statusCode is the body", payload: ` {"hello":"world"} `, status: 200,
			headers: map[string]string{"Content-Type": "application/json"}, body: `{"hello":"world"}`},
		{name: "a string is its text", payload: `"Hello \"you\""`, status: 200, headers: map[string]string{"Content-Type": "application/json"}, body: `Hello "you"`},
		{name: "null is itself", payload: `null`, status: 200, headers: map[string]string{"Content-Type": "application/json"}, body: `null`},
		{name: "a list is itself", payload: `[1,2]`, status: 200, headers: map[string]string{"Content-Type": "application/json"}, body: `[1,2]`},
		{name: "all fields", payload: `{"statusCode":429,"headers":{"Retry-After":"3","content-type":"application/problem+json"},"cookies":["a=1","b=2"],"body":"{}"}`,
			status: 429, headers: map[string]string{"Retry-After": "3", "Content-Type": "application/problem+json", "Content-Length": "2"}, cookies: []string{"a=1", "b=2"}, body: "{}"},
		{name: "base64 is decoded", payload: `{"statusCode":200,"body":"aGk=","isBase64Encoded":true}`, status: 200, body: "hi"},
		{name: "no content type is text", payload: `{"statusCode":200,"body":"hi"}`, status: 200, headers: map[string]string{"Content-Type": "text/plain;charset=UTF-8"}, body: "hi"},
		{name: "a status as text", payload: `{"statusCode":"201"}`, status: 201},
		{name: "nulls are absent", payload: `{"statusCode":200,"headers":null,"multiValueHeaders":null,"cookies":null,"body":null}`, status: 200},
		{name: "headers of other types", payload: `{"statusCode":200,"headers":{"x-n":12,"x-b":false,"x-0":null}}`, status: 200, headers: map[string]string{"X-N": "12", "X-B": "false", "X-0": ""}},
		{name: "the length is what is sent", payload: `{"statusCode":200,"headers":{"Content-Length":"999","Transfer-Encoding":"chunked"},"body":"abc"}`,
			status: 200, headers: map[string]string{"Content-Length": "3", "Transfer-Encoding": ""}, body: "abc"},
		{name: "204 has no body", payload: `{"statusCode":204,"body":"x"}`, status: 204, headers: map[string]string{"Content-Type": "", "Content-Length": ""}},
		{name: "status 0", payload: `{"statusCode":0}`},
		{name: "status null", payload: `{"statusCode":null}`},
		{name: "an informational status", payload: `{"statusCode":103}`},
		{name: "a status beyond", payload: `{"statusCode":600}`},
		{name: "a body that is no text", payload: `{"statusCode":200,"body":{"a":1}}`},
		{name: "a header that is a list", payload: `{"statusCode":200,"headers":{"a":["b"]}}`},
		{name: "base64 that is none", payload: `{"statusCode":200,"body":"?","isBase64Encoded":true}`},
		{name: "no JSON", payload: `<html>`},
		{name: "nothing", payload: ``},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res, err := parseResponse([]byte(tc.payload))
			if tc.status == 0 {
				if err == nil {
					t.Fatalf("accepted as %+v", res)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			rec := httptest.NewRecorder()
			res.write(rec)
			if rec.Code != tc.status || rec.Body.String() != tc.body {
				t.Errorf("%d %q, want %d %q", rec.Code, rec.Body, tc.status, tc.body)
			}
			for name, want := range tc.headers {
				if got := rec.Header().Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			if got := rec.Header().Values("Set-Cookie"); strings.Join(got, "|") != strings.Join(tc.cookies, "|") {
				t.Errorf("cookies %q, want %q", got, tc.cookies)
			}
		})
	}
}

func TestEnvironmentOfAnInstance(t *testing.T) {
	build := func(opt Options) map[string]string {
		opt.Bootstrap, opt.FunctionName, opt.MemoryMB = "/opt/fn/bootstrap", "decode", 256
		return envMap(environment(opt, "127.0.0.1:9001", 3, someTime))
	}
	local := "AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:8000"
	for _, tc := range []struct {
		name string
		opt  Options
		want map[string]string // "" is absent or empty
	}{
		{"Lambda's own variables are there", Options{Concurrency: 1, Env: []string{"MAX_IN_FLIGHT=4", "AWS_LAMBDA_RUNTIME_API=elsewhere", "_LAMBDA_SERVER_PORT=1", "AWS_LAMBDA_MAX_CONCURRENCY=9"}},
			map[string]string{"MAX_IN_FLIGHT": "4", "AWS_LAMBDA_RUNTIME_API": "127.0.0.1:9001", "_LAMBDA_SERVER_PORT": "", "AWS_LAMBDA_MAX_CONCURRENCY": "",
				"AWS_LAMBDA_FUNCTION_NAME": "decode", "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
				"_HANDLER": "bootstrap", "LAMBDA_TASK_ROOT": "/opt/fn", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
				"AWS_XRAY_SDK_DISABLED": "true", "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand", "TZ": ":UTC",
				"AWS_LAMBDA_LOG_STREAM_NAME": "2026/03/09/[$LATEST]00000000000000000000000000000003"}},
		{"concurrency is told", Options{Concurrency: 8, Env: []string{"A=b"}}, map[string]string{"AWS_LAMBDA_MAX_CONCURRENCY": "8"}},
		{"what is set stays", Options{Env: []string{"AWS_DEFAULT_REGION=eu-west-1", "AWS_XRAY_SDK_DISABLED=false"}},
			map[string]string{"AWS_REGION": "eu-west-1", "AWS_XRAY_SDK_DISABLED": "false"}},
		{"a local store needs credentials of any kind", Options{Env: []string{local}}, map[string]string{"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}},
		{"real credentials stay", Options{Env: []string{local, "AWS_ACCESS_KEY_ID=AK"}}, map[string]string{"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": ""}},
		{"a profile stays", Options{Env: []string{local, "AWS_PROFILE=dev"}}, map[string]string{"AWS_ACCESS_KEY_ID": ""}},
		{"real AWS gets no made-up credentials", Options{Env: []string{"A=b"}}, map[string]string{"AWS_ACCESS_KEY_ID": ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := build(tc.opt)
			for name, want := range tc.want {
				if got[name] != want {
					t.Errorf("%s=%q, want %q", name, got[name], want)
				}
			}
		})
	}
}

func TestTraceIDsOfCallersAreTakenWhenTheyAreSound(t *testing.T) {
	for trace, want := range map[string]bool{
		"Root=1-5759e988-bd862e3fe1be46a994272793":                                   true,
		"Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1": true,
		"": false,
		"Root=1-5759e988-bd862e3fe1be46a99427279":       false,
		"Self=1-5759e988-bd862e3fe1be46a994272793":      false,
		"Root=1-5759e988-bd862e3fe1be46a994272793;\x00": false,
	} {
		if got := tracePattern.MatchString(trace); got != want {
			t.Errorf("%q: %v, want %v", trace, got, want)
		}
	}
	if id := newTraceID(false); !tracePattern.MatchString(id) || !utf8.ValidString(id) {
		t.Errorf("our own %q is not one", id)
	}
}
