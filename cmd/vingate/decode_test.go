//go:build linux

package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	accord = "1HGCM82633A004352"
	civic  = "2HGES16575H591234"
)

// vinAPI stands in for vingate: it answers every VIN, but for what a test refuses.
type vinAPI struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []string
	calls  []string // method and path
	keys   []string
	refuse func(call int) (status int, after int) // 0 is none
	during func(call int)                         // in the middle of a call
}

func startAPI(t *testing.T) *vinAPI {
	t.Helper()
	a := &vinAPI{}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	for _, name := range []string{"VINGATE_API", "VINGATE_API_KEY", "HTTP_PROXY", "http_proxy"} {
		t.Setenv(name, "")
	}
	t.Setenv("VINGATE_API", a.URL)
	return a
}

func vinAnswer(vin string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"vin":%q,"submitted":%q,"modelYear":2003,"make":"HONDA","model":"Accord","outcome":"clean","summary":"2003 HONDA Accord",
"sentence":"NHTSA decoded this VIN without complaint.","remarks":[],"codes":[0],"messages":["fine"],"suggestedVin":null,"fields":{"Make":"HONDA","Trim":"EX"},
"provenance":{"source":"nhtsa","fetchedAt":"2026-06-01T12:00:00.000Z","ageSeconds":0,"stale":false}}`, vin, vin))
}

func (a *vinAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, r.Method+" "+r.URL.RequestURI())
	a.keys = append(a.keys, r.Header.Get("X-Api-Key"))
	if a.during != nil {
		a.during(len(a.calls))
	}
	if a.refuse != nil {
		if status, after := a.refuse(len(a.calls)); status != 0 {
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("Retry-After", strconv.Itoa(after))
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"title":"Decodes are limited here","status":%d,"detail":"Decodes are limited. Try again in %d seconds.","code":"RATE_LIMITED","retryAfterSeconds":%d}`, status, after, after)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if vin, ok := strings.CutPrefix(r.URL.Path, "/v1/vins/"); ok {
		a.asked = append(a.asked, vin)
		_, _ = w.Write(vinAnswer(vin))
		return
	}
	var body struct{ VINs []json.RawMessage }
	_ = json.NewDecoder(r.Body).Decode(&body)
	results := []map[string]any{}
	for _, raw := range body.VINs {
		var vin string
		if json.Unmarshal(raw, &vin) != nil {
			var q struct{ VIN string }
			_ = json.Unmarshal(raw, &q)
			vin = q.VIN
		}
		a.asked = append(a.asked, vin)
		results = append(results, map[string]any{"vin": vin, "status": 200, "answer": vinAnswer(vin)})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"results": results})
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDecodePrintsACardForEachVIN(t *testing.T) {
	a := startAPI(t)
	says(t, accord+"  2003 HONDA Accord\n  NHTSA decoded this VIN without complaint.\n", "decode", strings.ToLower(accord))
	if want := []string{"GET /v1/vins/" + accord}; !slices.Equal(a.calls, want) {
		t.Errorf("calls %q", a.calls)
	}
	out := says(t, "2003 HONDA Accord", "decode", accord, civic, " "+accord, "--model-year", "2003")
	if !slices.Equal(a.calls[1:], []string{"POST /v1/vins"}) || !slices.Equal(a.asked[1:], []string{accord, civic}) || strings.Count(out, "2003 HONDA Accord") != 3 {
		t.Errorf("calls %q for %q\n%s", a.calls, a.asked, out)
	}
	for line := range strings.Lines(says(t, `"fields":{"Trim":"EX"}`, "decode", "--json", "--fields", "trim", accord, civic)) {
		var r struct {
			Line    int
			Outcome string
			Decoded struct{ VIN string }
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Outcome != "clean" || r.Decoded.VIN != []string{accord, civic}[r.Line-1] {
			t.Errorf("%v in %s", err, line)
		}
	}
}

func TestDecodeEndsWithAStatusThatSaysHowItWent(t *testing.T) {
	a := startAPI(t)
	always := func(status, after int) func(int) (int, int) {
		return func(int) (int, int) { return status, after }
	}
	list := write(t, "vins.csv", "vin\n"+accord+"\n")
	mixed := write(t, "mixed.csv", "vin\n"+accord+"\n1.23E+16\n")
	for _, tc := range []struct {
		name   string
		refuse func(int) (int, int)
		args   []string
		status int
		out    string
		err    string
	}{
		{"all decoded", nil, []string{accord}, 0, accord + "  2003 HONDA Accord", ""},
		{"not a VIN", nil, []string{accord, "1HGCM82633A00435O"}, exitNotAll, "1HGCM82633A00435O: not a VIN\n  Position 17 is the letter O", ""},
		{"a number of a spreadsheet", nil, []string{"1.23E+16"}, exitNotAll, "damaged before it came here", ""},
		{"refused", always(429, 7), []string{accord}, exitRefused, accord + ": not answered\n  Decodes are limited. Try again in 7 seconds.", ""},
		{"refused together", always(503, 7), []string{accord, civic}, exitRefused, civic + ": not answered", ""},
		{"refused, with patience", func(n int) (int, int) { return 429 * (n % 2), 1 }, []string{accord, "--patience", "5s"}, 0, "2003 HONDA Accord", "waiting 1s as told: Decodes are limited here"},
		{"refused for longer than patience", always(429, 60), []string{accord, "--patience", "5s"}, exitRefused, "not answered", ""},
		{"a key that is not known", always(401, 0), []string{accord}, exitUnusable, "", "1 of 1 VINs are left: RATE_LIMITED: Decodes are limited"},
		{"no API", nil, []string{accord, "--api", "http://127.0.0.1:1"}, exitUnusable, "", "does not answer: dial tcp 127.0.0.1:1: connect: connection refused. Is it running (make run)"},
		{"no vingate", func(int) (int, int) { return 302, 0 }, []string{accord}, exitUnusable, "", "does not answer as vingate does"},

		{"a file, all decoded", nil, []string{"--in", list, "--out", "OUT.csv"}, 0, "", "1 of 1 rows"},
		{"a file, not all decoded", nil, []string{"--in", mixed, "--out", "OUT.csv"}, exitNotAll, "", "1 damaged before they came here"},
		{"a file, refused for long", always(503, 7200), []string{"--in", list, "--out", "OUT.jsonl"}, exitRefused, "", "Stopped: the next call would have to wait 2h0m0s"},
		{"a file, no API", nil, []string{"--in", list, "--out", "OUT.csv", "--api", "http://127.0.0.1:1"}, exitUnusable, "", "Stopped: http://127.0.0.1:1 does not answer"},

		{"nothing to decode", nil, nil, exitUsage, "", "there is nothing to decode"},
		{"a flag that there is not", nil, []string{"--fast"}, exitUsage, "", "unknown flag: --fast"},
		{"a flag's value", nil, []string{accord, "--patience", "soon"}, exitUsage, "", "--patience"},
		{"both", nil, []string{accord, "--in", list, "--out", "OUT.csv"}, exitUsage, "", "not both"},
		{"no output", nil, []string{"--in", list}, exitUsage, "", "--in needs --out"},
		{"an output for VINs", nil, []string{accord, "--out", "OUT.csv"}, exitUsage, "", "go with --in"},
		{"a year for a file", nil, []string{"--in", list, "--out", "OUT.csv", "--model-year", "2003"}, exitUsage, "", "--year-column"},
		{"an output of another kind", nil, []string{"--in", list, "--out", "OUT.xlsx"}, exitUsage, "", "must end in .csv or .jsonl"},
		{"too large a batch", nil, []string{accord, "--batch", "51"}, exitUsage, "", "--batch must be from 1 to 50, not 51"},
		{"no tries", nil, []string{accord, "--tries", "0"}, exitUsage, "", "--tries must be"},
		{"a patience below zero", nil, []string{accord, "--patience", "-1s"}, exitUsage, "", "--patience cannot be -1s"},
		{"an address that is none", nil, []string{accord, "--api", "localhost"}, exitUsage, "", "must be a URL"},
		{"a key that is none", nil, []string{accord, "--key", "a b"}, exitUsage, "", "characters that no key has"},
		{"a field that there is not", nil, []string{accord, "--fields", "Trimm"}, exitUsage, "", `NHTSA has no field "Trimm"`},
		{"no input", nil, []string{"--in", "nowhere.csv", "--out", "OUT.csv"}, exitUsage, "", "nowhere.csv"},
		{"a folder", nil, []string{"--in", ".", "--out", "OUT.csv"}, exitUsage, "", "is a folder"},
		{"a column that there is not", nil, []string{"--in", list, "--out", "OUT.csv", "--column", "id"}, exitUsage, "", `The columns are: "vin"`},
		{"the same file", nil, []string{"--in", list, "--out", list}, exitUsage, "", "the same file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a.mu.Lock()
			a.refuse, a.calls = tc.refuse, nil
			a.mu.Unlock()
			args := append([]string{"decode"}, tc.args...)
			for i := range args {
				if rest, ok := strings.CutPrefix(args[i], "OUT"); ok {
					args[i] = filepath.Join(t.TempDir(), "out"+rest)
				}
			}
			c := begin(t, args...)
			if status := c.await(t); status != tc.status || !strings.Contains(c.out.String(), tc.out) || !strings.Contains(c.err.String(), tc.err) {
				t.Errorf("status %d\n%s%s", status, c.out.String(), c.err.String())
			}
			if tc.status != 0 && tc.out == "" && c.out.String() != "" {
				t.Errorf("it printed %s", c.out.String())
			}
			if tc.status == exitUsage && len(a.calls) != 0 {
				t.Errorf("it called %v", a.calls)
			}
			if strings.Contains(tc.name, "refused") && strings.Contains(c.out.String(), "HONDA") != (tc.status == 0) {
				t.Errorf("a vehicle in a refusal: %s", c.out.String())
			}
		})
	}
}

