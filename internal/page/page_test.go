package page

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"vingate/internal/decode"
	"vingate/internal/gate"
	"vingate/internal/results"
	"vingate/internal/vin"
	"vingate/internal/vpic"
)

// answered is a decode of NHTSA's row with these fields.
func answered(t *testing.T, typed string, fields map[string]string) decode.Result {
	t.Helper()
	v, err := vin.Parse(typed)
	if err != nil {
		t.Fatal(err)
	}
	row := map[string]string{"VIN": v.Value, "ErrorCode": "0", "ErrorText": "0 - VIN decoded clean. Check Digit (9th position) is correct"}
	for key, value := range fields {
		row[key] = value
	}
	var parts []string
	for key, value := range row {
		parts = append(parts, fmt.Sprintf("%q:%q", key, value))
	}
	slices.Sort(parts)
	body := fmt.Sprintf(`{"Count":1,"Message":"Results returned successfully","SearchCriteria":"VIN(s): %s","Results":[{%s}]}`, v.Value, strings.Join(parts, ","))
	a, err := vpic.Read([]byte(body), vpic.Query{VIN: v.Value})
	if err != nil {
		t.Fatal(err)
	}
	a.FetchedAt = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	return decode.Result{VIN: v, Source: decode.FromCache, Age: 90 * time.Second, Stored: results.Stored{Answer: a, FreshFor: time.Hour, Life: 24 * time.Hour}}
}

var accord = map[string]string{"Make": "HONDA", "Model": "Accord", "ModelYear": "2003", "Trim": "EX-V6", "BodyClass": "Coupe", "Doors": "2", "TrailerType": "Not Applicable", "Series": ""}

func with(base map[string]string, more ...string) map[string]string {
	m := map[string]string{}
	for k, v := range base {
		m[k] = v
	}
	for i := 0; i < len(more); i += 2 {
		m[more[i]] = more[i+1]
	}
	return m
}

var lookup = Lookup{VIN: "1HGCM82633A004352"}

func TestAnswersShowNHTSAsWordsAndNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		fields   map[string]string
		headline string
		state    string
		shows    []string
		hides    []string
	}{
		"clean": {accord, "2003 HONDA Accord", "Clean",
			[]string{"EX-V6 · Coupe", "9 of 154 reported", "not applicable to this type", "stored here: 90 seconds ago", "does not mean that the vehicle lacks it"}, []string{"Decode this instead", "NHTSA remarks", "is stale"}},
		"with warnings": {with(accord, "ErrorCode", "1,400", "ErrorText", "1 - Check Digit (9th position) does not calculate properly; 400 - Invalid Characters Present", "SuggestedVIN", "1HGCM82633A004353"), "2003 HONDA Accord", "With warnings",
			[]string{"NHTSA remarks", "check digit", "Decode this instead", "/?vin=1HGCM82633A004353"}, []string{"1; 400"}},
		"partial": {map[string]string{"Make": "HONDA", "ErrorCode": "8", "ErrorText": "8 - No detailed data available currently"}, "HONDA", "Partial", []string{"no details"}, []string{"Accord"}},
		"unknown": {map[string]string{"ErrorCode": "7", "ErrorText": "7 - Manufacturer is not registered with NHTSA for sale or importation in the U.S. for use on U.S roads; Please contact the manufacturer directly for more information"}, "NHTSA has nothing on this VIN", "Not in NHTSA’s data", []string{"does not know the maker"}, []string{"HONDA"}},
		"a doubted position": {with(accord, "ErrorCode", "5", "ErrorText", "5 - VIN has errors in few positions", "SuggestedVIN", "1HG!M82633A004352", "PossibleValues", "(4:CG)"), "2003 HONDA Accord", "With warnings",
			[]string{"Position 4, C", "one of C, G"}, []string{"Decode this instead"}},
		"markup in NHTSA's data": {with(accord, "Trim", "<script>alert(1)</script>"), "2003 HONDA Accord", "Clean", []string{"&lt;script&gt;alert(1)"}, []string{"<script>alert"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := Answered(answered(t, lookup.VIN, c.fields), lookup)
			if a.Headline != c.headline || a.State.Words != c.state {
				t.Errorf("%q, %q", a.Headline, a.State.Words)
			}
			html := string(Render(Content{Lookup: lookup, Answer: a, Version: "1"}))
			for _, s := range c.shows {
				if !strings.Contains(html, s) {
					t.Errorf("%q is not shown", s)
				}
			}
			for _, s := range c.hides {
				if strings.Contains(html, s) {
					t.Errorf("%q is shown", s)
				}
			}
			if !bytes.Contains(Render(Content{Lookup: lookup, Answer: a}), bytes.TrimSpace(Part(Content{Answer: a}))) {
				t.Error("the part is not the page's")
			}
		})
	}
}

// A stale answer says so, and why there is no newer one where something came between.
func TestAStaleAnswerSaysWhyItWasNotRefreshed(t *testing.T) {
	for trouble, want := range map[decode.Code]string{
		"":                       "It is stale: a newer one is asked for when there is a free place.",
		decode.NotStored:         "It is stale: a newer one is asked for when there is a free place.",
		decode.UpstreamThrottled: "It is stale, and could not be refreshed just now (NHTSA asks to slow down).",
		decode.QueueFull:         "It is stale, and could not be refreshed just now (Busy: the line is full).",
	} {
		d := answered(t, lookup.VIN, accord)
		d.FreshFor, d.Trouble = time.Minute, trouble
		if html := string(Part(Content{Answer: Answered(d, lookup)})); !strings.Contains(html, want) {
			t.Errorf("%q: %q is not shown in\n%s", trouble, want, html)
		}
	}
}

