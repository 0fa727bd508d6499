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
	var zipped []byte
	ok := false
	if res.parts != nil {
		zipped, ok = res.parts.gzipped(res.body)
	}
	if !ok {
		zipped = h.gzipped(res.body, (*gzip.Writer).Close)
	}
	res.body, res.binary = zipped, true
	res.header["Content-Encoding"] = "gzip"
	return res
}

// gzipped is text in gzip, up to and with what end writes. Writes to memory do not fail.
func (h *Handler) gzipped(text []byte, end func(*gzip.Writer) error) []byte {
	var b bytes.Buffer
	w, ok := h.zippers.Get().(*gzip.Writer)
	if !ok {
		w = gzip.NewWriter(nil)
	}
	w.Reset(&b)
	_, _ = w.Write(text)
	_ = end(w)
	h.zippers.Put(w)
	return b.Bytes()
}

// deflated is text deflated, not as the last of its stream, to a whole byte.
func (h *Handler) deflated(text []byte) []byte {
	return bytes.Clone(h.gzipped(text, (*gzip.Writer).Flush)[len(gzipHeader):])
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
