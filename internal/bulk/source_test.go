package bulk

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
)

const (
	accord = "1HGCM82633A004352"
	civic  = "2HGES16575H591234"
	bmw    = "5UXWX7C5*BA"
)

// rows reads a file to its end.
func rows(t *testing.T, text string, columns Columns) ([]Row, *Source, error) {
	t.Helper()
	s, err := NewSource(strings.NewReader(text), "vins.csv", columns)
	if err != nil {
		return nil, nil, err
	}
	var list []Row
	for {
		row, err := s.Next()
		if err == io.EOF {
			return list, s, nil
		}
		if err != nil {
			return list, s, err
		}
		list = append(list, row)
	}
}

func encoded(t *testing.T, text string, e interface{ Bytes([]byte) ([]byte, error) }) string {
	t.Helper()
	b, err := e.Bytes([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAFileIsReadAsItIs(t *testing.T) {
	const table = "Stock,VIN,Year\n7,1HGCM82633A004352,2003\n8,2HGES16575H591234,\n"
	two := []Row{{Line: 2, VIN: accord, Year: "2003"}, {Line: 3, VIN: civic}}
	semicolons := strings.ReplaceAll(table, ",", ";")
	le, be := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), unicode.UTF16(unicode.BigEndian, unicode.UseBOM)
	for _, tc := range []struct {
		name, text, encoding string
		comma                rune
		want                 []Row
	}{
		{"commas", table, "UTF-8", ',', two},
		{"semicolons", semicolons, "UTF-8", ';', two},
		{"tabs", strings.ReplaceAll(table, ",", "\t"), "UTF-8", '\t', two},
		{"bars", strings.ReplaceAll(table, ",", "|"), "UTF-8", '|', two},
		{"avni-server#908: a byte order mark", "\uFEFF" + table, "UTF-8", ',', two},
		{"a byte order mark in front of the VIN column", "\uFEFFvin,year\n" + accord + ",2003\n", "UTF-8", ',', two[:1]},
		{"a byte order mark and a quote", "\uFEFF\"VIN\";\"Year\"\r\n\"" + accord + "\";\"2003\"\r\n", "UTF-8", ';', two[:1]},
		{"CRLF", strings.ReplaceAll(semicolons, "\n", "\r\n"), "UTF-8", ';', two},
		{"CR alone", strings.ReplaceAll(table, "\n", "\r"), "UTF-8", ',', two},
		{"no line end at the end", strings.TrimSuffix(table, "\n"), "UTF-8", ',', two},
		{"UTF-16 LE", encoded(t, table, le.NewEncoder()), "UTF-16 LE", ',', two},
		{"UTF-16 BE", encoded(t, table, be.NewEncoder()), "UTF-16 BE", ',', two},
		{"UTF-16 LE with tabs and CRLF, as Excel's Unicode text", encoded(t, strings.NewReplacer(",", "\t", "\n", "\r\n").Replace(table), le.NewEncoder()), "UTF-16 LE", '\t', two},
		{"UTF-16 LE without a mark", encoded(t, table, unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM).NewEncoder()), "UTF-16 LE", ',', two},
		{"UTF-16 BE without a mark", encoded(t, table, unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM).NewEncoder()), "UTF-16 BE", ',', two},
		{"Windows-1252", encoded(t, "Händler;VIN;Year\nMüller;"+accord+";2003\n", charmap.Windows1252.NewEncoder()), "Windows-1252", ';', two[:1]},
		{"Excel's own line about the separator", "sep=;\n" + semicolons, "UTF-8", ';', []Row{{Line: 3, VIN: accord, Year: "2003"}, {Line: 4, VIN: civic}}},
		{"quoted fields with separators, quotes and line breaks", "note;vin;year\n\"a;b \"\"c\"\"\nd\";\"" + accord + "\";2003\nx;" + civic + "\n", "UTF-8", ';',
			[]Row{{Line: 2, VIN: accord, Year: "2003"}, {Line: 4, VIN: civic}}},
		{"a header with a comma in a name", "\"Price, EUR\";Name, first;VIN;Year\n1;x;" + accord + ";2003\n", "UTF-8", ';', two[:1]},
		{"a header with more commas than separators", "Price, net, EUR;VIN;Year\n1;" + accord + ";2003\n", "UTF-8", ';', two[:1]},
		{"blanks around the names", " Stock , vin , YEAR \n7," + accord + ",2003\n", "UTF-8", ',', two[:1]},
		{"blank lines and rows without a cell", "vin,year\n\n,\n" + accord + ",2003\n,,,\n\n", "UTF-8", ',', []Row{{Line: 4, VIN: accord, Year: "2003"}}},
		{"short rows", "year,x,vin\n2003\n2003,,\n", "UTF-8", ',', []Row{{Line: 2, Year: "2003"}, {Line: 3, Year: "2003"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, s, err := rows(t, tc.text, Columns{Year: "year"})
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Fatalf("got %+v, %v", got, err)
			}
			if s.Encoding != tc.encoding || s.Comma != tc.comma {
				t.Errorf("found %s with %q", s.Encoding, s.Comma)
			}
			// And the same when the bytes come one by one.
			slow, err := NewSource(iotest.OneByteReader(strings.NewReader(tc.text)), "x", Columns{Year: "year"})
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range tc.want {
				if row, err := slow.Next(); err != nil || row != want {
					t.Errorf("slowly, row %d is %+v, %v", i, row, err)
				}
			}
		})
	}
}

