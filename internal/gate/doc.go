// Package gate decides who may call NHTSA now. It is pure: state, time and request in, decision out.
//
// # The problem
//
// Any number of instances, none of which knows of the others, share one upstream budget: a rate, a number of calls at once, and
// a fair division of both among tenants. What they share must fit into one item of a store that offers atomic
// conditional writes on single items and nothing else: no server clock, no max(), no push. Instances die, freeze and thaw, their
// clocks differ, and answers get lost.
//
// # States and writes
//
// One State stands for everything that is shared. Every change to it is a Write, a value: a condition on the state it meets and an
// update, applied together or not at all. Package gate/dynamo sends the same writes as DynamoDB expressions. A write is planned on a view
// that may be old; it says exactly what it relies on, mostly as inequalities, so that every writer that still fits
// succeeds.
//
//	Admit    slot, token and place at once, while nobody waits
//	Enqueue  a ticket in the line, and its place
//	Claim    a ticket becomes a lease: slot and token
//	Cancel   a ticket is given up
//	Free     a lease is given back, with what its call taught: hold, cut, growth, failures
//
// Dead leases and expired tickets go with the next write that names them.
//
// # Invariants
//
// Whatever the order in which writes of any number of callers meet the state, once, twice, late or never:
//
//   - Slots. Live leases never outnumber Limit at an admission.
//   - Rate. Calls started within any w number at most Burst + w/T; see below.
//   - Bulkheads. A key holds at most its ceiling of places, of a shared key a flow at most what its requests name; a key at most one slot
//     less than Limit where Limit allows; all batch keys together at most BatchSlots, which is always one less than Limit where Limit allows.
//   - Fair. Over any n grants a flow that waits throughout gets its weight's share, within one grant.
//   - Bounded. The line has at most MaxQueued tickets, of one flow at most a quarter (or eight); every ticket has a deadline.
//   - No leak. Past its end + SkewBound a lease, past its deadline + SkewBound a ticket, may be removed by anybody.
//   - Once. The id is the idempotency key: a write repeated, or landing late, finds its id (or not) and changes nothing. A
//     refusal is not a write.
//   - Yield. While the gate is held, or an operator has paused it, nobody is admitted or queued; while it is held the limit never grows.
//
// # Rate
//
// The bucket is package gcra's (ITU-T I.371). A writer stamps its write with its own clock, which may be off by SkewBound; the write
// may meet the state up to Attempt later; the call may start up to StartGrace after that. So two starts w apart were stamped at
// most w + 2*SkewBound + Attempt + StartGrace apart, and the number of starts in any w is at most
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
// # The line
//
// Fair queuing (Demers, Keshav, Shenker, Analysis and Simulation of a Fair Queueing Algorithm, 1989), self-clocked (Golestani, A
// Self-Clocked Fair Queueing Scheme, 1994): each flow with waiting tickets has a tag, the virtual time at which its first ticket is
// paid for; the smallest tag goes first; virtual time is the tag of the last grant. A flow that joins is tagged
//
//	tag = virtual time + cost/weight
//
// and when a ticket of it is granted, the next one
//
//	tag = max(virtual time, tag) + cost/weight
//
// Among equal tags the one that was set earlier goes first, so that a newcomer waits at most one grant for each flow ahead of it and a
// stream of newcomers takes nobody's turn. Within a flow the older ticket goes first.
//
// Ours differs from the papers in three ways. The tag belongs to the flow, not to the ticket, and is set at the grant, not at
// arrival: a tenant that cancels half of its tickets then loses no turn (with tags fixed at arrival it lost its next twenty). A
// flow without tickets is forgotten, so nobody saves up credit by being idle, and the state stays small. And nobody serves the
// line: a ticket is granted when its owner claims it. The waiter of rank r may claim when r+1 slots and tokens are free, so a dead head
// delays nobody while there is room; where there is none it is passed by those who saw its turn unused for a grace time.
//
// A ticket whose key, or the batch route, is at its share of the slots is passed over and keeps its turn. That share is kept
// exactly without a counter of its own: every admission moves TAT on by a token at least, so a bound on TAT in a claim bounds the
// admissions since the claim's view.
//
// Refused at once is who cannot be served within its patience: the token for its rank, or rank/(limit/latency), comes later.
//
// # Clocks
//
// Every decision takes now as an argument: wall time of the instance, taken anew for each attempt, since a frozen instance
// thaws with an old one. A lease's call must be over at CallBy = end - 2*SkewBound - Margin on the holder's clock, and nobody
// reclaims before end + SkewBound on theirs: with both clocks within SkewBound the call is over before the slot is given away.
//
// A call stopped by force (SIGSTOP, a paused virtual machine) between its last look at the clock and the socket is outside
// of these bounds, as it is for every lease without fencing at the resource.
//
// # Proof
//
// Random histories in virtual time against an oracle that knows the truth; every interleaving of three callers over every write with
// a fault anywhere, in which each clause of each condition is left out once and must be missed; an adversary that reaches the
// window bound exactly; the usual slips, each of which some interleaving must punish; and package gate/dynamo's test that a real
// store applies every write as Holds and Apply say, with its own slips of an expression, each of which it must notice.
package gate
