// Package api is the client of vingate's own HTTP API, for programs that ask it from outside.
//
// It promises that one call is one HTTP request, never repeated and never redirected; that an answer is handed out only for the VIN it was
// asked for, and a body that does not hold together is an error and no answer; that a refusal is a value with its code, its sentence and the
// time after which it may be repeated; and that no error holds the API key.
package api

import (
	"fmt"
	"net/http"
	"time"
)

// MaxBatch is the most VINs that one call takes.
const MaxBatch = 50

// Question is a VIN to be decoded.
type Question struct {
	VIN       string // in the form that vin.Parse gives
	ModelYear int    // 0 when none is given
}

// Answer is NHTSA's answer for a VIN, as vingate gives it.
type Answer struct {
	VIN          string            `json:"vin"`
	ModelYear    *int              `json:"modelYear"`
	Make         *string           `json:"make"`
	Model        *string           `json:"model"`
	Outcome      string            `json:"outcome"` // clean, warned, partial or unknown; see package vpic
	Summary      string            `json:"summary"`
	Sentence     string            `json:"sentence"` // what the answer amounts to, in words
	Remarks      []string          `json:"remarks"`  // what NHTSA remarked, in words
	Codes        []int             `json:"codes"`
	Messages     []string          `json:"messages"`
	SuggestedVIN *string           `json:"suggestedVin"`
	Fields       map[string]string `json:"fields"` // NHTSA's own names and texts, without the blank ones
	Provenance   Provenance        `json:"provenance"`
	Advice       []Advice          `json:"advice,omitempty"`
}

// Provenance says where an answer comes from and how old it is.
type Provenance struct {
	Source     string    `json:"source"` // nhtsa or cache
	FetchedAt  time.Time `json:"fetchedAt"`
	AgeSeconds int64     `json:"ageSeconds"`
	Stale      bool      `json:"stale"`
}

// Advice is a remark about the VIN itself, which decides nothing.
type Advice struct {
	Code     string `json:"code"`
	Position int    `json:"position"`
	Message  string `json:"message"`
}

// Problem is a refusal (RFC 9457).
type Problem struct {
	Status            int    `json:"status"`
	Code              string `json:"code"` // "" when something in front of vingate refused
	Title             string `json:"title"`
	Detail            string `json:"detail"`
	RetryAfterSeconds int64  `json:"retryAfterSeconds,omitempty"`
	WaitedMs          int64  `json:"waitedMs"`
	Scope             string `json:"scope,omitempty"`
	Suggestion        string `json:"suggestion,omitempty"`
}

func (p *Problem) Error() string {
	if p.Code == "" {
		return p.Detail
	}
	return p.Code + ": " + p.Detail
}

// longestWait is the most that is believed of a Retry-After.
const longestWait = 30 * 24 * time.Hour

// RetryAfter is how long to wait before the question may be asked again; 0 when the refusal does not say.
func (p *Problem) RetryAfter() time.Duration {
	return time.Duration(min(max(p.RetryAfterSeconds, 0), int64(longestWait/time.Second))) * time.Second
}

// Passing says that the same question may be answered later. What does not pass stands however often it is asked.
func (p *Problem) Passing() bool { return p.Status == http.StatusTooManyRequests || p.Status >= 500 }

// Shared says that the refusal is about the caller or about vingate as a whole, not about this one VIN: other VINs would be refused alike.
func (p *Problem) Shared() bool {
	return p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable
}

// Result is what became of one question: an Answer or a Problem.
type Result struct {
	Answer  *Answer
	Problem *Problem
}

// UnreachableError: no answer came. Whether the question arrived is not known.
type UnreachableError struct {
	URL string // of the API
	Err error
}

func (e *UnreachableError) Error() string { return fmt.Sprintf("%s does not answer: %v", e.URL, e.Err) }

func (e *UnreachableError) Unwrap() error { return e.Err }

// ForeignError: what answers does not speak as vingate does.
type ForeignError struct {
	URL    string
	Reason string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s does not answer as vingate does: %s", e.URL, e.Reason)
}
