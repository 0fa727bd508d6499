//go:build unix

package locallambda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
)

// maxSocketPath is what every Unix takes; Linux takes 107.
const maxSocketPath = 103

// listenControl opens the control socket, for this user only. A socket that a killed process left behind is replaced;
// one that somebody answers on is not.
func listenControl(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("locallambda: control socket: the path %s is longer than the %d bytes a socket's may have", path, maxSocketPath)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("locallambda: control socket: %s exists and is no socket", path)
		}
		var d net.Dialer
		if c, err := d.DialContext(ctx, "unix", path); err == nil {
			_ = c.Close()
			return nil, fmt.Errorf("locallambda: control socket: another process answers on %s", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("locallambda: control socket: %w", err)
		}
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("locallambda: control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = ln.Close()
		return nil, fmt.Errorf("locallambda: control socket: %w", err)
	}
	return ln, nil
}

// controlHandler is what the control socket understands:
//
//	GET  /instances               all instances
//	POST /instances/{id}/freeze   SIGSTOP; also thaw (SIGCONT) and kill (SIGKILL)
//	POST /invoke                  the body is an event; answers as Lambda's Invoke API does
func (s *Server) controlHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /instances", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, s.Instances())
	})
	for name, act := range map[string]func(context.Context, int) error{"freeze": s.Freeze, "thaw": s.Thaw, "kill": s.Kill} {
		mux.HandleFunc("POST /instances/{id}/"+name, func(w http.ResponseWriter, r *http.Request) {
			id, err := strconv.Atoi(r.PathValue("id"))
			if err == nil {
				err = act(r.Context(), id)
			}
			if err != nil {
				status := http.StatusInternalServerError
				if errors.Is(err, ErrNoInstance) || errors.Is(err, strconv.ErrSyntax) || errors.Is(err, strconv.ErrRange) {
					status = http.StatusNotFound
				}
				writeJSON(w, status, map[string]string{"message": err.Error()})
				return
			}
			all := s.Instances()
			i := slices.IndexFunc(all, func(i Instance) bool { return i.ID == id })
			if i < 0 {
				writeJSON(w, http.StatusNotFound, map[string]string{"message": "the instance is gone"})
				return
			}
			writeJSON(w, http.StatusOK, all[i])
		})
	}
	mux.HandleFunc("POST /invoke", s.controlInvoke)
	return mux
}

func (s *Server) controlInvoke(w http.ResponseWriter, r *http.Request) {
	payload, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPayload))
	if err == nil && len(payload) == 0 {
		payload = []byte("{}")
	}
	if err != nil || !json.Valid(payload) {
		writeJSON(w, http.StatusBadRequest, map[string]string{"message": "the event is no JSON, or too large"})
		return
	}
	res, err := s.Invoke(r.Context(), payload)
	switch {
	case r.Context().Err() != nil:
		return
	case err == nil:
		if res.FunctionError != "" {
			w.Header().Set("X-Amz-Function-Error", "Unhandled")
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(res.Payload)
	case errors.Is(err, ErrThrottled), errors.Is(err, ErrClosed):
		writeJSON(w, http.StatusTooManyRequests, map[string]string{"message": err.Error()})
	default:
		w.Header().Set("X-Amz-Function-Error", "Unhandled")
		writeJSON(w, http.StatusOK, map[string]string{"errorType": errorType(err), "errorMessage": err.Error()})
	}
}

func errorType(err error) string {
	switch {
	case errors.Is(err, ErrTimeout):
		return "Sandbox.Timedout"
	case errors.Is(err, ErrInit):
		return "Runtime.InitError"
	default:
		return "Runtime.ExitError"
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
