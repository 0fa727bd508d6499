package edge

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// odd are texts that writers of JSON get wrong.
var odd = []string{"", "plain", `"`, `\`, "\x00", "\x1f", "\x7f", "\r\nSet-Cookie: a=b", "<script>&amp;'", "\u2028\u2029", "é", "\U0001F697", "\xff", "a\xc3", "\xed\xa0\x80", "\ufffd"}

// A response is written by hand where it is plain. It is byte for byte what package json writes.
func TestProperty_AResponseIsWrittenAsPackageJSONWritesIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.SampledFrom(odd), rapid.String(), rapid.StringMatching(`[ -~]{0,40}`),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		res := response{status: rapid.IntRange(100, 599).Draw(t, "status"), header: rapid.MapOfN(text, text, 0, 5).Draw(t, "header"),
			body: []byte(text.Draw(t, "body")), binary: rapid.Bool().Draw(t, "binary")}
		head := rapid.Bool().Draw(t, "HEAD")
		var want []byte
		switch {
		case head:
			want = anew(t, res, "", false)
		case res.binary:
			want = anew(t, res, res.body, true)
		default:
			want = anew(t, res, string(res.body), false)
		}
		got := res.encode(head)
		if !bytes.Equal(got, want) {
			t.Fatalf("%q\nwant %q", got, want)
		}
		if !utf8.Valid(got) || !json.Valid(got) {
			t.Fatalf("no JSON: %q", got)
		}
	})
}

// anew is a response of payload format 2.0 by package json; a body of bytes is one in base64.
func anew(t *rapid.T, res response, body any, base64 bool) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(struct {
		StatusCode      int               `json:"statusCode"`
		Headers         map[string]string `json:"headers"`
		Body            any               `json:"body"`
		IsBase64Encoded bool              `json:"isBase64Encoded,omitempty"`
	}{res.status, res.header, body, base64}); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
