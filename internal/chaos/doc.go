// Package chaos puts the whole product under fire and judges what came of it from outside.
//
// A Plan is a value drawn from a seed: which faults strike when, and who asks for what. Run plays it against real processes: built
// bootstraps under locallambda, a store behind proxies, the stand-in for NHTSA. What it returns, the Evidence, is only what can be seen from
// outside: the stand-in's own log of calls, every answer that somebody got, every write that the store applied to the shared budget, and
// when which process was killed or stopped. Judge holds the promises of docs/design.md against it. Answers are digested and writes put into a Book as
// they come, so that a run of hours keeps its leases and what was said of each call, and no states or bodies.
//
// It promises: the same seed draws the same plan; Judge is a pure function; what it excuses (a process that was stopped by force between its
// last look at the clock and the socket, or past its lease; of a bound in wall time, what the machine was measured to be late) it counts and names; a promise that nothing was seen of is said to be unseen, never
// held. How the machine interleaves what a plan asks for is not the seed's: a run that broke a promise may need more than one more to do it again.
package chaos
