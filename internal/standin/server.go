package standin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"vingate/internal/standin/vpicdata"
)

// Decoder says what NHTSA would say about a VIN. It is safe for parallel use.
type Decoder interface {
	Decode(context.Context, vpicdata.Query) (vpicdata.Row, error)
}

// Config is what a Server needs. Only Decoder has to be set.
type Config struct {
	Decoder Decoder
	Faults  Faults // at the start

	// Count is the Count of an answer to a single call: 0 is 1, as NHTSA sends it
	// since 2026; it was 134 to 138, the number of variables, before.
	Count int

	Now   func() time.Time                                 // nil: time.Now
	Sleep func(ctx context.Context, d time.Duration) error // nil: sleeps, and wakes with the context's error when that ends
}

// Server answers like NHTSA. It is an http.Handler and safe for parallel use. Faults
// that end a connection need HTTP/1.
type Server struct {
	decoder Decoder
	count   int
	now     func() time.Time
	sleep   func(context.Context, time.Duration) error
	stats   *recorder
	calls   *journal

	mu      sync.Mutex
	faults  *faultState
	running int // calls under way that the quota let in
}

// New makes a Server. It refuses faults that do not make sense.
func New(c Config) (*Server, error) {
	if c.Decoder == nil {
		return nil, errors.New("standin: no decoder")
	}
	if c.Count < 0 {
		return nil, errors.New("standin: count must not be negative")
	}
	if err := c.Faults.Validate(); err != nil {
		return nil, err
	}
	s := &Server{decoder: c.Decoder, count: max(c.Count, 1), now: c.Now, sleep: c.Sleep}
	if s.now == nil {
		s.now = time.Now
	}
	if s.sleep == nil {
		s.sleep = sleep
	}
	s.stats, s.calls = newRecorder(s.now()), newJournal()
	s.faults = newFaultState(c.Faults, s.now())
	return s, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// SetFaults replaces all faults, and fills the quota's bucket. Calls under way keep
// what they have drawn.
func (s *Server) SetFaults(f Faults) error {
	if err := f.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = newFaultState(f, s.now())
	return nil
}

// Faults are those in force, with what is left of their counts.
func (s *Server) Faults() Faults { return s.faultState().current() }

// Stats is what was called so far.
func (s *Server) Stats() Stats { return s.stats.read() }

// ResetStats forgets what was called. Calls under way stay under way, and are
// counted by their answers when these come.
func (s *Server) ResetStats() { s.stats.reset(s.now()) }

// Calls are the last calls that began at since or later, one by one, in the order in which they began.
func (s *Server) Calls(since int64) []Call { return s.calls.read(since) }

func (s *Server) faultState() *faultState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

// Headers that every answer has.
const (
	serverName   = "vpic-standin"
	markerHeader = "X-Vpic-Standin"
)

// ServeHTTP answers calls of the API, the control paths and the banner.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Server", serverName)
	w.Header().Set(markerHeader, "1")
	switch {
	case r.URL.Path == "/":
		respond(w, http.StatusOK, plainType, []byte(banner))
	case strings.HasPrefix(r.URL.Path, controlPrefix):
		s.control(w, r)
	default:
		s.serveCall(w, r)
	}
}

// underWay is one call from its header to the end of its answer.
type underWay struct {
	end     func()       // not under way any more
	leave   func()       // its place in the quota is free; nil for a call that got none
	counted func(string) // its answer's kind
}

// finish ends the call. It is called just before the last bytes of the answer are
// written: whoever has the whole answer finds the call ended, and a caller that
// makes one call after the other is never seen with two.
func (u *underWay) finish(kind string) {
	u.counted(kind)
	if u.leave != nil {
		u.leave()
	}
	u.end()
}

