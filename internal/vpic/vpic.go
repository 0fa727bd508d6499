// Package vpic is the client of NHTSA's vPIC API and the meaning of its answers.
//
// # One call is one call
//
// Every Decode and every DecodeBatch sends at most one HTTP request, on a
// connection of its own, and repeats nothing: no retry, no redirect, no replay
// by the transport. Who wants a second call asks for a second place in the
// shared budget first.
//
// Proxies named in the environment are not used. A proxy may repeat or cache
// calls on its own, which the budget could not see, and its own 403 or 429 would
// be taken for NHTSA's and stop every instance. Who needs one points BaseURL at it.
//
// # What a call can bring
//
//	decoded       200, JSON, one row with the VIN asked for and a readable ErrorCode
//	Throttled     429, 403 (Blocked)
//	Unavailable   5xx, a redirect, no name, no connection, a connection that broke
//	Timeout       the total, header or caller's deadline passed
//	BadResponse   an answer that cannot be used: another status, not JSON, truncated,
//	              over the cap, the wrong VIN, no row, an ERROR message
//	Canceled      the caller cancelled: says nothing about NHTSA
//	BadQuery      the question was never sent
//
// A redirect counts as Unavailable: it says that the service is not where it was
// (maintenance pages do this), never something about the VIN, and following it
// would be a second call. A connection that did not come about within its own
// deadline, or within Config.Timeout, counts as Unavailable too: the VIN never left.
// Timeout with Started false means that the caller's time was over before NHTSA
// had the question: it says nothing about NHTSA.
//
// No error holds a byte of an upstream body or the VIN that was asked for.
//
// # What an answer means
//
// NHTSA answers 200 for every VIN; what it knows is in the row. The codes come
// from ErrorCode alone, never from ErrorText. The first line that matches wins:
//
//	code 7, or neither Make, Model nor Manufacturer    unknown
//	Make, Model or ModelYear missing                   partial
//	code 6 (incomplete VIN)                            partial: the answer is about a family of
//	                                                   vehicles, also when the model is known
//	codes 0 or 0,10                                    clean
//	anything else                                      warned
//
// NHTSA's own software also calls 1,10 and 1,400 and 1,10,400 clean. To a person a
// check digit that does not compute, or an invalid character, is a warning that
// the VIN may be mistyped, so they are warned here. Notes beside code 0 (9 glider,
// 12 other model year, 14 unexplained characters) make it warned as well.
// A year alone is no knowledge: it may be the caller's own. "Not Applicable" and
// "Not Reported" are no make and no model.
//
// # Who may say something of a vehicle
//
// Nobody but NHTSA. An Answer, a Decoding, a Value and a BatchItem cannot be put together or changed outside of
// this package: they are made of NHTSA's body, by the client or by Read and ReadBatch, or not at all.
//
// # What a person reads
//
// Sentence says what an answer amounts to and Remarks what NHTSA remarked, in words of our own that stand in words.go
// and nowhere else; Messages has NHTSA's. A field is absent, not applicable or reported, and a numeric one is a number or
// nothing. Labels and groups are NHTSA's, from fields.txt; a key that is not there is a text under its own name in GroupOther.
// SuggestedVIN and PossibleValues are passed on, and never used in place of the VIN.
//
// # How strict a body is read
//
// Strict: the envelope is one JSON object with nothing behind it; a single decode
// has exactly one row; the row's VIN is the one asked for, letter case and outer
// blanks aside; ErrorCode is a list of numbers (an empty or unreadable one is a
// BadResponse, for without it nobody can say what the row is worth). Count is
// never looked at: it has meant different things over the years.
//
// Tolerant: null is an empty text, a number or a truth value is its own text, a
// structured value of a key that is not read here is kept as JSON text, and
// unknown keys pass through.
package vpic

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// MaxBatch is the largest number of VINs that NHTSA takes in one batch call.
const MaxBatch = 50

// Query asks for one decode.
type Query struct {
	VIN       string // 1-17 of letters, digits and '*'
	ModelYear int    // 0 when none is given
	Extended  bool   // ask DecodeVinValuesExtended; not possible in a batch
}

// Outcome is what an answer amounts to; the package comment has the table.
type Outcome string

const (
	Clean   Outcome = "clean"   // the vehicle is identified and NHTSA has nothing to say
	Warned  Outcome = "warned"  // the vehicle is identified, with remarks that matter
	Partial Outcome = "partial" // something is known, but not which vehicle
	Unknown Outcome = "unknown" // NHTSA knows nothing of it
)

