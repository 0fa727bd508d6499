//go:build unix

package bulk

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"vingate/internal/api"
)

func allFields(t testing.TB) Fields {
	t.Helper()
	f, err := ParseFields("all")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// opened opens a ledger by the name of its file.
func opened(t testing.TB, path string, fields Fields) *Ledger {
	t.Helper()
	f, err := FormatOf(path, fields)
	if err != nil {
		t.Fatal(err)
	}
	l, err := openLedger(path, f, unsynced)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// unsynced leaves it to the kernel when something gets to the disk: no test takes the power away.
func unsynced(*os.File) error { return nil }

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var fetched = time.Date(2026, 6, 1, 12, 0, 0, 123_000_000, time.UTC)

// a record of each kind, with texts that are hard to write.
func examples() []Record {
	make, model, year := "HONDA", "=Accord, \"EX\"", 2003
	return []Record{
		{Line: 2, VIN: "1hgcm-82633a004352", Outcome: "clean", Reason: "Fine.", Decoded: &Decoded{VIN: accord, ModelYear: &year, Make: &make, Model: &model, Codes: []int{0},
			Source: "nhtsa", FetchedAt: fetched, Fields: map[string]string{"Make": "HONDA", "Trim": "+EX", "Note": "two\nlines"}}},
		{Line: 3, VIN: civic, Year: "1977", Outcome: "unknown", Reason: "NHTSA has nothing about this VIN.", Suggestion: "2HGES1!575H591234",
			Decoded: &Decoded{VIN: civic, Codes: []int{1, 400}, Source: "cache", FetchedAt: fetched, Fields: map[string]string{"ErrorCode": "1,400"}}},
		{Line: 4, VIN: "=HYPERLINK(\"http://x\")", Outcome: Invalid, Reason: "Position 1 is =, which no VIN contains.", Code: "VIN_INVALID"},
		{Line: 5, VIN: "1.23E+16", Outcome: Damaged, Reason: "A spreadsheet turned this VIN into a number.", Code: "VIN_INVALID"},
		{Line: 7, VIN: bmw, Outcome: Refused, Reason: "NHTSA did not answer in time.", Code: "UPSTREAM_TIMEOUT"},
	}
}

func TestFormatsOfFiles(t *testing.T) {
	for _, fields := range []Fields{{}, {names: []string{"Trim", "BodyClass"}}, allFields(t)} {
		for _, name := range []string{"out.csv", "out.jsonl", "OUT.NDJSON"} {
			f, err := FormatOf(name, fields)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range examples() {
				if r.Decoded != nil {
					d := *r.Decoded
					d.Fields = fields.of(d.Fields)
					r.Decoded = &d
				}
				text, err := f.encode(r)
				if err != nil || bytes.Count(text, []byte("\n")) != 1 || !bytes.HasSuffix(text, []byte("\n")) {
					t.Fatalf("%s: %q, %v", name, text, err)
				}
				back, err := f.decode(text[:len(text)-1])
				if err != nil {
					t.Fatalf("%s: %v in %s", name, err, text)
				}
				again, _ := f.encode(back)
				if !bytes.Equal(again, text) {
					t.Errorf("%s: %s became %s", name, text, again)
				}
				if strings.HasSuffix(name, "jsonl") && !reflect.DeepEqual(back, r) {
					t.Errorf("%+v became %+v", r, back)
				}
			}
		}
	}
	for _, name := range []string{"out", "out.xlsx", "out.json", "csv"} {
		if _, err := FormatOf(name, Fields{}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// A cell that a spreadsheet would run begins with an apostrophe; nothing else is touched. A refused row has no vehicle in it.
func TestTheTableIsHarmlessInASpreadsheet(t *testing.T) {
	f := newCSVFormat(allFields(t))
	var table bytes.Buffer
	table.Write(f.header())
	for _, r := range examples() {
		line, err := f.encode(r)
		if err != nil {
			t.Fatal(err)
		}
		table.Write(line)
	}
	lines, err := csv.NewReader(&table).ReadAll()
	if err != nil || len(lines) != 6 || len(lines[0]) != 14+154+1 {
		t.Fatalf("%d lines of %d columns, %v", len(lines), len(lines[0]), err)
	}
	for n, line := range lines[1:] {
		for i, cell := range line {
			if cell != "" && strings.ContainsRune("=+-@\t\r\n＝＋－＠", []rune(cell)[0]) || strings.ContainsAny(cell, "\r\n") {
				t.Errorf("line %d has %q under %s", n, cell, lines[0][i])
			}
			if n >= 2 && i >= 7 && cell != "" {
				t.Errorf("line %d, which was not decoded, has %q under %s", n, cell, lines[0][i])
			}
		}
	}
	at := func(name string) string { return lines[1][slices.Index(lines[0], name)] }
	if at("model") != `'=Accord, "EX"` || at("Trim") != "'+EX" || at("Note") != "two lines" || at("make") != "HONDA" {
		t.Errorf("%q", lines[1])
	}
	for text, want := range map[string]string{"": "", "1HG": "1HG", " -x": "' -x", "＝x": "'＝x", "'=x": "'=x", "a\x00\u2028b": "a\uFFFD b", "\tx": "'\tx", "x=1": "x=1", "Not Applicable": "Not Applicable"} {
		if got := protect(text); got != want || protect(got) != got {
			t.Errorf("protect(%q) = %q, then %q", text, got, protect(got))
		}
	}
}

// What NHTSA adds one day has no column yet, and is not lost.
func TestFieldsThatAreNotKnownAreKept(t *testing.T) {
	f := newCSVFormat(allFields(t))
	r := examples()[0]
	r.Decoded.Fields = map[string]string{"Make": "HONDA", "NewIn2031": "=x"}
	text, err := f.encode(r)
	if err != nil || !strings.HasSuffix(string(text), `,"{""NewIn2031"":""=x""}"`+"\n") {
		t.Fatalf("%s, %v", text, err)
	}
	if back, err := f.decode(text[:len(text)-1]); err != nil || back.Decoded.Fields["NewIn2031"] != "=x" {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestFieldsAreNamedInAnyLetterCase(t *testing.T) {
	f, err := ParseFields(" trim,BODYCLASS, Trim")
	if err != nil || !slices.Equal(f.names, []string{"Trim", "BodyClass"}) {
		t.Errorf("%v, %v", f.names, err)
	}
	for _, bad := range []string{"trimm", "trim,,x", ","} {
		if _, err := ParseFields(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestALedgerGoesOnWhereItEnded(t *testing.T) {
	for _, name := range []string{"out.csv", "out.jsonl"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			l := opened(t, path, allFields(t))
			ex := examples()
			if err := l.Append(ex[:3]); err != nil {
				t.Fatal(err)
			}
			if err := l.Append(ex[3:]); err != nil {
				t.Fatal(err)
			}
			if f, _ := FormatOf(path, allFields(t)); f != nil {
				if _, err := OpenLedger(path, f); err == nil || !strings.Contains(err.Error(), "another vingate is writing to it") {
					t.Errorf("opened twice: %v", err)
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			before := read(t, path)
			l = opened(t, path, allFields(t))
			defer func() { _ = l.Close() }()
			for _, r := range ex {
				outcome, err := l.Outcome(Row{Line: r.Line, VIN: r.VIN, Year: r.Year})
				has, _ := l.Has(Row{Line: r.Line, VIN: r.VIN, Year: r.Year})
				if err != nil || outcome != r.Outcome || has != (r.Outcome != Refused) {
					t.Errorf("line %d: %q, %v, %v", r.Line, outcome, has, err)
				}
				var fault *LedgerError
				for _, other := range []Row{{Line: r.Line, VIN: r.VIN + "x", Year: r.Year}, {Line: r.Line, VIN: r.VIN, Year: "2001"}} {
					if _, err := l.Outcome(other); !errors.As(err, &fault) || !strings.Contains(err.Error(), "belongs to another input") || strings.Contains(err.Error(), r.VIN) {
						t.Errorf("%+v: %v", other, err)
					}
				}
			}
			for _, line := range []int{1, 6, 8, 1000} {
				if outcome, err := l.Outcome(Row{Line: line, VIN: "x"}); outcome != "" || err != nil {
					t.Errorf("line %d: %q, %v", line, outcome, err)
				}
			}
			k, _ := ex[0].Key()
			got, ok, err := l.Answered(k)
			if err != nil || !ok || got.Decoded.VIN != accord || got.Decoded.Fields["Make"] != "HONDA" {
				t.Errorf("%+v, %v, %v", got, ok, err)
			}
			if _, ok, err := l.Answered(keyOf(accord, 2003)); ok || err != nil {
				t.Errorf("another year: %v, %v", ok, err)
			}
			if l.Repaired != 0 || read(t, path) != before {
				t.Error("opening changed the file")
			}
		})
	}
}

// A crash may end the file after any byte: what was written whole stays, the rest is taken off, and the file goes on as if it had never been.
func TestAFileThatWasCutAnywhereGoesOn(t *testing.T) {
	for _, name := range []string{"out.csv", "out.jsonl"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			f, err := FormatOf(path, Fields{names: []string{"Note"}})
			if err != nil {
				t.Fatal(err)
			}
			ex := slices.Delete(examples(), 1, 3)
			ex[0].Decoded.Fields = map[string]string{"Note": "two lines"}
			whole := slices.Clone(f.header())
			for _, r := range ex {
				line, err := f.encode(r)
				if err != nil {
					t.Fatal(err)
				}
				whole = append(whole, line...)
			}
			for cut := range len(whole) + 1 {
				if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
					t.Fatal(err)
				}
				l, err := openLedger(path, f, unsynced)
				if err != nil {
					t.Fatalf("cut after %d bytes: %v", cut, err)
				}
				kept := max(0, bytes.Count(whole[:cut], []byte("\n"))-bytes.Count(f.header(), []byte("\n")))
				for i, r := range ex {
					if outcome, err := l.Outcome(Row{Line: r.Line, VIN: r.VIN, Year: r.Year}); err != nil || (outcome != "") != (i < kept) {
						t.Fatalf("cut after %d bytes, line %d: %q, %v", cut, r.Line, outcome, err)
					}
				}
				if err := l.Append(ex[kept:]); err != nil {
					t.Fatal(err)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if got := read(t, path); got != string(whole) {
					t.Fatalf("cut after %d bytes it became\n%s", cut, got)
				}
			}
		})
	}
}

func TestAFileOfSomethingElseIsNotTouched(t *testing.T) {
	csvHeader := string(newCSVFormat(Fields{}).header())
	for _, tc := range []struct {
		name, file, text, want string
	}{
		{"a table of somebody's", "out.csv", "vin,price\n1,2\n", "not the columns that this command writes"},
		{"other fields", "out.csv", string(newCSVFormat(Fields{names: []string{"Trim"}}).header()), "of other --fields"},
		{"the header as Excel saves it", "out.csv", strings.ReplaceAll(csvHeader, "\n", "\r\n"), "not the columns"},
		{"a line that is no record", "out.csv", csvHeader + "a,b\n", "line 2: not a record of vingate's"},
		{"a record of a line 0", "out.csv", csvHeader + "0,x,,invalid,x,,,,,,,,,\n", "not a record"},
		{"an outcome that there is not", "out.csv", csvHeader + "2,x,,fine,x,,,,,,,,,\n", "not a record"},
		{"a line beyond all files", "out.csv", csvHeader + "2000000000,x,,invalid,x,,,,,,,,,\n", "not a record"},
		{"a text without a line end", "out.csv", "my notes", "not a record"},
		{"the same as JSON", "out.jsonl", "my notes", "not a record"},
		{"other JSON", "out.jsonl", `{"line":1,"name":"x"}` + "\n", "line 1: not a record"},
		{"an array", "out.jsonl", "[]\n", "not a record"},
		{"a record with fields where none are asked for", "out.jsonl", `{"line":2,"vin":"x","outcome":"clean","reason":"","decoded":{"vin":"x","fields":{"Trim":"EX"}}}` + "\n", "other --fields"},
		{"an endless line", "out.jsonl", `{"line":` + strings.Repeat(" ", longestLine), "not a record"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), tc.file)
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			f, _ := FormatOf(path, Fields{})
			var fault *LedgerError
			if _, err := OpenLedger(path, f); !errors.As(err, &fault) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "Nothing was changed") {
				t.Errorf("%v", err)
			}
			if read(t, path) != tc.text {
				t.Error("it was changed")
			}
		})
	}
	f, _ := FormatOf("x.csv", Fields{})
	if _, err := OpenLedger("/dev/null", f); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a device: %v", err)
	}
	if _, err := OpenLedger(filepath.Join(t.TempDir(), "no", "out.csv"), f); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

func TestASortedFileHasOneRecordForEachLineInOrder(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link.jsonl")
	path := filepath.Join(dir, "out.jsonl")
	if err := os.WriteFile(path, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	l := opened(t, link, allFields(t))
	ex := examples()
	answered := ex[1]
	answered.Line, answered.VIN, answered.Year = 7, bmw, ""
	for _, batch := range [][]Record{{ex[4], ex[2]}, {ex[0]}, {ex[3], ex[1]}, {answered}} {
		if err := l.Append(batch); err != nil {
			t.Fatal(err)
		}
	}
	// What a crash in the middle of sorting has left is in nobody's way.
	if err := os.WriteFile(filepath.Join(dir, ".out.jsonl.sorting"), bytes.Repeat([]byte("x"), 10_000), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Sort(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var lines []int
	for text := range strings.Lines(read(t, path)) {
		var r Record
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, r.Line)
		if r.Line == 7 && r.Outcome != "unknown" {
			t.Errorf("the older record of line 7 was kept: %+v", r)
		}
	}
	if !slices.Equal(lines, []int{2, 3, 4, 5, 7}) {
		t.Errorf("lines %v", lines)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link: %v, %v", info, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode: %v, %v", info, err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("left in the folder: %v", entries)
	}
}

// Any run that is cut off anywhere, again and again, and in between refused, ends as one that was never disturbed, and no answered VIN is asked again.
func TestARunThatIsCutOffAgainAndAgainEndsAsOneThatIsNot(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		vins := rapid.SliceOfN(rapid.SampledFrom(append(accords(15), "1.23E+16", "=x", accord+" ")), 1, 40).Draw(rt, "vins")
		name := rapid.SampledFrom([]string{"out.csv", "out.jsonl"}).Draw(rt, "format")
		cuts := rapid.SliceOfN(rapid.IntRange(0, 2000), 0, 6).Draw(rt, "cuts")
		n++
		path := filepath.Join(dir, fmt.Sprint(n, name))
		var fault string
		synctest.Test(t, func(t *testing.T) {
			asked := map[string]int{}
			lost := map[string]bool{}
			s := &script{began: time.Now(), do: func(c int, q []api.Question) ([]api.Result, error) {
				list, _ := all(q)
				for i, one := range q {
					if asked[one.VIN]++; (c+i)%7 == 0 && len(cuts) > 0 {
						list[i] = api.Result{Problem: refusal(429, 5)}
						asked[one.VIN]--
					}
				}
				return list, nil
			}}
			turn := func(rows int) Summary { // and is killed at this many rows
				l := opened(t, path, Fields{})
				defer func() { _ = l.Close() }()
				before, err := l.Survey(feed(vins...))
				if err != nil {
					t.Fatal(err)
				}
				r := s.run(nil, vins...)
				r.Book, r.Before, r.Patience = l, before, 20*time.Second
				left, next := rows, r.Next
				stop := errors.New("killed")
				r.Next = func() (Row, error) {
					if left--; left < 0 {
						return Row{}, stop
					}
					return next()
				}
				sum, err := r.Do(t.Context())
				if err != nil && !errors.Is(err, stop) {
					t.Fatal(err)
				}
				if err == nil {
					if err := l.Sort(); err != nil {
						t.Fatal(err)
					}
				}
				return sum
			}
			for _, cut := range cuts {
				turn(cut % (len(vins) + 1))
				text := read(t, path)
				keep := len(text) - cut%(len(text)/2+1)
				for v := range asked { // what is cut off may be asked again
					if strings.Contains(text[strings.LastIndex(text[:keep], "\n")+1:], v) {
						lost[v] = true
					}
				}
				if err := os.WriteFile(path, []byte(text[:keep]), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cuts = nil
			sum := turn(len(vins) + 1)
			if sum.End != Complete || sum.Done != len(vins) {
				fault = fmt.Sprintf("%+v", sum)
			}
			for v, times := range asked {
				if times > 1 && !lost[v] {
					fault = fmt.Sprintf("%s was answered %d times", v, times)
				}
			}
			whole := filepath.Join(dir, fmt.Sprint("whole", n, name))
			l := opened(t, whole, Fields{})
			r := s.run(nil, vins...)
			r.Book = l
			if _, err := r.Do(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(l.Sort(), l.Close()); err != nil {
				t.Fatal(err)
			}
			if a, b := read(t, path), read(t, whole); a != b {
				fault = fmt.Sprintf("got\n%s\nwant\n%s", a, b)
			}
		})
		if fault != "" {
			rt.Fatal(fault)
		}
	})
}

// What is read as a record is written again as it was read.
func FuzzRecords(f *testing.F) {
	for _, r := range examples() {
		for _, format := range []Format{newCSVFormat(Fields{}), jsonlFormat{Fields{all: true}}} {
			if text, err := format.encode(r); err == nil {
				f.Add(text)
			}
		}
	}
	all := allFields(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, format := range []Format{newCSVFormat(Fields{}), newCSVFormat(all), jsonlFormat{}, jsonlFormat{all}} {
			r, err := format.decode(text)
			if err != nil {
				continue
			}
			once, err := format.encode(r)
			if err != nil {
				continue // a time beyond the year 9999
			}
			back, err := format.decode(once[:len(once)-1])
			if err != nil {
				t.Fatalf("%q was read and written as %q, which cannot be read", text, once)
			}
			if twice, _ := format.encode(back); !bytes.Equal(once, twice) {
				t.Errorf("%q then %q", once, twice)
			}
		}
	})
}

// Records are on the disk before the next call is made.
func TestEachBatchIsBroughtToTheDisk(t *testing.T) {
	f, _ := FormatOf("out.csv", Fields{})
	var synced []int64
	full := errors.New("the disk is gone")
	path := filepath.Join(t.TempDir(), "out.csv")
	l, err := openLedger(path, f, func(file *os.File) error {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		if synced = append(synced, info.Size()); len(synced) == 4 {
			return full
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ex := examples()
	if err := errors.Join(l.Append(ex[:2]), l.Append(ex[2:3])); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(ex[3:]); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	if len(synced) != 4 || !slices.IsSorted(synced) || synced[0] != int64(len(f.header())) || synced[2] <= synced[1] {
		t.Errorf("%v", synced)
	}
}

// A large file takes time, not memory: what is kept of each line is a few words.
func TestMemoryGrowsByAFewWordsALine(t *testing.T) {
	const lines, most = 20_000, 120 // bytes a line
	path := filepath.Join(t.TempDir(), "out.csv")
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	l := opened(t, path, Fields{})
	n := 0
	next := func() (Row, error) {
		if n == lines {
			return Row{}, io.EOF
		}
		n++
		return Row{Line: n + 1, VIN: fmt.Sprintf("1HGCM82603A%06d", n)}, nil
	}
	before := heap()
	r := new(script).run(nil)
	r.Next, r.Book, r.Batch, r.Before = next, l, 50, Survey{Total: lines}
	r.Ask = func(_ context.Context, q []api.Question) ([]api.Result, error) { return all(q) }
	if sum := do(t, r); sum.End != Complete || sum.Done != lines {
		t.Fatalf("%+v", sum)
	}
	grown := heap() - before
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again := heap()
	l = opened(t, path, Fields{})
	n = 0
	if s, err := l.Survey(next); err != nil || s.Done != lines {
		t.Fatalf("%+v, %v", s, err)
	}
	reopened := heap() - again
	t.Logf("%d bytes a line in a run, %d when it is gone on with", grown/lines, reopened/lines)
	if grown/lines > most || reopened/lines > most {
		t.Errorf("more than %d", most)
	}
	runtime.KeepAlive(l)
}
