//go:build race

package results

// The explorer is one goroutine: the race detector finds nothing in it and makes it ten times slower. `make test` runs it once more without.
const raceDetector = true
