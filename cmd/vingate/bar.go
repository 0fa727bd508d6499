//go:build unix

package main

import (
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"vingate/internal/bulk"
	"vingate/internal/console"
)

// bar is a run on a terminal: how far it is, how fast, and what it waits for, counted down.
type bar struct {
	drawing *mpb.Progress
	bar     *mpb.Bar

	mu    sync.Mutex
	state bulk.State // as reported last; its Counts are not looked at
	stop  bool
}

func newBar(w io.Writer, before bulk.Survey) *bar {
	b := &bar{state: bulk.State{Total: before.Total, Done: before.Done}}
	b.drawing = mpb.New(mpb.WithOutput(w), mpb.WithWidth(120), mpb.WithRefreshRate(250*time.Millisecond))
	b.bar = b.drawing.New(int64(before.Total), mpb.BarStyle().Lbound("[").Filler("=").Tip(">").Padding(".").Rbound("]"),
		mpb.PrependDecorators(decor.CountersNoUnit("%d of %d rows ")),
		mpb.AppendDecorators(decor.NewPercentage(" %d"), decor.Any(func(decor.Statistics) string { return b.words() })),
	)
	b.bar.SetCurrent(int64(before.Done))
	return b
}

// words stand behind the bar.
func (b *bar) words() string {
	b.mu.Lock()
	s, stop := b.state, b.stop
	b.mu.Unlock()
	if stop {
		return "  " + sayStopping
	}
	if s.Wait != nil {
		return "  " + console.Waiting(*s.Wait, time.Until(s.Wait.Until))
	}
	if speed := console.Speed(s); speed != "" {
		return "  " + speed
	}
	return ""
}

func (b *bar) report(s bulk.State) {
	b.mu.Lock()
	b.state = s
	b.mu.Unlock()
	b.bar.SetCurrent(int64(s.Done))
}

func (b *bar) stopping() {
	b.mu.Lock()
	b.stop = true
	b.mu.Unlock()
}

// finish leaves the bar as it is and gives the terminal back.
func (b *bar) finish() {
	b.bar.Abort(false) // nothing to a bar that is complete
	b.drawing.Wait()
}
