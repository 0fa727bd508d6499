package decode

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"vingate/internal/gate"
)

// Code is the machine word of a refusal, the same on every face of the product.
type Code string

const (
	VINInvalid          Code = "VIN_INVALID"
	ModelYearInvalid    Code = "MODEL_YEAR_INVALID"
	RequestInvalid      Code = "REQUEST_INVALID"
	BodyTooLarge        Code = "BODY_TOO_LARGE"
	MediaUnsupported    Code = "MEDIA_TYPE_UNSUPPORTED"
	FormatUnsupported   Code = "FORMAT_UNSUPPORTED"
	BatchTooLarge       Code = "BATCH_TOO_LARGE"
	VINRepeated         Code = "VIN_REPEATED"
	APIKeyUnknown       Code = "API_KEY_UNKNOWN"
	APIKeyRevoked       Code = "API_KEY_REVOKED"
	NotStored           Code = "NOT_STORED"
	RateLimited         Code = "RATE_LIMITED"
	BulkheadTimeout     Code = "BULKHEAD_TIMEOUT"
	QueueFull           Code = "DECODE_QUEUE_FULL"
	WaitTimeout         Code = "DECODE_WAIT_TIMEOUT"
	UpstreamThrottled   Code = "UPSTREAM_THROTTLED"
	UpstreamUnavailable Code = "UPSTREAM_UNAVAILABLE"
	UpstreamTimeout     Code = "UPSTREAM_TIMEOUT"
	UpstreamBadResponse Code = "UPSTREAM_BAD_RESPONSE"
	CoordinationDown    Code = "COORDINATION_UNAVAILABLE"
	Internal            Code = "INTERNAL"
	ResourceNotFound    Code = "NOT_FOUND"
	MethodNotAllowed    Code = "METHOD_NOT_ALLOWED"
	EventUnsupported    Code = "EVENT_UNSUPPORTED"
)

// Scope says whose limit a RATE_LIMITED refusal is about.
type Scope string

const (
	ScopeTenant   Scope = "tenant"          // the caller's own
	ScopeUpstream Scope = "upstream-budget" // the budget all callers share
)

// Refusal is an answer without a decode. It never holds anything about a vehicle.
type Refusal struct {
	Code     Code
	Scope    Scope  // with RateLimited
	Sentence string // why, for a person

	RetryAfter time.Duration // whole seconds, at least 1 s; 0 when trying again changes nothing
	Waited     time.Duration // from the request's arrival to the refusal

	// With VINInvalid, from package vin.
	Position   int
	Character  string
	Suggestion string
}

func (r *Refusal) Error() string { return string(r.Code) + ": " + r.Detail() }

// Detail is what a person reads: why, and when to try again.
func (r *Refusal) Detail() string {
	if r.RetryAfter == 0 {
		return r.Sentence
	}
	return r.Sentence + fmt.Sprintf(sayTryAgain, InWords(r.RetryAfter))
}

// in says which of many the refusal is about, counted from 1.
func (r *Refusal) in(entry int) *Refusal {
	one := *r
	one.Sentence = fmt.Sprintf(sayEntry, entry, r.Sentence)
	return &one
}

// kinds is the one place where a code has its status and its title. Sentences are below.
var kinds = map[Code]struct {
	status int
	title  string
}{
	VINInvalid:          {http.StatusBadRequest, "Not a VIN"},
	ModelYearInvalid:    {http.StatusBadRequest, "Not a model year"},
	RequestInvalid:      {http.StatusBadRequest, "Not a list of VINs"},
	BodyTooLarge:        {http.StatusRequestEntityTooLarge, "Too large"},
	MediaUnsupported:    {http.StatusUnsupportedMediaType, "Not in this form"},
	FormatUnsupported:   {http.StatusNotAcceptable, "JSON only"},
	BatchTooLarge:       {http.StatusRequestEntityTooLarge, "Too many VINs at once"},
	VINRepeated:         {http.StatusTooManyRequests, "One model year at a time"},
	APIKeyUnknown:       {http.StatusUnauthorized, "Unknown API key"},
	APIKeyRevoked:       {http.StatusForbidden, "Revoked API key"},
	NotStored:           {http.StatusNotFound, "No stored answer"},
	RateLimited:         {http.StatusTooManyRequests, "Decodes are limited here"},
	BulkheadTimeout:     {http.StatusTooManyRequests, "Earlier lookups still running"},
	QueueFull:           {http.StatusTooManyRequests, "Busy: the line is full"},
	WaitTimeout:         {http.StatusTooManyRequests, "Busy: no free place in time"},
	UpstreamThrottled:   {http.StatusServiceUnavailable, "NHTSA asks to slow down"},
	UpstreamUnavailable: {http.StatusServiceUnavailable, "NHTSA cannot be reached"},
	UpstreamTimeout:     {http.StatusGatewayTimeout, "NHTSA did not answer in time"},
	UpstreamBadResponse: {http.StatusBadGateway, "NHTSA's answer is unusable"},
	CoordinationDown:    {http.StatusServiceUnavailable, "Our own bookkeeping is down"},
	Internal:            {http.StatusInternalServerError, "Something went wrong here"},
	ResourceNotFound:    {http.StatusNotFound, "Nothing here"},
	MethodNotAllowed:    {http.StatusMethodNotAllowed, "Method not allowed"},
	EventUnsupported:    {http.StatusInternalServerError, "Unsupported event"},
}