func TestAPlainListNeedsNoHeader(t *testing.T) {
	want := []Row{{Line: 1, VIN: accord}, {Line: 2, VIN: "1.23E+16"}, {Line: 4, VIN: civic}}
	for _, columns := range []Columns{{}, {NoHeader: true}, {NoHeader: true, VIN: "1"}} {
		got, s, err := rows(t, accord+"\n1.23E+16\n\n"+civic, columns)
		if err != nil || !reflect.DeepEqual(got, want) || s.Header != nil || s.Column() != "column 1, no header line" {
			t.Errorf("%+v: %+v, %v", columns, got, err)
		}
	}
	got, _, err := rows(t, "7;"+accord+";2003\n", Columns{NoHeader: true, VIN: "2", Year: "3"})
	if err != nil || !reflect.DeepEqual(got, []Row{{Line: 1, VIN: accord, Year: "2003"}}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAColumnIsNamedInAnyLetterCaseOrByNumber(t *testing.T) {
	const table = "Id,Vehicle ID,vin,VIN,2\na,b,c,d," + accord + "\n"
	for column, want := range map[string]string{"vehicle id": "b", " VEHICLE ID ": "b", "1": "a", "4": "d", "2": accord} {
		if got, s, err := rows(t, table, Columns{VIN: column}); err != nil || got[0].VIN != want {
			t.Errorf("%q: %+v, %v", column, got, err)
		} else if column == "1" && s.Column() != `column "Id"` {
			t.Errorf("%s", s.Column())
		}
	}
}

func TestWhatIsNoTableOfVINsIsSaid(t *testing.T) {
	wide := strings.Repeat("a,", 60) + strings.Repeat("b", 200)
	for _, tc := range []struct {
		name, text string
		columns    Columns
		want       string
	}{
		{"nothing", "", Columns{}, "vins.csv: there is nothing in it"},
		{"only blanks", "\n \n", Columns{}, "nothing in it"},
		{"no such column", "Stock;Vehicle ID\n", Columns{}, `vins.csv, line 1: there is no column "vin". The columns are: "Stock", "Vehicle ID". Name one with --column`},
		{"no such year column", "vin,x\n", Columns{Year: "year"}, `no column "year". The columns are: "vin", "x". Name one with --year-column`},
		{"two of the name", "VIN,x,vin\n", Columns{}, `2 columns named "vin"; give the number of the one you mean, such as --column 1`},
		{"a number beyond", "a,b\n", Columns{VIN: "3"}, `no column "3"`},
		{"many columns", wide, Columns{}, `"a", and 21 more`},
		{"no header but columns", "7," + accord + "\n", Columns{}, "say --no-header"},
		{"no header, and a name", accord + "\n", Columns{VIN: "vin", NoHeader: true}, `a number from 1 to 1, not "vin"`},
		{"a workbook", "PK\x03\x04rest", Columns{}, "an Excel workbook (or another zip file); save it as CSV"},
		{"an old workbook", "\xD0\xCF\x11\xE0rest", Columns{}, "an old Excel workbook"},
		{"a quote that is not closed", "vin\n\"" + accord + "\n" + civic + "\n", Columns{}, "vins.csv, line 2: a quote that is opened here is not closed"},
		{"a quote that is not closed in a long file", "vin\n" + civic + "\n\"" + strings.Repeat(accord+"\n", 100_000), Columns{}, "vins.csv, line 3: a quote is opened here or soon below and never closed"},
		{"a header that cannot be read", "vin,a\"b\n", Columns{}, "the first line cannot be read: there is a quote inside a cell"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := rows(t, tc.text, tc.columns)
			var fault *SourceError
			if !errors.As(err, &fault) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v", err)
			}
			if err != nil && len(err.Error()) > 800 {
				t.Errorf("%d bytes of error", len(err.Error()))
			}
		})
	}
	broken := errors.New("broken")
	if _, err := NewSource(iotest.ErrReader(broken), "x", Columns{}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// A line with a fault costs nothing but itself, and what stands in front of the fault counts.
func TestALineThatCannotBeReadIsOneDamagedRow(t *testing.T) {
	got, _, err := rows(t, "vin,note\n"+accord+",20\" wheels\nx\"y,"+civic+"\n\"a\"b,c\n"+civic+",fine\n", Columns{})
	if err != nil || len(got) != 4 {
		t.Fatalf("%+v, %v", got, err)
	}
	if got[0] != (Row{Line: 2, VIN: accord}) || got[3] != (Row{Line: 5, VIN: civic}) {
		t.Errorf("%+v", got)
	}
	for _, row := range got[1:3] {
		if row.VIN != "" || !strings.HasPrefix(row.Fault, "This line cannot be read: ") {
			t.Errorf("%+v", row)
		}
		if _, r := judge(row, time.Now()); r == nil || r.Outcome != Damaged || r.Decoded != nil || r.Reason != row.Fault {
			t.Errorf("%+v", r)
		}
	}
}

func TestAnEndlessCellIsKeptCutAndIsNoVIN(t *testing.T) {
	got, _, err := rows(t, "vin\n"+strings.Repeat("ä", 10_000)+"\n", Columns{})
	if err != nil || len(got) != 1 || len(got[0].VIN) > maxCell || !utf8.ValidString(got[0].VIN) {
		t.Fatalf("%d rows, %v", len(got), err)
	}
	if _, r := judge(got[0], time.Now()); r == nil || r.Outcome != Invalid {
		t.Errorf("%+v", r)
	}
}

func TestRowsAreJudgedHereAndNeverGuessed(t *testing.T) {
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name, vin, year string
		outcome         Outcome // "" is asked
		reason          string
	}{
		{"a VIN", "1hgcm-82633a004352", "", "", ""},
		{"a VIN with unknown characters", bmw, "2011", "", ""},
		{"a number of a spreadsheet", "1.23E+16", "", Damaged, "last digits are lost"},
		{"the same with a comma", "1,23E+16", "", Damaged, "last digits are lost"},
		{"a damaged character", "1HGCM8263\uFFFDA004352", "", Damaged, "damaged on its way"},
		{"a letter that no VIN has", "1HGCM82633A00435O", "", Invalid, "the letter O"},
		{"empty", " ", "2003", Invalid, "No VIN was given."},
		{"a year with a comma", accord, "2003,0", Invalid, "model year must be"},
		{"a year of two digits", accord, "03", Invalid, "model year must be"},
		{"a year before VINs", accord, "1979", Invalid, "model year must be"},
		{"a year in blanks", accord, " 2003 ", "", ""},
		{"a formula", "=HYPERLINK(\"x\")", "", Invalid, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k, r := judge(Row{Line: 2, VIN: tc.vin, Year: tc.year}, now)
			switch {
			case tc.outcome == "":
				if r != nil || k == (Key{}) {
					t.Errorf("%+v", r)
				}
			case r == nil || r.Outcome != tc.outcome || !strings.Contains(r.Reason, tc.reason) || r.Decoded != nil || r.VIN != tc.vin || r.Code == "":
				t.Errorf("%+v", r)
			}
		})
	}
	k, _ := judge(Row{VIN: "1hgcm82633a004352"}, now)
	same, _ := judge(Row{VIN: " 1HGCM-82633-A004352 "}, now)
	year, _ := judge(Row{VIN: accord, Year: "2003"}, now)
	if k != same || k == year || k.question().VIN != accord || year.question().ModelYear != 2003 {
		t.Errorf("%+v %+v %+v", k, same, year)
	}
}

