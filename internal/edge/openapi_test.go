package edge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"gopkg.in/yaml.v3"

	"vingate/internal/decode"
)

// written is the document as people edit it.
const written = "../../infra/openapi.yaml"

func init() {
	// A problem is JSON too.
	openapi3filter.RegisterBodyDecoder("application/problem+json", openapi3filter.JSONBodyDecoder)
}

// apiDocument loads the document as it is served, and checks it: references, schemas and examples.
func apiDocument(t *testing.T) (*openapi3.T, routers.Router) {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openAPIDocument)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Fatal(err)
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return doc, router
}

func TestTheServedDocumentIsTheWrittenOne(t *testing.T) {
	text, err := os.ReadFile(written)
	if err != nil {
		t.Fatal(err)
	}
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		t.Fatal(err)
	}
	want, err := asJSON(node.Content[0])
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("openapi.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(openAPIDocument, want) {
		t.Error("openapi.json is not infra/openapi.yaml: run go test ./internal/edge -run TheServedDocument -update")
	}
}

// asJSON keeps the order in which the document is written.
func asJSON(n *yaml.Node) ([]byte, error) {
	switch n.Kind {
	case yaml.MappingNode:
		out := []byte{'{'}
		for i := 0; i < len(n.Content); i += 2 {
			name, err := json.Marshal(n.Content[i].Value)
			if err != nil {
				return nil, err
			}
			value, err := asJSON(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			if i > 0 {
				out = append(out, ',')
			}
			out = append(append(append(out, name...), ':'), value...)
		}
		return append(out, '}'), nil
	case yaml.SequenceNode:
		out := []byte{'['}
		for i, c := range n.Content {
			value, err := asJSON(c)
			if err != nil {
				return nil, err
			}
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, value...)
		}
		return append(out, ']'), nil
	case yaml.ScalarNode:
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, err
		}
		return bytes.TrimSpace(encodeJSON(v)), nil
	}
	return nil, fmt.Errorf("line %d: an alias, which JSON has not", n.Line)
}

// The document lists what there is: every route with its methods, every code, every header a script may read.
func TestTheDocumentListsWhatThereIs(t *testing.T) {
	doc, _ := apiDocument(t)
	h := New(Config{})
	for _, path := range doc.Paths.InMatchingOrder() {
		found, ok := h.find(strings.ReplaceAll(path, "{vin}", accord))
		if !ok || found.name != path {
			t.Errorf("%s is no route", path)
			continue
		}
		for method := range doc.Paths.Find(path).Operations() {
			if !slices.Contains(found.methods, method) {
				t.Errorf("%s takes no %s", path, method)
			}
		}
	}
	for _, name := range []string{routeDecode, routeBatch, routeCapacity, routeHealth, routeOpenAPI, routeDropIn, routeDropInExtended, routeDropInBatch} {
		if doc.Paths.Value(name) == nil {
			t.Errorf("%s is not in the document", name)
		}
	}
	var codes []decode.Code
	for _, c := range doc.Components.Schemas["Code"].Value.Enum {
		codes = append(codes, decode.Code(c.(string)))
	}
	if !slices.Equal(codes, decode.Codes()) {
		t.Errorf("codes %v, want %v", codes, decode.Codes())
	}
	if first := *doc.Components.Schemas["ModelYear"].Value.Min; first != decode.FirstModelYear {
		t.Errorf("the first model year is %v", first)
	}
	if most := *doc.Components.Schemas["List"].Value.Properties["vins"].Value.MaxItems; most != decode.MaxBatch {
		t.Errorf("a list takes %d VINs", most)
	}
}

func TestTheDocumentIsServed(t *testing.T) {
	bubble(t, func(t *testing.T, e *edgeOf) {
		res := e.do(t, httpRequest{path: "/openapi.json"})
		if res.StatusCode != 200 || res.Headers["Content-Type"] != "application/json" || res.Body != string(openAPIDocument) {
			t.Errorf("%.300s", res)
		}
		again := e.do(t, httpRequest{path: "/openapi.json", header: map[string]string{"if-none-match": res.Headers["ETag"]}})
		if again.StatusCode != 304 || again.Body != "" || again.Headers["Content-Type"] != "" {
			t.Errorf("%s", again)
		}
		if vary := res.Headers["Vary"]; vary == "" || again.Headers["Vary"] != vary {
			t.Errorf("the document varies by %q, that there is no newer one by %q", vary, again.Headers["Vary"])
		}
	})
}

