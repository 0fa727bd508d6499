package vpic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBatchIsSentAsAForm(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if want := "DATA=1HGCM82633A004352%2C2003%3B5UXWX7C5%2ABA&format=json"; string(body) != want {
			t.Errorf("body %q, want %q", body, want)
		}
		if r.Method != "POST" || r.RequestURI != "/api/vehicles/DecodeVINValuesBatch/" || r.ContentLength != int64(len(body)) ||
			r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" || r.Header.Get("User-Agent") != "vingate/1.2.3 (+ops@example.test)" {
			t.Errorf("%s %s, %d bytes, header %v", r.Method, r.RequestURI, r.ContentLength, r.Header)
		}
		w.Header().Set("Retry-After", "5")
		asJSON(envelope(flat(suv, row{"ErrorCode": "6"}), flat(accord, nil)))(w, r)
	}
	inBubble(t, answer, func(t *testing.T, client *Client, calls *atomic.Int32) {
		b, err := client.DecodeBatch(t.Context(), []Query{{VIN: accord, ModelYear: 2003}, {VIN: suv}})
		if err != nil || calls.Load() != 1 {
			t.Fatalf("%v, %d calls", err, calls.Load())
		}
		if len(b.Items) != 2 || b.Items[0].Err != nil || b.Items[0].Outcome() != Clean || b.Items[1].Err != nil || b.Items[1].Outcome() != Partial {
			t.Errorf("%+v", b.Items)
		}
		if !b.FetchedAt.Equal(time.Now()) || b.Quota != (Quota{true, 5 * time.Second}) {
			t.Errorf("fetched at %s, quota %+v", b.FetchedAt, b.Quota)
		}
		var raw map[string]string
		if json.Unmarshal(b.Items[0].Row(), &raw) != nil || raw["VIN"] != accord {
			t.Errorf("row %s", b.Items[0].Row())
		}
	})
}

// An item becomes what a single call would have brought, so that it can be stored and handed on in its place.
func TestABatchItemIsAnAnswerOfItsOwn(t *testing.T) {
	body := envelope(flat(suv, row{"ErrorCode": "6"}), flat(accord, row{"Note": `<b>"x" & y</b>`}))
	inBubble(t, asJSON(body), func(t *testing.T, client *Client, _ *atomic.Int32) {
		b, err := client.DecodeBatch(t.Context(), []Query{{VIN: accord, ModelYear: 2003}, {VIN: suv}})
		if err != nil {
			t.Fatal(err)
		}
		for i, item := range b.Items {
			a := b.Answer(i)
			read, err := Read(a.Body(), a.Query())
			if err != nil || !reflect.DeepEqual(read.Decoding(), item.Decoding()) || !reflect.DeepEqual(a.Decoding(), item.Decoding()) || a.Query() != item.Query() || !a.FetchedAt.Equal(b.FetchedAt) {
				t.Errorf("item %d: %v, %+v", i, err, a)
			}
			var e struct {
				Count          int
				Message        string
				SearchCriteria string
				Results        []json.RawMessage
			}
			if err := json.Unmarshal(a.Body(), &e); err != nil || e.Count != 1 || e.SearchCriteria != "VIN(s): "+item.Query().VIN || string(e.Results[0]) != string(item.Row()) || len(e.Results) != 1 {
				t.Errorf("%v in %s", err, a.Body())
			}
			if !strings.HasPrefix(e.Message, "Results returned successfully") || e.Message != b.Message {
				t.Errorf("message %q", e.Message)
			}
		}
	})
}

