// Command bootstrap is a function that tells what it was given.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
)

func main() {
	if os.Getenv("FAIL_INIT") != "" {
		os.Exit(5)
	}
	lambda.Start(func(_ context.Context, ev events.APIGatewayV2HTTPRequest) (any, error) {
		switch ev.RawPath {
		case "/error":
			return nil, errors.New("as asked")
		case "/exit":
			os.Exit(6)
		case "/raw":
			return []string{"no", "response"}, nil
		}
		body, err := json.Marshal(map[string]string{
			"path": ev.RawPath, "store": os.Getenv("AWS_ENDPOINT_URL_DYNAMODB"), "upstream": os.Getenv("UPSTREAM_URL"),
			"rate": os.Getenv("RATE_PER_SECOND"), "key": os.Getenv("TENANT_HASH_KEY"), "credentials": os.Getenv("AWS_ACCESS_KEY_ID"),
		})
		status := 200
		if ev.RawPath == "/invalid" {
			status = 400
		}
		return events.APIGatewayV2HTTPResponse{StatusCode: status, Body: string(body)}, err
	})
}
