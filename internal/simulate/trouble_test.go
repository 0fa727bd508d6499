package simulate

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"vingate/internal/gate"
)

func TestTroublesAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]Trouble{
		"429:every=1h,for=1m,retry-after=30s": {Kind: Says429, At: time.Hour, Every: time.Hour, For: time.Minute, RetryAfter: 30 * time.Second},
		"429":                                 {Kind: Says429, For: time.Minute},
		"403:at=6h,for=10m":                   {Kind: Says403, At: 6 * time.Hour, For: 10 * time.Minute},
		"503:at=0s,every=6h,for=2m":           {Kind: Says503, Every: 6 * time.Hour, For: 2 * time.Minute},
		"limit:rate=1.5,burst=20":             {Kind: Limits, Rate: 1.5, Burst: 20},
	} {
		got, err := ParseTrouble(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if again, err := ParseTrouble(got.String()); err != nil || again != got {
			t.Errorf("%s is written as %s: %+v, %v", text, got, again, err)
		}
	}
	for text, want := range map[string]string{
		"": `no trouble ""`, "418": "429, 403, 503 or limit", "429:rate=1": "a limit's", "429:for=x": "such as 90s", "429:every=1m,for=1m": "all the time", "limit": "needs a rate",
		"limit:rate=NaN": "needs a rate", "503:speed=1": "no such key", "403:at=-1s": "make no sense", "429:every=-1h": "make no sense", "limit:rate=1e-300": "from 0.001",
		"limit:rate=1,every=1h": "all the time", "limit:rate=1,burst=x": "no whole number",
	} {
		if _, err := ParseTrouble(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestTroubleIsOnWhenItSays(t *testing.T) {
	again := Trouble{Kind: Says429, At: time.Hour, Every: time.Hour, For: time.Minute}
	for at, want := range map[time.Duration]bool{0: false, time.Minute: false, time.Hour: true, time.Hour + 59*time.Second: true, time.Hour + time.Minute: false, 5*time.Hour + time.Second: true} {
		if got := again.on(at); got != want {
			t.Errorf("at %v: %v", at, got)
		}
	}
	once := Trouble{Kind: Says503, At: time.Hour, For: time.Minute}
	if once.on(0) || !once.on(time.Hour) || once.on(2*time.Hour) {
		t.Error("once is not once")
	}
}

// In any window NHTSA lets through its burst and its rate, and a call it said no to counts for nothing.
func TestALimitOfNHTSAsOwnLetsItsRateThrough(t *testing.T) {
	n := newNHTSA([]Trouble{{Kind: Limits, Rate: 2, Burst: 5}})
	through := 0
	for at := time.Duration(0); at < 100*time.Second; at += 50 * time.Millisecond {
		if n.meets(at) == nil {
			through++
		}
	}
	if through < 204 || through > 205 {
		t.Errorf("%d of 2,000 calls in 100 s, not 5 and 2 a second", through)
	}
}

// What design.md says of a 429: everybody stops, the slots are halved once, and all of them come back by themselves.
func TestA429StopsEverybodyCutsOnceAndIsOver(t *testing.T) {
	m := aModel(people(60))
	m.For = 10 * time.Minute
	m.Troubles = []Trouble{{Kind: Says429, At: 2 * time.Minute, For: 10 * time.Second, RetryAfter: 45 * time.Second}}
	s := newSim(m)
	var starts []float64 // seconds
	for calls := 0; s.step(); {
		if s.book.calls_ > calls {
			calls = s.book.calls_
			starts = append(starts, float64(s.now-s.start)/1e6)
		}
	}
	r := s.book.report(s)
	if len(r.Pauses) != 1 {
		t.Fatalf("%d pauses", len(r.Pauses))
	}
	p := *r.Pauses[0]
	if p.Why != gate.HoldThrottled || p.At < 120 || p.At > 123 || p.Slots != 2 || p.Held < 44 || p.Held > 48 || p.Told < 1 || p.Told > 4 || p.Refused < 300 {
		t.Errorf("%+v", p)
	}
	if p.Lasted < p.Held || p.Lasted > 120 {
		t.Errorf("all slots are back after %v s", p.Lasted)
	}
	for _, at := range starts {
		if at > p.At+0.3 && at < p.At+p.Held {
			t.Errorf("a call started at %.1f, %.1f s after the pause began", at, at-p.At)
		}
	}
	held := 0.0
	for _, point := range r.Course {
		held += point.Held * m.For.Seconds() / spans
	}
	if math.Abs(held-p.Held) > 0.1 || r.Course[0].Slots < 3.9 {
		t.Errorf("the course has %.1f s held, %v slots at first", held, r.Course[0].Slots)
	}
	if r.Counts[Throttled].N == 0 || r.Counts[UpstreamThrottled].N != int64(p.Told) {
		t.Errorf("%d sent away, %d told", r.Counts[Throttled].N, r.Counts[UpstreamThrottled].N)
	}
}

// NHTSA that names no time is left alone for half a minute, and twice as long each time; after a block for a quarter of an hour.
func TestPausesGrowWhereNHTSANamesNoTime(t *testing.T) {
	held := func(kind TroubleKind) (all []float64) {
		m := aModel(people(60))
		m.For = time.Hour
		m.Troubles = []Trouble{{Kind: kind, At: time.Minute, For: 10 * time.Minute}}
		r, err := Run(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range r.Pauses {
			all = append(all, math.Round(p.Held), float64(p.Holds))
		}
		return all
	}
	if got := held(Says403); len(got) != 2 || got[0] < 900 || got[0] > 903 {
		t.Errorf("after 403: %v", got)
	}
	if got := held(Says429); len(got) != 2 || got[1] < 4 || got[1] > 6 || got[0] < 600 || got[0] > 1500 {
		t.Errorf("after 429: %v", got)
	}
	if got := held(Says503); len(got) != 2 || got[1] < 4 || got[0] < 300 || got[0] > 1200 {
		t.Errorf("after 503: %v", got)
	}
}

func TestTheReportShowsPauses(t *testing.T) {
	r, err := Run(t.Context(), situations()["NHTSA asks for pauses"])
	if err != nil {
		t.Fatal(err)
	}
	var text, page bytes.Buffer
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.HTML(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"PAUSE AT", "throttled", "nobody might start", "0:01:0", "NHTSA had asked for a pause"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	for _, want := range []string{"<h2>Pauses</h2>", "429:at=1m,every=1m30s,for=10s,retry-after=5s", "nobody might start", "slots in force"} {
		if n := strings.Count(page.String(), want); n == 0 {
			t.Errorf("no %q in the page", want)
		}
	}
}

// One caller at a time refreshes an answer past its freshness, and everybody else is shown it meanwhile.
func TestStaleAnswersAreRefreshedOnceEach(t *testing.T) {
	m := aModel(people(40))
	m.VINs, m.Stored, m.Zipf = 100, 1, 0
	m.CacheSoftTTL, m.CacheTTL, m.For = time.Minute, time.Hour, 10*time.Minute
	m.Knobs.RatePerSecond, m.Knobs.Burst = 10, 30
	r, err := Run(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Counts[Refreshed].N; n < 850 || n > 1000 || int(n) != r.Calls {
		t.Errorf("%d refreshes and %d calls for 100 answers that grow stale every minute, in ten", n, r.Calls)
	}
	if r.Refused > 0 || r.Stale == 0 || r.Stale > r.Requests/5 {
		t.Errorf("%v are refused, %d of %d are stale", r.Refused, r.Stale, r.Requests)
	}
	for _, g := range r.Routes {
		if g.Stored.P99 > 0.05 || g.Wait.N > 0 {
			t.Errorf("stored answers wait for a refresh: %+v", g)
		}
	}
}

// Where others want the budget a refresh takes nothing, and is tried once a minute for each answer, by all instances together.
func TestRefreshesMakeRoomForThoseWhoNeedTheBudget(t *testing.T) {
	m := aModel(Stream{Name: "known", Arrivals: Poisson, Rate: 50, Tenants: 100}, Stream{Name: "new", Arrivals: Poisson, Rate: 20, Tenants: 100, Unique: true})
	m.VINs, m.Stored, m.Zipf = 100, 1, 0
	m.CacheSoftTTL, m.CacheTTL, m.For = time.Minute, time.Hour, 10*time.Minute
	r, err := Run(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Counts[Refreshed].N; n > 20 {
		t.Errorf("%d refreshes while others wait", n)
	}
	if r.PutOff == 0 || r.PutOff > 100*11 {
		t.Errorf("%d refreshes were put off for 100 answers in ten minutes", r.PutOff)
	}
	if got := float64(r.Streams[0].Answered) / float64(r.Streams[0].Requests); got < 1 {
		t.Errorf("%v of those who ask for a stored answer get it", got)
	}
}

// There is room for both, and still those who need an answer find it as if nobody refreshed any.
func TestRefreshesLeaveTheLastTokensToOthers(t *testing.T) {
	waits := func(soft time.Duration) (r *Report) {
		m := aModel(Stream{Name: "known", Arrivals: Poisson, Rate: 50, Tenants: 100}, Stream{Name: "new", Arrivals: Poisson, Rate: 1.2, Tenants: 100, Unique: true})
		m.VINs, m.Stored, m.Zipf = 100, 1, 0
		m.CacheSoftTTL, m.CacheTTL, m.For = soft, time.Hour, 20*time.Minute
		r, err := Run(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	without, with := waits(time.Hour), waits(2*time.Minute)
	if with.Counts[Refreshed].N < 500 || without.Counts[Refreshed].N > 0 {
		t.Errorf("%d and %d refreshes", without.Counts[Refreshed].N, with.Counts[Refreshed].N)
	}
	if w, wo := with.Streams[1], without.Streams[1]; w.Refused > wo.Refused+5 || w.Wait.P99 > wo.Wait.P99+0.6 {
		t.Errorf("with refreshes %d of the new are refused and 99 of 100 wait less than %v s; without %d and %v s", w.Refused, w.Wait.P99, wo.Refused, wo.Wait.P99)
	}
}

func TestWhatIsStoredAtFirstHasAnyAge(t *testing.T) {
	m := aModel(people(1))
	s := newSim(m)
	var stale, fresh int
	s.now += micros(m.CacheSoftTTL / 2)
	for _, at := range s.fetched {
		switch {
		case at == 0:
		case s.isStale(at):
			stale++
		default:
			fresh++
		}
	}
	if share := float64(stale) / float64(stale+fresh); math.Abs(share-0.5) > 0.02 {
		t.Errorf("%v of what is stored is stale after half of CACHE_SOFT_TTL", share)
	}
	s.now = s.start
	if at := s.fetched[0]; !s.usable(at) || s.isStale(at) {
		t.Error("it is stale when it begins")
	}
	s.now += micros(m.CacheTTL) + 1e6
	if s.usable(s.fetched[0]) {
		t.Error("it is shown past its end")
	}
}

// One address holds four of the places that all callers without a key share, in the simulation too.
func TestOneAddressHoldsItsShareOfThePlaces(t *testing.T) {
	m := aModel(Stream{Name: "one", Arrivals: Poisson, Rate: 20, Tenants: 1, Unique: true})
	m.For, m.Anonymous.RatePerSecond, m.Anonymous.Burst = time.Minute, 1000, 10000
	r, err := Run(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if r.PeakLine > 4 || r.Counts[OwnFull].N == 0 {
		t.Errorf("%d of it stood in the line; %v", r.PeakLine, r.Counts[OwnFull])
	}
	if r.Counts[PlacesFull].N > 0 {
		t.Errorf("%d found all places taken", r.Counts[PlacesFull].N)
	}
}