// serveCall is the way of one call: count it, read it, quota, latency, fault, answer.
func (s *Server) serveCall(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	end, noted := s.stats.begin(s.now), s.calls.begin(s.now, r.UserAgent())
	u := &underWay{
		end:     func() { noted.end(s.now); end() },
		counted: func(kind string) { noted.answered(kind, w.Header().Get("Retry-After")); s.stats.answered(kind) },
	}
	defer u.end()
	// When the caller hangs up, the call is over even if the handler is not yet.
	defer context.AfterFunc(ctx, u.end)()

	form, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			u.refuse(w, &apiError{status: http.StatusRequestEntityTooLarge, kind: AnswerBadRequest, message: "The request is too large."})
			return
		}
		u.finish(AnswerClientGone)
		return
	}
	call, bad := parseCall(r, string(form))
	vins := make([]string, len(call.queries))
	for i, q := range call.queries {
		vins[i] = q.VIN
	}
	s.stats.asked(vins)
	noted.asked(vins)

	faults, leave, refused, after := s.enter(ctx)
	if refused != "" {
		page := "There are too many calls at the same time."
		if refused == AnswerQuotaRate {
			page = "The rate of calls is too high."
		}
		s.setRetryAfter(w, after)
		u.respond(w, refused, http.StatusTooManyRequests, htmlType, htmlPage("Too Many Requests", page))
		return
	}
	u.leave = leave
	defer leave()

	if err := s.sleep(ctx, faults.wait()); err != nil {
		u.finish(AnswerClientGone)
		return
	}
	rule, index, found := faults.pick(vins)
	if found && s.failBefore(u, w, r, rule) {
		return
	}
	if bad != nil {
		u.refuse(w, bad)
		return
	}
	a, kind, err := s.decode(ctx, call)
	switch {
	case ctx.Err() != nil:
		u.finish(AnswerClientGone)
	case err != nil:
		u.broken(w, fmt.Errorf("cannot read the data: %w", err))
	case found:
		s.failWith(u, w, r, rule, index, call, a)
	default:
		body, contentType, err := a.encode(call.format)
		if err != nil {
			u.broken(w, err)
			return
		}
		u.respond(w, kind, http.StatusOK, contentType, body)
	}
}

// respond sends a whole answer.
func (u *underWay) respond(w http.ResponseWriter, kind string, status int, contentType string, body []byte) {
	u.finish(kind)
	respond(w, status, contentType, body)
}

// refuse sends an error of NHTSA's front end.
func (u *underWay) refuse(w http.ResponseWriter, e *apiError) {
	u.finish(e.kind)
	refuse(w, e)
}

// broken tells that the stand-in itself does not work.
func (u *underWay) broken(w http.ResponseWriter, err error) {
	u.respond(w, AnswerFailed, http.StatusInternalServerError, plainType, fmt.Appendf(nil, "vpic-standin: %v\n", err))
}

// enter asks the quota. leave gives the place back; it is also given back when the
// caller hangs up.
func (s *Server) enter(ctx context.Context) (faults *faultState, leave func(), refused string, after RetryAfter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refused, after = s.faults.admit(s.now(), s.running)
	if refused != "" {
		return s.faults, nil, refused, after
	}
	s.running++
	once := sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running--
	})
	stop := context.AfterFunc(ctx, once)
	return s.faults, func() { stop(); once() }, "", RetryAfter{}
}

// decode answers a healthy call.
func (s *Server) decode(ctx context.Context, call apiCall) (answer, string, error) {
	a := answer{Count: s.count, Message: successMessage, SearchCriteria: call.criteria()}
	if call.batch {
		a.Count = len(call.queries)
		switch n := len(call.queries); {
		case n == 0:
			a.Message = emptyBatchError
			return a, AnswerBadRequest, nil
		case n > maxBatch:
			a.Count, a.Message = 0, tooManyVINs
			return a, AnswerBadRequest, nil
		}
	}
	for _, q := range call.queries {
		row, err := s.decoder.Decode(ctx, q)
		if err != nil {
			return answer{}, "", err
		}
		a.Results = append(a.Results, row)
	}
	return a, AnswerDecoded, nil
}

// failBefore handles the faults that need no decode. It gives false for the others.
func (s *Server) failBefore(u *underWay, w http.ResponseWriter, r *http.Request, rule Rule) bool {
	kind := string(rule.Kind)
	page := func(status int, text string) {
		s.setRetryAfter(w, rule.RetryAfter)
		u.respond(w, kind, status, htmlType, htmlPage(http.StatusText(status), text))
	}
	switch rule.Kind {
	case HTTP429:
		page(http.StatusTooManyRequests, "The rate of calls is controlled.")
	case HTTP403:
		page(http.StatusForbidden, "You do not have permission to access this service.")
	case HTTP503:
		page(http.StatusServiceUnavailable, "The service is down for maintenance.")
	case HTTP504:
		page(http.StatusGatewayTimeout, "The service did not answer in time.")
	case Reset:
		u.hijack(w, rule.Kind, nil, true)
	case Hang:
		// Ends when the caller hangs up, or when the server stops.
		<-r.Context().Done()
		u.finish(kind)
	default:
		return false
	}
	return true
}

