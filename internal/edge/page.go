package edge

import (
	"context"
	"net/url"
	"strings"
	"time"

	"vingate/internal/decode"
	"vingate/internal/page"
)

// budgetPatience is how long a page waits for the picture of the shared budget. Without one it is shown all the same.
const budgetPatience = 300 * time.Millisecond

// page answers with the page, or with the part of it that answers a lookup (part=answer), which the page's script asks for.
// A lookup on the page is the same lookup as through the API.
func (h *Handler) page(ctx context.Context, r *request) *response {
	query, _ := url.ParseQuery(r.query) // what can be read of it
	typed := func(name string) string { return strings.ToValidUTF8(clip(query.Get(name)), "\uFFFD") }
	content := page.Content{Version: h.Version, Lookup: page.Lookup{VIN: typed("vin"), ModelYear: typed("modelYear")}}
	res := h.respond(r, 200, nil)
	// What it shows is of this moment: the budget, ages, times to come back.
	res.header["Cache-Control"] = "no-cache"
	if strings.TrimSpace(query.Get("vin")) != "" {
		res, content.Answer, content.Refusal = h.lookUp(ctx, r, query.Get("vin"), content.Lookup)
	}
	res.header["Content-Type"] = "text/html; charset=utf-8"
	res.header["Content-Security-Policy"] = page.Policy
	if query.Get("part") == "answer" && (content.Answer != nil || content.Refusal != nil) {
		res.body = page.Part(content)
		return res
	}
	ctx, cancel := context.WithTimeout(ctx, budgetPatience)
	defer cancel()
	if view, err := h.Gate.View(ctx); err == nil {
		content.Budget = &view
	}
	res.body = page.Render(content)
	return res
}

// lookUp decodes for the page: it gives the response without its body, and what the page shows of it.
func (h *Handler) lookUp(ctx context.Context, r *request, vin string, asked page.Lookup) (*response, *page.Answer, *page.Refusal) {
	came := h.Now()
	barred, refused := h.identify(ctx, r)
	year, ok := r.modelYear()
	if refused == nil && !ok {
		refused = decode.NewModelYearInvalid(h.Now())
	}
	if refused != nil {
		return h.refusal(r, refused), nil, page.Refused(refused, asked)
	}
	result, err := h.Decoder.Decode(ctx, decode.Request{VIN: vin, ModelYear: year, Caller: r.caller, StoredOnly: r.storedOnly(), Barred: barred})
	if err != nil {
		return h.undecoded(ctx, r, err, came), nil, page.Refused(h.asRefusal(ctx, err), asked)
	}
	res := h.respond(r, 200, nil)
	h.decodedHeaders(res, result)
	res.header["Cache-Control"] = "no-cache"
	delete(res.header, "Age") // the answer's, not the page's
	h.ratesOf(r, res, result)
	res.counts.answered(result)
	res.log = decodeLog(result)
	return res, page.Answered(result, asked), nil
}

// asset answers with a file of the page. Its name changes with its content, so that it is asked for once.
func (h *Handler) asset(_ context.Context, r *request) *response {
	a, ok := page.FindAsset(strings.TrimPrefix(r.path, page.Assets))
	if !ok {
		return h.refusal(r, decode.NewNotFound())
	}
	res := h.respond(r, 200, nil)
	res.header["Content-Type"] = a.Type
	res.header["Cache-Control"] = "public, max-age=31536000, immutable"
	res.body = a.Body
	return res
}
