package standin

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vingate/internal/standin/vpicdata"
)

var update = flag.Bool("update", false, "write the golden files")

// fakeDecoder knows an Accord, and nothing of any other VIN.
type fakeDecoder struct{ err error }

func (d fakeDecoder) Decode(ctx context.Context, q vpicdata.Query) (vpicdata.Row, error) {
	if d.err != nil {
		return nil, d.err
	}
	row := make(vpicdata.Row)
	for _, f := range vpicdata.Fields() {
		row[f] = ""
	}
	row["VIN"] = q.VIN
	row["ErrorCode"] = "7"
	if strings.EqualFold(strings.TrimSpace(q.VIN), accord) {
		row["Make"], row["Model"], row["ModelYear"], row["ErrorCode"] = "HONDA", "Accord", "2003", "0"
		row["OtherEngineInfo"] = `4 <valves> & "more", in line`
	}
	if q.ModelYear != 0 {
		row["ModelYear"] = fmt.Sprint(q.ModelYear)
	}
	return row, ctx.Err()
}

const accord = "1HGCM82633A004352"

// testClock is a clock that tests set.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *testClock {
	return &testClock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// start serves over a real connection. Faults are the start's.
func start(t *testing.T, c Config) (*Server, string) {
	t.Helper()
	if c.Decoder == nil {
		c.Decoder = fakeDecoder{}
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h.URL
}

// client makes a new connection for every call, so that no call is repeated.
func client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// call sends a request and reads the answer to its end.
func call(t *testing.T, method, url, body string) (*http.Response, string, error) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := client(t).Do(r)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer, string(text), err
}

func mustCall(t *testing.T, method, url, body string) (*http.Response, string) {
	t.Helper()
	answer, text, err := call(t, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, text
}

const single = "/api/vehicles/DecodeVinValues/" + accord + "?format=json"

// eventually waits for something that another goroutine is about to do.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not happen", what)
		}
	}
}

// envelopeOf reads a JSON answer.
func envelopeOf(t *testing.T, body string) (e struct {
	Count                   int
	Message, SearchCriteria string
	Results                 []map[string]string
}) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return e
}

