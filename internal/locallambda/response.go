//go:build unix

package locallambda

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// response is what a function answered, as an HTTP API of payload format 2.0 reads it.
type response struct {
	status  int
	headers map[string]string // as the function named them
	cookies []string
	body    []byte
}

// errBadResponse is an answer that no HTTP response can be made of; the gateway answers 500 for it.
var errBadResponse = errors.New("locallambda: the function's answer is not a response of payload format 2.0")

// parseResponse reads a function's answer. A JSON value without a statusCode is the body of a 200; a string then
// stands for its text.
func parseResponse(payload []byte) (response, error) {
	payload = bytes.TrimSpace(payload)
	if !json.Valid(payload) {
		return response{}, fmt.Errorf("%w: it is not JSON", errBadResponse)
	}
	inferred := response{status: http.StatusOK, headers: map[string]string{"content-type": "application/json"}, body: payload}
	if payload[0] == '"' {
		var s string
		if err := json.Unmarshal(payload, &s); err != nil {
			return response{}, fmt.Errorf("%w: %w", errBadResponse, err)
		}
		inferred.body = []byte(s)
		return inferred, nil
	}
	if payload[0] != '{' {
		return inferred, nil
	}
	// Names count in their exact letter case, so not by a struct's tags.
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(payload, &fields); err != nil {
		return response{}, fmt.Errorf("%w: %w", errBadResponse, err)
	}
	raw, ok := fields["statusCode"]
	if !ok {
		return inferred, nil
	}
	status, err := strconv.Atoi(strings.Trim(string(raw), `"`))
	if err != nil || status < 200 || status > 599 {
		return response{}, fmt.Errorf("%w: statusCode %.40s", errBadResponse, raw)
	}
	out := response{status: status, headers: map[string]string{}}
	field := func(name string, into any) {
		if v, ok := fields[name]; ok && err == nil {
			if e := json.Unmarshal(v, into); e != nil {
				err = fmt.Errorf("%w: %s: %w", errBadResponse, name, e)
			}
		}
	}
	var (
		values  map[string]json.RawMessage
		body    *string
		encoded bool
	)
	field("headers", &values)
	field("cookies", &out.cookies)
	field("body", &body)
	field("isBase64Encoded", &encoded)
	if err != nil {
		return response{}, err
	}
	for name, v := range values {
		switch v[0] {
		case '"':
			var s string
			if err := json.Unmarshal(v, &s); err != nil {
				return response{}, fmt.Errorf("%w: header %.40q: %w", errBadResponse, name, err)
			}
			out.headers[name] = s
		case '{', '[':
			return response{}, fmt.Errorf("%w: header %.40q is not a string", errBadResponse, name)
		case 'n': // null
		default: // a number or a truth value is taken as it is written
			out.headers[name] = string(v)
		}
	}
	if body != nil {
		out.body = []byte(*body)
		if encoded {
			if out.body, err = base64.StdEncoding.DecodeString(*body); err != nil {
				return response{}, fmt.Errorf("%w: body: %w", errBadResponse, err)
			}
		}
	}
	return out, nil
}

// ownHeaders are set by the gateway from what it really sends.
var ownHeaders = map[string]bool{
	"Connection": true, "Content-Length": true, "Keep-Alive": true, "Transfer-Encoding": true, "Upgrade": true, "Trailer": true,
}

func (res response) write(w http.ResponseWriter) {
	h := w.Header()
	for name, v := range res.headers {
		if name = http.CanonicalHeaderKey(name); !ownHeaders[name] {
			h.Set(name, v)
		}
	}
	for _, c := range res.cookies {
		h.Add("Set-Cookie", c)
	}
	empty := res.status == http.StatusNoContent || res.status == http.StatusNotModified
	if h.Get("Content-Type") == "" && !empty {
		h.Set("Content-Type", "text/plain;charset=UTF-8")
	}
	if !empty {
		h.Set("Content-Length", strconv.Itoa(len(res.body)))
	}
	w.WriteHeader(res.status)
	if !empty {
		_, _ = w.Write(res.body) // a client that left is no fault of ours
	}
}

// writeMessage is how the gateway itself answers.
func writeMessage(w http.ResponseWriter, status int, message string) {
	response{
		status:  status,
		headers: map[string]string{"content-type": "application/json"},
		body:    fmt.Appendf(nil, `{"message":%q}`, message),
	}.write(w)
}