// Codes lists every code, in alphabetical order.
func Codes() []Code { return slices.Sorted(maps.Keys(kinds)) }

// Status is the HTTP status of the code.
func (c Code) Status() int {
	if k, ok := kinds[c]; ok {
		return k.status
	}
	return http.StatusInternalServerError
}

// Title is the code in a few words, the same each time.
func (c Code) Title() string { return kinds[c].title }

// Reasons of a refusal in the sentences a person reads. Every face of the product takes them from here.
const (
	sayQueueFull    = "vingate is busy: the line for NHTSA is full."
	sayWaitTimeout  = "vingate is busy: no free place at NHTSA came in time."
	sayFollowing    = "vingate is busy: somebody else asks for the same VIN, and the answer did not come in the time that was left for this request."
	sayBulkhead     = "You are busy: your own earlier lookups are still running."
	sayBulkheadOwn  = "You are busy: earlier lookups from your address are still running."
	sayBulkheadAnon = "Lookups without an API key share a few places, and all of them are taken by earlier ones."
	sayTenant       = "These are too many decodes from you in a short time."
	sayBudget       = "Decodes are limited here to protect the quota that NHTSA gives everybody."
	sayStarting     = "vingate has just been set up and waits until nothing can be left of earlier calls to NHTSA."
	sayOperator     = "The operator of this service has paused calls to NHTSA for a while."
	sayLate         = "The place for this call to NHTSA came, but too late to be used without harm to the quota that NHTSA gives everybody."
	sayThrottled    = "NHTSA asked us to slow down."
	sayBlocked      = "NHTSA refuses calls from this service at the moment, so we keep away from it for a while."
	sayUnavailable  = "NHTSA cannot be reached at the moment."
	sayTimeout      = "NHTSA did not answer in time."
	sayTooSlow      = "NHTSA did not answer in time for this VIN twice in a row, so it is not asked again for a while."
	sayCutShort     = "NHTSA did not answer in the time that was left for this request."
	sayBadResponse  = "NHTSA answered something unusable, so there is nothing to show."
	sayCoordination = "Our own bookkeeping is down, and we do not call NHTSA without it."
	sayStoreDown    = "Our own bookkeeping is down, so nobody can say whether an answer for this VIN is stored here."
	sayInternal     = "Something went wrong here. It has been recorded."
	sayNotStored    = "No answer for this VIN is stored here. Only an ordinary GET request asks NHTSA."
	sayKeyUnknown   = "The API key in X-Api-Key is not known. Without that header you decode as an anonymous caller."
	sayKeyRevoked   = "The API key in X-Api-Key has been revoked. Ask the operator of this service for another one."
	sayNoSuchCall   = "Of NHTSA's API this service has DecodeVinValues, DecodeVinValuesExtended and DecodeVINValuesBatch."
	sayNotFound     = "There is nothing under this path. A decode is GET /v1/vins/{vin}."
	sayEventFormat  = "This function takes API Gateway HTTP API events in payload format 2.0 only."
	sayModelYear    = "The model year must be one number from %d to %d."
	sayMethod       = "This path does not take %s."
	sayBodyLarge    = "A request takes up to %d KiB, and this is more."
	sayMediaType    = "The body of this request must be %s, and say so in Content-Type."
	sayFormat       = "vingate answers in JSON only. Leave format out, or say format=json."
	sayBatchLarge   = "One request takes up to %d VINs. Send the rest in another one."
	sayEntry        = "VIN %d of this request: %s"
	sayVINRepeated  = "This VIN is in the request with another model year too, and one call to NHTSA answers one model year for a VIN."
	sayRefreshing   = ": a newer one is asked for when there is a free place."
	sayUnrefreshed  = ", and could not be refreshed just now (%s)."
	sayTryAgain     = " Try again in %s."
)

// refuse makes a refusal that can be repeated after a while. The time is rounded up to whole seconds, at least one.
func refuse(code Code, sentence string, retryAfter time.Duration) *Refusal {
	return &Refusal{Code: code, Sentence: sentence, RetryAfter: gate.RetryAfter(retryAfter)}
}

// busy is the refusal for a request whose own time ended, or would end, before a place at NHTSA came.
func busy() *Refusal { return refuse(WaitTimeout, sayWaitTimeout, retrySoon) }

// final makes a refusal that stands however often it is asked for.
func final(code Code, sentence string) *Refusal { return &Refusal{Code: code, Sentence: sentence} }

// NewInternal is the refusal for a fault of our own. It says nothing of the fault, which belongs into the log.
func NewInternal() *Refusal { return final(Internal, sayInternal) }

// NewAPIKeyUnknown refuses a caller who shows a key nobody was given.
func NewAPIKeyUnknown() *Refusal { return final(APIKeyUnknown, sayKeyUnknown) }

