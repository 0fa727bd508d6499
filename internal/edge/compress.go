package edge

import (
	"bytes"
	"compress/gzip"
	"strconv"
	"strings"
)

// worthCompressing is the least size of a body to compress: below it fits into one packet anyway.
const worthCompressing = 1400

// compressed is a response in gzip for who takes that; the gateway does not do it. Fifty answers shrink to a tenth. Entity tags are weak, so
// they stand for both forms. A writer takes most of a megabyte to make, several times what it takes to compress an answer, so they are used again.
func (h *Handler) compressed(r *request, res *response) *response {
	if !mayCompress(res) {
		return res
	}
	vary(res, "Accept-Encoding")
	if !takesGzip(r.header("Accept-Encoding")) {
		return res
	}
	var b bytes.Buffer
	w, ok := h.zippers.Get().(*gzip.Writer)
	if !ok {
		w = gzip.NewWriter(nil)
	}
	w.Reset(&b)
	// Writes to memory do not fail.
	_, _ = w.Write(res.body)
	_ = w.Close()
	h.zippers.Put(w)
	res.body, res.binary = b.Bytes(), true
	res.header["Content-Encoding"] = "gzip"
	return res
}

func mayCompress(res *response) bool {
	return len(res.body) >= worthCompressing && res.header["Content-Encoding"] == ""
}

// takesGzip reads Accept-Encoding as far as it concerns gzip (RFC 9110): named, or meant by "*", and not with weight 0.
func takesGzip(accept string) bool {
	any := false
	for coding := range strings.SplitSeq(accept, ",") {
		name, weight, _ := strings.Cut(coding, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		if name != "gzip" && name != "*" {
			continue
		}
		q, found := strings.CutPrefix(strings.ToLower(strings.TrimSpace(weight)), "q=")
		v, err := strconv.ParseFloat(q, 64)
		takes := !found || err == nil && v > 0
		if name == "gzip" {
			return takes
		}
		any = takes
	}
	return any
}
