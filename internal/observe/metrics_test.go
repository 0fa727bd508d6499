package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"
)

// emf is a line as CloudWatch reads it.
type emf struct {
	AWS struct {
		Timestamp         int64
		CloudWatchMetrics []struct {
			Namespace  string
			Dimensions [][]string
			Metrics    []struct{ Name, Unit string }
		}
	} `json:"_aws"`
}

// written writes a line and reads it back.
func written(t *testing.T, level string, l Line) (map[string]any, emf) {
	t.Helper()
	var out bytes.Buffer
	NewMetrics(&out, level, "1.2.3", "vingate/test").Write(context.Background(), l)
	var all map[string]any
	var e emf
	if err := json.Unmarshal(out.Bytes(), &all); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	if err := json.Unmarshal(out.Bytes(), &e); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(out.Bytes(), []byte("\n")); n != 1 {
		t.Errorf("%d lines", n)
	}
	return all, e
}

func TestALineIsALogLineAndNamesItsMetrics(t *testing.T) {
	before := time.Now().UnixMilli()
	all, e := written(t, "", Line{Level: slog.LevelWarn, Message: "request", Properties: []slog.Attr{slog.String("bulkhead", "iAbCdEfGh")},
		Dimensions: map[string]string{Route: "/v1/vins/{vin}", Class: "anonymous"},
		Measured:   []Measured{{Requests, []float64{1}}, {QueueWait, []float64{12.5, 3}}, {LeakedLeases, []float64{2}}, {Refusals, []float64{1}}, {Decodes, nil}, {"Unheard", []float64{1}}}})
	for key, want := range map[string]any{"level": "WARN", "message": "request", "version": "1.2.3", "bulkhead": "iAbCdEfGh", Route: "/v1/vins/{vin}",
		Class: "anonymous", Requests: 1.0, LeakedLeases: 2.0} {
		if all[key] != want {
			t.Errorf("%s is %v, want %v", key, all[key], want)
		}
	}
	if !reflect.DeepEqual(all[QueueWait], []any{12.5, 3.0}) {
		t.Errorf("values %v", all[QueueWait])
	}
	if _, there := all["Unheard"]; there {
		t.Error("a metric that is in no catalogue is written")
	}
	if e.AWS.Timestamp < before || e.AWS.Timestamp > time.Now().UnixMilli() {
		t.Errorf("timestamp %d", e.AWS.Timestamp)
	}
	got := map[string][][]string{}
	for _, d := range e.AWS.CloudWatchMetrics {
		if d.Namespace != "vingate/test" {
			t.Errorf("namespace %q", d.Namespace)
		}
		for _, m := range d.Metrics {
			got[m.Name+" in "+m.Unit] = d.Dimensions
		}
	}
	want := map[string][][]string{
		"Requests in Count": {{}, {Route}, {Route, Class}}, "QueueWait in Milliseconds": {{}, {Route}}, "LeakedLeases in Count": {{}},
		"Refusals in Count": {{}}, // no code, so no set of dimensions with one
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("metrics %v, want %v", got, want)
	}
}

func TestWhatAnEnvironmentWouldHaveOtherwiseIsAWarningAndANumber(t *testing.T) {
	all, _ := written(t, "", KnobsInForce(3, []string{"RATE_PER_SECOND is 2 in the gate, 5 in the environment"}))
	if all["level"] != "WARN" || all[KnobsDiffer] != 1.0 || all["knobsVersion"] != 3.0 || !reflect.DeepEqual(all["knobsDiffer"], []any{"RATE_PER_SECOND is 2 in the gate, 5 in the environment"}) {
		t.Errorf("%v", all)
	}
	if all, _ = written(t, "", KnobsInForce(4, nil)); all["level"] != "INFO" || all[KnobsDiffer] != 0.0 || all["knobsDiffer"] != nil {
		t.Errorf("when all are the same: %v", all)
	}
}

// Lambda's filter looks at the level in the line: at WARN it would drop an INFO line, and what is counted in it.
func TestNoLevelDropsMetrics(t *testing.T) {
	for level, want := range map[string]string{"": "INFO", "DEBUG": "INFO", "INFO": "INFO", "WARN": "WARN", "ERROR": "ERROR", "FATAL": "ERROR"} {
		if all, e := written(t, level, Line{Level: slog.LevelInfo, Measured: []Measured{{Requests, []float64{1}}}}); all["level"] != want || len(e.AWS.CloudWatchMetrics) != 1 {
			t.Errorf("AWS_LAMBDA_LOG_LEVEL=%q: %v", level, all)
		}
	}
}

func TestALineWithoutMetricsIsJustALine(t *testing.T) {
	if all, _ := written(t, "", Line{Message: "quiet", Dimensions: map[string]string{Route: "x"}}); all["_aws"] != nil || all[Route] != nil || all["message"] != "quiet" {
		t.Errorf("%v", all)
	}
}

// CloudWatch takes at most 100 values of a metric in one line, and 100 metrics.
func TestALineStaysWithinCloudWatchsBounds(t *testing.T) {
	all, _ := written(t, "", Line{Measured: []Measured{{QueueWait, make([]float64, 200)}}})
	if n := len(all[QueueWait].([]any)); n != 100 {
		t.Errorf("%d values", n)
	}
	if n := len(Catalogue()); n > 100 {
		t.Errorf("%d metrics", n)
	}
}

func TestTheCatalogueHasEachMetricOnceWithFewDimensions(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range Catalogue() {
		if seen[m.Name] || m.Meaning == "" || m.From == "" || m.Unit == "" || len(m.By) > 2 {
			t.Errorf("%+v", m)
		}
		seen[m.Name] = true
		for _, by := range m.By {
			for _, name := range by {
				if !slices.Contains([]string{Route, Class, Code, Reason}, name) {
					t.Errorf("%s is kept by %s", m.Name, name)
				}
			}
		}
	}
}

func TestARequestsGoroutinesRecordTogether(t *testing.T) {
	ctx, r := Record(context.Background())
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			Watch{}.Gate(ctx, []string{Granted, "no token"}[i%2], 2*time.Millisecond)
			Watch{}.Upstream(ctx, "ok", 1500*time.Microsecond)
			RecorderOf(ctx).Add(WriteUnits, 0.5)
		})
	}
	wg.Wait()
	got := map[string]string{}
	for _, m := range r.Measured() {
		got[m.Name] = fmt.Sprint(len(m.Values), " ", m.Values[0])
	}
	if want := map[string]string{Admissions: "1 25", QueueWait: "50 2", UpstreamTime: "50 1.5", WriteUnits: "1 25"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	Watch{}.Gate(context.Background(), Granted, 0) // no request, no record
}
