package decode

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"vingate/internal/gate"
	"vingate/internal/tenant"
	"vingate/internal/vpic"
)

// every refusal there is, from every way a request can end.
func every(t *testing.T) []*Refusal {
	t.Helper()
	list := []*Refusal{NewInternal(), NewAPIKeyUnknown(), NewAPIKeyRevoked(), NewNotFound(), NewNoSuchCall(), NewMethodNotAllowed("DELETE"), NewEventUnsupported(), NewCoordinationDown(),
		NewModelYearInvalid(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)), NewNotStored(), NewFormatUnsupported(),
		NewBatchTooLarge(), NewBodyTooLarge(64 << 10), NewMediaUnsupported("application/json"), refuse(VINRepeated, sayVINRepeated, retrySoon),
		busy(), refuse(CoordinationDown, sayStoreDown, retryStore), fromUpstream(errLate), fromUpstream(errCutShort)}
	for _, f := range []Fault{FaultEmpty, FaultNotJSON, FaultNoObject, FaultNoList, FaultMember, FaultTwice, FaultEntry, FaultNumber, FaultEntryMember, FaultEntryTwice,
		FaultEntryVIN, FaultEntryYear, FaultForm} {
		list = append(list, NewRequestInvalid(f, 3))
	}
	for _, k := range []vpic.Kind{vpic.Throttled, vpic.Unavailable, vpic.Timeout, vpic.BadResponse, vpic.NotStarted, vpic.BadQuery} {
		for _, b := range []bool{false, true} {
			list = append(list, fromUpstream(&vpic.Error{Kind: k, Blocked: b}), fromUpstream(&vpic.Error{Kind: k, Started: b}))
		}
	}
	for _, c := range []gate.Cause{gate.Held, gate.BulkheadFull, gate.OwnFull, gate.QueueFull, gate.NoToken, gate.NoSlot, "a cause to come"} {
		for _, h := range []gate.HoldReason{"", gate.HoldThrottled, gate.HoldFailing, gate.HoldStarting, gate.HoldOperator} {
			for _, caller := range []tenant.Caller{somebody, alice} {
				list = append(list, fromGate(&gate.Refusal{Cause: c, Hold: h}, caller.Key(gate.Interactive)))
			}
		}
	}
	_, s := newWorld(t)
	for _, vin := range []string{"", "1HGCM82633A00435O", "abc", "../", strings.Repeat("x", 9999)} {
		_, err := s.Decode(context.Background(), Request{VIN: vin})
		list = append(list, refused(t, err))
	}
	return list
}

func TestEveryRefusalIsFitForAPerson(t *testing.T) {
	seen := map[Code]bool{}
	for _, r := range every(t) {
		seen[r.Code] = true
		detail := r.Detail()
		if !strings.HasSuffix(detail, ".") || strings.ToUpper(detail[:1]) != detail[:1] && !strings.HasPrefix(detail, "vingate ") || len(detail) > 250 {
			t.Errorf("%s says %q", r.Code, detail)
		}
		if r.Code.Title() == "" || r.Code.Status() < 400 {
			t.Errorf("%s has title %q and status %d", r.Code, r.Code.Title(), r.Code.Status())
		}
		limited := r.Code.Status() == 429 || r.Code.Status() == 503
		if limited && r.RetryAfter < time.Second || r.RetryAfter%time.Second != 0 {
			t.Errorf("%s: come back in %v", r.Code, r.RetryAfter)
		}
		if told := strings.Contains(detail, "Try again in"); told != (r.RetryAfter > 0) {
			t.Errorf("%s says %q and retries after %v", r.Code, detail, r.RetryAfter)
		}
		if scoped := r.Scope != ""; scoped != (r.Code == RateLimited) {
			t.Errorf("%s has scope %q", r.Code, r.Scope)
		}
		if words := vehicleWords.FindString(detail + r.Code.Title()); words != "" {
			t.Errorf("%s speaks of a vehicle: %q in %q", r.Code, words, detail)
		}
	}
	for _, c := range Codes() {
		if !seen[c] {
			t.Errorf("no refusal with %s was tried", c)
		}
	}
}

