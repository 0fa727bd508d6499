package deploytest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"vingate/internal/edge"
	"vingate/internal/keeper"
)

// strict decodes one JSON value and nothing else into v: a field that the type does not know is an error.
func strict(text string, v any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the event")
	}
	return nil
}

// documentation is the network that RFC 5737 keeps for examples: no event carries anybody's address.
var documentation = netip.MustParsePrefix("192.0.2.0/24")

// requestFaults holds an event against what API Gateway sends to the $default route of an HTTP API.
func requestFaults(text string) []string {
	var e events.APIGatewayV2HTTPRequest
	if err := strict(text, &e); err != nil {
		return []string{err.Error()}
	}
	var faults []string
	want := func(what, got, want string) {
		if got != want {
			faults = append(faults, fmt.Sprintf("%s is %q, want %q", what, got, want))
		}
	}
	want("version", e.Version, "2.0")
	want("routeKey", e.RouteKey, "$default")
	want("requestContext.routeKey", e.RequestContext.RouteKey, e.RouteKey)
	want("requestContext.stage", e.RequestContext.Stage, "$default")
	want("requestContext.http.path", e.RequestContext.HTTP.Path, e.RawPath)
	want("requestContext.http.userAgent", e.RequestContext.HTTP.UserAgent, e.Headers["user-agent"])
	want("requestContext.domainName", e.RequestContext.DomainName, e.Headers["host"])
	body := []byte(e.Body)
	if e.IsBase64Encoded {
		var err error
		if body, err = base64.StdEncoding.DecodeString(e.Body); err != nil {
			faults = append(faults, "body: "+err.Error())
		}
	}
	want("content-length", e.Headers["content-length"], strconv.Itoa(len(body)))
	for name := range e.Headers {
		want("header name", name, strings.ToLower(name))
	}
	query, err := url.ParseQuery(e.RawQueryString)
	if err != nil {
		faults = append(faults, err.Error())
	}
	flat := map[string]string{}
	for name, values := range query {
		flat[name] = strings.Join(values, ",")
	}
	want("queryStringParameters", fmt.Sprint(e.QueryStringParameters), fmt.Sprint(flat))
	if address, err := netip.ParseAddr(e.RequestContext.HTTP.SourceIP); err != nil || !documentation.Contains(address) {
		faults = append(faults, fmt.Sprintf("sourceIp %q is not an address for documentation", e.RequestContext.HTTP.SourceIP))
	}
	return faults
}

// scheduled are the constant inputs that the template's schedules send to a function.
func (t template) scheduled(function string) []string {
	var inputs []string
	all, _ := at(t.resources(serverlessFunction)[function], "Properties", "Events").(object)
	for _, e := range all {
		if text(e, "Type") == "ScheduleV2" {
			inputs = append(inputs, text(e, "Properties", "Input"))
		}
	}
	return inputs
}

// scheduleFaults holds the sample of a scheduled event against the code, which knows it by its source, and against the
// template's schedules, which send the same value.
func scheduleFaults(sample, source string, inputs []string) []string {
	if len(inputs) == 0 {
		return []string{"the template schedules nothing"}
	}
	var event struct {
		Source string `json:"source"`
	}
	if err := strict(sample, &event); err != nil {
		return []string{err.Error()}
	}
	var faults []string
	if event.Source != source {
		faults = append(faults, fmt.Sprintf("the code knows %q, and not %q", source, event.Source))
	}
	for _, input := range inputs {
		var a, b bytes.Buffer
		if err := errors.Join(json.Compact(&a, []byte(sample)), json.Compact(&b, []byte(input))); err != nil {
			faults = append(faults, err.Error())
		} else if a.String() != b.String() {
			faults = append(faults, fmt.Sprintf("the sample is %s, the schedule sends %s", a.String(), b.String()))
		}
	}
	return faults
}

