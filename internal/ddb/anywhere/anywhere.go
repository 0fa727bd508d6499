// Package anywhere makes DynamoDB clients for tools, from everything that the AWS SDK looks at: variables, profiles, single sign-on, roles,
// container and machine credentials. It is apart from package ddb because linking that search costs a function a third of its start.
package anywhere

import (
	"context"
	"fmt"
	"os"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"vingate/internal/ddb"
)

// New makes a client from the SDK's own environment. At an endpoint on the loopback no credentials are needed: such a store does not check
// them.
func New(ctx context.Context, o ddb.Options) (*dynamodb.Client, error) {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(ddb.HTTPClient(o)), config.WithRetryer(ddb.Retryer(o)))
	if err != nil {
		return nil, fmt.Errorf("DynamoDB client: %w; check the AWS_ variables of the environment", err)
	}
	return ddb.FromConfig(cfg, o, func(d *dynamodb.Options) {
		if d.BaseEndpoint != nil && ddb.Loopback(*d.BaseEndpoint) && os.Getenv("AWS_ACCESS_KEY_ID") == "" && os.Getenv("AWS_PROFILE") == "" {
			d.Credentials = nil // the SDK would ask the instance metadata service, which may not answer
		}
	})
}
