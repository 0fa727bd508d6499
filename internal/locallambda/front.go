//go:build unix

package locallambda

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// tracePattern is a trace id a caller may bring along.
var tracePattern = regexp.MustCompile(`^Root=1-[0-9a-f]{8}-[0-9a-f]{24}(;[ -~]{0,200})?$`)

// InstanceHeader of an answer is the id of the instance that it comes from, or that ended over it.
const InstanceHeader = "X-Locallambda-Instance"

// serveFront is the HTTP API: one request, one event, one invocation.
func (s *Server) serveFront(w http.ResponseWriter, r *http.Request) {
	id := newGatewayID()
	w.Header().Set("Apigw-Requestid", id)
	if !strings.HasPrefix(r.URL.Path, "/") {
		writeMessage(w, http.StatusBadRequest, "Bad Request")
		return
	}
	// For the body only: a deadline that lasted would end a long wait as if the client had left.
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBody))
	_ = conn.SetReadDeadline(time.Time{})
	if err != nil {
		if tooLarge(err) {
			writeMessage(w, http.StatusRequestEntityTooLarge, "Request Entity Too Large")
		} else {
			writeMessage(w, http.StatusBadRequest, "Bad Request")
		}
		return
	}
	trace := r.Header.Get("X-Amzn-Trace-Id")
	if !tracePattern.MatchString(trace) {
		trace = newTraceID(s.opt.Sampled)
	}
	payload, err := json.Marshal(newEvent(r, body, id, trace, time.Now()))
	if err != nil {
		s.log.Printf("lambda", "no event for a request: %v", err)
		writeMessage(w, http.StatusInternalServerError, "Internal Server Error")
		return
	}
	inv, err := s.dispatch(payload, trace)
	if err == nil {
		enough := time.NewTimer(s.opt.Gateway)
		defer enough.Stop()
		select {
		case <-inv.done:
			err = inv.err
			w.Header().Set(InstanceHeader, strconv.Itoa(inv.result.Instance))
		case <-enough.C:
			writeMessage(w, http.StatusServiceUnavailable, "Service Unavailable")
			return // the invocation goes on
		case <-r.Context().Done():
			return // the client left; the invocation goes on
		}
	}
	if err != nil {
		status, message := http.StatusInternalServerError, "Internal Server Error"
		switch {
		case errors.Is(err, ErrPayloadTooLarge):
			status, message = http.StatusRequestEntityTooLarge, "Request Entity Too Large"
		case errors.Is(err, ErrThrottled), errors.Is(err, ErrTimeout), errors.Is(err, ErrClosed):
			status, message = http.StatusServiceUnavailable, "Service Unavailable"
		}
		writeMessage(w, status, message)
		return
	}
	if inv.result.FunctionError != "" {
		writeMessage(w, http.StatusInternalServerError, "Internal Server Error")
		return
	}
	res, err := parseResponse(inv.result.Payload)
	if err != nil {
		s.log.Printf("lambda", "RequestId: %s %v", inv.id, err)
		writeMessage(w, http.StatusInternalServerError, "Internal Server Error")
		return
	}
	res.write(w)
}

func tooLarge(err error) bool {
	var tl *http.MaxBytesError
	return errors.As(err, &tl)
}