// deviations hold a request and its response against the document. Requests that are refused for their form may break it, and a path that
// is not in it is left alone.
func deviations(router routers.Router, r httpRequest, res httpResponse) (faults []error) {
	body := r.body
	if r.base64 {
		raw, err := base64.StdEncoding.DecodeString(r.body)
		if err != nil {
			return []error{err}
		}
		body = string(raw)
	}
	if strings.HasPrefix(r.header["content-type"], "application/x-www-form-urlencoded") {
		// The validator knows one spelling of a form, and no ';' in it.
		values := url.Values{}
		for _, p := range pairs(body) {
			name := p.name
			if strings.EqualFold(name, "DATA") {
				name = "DATA"
			}
			values.Add(name, p.value)
		}
		body = values.Encode()
	}
	method := cmp.Or(r.method, "GET")
	request, err := http.NewRequestWithContext(context.Background(), method, "http://edge.example"+r.path+"?"+r.query, strings.NewReader(body))
	if err != nil {
		return nil
	}
	for name, value := range r.header {
		request.Header.Set(name, value)
	}
	found, params, err := router.FindRoute(request)
	if errors.Is(err, routers.ErrPathNotFound) || errors.Is(err, routers.ErrMethodNotAllowed) {
		return nil
	}
	if err != nil {
		return []error{err}
	}
	input := &openapi3filter.RequestValidationInput{Request: request, PathParams: params, Route: found,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}}
	if !slices.Contains([]int{400, 406, 413, 415}, res.StatusCode) {
		if err := openapi3filter.ValidateRequest(context.Background(), input); err != nil {
			faults = append(faults, fmt.Errorf("the request: %w", err))
		}
	}
	header := http.Header{}
	for name, value := range res.Headers {
		header.Set(name, value)
	}
	if method == "HEAD" {
		return faults // no body to hold against a schema
	}
	if err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{RequestValidationInput: input,
		Status: res.StatusCode, Header: header, Body: io.NopCloser(strings.NewReader(res.Body)), Options: input.Options}); err != nil {
		faults = append(faults, fmt.Errorf("the response: %w", err))
	}
	return faults
}

// The check is one that can fail.
func TestADeviationFromTheDocumentIsFound(t *testing.T) {
	_, router := apiDocument(t)
	bubble(t, func(t *testing.T, e *edgeOf) {
		get := httpRequest{path: "/v1/vins/" + accord}
		good := e.do(t, get)
		if faults := deviations(router, get, good); len(faults) > 0 {
			t.Fatal(faults)
		}
		for name, change := range map[string]func(*httpResponse){
			"a member too few":       func(r *httpResponse) { r.Body = strings.Replace(r.Body, `"outcome":"clean",`, "", 1) },
			"a member of another":    func(r *httpResponse) { r.Body = strings.Replace(r.Body, `"codes":[0]`, `"codes":["0"]`, 1) },
			"an outcome of its own":  func(r *httpResponse) { r.Body = strings.Replace(r.Body, `"clean"`, `"typical"`, 1) },
			"a negative age":         func(r *httpResponse) { r.Headers["Age"] = "-1" },
			"no ETag":                func(r *httpResponse) { delete(r.Headers, "ETag") },
			"an undocumented status": func(r *httpResponse) { r.StatusCode = 418 },
			"another content type":   func(r *httpResponse) { r.Headers["Content-Type"] = "text/html" },
		} {
			bad := httpResponse{StatusCode: good.StatusCode, Headers: map[string]string{}, Body: good.Body}
			for k, v := range good.Headers {
				bad.Headers[k] = v
			}
			change(&bad)
			if len(deviations(router, get, bad)) == 0 {
				t.Errorf("%s was not found", name)
			}
		}
	})
}
