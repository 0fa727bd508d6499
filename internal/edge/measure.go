package edge

import (
	"context"
	"maps"
	"slices"

	"vingate/internal/decode"
	"vingate/internal/gate"
	"vingate/internal/observe"
)

// counts is what a response amounts to, for the metrics.
type counts struct {
	decodes, stored, shared int
	codes                   map[decode.Code]int
}

func (c *counts) answered(d decode.Result) {
	c.decodes++
	if d.Source == decode.FromCache {
		c.stored++
	}
	if d.Shared {
		c.shared++
	}
}

func (c *counts) refused(code decode.Code, n int) {
	if c.codes == nil {
		c.codes = map[decode.Code]int{}
	}
	c.codes[code] += n
}

// bulkhead is the hash of the caller's key, as it stands in the gate: one busy key can be found by it in the log.
func bulkhead(r *request) string {
	route := gate.Interactive
	if r.route == routeBatch || r.route == routeDropInBatch {
		route = gate.Batch
	}
	return string(r.caller.Key(route).Place())
}

// measure writes the line of a request. A list's VINs may be refused with several codes: each has a line of its own then, since a line has
// one value of each dimension.
func (h *Handler) measure(ctx context.Context, line observe.Line, r *request, res *response, record *observe.Recorder) {
	line.Dimensions = map[string]string{observe.Route: r.route}
	switch {
	case r.caller.ID == "":
	case r.caller.Anonymous:
		line.Dimensions[observe.Class] = "anonymous"
	default:
		line.Dimensions[observe.Class] = "key"
	}
	add := func(name string, n int) {
		line.Measured = append(line.Measured, observe.Measured{Name: name, Values: []float64{float64(n)}})
	}
	add(observe.Requests, 1)
	if res.counts.decodes > 0 {
		add(observe.Decodes, res.counts.decodes)
		add(observe.CacheHits, res.counts.stored)
		add(observe.Followers, res.counts.shared)
	}
	line.Measured = append(line.Measured, record.Measured()...)
	codes := slices.DeleteFunc(slices.Sorted(maps.Keys(res.counts.codes)), func(code decode.Code) bool { return res.counts.codes[code] <= 0 })
	if len(codes) > 0 {
		line.Dimensions[observe.Code] = string(codes[0])
		add(observe.Refusals, res.counts.codes[codes[0]])
	}
	h.Metrics.Write(ctx, line)
	for _, code := range codes[min(1, len(codes)):] {
		h.Metrics.Write(ctx, observe.Line{Level: line.Level, Message: "refused in a list", Properties: slices.Clip(line.Properties[:1]),
			Dimensions: map[string]string{observe.Route: r.route, observe.Code: string(code)},
			Measured:   []observe.Measured{{Name: observe.Refusals, Values: []float64{float64(res.counts.codes[code])}}}})
	}
}
