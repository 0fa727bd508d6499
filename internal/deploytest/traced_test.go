//go:build unix

package deploytest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"vingate/internal/edge"
)

// segment is what the X-Ray daemon is sent.
type segment struct {
	Name        string         `json:"name"`
	ID          string         `json:"id"`
	TraceID     string         `json:"trace_id"`
	ParentID    string         `json:"parent_id"`
	Start       float64        `json:"start_time"`
	End         float64        `json:"end_time"`
	InProgress  bool           `json:"in_progress"`
	Annotations map[string]any `json:"annotations"`
	Subsegments []segment      `json:"subsegments"`
}

// tree draws a segment and what is in it, in the order of their beginnings. Several of one name in a row are drawn once.
func (s segment) tree() string {
	inner := slices.Clone(s.Subsegments)
	slices.SortStableFunc(inner, func(a, b segment) int { return int(1e6 * (a.Start - b.Start)) })
	var names []string
	for _, i := range inner {
		if name := i.tree(); len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return s.Name
	}
	return s.Name + "(" + strings.Join(names, " ") + ")"
}

// faults finds what is not whole in a segment.
func (s segment) faults() []string {
	var faults []string
	if s.InProgress || s.End < s.Start || s.ID == "" || s.Name == "" {
		faults = append(faults, fmt.Sprintf("%q is not complete: %+v", s.Name, s))
	}
	for _, i := range s.Subsegments {
		if i.Start < s.Start-0.001 || i.End > s.End+0.001 {
			faults = append(faults, fmt.Sprintf("%s is not within %s", i.Name, s.Name))
		}
		faults = append(faults, i.faults()...)
	}
	return faults
}

func (s segment) find(name string) *segment {
	if s.Name == name {
		return &s
	}
	for _, i := range s.Subsegments {
		if found := i.find(name); found != nil {
			return found
		}
	}
	return nil
}

// daemon stands in the X-Ray daemon's place.
type daemon struct{ net.PacketConn }

func newDaemon(t *testing.T) daemon {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return daemon{c}
}

// sent is what has come, as one segment over all of it, when nothing comes any more. Every document belongs to one trace.
func (d daemon) sent(t *testing.T) segment {
	t.Helper()
	all := segment{Name: "request", ID: "request", End: 1e12}
	buf := make([]byte, 1<<16)
	for wait := 2 * time.Second; ; wait = 300 * time.Millisecond {
		_ = d.SetReadDeadline(time.Now().Add(wait))
		n, _, err := d.ReadFrom(buf)
		if err != nil {
			return all
		}
		_, document, _ := bytes.Cut(buf[:n], []byte("\n"))
		var s segment
		if err := json.Unmarshal(document, &s); err != nil {
			t.Fatalf("%v in %s", err, document)
		}
		if bytes.Contains(document, []byte("1HGCM826")) {
			t.Errorf("a trace shows a VIN: %s", document)
		}
		if !strings.HasPrefix(s.TraceID, "1-") || s.ParentID == "" {
			t.Errorf("%s belongs to no trace", s.Name)
		}
		if all.Subsegments != nil && (s.TraceID != all.Subsegments[0].TraceID || s.ParentID != all.Subsegments[0].ParentID) {
			t.Errorf("%s belongs to another trace", s.Name)
		}
		all.Subsegments = append(all.Subsegments, s)
	}
}

// What the daemon gets of a request is complete, nested, and of one trace.
func TestTheSegmentsOfADecodeArriveCompleteAndNested(t *testing.T) {
	d := newDaemon(t)
	s := newStack(t, "AWS_XRAY_DAEMON_ADDRESS="+d.LocalAddr().String())
	s.keepGate()
	if kept := d.sent(t).tree(); !strings.HasPrefix(kept, "request(DynamoDB") {
		t.Errorf("of the keeper came %s", kept)
	}
	if _, err := s.front.Invoke(t.Context(), []byte(`{"source":"`+edge.WarmupSource+`"}`)); err != nil {
		t.Fatal(err)
	}
	d.sent(t)
	path := "/v1/vins/" + s.vin()
	for _, step := range []struct {
		what, path, mode, code, want string
		calls                        bool
	}{
		{"a live decode", path, "well", "",
			"vin flight(cache(DynamoDB) tenant(DynamoDB) foresee(DynamoDB) elect(DynamoDB) gate(DynamoDB) upstream release(DynamoDB) store(DynamoDB))", true},
		{"a stored one", path, "well", "", "vin", false}, // from memory
		{"no VIN", "/v1/vins/1HGCM82633A00435O", "well", "VIN_INVALID", "vin", false},
		{"NHTSA fails", "/v1/vins/" + s.vin(), "fails", "UPSTREAM_UNAVAILABLE",
			"vin flight(cache(DynamoDB) tenant(DynamoDB) foresee(DynamoDB) elect(DynamoDB) gate(DynamoDB) upstream release(DynamoDB) quit(DynamoDB))", true},
	} {
		s.nhtsa.mode.Store(step.mode)
		if code := s.get(step.path, ""); code != step.code {
			t.Fatalf("%s: %q", step.what, code)
		}
		got := d.sent(t)
		for _, f := range got.faults() {
			t.Errorf("%s: %s", step.what, f)
		}
		// The charge goes beside the call, whenever it gets its turn, and what an instance remembers it does not read.
		tree := got.tree()
		for _, beside := range []string{" charge(DynamoDB)", "charge(DynamoDB) "} {
			tree = strings.ReplaceAll(tree, beside, "")
		}
		remembered := strings.NewReplacer("tenant(DynamoDB)", "tenant", "foresee(DynamoDB)", "foresee")
		if want := "request(" + step.want + ")"; remembered.Replace(tree) != remembered.Replace(want) {
			t.Errorf("%s:\n got %s\nwant %s", step.what, tree, want)
		}
		if charged := got.find("charge") != nil; charged != step.calls {
			t.Errorf("%s: charged: %v", step.what, charged)
		}
		if !step.calls {
			continue
		}
		if gate := got.find("gate").Annotations; gate["outcome"] != "granted" || gate["waitedMs"] == nil {
			t.Errorf("%s: gate says %v", step.what, gate)
		}
		if upstream, want := got.find("upstream").Annotations["outcome"], cmp.Or(step.code, "answered"); upstream != want {
			t.Errorf("%s: upstream says %v, want %s", step.what, upstream, want)
		}
	}
}