// What a wrong row shows: VINs of nobody, from 49 CFR 565 and the test of its sums.
const (
	otherVIN      = "1M8GDM9AXKP042788"
	yetAnotherVIN = "11111111111111111"
)

// failWith spoils a decoded answer.
func (s *Server) failWith(u *underWay, w http.ResponseWriter, r *http.Request, rule Rule, index int, call apiCall, a answer) {
	switch rule.Kind {
	case XML:
		call.format = formatXML
	case WrongVIN:
		if n := max(index, 0); n < len(a.Results) {
			if a.Results[n]["VIN"] = otherVIN; strings.EqualFold(call.queries[n].VIN, otherVIN) {
				a.Results[n]["VIN"] = yetAnotherVIN
			}
		}
	case ErrorMessage:
		a.Count, a.Results, a.Message = 0, nil, pre1981Message
		if rule.Message != "" {
			a.Message = rule.Message
		}
	}
	body, contentType, err := a.encode(call.format)
	if err != nil {
		u.broken(w, err)
		return
	}
	half := body[:len(body)/2]
	begun := func() []byte {
		header := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nServer: %s\r\n%s: 1\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
			serverName, markerHeader, contentType, len(body))
		return append(header, half...)
	}
	switch rule.Kind {
	case Truncated:
		u.respond(w, string(rule.Kind), http.StatusOK, contentType, half)
	case ShortBody:
		u.hijack(w, rule.Kind, begun(), false)
	case ResetMidBody:
		u.hijack(w, rule.Kind, begun(), true)
	case SlowBody:
		s.drip(u, w, r, contentType, body, time.Duration(rule.Over))
	default:
		u.respond(w, string(rule.Kind), http.StatusOK, contentType, body)
	}
}

// drips is in how many pieces a slow body comes.
const drips = 20

// drip sends the header at once, and the body in pieces, the last one when all the
// time is over.
func (s *Server) drip(u *underWay, w http.ResponseWriter, r *http.Request, contentType string, body []byte, over time.Duration) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	err := out.Flush()
	for i := 0; i < drips && err == nil; i++ {
		if err = s.sleep(r.Context(), over/drips); err != nil {
			break
		}
		if i == drips-1 {
			u.finish(string(SlowBody))
		}
		if _, err = w.Write(body[len(body)*i/drips : len(body)*(i+1)/drips]); err == nil {
			err = out.Flush()
		}
		if i == drips-1 {
			return
		}
	}
	u.finish(AnswerClientGone)
}

// hijack takes the connection from the server, sends what there is, and ends it: by
// a reset, or in order.
func (u *underWay) hijack(w http.ResponseWriter, kind Kind, send []byte, reset bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		u.broken(w, fmt.Errorf("%s needs HTTP/1: %w", kind, err))
		return
	}
	defer conn.Close()
	u.finish(string(kind))
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		defer tcp.SetLinger(0) // closing then sends RST
	}
	_, _ = conn.Write(send) // fails if the caller hung up: the connection ends either way
}

func refuse(w http.ResponseWriter, e *apiError) {
	body, err := marshal(struct {
		Message string `json:"message"`
		Detail  string `json:"messageDetail,omitempty"`
	}{e.message, e.detail})
	if err != nil {
		respond(w, http.StatusInternalServerError, plainType, []byte(err.Error()+"\n"))
		return
	}
	if e.allow != "" {
		w.Header().Set("Allow", e.allow)
	}
	respond(w, e.status, jsonType, body)
}

func (s *Server) setRetryAfter(w http.ResponseWriter, r RetryAfter) {
	if r.After == nil {
		return
	}
	after := time.Duration(*r.After)
	if r.AfterAs == AsDate {
		w.Header().Set("Retry-After", s.now().Add(after).UTC().Format(http.TimeFormat))
		return
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(after/time.Second)))
}

func respond(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	// An error here is the caller's hanging up; nobody is left to tell.
	_, _ = w.Write(body)
}
