package simulate

import (
	"bytes"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestSweepsAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string][]Axis{
		"rate=1..3":               {{"rate", []string{"1", "2", "3"}}},
		"rate=1..10/4,wait=1s|3s": {{"rate", []string{"1", "5", "9"}}, {"wait", []string{"1s", "3s"}}},
		"load=10|100":             {{"load", []string{"10", "100"}}},
	} {
		if got, err := ParseSweep(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "rate", "rate=", "=1..2", "rate=3..1", "rate=1..x", "rate=1..9/0", "rate=1..2,rate=3..4", "a=1,b=1,c=1", "a=1..100,b=1..100", "a=1..9999999999", "a=1||2", "a=1|",
		"a=-9223372036854775808..9223372036854775807", "a=1..9223372036854775807/9223372036854775807"} {
		if got, err := ParseSweep(text); err == nil {
			t.Errorf("%q is taken: %v", text, got)
		}
	}
}

func TestTheKneeIsWhereMoreStopsToPay(t *testing.T) {
	x := []float64{1, 2, 3, 4, 5, 6, 7, 8}
	for name, c := range map[string]struct {
		y    []float64
		want int
	}{
		"it grows and then is full":   {[]float64{.1, .2, .3, .4, .4, .4, .41, .41}, 3},
		"it grows all the way":        {[]float64{.1, .2, .3, .4, .5, .6, .7, .8}, -1},
		"it is flat":                  {[]float64{.3, .3, .3, .301, .3, .3, .3, .3}, -1},
		"it is full nearly at once":   {[]float64{.1, .8, .82, .82, .82, .82, .82, .82}, 1},
		"it becomes worse at the end": {[]float64{.1, .3, .5, .5, .5, .4, .3, .2}, 2},
	} {
		if got := kneeOf(x, c.y); got != c.want {
			t.Errorf("%s: the knee is at %d, not %d", name, got, c.want)
		}
	}
}

func rates(set map[string]string) (Setup, string, error) {
	m := aModel(people(10))
	m.For, m.VINs = 3*time.Minute, 0
	var err error
	m.Knobs.RatePerSecond, err = strconv.ParseFloat(set["rate"], 64)
	m.Knobs.Burst = 20
	if slots := set["slots"]; slots != "" {
		m.Knobs.MaxInFlight, err = strconv.Atoi(slots)
	}
	return m, "the burst is 20", err
}

// Six slots, five of them for one key, and calls of 0.68 s: more than six a second are not to be had, whatever the rate; with three slots, three.
func TestASweepFindsTheKneeOfTheRate(t *testing.T) {
	axes, err := ParseSweep("rate=1..9/2,slots=3|6")
	if err != nil {
		t.Fatal(err)
	}
	s, err := RunSweep(t.Context(), axes, []string{"served", "gate-writes"}, rates)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Cells) != 10 || s.Knees[0].At != "3" || s.Knees[1].At != "5" {
		t.Errorf("%d runs, knees %+v", len(s.Cells), s.Knees)
	}
	var b bytes.Buffer
	if err := errors.Join(s.Print(&b), s.JSON(&b), s.HTML(&b), s.SVG(&b, "gate-writes")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"slots 3", "* the knee with slots 6 is at rate 5", "note: the burst is 20", `"served"`, "What rate and slots decide", `class="knee"`, `fill="#ffffff"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q", want)
		}
	}
	for _, no := range []string{"NaN", "ZgotmplZ", "rgb(1,2", "%!"} {
		if strings.Contains(b.String(), no) {
			t.Errorf("%q is there", no)
		}
	}
	if err := s.SVG(&b, "usd"); err == nil {
		t.Error("a picture of what is not shown")
	}
}

func TestASweepStopsAtWhatIsWrong(t *testing.T) {
	axes, _ := ParseSweep("rate=1|0")
	if _, err := RunSweep(t.Context(), axes, []string{"served"}, rates); err == nil || !strings.Contains(err.Error(), "RATE_PER_SECOND") {
		t.Errorf("%v", err)
	}
	if _, err := RunSweep(t.Context(), axes, []string{"beauty"}, rates); err == nil || !strings.Contains(err.Error(), "served") {
		t.Errorf("%v", err)
	}
}