// Whatever is refused, in whatever scope: the page has its title or words, its sentence and its time, and no place for a vehicle.
func TestRefusalsShowWhyAndUntilWhen(t *testing.T) {
	for _, code := range decode.Codes() {
		for _, scope := range []decode.Scope{"", decode.ScopeTenant, decode.ScopeUpstream} {
			r := &decode.Refusal{Code: code, Scope: scope, Sentence: "This is <why>.", RetryAfter: 75 * time.Second}
			p := Refused(r, lookup)
			html := string(Part(Content{Refusal: p}))
			for _, s := range []string{"This is &lt;why&gt;.", `data-retry="75"`, "75 seconds", p.State.Words, `data-refused="` + string(code) + `"`} {
				if !strings.Contains(html, strings.ReplaceAll(s, "'", "&#39;")) {
					t.Errorf("%s %s: %q is not shown in\n%s", code, scope, s, html)
				}
			}
			if strings.Contains(html, "data-settled") || strings.Contains(html, `class="fields"`) {
				t.Errorf("%s: there is a place for an answer", code)
			}
			if !slices.ContainsFunc(states(), func(s State) bool { return s == p.State || s.Name == string(code) }) {
				t.Errorf("%s: the script does not have its state", code)
			}
		}
	}
	once := Refused(&decode.Refusal{Code: decode.VINInvalid, Sentence: "No.", Position: 3, Character: "O", Suggestion: "1H0CM82633A004352"}, Lookup{VIN: "1ho-cm82633a004352"})
	html := string(Render(Content{Lookup: Lookup{VIN: "1ho-cm82633a004352"}, Refusal: once}))
	for _, s := range []string{"Position 3, O", "Decode this instead", "NHTSA was not asked", `aria-invalid="true"`} {
		if !strings.Contains(html, s) {
			t.Errorf("%q is not shown", s)
		}
	}
	if strings.Contains(string(Part(Content{Refusal: once})), "Try again") {
		t.Error("what cannot succeed is offered to be tried again")
	}
}

func TestTheBudgetIsDrawnAsItIs(t *testing.T) {
	v := &gate.View{Knobs: gate.Knobs{MaxInFlight: 4, RatePerSecond: 2, Burst: 10}, Limit: 2, InFlight: 1, Tokens: 7, Queued: 3, ReadAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	b := budgetOf(v)
	if !slices.Equal(b.Pips, []string{"on", "", "off", "off"}) || b.Level != 7*piece || b.Arc != 10*piece || b.Hold != "" {
		t.Errorf("%+v", b)
	}
	v.Hold, v.HeldFor = gate.HoldThrottled, 20*time.Second
	html := string(Render(Content{Budget: v}))
	for _, s := range []string{decode.HoldSentence(gate.HoldThrottled), "20 seconds", "budget held"} {
		if !strings.Contains(html, s) {
			t.Errorf("%q is not shown", s)
		}
	}
	if html := string(Render(Content{})); !strings.Contains(html, "Not to be read just now") || !strings.Contains(html, "budget unknown") {
		t.Error("a budget that cannot be read is not called so")
	}
}

// The page and all it loads fit into 60 KB, and nothing of it stands inline but the one style its policy names.
func TestThePageIsSmallAndItsPolicyStrict(t *testing.T) {
	var wide = map[string]string{}
	for _, g := range vpic.Groups() {
		for _, f := range g.Fields {
			wide[f.Name] = "x" + f.Name
		}
	}
	full := Render(Content{Lookup: lookup, Answer: Answered(answered(t, lookup.VIN, with(with(wide, "ErrorCode", "0", "VIN", lookup.VIN), "ModelYear", "2003")), lookup), Budget: &gate.View{Knobs: gate.Knobs{MaxInFlight: 4, RatePerSecond: 2, Burst: 10}}})
	size := 0
	for _, body := range [][]byte{full, core.Body, app.Body, icon.Body} {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(body)
		_ = w.Close()
		size += b.Len()
	}
	t.Logf("%d bytes in gzip, %d of HTML before", size, len(full))
	if size >= 60_000 {
		t.Errorf("%d bytes compressed", size)
	}
	for _, bad := range []string{"unsafe", "http:", "*", "data:"} {
		if strings.Contains(Policy, bad) {
			t.Errorf("the policy allows %s: %s", bad, Policy)
		}
	}
	html := string(full)
	if found := regexp.MustCompile(`(?i)\son[a-z]+=|\sstyle=|javascript:|<script(?:[^>]*[^>]*)>[^<]`).FindString(html); found != "" {
		t.Errorf("inline: %q", found)
	}
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(html)
	if style == nil || style[1] != assetText("page.css") {
		t.Error("the style in the page is not the one the policy has the hash of")
	}
	for _, a := range []Asset{core, app, icon} {
		if got, ok := FindAsset(a.Name); !ok || !bytes.Equal(got.Body, a.Body) || !strings.Contains(html+string(app.Body), a.Name) {
			t.Errorf("%s is not served or not used", a.Name)
		}
	}
	if _, ok := FindAsset("page.css"); ok {
		t.Error("found what is none")
	}
}

func assetText(name string) string { return string(assetFile(name)) }