// overrideFaults holds sam local's file of variables against the template: SAM drops a name that is not declared
// there without a word.
func overrideFaults(text string, tpl template) []string {
	var overrides map[string]map[string]string
	if err := strict(text, &overrides); err != nil {
		return []string{err.Error()}
	}
	var faults []string
	functions := tpl.resources(serverlessFunction)
	for id, variables := range overrides {
		f, ok := functions[id]
		if !ok {
			faults = append(faults, id+" is not in the template")
			continue
		}
		declared := tpl.variables(f)
		for name := range variables {
			if _, ok := declared[name]; !ok {
				faults = append(faults, fmt.Sprintf("%s: %s is not declared in the template", id, name))
			}
		}
	}
	for id := range functions {
		if _, ok := overrides[id]; !ok {
			faults = append(faults, id+" has no variables for sam local")
		}
	}
	return faults
}

func TestEveryEventDecodesIntoItsType(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "events", "*.json"))
	if err != nil || len(files) < 8 {
		t.Fatalf("found %d events: %v", len(files), err)
	}
	tpl := theTemplate(t)
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			sample := read(t, filepath.Join("events", name))
			switch name {
			case "env.json":
				wantNone(t, overrideFaults(sample, tpl))
			case "warm-up.json":
				wantNone(t, scheduleFaults(sample, edge.WarmupSource, tpl.scheduled("DecodeFunction")))
			case "keeper.json":
				wantNone(t, scheduleFaults(sample, keeper.Source, tpl.scheduled("KeeperFunction")))
			default:
				wantNone(t, requestFaults(sample))
			}
		})
	}
}

func TestEventCheckCanFail(t *testing.T) {
	good := read(t, "events/decode.json")
	for name, c := range map[string]struct{ from, to, says string }{
		"payload 1.0":           {`"version": "2.0"`, `"version": "1.0"`, "version"},
		"a field of payload 1":  {`"rawPath"`, `"httpMethod": "GET", "rawPath"`, "unknown field"},
		"another path":          {`"rawPath": "/v1`, `"rawPath": "/v2`, "requestContext.http.path"},
		"a query of its own":    {"modelYear=2003", "modelYear=2004", "queryStringParameters"},
		"somebody's address":    {`"sourceIp": "192.0.2.`, `"sourceIp": "8.8.8.`, "sourceIp"},
		"a header in capitals":  {`"accept":`, `"Accept":`, "header name"},
		"a length that is off":  {`"content-length": "0"`, `"content-length": "7"`, "content-length"},
		"something after it":    {"\n}\n", "\n}\n{}", "something follows"},
		"a route of its own":    {`"routeKey": "$default"`, `"routeKey": "GET /v1"`, "routeKey"},
		"not JSON, in its head": {`{`, `[`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			broken := strings.Replace(good, c.from, c.to, 1)
			if broken == good {
				t.Fatalf("the event no longer holds %q", c.from)
			}
			faults := requestFaults(broken)
			if len(faults) == 0 || !strings.Contains(faults[0], c.says) {
				t.Errorf("findings are %q, want one that says %q", faults, c.says)
			}
		})
	}
	const warm = `{"source":"vingate.warmup"}`
	wantNone(t, scheduleFaults(warm, edge.WarmupSource, []string{warm}))
	wantFinding(t, scheduleFaults(warm, edge.WarmupSource, []string{`{"source":"y"}`}), "the schedule sends")
	wantFinding(t, scheduleFaults(`{"source":"y"}`, edge.WarmupSource, []string{`{"source":"y"}`}), `and not "y"`)
	wantFinding(t, scheduleFaults(`{"detail":{}}`, "", []string{`{"detail":{}}`}), "unknown field")
	wantFinding(t, scheduleFaults(warm, edge.WarmupSource, nil), "schedules nothing")
	wantFinding(t, scheduleFaults(warm, edge.WarmupSource, []string{`{`}), "JSON")
	tpl := mustParse(t, "Resources: {F: {Type: AWS::Serverless::Function, Properties: {Environment: {Variables: {A: 1}}}}}")
	wantNone(t, overrideFaults(`{"F":{"A":"2"}}`, tpl))
	wantFinding(t, overrideFaults(`{"F":{"B":"2"}}`, tpl), "B is not declared")
	wantFinding(t, overrideFaults(`{"F":{},"G":{}}`, tpl), "G is not in the template")
	wantFinding(t, overrideFaults(`{}`, tpl), "F has no variables")
}
