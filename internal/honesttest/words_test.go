package honesttest

import (
	"go/ast"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// offers are words by which a text would put something in the place of NHTSA's answer, each with the reason.
var offers = []struct{ word, why string }{
	{`typical(ly)?`, "a vehicle of the kind is not this vehicle"},
	{`usual(ly)?|normally|commonly|generally|in general|on average`, "what most have, this one may not"},
	{`siblings?|similar|related|comparable|neighbou?r(ing)?`, "another VIN's answer is not this VIN's"},
	{`same (make|model|car|vehicle|trim|series)`, "another VIN's answer is not this VIN's"},
	{`closest|nearest|best match|match(es)? best`, "near is not it"},
	{`guess(es|ed)?|estimate[sd]?|approximate(ly|d)?|presumabl[ey]|presumed|assum(e|es|ed|ing)|infer(red|s)?|deduced?`, "nothing about a vehicle is worked out here"},
	{`probabl[ey]|likely`, "nothing about a vehicle is worked out here"},
	{`placeholder|dummy|sample data|filler`, "an empty place stays empty"},
	{`instead of NHTSA|without NHTSA|offline`, "no answer comes from elsewhere"},
	{`previous (model )?year|older year|last year's`, "another year's answer is not this year's"},
}

var offer = func() *regexp.Regexp {
	var all []string
	for _, o := range offers {
		all = append(all, o.word)
	}
	return regexp.MustCompile(`(?i)\b(` + strings.Join(all, "|") + `)\b`)
}()

// vehicle are words that say what a sentence is about.
var vehicle = regexp.MustCompile(`(?i)\b(vehicles?|cars?|trucks?|motorcycles?|bus(es)?|trailers?|makes?|models?|trims?|engines?|VINs?|decod(e[sd]?|ing)|years?|doors?|makers?|manufacturers?)\b`)

var sentenceEnd = regexp.MustCompile(`[.!?:;]\s+|\n\s*\n|\n\s*[-#|]`)

// sentences of a text, blanks made one.
func sentences(text string) []string {
	var list []string
	for _, s := range sentenceEnd.Split(text, -1) {
		if s = strings.Join(strings.Fields(s), " "); s != "" {
			list = append(list, s)
		}
	}
	return list
}

func offered(text string) []string {
	var found []string
	for _, s := range sentences(text) {
		if vehicle.MatchString(s) && offer.MatchString(s) {
			found = append(found, s)
		}
	}
	return found
}

// allowed are sentences that have such a word and offer nothing, each with the reason. One that no text has any more is an error.
var allowed = map[string]string{
	"3 - VIN corrected, error in one position (assuming Check Digit is correct)": "NHTSA's text of a code, in the stand-in",
}

func TestNoTextOffersSomethingInThePlaceOfNHTSAsAnswer(t *testing.T) {
	used := map[string]bool{}
	looked := 0
	look := func(name, text string) {
		looked++
		for _, o := range offered(text) {
			excuse := ""
			for sentence := range allowed {
				if strings.Contains(o, sentence) {
					excuse = sentence
				}
			}
			if used[excuse] = true; excuse == "" {
				t.Errorf("%s: %q: %s", name, o, why(o))
			}
		}
	}
	for _, s := range goFiles(t, func(string) bool { return false }) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok {
				if text, ok := literal(lit); ok {
					look(s.path, text)
				}
			}
			return true
		})
	}
	walk(t, func(path, name string) {
		switch filepath.Ext(name) {
		case ".html", ".tmpl", ".js", ".mjs":
			text := ofPage(filepath.Ext(name), read(t, path))
			if m := makes.FindString(text); m != "" {
				t.Errorf("%s names a make: %s", name, m)
			}
			look(name, text)
		case ".md", ".yaml", ".json", ".svg", ".toml", ".css":
			look(name, read(t, path))
		}
	})
	for sentence := range allowed {
		if !used[sentence] {
			t.Errorf("no text has %q any more", sentence)
		}
	}
	if looked < 1000 {
		t.Errorf("only %d texts were looked at", looked)
	}
}

func TestWordCheckCanFail(t *testing.T) {
	for _, bad := range []string{
		"NHTSA is busy. Vehicles of this kind typically have four doors.",
		"A similar VIN was decoded as a Civic.",
		"Showing the answer for the nearest model year until NHTSA answers.",
		"Most likely a 2003\n  Accord: its engine is usually the J30A4.",
		"This is probably a pickup truck; try again in 5 seconds.",
		"Decoded offline while NHTSA cannot be reached.",
		"An estimate of the engine's power.",
		"| Trim | assumed |",
		"The same model has six cylinders.",
		"The VIN's sibling is known.",
	} {
		if len(offered(bad)) == 0 {
			t.Errorf("nothing is found in %q", bad)
		}
	}
	for kind, bad := range map[string]string{
		".html": "<p>It is {{.Word}} <b>probably</b>&nbsp;</p><p>Engines are usually of six cylinders",
		".mjs":  "say(`a similar\n vehicle`) // as is usual for a car",
	} {
		if found := offered(ofPage(kind, bad)); len(found) != 1 {
			t.Errorf("%s: %q is found in %q", kind, found, bad)
		}
	}
	for _, good := range []string{
		"NHTSA decoded this VIN without complaint. It may be mistyped.",
		"Position 9 is 0: one of them may be mistyped. VINs made for markets outside North America often have no check digit.",
		"A call usually takes 400 ms. The VIN is sent once.",
		"Nothing about this vehicle is shown.",
	} {
		if found := offered(good); len(found) > 0 {
			t.Errorf("%q is found in %q", found, good)
		}
	}
}

// why is the reason for the first such word of a sentence.
func why(sentence string) string {
	for _, o := range offers {
		if regexp.MustCompile(`(?i)\b(` + o.word + `)\b`).MatchString(sentence) {
			return o.why
		}
	}
	return ""
}

var (
	markup  = regexp.MustCompile(`(?s)<!--.*?-->|<[^>]*>|\{\{.*?\}\}`)
	comment = regexp.MustCompile(`(?s)/\*.*?\*/|(^|\s)//[^\n]*`)
	quoted  = regexp.MustCompile("'[^'\n]*'|\"[^\"\n]*\"|(?s)`[^`]*`")
)

// ofPage is what a person may come to read of a page or a script. An attribute's text is not looked at.
func ofPage(kind, text string) string {
	if kind == ".html" || kind == ".tmpl" {
		return html.UnescapeString(markup.ReplaceAllString(text, ". "))
	}
	return strings.Join(quoted.FindAllString(comment.ReplaceAllString(text, " "), -1), ". ")
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