// Quota is what an answer's headers say about NHTSA's quota.
type Quota struct {
	Exhausted  bool          // nothing is left, or a Retry-After came with a good answer
	RetryAfter time.Duration // clamped to 1 s - 1 h; 0 when NHTSA gave none
}

// Answer is NHTSA's answer to one query, live or kept, and its meaning. What it says of a vehicle cannot be put together
// outside of this package: Read and Client.Decode make it from NHTSA's body, or nobody does.
type Answer struct {
	decoding  // its methods, and nothing that can be assigned
	query     Query
	body      []byte
	Quota     Quota // of a live one; a decoded answer may still be the last one NHTSA wants to give
	FetchedAt time.Time
	Took      time.Duration
}

// decoding is Decoding under a name that others cannot write.
type decoding = Decoding

// Query is the question.
func (a Answer) Query() Query { return a.query }

// Decoding is the answer's meaning. Its methods are the answer's, too.
func (a Answer) Decoding() Decoding { return a.decoding }

// Body is NHTSA's own envelope, verbatim (without a byte order mark). It is a copy; nil where there is no answer.
func (a Answer) Body() []byte { return bytes.Clone(a.body) }

// BatchAnswer holds the rows of a batch call matched to the queries by VIN.
type BatchAnswer struct {
	Items     []BatchItem // one for each query, in the queries' order
	Message   string      // NHTSA's own, of the envelope
	Quota     Quota
	FetchedAt time.Time
	Took      time.Duration
}

// BatchItem is the answer to one query of a batch, and as little to be put together elsewhere as Answer.
//
// Err is nil or a *Error: BadResponse for a row that is missing or cannot be
// used, BadQuery for a query that was left out of the call.
type BatchItem struct {
	decoding
	query Query
	row   []byte
	Err   error
}

// Query is the question.
func (i BatchItem) Query() Query { return i.query }

// Decoding is the row's meaning. Its methods are the item's, too.
func (i BatchItem) Decoding() Decoding { return i.decoding }

// Row is the row as NHTSA sent it. It is a copy; nil where there is none.
func (i BatchItem) Row() []byte { return bytes.Clone(i.row) }

// Kind classifies a call that brought no decoding.
type Kind string

const (
	Throttled   Kind = "throttled"    // NHTSA asks to slow down or blocks
	Unavailable Kind = "unavailable"  // NHTSA cannot be reached or fails
	Timeout     Kind = "timeout"      // no answer in time
	BadResponse Kind = "bad-response" // an answer that cannot be used
	Canceled    Kind = "canceled"     // the caller's context was cancelled
	BadQuery    Kind = "bad-query"    // refused here, before any call
	NotStarted  Kind = "not-started"  // connected after the time to start (WithStartBy): no byte of the request left
)

// Error is every error of the client.
type Error struct {
	Kind       Kind
	Status     int           // HTTP status, 0 when none came
	Blocked    bool          // 403: a block rather than a pace
	RetryAfter time.Duration // clamped to 1 s - 1 h; 0 when NHTSA gave none; also with Unavailable
	Reason     string        // short, for logs; never a byte of an upstream body
	Started    bool          // false when the request surely never left (so nothing was spent upstream)
	Took       time.Duration
	Err        error // the cause where it is safe to show, else nil
}

// Error is fit for a log: bounded, without VIN, URL or upstream text.
func (e *Error) Error() string {
	s := "vpic: " + string(e.Kind)
	if e.Status != 0 {
		s += " (HTTP " + strconv.Itoa(e.Status) + ")"
	}
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	if e.RetryAfter > 0 {
		s += fmt.Sprintf("; retry after %s", e.RetryAfter)
	}
	return s
}

// Unwrap gives the cause, nil when there is none that is safe to show.
func (e *Error) Unwrap() error { return e.Err }

// Config of a client.
type Config struct {
	BaseURL string           // e.g. https://vpic.nhtsa.dot.gov/api/vehicles; see CheckBaseURL
	Timeout time.Duration    // total, per call, above 0
	Contact string           // mail or URL for the User-Agent; may be empty; see CheckContact
	Version string           // of vingate, for the User-Agent; "dev" when empty
	Now     func() time.Time // wall clock; time.Now when nil
}
