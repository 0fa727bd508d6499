package edge

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"vingate/internal/gate"
	"vingate/internal/page"
	"vingate/internal/vpic"
)

// pages are lookups on the page. Their parts are kept whole, as *.html; what stands around them is package page's to hold.
var pages = []struct {
	name    string
	arrange func(*testing.T, *edgeOf)
	request httpRequest
	status  int
}{
	{"page-answer", nil, httpRequest{path: "/", query: "vin=1hgcm-82633a004352&modelYear=2003&part=answer"}, 200},
	{"page-answer-stored", stored(26 * time.Hour), httpRequest{path: "/", query: "vin=" + accord + "&modelYear=&part=answer"}, 200},
	{"page-refusal", denied(gate.Refusal{Cause: gate.NoToken, RetryAfter: 2 * time.Second}), httpRequest{path: "/", query: "vin=" + accord + "&part=answer"}, 429},
	{"page-throttled", failing(vpic.Error{Kind: vpic.Throttled, Status: 429, RetryAfter: 90 * time.Second}), httpRequest{path: "/", query: "vin=" + accord + "&part=answer"}, 503},
	{"page-vin-invalid", nil, httpRequest{path: "/", query: "vin=1HGCM82633A00435O&part=answer"}, 400},
	{"page-year-invalid", nil, httpRequest{path: "/", query: "vin=" + accord + "&modelYear=1066&part=answer"}, 400},
	{"page-prefetch", nil, httpRequest{path: "/", query: "vin=" + accord + "&part=answer", header: map[string]string{"sec-purpose": "prefetch"}}, 404},
}

func TestGoldenPages(t *testing.T) {
	for _, g := range pages {
		t.Run(g.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, e *edgeOf) {
				if g.arrange != nil {
					g.arrange(t, e)
				}
				calls := e.calls
				part := e.do(t, g.request)
				if strings.Contains(g.name, "prefetch") && e.calls != calls {
					t.Error("a prefetch caused a call")
				}
				checkHeaders(t, part)
				checkLog(t, e)
				if part.StatusCode != g.status {
					t.Errorf("status %d, want %d", part.StatusCode, g.status)
				}
				name := filepath.Join("testdata", "pages", g.name+".http")
				if *update {
					if err := os.WriteFile(name, []byte(part.String()), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				if got := part.String(); got != string(want) {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
				// Without script the same stands in the whole page.
				again := g.request
				again.query = strings.Replace(again.query, "&part=answer", "", 1)
				whole := e.do(t, again)
				if whole.Headers["Content-Security-Policy"] != page.Policy || !strings.HasPrefix(whole.Body, "<!doctype html>") {
					t.Errorf("%v", whole.Headers)
				}
				outcome := regexp.MustCompile(`data-(settled|refused)="\w+"`)
				if outcome.FindString(strings.SplitN(whole.Body, `id="out"`, 2)[1]) != outcome.FindString(part.Body) {
					t.Error("the page does not show what its part does")
				}
			})
		})
	}
}

func TestThePageIsThereWhateverIsDown(t *testing.T) {
	for name, arrange := range map[string]func(*testing.T, *edgeOf){"all is well": nil, "held": holding, "the gate cannot be read": broken} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, e *edgeOf) {
				if arrange != nil {
					arrange(t, e)
				}
				res := e.do(t, httpRequest{path: "/"})
				checkHeaders(t, res)
				if res.StatusCode != 200 || res.Headers["Content-Type"] != "text/html; charset=utf-8" || res.Headers["Cache-Control"] != "no-cache" || e.calls != 0 {
					t.Errorf("%d %v after %d calls", res.StatusCode, res.Headers, e.calls)
				}
				for _, src := range regexp.MustCompile(`/assets/[\w.-]+`).FindAllString(res.Body, -1) {
					asset := e.do(t, httpRequest{path: src})
					checkHeaders(t, asset)
					if asset.StatusCode != 200 || asset.Headers["Cache-Control"] != "public, max-age=31536000, immutable" {
						t.Errorf("%s: %d %v", src, asset.StatusCode, asset.Headers)
					}
				}
			})
		})
	}
}
