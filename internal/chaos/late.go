package chaos

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	canarySleep = 10 * time.Millisecond
	lateSlot    = 100 * time.Millisecond // what was measured is kept by such slots
)

// Lateness is how late the machine ran those who wanted to run, as a canary saw it: a goroutine that does nothing but sleep for 10 ms and look how late
// it wakes. What the judge bounds in wall time is as late as the canary was at the time, and no later.
type Lateness struct {
	From  time.Time
	Slots []Late // one after another, of 100 ms each
}

// Late is one slot.
type Late struct {
	Sum, Most time.Duration
}

// add notes a sleep that was to end at due and ended later than that by so much. A long one lies in all the slots that it touches.
func (l *Lateness) add(due time.Time, late time.Duration) {
	for rest := late; rest > 0; {
		n := int(due.Sub(l.From) / lateSlot)
		if n < 0 {
			return
		}
		for len(l.Slots) <= n {
			l.Slots = append(l.Slots, Late{})
		}
		part := min(rest, l.From.Add(time.Duration(n+1)*lateSlot).Sub(due))
		l.Slots[n].Sum += part
		l.Slots[n].Most = max(l.Slots[n].Most, late)
		due, rest = due.Add(part), rest-part
	}
}

// Between is what somebody who had to wake often between two moments was kept waiting in all, and at most at once.
func (l Lateness) Between(from, until time.Time) (sum, most time.Duration) {
	first, last := max(0, int(from.Sub(l.From)/lateSlot)), int(until.Sub(l.From)/lateSlot)
	for n := first; n <= last && n < len(l.Slots); n++ {
		sum, most = sum+l.Slots[n].Sum, max(most, l.Slots[n].Most)
	}
	return sum, most
}

// canary measures until it is stopped.
type canary struct {
	mu       sync.Mutex
	l        Lateness
	pressure time.Duration // of the machine when it began, see stalled
}

func newCanary() *canary { return &canary{l: Lateness{From: time.Now()}, pressure: stalled()} }

func (c *canary) run(ctx context.Context) {
	for ctx.Err() == nil {
		due := time.Now().Add(canarySleep)
		time.Sleep(canarySleep)
		c.mu.Lock()
		c.l.add(due, time.Since(due))
		c.mu.Unlock()
	}
}

// measured is what it saw so far, and the share of the time in which anybody waited for a processor: 0 where the kernel does not tell.
func (c *canary) measured() (Lateness, float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.l
	l.Slots = append([]Late(nil), l.Slots...)
	return l, float64(stalled()-c.pressure) / float64(max(1, time.Since(l.From)))
}

// stalled is how long somebody has waited for a processor since the machine was started, by the kernel's pressure stall information.
func stalled() time.Duration {
	told, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0
	}
	some, _, _ := strings.Cut(string(told), "\n")
	_, total, _ := strings.Cut(some, "total=")
	us, _ := strconv.ParseInt(strings.TrimSpace(total), 10, 64)
	return time.Duration(us) * time.Microsecond
}
