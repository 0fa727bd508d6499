// Package page renders the web page: the whole page for a first paint or without script, and the part of it that answers one
// lookup, for the page's own script. Both come from the same templates, so that no second program knows how an answer is shown.
//
// It promises that what stands on a page about a vehicle came out of a decode.Result, and that what is rendered for a
// refusal takes nothing else than the refusal and what the caller typed. It is pure: no clock, no I/O, no HTTP.
//
// A page is one response: its style stands in it, and the policy of Policy allows that one style by its hash and nothing
// else inline. Script and icon are files under Assets, named after their content.
package page

import (
	"bytes"
	"embed"
	"html/template"
	"net/url"
	"strings"
	"sync"

	"vingate/internal/gate"
)

//go:embed templates
var templateFiles embed.FS

// templates are read for the first page: an instance that only answers programs starts without them.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.ParseFS(templateFiles, "templates/*.html"))
})

// Lookup is what somebody typed, as it came.
type Lookup struct {
	VIN       string
	ModelYear string // "" for none
}

// link is the page that answers the lookup.
func (l Lookup) link() string {
	q := url.Values{"vin": {l.VIN}}
	if l.ModelYear != "" {
		q.Set("modelYear", l.ModelYear)
	}
	return "/?" + q.Encode()
}

// Content is what a page shows beside what stands on it always. Answer and Refusal exclude each other; both may be nil.
type Content struct {
	Lookup  Lookup
	Answer  *Answer
	Refusal *Refusal
	Budget  *gate.View // nil where it could not be read
	Version string
}

// Render gives the whole page.
func Render(c Content) []byte {
	title := "vingate: decode a VIN"
	switch {
	case c.Answer != nil:
		title = c.Answer.Headline + " – vingate"
	case c.Refusal != nil:
		title = c.Refusal.State.Words + " – vingate"
	}
	return render("page.html", struct {
		Content
		Title           string
		Style           template.CSS
		Icon, Core, App string
		Wrong           bool
		Ruler           []float64
		Budget          budget
		States          []State
		Waiting, Lost   State
	}{
		Content: c, Title: title, Style: style, Icon: icon.path(), Core: core.path(), App: app.path(),
		Wrong: c.Refusal != nil && c.Refusal.Wrong, Ruler: ruler(), Budget: budgetOf(c.Budget),
		States: states(), Waiting: waiting, Lost: lost,
	})
}

// Part gives the part of a page that answers one lookup. The content's budget and version play no role.
func Part(c Content) []byte {
	if c.Refusal != nil {
		return render("refusal", c.Refusal)
	}
	return render("answer", c.Answer)
}

// render runs a template over our own types, which cannot fail: a test renders all of it.
func render(name string, data any) []byte {
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, name, data); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// ruler gives where the 17 marks under the field begin, in a box 170 wide.
func ruler() []float64 {
	marks := make([]float64, 17)
	for i := range marks {
		marks[i] = float64(10*i) + 0.8
	}
	return marks
}

// tidy is a text as it is compared with a VIN: upper case, without blanks and dashes.
func tidy(s string) string {
	return strings.ToUpper(strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\r\n-", r) {
			return -1
		}
		return r
	}, s))
}
