package edge

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"vingate/internal/decode"
	"vingate/internal/vpic"
)

// Public reports about systems that do a part of this job, each a kind of fault, from the caller to NHTSA and back: the
// HTTP surface, the real lanes and NHTSA's real client, before a server that answers as NHTSA was seen to.

// nhtsaServer answers the calls it is asked and remembers them.
type nhtsaServer struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // method, path, query and form
}

func (n *nhtsaServer) calls() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

// facing makes an edge in front of a server in NHTSA's place.
func facing(t *testing.T, answer http.HandlerFunc) (*edgeOf, *nhtsaServer) {
	t.Helper()
	n := &nhtsaServer{}
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		n.mu.Lock()
		n.asked = append(n.asked, strings.Join(strings.Fields(r.Method+" "+r.URL.Path+" "+r.URL.RawQuery+" "+string(body)), " "))
		n.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(n.Close)
	client, err := vpic.New(vpic.Config{BaseURL: n.URL + "/api", Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return play(t, client), n
}

// says answers every call with the same.
func says(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// decodes answers a call for one VIN with a row for it.
func decodes(changes map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		vin := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		one := row(changes)
		one["VIN"] = vin
		says(200, "application/json; charset=utf-8", string(envelope("VIN(s): "+vin, one)))(w, r)
	}
}

// shown is what the tests look at of an answer or a problem.
type shown struct {
	VIN, Submitted, Make, Model, Outcome, Sentence string
	ModelYear                                      *int
	Codes                                          []int
	Remarks                                        []string
	SuggestedVIN                                   string
	Fields                                         map[string]string
	Numbers                                        map[string]*float64
	Advice                                         []advice
	Code, Suggestion, Detail                       string
	Position                                       int
	Results                                        []struct {
		VIN     string
		Status  int
		Answer  *shown
		Problem *shown
	}
}

func (e *edgeOf) see(t *testing.T, r httpRequest) (int, shown) {
	t.Helper()
	res := e.do(t, r)
	var s shown
	if err := json.Unmarshal([]byte(res.Body), &s); err != nil {
		t.Fatalf("%v in %s", err, res.Body)
	}
	return res.StatusCode, s
}

func get(vin string) httpRequest { return httpRequest{path: "/v1/vins/" + vin} }

func TestVpicAPI_8_ABatchThatComesBackAsXMLIsABadResponse(t *testing.T) {
	for _, contentType := range []string{"application/xml; charset=utf-8", "application/json; charset=utf-8"} {
		e, n := facing(t, says(200, contentType, `<Response><Count>1</Count><Results><DecodedVINValues><Make>UPSTREAM-TEXT</Make></DecodedVINValues></Results></Response>`))
		res := e.do(t, list(`{"vins":["`+accord+`","`+pickup+`"]}`))
		if strings.Contains(res.Body, "UPSTREAM-TEXT") || strings.Contains(res.Body, "<") || strings.Count(res.Body, string(decode.UpstreamBadResponse)) == 0 {
			t.Errorf("as %s: %d %s", contentType, res.StatusCode, res.Body)
		}
		if got := n.calls(); len(got) != 1 || got[0] != "POST /api/DecodeVINValuesBatch/ DATA="+accord+"%3B"+pickup+"&format=json" {
			t.Errorf("asked %q, want the format in the body", got)
		}
	}
}

func TestVpicAPI_9_EachVINHasItsOutcomeAnd51AreRefusedUnspent(t *testing.T) {
	e, n := facing(t, func(w http.ResponseWriter, r *http.Request) {
		good, bad := row(map[string]string{"VIN": accord}), row(map[string]string{"VIN": pickup, "ErrorCode": ""})
		says(200, "application/json", string(envelope("", good, bad)))(w, r)
	})
	status, all := e.see(t, list(`{"vins":["`+accord+`","`+pickup+`","1HGCM82633A00435O","JM1GC3111FU937813"]}`))
	var got []string
	for _, one := range all.Results {
		switch {
		case one.Answer != nil:
			got = append(got, fmt.Sprint(one.Status, " ", one.Answer.Make))
		case one.Problem != nil:
			got = append(got, fmt.Sprint(one.Status, " ", one.Problem.Code, one.Problem.Make))
		}
	}
	if want := "200 HONDA, 502 UPSTREAM_BAD_RESPONSE, 400 VIN_INVALID, 502 UPSTREAM_BAD_RESPONSE"; status != 200 || strings.Join(got, ", ") != want {
		t.Errorf("%d: %s, want %s", status, strings.Join(got, ", "), want)
	}
	spent, calls := e.spent, len(n.calls())
	status, refused := e.see(t, list(`{"vins":["`+strings.Repeat(accord+`","`, 50)+accord+`"]}`))
	if status != 413 || refused.Code != string(decode.BatchTooLarge) || e.spent != spent || len(n.calls()) != calls {
		t.Errorf("51 VINs: %d %s, %d tokens, %d calls", status, refused.Code, e.spent-spent, len(n.calls())-calls)
	}

	e, _ = facing(t, says(200, "application/json", `{"Count":2,"Results":[{"VIN":"1HGCM8`))
	if res := e.do(t, list(`{"vins":["`+accord+`","`+pickup+`"]}`)); strings.Count(res.Body, string(decode.UpstreamBadResponse)) == 0 || strings.Contains(res.Body, "HONDA") {
		t.Errorf("bad JSON: %d %s", res.StatusCode, res.Body)
	}
}

// checkDigits are VINs that a check digit of their own would refuse.
func checkDigits(t *testing.T, vin string, changes map[string]string) {
	t.Helper()
	e, n := facing(t, decodes(changes))
	status, s := e.see(t, get(vin))
	if status != 200 || s.VIN != vin || s.Make != "HONDA" || s.SuggestedVIN != changes["SuggestedVIN"] || len(n.calls()) != 1 {
		t.Errorf("%s: %d, %+v after %d calls", vin, status, s, len(n.calls()))
	}
	if len(s.Advice) != 1 || s.Advice[0].Code != "check-digit" || s.Advice[0].Position != 9 {
		t.Errorf("%s: advice %+v", vin, s.Advice)
	}
}

func TestPyvin_8_AWrongCheckDigitIsDecodedAndNHTSAsSuggestionPassedOn(t *testing.T) {
	checkDigits(t, "1FBNE3BE1CDB23596", map[string]string{"ErrorCode": "1,3", "SuggestedVIN": "1FBNE3BE1CDB23591"})
}

func TestVininfo_23_AEuropeanLetterAsCheckDigitIsDecoded(t *testing.T) {
	checkDigits(t, "WVWZZZ1KZAW000001", map[string]string{"ErrorCode": "1"})
}

func TestCorgi_26_ARealVINWithAWrongCheckDigitIsDecoded(t *testing.T) {
	checkDigits(t, "ZACCJABT0FPB71014", map[string]string{"ErrorCode": "0", "ErrorText": "0 - VIN decoded clean. NOTE: Check Digit Exception"})
}

func TestPelican_37_CodesAreSaidInWordsAndWhatIsKnownIsShown(t *testing.T) {
	e, _ := facing(t, decodes(map[string]string{"ErrorCode": "1; 8; 400", "ErrorText": "1; 8; 400", "Model": ""}))
	status, s := e.see(t, get(accord))
	if status != 200 || s.Outcome != "partial" || s.Make != "HONDA" || s.ModelYear == nil || *s.ModelYear != 2003 || len(s.Codes) != 3 || len(s.Remarks) != 3 {
		t.Errorf("%d, %+v", status, s)
	}
	for _, says := range append(s.Remarks, s.Sentence) {
		if strings.Contains(says, "400") || strings.Contains(says, ";") || strings.Count(says, " ") < 4 || !strings.HasSuffix(says, ".") {
			t.Errorf("%q is no plain sentence", says)
		}
	}
}

func TestPelican_69_NoByteOfAnErrorPageLeaves(t *testing.T) {
	const page = "<html><head><title>504 UPSTREAM-TEXT</title></head><body>The page you requested took too long. Ref 18.5f3a UPSTREAM-TEXT</body></html>"
	for _, status := range []int{200, 302, 400, 403, 404, 429, 500, 503, 504} {
		for name, r := range map[string]httpRequest{
			"one VIN": get(accord), "a list": list(`{"vins":["` + accord + `","` + pickup + `"]}`),
			"NHTSA's call": {path: "/api/vehicles/DecodeVinValues/" + accord, query: "format=json"}, "NHTSA's batch": form("DATA=" + accord + ";" + pickup + "&format=json"),
		} {
			e, n := facing(t, says(status, "text/html", page))
			res := e.do(t, r)
			if len(n.calls()) != 1 {
				t.Fatalf("%s: %d calls", name, len(n.calls()))
			}
			if strings.Contains(res.String(), "UPSTREAM-TEXT") || strings.Contains(res.Body, "18.5f3a") || strings.Contains(res.Body, "<html") || !json.Valid([]byte(res.Body)) {
				t.Errorf("%s, NHTSA answers %d: %s", name, status, res)
			}
			if strings.Contains(res.Body, "HONDA") || !strings.Contains(res.Body, "UPSTREAM_") {
				t.Errorf("%s, NHTSA answers %d: %s", name, status, res.Body)
			}
			if strings.Contains(e.log.String(), "UPSTREAM-TEXT") {
				t.Errorf("%s: the log repeats the page", name)
			}
		}
	}
}

func TestJ1939_84_964_TheRemainderTenIsX(t *testing.T) {
	e, _ := facing(t, decodes(nil))
	if status, s := e.see(t, get("1M8GDM9AXKP042788")); status != 200 || len(s.Advice) != 0 {
		t.Errorf("X is right: %d, advice %+v", status, s.Advice)
	}
	if status, s := e.see(t, get("1M8GDM9A1KP042788")); status != 200 || len(s.Advice) != 1 || !strings.Contains(s.Advice[0].Message, "is X") {
		t.Errorf("1 is wrong: %d, advice %+v", status, s.Advice)
	}
}

func TestOnStarJS_57_LowerCaseDecodes(t *testing.T) {
	e, n := facing(t, decodes(nil))
	status, s := e.see(t, get("1hgcm82633a004352"))
	if status != 200 || s.VIN != accord || s.Submitted != "1hgcm82633a004352" || s.Make != "HONDA" {
		t.Errorf("%d, %+v", status, s)
	}
	if got := n.calls(); len(got) != 1 || got[0] != "GET /api/DecodeVinValues/"+accord+" format=json" {
		t.Errorf("asked %q", got)
	}
}

func TestAvniServer_908_WhatCopyingAddsIsStripped(t *testing.T) {
	typed := []string{"\uFEFF" + accord, "\uFEFF\\\"" + accord + "\\\"", " " + accord + "\\t\\r\\n", "1HGCM-82633-A004352", "1HG CM826 33A 004352", "\u200B" + accord, accord + "\u00A0",
		"\u2018" + accord + "\u2019", "１ＨＧＣＭ８２６３３Ａ００４３５２"}
	e, n := facing(t, func(w http.ResponseWriter, r *http.Request) {
		says(200, "application/json", string(envelope("", row(nil))))(w, r)
	})
	status, all := e.see(t, list(`{"vins":["`+strings.Join(typed, `","`)+`"]}`))
	if status != 200 || len(all.Results) != len(typed) {
		t.Fatalf("%d, %+v", status, all)
	}
	for i, one := range all.Results {
		if one.Answer == nil || one.Answer.VIN != accord || one.Answer.Make != "HONDA" {
			t.Errorf("%q: %+v", typed[i], one)
		}
	}
	if got := n.calls(); len(got) != 1 || !strings.Contains(got[0], "DATA="+accord+"&") {
		t.Errorf("asked %q, want the VIN once", got)
	}
}

func TestSmsMobilePortable_10_ALeadingIIsRefusedWithTheVINBehindIt(t *testing.T) {
	e, n := facing(t, decodes(nil))
	status, s := e.see(t, get("I"+accord))
	if status != 400 || s.Code != string(decode.VINInvalid) || s.Suggestion != accord || s.Position != 1 || s.Make != "" || len(n.calls()) != 0 || e.spent != 0 {
		t.Errorf("%d, %+v, %d calls, %d tokens", status, s, len(n.calls()), e.spent)
	}
}

// The decade is NHTSA's to choose, and the caller's to say: it is passed on, and each is an answer of its own.
func passesOn(t *testing.T, vin string, wrong, right int) {
	t.Helper()
	e, n := facing(t, func(w http.ResponseWriter, r *http.Request) {
		year := r.FormValue("modelyear")
		if year == "" {
			year = fmt.Sprint(wrong) // NHTSA's choice
		}
		decodes(map[string]string{"ModelYear": year})(w, r)
	})
	for _, c := range []struct {
		query string
		year  int
		calls int
	}{
		{"", wrong, 1},
		{fmt.Sprintf("modelYear=%d", right), right, 2},
		{"", wrong, 2},
		{fmt.Sprintf("modelYear=%d", right), right, 2},
		{fmt.Sprintf("modelYear=%d", wrong), wrong, 3},
	} {
		status, s := e.see(t, httpRequest{path: "/v1/vins/" + vin, query: c.query})
		if status != 200 || s.ModelYear == nil || *s.ModelYear != c.year || len(n.calls()) != c.calls {
			t.Errorf("%s?%s: %d, year %v, %d calls; want %d after %d", vin, c.query, status, s.ModelYear, len(n.calls()), c.year, c.calls)
		}
	}
	if got := n.calls(); !strings.HasSuffix(got[1], fmt.Sprintf("modelyear=%d", right)) || strings.Contains(got[0], "modelyear") {
		t.Errorf("asked %q", got)
	}
}

func TestCorgi_16_TheModelYearDecidesTheDecade(t *testing.T) {
	passesOn(t, pickup, 1991, 2021)
}

func TestCorgi_35_ABusOf2016IsAskedForAs2016(t *testing.T) {
	passesOn(t, "4UZABRDT0GCHA0001", 1986, 2016)
}

func TestVinliAndroidNet_77_AnErrorTextInANumbersPlaceIsNull(t *testing.T) {
	e, _ := facing(t, decodes(map[string]string{"ModelYear": "5 - VIN has errors in few positions", "Doors": "Not Applicable", "EngineCylinders": "TBD", "EngineHP": "240", "ErrorCode": "5"}))
	status, s := e.see(t, get(accord))
	null := func(key string) bool { n, there := s.Numbers[key]; return there && n == nil }
	if status != 200 || s.ModelYear != nil || !null("ModelYear") || !null("Doors") || !null("EngineCylinders") || s.Numbers["EngineHP"] == nil || *s.Numbers["EngineHP"] != 240 {
		t.Errorf("%d, year %v, numbers %v", status, s.ModelYear, s.Numbers)
	}
	if s.Fields["ModelYear"] != "5 - VIN has errors in few positions" || s.Fields["EngineCylinders"] != "TBD" || s.Outcome != "partial" {
		t.Errorf("%s, fields %q: want NHTSA's own words", s.Outcome, s.Fields)
	}
}
