//go:build race

package deploytest

// raced: these tests run with the race detector, and so do the functions they start.
const raced = true
