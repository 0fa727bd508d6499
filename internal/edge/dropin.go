package edge

import (
	"context"
	"log/slog"
	"net/url"
	"strconv"
	"strings"

	"vingate/internal/decode"
	"vingate/internal/vpic"
)

// The drop-in for NHTSA's own API: clients of NHTSA's change the address and keep their code. A 200 is NHTSA's own answer in NHTSA's own shape,
// also about what is no VIN, since NHTSA answers that too; whatever is no answer of NHTSA's is a problem with a status of its own, never a 200.

// dropInBase is where NHTSA's calls lie, in lower case: NHTSA takes any.
const dropInBase = "/api/vehicles/"

// nhtsaJSON is the content type NHTSA sends.
const nhtsaJSON = "application/json; charset=utf-8"

func isDropIn(path string) bool {
	return len(path) >= len(dropInBase) && strings.EqualFold(path[:len(dropInBase)], dropInBase)
}

// dropInRoute finds a call of NHTSA's.
func (h *Handler) dropInRoute(path string) (route, bool) {
	if !isDropIn(path) {
		return route{}, false
	}
	name, vin, _ := strings.Cut(path[len(dropInBase):], "/")
	switch strings.ToLower(name) {
	case "decodevinvalues":
		return route{routeDropIn, reads, h.dropIn(vin, false)}, true
	case "decodevinvaluesextended":
		return route{routeDropInExtended, reads, h.dropIn(vin, true)}, true
	case "decodevinvaluesbatch":
		if vin == "" {
			return route{routeDropInBatch, takes, h.dropInBatch}, true
		}
	}
	return route{}, false
}

func (h *Handler) dropIn(vin string, extended bool) func(context.Context, *request) *response {
	return func(ctx context.Context, r *request) *response {
		came := h.Now()
		if !jsonAlone(formats(r.query)) {
			return h.refusal(r, decode.NewFormatUnsupported())
		}
		year, ok := r.modelYear()
		if !ok {
			return h.refusal(r, decode.NewModelYearInvalid(h.Now()))
		}
		barred, refused := h.identify(ctx, r)
		if refused != nil {
			return h.refusal(r, refused)
		}
		spelled := strings.TrimSpace(strings.TrimSuffix(unescapePath(vin), "/"))
		result, err := h.Decoder.Decode(ctx, decode.Request{VIN: spelled, ModelYear: year, AsNHTSA: true, Extended: extended,
			Caller: r.caller, StoredOnly: r.storedOnly(), Barred: barred})
		if err != nil {
			return h.undecoded(ctx, r, err, came)
		}
		res := h.respond(r, 200, nil)
		res.header["Content-Type"] = nhtsaJSON
		v := variantNHTSA
		if extended {
			v = variantExtended
		}
		if body := func() []byte { return result.BodyFor(spelled) }; spelled == result.Query().VIN {
			h.show(res, result, v, nil, body, nil)
		} else {
			res.body = body()
		}
		h.decodedHeaders(res, result)
		h.ratesOf(r, res, result)
		res.counts.answered(result)
		res.log = decodeLog(result)
		return h.unlessKnown(r, res, entityTag(result, v))
	}
}

// dropInBatch answers NHTSA's batch call. NHTSA's shape has no place for a refusal of one VIN, so if one is refused all of it is: what was
// answered is stored, and the call made again as told costs nothing for it.
func (h *Handler) dropInBatch(ctx context.Context, r *request) *response {
	came := h.Now()
	body, refused := r.body("application/x-www-form-urlencoded")
	if refused != nil {
		return h.refusal(r, refused)
	}
	questions, format, refused := readForm(string(body))
	if refused != nil {
		return h.refusal(r, refused)
	}
	if !jsonAlone(append(formats(r.query), format...)) {
		return h.refusal(r, decode.NewFormatUnsupported())
	}
	if len(questions) > decode.MaxBatch {
		return h.refusal(r, decode.NewBatchTooLarge())
	}
	barred, refused := h.identify(ctx, r)
	if refused != nil {
		return h.refusal(r, refused)
	}
	if barred == nil && r.storedOnly() {
		barred = decode.NewNotStored()
	}
	items, err := h.Decoder.DecodeBatch(ctx, decode.BatchRequest{Questions: questions, AsNHTSA: true, Whole: true, Caller: r.caller, Barred: barred})
	if err != nil {
		return h.undecoded(ctx, r, err, came)
	}
	var worst *decode.Refusal
	codes := map[decode.Code]int{}
	answers, spelled := make([]vpic.Answer, len(items)), make([]string, len(items))
	for i, item := range items {
		if refused := item.Refusal; refused != nil {
			codes[refused.Code]++
			if worst == nil || worse(refused, worst) {
				worst = refused
			}
			continue
		}
		answers[i], spelled[i] = item.Result.Answer, questions[i].VIN
	}
	if worst != nil {
		res := h.undecoded(ctx, r, worst, came)
		codes[worst.Code]-- // it is counted already
		for code, n := range codes {
			res.counts.refused(code, n)
		}
		res.log = append(res.log, slog.Int("vins", len(items)))
		return res
	}
	res := h.respond(r, 200, nil)
	res.header["Content-Type"] = nhtsaJSON
	res.header["Cache-Control"] = "no-store"
	res.body = vpic.BatchBody(answers, spelled)
	h.batchRates(r, res, items, 0)
	for _, item := range items {
		res.counts.answered(item.Result)
	}
	res.log = batchLog(items, codes)
	return res
}