func TestDecodeOfAFileGoesOnWhereItEnded(t *testing.T) {
	a := startAPI(t)
	in := write(t, "stock.csv", "\uFEFFStock;Vehicle ID;Year\r\n1;\""+accord+"\";2003\r\n2;1.23E+16;\r\n3;=1+1;\r\n4;"+civic+";\r\n5;"+strings.ToLower(accord)+";2003\r\n")
	out := filepath.Join(t.TempDir(), "decoded.csv")
	command := []string{"decode", "--in", in, "--out", out, "--column", "vehicle id", "--year-column", "YEAR", "--fields", "trim", "--batch", "1", "--key", "vg_key"}
	a.refuse = func(call int) (int, int) { // once all is well, then no more today
		if call == 2 {
			return 429, 24 * 60 * 60
		}
		return 0, 0
	}
	c := begin(t, command...)
	if status := c.await(t); status != exitRefused || !strings.Contains(c.err.String(), `stock.csv is UTF-8, separated by ';': 5 rows, VINs in column "Vehicle ID"`) {
		t.Errorf("status %d, %s", status, c.err.String())
	}
	// The tail of a record, as a crash leaves it.
	f, err := os.OpenFile(out, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(f, `6,"torn`)
	_ = f.Close()

	a.refuse = nil
	c = begin(t, command...)
	if status := c.await(t); status != exitNotAll || !strings.Contains(c.err.String(), "was torn (7 bytes)") || !strings.Contains(c.err.String(), "3 rows have their record in") {
		t.Errorf("status %d, %s", status, c.err.String())
	}
	if !slices.Equal(a.asked, []string{accord, civic}) {
		t.Errorf("asked %v", a.asked)
	}
	if slices.ContainsFunc(a.keys, func(k string) bool { return k != "vg_key" }) || slices.ContainsFunc(a.calls, func(c string) bool { return c != "POST /v1/vins" }) {
		t.Errorf("%v with %v", a.calls, a.keys)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	const want = `line,vin,asked_model_year,outcome,reason,code,suggestion,decoded_vin,model_year,make,model,nhtsa_codes,source,fetched_at,Trim
2,1HGCM82633A004352,2003,clean,NHTSA decoded this VIN without complaint.,,,1HGCM82633A004352,2003,HONDA,Accord,0,nhtsa,2026-06-01T12:00:00Z,EX
3,1.23E+16,,damaged,"A spreadsheet turned this VIN into a number and its last digits are lost. Copy the VIN again from where it came from, into a column formatted as text.",VIN_INVALID,,,,,,,,,
4,'=1+1,,invalid,"Position 1 is =, which no VIN contains.",VIN_INVALID,,,,,,,,,
5,2HGES16575H591234,,clean,NHTSA decoded this VIN without complaint.,,,2HGES16575H591234,2003,HONDA,Accord,0,nhtsa,2026-06-01T12:00:00Z,EX
6,1hgcm82633a004352,2003,clean,NHTSA decoded this VIN without complaint.,,,1HGCM82633A004352,2003,HONDA,Accord,0,nhtsa,2026-06-01T12:00:00Z,EX
`
	if string(text) != want {
		t.Errorf("got\n%s", text)
	}

	// A third time there is nothing to ask, and another input is not taken for this one.
	c = begin(t, command...)
	if status := c.await(t); status != exitNotAll || len(a.calls) != 3 {
		t.Errorf("status %d, %v", status, a.calls)
	}
	if err := os.WriteFile(in, []byte("Vehicle ID;Year\n"+civic+";\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c = begin(t, command...)
	if status := c.await(t); status != exitUsage || !strings.Contains(c.err.String(), "belongs to another input") {
		t.Errorf("status %d, %s", status, c.err.String())
	}
}

func TestDecodeIsInterruptedInAWaitAndKeepsWhatItHas(t *testing.T) {
	a := startAPI(t)
	a.refuse = func(call int) (int, int) {
		if call > 1 {
			return 429, 600
		}
		return 0, 0
	}
	in := write(t, "vins.txt", accord+"\n"+civic+"\n")
	out := filepath.Join(t.TempDir(), "out.jsonl")
	c := begin(t, "decode", "--in", in, "--out", out, "--batch", "1")
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(c.err.String(), "waiting 10m0s as told"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(c.err.String())
		}
	}
	c.interrupt()
	if status := c.await(t); status != exitInterrupted || !strings.Contains(c.err.String(), "Stopped with 1 rows left.") || !strings.Contains(c.err.String(), sayStopping) {
		t.Errorf("status %d, %s", status, c.err.String())
	}
	if text, _ := os.ReadFile(out); strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), accord) {
		t.Errorf("%s", text)
	}
}

func TestTheKeyComesFromTheEnvironmentAndIsNeverShown(t *testing.T) {
	a := startAPI(t)
	t.Setenv("VINGATE_API_KEY", "vg_secret")
	says(t, "HONDA", "decode", accord)
	if a.keys[0] != "vg_secret" {
		t.Errorf("%v", a.keys)
	}
	if help := says(t, "VINGATE_API_KEY", "decode", "--help"); strings.Contains(help, "vg_secret") {
		t.Error("the help shows the key")
	}
	for address, open := range map[string]bool{"http://vin.example.org": true, "https://vin.example.org": false, "http://127.0.0.1:1": false, "http://localhost:1": false, "http://[::1]:1": false, "http://10.0.0.1": true} {
		if unencrypted(address) != open {
			t.Errorf("%s", address)
		}
	}
}

// A terminal gets a bar with the count, the speed and the countdown, and is left as it was.
func TestDecodeDrawsABarOnATerminal(t *testing.T) {
	a := startAPI(t)
	a.refuse = func(call int) (int, int) { return 429 * (call % 2), 1 }
	terminal, screen := pty(t)
	in := write(t, "vins.txt", accord+"\n"+civic+"\n")
	status := run(t.Context(), []string{"decode", "--in", in, "--out", filepath.Join(t.TempDir(), "out.csv"), "--batch", "1"}, io.Discard, terminal)
	_ = terminal.Close()
	shown := <-screen
	for _, want := range []string{"0 of 2 rows", "waiting 1s as told: Decodes are limited here", "1 of 2 rows", "2 of 2 rows", "100%", "2 answered by NHTSA"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the screen lacks %q", want)
		}
	}
	if status != 0 || t.Failed() {
		t.Errorf("status %d, %q", status, shown)
	}
}

