// Package ddb makes the DynamoDB clients of vingate. It promises that no call outlives its budget: the SDK's own
// defaults wait a second before they repeat a throttled call and have no time-out for a single attempt.
package ddb

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"
)

// Options of a client.
type Options struct {
	Attempt    time.Duration // one attempt, from the request to the last byte of the answer
	Attempts   int           // per call; a caller's context bounds them all
	MaxBackoff time.Duration // between attempts

	// APIOptions are added to every call: instrumentation.
	APIOptions []func(*middleware.Stack) error
}

// RequestPath is for calls that a person waits for. Three attempts and their pauses stay below 450 ms.
func RequestPath() Options {
	return Options{Attempt: 120 * time.Millisecond, Attempts: 3, MaxBackoff: 40 * time.Millisecond}
}

// Housekeeping is for tables and tools: patient. A client of its own, so that its retries cannot empty the retry
// quota of the request path.
func Housekeeping() Options {
	return Options{Attempt: 10 * time.Second, Attempts: 5, MaxBackoff: time.Second}
}

// New makes a client for a function from Lambda's environment: AWS_REGION, the credentials in AWS_ACCESS_KEY_ID and its like,
// AWS_ENDPOINT_URL_DYNAMODB or AWS_ENDPOINT_URL, AWS_USE_FIPS_ENDPOINT, AWS_USE_DUALSTACK_ENDPOINT. At an endpoint on the loopback no credentials
// are needed: such a store does not check them.
//
// Profiles, single sign-on, roles to assume and container credentials are not looked at, which is what package anywhere does for tools: only
// to link the SDK's search for them costs a function a third of its start and a tenth of its size.
func New(getenv func(string) string, o Options) (*dynamodb.Client, error) {
	cfg := aws.Config{Region: cmp.Or(getenv("AWS_REGION"), getenv("AWS_DEFAULT_REGION")), HTTPClient: HTTPClient(o), Retryer: Retryer(o)}
	if key, secret := getenv("AWS_ACCESS_KEY_ID"), getenv("AWS_SECRET_ACCESS_KEY"); key != "" && secret != "" {
		cfg.Credentials = credentials.NewStaticCredentialsProvider(key, secret, getenv("AWS_SESSION_TOKEN"))
	}
	if endpoint := cmp.Or(getenv("AWS_ENDPOINT_URL_DYNAMODB"), getenv("AWS_ENDPOINT_URL")); endpoint != "" {
		cfg.BaseEndpoint = aws.String(endpoint)
	}
	o.APIOptions = slices.Clone(o.APIOptions)
	return FromConfig(cfg, o, func(d *dynamodb.Options) {
		if strings.EqualFold(getenv("AWS_USE_FIPS_ENDPOINT"), "true") {
			d.EndpointOptions.UseFIPSEndpoint = aws.FIPSEndpointStateEnabled
		}
		if strings.EqualFold(getenv("AWS_USE_DUALSTACK_ENDPOINT"), "true") {
			d.EndpointOptions.UseDualStackEndpoint = aws.DualStackEndpointStateEnabled
		}
	})
}

// HTTPClient is the client that keeps the options' times.
func HTTPClient(o Options) *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().
		WithTimeout(o.Attempt).
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = 300 * time.Millisecond }).
		WithTransportOptions(func(t *http.Transport) {
			t.TLSHandshakeTimeout = 300 * time.Millisecond
			t.IdleConnTimeout = 15 * time.Second // shorter than the server's, so that a thawed instance rarely meets a dead connection
			t.MaxIdleConnsPerHost = 64
		})
}

// Retryer repeats as the options say.
func Retryer(o Options) func() aws.Retryer {
	return func() aws.Retryer {
		return retry.NewStandard(func(s *retry.StandardOptions) {
			s.MaxAttempts = o.Attempts
			s.MaxBackoff = o.MaxBackoff
			s.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) {
				return rand.N(o.MaxBackoff), nil
			})
		})
	}
}

// FromConfig makes a client of the SDK's configuration.
func FromConfig(cfg aws.Config, o Options, more ...func(*dynamodb.Options)) (*dynamodb.Client, error) {
	client := dynamodb.NewFromConfig(cfg, append(more, func(d *dynamodb.Options) {
		// An error answer's body is not checked: the check would log noise and cost the connection.
		d.DisableValidateResponseChecksum = true
		d.HTTPClient = KeepConnections(d.HTTPClient)
		d.APIOptions = append(d.APIOptions, o.APIOptions...)
		if d.BaseEndpoint != nil && Loopback(*d.BaseEndpoint) && d.Region == "" {
			d.Region = "us-east-1"
		}
		if d.BaseEndpoint != nil && Loopback(*d.BaseEndpoint) && d.Credentials == nil {
			d.Credentials = credentials.NewStaticCredentialsProvider("local", "local", "")
		}
	})...)
	switch o := client.Options(); {
	case o.Region == "":
		return nil, errors.New("DynamoDB client: no region; set AWS_REGION")
	case o.Credentials == nil:
		return nil, errors.New("DynamoDB client: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, which Lambda does by itself")
	}
	return client, nil
}

// KeepConnections stops the SDK from spoiling connections. When the answer is in, the SDK closes the request's body; where the
// server is fast, the transport is then still looking for the end of that body, takes the close for a failed write and
// drops the connection (seen in up to 8 of 10 calls on the loopback). So the transport gets a body of its own.
func KeepConnections(next aws.HTTPClient) aws.HTTPClient { return ownBody{next} }

type ownBody struct{ next aws.HTTPClient }

func (c ownBody) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return c.next.Do(r)
}

// Loopback says whether an endpoint is on this machine.
func Loopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
