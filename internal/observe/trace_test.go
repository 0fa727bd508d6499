package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// The X-Ray SDK reads its environment when the process starts, so what depends on it runs in a child process.
const childVariable = "OBSERVE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	tracer := NewTracer(os.Getenv, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	ctx := context.Background()
	work := func(ctx context.Context) {
		err := tracer.Subsegment(ctx, "gate", func(ctx context.Context) error {
			return tracer.Subsegment(ctx, "inner", func(context.Context) error { return errors.New("VIN 1HGCM82633A004352 refused") })
		})
		if err == nil || err.Error() != "VIN 1HGCM82633A004352 refused" {
			panic("the error is not passed on")
		}
		_, _ = client(os.Getenv("OBSERVE_TEST_STORE"), tracer).GetItem(ctx, &dynamodb.GetItemInput{
			TableName: aws.String("t"), Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "vin#1HGCM82633A004352#-#v"}}})
	}
	work(ctx) // no trace, as while Lambda initialises
	work(withTrace(ctx, ""))
	work(withTrace(ctx, "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=0"))
	work(withTrace(ctx, "nonsense"))
	work(withTrace(ctx, "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"))
	func() {
		defer func() {
			if p := recover(); p != "as it was" {
				panic(p)
			}
		}()
		_ = tracer.Subsegment(withTrace(ctx, "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"), "panics",
			func(context.Context) error { panic("as it was") })
	}()
	os.Stdout.WriteString("done")
	os.Exit(0)
}

func client(endpoint string, tracer *Tracer) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: aws.String(endpoint), Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("k", "s", ""),
		RetryMaxAttempts: 1, APIOptions: tracer.Instrument()})
}

// child runs the work above with the environment and returns what it sent to the X-Ray daemon.
func child(t *testing.T, env ...string) []segment {
	t.Helper()
	daemon, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer daemon.Close()
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_, _ = io.WriteString(w, "{}")
	}))
	defer store.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childVariable+"=1", "GORACE=atexit_sleep_ms=0", "OBSERVE_TEST_STORE="+store.URL, "AWS_XRAY_DAEMON_ADDRESS="+daemon.LocalAddr().String()), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || string(out) != "done" {
		t.Fatalf("child: %v, stdout %q\n%s", err, out, stderr.String())
	}
	if stderr.Len() > 0 {
		t.Errorf("the SDK complains:\n%s", stderr.String())
	}
	// The child is gone: what it sent lies in the socket's buffer.
	var sent []segment
	buf := make([]byte, 1<<16)
	for {
		_ = daemon.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := daemon.Read(buf)
		if err != nil {
			return sent
		}
		if bytes.Contains(buf[:n], []byte("1HGCM82633A004352")) || bytes.Contains(buf[:n], []byte("refused")) {
			t.Errorf("a trace shows what belongs to the caller: %s", buf[:n])
		}
		_, document, _ := bytes.Cut(buf[:n], []byte("\n"))
		var s segment
		if err := json.Unmarshal(document, &s); err != nil {
			t.Fatalf("%v in %s", err, document)
		}
		sent = append(sent, s)
	}
}

type segment struct {
	Name        string    `json:"name"`
	TraceID     string    `json:"trace_id"`
	ParentID    string    `json:"parent_id"`
	Fault       bool      `json:"fault"`
	Subsegments []segment `json:"subsegments"`
}

func TestASampledRequestIsTracedWithItsSubsegments(t *testing.T) {
	var names []string
	for _, s := range child(t) {
		if s.TraceID != "1-5759e988-bd862e3fe1be46a994272793" || s.ParentID != "53995c3f42cd8ad8" {
			continue // "nonsense" in the header makes a trace of its own
		}
		names = append(names, s.Name)
		switch s.Name {
		case "gate":
			if !s.Fault || len(s.Subsegments) != 1 || s.Subsegments[0].Name != "inner" || !s.Subsegments[0].Fault {
				t.Errorf("gate: %+v, want a fault and one inner", s)
			}
		case "panics":
			if !s.Fault {
				t.Errorf("panics: %+v, want a fault", s)
			}
		}
	}
	if got, want := strings.Join(names, " "), "gate DynamoDB panics"; got != want {
		t.Errorf("traced %q, want %q", got, want)
	}
}

// RUNTIME_ERROR panics in the SDK where there is no trace, and an unknown word leaves it with a nil strategy.
func TestContextMissingCanHoldAnything(t *testing.T) {
	for _, v := range []string{"RUNTIME_ERROR", "LOG_ERROR", "IGNORE_ERROR", "nonsense"} {
		t.Run(v, func(t *testing.T) { child(t, "AWS_XRAY_CONTEXT_MISSING="+v) })
	}
}

func TestADisabledTracerTouchesNothing(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"outside Lambda": {},
		"disabled":       {"AWS_XRAY_DAEMON_ADDRESS": "127.0.0.1:2000", "AWS_XRAY_SDK_DISABLED": "TRUE"},
	} {
		t.Run(name, func(t *testing.T) {
			tracer := NewTracer(func(n string) string { return env[n] }, slog.New(slog.DiscardHandler))
			if tracer.Instrument() != nil {
				t.Error("it instruments clients")
			}
			ctx := withTrace(context.Background(), "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1")
			failed := errors.New("failed")
			fn := func(inner context.Context) error {
				if inner != ctx {
					t.Error("the context is another one")
				}
				return failed
			}
			if err := tracer.Subsegment(ctx, "gate", fn); err != failed {
				t.Errorf("Subsegment: %v", err)
			}
			if n := testing.AllocsPerRun(100, func() { _ = tracer.Subsegment(ctx, "gate", fn) }); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
	if sent := child(t, "AWS_XRAY_SDK_DISABLED=true"); len(sent) != 0 {
		t.Errorf("sent %+v", sent)
	}
}

// A successor of the X-Ray SDK is to be a change to this package alone.
func TestNothingElseImportsTheXRaySDK(t *testing.T) {
	root, imports := filepath.Join("..", ".."), 0
	for _, dir := range []string{"internal", "functions", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, i := range file.Imports {
				if !strings.HasPrefix(i.Path.Value, `"github.com/aws/aws-xray-sdk-go`) {
					continue
				}
				imports++
				if filepath.Base(filepath.Dir(path)) != "observe" {
					t.Errorf("%s imports %s", path, i.Path.Value)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if imports == 0 {
		t.Error("no import was found at all: this shows nothing")
	}
}
