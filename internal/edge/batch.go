package edge

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"vingate/internal/decode"
)

// batchResult is the outcome of one VIN of a list: an answer or a problem, as GET would give it.
type batchResult struct {
	VIN     string   `json:"vin"` // as submitted
	Status  int      `json:"status"`
	Answer  *answer  `json:"answer,omitempty"`
	Problem *problem `json:"problem,omitempty"`
}

// batch answers a list of VINs, one by one. Where all of it is refused for one reason that passes, the response is that refusal, so that
// whoever looks at the status alone comes back in time; else each VIN has its own, and the response is a 200.
func (h *Handler) batch(ctx context.Context, r *request) *response {
	came := h.Now()
	body, refused := r.body("application/json")
	if refused != nil {
		return h.refusal(r, refused)
	}
	questions, refused := readVINs(body)
	if refused != nil {
		return h.refusal(r, refused)
	}
	barred, refused := h.identify(ctx, r)
	if refused != nil {
		return h.refusal(r, refused)
	}
	if barred == nil && r.storedOnly() {
		barred = decode.NewNotStored()
	}
	items, err := h.Decoder.DecodeBatch(ctx, decode.BatchRequest{Questions: questions, Caller: r.caller, Barred: barred})
	if err != nil {
		return h.undecoded(ctx, r, err, came)
	}
	if all := refusedTogether(items); all != nil {
		res := h.undecoded(ctx, r, all, came)
		res.log = append(res.log, slog.Int("vins", len(items)))
		res.counts.refused(all.Code, len(items)-1) // one is counted already
		return res
	}
	var out struct {
		Results []batchResult `json:"results"`
	}
	var again time.Duration
	codes := map[decode.Code]int{}
	for i, item := range items {
		one := batchResult{VIN: questions[i].VIN, Status: 200}
		if item.Refusal != nil {
			p := problemOf(item.Refusal, "")
			one.Status, one.Problem = p.Status, &p
			again = max(again, item.Refusal.RetryAfter)
			codes[item.Refusal.Code]++
		} else {
			a := answerOf(item.Result)
			one.Answer = &a
		}
		out.Results = append(out.Results, one)
	}
	res := h.respond(r, 200, out)
	res.header["Cache-Control"] = "no-store"
	if again > 0 {
		res.header["Retry-After"] = strconv.FormatInt(int64(again/time.Second), 10)
	}
	h.batchRates(r, res, items, again)
	res.log = batchLog(items, codes)
	for _, item := range items {
		if item.Refusal == nil {
			res.counts.answered(item.Result)
		}
	}
	for code, n := range codes {
		res.counts.refused(code, n)
	}
	return res
}

// batchRates adds what is left of the buckets to an answer that cost something.
func (h *Handler) batchRates(r *request, res *response, items []decode.Item, again time.Duration) {
	if slices.ContainsFunc(items, func(i decode.Item) bool { return i.Refusal == nil && i.Result.Source == decode.FromNHTSA }) || again > 0 {
		h.rateHeaders(r, res, again)
	}
}

// refusedTogether is the refusal of a whole list: all of it for one reason, and one that passes. It is nil where there is an answer, or
// anything else to say.
func refusedTogether(items []decode.Item) *decode.Refusal {
	var all *decode.Refusal
	for _, item := range items {
		r := item.Refusal
		if r == nil || r.RetryAfter == 0 || all != nil && (r.Code != all.Code || r.Scope != all.Scope) {
			return nil
		}
		if all == nil || r.RetryAfter > all.RetryAfter {
			all = r
		}
	}
	return all
}

// batchLog says what became of a list, without a VIN.
func batchLog(items []decode.Item, codes map[decode.Code]int) []slog.Attr {
	live, stored := 0, 0
	for _, item := range items {
		switch {
		case item.Refusal != nil:
		case item.Result.Source == decode.FromCache:
			stored++
		default:
			live++
		}
	}
	attrs := []slog.Attr{slog.Int("vins", len(items)), slog.Int("live", live), slog.Int("stored", stored)}
	for _, code := range decode.Codes() {
		if n := codes[code]; n > 0 {
			attrs = append(attrs, slog.Int(string(code), n))
		}
	}
	return attrs
}
