package console

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"vingate/internal/api"
	"vingate/internal/bulk"
)

// decodedAccord is a record as a batch gives it.
func decodedAccord() bulk.Record {
	make, model, year := "HONDA", "Accord", 2003
	return bulk.Record{Line: 1, VIN: "1hgcm-82633a004352", Outcome: "clean", Reason: "NHTSA decoded this VIN without complaint.", Decoded: &bulk.Decoded{
		VIN: "1HGCM82633A004352", ModelYear: &year, Make: &make, Model: &model, Codes: []int{0}, Source: "nhtsa", FetchedAt: noon, Fields: map[string]string{
			"Make": "HONDA", "Model": "Accord", "ModelYear": "2003", "Trim": "EX-V6", "BodyClass": "Coupe", "Doors": "2", "BedType": "Not Applicable", "BusType": "Not Applicable",
			"EngineModel": "J30A4", "VIN": "1HGCM82633A004352", "ErrorCode": "0", "MakeID": "474", "NewIn2031": "\x1b[31mred\nand more",
		}}}
}

func decodedPartly() bulk.Record {
	make := "BMW"
	return bulk.Record{Line: 2, VIN: "5UXWX7C5*BA", Outcome: "partial", Reason: "The VIN is incomplete.", Suggestion: "5UXWX7C5!BA", Decoded: &bulk.Decoded{
		VIN: "5UXWX7C5*BA", Make: &make, Codes: []int{6}, Source: "cache", FetchedAt: noon.Add(-50 * time.Hour)}}
}

func undecoded() []bulk.Record {
	return []bulk.Record{
		{Line: 3, VIN: "1HGCM82633A00435O", Outcome: bulk.Invalid, Code: "VIN_INVALID", Reason: "Position 17 is the letter O, which no VIN contains; the digit 0 is often meant.", Suggestion: "1HGCM82633A004350"},
		{Line: 4, VIN: "1.23E+16", Outcome: bulk.Damaged, Code: "VIN_INVALID", Reason: "A spreadsheet turned this VIN into a number and its last digits are lost."},
		{Line: 7, VIN: "1HGCM82633A004352", Year: "1979", Outcome: bulk.Invalid, Code: "MODEL_YEAR_INVALID", Reason: "The model year must be one number from 1980 to 2028."},
		{Line: 5, VIN: " ", Outcome: bulk.Invalid, Code: "VIN_INVALID", Reason: "No VIN was given."},
		{Line: 6, VIN: "\x1b[2J", Outcome: bulk.Refused, Code: "RATE_LIMITED", Reason: "Decodes are limited here to protect the quota that NHTSA gives everybody. Try again in 7 seconds."},
	}
}

func TestCards(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		var out bytes.Buffer
		c := &Cards{W: &out, JSON: asJSON, Now: func() time.Time { return noon }}
		first := decodedAccord()
		for _, batch := range [][]bulk.Record{{first, decodedPartly()}, undecoded()} {
			if err := c.Append(batch); err != nil {
				t.Fatal(err)
			}
		}
		name := map[bool]string{false: "decode-cards", true: "decode-json"}[asJSON]
		golden(t, name, out.String())
		if strings.ContainsAny(out.String(), "\x1b\r\x00") {
			t.Errorf("%s has something that a terminal obeys", name)
		}
		k, _ := first.Key()
		if r, ok, err := c.Answered(k); !ok || err != nil || r.Line != 1 {
			t.Errorf("%+v, %v, %v", r, ok, err)
		}
	}
	broken := errors.New("broken")
	for _, asJSON := range []bool{false, true} {
		if err := (&Cards{W: writer(func([]byte) (int, error) { return 0, broken }), JSON: asJSON, Now: time.Now}).Append(undecoded()); !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// A card of something that was not decoded has no word about a vehicle, whatever the record may hold elsewhere.
func TestACardWithoutAnAnswerHasOnlyItsReason(t *testing.T) {
	for _, r := range undecoded() {
		var out bytes.Buffer
		if err := (&Cards{W: &out, Now: time.Now}).Append([]bulk.Record{r}); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), "\n"); n > 3 || strings.Contains(out.String(), "Make") {
			t.Errorf("%s", out.String())
		}
	}
}

