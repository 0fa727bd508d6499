package edge

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"strconv"

	"vingate/internal/decode"
	"vingate/internal/lru"
	"vingate/internal/results"
)

// ready is the part of a stored answer's body that says the same to everybody, as it is and deflated: made once, for an answer that is asked
// for again and again.
type ready struct{ plain, deflated []byte }

// parts is a body with a part that was ready, between two that are this request's own.
type parts struct {
	before, after []byte
	ready         *ready
}

const (
	// readyShare is the part of the bound of the answers' memory that ready bodies may take beside it.
	readyShare = 8
	// readyOverhead is what one takes beside its bytes.
	readyOverhead = 400
)

func newReady(limit int64) *lru.Cache[string, *ready] {
	return lru.Sized(uint64(max(0, limit/readyShare)), func(key string, r *ready) uint64 {
		return uint64(len(key) + len(r.plain) + len(r.deflated) + readyOverhead)
	})
}

// readyKey says of what: the question, the form, and when NHTSA answered, as exactly as the table has it.
func readyKey(d decode.Result, v variant) string {
	return results.Key(d.Query()) + "#" + string(v) + "#" + strconv.FormatInt(d.FetchedAt.UnixMilli(), 10)
}

// show gives the response its body: common, which says the same to everybody, between two parts of the request's own. Of a stored answer it is
// kept, for whoever asks next.
func (h *Handler) show(res *response, d decode.Result, v variant, before []byte, common func() []byte, after []byte) {
	if d.Source != decode.FromCache || h.Memory == 0 {
		res.body = slices.Concat(before, common(), after)
		return
	}
	key := readyKey(d, v)
	kept, ok := h.ready.Get(key)
	if !ok {
		plain := common()
		kept = &ready{plain, h.deflated(plain)}
		h.ready.Put(key, kept)
	}
	res.body = slices.Concat(before, kept.plain, after)
	res.parts = &parts{before, after, kept}
}

// gzipHeader is that of compress/gzip: deflated, no name, no time, no system.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}

// gzipped is the body in gzip (RFC 1952), one member: the parts of the request's own are small, and stand in blocks that are not compressed (RFC
// 1951, 3.2.4). ok is false where one does not fit into such a block.
func (p *parts) gzipped(body []byte) (zipped []byte, ok bool) {
	if len(p.before) > math.MaxUint16 || len(p.after) > math.MaxUint16 {
		return nil, false
	}
	b := make([]byte, 0, len(gzipHeader)+len(p.before)+len(p.ready.deflated)+len(p.after)+18)
	b = append(b, gzipHeader...)
	b = appendBlock(b, 0, p.before)
	b = append(b, p.ready.deflated...)
	b = appendBlock(b, 1, p.after)
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(body))
	return binary.LittleEndian.AppendUint32(b, uint32(len(body))), true
}

// appendBlock adds a block that is not compressed; the last is marked by a 1. It begins and ends with a whole byte, as what deflated gives does.
func appendBlock(b []byte, last byte, text []byte) []byte {
	b = append(b, last)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	b = binary.LittleEndian.AppendUint16(b, ^uint16(len(text)))
	return append(b, text...)
}