// NewAPIKeyRevoked refuses a caller who shows a key that was good once.
func NewAPIKeyRevoked() *Refusal { return final(APIKeyRevoked, sayKeyRevoked) }

// NewNotFound refuses a path that is no route.
func NewNotFound() *Refusal { return final(ResourceNotFound, sayNotFound) }

// NewNoSuchCall refuses a call of NHTSA's API that is none here.
func NewNoSuchCall() *Refusal { return final(ResourceNotFound, sayNoSuchCall) }

// NewMethodNotAllowed refuses a method on a route that has others. The word comes from the caller and is cut short.
func NewMethodNotAllowed(method string) *Refusal {
	if len(method) > 20 || method == "" {
		method = "this method"
	}
	return final(MethodNotAllowed, fmt.Sprintf(sayMethod, method))
}

// NewEventUnsupported refuses an event this function does not understand.
func NewEventUnsupported() *Refusal { return final(EventUnsupported, sayEventFormat) }

// NewModelYearInvalid refuses what cannot be a model year now.
func NewModelYearInvalid(now time.Time) *Refusal {
	return final(ModelYearInvalid, fmt.Sprintf(sayModelYear, FirstModelYear, LastModelYear(now)))
}

// Fault is why a body is no list of VINs, in the sentence a person reads. Those with %d are about one entry, counted from 1.
type Fault string

const (
	FaultEmpty       Fault = "There is no VIN in this request."
	FaultNotJSON     Fault = "The body cannot be read as JSON."
	FaultNoObject    Fault = `The body must be one JSON object, such as {"vins":["1HGCM82633A004352"]}, with nothing behind it.`
	FaultNoList      Fault = `"vins" must be a list of VINs.`
	FaultMember      Fault = `The body has a member that is not known here; it takes "vins" alone.`
	FaultTwice       Fault = "The body names a member twice, so nobody can say which is meant."
	FaultEntry       Fault = `Entry %d of "vins" is neither a text nor an object with "vin" and "modelYear".`
	FaultNumber      Fault = `Entry %d of "vins" is a number. A VIN is a text: as a number it loses letters, zeros and digits.`
	FaultEntryMember Fault = `Entry %d of "vins" has a member that is not known here; it takes "vin" and "modelYear".`
	FaultEntryTwice  Fault = `Entry %d of "vins" names a member twice, so nobody can say which is meant.`
	FaultEntryVIN    Fault = `Entry %d of "vins" has no "vin" that is a text.`
	FaultEntryYear   Fault = `Entry %d of "vins" has a "modelYear" that is not a number.`
	FaultForm        Fault = "The body cannot be read as a form."
)

// NewRequestInvalid refuses a body that cannot be read as a list of VINs. The entry counts from 1.
func NewRequestInvalid(f Fault, entry int) *Refusal {
	if strings.Contains(string(f), "%d") {
		return final(RequestInvalid, fmt.Sprintf(string(f), entry))
	}
	return final(RequestInvalid, string(f))
}

// NewBodyTooLarge refuses a body of more than limit bytes.
func NewBodyTooLarge(limit int) *Refusal {
	return final(BodyTooLarge, fmt.Sprintf(sayBodyLarge, limit>>10))
}

// NewMediaUnsupported refuses a body of another media type than want.
func NewMediaUnsupported(want string) *Refusal {
	return final(MediaUnsupported, fmt.Sprintf(sayMediaType, want))
}

// NewFormatUnsupported refuses an answer in another format than JSON.
func NewFormatUnsupported() *Refusal { return final(FormatUnsupported, sayFormat) }

// NewNotStored refuses who may cause no call what is not stored.
func NewNotStored() *Refusal { return final(NotStored, sayNotStored) }

// NewBatchTooLarge refuses more VINs than one call takes.
func NewBatchTooLarge() *Refusal { return final(BatchTooLarge, fmt.Sprintf(sayBatchLarge, MaxBatch)) }

// NewCoordinationDown refuses when the shared budget cannot be read or written.
func NewCoordinationDown() *Refusal { return refuse(CoordinationDown, sayCoordination, retryStore) }

// HoldSentence says why all calls are paused.
func HoldSentence(reason gate.HoldReason) string {
	switch reason {
	case gate.HoldThrottled:
		return sayThrottled
	case gate.HoldFailing:
		return sayUnavailable
	case gate.HoldStarting:
		return sayStarting
	}
	return sayOperator
}

// Unrefreshed ends a sentence about a stale answer: why there is no newer one, by the trouble that its refresh met.
func Unrefreshed(trouble Code) string {
	if trouble == "" || trouble == NotStored {
		return sayRefreshing
	}
	return fmt.Sprintf(sayUnrefreshed, trouble.Title())
}

// InWords says whole seconds as a person would.
func InWords(d time.Duration) string {
	s := int(d / time.Second)
	switch {
	case s == 1:
		return "1 second"
	case s < 120:
		return fmt.Sprintf("%d seconds", s)
	case s < 2*60*60:
		return fmt.Sprintf("%d minutes", (s+59)/60)
	}
	return fmt.Sprintf("%d hours", (s+3599)/3600)
}