// pty is a terminal of 100 columns, and what was shown on it when it is closed.
func pty(t *testing.T) (*os.File, <-chan string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	terminal, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100}); err != nil {
		t.Fatal(err)
	}
	screen := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(master) // ends with EIO when the terminal is closed
		screen <- string(b)
		_ = master.Close()
	}()
	return terminal, screen
}

// Reading the output with a spreadsheet's eyes.
func TestTheTableHasOneRowForEachRowOfTheFile(t *testing.T) {
	startAPI(t)
	in := write(t, "vins.csv", "vin\n"+strings.Repeat(accord+"\n\n\"a\nb\"\n", 500))
	out := filepath.Join(t.TempDir(), "out.csv")
	c := begin(t, "decode", "--in", in, "--out", out, "--fields", "all", "--quiet")
	if status := c.await(t); status != exitNotAll {
		t.Fatalf("status %d, %s", status, c.err.String())
	}
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) != 1001 || len(rows[0]) != 14+154+1 || rows[1000][0] != "2000" || rows[1000][1] != "a b" {
		t.Errorf("%d rows, %v, the last %.20q", len(rows), err, rows[len(rows)-1])
	}
}

// kill -9 again and again, in the middle of calls and of what comes after them: no record is lost, none is there twice, and only what was under way is
// asked again.
func TestDecodeSurvivesBeingKilledByForce(t *testing.T) {
	a := startAPI(t)
	const rows, batch = 3000, 20
	text := "vin\n"
	for i := range rows {
		text += fmt.Sprintf("1HGCM82603A%06d\n", i)
	}
	in, out := write(t, "vins.csv", text), filepath.Join(t.TempDir(), "out.csv")
	var process *os.Process // guarded by a.mu
	kills := 0
	a.during = func(call int) {
		if kills == 20 || call%7 != 0 {
			return
		}
		kills++
		p := process
		if kills%2 == 0 {
			_ = p.Kill()
			return
		}
		time.AfterFunc(time.Duration(kills)*200*time.Microsecond, func() { _ = p.Kill() })
	}
	for runs := 1; ; runs++ {
		cmd := exec.Command(os.Args[0], "decode", "--in", in, "--out", out, "--batch", strconv.Itoa(batch), "--quiet")
		cmd.Env = []string{asTool + "=1", "VINGATE_API=" + a.URL}
		a.mu.Lock()
		err := cmd.Start()
		process = cmd.Process
		a.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		err = cmd.Wait()
		if status := cmd.ProcessState.ExitCode(); status == 0 {
			t.Logf("%d runs, %d killed", runs, kills)
			break
		} else if status != -1 || runs > 50 {
			t.Fatalf("run %d: %v", runs, err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if kills < 10 {
		t.Errorf("killed %d times: this shows nothing", kills)
	}
	if len(a.asked) > rows+kills*batch {
		t.Errorf("asked for %d VINs, %d rows and %d kills", len(a.asked), rows, kills)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(strings.NewReader(string(b))).ReadAll()
	if err != nil || len(records) != rows+1 {
		t.Fatalf("%d records, %v", len(records)-1, err)
	}
	for i, r := range records[1:] {
		if want := fmt.Sprintf("1HGCM82603A%06d", i); r[0] != strconv.Itoa(i+2) || r[1] != want || r[7] != want || r[3] != "clean" {
			t.Fatalf("record %d is %q", i, r)
		}
	}
}
