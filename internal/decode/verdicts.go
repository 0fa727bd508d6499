package decode

import (
	"errors"
	"fmt"
	"time"

	"vingate/internal/gate"
	"vingate/internal/vin"
	"vingate/internal/vpic"
)

// errLate: the lease came, but the time was over before its call could start.
var errLate = errors.New("the lease came too late for its call")

// errCutShort: NHTSA did not answer, but had less than the usual time. It says nothing about NHTSA.
var errCutShort = errors.New("the call was ended before its usual time")

// outcomeOf is what a call says about NHTSA, for the shared budget. Only NHTSA's own behaviour counts: a call that we cut
// short, never sent or cannot make sense of changes neither pace nor pause.
func outcomeOf(quota vpic.Quota, took time.Duration, err error, cutShort bool) (gate.Outcome, error) {
	if err == nil {
		if quota.Exhausted {
			return gate.Outcome{Kind: gate.Throttled, RetryAfter: quota.RetryAfter, Took: took}, nil
		}
		return gate.Outcome{Kind: gate.Succeeded, Took: took}, nil
	}
	var e *vpic.Error
	if !errors.As(err, &e) {
		return gate.Outcome{Kind: gate.Abandoned}, err
	}
	ours := e.Kind == vpic.Canceled || e.Kind == vpic.Timeout && cutShort
	outcome := gate.Outcome{Kind: gate.Abandoned, Took: e.Took}
	switch {
	case e.Kind == vpic.Throttled || e.RetryAfter > 0: // any Retry-After stops everybody until then
		outcome.Kind, outcome.RetryAfter, outcome.Blocked = gate.Throttled, e.RetryAfter, e.Blocked
	case e.Kind == vpic.Unavailable, e.Kind == vpic.Timeout && !ours: // no answer, or not even a connection
		outcome.Kind = gate.Failed
	}
	switch {
	case ours && e.Started:
		err = errCutShort
	case ours:
		err = errLate
	}
	return outcome, err
}

// forLog is what the log may say about a call's error. The client's own errors are fit for it; of any other only the type is.
func forLog(err error) string {
	var e *vpic.Error
	if errors.As(err, &e) || errors.Is(err, errLate) || errors.Is(err, errCutShort) {
		return err.Error()
	}
	return fmt.Sprintf("%T", err)
}

// fromUpstream is the refusal for a call without an answer. Nothing of what NHTSA sent is in it.
func fromUpstream(err error) *Refusal {
	var e *vpic.Error
	switch {
	case errors.Is(err, errLate):
		r := refuse(RateLimited, sayLate, retrySoon)
		r.Scope = ScopeUpstream
		return r
	case errors.Is(err, errCutShort):
		return refuse(UpstreamTimeout, sayCutShort, retryFault)
	case !errors.As(err, &e):
		return NewInternal()
	}
	switch e.Kind {
	case vpic.NotStarted:
		return fromUpstream(errLate)
	case vpic.Throttled:
		sentence, wait := sayThrottled, gate.PauseThrottled
		if e.Blocked {
			sentence, wait = sayBlocked, gate.PauseBlocked
		}
		if e.RetryAfter > 0 {
			wait = e.RetryAfter
		}
		return refuse(UpstreamThrottled, sentence, wait)
	case vpic.Unavailable:
		return refuse(UpstreamUnavailable, sayUnavailable, max(retryFault, e.RetryAfter))
	case vpic.Timeout:
		if !e.Started { // all of the call's time went by without a connection
			return refuse(UpstreamUnavailable, sayUnavailable, retryFault)
		}
		return refuse(UpstreamTimeout, sayTimeout, max(retryFault, e.RetryAfter))
	case vpic.BadResponse:
		return refuse(UpstreamBadResponse, sayBadResponse, max(retryFault, e.RetryAfter))
	}
	return NewInternal() // a query that the client does not send: package vin let through what it must not
}

// fromGate is the refusal for a denial of the shared budget. Our own limits are never called NHTSA's, nor the reverse.
func fromGate(d *gate.Refusal, key gate.Key) *Refusal {
	budget := func(sentence string) *Refusal {
		r := refuse(RateLimited, sentence, d.RetryAfter)
		r.Scope = ScopeUpstream
		return r
	}
	switch d.Cause {
	case gate.Held:
		switch d.Hold {
		case gate.HoldThrottled:
			return refuse(UpstreamThrottled, HoldSentence(d.Hold), d.RetryAfter)
		case gate.HoldFailing:
			return refuse(UpstreamUnavailable, HoldSentence(d.Hold), d.RetryAfter)
		}
		return budget(HoldSentence(d.Hold))
	case gate.OwnFull:
		return refuse(BulkheadTimeout, sayBulkheadOwn, d.RetryAfter)
	case gate.BulkheadFull:
		if key.Tenant == gate.Anonymous {
			return refuse(BulkheadTimeout, sayBulkheadAnon, d.RetryAfter)
		}
		return refuse(BulkheadTimeout, sayBulkhead, d.RetryAfter)
	case gate.QueueFull, gate.FlowFull:
		return refuse(QueueFull, sayQueueFull, d.RetryAfter)
	case gate.NoSlot, gate.NoKeySlot:
		return refuse(WaitTimeout, sayWaitTimeout, d.RetryAfter)
	}
	return budget(sayBudget)
}

// about says whom a denial of the shared budget is about. A cause to come is nobody else's before it is listed here.
func about(d *gate.Refusal) verdict {
	switch d.Cause {
	case gate.Held, gate.QueueFull, gate.NoToken, gate.NoSlot:
		return onEveryone
	case gate.BulkheadFull, gate.NoKeySlot:
		return onKey
	case gate.FlowFull, gate.OwnFull:
		return onTenant
	}
	return onRequest
}

func vinInvalid(err error) *Refusal {
	var e *vin.Error
	if !errors.As(err, &e) {
		return NewInternal()
	}
	r := final(VINInvalid, e.Message)
	r.Position, r.Character, r.Suggestion = e.Position, e.Character, e.Suggestion
	return r
}