// worse orders refusals of one batch: one that stands before one that passes, and among those the later time to come back. Obeying the worst
// is obeying all.
func worse(a, b *decode.Refusal) bool {
	if final := a.RetryAfter == 0; final != (b.RetryAfter == 0) {
		return final
	}
	return a.RetryAfter > b.RetryAfter
}

// jsonAlone says whether JSON will do. NHTSA sends XML where no format is named; here that is JSON, which every client of NHTSA's asks for.
func jsonAlone(formats []string) bool {
	for _, f := range formats {
		if f = strings.TrimSpace(f); f != "" && !strings.EqualFold(f, "json") {
			return false
		}
	}
	return true
}

func formats(query string) []string {
	var list []string
	for _, p := range pairs(query) {
		if strings.EqualFold(p.name, "format") {
			list = append(list, p.value)
		}
	}
	return list
}

// pair is one name and value of a query or a form.
type pair struct{ name, value string }

// pairs reads a query or a form. Unlike net/url's reader it takes ';' for what it is in NHTSA's batches: a part of the value. What cannot
// be decoded stands as it came.
func pairs(s string) []pair {
	var list []pair
	for piece := range strings.SplitSeq(s, "&") {
		name, value, _ := strings.Cut(piece, "=")
		list = append(list, pair{strings.TrimSpace(unescapeLoosely(name)), unescapeLoosely(value)})
	}
	return list
}

// readForm reads NHTSA's form, DATA=VIN[,year];VIN[,year]&format=json, with blanks and line breaks wherever they help. Entries beyond one too
// many are not read.
func readForm(form string) (questions []decode.Question, format []string, refused *decode.Refusal) {
	data, seen := "", false
	for _, p := range pairs(form) {
		switch {
		case strings.EqualFold(p.name, "format"):
			format = append(format, p.value)
		case strings.EqualFold(p.name, "data") && seen:
			return nil, nil, decode.NewRequestInvalid(decode.FaultTwice, 0)
		case strings.EqualFold(p.name, "data"):
			data, seen = p.value, true
		}
	}
	for entry := range strings.SplitSeq(data, ";") {
		vin, year, given := strings.Cut(entry, ",")
		q := decode.Question{VIN: strings.TrimSpace(vin)}
		if year = strings.TrimSpace(year); given && year != "" {
			q.ModelYear = yearIn(year)
		}
		if q.VIN == "" && q.ModelYear == 0 {
			continue // behind a last ';'
		}
		if questions = append(questions, q); len(questions) > decode.MaxBatch {
			break
		}
	}
	if len(questions) == 0 {
		return nil, nil, decode.NewRequestInvalid(decode.FaultEmpty, 0)
	}
	return questions, format, nil
}

// yearIn reads a model year, -1 for what is none: 0 means "none given" from here on, and somebody gave one.
func yearIn(s string) int {
	year, err := strconv.Atoi(s)
	if err != nil || year <= 0 || len(s) != 4 {
		return -1
	}
	return year
}

// unescapePath decodes what is still encoded in a path. API Gateway hands the path over decoded, other front doors as it came;
// a VIN holds no '%', so decoding it (again) changes nothing that could be one.
func unescapePath(s string) string {
	if decoded, err := url.PathUnescape(s); err == nil {
		return decoded
	}
	return s
}

// decodeLog is what the log says of an answer.
func decodeLog(d decode.Result) []slog.Attr {
	return []slog.Attr{
		slog.String("vin", d.VIN.Descriptor()), slog.String("outcome", string(d.Outcome())), slog.String("source", string(d.Source)),
		slog.Int64("waitedMs", d.Waited.Milliseconds()), slog.Int64("upstreamMs", d.Upstream.Milliseconds()), slog.Bool("shared", d.Shared),
	}
}
