//go:build !chaos

package main

import (
	"time"

	"vingate/internal/decode"
)

// wallClock is the instance's clock.
func wallClock() func() time.Time { return time.Now }

// underTest changes nothing in what is shipped; built with the tag chaos it does, on demand.
func underTest(cfg decode.Config) decode.Config { return cfg }