// Every text is read to its end or refused, each row lies behind the one before it, and nothing of a row is longer than a VIN can be.
func FuzzSource(f *testing.F) {
	for _, text := range []string{"vin,year\n" + accord + ",2003\n", "\uFEFFVIN;Year\r\n\"" + civic + "\";\r\n", accord + "\n1.23E+16\n", "sep=;\nvin;a\n1;2\n", "vin\n\"a\nb\"\n", "vin,x\n1,2\"3\n\"a\"b\n",
		"\xFF\xFEv\x00i\x00n\x00\n\x00", "\xFE\xFF\x00v\x00i\x00n\x00\n", "v\x00i\x00n\x00\n\x001\x00", "vin\r1\r2", "H\xE4;vin\n1;2", "PK\x03\x04", "vin\n" + strings.Repeat("\"", 99)} {
		f.Add([]byte(text), "", "", false)
		f.Add([]byte(text), "2", "year", true)
	}
	f.Fuzz(func(t *testing.T, text []byte, vinColumn, yearColumn string, noHeader bool) {
		s, err := NewSource(bytes.NewReader(text), "x", Columns{VIN: vinColumn, Year: yearColumn, NoHeader: noHeader})
		for last := 0; err == nil; {
			var row Row
			if row, err = s.Next(); err != nil {
				break
			}
			if row.Line <= last || len(row.VIN) > maxCell || len(row.Year) > maxCell || !utf8.ValidString(row.VIN) {
				t.Errorf("row %+v behind line %d", row, last)
			}
			last = row.Line
			if k, r := judge(row, time.Unix(1_800_000_000, 0)); r == nil && (k.question().VIN == "" || row.Fault != "") {
				t.Errorf("%+v is asked for as %+v", row, k.question())
			} else if r != nil && (r.Decoded != nil || r.Reason == "") {
				t.Errorf("%+v", r)
			}
		}
		var fault *SourceError
		if err != io.EOF && !errors.As(err, &fault) {
			t.Errorf("%v", err)
		}
	})
}