func TestBatchItems(t *testing.T) {
	const ok = ""
	for _, c := range []struct {
		name string
		qs   []Query
		body []byte
		want []string // for each item "" or the reason of its error
	}{
		{"rows in another order", []Query{{VIN: accord}, {VIN: pickup}}, envelope(flat(pickup, nil), flat(accord, nil)), []string{ok, ok}},
		{"NHTSA's own spelling", []Query{{VIN: strings.ToLower(accord)}}, envelope(flat(" "+accord+" ", nil)), []string{ok}},
		{"the same question twice", []Query{{VIN: accord}, {VIN: strings.ToLower(accord)}}, envelope(flat(accord, nil)), []string{ok, ok}},
		{"the same row twice", []Query{{VIN: accord}}, envelope(flat(accord, nil), flat(accord, nil)), []string{ok}},
		{"a missing row", []Query{{VIN: accord}, {VIN: pickup}}, envelope(flat(accord, nil)), []string{ok, "no row for this VIN"}},
		{"a foreign row", []Query{{VIN: accord}, {VIN: pickup}}, envelope(flat(accord, nil), flat("3VV3B7AX9NM000001", nil)), []string{ok, "no row for this VIN"}},
		{"a foreign row alone", []Query{{VIN: accord}}, envelope(flat(pickup, nil)), []string{"no row for this VIN"}},
		{"two different rows", []Query{{VIN: accord}, {VIN: pickup}}, envelope(flat(accord, nil), flat(pickup, nil), flat(accord, row{"Model": "Civic"})),
			[]string{"two different rows for this VIN", ok}},
		{"two different rows and the first again", []Query{{VIN: accord}}, envelope(flat(accord, nil), flat(accord, row{"Model": "Civic"}), flat(accord, nil)),
			[]string{"two different rows for this VIN"}},
		{"a row without ErrorCode", []Query{{VIN: accord}, {VIN: pickup}}, envelope(flat(accord, row{"ErrorCode": ""}), flat(pickup, nil)),
			[]string{"the row has no readable ErrorCode", ok}},
		{"a structured field", []Query{{VIN: accord}, {VIN: pickup}}, envelope(flat(accord, row{"Make": row{"a": canary}}), flat(pickup, nil)),
			[]string{"the row's Make is not a text", ok}},
		{"a row that is none", []Query{{VIN: accord}}, []byte(`{"Results":["` + canary + `",null,` + string(mustJSON(flat(accord, nil))) + `]}`), []string{ok}},
		{"another year of the same VIN", []Query{{VIN: accord, ModelYear: 2003}, {VIN: accord}, {VIN: accord, ModelYear: 2003}}, envelope(flat(accord, nil)),
			[]string{ok, "the same VIN with another model year in one batch", ok}},
		{"no VIN among them", []Query{{VIN: accord}, {VIN: "1HG;DROP"}, {}}, envelope(flat(accord, nil)),
			[]string{ok, "a character at position 4 that no VIN contains", "a VIN of 0 characters"}},
		{"an extended one among them", []Query{{VIN: accord}, {VIN: pickup, Extended: true}}, envelope(flat(accord, nil)), []string{ok, "an extended decode in a batch"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, asJSON(c.body), func(t *testing.T, client *Client, calls *atomic.Int32) {
				b, err := client.DecodeBatch(t.Context(), c.qs)
				if err != nil || len(b.Items) != len(c.qs) || calls.Load() != 1 {
					t.Fatalf("%d items, %d calls, %v", len(b.Items), calls.Load(), err)
				}
				for i, item := range b.Items {
					if item.Query() != c.qs[i] {
						t.Errorf("item %d is for %+v", i, item.Query())
					}
					if c.want[i] == ok {
						if item.Err != nil || item.Outcome() != Clean || !sameVIN(item.Fields()["VIN"], item.Query().VIN) || item.Row() == nil {
							t.Errorf("item %d: %+v", i, item)
						}
						continue
					}
					e := mustFail(t, item.Err)
					if e.Reason != c.want[i] || e.Started != (e.Kind == BadResponse) {
						t.Errorf("item %d: %#v, want %q", i, e, c.want[i])
					}
					if item.Fields() != nil || item.Row() != nil || item.Outcome() != "" {
						t.Errorf("item %d brings a vehicle: %+v", i, item)
					}
				}
			})
		})
	}
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func TestWholeBatchesThatBringNothing(t *testing.T) {
	two := []Query{{VIN: accord}, {VIN: pickup}}
	for _, c := range []struct {
		name   string
		qs     []Query
		answer http.HandlerFunc
		kind   Kind
		calls  int32
	}{
		{"no VIN", nil, asJSON(envelope()), BadQuery, 0},
		{"51 VINs", make([]Query, 51), asJSON(envelope()), BadQuery, 0},
		{"nothing that is a VIN", []Query{{VIN: "?"}, {VIN: "&format=xml"}}, asJSON(envelope()), BadQuery, 0},
		{"no row at all", two, asJSON(envelope()), BadResponse, 1},
		{"an ERROR message", two, asJSON(envelopeWith("ERROR: "+canary, flat(accord, nil))), BadResponse, 1},
		{"not JSON", two, asJSON([]byte(canary)), BadResponse, 1},
		{"an error page", two, with(503, "text/html", page), Unavailable, 1},
		{"429", two, with(429, "text/html", page, "Retry-After", "3"), Throttled, 1},
		{"403", two, with(403, "text/html", page), Throttled, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, c.answer, func(t *testing.T, client *Client, calls *atomic.Int32) {
				b, err := client.DecodeBatch(t.Context(), c.qs)
				if e := mustFail(t, err); e.Kind != c.kind || e.Started != (c.calls > 0) || b.Items != nil {
					t.Errorf("%#v, items %+v", e, b.Items)
				}
				if calls.Load() != c.calls {
					t.Errorf("%d calls, want %d", calls.Load(), c.calls)
				}
			})
		})
	}
}

func TestAFormSaysExactlyWhatWasAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vins := rapid.SliceOfNDistinct(rapid.StringMatching(`[0-9A-Z*]{1,17}`), 1, MaxBatch, rapid.ID).Draw(t, "vins")
		qs := make([]Query, len(vins))
		var entries []string
		for i, vin := range vins {
			qs[i] = Query{VIN: vin, ModelYear: rapid.IntRange(0, 2040).Draw(t, "year")}
			if entries = append(entries, vin); qs[i].ModelYear != 0 {
				entries[i] = fmt.Sprintf("%s,%d", vin, qs[i].ModelYear)
			}
		}
		form, items, e := planBatch(qs)
		if e != nil || len(items) != len(qs) {
			t.Fatalf("%d items, %v", len(items), e)
		}
		v, err := url.ParseQuery(form)
		if err != nil || v.Get("format") != "json" || v.Get("DATA") != strings.Join(entries, ";") || len(v) != 2 {
			t.Fatalf("form %q reads as %v, %v", form, v, err)
		}
	})
}

func TestEveryRowReachesItsOwnQuery(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		asked := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 12).Draw(t, "asked")
		sent := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 12).Draw(t, "sent")
		vin := func(n int) string { return fmt.Sprintf("1HGCM82633A00000%d", n) }
		qs := make([]Query, len(asked))
		for i, n := range asked {
			qs[i] = Query{VIN: vin(n)}
		}
		there := make(map[int]bool)
		rows := make([]json.RawMessage, len(sent))
		for i, n := range sent {
			there[n] = true
			rows[i] = mustJSON(flat(vin(n), row{"Model": vin(n)}))
		}
		_, items, e := planBatch(qs)
		if e != nil {
			t.Fatal(e)
		}
		matchRows(items, rows, reply{})
		for i, n := range asked {
			var bad *Error
			switch {
			case there[n] && (items[i].Err != nil || items[i].Model() != vin(n)):
				t.Fatalf("item %d: model %q, %v", i, items[i].Model(), items[i].Err)
			case !there[n] && (!errors.As(items[i].Err, &bad) || bad.Kind != BadResponse || items[i].Fields() != nil):
				t.Fatalf("item %d was never sent and has %+v", i, items[i])
			}
		}
	})
}