func TestAnswersAsRecorded(t *testing.T) {
	s, url := start(t, Config{})
	host := strings.TrimPrefix(url, "http://")
	for _, test := range []struct{ name, method, path, body string }{
		{"single-json", "GET", single, ""},
		{"single-xml-without-format", "GET", "/api/vehicles/DecodeVinValues/" + accord, ""},
		{"single-csv", "GET", "/api/vehicles/DecodeVinValues/" + accord + "?format=csv", ""},
		{"batch-json", "POST", "/api/vehicles/DecodeVINValuesBatch/", "DATA=1hgcm82633a004352,2003;%205YJSA3DS*EF&format=json"},
		{"empty-vin-404", "GET", "/api/vehicles/DecodeVinValues/?modelyear=1891&format=json", ""},
		{"bad-year-400", "GET", "/api/vehicles/DecodeVinValues/" + accord + "?modelyear=last&format=json", ""},
		{"method-405", "GET", "/api/vehicles/DecodeVINValuesBatch/", ""},
		{"banner", "GET", "/", ""},
		{"no-faults", "GET", "/_standin/faults", ""},
		{"bad-faults-400", "POST", "/_standin/faults", `{"rules":[{"kind":"boom"},{"kind":"slow-body"}],"latency":{"distribution":"fixed","value":"1h"}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			answer, body := mustCall(t, test.method, url+test.path, test.body)
			var b strings.Builder
			fmt.Fprintln(&b, answer.Status)
			for _, name := range slices.Sorted(maps.Keys(answer.Header)) {
				if name != "Date" && name != "Content-Length" && name != "Connection" {
					fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(answer.Header[name], ", "))
				}
			}
			b.WriteString("\n" + strings.ReplaceAll(body, host, "HOST"))
			golden(t, test.name, b.String())
		})
	}
	if n := s.Stats().Calls; n != 7 {
		t.Errorf("%d calls counted, want the 7 to the API", n)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("answer differs from %s (go test -update writes it):\n%s", path, got)
	}
}

func TestPathsFormatsAndYears(t *testing.T) {
	_, url := start(t, Config{})
	for _, test := range []struct {
		name, method, path, body string
		status                   int
		contentType              string
		vins, years              []string
	}{
		{"any letter case", "GET", "/API/Vehicles/decodevinvalues/" + accord + "?FORMAT=JSON", "", 200, "application/json", []string{accord}, []string{"2003"}},
		{"Extended", "GET", "/api/vehicles/DecodeVINValuesExtended/" + accord + "?format=json", "", 200, "application/json", []string{accord}, []string{"2003"}},
		{"a slash at the end", "GET", "/api/vehicles/DecodeVinValues/" + accord + "/?format=json", "", 200, "application/json", []string{accord}, []string{"2003"}},
		{"a model year", "GET", single + "&modelyear=2011", "", 200, "application/json", []string{accord}, []string{"2011"}},
		{"a model year in another case", "GET", single + "&modelYear=2011", "", 200, "application/json", []string{accord}, []string{"2011"}},
		{"an empty model year", "GET", single + "&modelyear=", "", 200, "application/json", []string{accord}, []string{"2003"}},
		{"the caller's spelling", "GET", "/api/vehicles/DecodeVinValues/1hgcm82633A004352?format=json", "", 200, "application/json", []string{"1hgcm82633A004352"}, []string{"2003"}},
		{"signs in a VIN", "GET", "/api/vehicles/DecodeVinValues/5UXWX7C5*BA?format=json", "", 200, "application/json", []string{"5UXWX7C5*BA"}, []string{""}},
		{"escaped signs in a VIN", "GET", "/api/vehicles/DecodeVinValues/5UX%2FWX%3C%26%C3%84?format=json", "", 200, "application/json", []string{"5UX/WX<&Ä"}, []string{""}},
		{"garbage is answered with 200", "GET", "/api/vehicles/DecodeVinValues/not-a-vin?format=json", "", 200, "application/json", []string{"not-a-vin"}, []string{""}},
		{"an unknown format is XML", "GET", "/api/vehicles/DecodeVinValues/" + accord + "?format=yaml", "", 200, "application/xml", nil, nil},
		{"no VIN and no slash", "GET", "/api/vehicles/DecodeVinValues?format=json", "", 404, "application/json", nil, nil},
		{"two segments", "GET", "/api/vehicles/DecodeVinValues/1HG/2?format=json", "", 404, "application/json", nil, nil},
		{"another action", "GET", "/api/vehicles/DecodeWMI/1HG?format=json", "", 404, "application/json", nil, nil},
		{"another path", "GET", "/favicon.ico", "", 404, "application/json", nil, nil},
		{"a model year out of range", "GET", single + "&modelyear=99999999999", "", 400, "application/json", nil, nil},
		{"a POST to a GET", "POST", single, "", 405, "application/json", nil, nil},
		{"an unknown control path", "GET", "/_standin/", "", 404, "application/json", nil, nil},
		{"a batch with bare separators", "POST", "/api/vehicles/decodevinvaluesbatch", "data=" + accord + ",2011; 5UXWX7C5*BA ,2011 ;;x,no&format=JSON", 200, "application/json",
			[]string{accord, "5UXWX7C5*BA", "x"}, []string{"2011", "2011", ""}},
		{"a batch with the format in the query only", "POST", "/api/vehicles/DecodeVINValuesBatch/?format=json", "DATA=" + accord, 200, "application/xml", nil, nil},
		{"a batch with a bad escape", "POST", "/api/vehicles/DecodeVINValuesBatch/", "DATA=%zz&format=json", 200, "application/json", []string{"%zz"}, []string{""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			answer, body := mustCall(t, test.method, url+test.path, test.body)
			if answer.StatusCode != test.status || !strings.HasPrefix(answer.Header.Get("Content-Type"), test.contentType) {
				t.Fatalf("%s, %s, want %d, %s\n%s", answer.Status, answer.Header.Get("Content-Type"), test.status, test.contentType, body)
			}
			if answer.Header.Get("Server") != "vpic-standin" || answer.Header.Get("X-Vpic-Standin") != "1" {
				t.Errorf("headers are %v, want the stand-in's name", answer.Header)
			}
			if test.vins == nil {
				return
			}
			e := envelopeOf(t, body)
			var vins, years []string
			for _, row := range e.Results {
				vins, years = append(vins, row["VIN"]), append(years, row["ModelYear"])
			}
			if !slices.Equal(vins, test.vins) || !slices.Equal(years, test.years) {
				t.Errorf("rows %q of %q, want %q of %q", vins, years, test.vins, test.years)
			}
			criteria, count := "VIN(s): "+test.vins[0], 1
			if test.method == http.MethodPost {
				criteria, count = "", len(test.vins)
			}
			if e.SearchCriteria != criteria || e.Count != count || e.Message != successMessage {
				t.Errorf("envelope %q, %d, %q", e.SearchCriteria, e.Count, e.Message)
			}
		})
	}
}

func TestFiftyVINsAreABatchAndNoMore(t *testing.T) {
	_, url := start(t, Config{})
	for n, want := range map[int]string{0: emptyBatchError, 50: successMessage, 51: tooManyVINs} {
		data := strings.TrimSuffix(strings.Repeat(accord+";", n), ";")
		answer, body := mustCall(t, "POST", url+"/api/vehicles/DecodeVINValuesBatch/", "DATA="+data+"&format=json")
		e := envelopeOf(t, body)
		if rows := n % 51; answer.StatusCode != 200 || e.Message != want || len(e.Results) != rows || e.Count != rows || !strings.Contains(body, `"Results":[`) {
			t.Errorf("%d VINs: %s, %q, %d rows", n, answer.Status, e.Message, len(e.Results))
		}
	}
	answer, _ := mustCall(t, "POST", url+"/api/vehicles/DecodeVINValuesBatch/", strings.Repeat("x", maxBody+1))
	if answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body over the limit: %s", answer.Status)
	}
}

func TestXMLAndCSVSayTheSame(t *testing.T) {
	_, url := start(t, Config{})
	_, body := mustCall(t, "GET", url+"/api/vehicles/DecodeVinValues/"+accord, "")
	var x struct {
		Count   int
		Results struct {
			DecodedVINValues []struct{ Make, OtherEngineInfo string }
		}
	}
	if err := xml.Unmarshal([]byte(body), &x); err != nil || x.Count != 1 || len(x.Results.DecodedVINValues) != 1 {
		t.Fatalf("%v, %+v", err, x)
	}
	if row := x.Results.DecodedVINValues[0]; row.Make != "HONDA" || row.OtherEngineInfo != `4 <valves> & "more", in line` {
		t.Errorf("row is %+v", row)
	}
}

func TestCountMayBeOfTheOldKind(t *testing.T) {
	_, url := start(t, Config{Count: 136})
	_, body := mustCall(t, "GET", url+single, "")
	if e := envelopeOf(t, body); e.Count != 136 || len(e.Results) != 1 {
		t.Errorf("Count %d with %d rows", e.Count, len(e.Results))
	}
	_, body = mustCall(t, "POST", url+"/api/vehicles/DecodeVINValuesBatch/", "DATA="+accord+"&format=json")
	if e := envelopeOf(t, body); e.Count != 1 {
		t.Errorf("Count of a batch is %d", e.Count)
	}
}

func TestNewRefusesNonsense(t *testing.T) {
	for name, c := range map[string]Config{
		"no decoder":     {},
		"negative count": {Decoder: fakeDecoder{}, Count: -1},
		"bad faults":     {Decoder: fakeDecoder{}, Faults: Faults{Rules: []Rule{{Kind: "boom"}}}},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestBrokenDataIsToldAndCounted(t *testing.T) {
	s, url := start(t, Config{Decoder: fakeDecoder{errors.New("disk gone")}})
	answer, body := mustCall(t, "GET", url+single, "")
	if answer.StatusCode != 500 || !strings.Contains(body, "disk gone") || s.Stats().Answers[AnswerFailed] != 1 {
		t.Errorf("%s, %s, %v", answer.Status, body, s.Stats().Answers)
	}
}

func ptr[T any](v T) *T { return &v }

func TestFaultsThatHaveAStatus(t *testing.T) {
	clock := newClock()
	s, url := start(t, Config{Now: clock.Now})
	for _, test := range []struct {
		rule       Rule
		status     int
		retryAfter string
	}{
		{Rule{Kind: HTTP429}, 429, ""},
		{Rule{Kind: HTTP429, RetryAfter: RetryAfter{After: ptr(Duration(7 * time.Second))}}, 429, "7"},
		{Rule{Kind: HTTP429, RetryAfter: RetryAfter{After: ptr(Duration(0)), AfterAs: AsSeconds}}, 429, "0"},
		{Rule{Kind: HTTP429, RetryAfter: RetryAfter{After: ptr(Duration(90 * time.Second)), AfterAs: AsDate}}, 429, "Mon, 30 Nov 2026 12:01:30 GMT"},
		{Rule{Kind: HTTP403}, 403, ""},
		{Rule{Kind: HTTP503, RetryAfter: RetryAfter{After: ptr(Duration(time.Hour))}}, 503, "3600"},
		{Rule{Kind: HTTP504}, 504, ""},
	} {
		if err := s.SetFaults(Faults{Rules: []Rule{test.rule}}); err != nil {
			t.Fatal(err)
		}
		answer, body := mustCall(t, "GET", url+single, "")
		if answer.StatusCode != test.status || answer.Header.Get("Retry-After") != test.retryAfter {
			t.Errorf("%s with Retry-After %q, want %d with %q", answer.Status, answer.Header.Get("Retry-After"), test.status, test.retryAfter)
		}
		if !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html") || !strings.Contains(body, "not NHTSA") || strings.Contains(body, "HONDA") {
			t.Errorf("%d has the body %s", test.status, body)
		}
	}
	want := map[string]int64{"http-429": 4, "http-403": 1, "http-503": 1, "http-504": 1}
	if got := s.Stats().Answers; !maps.Equal(got, want) {
		t.Errorf("answers are %v, want %v", got, want)
	}
}

func TestFaultsThatSpoilTheBody(t *testing.T) {
	s, url := start(t, Config{})
	_, healthy := mustCall(t, "GET", url+single, "")
	set := func(t *testing.T, rule Rule) {
		t.Helper()
		s.ResetStats()
		if err := s.SetFaults(Faults{Rules: []Rule{rule}}); err != nil {
			t.Fatal(err)
		}
	}
	counted := func(t *testing.T, kind Kind) { // by now, for the caller has the answer
		t.Helper()
		if st := s.Stats(); st.Answers[string(kind)] != 1 || st.Current != 0 {
			t.Errorf("answers %v, %d under way", st.Answers, st.Current)
		}
	}
	t.Run("xml", func(t *testing.T) {
		set(t, Rule{Kind: XML})
		answer, body := mustCall(t, "GET", url+single, "")
		if answer.StatusCode != 200 || !strings.HasPrefix(answer.Header.Get("Content-Type"), "application/xml") || !strings.HasPrefix(body, "<Response>") {
			t.Errorf("%s, %s", answer.Status, body)
		}
		counted(t, XML)
	})
	t.Run("truncated", func(t *testing.T) {
		set(t, Rule{Kind: Truncated})
		answer, body := mustCall(t, "GET", url+single, "")
		if answer.StatusCode != 200 || body != healthy[:len(healthy)/2] || json.Valid([]byte(body)) {
			t.Errorf("%s, %d bytes of %d", answer.Status, len(body), len(healthy))
		}
		counted(t, Truncated)
	})
	t.Run("short-body", func(t *testing.T) {
		set(t, Rule{Kind: ShortBody})
		answer, body, err := call(t, "GET", url+single, "")
		if !errors.Is(err, io.ErrUnexpectedEOF) || body != healthy[:len(healthy)/2] || answer.Header.Get("X-Vpic-Standin") != "1" {
			t.Errorf("%v, %d bytes of %d", err, len(body), len(healthy))
		}
		counted(t, ShortBody)
	})
	t.Run("reset", func(t *testing.T) {
		set(t, Rule{Kind: Reset})
		if answer, _, err := call(t, "GET", url+single, ""); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v, %v, want a reset connection", answer, err)
		}
		counted(t, Reset)
	})
	t.Run("reset-mid-body", func(t *testing.T) {
		set(t, Rule{Kind: ResetMidBody})
		answer, body, err := call(t, "GET", url+single, "")
		if answer == nil || !errors.Is(err, syscall.ECONNRESET) || len(body) > len(healthy)/2 {
			t.Errorf("%v, %v, %d bytes of %d", answer, err, len(body), len(healthy))
		}
		counted(t, ResetMidBody)
	})
	t.Run("wrong-vin", func(t *testing.T) {
		set(t, Rule{Kind: WrongVIN})
		_, body := mustCall(t, "GET", url+single, "")
		if e := envelopeOf(t, body); e.Results[0]["VIN"] != otherVIN || e.SearchCriteria != "VIN(s): "+accord {
			t.Errorf("VIN %s, criteria %s", e.Results[0]["VIN"], e.SearchCriteria)
		}
		_, body = mustCall(t, "GET", url+"/api/vehicles/DecodeVinValues/"+otherVIN+"?format=json", "")
		if e := envelopeOf(t, body); e.Results[0]["VIN"] == otherVIN {
			t.Error("the wrong VIN is the right one")
		}
	})
	t.Run("wrong-vin in one row of a batch", func(t *testing.T) {
		set(t, Rule{Kind: WrongVIN, VIN: "5ux*"})
		_, body := mustCall(t, "POST", url+"/api/vehicles/DecodeVINValuesBatch/", "DATA="+accord+";5UXWX7C5*BA&format=json")
		if e := envelopeOf(t, body); e.Results[0]["VIN"] != accord || e.Results[1]["VIN"] != otherVIN {
			t.Errorf("VINs %s, %s", e.Results[0]["VIN"], e.Results[1]["VIN"])
		}
		counted(t, WrongVIN)
	})
	t.Run("error-message", func(t *testing.T) {
		set(t, Rule{Kind: ErrorMessage})
		answer, body := mustCall(t, "GET", url+single, "")
		if e := envelopeOf(t, body); answer.StatusCode != 200 || e.Message != pre1981Message || !strings.Contains(body, `"Results":[]`) {
			t.Errorf("%s, %s", answer.Status, body)
		}
		set(t, Rule{Kind: ErrorMessage, Message: "execution error"})
		_, body = mustCall(t, "GET", url+single, "")
		if e := envelopeOf(t, body); e.Message != "execution error" {
			t.Errorf("message is %q", e.Message)
		}
	})
}

func TestSlowBodyComesInPieces(t *testing.T) {
	var mu sync.Mutex
	var slept []time.Duration
	s, url := start(t, Config{
		Faults: Faults{Rules: []Rule{{Kind: SlowBody, Over: Duration(40 * time.Second)}}},
		Sleep: func(ctx context.Context, d time.Duration) error {
			mu.Lock()
			defer mu.Unlock()
			slept = append(slept, d)
			return ctx.Err()
		}})
	answer, body := mustCall(t, "GET", url+single, "")
	if e := envelopeOf(t, body); answer.StatusCode != 200 || e.Results[0]["Model"] != "Accord" {
		t.Errorf("%s, %s", answer.Status, body)
	}
	if st := s.Stats(); st.Answers[string(SlowBody)] != 1 || st.Current != 0 {
		t.Errorf("stats are %+v", st)
	}
	mu.Lock()
	defer mu.Unlock()
	want := append([]time.Duration{0}, slices.Repeat([]time.Duration{2 * time.Second}, drips)...)
	if !slices.Equal(slept, want) {
		t.Errorf("slept %v, want %v", slept, want)
	}
}

func TestLatencyIsSleptBeforeTheAnswer(t *testing.T) {
	slept := make(chan time.Duration, 1)
	_, url := start(t, Config{
		Faults: Faults{Latency: &Latency{Distribution: Fixed, Value: Duration(1500 * time.Millisecond)}},
		Sleep:  func(ctx context.Context, d time.Duration) error { slept <- d; return ctx.Err() }})
	mustCall(t, "GET", url+single, "")
	if d := <-slept; d != 1500*time.Millisecond {
		t.Errorf("slept %v, want 1.5s", d)
	}
}

// blocker is a Sleep that holds calls until they are let go or their caller is gone.
type blocker struct {
	entered chan struct{}
	release chan struct{}
}

func newBlocker() *blocker {
	return &blocker{make(chan struct{}, 1000), make(chan struct{})}
}

func (b *blocker) sleep(ctx context.Context, _ time.Duration) error {
	b.entered <- struct{}{}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-b.release:
		return nil
	}
}

func TestPeakConcurrencyIsCounted(t *testing.T) {
	b := newBlocker()
	s, url := start(t, Config{Sleep: b.sleep})
	var done sync.WaitGroup
	for range 7 {
		done.Go(func() {
			if _, _, err := call(t, "GET", url+single, ""); err != nil {
				t.Error(err)
			}
		})
	}
	for range 7 {
		<-b.entered
	}
	if got := s.Stats(); got.Current != 7 || got.Peak != 7 || got.Calls != 7 || len(got.Answers) != 0 {
		t.Errorf("while they wait: %+v", got)
	}
	s.ResetStats()
	if got := s.Stats(); got.Current != 7 || got.Peak != 7 || got.Calls != 0 || len(got.Starts) != 0 {
		t.Errorf("after a reset while they wait: %+v", got)
	}
	close(b.release)
	done.Wait()
	mustCall(t, "GET", url+single, "")
	if got := s.Stats(); got.Peak != 7 || got.Calls != 1 || got.Answers[AnswerDecoded] != 8 {
		t.Errorf("after all: %+v", got)
	}
}

// A caller that hangs up is no longer under way, in each place where a call may wait.
func TestACallerWhoHangsUpIsGone(t *testing.T) {
	for name, faults := range map[string]Faults{
		"in its latency": {Latency: &Latency{Distribution: Fixed, Value: Duration(time.Minute)}},
		"hanging":        {Rules: []Rule{{Kind: Hang}}},
		"in a slow body": {Rules: []Rule{{Kind: SlowBody, Over: Duration(time.Minute)}}},
	} {
		for _, method := range []string{"GET", "POST"} {
			t.Run(method+" "+name, func(t *testing.T) {
				s, url := start(t, Config{Faults: faults})
				ctx, hangUp := context.WithCancel(context.Background())
				path, body := single, ""
				if method == "POST" {
					path, body = "/api/vehicles/DecodeVINValuesBatch/", "DATA="+accord+"&format=json"
				}
				r, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				failed := make(chan error, 1)
				go func() {
					answer, err := client(t).Do(r)
					if err == nil {
						defer answer.Body.Close()
						_, err = io.Copy(io.Discard, answer.Body)
					}
					failed <- err
				}()
				eventually(t, "the call", func() bool { st := s.Stats(); return st.Current == 1 && len(st.VINs) == 1 })
				hangUp()
				if err := <-failed; !errors.Is(err, context.Canceled) {
					t.Errorf("the caller gets %v", err)
				}
				eventually(t, "the end of the call", func() bool {
					st := s.Stats()
					return st.Current == 0 && st.Answers[AnswerClientGone]+st.Answers[string(Hang)] == 1
				})
			})
		}
	}
}

// A caller that makes one call after the other is never two, however the answer
// comes: what is measured here is held against limits elsewhere.
func TestOneCallAfterTheOtherHasAPeakOfOne(t *testing.T) {
	s, url := start(t, Config{Faults: Faults{Quota: &Quota{Concurrency: 1}}})
	keepAlive := &http.Client{Transport: &http.Transport{}}
	defer keepAlive.CloseIdleConnections()
	for _, kind := range []Kind{"", Truncated, SlowBody, HTTP429, ShortBody, ResetMidBody} {
		f := Faults{Quota: &Quota{Concurrency: 1}}
		if kind == SlowBody {
			f.Rules = []Rule{{Kind: SlowBody, Over: Duration(time.Microsecond)}}
		} else if kind != "" {
			f.Rules = []Rule{{Kind: kind}}
		}
		if err := s.SetFaults(f); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			answer, err := keepAlive.Get(url + single)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			_, err = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			if broken := kind == ShortBody || kind == ResetMidBody; (err != nil) != broken {
				t.Fatalf("%s: %v", kind, err)
			}
		}
	}
	if st := s.Stats(); st.Peak != 1 || st.Current != 0 || st.Answers[AnswerQuotaConcurrency] != 0 || st.Calls != 300 {
		t.Errorf("peak %d, %d under way, answers %v of %d", st.Peak, st.Current, st.Answers, st.Calls)
	}
}

func TestQuotaOfConcurrency(t *testing.T) {
	b := newBlocker()
	s, url := start(t, Config{Sleep: b.sleep, Faults: Faults{Quota: &Quota{Concurrency: 2, RetryAfter: RetryAfter{After: ptr(Duration(3 * time.Second))}}}})
	var done sync.WaitGroup
	for range 2 {
		done.Go(func() {
			if _, _, err := call(t, "GET", url+single, ""); err != nil {
				t.Error(err)
			}
		})
		<-b.entered
	}
	for range 3 {
		answer, _ := mustCall(t, "GET", url+single, "")
		if answer.StatusCode != 429 || answer.Header.Get("Retry-After") != "3" {
			t.Fatalf("%s, Retry-After %q", answer.Status, answer.Header.Get("Retry-After"))
		}
	}
	close(b.release)
	done.Wait()
	if answer, _ := mustCall(t, "GET", url+single, ""); answer.StatusCode != 200 {
		t.Errorf("afterwards: %s", answer.Status)
	}
	want := map[string]int64{AnswerQuotaConcurrency: 3, AnswerDecoded: 3}
	if got := s.Stats().Answers; !maps.Equal(got, want) {
		t.Errorf("answers are %v, want %v", got, want)
	}
}

func TestACallerWhoHangsUpGivesItsPlaceBack(t *testing.T) {
	b := newBlocker()
	_, url := start(t, Config{Sleep: b.sleep, Faults: Faults{Quota: &Quota{Concurrency: 1}}})
	ctx, hangUp := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, "GET", url+single, nil)
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if answer, err := client(t).Do(r); err == nil {
			answer.Body.Close()
		}
	}()
	<-b.entered
	hangUp()
	<-gone
	close(b.release)
	eventually(t, "the place", func() bool {
		answer, _ := mustCall(t, "GET", url+single, "")
		return answer.StatusCode == 200
	})
}

func TestQuotaOfRate(t *testing.T) {
	clock := newClock()
	s, url := start(t, Config{Now: clock.Now, Faults: Faults{Quota: &Quota{RatePerSecond: 2, Burst: 3}}})
	statuses := func(n int) (got []int) {
		for range n {
			answer, _ := mustCall(t, "GET", url+single, "")
			got = append(got, answer.StatusCode)
		}
		return got
	}
	if got := statuses(5); !slices.Equal(got, []int{200, 200, 200, 429, 429}) {
		t.Errorf("at once: %v", got)
	}
	clock.advance(500 * time.Millisecond)
	if got := statuses(2); !slices.Equal(got, []int{200, 429}) {
		t.Errorf("half a second later: %v", got)
	}
	clock.advance(time.Hour)
	if got := statuses(4); !slices.Equal(got, []int{200, 200, 200, 429}) {
		t.Errorf("an hour later: %v", got)
	}
	clock.advance(-time.Minute) // a clock that goes back brings no tokens
	if got := statuses(1); !slices.Equal(got, []int{429}) {
		t.Errorf("a minute earlier: %v", got)
	}
	if got := s.Stats().Answers[AnswerQuotaRate]; got != 5 {
		t.Errorf("%d refusals counted, want 5", got)
	}
}

func TestControlOfFaults(t *testing.T) {
	_, url := start(t, Config{})
	faults := url + "/_standin/faults"
	document := `{"seed":7,"latency":{"distribution":"uniform","min":"1ms","max":"2ms"},"quota":{"concurrency":9,"retryAfter":"5s","retryAfterAs":"date"},` +
		`"rules":[{"kind":"http-403","count":2,"vin":"1HG*"},{"kind":"slow-body","probability":0.5,"over":"1s"}]}`
	answer, body := mustCall(t, "POST", faults, document)
	if answer.StatusCode != 200 || body != document+"\n" {
		t.Fatalf("%s, %s", answer.Status, body)
	}
	if answer, _ := mustCall(t, "GET", url+single, ""); answer.StatusCode != 403 {
		t.Errorf("a call gets %s", answer.Status)
	}
	if _, body := mustCall(t, "GET", faults, ""); !strings.Contains(body, `"count":1`) {
		t.Errorf("what is left: %s", body)
	}
	if answer, _ := mustCall(t, "POST", faults, `{"rules":[{"kind":"boom"}]}`); answer.StatusCode != 400 {
		t.Errorf("bad faults get %s", answer.Status)
	}
	if _, body := mustCall(t, "GET", faults, ""); !strings.Contains(body, `"count":1`) {
		t.Errorf("bad faults changed something: %s", body)
	}
	if answer, body := mustCall(t, "DELETE", faults, ""); answer.StatusCode != 200 || body != "{}\n" {
		t.Errorf("DELETE gets %s, %s", answer.Status, body)
	}
	if answer, _ := mustCall(t, "GET", url+single, ""); answer.StatusCode != 200 {
		t.Errorf("a call without faults gets %s", answer.Status)
	}
	if answer, _ := mustCall(t, "PUT", faults, "{}"); answer.StatusCode != 405 || answer.Header.Get("Allow") != "GET, POST, DELETE" {
		t.Errorf("PUT gets %s, Allow %q", answer.Status, answer.Header.Get("Allow"))
	}
}

func TestControlOfStats(t *testing.T) {
	clock := newClock()
	_, url := start(t, Config{Now: clock.Now})
	stats := url + "/_standin/stats"
	read := func(method string) (s Stats) {
		t.Helper()
		answer, body := mustCall(t, method, stats, "")
		d := json.NewDecoder(bytes.NewReader([]byte(body)))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil || answer.StatusCode != 200 {
			t.Fatalf("%s, %v in %s", answer.Status, err, body)
		}
		return s
	}
	first := clock.Now().UnixMicro()
	mustCall(t, "GET", url+single, "")
	clock.advance(1234567 * time.Microsecond)
	mustCall(t, "POST", url+"/api/vehicles/DecodeVINValuesBatch/", "DATA="+strings.ToLower(accord)+";"+accord+";X&format=json")
	mustCall(t, "GET", url+"/api/vehicles/DecodeVinValues/?format=json", "")

	s := read("GET")
	if s.Calls != 3 || s.Current != 0 || s.Peak != 1 || s.Since != first || s.Overflowed || s.StartsDropped != 0 {
		t.Errorf("stats are %+v", s)
	}
	if want := []int64{first, first + 1234567, first + 1234567}; !slices.Equal(s.Starts, want) {
		t.Errorf("starts are %v, want %v", s.Starts, want)
	}
	if want := map[string]int64{AnswerDecoded: 2, AnswerNotFound: 1}; !maps.Equal(s.Answers, want) {
		t.Errorf("answers are %v, want %v", s.Answers, want)
	}
	if want := map[string]int64{accord: 3, "X": 1}; !maps.Equal(s.VINs, want) {
		t.Errorf("VINs are %v, want %v", s.VINs, want)
	}
	if s := read("DELETE"); s.Calls != 0 || len(s.Starts) != 0 || len(s.VINs) != 0 || s.Since != first+1234567 {
		t.Errorf("after DELETE: %+v", s)
	}
	if answer, _ := mustCall(t, "POST", stats, ""); answer.StatusCode != 405 {
		t.Errorf("POST gets %s", answer.Status)
	}
}
