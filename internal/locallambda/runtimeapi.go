//go:build unix

package locallambda

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// runtimeAPI is the Lambda Runtime API of one instance.
// Source: "Using the Lambda runtime API for custom runtimes" in the Lambda developer guide.
func (i *instance) runtimeAPI() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", i.next)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", i.response)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", i.error)
	mux.HandleFunc("POST /2018-06-01/runtime/init/error", i.initError)
	return mux
}

func (i *instance) next(w http.ResponseWriter, r *http.Request) {
	i.becameReady()
	select {
	case inv := <-i.mailbox:
		i.s.mu.Lock()
		if i.doomed || r.Context().Err() != nil {
			// Whoever asked is gone or about to go: undelivered, it is placed anew or ends as it must.
			i.s.mu.Unlock()
			i.kill(nil)
			return
		}
		inv.delivered = true
		deadline := inv.start.Add(i.s.opt.Timeout)
		i.s.mu.Unlock()
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Lambda-Runtime-Aws-Request-Id", inv.id)
		h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(deadline.UnixMilli(), 10))
		h.Set("Lambda-Runtime-Trace-Id", inv.traceID)
		h.Set("Lambda-Runtime-Invoked-Function-Arn", i.s.arn)
		_, _ = w.Write(inv.payload)
	case <-r.Context().Done():
	}
}

func (i *instance) response(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPayload))
	if err != nil {
		if tooLarge(err) {
			i.answered(id, Result{
				Payload: fmt.Appendf(nil, `{"errorType":"Function.ResponseSizeTooLarge",`+
					`"errorMessage":"Response payload size exceeded maximum allowed payload size (%d bytes)."}`, maxPayload),
				FunctionError: "Function.ResponseSizeTooLarge",
			}, nil, "\tStatus: error\tError Type: Function.ResponseSizeTooLarge")
			apiError(w, http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "the response is too large")
			return
		}
		apiError(w, http.StatusBadRequest, "InvalidRequest", "the body could not be read")
		return
	}
	res, status := Result{Payload: body}, ""
	// A handler that fails while it streams its answer says so in the trailer.
	if typ := r.Trailer.Get("Lambda-Runtime-Function-Error-Type"); typ != "" {
		res.FunctionError, status = typ, "\tStatus: error\tError Type: "+typ
	}
	i.accept(w, i.answered(id, res, nil, status))
}

func (i *instance) error(w http.ResponseWriter, r *http.Request) {
	body, typ, ok := errorBody(w, r)
	if !ok {
		return
	}
	i.accept(w, i.answered(r.PathValue("id"), Result{Payload: body, FunctionError: typ}, nil, "\tStatus: error\tError Type: "+typ))
}

// initError is said by a runtime that cannot start; it ends afterwards, and is ended if it does not.
func (i *instance) initError(w http.ResponseWriter, r *http.Request) {
	body, typ, ok := errorBody(w, r)
	if !ok {
		return
	}
	i.s.mu.Lock()
	refused := i.ready
	if !refused && i.initErr == nil {
		i.initErr = fmt.Errorf("it reported %s: %.300s", typ, body)
	}
	i.s.mu.Unlock()
	if refused {
		apiError(w, http.StatusForbidden, "InvalidStateTransition", "the runtime is initialised")
		return
	}
	i.accept(w, true)
}

func errorBody(w http.ResponseWriter, r *http.Request) (body []byte, typ string, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPayload))
	if err != nil {
		apiError(w, http.StatusBadRequest, "InvalidRequest", "the body could not be read")
		return nil, "", false
	}
	typ = r.Header.Get("Lambda-Runtime-Function-Error-Type")
	if typ == "" {
		var e struct {
			ErrorType string `json:"errorType"`
		}
		_ = json.Unmarshal(body, &e) // without a type it is an unknown error
		typ = e.ErrorType
	}
	if typ == "" {
		typ = "Unhandled"
	}
	return body, typ, true
}

func (i *instance) accept(w http.ResponseWriter, known bool) {
	if !known {
		apiError(w, http.StatusBadRequest, "InvalidRequestID", "no such invocation is running here")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, `{"status":"OK"}`)
}

func apiError(w http.ResponseWriter, status int, typ, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"errorType":%q,"errorMessage":%q}`, typ, message)
}