// vehicleWords are what a refusal must not say anything about, or offer in place of an answer.
var vehicleWords = regexp.MustCompile(`(?i)\b(make|brand|honda|ford|engine|typical|usual(ly)?|similar|sibling|likely|probably)\b`)

// The table in the package's documents: a code and its status never part.
func TestStatusesOfTheCodes(t *testing.T) {
	want := map[Code]int{"VIN_INVALID": 400, "MODEL_YEAR_INVALID": 400, "API_KEY_UNKNOWN": 401, "API_KEY_REVOKED": 403, "NOT_STORED": 404, "NOT_FOUND": 404, "METHOD_NOT_ALLOWED": 405,
		"REQUEST_INVALID": 400, "BODY_TOO_LARGE": 413, "MEDIA_TYPE_UNSUPPORTED": 415, "FORMAT_UNSUPPORTED": 406, "BATCH_TOO_LARGE": 413, "VIN_REPEATED": 429,
		"RATE_LIMITED": 429, "BULKHEAD_TIMEOUT": 429, "DECODE_QUEUE_FULL": 429, "DECODE_WAIT_TIMEOUT": 429, "INTERNAL": 500, "EVENT_UNSUPPORTED": 500,
		"UPSTREAM_BAD_RESPONSE": 502, "UPSTREAM_THROTTLED": 503, "UPSTREAM_UNAVAILABLE": 503, "COORDINATION_UNAVAILABLE": 503, "UPSTREAM_TIMEOUT": 504}
	for c, status := range want {
		if c.Status() != status {
			t.Errorf("%s is %d, want %d", c, c.Status(), status)
		}
	}
	if got := len(Codes()); got != len(want) {
		t.Errorf("%d codes, want %d", got, len(want))
	}
	if Code("SOMETHING_ELSE").Status() != 500 {
		t.Error("an unknown code is not a fault of ours")
	}
}

func TestTimesAreSaidInWholeSecondsAtLeastOne(t *testing.T) {
	for _, tc := range []struct {
		d    time.Duration
		want time.Duration
		says string
	}{
		{-time.Hour, time.Second, "1 second"}, {0, time.Second, "1 second"}, {time.Nanosecond, time.Second, "1 second"}, {time.Second, time.Second, "1 second"},
		{time.Second + 1, 2 * time.Second, "2 seconds"}, {119 * time.Second, 119 * time.Second, "119 seconds"}, {121 * time.Second, 121 * time.Second, "3 minutes"},
		{15 * time.Minute, 15 * time.Minute, "15 minutes"}, {6 * time.Hour, 6 * time.Hour, "6 hours"},
	} {
		r := refuse(QueueFull, sayQueueFull, tc.d)
		if r.RetryAfter != tc.want || !strings.HasSuffix(r.Detail(), "Try again in "+tc.says+".") {
			t.Errorf("%v: %v, %q", tc.d, r.RetryAfter, r.Detail())
		}
	}
}

// A refusal has no field that could hold anything of a vehicle.
func TestARefusalHasNoRoomForAVehicle(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "refusal.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var fields []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != "Refusal" {
			return true
		}
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			for _, name := range f.Names {
				fields = append(fields, name.Name)
			}
		}
		return false
	})
	if want := []string{"Code", "Scope", "Sentence", "RetryAfter", "Waited", "Position", "Character", "Suggestion"}; !slices.Equal(fields, want) {
		t.Errorf("fields %v, want %v", fields, want)
	}
}

// Sentences stand in refusal.go only.
func TestSentencesStandInOnePlace(t *testing.T) {
	for _, name := range []string{"decode.go", "batch.go", "verdicts.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if f, ok := call.Fun.(*ast.Ident); ok && slices.Contains([]string{"refuse", "final", "budget"}, f.Name) {
				for _, arg := range call.Args {
					if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
						s, _ := strconv.Unquote(lit.Value)
						t.Errorf("%s holds the sentence %q", name, s)
					}
				}
			}
			return true
		})
	}
}
