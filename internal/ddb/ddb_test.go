package ddb

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// server answers every call the same way and counts calls and connections.
type server struct {
	*httptest.Server
	calls, connections atomic.Int64
}

func serve(t *testing.T, answer http.HandlerFunc) *server {
	s := &server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.calls.Add(1)
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		answer(w, r)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_MAX_ATTEMPTS"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", s.URL)
	return s
}

func fails(code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(400)
		io.WriteString(w, `{"__type":"com.amazonaws.dynamodb.v20120810#`+code+`","message":"scripted","Item":{"pk":{"S":"x"}}}`)
	}
}

func get(t *testing.T, o Options) error {
	t.Helper()
	c, err := New(os.Getenv, o)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: aws.String("t"), Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "x"}}})
	return err
}

// An address on the loopback needs neither region nor credentials: the store there does not check them.
func TestLoopbackStoreNeedsNoCredentials(t *testing.T) {
	serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{}`) })
	if err := get(t, RequestPath()); err != nil {
		t.Fatal(err)
	}
}

func TestRegionIsAskedForElsewhere(t *testing.T) {
	serve(t, fails("X"))
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", "")
	if _, err := New(os.Getenv, RequestPath()); err == nil || !strings.Contains(err.Error(), "AWS_REGION") {
		t.Errorf("%v", err)
	}
}

// The SDK's own default waits a second and more before it repeats a throttled call. Counted in attempts, bounded in time
// by a margin that only the default would miss.
func TestThrottledCallIsRepeatedQuicklyAndSeldom(t *testing.T) {
	s := serve(t, fails("ProvisionedThroughputExceededException"))
	start := time.Now()
	var throttled *types.ProvisionedThroughputExceededException
	if err := get(t, RequestPath()); !errors.As(err, &throttled) {
		t.Errorf("%v", err)
	}
	if n := s.calls.Load(); n != 3 {
		t.Errorf("%d attempts", n)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("took %v", took)
	}
}

func TestSilentStoreCostsABoundedTime(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	o := RequestPath()
	o.Attempt = 20 * time.Millisecond
	if err := get(t, o); err == nil {
		t.Error("no error from a silent store")
	}
	if n := s.calls.Load(); n > 3 {
		t.Errorf("%d attempts", n)
	}
}

func TestConnectionSurvivesErrorAnswers(t *testing.T) {
	s := serve(t, fails("ConditionalCheckFailedException"))
	c, err := New(os.Getenv, RequestPath())
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		_, err := c.UpdateItem(context.Background(), &dynamodb.UpdateItemInput{TableName: aws.String("t"), Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "x"}},
			UpdateExpression: aws.String("REMOVE a"), ConditionExpression: aws.String("attribute_exists(a)")})
		var failed *types.ConditionalCheckFailedException
		if !errors.As(err, &failed) || failed.Item == nil {
			t.Fatalf("%v", err)
		}
	}
	if n := s.connections.Load(); n != 1 {
		t.Errorf("%d connections for 50 failed conditions", n)
	}
}

// On Lambda everything a client needs stands in the environment.
func TestAFunctionsClientIsMadeOfLambdasEnvironment(t *testing.T) {
	env := map[string]string{"AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token"}
	made := func() (dynamodb.Options, error) {
		c, err := New(func(name string) string { return env[name] }, RequestPath())
		if err != nil {
			return dynamodb.Options{}, err
		}
		return c.Options(), nil
	}
	o, err := made()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := o.Credentials.Retrieve(t.Context()); err != nil || c.AccessKeyID != "AKID" || c.SecretAccessKey != "secret" || c.SessionToken != "token" {
		t.Errorf("credentials %+v, %v", c, err)
	}
	if o.Region != "eu-central-1" || o.BaseEndpoint != nil || !o.DisableValidateResponseChecksum || o.Retryer.MaxAttempts() != 3 {
		t.Errorf("%+v", o)
	}
	env["AWS_ENDPOINT_URL"] = "https://all.example.org"
	env["AWS_USE_FIPS_ENDPOINT"], env["AWS_USE_DUALSTACK_ENDPOINT"] = "true", "TRUE"
	if o, err = made(); err != nil || *o.BaseEndpoint != "https://all.example.org" || o.EndpointOptions.UseFIPSEndpoint != aws.FIPSEndpointStateEnabled ||
		o.EndpointOptions.UseDualStackEndpoint != aws.DualStackEndpointStateEnabled {
		t.Errorf("%+v, %v", o, err)
	}
	env["AWS_ENDPOINT_URL_DYNAMODB"] = "https://tables.example.org"
	if o, err = made(); err != nil || *o.BaseEndpoint != "https://tables.example.org" {
		t.Errorf("%v, %v", o.BaseEndpoint, err)
	}
	delete(env, "AWS_ACCESS_KEY_ID")
	if _, err := made(); err == nil || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") || strings.Contains(err.Error(), "secret") {
		t.Errorf("without credentials: %v", err)
	}
}

// What the SDK searches for credentials is not linked into a function.
func TestFunctionsDoNotLinkTheSearchForCredentials(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "vingate/functions/decode", "vingate/functions/keeper").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, unwanted := range []string{"aws-sdk-go-v2/config", "aws-sdk-go-v2/service/sts", "aws-sdk-go-v2/service/sso"} {
		if strings.Contains(string(out), "github.com/aws/"+unwanted+"\n") {
			t.Errorf("%s is linked", unwanted)
		}
	}
	if !strings.Contains(string(out), "aws-sdk-go-v2/service/dynamodb\n") {
		t.Error("nothing was listed: this shows nothing")
	}
}
