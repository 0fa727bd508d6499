//go:build race

package dynamo

// Load in virtual time is thousands of calls of the SDK, which the race detector makes three times slower. `make test` offers it without.
const raceDetector = true
