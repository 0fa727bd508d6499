// Package gate decides who may call NHTSA now. It is pure: state, time and request in, decision out.
//
// # What it promises
//
// One State stands for everything all instances share about one upstream budget. Every change to it is a Write:
// a condition on the state it meets and an update, applied together or not at all. Package gate/dynamo sends the
// same writes as DynamoDB expressions. Whatever the order in which writes of any number of callers meet the state:
//
//   - Slots. Live leases never outnumber Limit at an admission, because each admission is conditioned on it.
//   - Rate. Calls started within any w number at most Burst + w/T; see below.
//   - Bulkheads. A key holds at most its ceiling of places and at most KeySlots of the live slots; all batch keys
//     together hold at most BatchSlots, always one less than Limit where Limit allows.
//   - No leak. A lease has an end. Past end + SkewBound any admission may name it dead, remove it and take its slot.
//   - Once. The lease id is the idempotency key: a write repeated, or landing late, finds its id (or not) and
//     changes nothing. A refusal is not a write.
//
// # Rate
//
// The bucket is package gcra's. A writer stamps its write with its own clock, which may be off by SkewBound; the write may
// meet the state up to Attempt later; the call may start up to StartGrace after that. So two starts w apart were stamped
// at most w + 2*SkewBound + Attempt + StartGrace apart, and the number of starts in any w is at most
//
//	(w + Tau + H + 2*SkewBound + Attempt + StartGrace)/T + 1
//
// which is within Burst + w/T exactly if
//
//	Tau + H <= (Burst-1)*T - 2*SkewBound - Attempt - StartGrace
//
// Knobs.Bucket takes the right side as the budget. H covers the spread of the views, SkewBound + Attempt, but
// never more than a third of the budget; Tau is the rest. Knobs that leave no budget are refused by Knobs.Validate.
//
// # Clocks
//
// Every decision takes now as an argument: wall time of the instance, taken anew for each attempt, since a frozen instance
// thaws with an old one. A lease's call must be over at CallBy = end - 2*SkewBound - Margin on the holder's clock, and nobody
// reclaims before end + SkewBound on theirs: with both clocks within SkewBound the call is over before the slot is given away.
//
// A call stopped by force (SIGSTOP, a paused virtual machine) between its last look at the clock and the socket is outside
// of these bounds, as it is for every lease without fencing at the resource.
package gate
