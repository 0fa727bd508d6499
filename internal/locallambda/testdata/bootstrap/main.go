// Command bootstrap is a function for the tests: what it does is in the path of the event, how it starts in INIT.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

func main() {
	switch os.Getenv("INIT") {
	case "exit":
		fmt.Fprintln(os.Stderr, "no table is named")
		os.Exit(7)
	case "hang":
		time.Sleep(time.Hour)
	case "error":
		res, err := http.Post("http://"+os.Getenv("AWS_LAMBDA_RUNTIME_API")+"/2018-06-01/runtime/init/error",
			"application/json", strings.NewReader(`{"errorType":"Config.Missing","errorMessage":"no table"}`))
		if err == nil {
			_ = res.Body.Close()
		}
		os.Exit(1)
	case "gate":
		// Starts when the test lets it.
		if _, err := get(context.Background(), os.Getenv("GATE")); err != nil {
			os.Exit(1)
		}
	}
	lambda.Start(handle)
}

func handle(ctx context.Context, raw json.RawMessage) (any, error) {
	var ev events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(raw, &ev); err != nil {
		return nil, err
	}
	query, err := url.ParseQuery(ev.RawQueryString)
	if err != nil {
		return nil, err
	}
	switch ev.RawPath {
	case "/echo":
		return events.APIGatewayV2HTTPResponse{StatusCode: 200, Headers: map[string]string{"content-type": "application/json"}, Body: string(raw)}, nil
	case "/whoami":
		deadline, _ := ctx.Deadline()
		lc, _ := lambdacontext.FromContext(ctx)
		env := map[string]string{}
		for _, kv := range os.Environ() {
			name, value, _ := strings.Cut(kv, "=")
			env[name] = value
		}
		dir, _ := os.Getwd()
		body, err := json.Marshal(map[string]any{
			"pid": os.Getpid(), "remainingMs": time.Until(deadline).Milliseconds(), "requestId": lc.AwsRequestID,
			"arn": lc.InvokedFunctionArn, "trace": ctx.Value("x-amzn-trace-id"), "env": env, "dir": dir,
		})
		return events.APIGatewayV2HTTPResponse{StatusCode: 200, Body: string(body)}, err
	case "/wait":
		// Tells the test that it runs, and goes on when the test answers.
		body, err := get(context.Background(), query.Get("url"))
		return events.APIGatewayV2HTTPResponse{StatusCode: 200, Body: body}, err
	case "/exit":
		os.Exit(3)
	case "/panic":
		panic("as asked")
	case "/error":
		return nil, errors.New("as asked")
	case "/bare":
		return map[string]string{"hello": "world"}, nil
	case "/bad":
		return map[string]any{"statusCode": "no number"}, nil
	case "/log":
		fmt.Println("to stdout")
		fmt.Fprintln(os.Stderr, "to stderr")
		return events.APIGatewayV2HTTPResponse{StatusCode: 204}, nil
	case "/cookies":
		return events.APIGatewayV2HTTPResponse{StatusCode: 201, Cookies: []string{"a=1; Path=/", "b=2"},
			Headers: map[string]string{"X-One": "1", "content-length": "999"}, Body: "aGk=", IsBase64Encoded: true}, nil
	case "/big":
		n, err := strconv.Atoi(query.Get("bytes"))
		return events.APIGatewayV2HTTPResponse{StatusCode: 200, Body: strings.Repeat("x", n)}, err
	}
	return map[string]bool{"warm": true}, nil
}

func get(ctx context.Context, u string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}
