// Command hello is the smallest function there is: what any Go function on Lambda takes to start.
package main

import (
	"context"

	"github.com/aws/aws-lambda-go/lambda"
)

func main() {
	lambda.Start(func(context.Context, map[string]any) (map[string]any, error) {
		return map[string]any{"statusCode": 200, "body": "hello"}, nil
	})
}