// state is a run that has done some of 10 000 rows.
func state(done int) bulk.State {
	return bulk.State{Total: 10_000, Done: done, Counts: map[bulk.Outcome]int{"clean": done}}
}

func TestLinesTellOfProgressNowAndThenAndOfALongPauseAtOnce(t *testing.T) {
	var out bytes.Buffer
	now := noon
	l := &Lines{W: &out, Every: 10 * time.Second, Now: func() time.Time { return now }}
	wait := &bulk.Wait{For: 6500 * time.Millisecond, Why: "Decodes are limited here", Told: true}
	for second := range 50 {
		now = noon.Add(time.Duration(second) * time.Second)
		s := state(100 * second)
		if second > 0 {
			s.RowsPerSecond, s.Left = 100, 9*time.Minute+3*time.Second
		}
		switch second {
		case 13, 14, 37, 38, 42: // the first begins soon after a line
			s.Wait = wait
		case 17:
			s.Wait = &bulk.Wait{For: 2 * time.Minute, Why: "nothing\x1b answers"}
		}
		l.Report(s)
	}
	golden(t, "decode-lines", out.String())

	out.Reset()
	quiet := &Lines{W: &out, Now: func() time.Time { return now }}
	quiet.Report(state(1))
	if s := state(1); true {
		s.Wait = wait
		quiet.Report(s)
	}
	if strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), "waiting 7s as told: Decodes are limited here") {
		t.Errorf("%q", out.String())
	}
}

func TestSpeed(t *testing.T) {
	for _, tc := range []struct {
		speed float64
		left  time.Duration
		want  string
	}{
		{0, 0, ""}, {12.34, 90 * time.Second, "12.3 rows/s, about 1m30s left"}, {0.05, 3 * time.Hour, "3.0 rows/min, about 3h0m0s left"}, {5, 0, "5.0 rows/s"},
	} {
		if got := Speed(bulk.State{RowsPerSecond: tc.speed, Left: tc.left}); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestSummaries(t *testing.T) {
	counts := map[bulk.Outcome]int{"clean": 9000, "warned": 500, "partial": 40, "unknown": 10, bulk.Invalid: 30, bulk.Damaged: 20}
	for name, s := range map[string]bulk.Summary{
		"of-one":      {State: bulk.State{Total: 1, Done: 1, Asked: 1, Calls: 1, Counts: map[bulk.Outcome]int{"clean": 1}}, End: bulk.Complete},
		"complete":    {State: bulk.State{Total: 9550, Done: 9550, Asked: 9000, Calls: 180, Counts: map[bulk.Outcome]int{"clean": 9550}}, End: bulk.Complete},
		"not-all":     {State: bulk.State{Total: 9603, Done: 9603, Before: 4000, Asked: 5000, Calls: 140, Counts: map[bulk.Outcome]int{"clean": 9550, bulk.Invalid: 30, bulk.Damaged: 20, bulk.Refused: 3}}, End: bulk.Complete},
		"interrupted": {State: bulk.State{Total: 10_000, Done: 9600, Asked: 9550, Calls: 201, Counts: counts}, End: bulk.Interrupted},
		"out-of-time": {State: bulk.State{Total: 10_000, Done: 9600, Asked: 9550, Calls: 201, Counts: counts}, End: bulk.OutOfTime, Wait: 2 * time.Hour,
			Err: &api.Problem{Status: 503, Code: "UPSTREAM_THROTTLED", Detail: "NHTSA asked us to slow down. Try again in 2 hours."}},
		"unusable": {State: bulk.State{Total: 10_000, Counts: map[bulk.Outcome]int{}}, End: bulk.Unusable, Err: &api.ForeignError{URL: "http://x", Reason: "it answers with\x1b a page"}},
	} {
		var out bytes.Buffer
		Summary(&out, s, "stock.csv", "decoded.csv")
		golden(t, "decode-summary-"+name, out.String())
	}
}
