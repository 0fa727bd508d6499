package gate

import "time"

// Route is the first letter of a bulkhead key.
type Route string

const (
	Interactive Route = "interactive"
	Batch       Route = "batch"
)

// Key names a bulkhead: a route and a tenant. Tenant "anon" is shared by all anonymous callers.
type Key struct {
	Route  Route
	Tenant string
}

// Request asks for one upstream call.
type Request struct {
	ID      string // lease id and idempotency key, begins with the tenant's flow; made by the store when empty
	Key     Key
	Ceiling int // places of the key, queued or live; 0 takes the knobs' value for the key
	Cost    int // tokens; 0 means 1

	Own          int           // places of the key that the tenant may hold, queued or live, where others share the key; 0: no bound but the key's
	Tenant       string        // for whom the line is fair: a tenant, an address; "" is the key's tenant
	Weight       int           // 1-10; 0 means 1
	Patience     time.Duration // longest wait in the line; 0 takes a place that is free now, or none
	BulkheadWait time.Duration // longest wait for one of the key's own places, before the line

	// Shy, 0 to 1, is set by a store that met others at the last token or the last place in the line: how much of what is
	// scarce to leave to them, 1 being half the bucket or a quarter of the line. Neither is lost: a token not taken stays in the bucket.
	Shy float64

	// Optional is for work that nobody needs now: it does not wait, and takes nothing that somebody else might miss: not the last free slot of
	// several, and no token of the bucket's last half.
	Optional bool
}

// Lease is a granted slot. A call under it starts at or before StartBy and is over before CallBy, both on this instance's wall clock.
type Lease struct {
	ID      string
	Key     Key
	Granted time.Time
	StartBy time.Time // P2: a call not started by then is abandoned, its token spent
	CallBy  time.Time // the upstream deadline: lease end - 2 x skew bound - margin
	End     time.Time
}

// Cause says which check refused.
type Cause string

const (
	Held         Cause = "held"          // NHTSA asked for a pause, or fails
	BulkheadFull Cause = "bulkhead-full" // the key's own places
	OwnFull      Cause = "own-full"      // those of them that one tenant may hold
	QueueFull    Cause = "queue-full"
	FlowFull     Cause = "flow-full"   // the share of the line that one flow may hold
	NoToken      Cause = "no-token"    // shared rate
	NoSlot       Cause = "no-slot"     // shared concurrency
	NoKeySlot    Cause = "no-key-slot" // the share of it that the key, or the batch route, may hold
)

// HoldReason says why the gate is held.
type HoldReason string

const (
	HoldThrottled HoldReason = "throttled"
	HoldFailing   HoldReason = "failing"
	HoldStarting  HoldReason = "starting" // a gate made on old tables waits one lease time
	HoldOperator  HoldReason = "operator"
)

// Refusal is a denial: a value, not an error.
type Refusal struct {
	Cause      Cause
	Hold       HoldReason    // with Held
	RetryAfter time.Duration // whole seconds, at least 1 s
	Token      time.Duration // until the caller's token would be there, not rounded; 0 where that was not reckoned
	Waited     time.Duration
	Estimated  bool // decided from a view that may be old, rather than exact
}

// AtTheDoor tells a refusal for places of the caller's own, which it may wait for outside the line. A nil one is none.
func (r *Refusal) AtTheDoor() bool {
	return r != nil && (r.Cause == BulkheadFull || r.Cause == OwnFull)
}

// OutcomeKind says how the call under a lease ended.
type OutcomeKind string

const (
	Succeeded OutcomeKind = "succeeded"
	Throttled OutcomeKind = "throttled" // 429, 403
	Failed    OutcomeKind = "failed"    // connection, 5xx, timeout
	Abandoned OutcomeKind = "abandoned" // no call was made, or one that says nothing about NHTSA's health: cut short by us, or answered unusably
)

// Outcome is carried by the release.
type Outcome struct {
	Kind       OutcomeKind
	RetryAfter time.Duration // with Throttled: NHTSA's own, 0 when it gave none
	Blocked    bool          // with Throttled: 403
	Took       time.Duration // of the upstream call, 0 when none was made
}

// View is what the outside may see of a gate: no tenant names.
type View struct {
	Knobs        Knobs         // in force
	Limit        int           // slots in force
	InFlight     int           // live leases not yet past their end
	Tokens       int           // whole calls that could start now by rate
	NextToken    time.Duration // until there is one more, 0 when there are as many as there can be
	Queued       int
	HeldFor      time.Duration // 0 when not held
	Hold         HoldReason
	KnobsVersion int
	ReadAt       time.Time
}
