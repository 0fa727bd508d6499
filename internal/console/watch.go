package console

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// Screen tells the size of a terminal; ok is false when the output is none.
type Screen func() (width, height int, ok bool)

// What a terminal obeys: the other screen and no cursor while drawing, back afterwards.
const (
	enter     = "\x1b[?1049h\x1b[?25l"
	leave     = "\x1b[?25h\x1b[?1049l"
	home      = "\x1b[H"
	clearLine = "\x1b[K"
	clearRest = "\x1b[J"
)

// Watch draws the gate anew after each interval until ctx ends, which is no error, or until it has been drawn often times (0: no bound). On a
// terminal it redraws, and gives the terminal back as it was, whatever happens; elsewhere it writes one line each time. The error is that of
// the first read; later ones are shown in place of the gate, and the next read is tried.
func (g *Gate) Watch(ctx context.Context, w io.Writer, screen Screen, interval time.Duration, often int) (err error) {
	i, err := g.Budget.Inspect(ctx)
	if err != nil {
		return err
	}
	_, _, terminal := screen()
	if terminal {
		if _, err := io.WriteString(w, enter); err != nil {
			return err
		}
		defer func() {
			if _, failed := io.WriteString(w, leave); err == nil {
				err = failed
			}
		}()
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := 1; ; n++ {
		var text string
		switch width, height, _ := screen(); {
		case terminal && err == nil:
			text = onScreen(newReport(g.Name, g.Table, i).frame(width, height, interval), height)
		case terminal:
			text = onScreen([]string{cut("the gate cannot be read, trying again: "+plain(err.Error()), width)}, height)
		case err == nil:
			text = newReport(g.Name, g.Table, i).summary() + "\n"
		default:
			text = "the gate cannot be read, trying again: " + plain(err.Error()) + "\n"
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
		if n == often {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if i, err = g.Budget.Inspect(ctx); ctx.Err() != nil {
			return nil
		}
	}
}

// onScreen puts lines over those that are there, without a flicker.
func onScreen(lines []string, height int) string {
	if height > 0 && len(lines) > height {
		lines = lines[:height]
	}
	return home + strings.Join(lines, clearLine+"\r\n") + clearLine + clearRest
}

// summary is the gate in one line.
func (r report) summary() string {
	short := func(h *holdReport) string {
		if h == nil {
			return "none"
		}
		return fmt.Sprintf("%s %ds", plain(h.Reason), h.Seconds)
	}
	return fmt.Sprintf("%s  slots %d/%d  tokens %d/%d  line %d/%d  hold %s  pause %s  tenants %d",
		r.ReadAt.Format("15:04:05"), r.InFlight, r.Limit, r.Tokens, r.MostTokens, r.Queued, r.MaxQueued, short(r.Hold), short(r.Pause), len(r.Tenants))
}

// frame draws the gate for a screen of that size.
func (r report) frame(width, height int, interval time.Duration) []string {
	const label, least = 8, 10
	size := max(least, min(40, width-label-40))
	left := fmt.Sprintf("gate %s in %s, version %d", r.Gate, r.Table, r.Version)
	right := fmt.Sprintf("%s, every %v, Ctrl-C ends", r.ReadAt.Format("15:04:05 UTC"), interval)
	title := left + strings.Repeat(" ", max(2, width-len(left)-len(right))) + right
	row := func(name string, filled, of int, text string) string {
		return fmt.Sprintf("%-*s%s  %s", label, name, bar(filled, of, size), text)
	}
	lines := []string{
		title,
		"",
		row("slots", r.InFlight, r.MaxInFlight, r.slots()),
		row("tokens", r.Tokens, r.MostTokens, fmt.Sprintf("%d of %d, %v a second", r.Tokens, r.MostTokens, r.RatePerSecond)),
		row("line", r.Queued, r.MaxQueued, r.line()),
		fmt.Sprintf("%-*s%s", label, "hold", r.Hold.words()),
		fmt.Sprintf("%-*s%s", label, "pause", r.Pause.words()),
		"",
		fmt.Sprintf("%-*s%5s  %7s  %s", label, "tenant", "live", "waiting", "longest"),
	}
	room := len(r.Tenants)
	if height > 0 && len(lines)+room > height {
		room = max(0, height-len(lines)-1)
	}
	most := 1
	for _, t := range r.Tenants {
		most = max(most, t.Live+t.Waiting)
	}
	for _, t := range r.Tenants[:room] {
		lines = append(lines, fmt.Sprintf("%-*s%5d  %7d  %-10s  %s", label, plain(t.Line), t.Live, t.Waiting, millis(t.OldestMs),
			strings.Repeat("#", share(t.Live, most, size))+strings.Repeat("=", share(t.Waiting, most, size))))
	}
	if rest := len(r.Tenants) - room; rest > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", rest))
	} else if rest == 0 && room == 0 {
		lines = append(lines, "nobody")
	}
	for n := range lines {
		lines[n] = strings.TrimRight(cut(lines[n], width), " ")
	}
	return lines
}

// bar is filled in proportion; a little shows as something.
func bar(filled, of, size int) string {
	n := share(filled, of, size)
	return "[" + strings.Repeat("#", n) + strings.Repeat(".", size-n) + "]"
}

func share(part, of, size int) int {
	if part <= 0 || of <= 0 {
		return 0
	}
	return min(size, max(1, part*size/of))
}

// cut ends a line at the screen's edge, so that it takes one row.
func cut(line string, width int) string {
	if r := []rune(line); width > 0 && len(r) > width {
		return string(r[:width])
	}
	return line
}
