//go:build unix

package devstack

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"vingate/internal/child"
)

// Emulator is AWS's runtime interface emulator with a function in it.
type Emulator struct {
	RIE       string // path of the aws-lambda-rie binary
	Bootstrap string
	Timeout   time.Duration // of the function, whole seconds; 0 is 29 s
}

// emulatorReady bounds the start of the emulator, emulatorSlack what it may take over the function's own timeout.
const (
	emulatorReady = 10 * time.Second
	emulatorSlack = 15 * time.Second
)

// Answer is what a function said.
type Answer struct {
	Payload []byte // as it came
	Failed  bool   // the function failed: an error, a crash or a timeout. The emulator's status does not tell

	// What an HTTP API would make of it; Status is 0 when the payload is no response of format 2.0.
	Status int
	Body   []byte
}

// Invoke runs the function once under the emulator, in the environment of the stack, and returns its answer. The
// emulator serves one event and is ended: it crashes on parallel ones.
func (s *Stack) Invoke(ctx context.Context, e Emulator, event []byte) (Answer, error) {
	if !json.Valid(event) {
		return Answer{}, errors.New("the event is not JSON")
	}
	for _, f := range []struct{ path, what string }{{e.RIE, "the runtime interface emulator (aws-lambda-rie)"}, {e.Bootstrap, "the function (bootstrap)"}} {
		if info, err := os.Stat(f.path); err != nil || info.IsDir() {
			return Answer{}, fmt.Errorf("%s is not at %q: `make invoke` builds it", f.what, f.path)
		}
	}
	bootstrap, err := filepath.Abs(e.Bootstrap)
	if err != nil {
		return Answer{}, err
	}
	if e.Timeout == 0 {
		e.Timeout = 29 * time.Second
	}
	frontPort, err := freePort()
	if err != nil {
		return Answer{}, err
	}
	apiPort, err := freePort()
	if err != nil {
		return Answer{}, err
	}
	env := s.Env
	for name, value := range map[string]string{
		"AWS_LAMBDA_FUNCTION_NAME":    "vingate-decode",
		"AWS_LAMBDA_FUNCTION_TIMEOUT": fmt.Sprintf("%.0f", e.Timeout.Seconds()),
		"AWS_REGION":                  region(env),
		"AWS_XRAY_SDK_DISABLED":       "true",
		"LAMBDA_TASK_ROOT":            filepath.Dir(bootstrap),
	} {
		env = setEnv(env, name, value)
	}
	c, err := s.parent.Start(child.Spec{
		Path: e.RIE,
		Args: []string{"--runtime-interface-emulator-address", address(frontPort), "--runtime-api-address", address(apiPort), bootstrap},
		Env:  env, Stdout: s.log.Lines("lambda", nil), Stderr: s.log.Lines("lambda", nil),
	})
	if err != nil {
		return Answer{}, err
	}
	defer c.Stop(stopGrace)

	ready, cancelReady := context.WithTimeoutCause(ctx, emulatorReady, fmt.Errorf("the emulator does not listen within %v", emulatorReady))
	defer cancelReady()
	if err := awaitListening(ready, c, address(frontPort)); err != nil {
		return Answer{}, fmt.Errorf("the runtime interface emulator: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, e.Timeout+emulatorSlack, errors.New("the emulator does not answer"))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://"+address(frontPort)+"/2015-03-31/functions/function/invocations", bytes.NewReader(event))
	if err != nil {
		return Answer{}, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return Answer{}, fmt.Errorf("the runtime interface emulator: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	payload, err := io.ReadAll(res.Body)
	if err != nil {
		return Answer{}, fmt.Errorf("the runtime interface emulator: %w", err)
	}
	a := readAnswer(payload)
	a.Failed = a.Failed || res.StatusCode != http.StatusOK
	return a, nil
}

// readAnswer tells a function's answer from its failure. A failure is an object with errorType or errorMessage and
// without a statusCode, or a text about a timeout or an exit that is no JSON.
func readAnswer(payload []byte) Answer {
	a := Answer{Payload: payload}
	var fields struct {
		StatusCode      *int    `json:"statusCode"`
		Body            *string `json:"body"`
		IsBase64Encoded bool    `json:"isBase64Encoded"`
		ErrorMessage    *string `json:"errorMessage"`
		ErrorType       *string `json:"errorType"`
	}
	if !json.Valid(payload) {
		a.Failed = true
		return a
	}
	if err := json.Unmarshal(payload, &fields); err != nil {
		return a // JSON of another shape, such as a list: an answer all the same
	}
	if fields.StatusCode == nil {
		a.Failed = fields.ErrorMessage != nil || fields.ErrorType != nil
		return a
	}
	a.Status = *fields.StatusCode
	if fields.Body != nil {
		a.Body = []byte(*fields.Body)
		if fields.IsBase64Encoded {
			b, err := base64.StdEncoding.DecodeString(*fields.Body)
			if err != nil {
				a.Failed = true
				return a
			}
			a.Body = b
		}
	}
	return a
}

// Write prints the answer for a person: the body, or the payload where there is none, to out; the status line to notes.
func (a Answer) Write(out, notes io.Writer) {
	show := a.Payload
	if a.Status != 0 {
		_, _ = fmt.Fprintf(notes, "HTTP %d %s\n", a.Status, http.StatusText(a.Status))
		show = a.Body
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, show, "", "  ") == nil {
		show = pretty.Bytes()
	}
	_, _ = fmt.Fprintln(out, strings.TrimRight(string(show), "\n"))
}

func region(env []string) string {
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION"} {
		if v := lookup(env)(name); v != "" {
			return v
		}
	}
	return "us-east-1"
}
