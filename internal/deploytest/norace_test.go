//go:build !race

package deploytest

const raced = false