func TestCapturedBatch(t *testing.T) {
	body := readFile(t, filepath.Join(samples(t), "05-batch-2-codes-6-and-5_6_14.json"))
	inBubble(t, asJSON(body), func(t *testing.T, client *Client, _ *atomic.Int32) {
		b, err := client.DecodeBatch(t.Context(), []Query{{VIN: "5YJSA3DS*EF"}, {VIN: suv, ModelYear: 2011}})
		if err != nil {
			t.Fatal(err)
		}
		tesla, bmw := b.Items[0], b.Items[1]
		if tesla.Make() != "TESLA" || tesla.Outcome() != Partial || len(tesla.Codes()) != 3 || tesla.SuggestedVIN() != "5YJSA3D!*EF!" || tesla.Messages()[1] != "Incomplete VIN" {
			t.Errorf("%+v", tesla.Decoding())
		}
		if bmw.Make() != "BMW" || bmw.Model() != "X3" || bmw.ModelYear() != 2011 || bmw.Outcome() != Partial {
			t.Errorf("%+v", bmw.Decoding())
		}
	})
}

// Public reports; each names a kind of fault.

func TestVpicAPI_8_ABatchInXMLIsABadResponse(t *testing.T) {
	for _, contentType := range []string{"application/xml; charset=utf-8", "application/json"} {
		answer := func(w http.ResponseWriter, r *http.Request) {
			if r.FormValue("format") != "json" || r.URL.RawQuery != "" {
				t.Errorf("the format must be in the body: %q, query %q", r.PostForm, r.URL.RawQuery)
			}
			with(200, contentType, "<Response>"+canary+"</Response>")(w, r)
		}
		inBubble(t, answer, func(t *testing.T, client *Client, _ *atomic.Int32) {
			_, err := client.DecodeBatch(t.Context(), []Query{{VIN: accord}})
			if e := mustFail(t, err); e.Kind != BadResponse || e.Status != 200 {
				t.Errorf("%#v", e)
			}
		})
	}
}

func TestVpicAPI_9_BadJSONIsAnErrorAnd51AreRefusedBeforeAnyCall(t *testing.T) {
	many := make([]Query, 51)
	for i := range many {
		many[i].VIN = fmt.Sprintf("1HGCM82633A0%05d", i)
	}
	inBubble(t, asJSON([]byte(`{"Results":[{"VIN":`)), func(t *testing.T, client *Client, calls *atomic.Int32) {
		_, err := client.DecodeBatch(t.Context(), many)
		if e := mustFail(t, err); e.Kind != BadQuery || calls.Load() != 0 {
			t.Errorf("51 VINs: %v, %d calls", e, calls.Load())
		}
		_, err = client.DecodeBatch(t.Context(), many[:50])
		if e := mustFail(t, err); e.Kind != BadResponse || calls.Load() != 1 {
			t.Errorf("bad JSON: %v, %d calls", e, calls.Load())
		}
	})
}

func FuzzReadBatch(f *testing.F) {
	f.Add(envelope(flat(accord, nil), flat(pickup, nil)))
	f.Add(envelope(flat(accord, nil), flat(accord, row{"Model": "Civic"})))
	f.Add([]byte(`{"Results":[null,1,"x",[],{},{"VIN":1},{"vin":"` + accord + `"},{"VIN":"` + accord + `","Make":[]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		b, err := ReadBatch(body, []Query{{VIN: accord}, {VIN: pickup}})
		if err != nil {
			if e := (*Error)(nil); !errors.As(err, &e) || e.Kind != BadResponse || !slices.Contains(reasons, e.Reason) || b.Items != nil {
				t.Fatalf("%#v, %+v", err, b)
			}
			return
		}
		for _, item := range b.Items {
			if item.Err == nil && !sameVIN(item.Fields()["VIN"], item.Query().VIN) {
				t.Fatalf("%s got the row of %q", item.Query().VIN, item.Fields()["VIN"])
			}
			if item.Err != nil && (item.Fields() != nil || item.Row() != nil) {
				t.Fatalf("a refused item brings %+v", item)
			}
		}
	})
}
