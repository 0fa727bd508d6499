package page

import (
	"fmt"
	"strconv"
	"time"

	"vingate/internal/decode"
	"vingate/internal/gate"
)

// budget is the shared budget as the page draws it. All sizes are in the dial's own length, Arc.
type budget struct {
	Known                                       bool
	Tokens, MostTokens, InFlight, Limit, Queued int
	Rate, ReadAt                                string
	Hold, HoldFor                               string // the reason, "" where nothing is held
	Holds                                       []hold
	Pips                                        []string // one for each slot there can be: "" free, "on" running, "off" given up for now

	Arc, Level, Rest int
	Cuts             string // of the dial: one piece for each call that can be ready, or one for all
	Half             int    // of a cut, so that the dial's two ends are alike
}

type hold struct{ Name, Words string }

// holds are the reasons for a pause of all calls. They are sentences of package decode.
var holds = []hold{
	{string(gate.HoldThrottled), decode.HoldSentence(gate.HoldThrottled)},
	{string(gate.HoldFailing), decode.HoldSentence(gate.HoldFailing)},
	{string(gate.HoldStarting), decode.HoldSentence(gate.HoldStarting)},
	{string(gate.HoldOperator), decode.HoldSentence(gate.HoldOperator)},
}

const (
	piece    = 100 // of the dial's length for one call
	cut      = 16  // of a piece, between two
	mostCuts = 30  // pieces that can still be told apart
	mostPips = 12
)

func budgetOf(v *gate.View) budget {
	if v == nil {
		return budget{Holds: holds, Arc: 10 * piece, Rest: 10 * piece, Cuts: cuts(10), Half: -cut / 2, Pips: make([]string, 4)}
	}
	most := v.Knobs.Bucket().Most()
	b := budget{
		Known: true, Tokens: v.Tokens, MostTokens: most, InFlight: v.InFlight, Limit: v.Limit, Queued: v.Queued,
		Rate: strconv.FormatFloat(v.Knobs.RatePerSecond, 'g', 4, 64), ReadAt: v.ReadAt.UTC().Format("15:04:05 UTC"), Holds: holds,
		Arc: max(1, most) * piece, Cuts: cuts(max(1, most)), Half: -cut / 2,
	}
	b.Level = min(max(v.Tokens, 0)*piece, b.Arc)
	b.Rest = b.Arc
	if v.HeldFor > 0 {
		b.Hold, b.HoldFor = string(v.Hold), decode.InWords(gate.RetryAfter(v.HeldFor))
	}
	if n := v.Knobs.MaxInFlight; n <= mostPips {
		b.Pips = make([]string, n)
		for i := range b.Pips {
			switch {
			case i < v.InFlight:
				b.Pips[i] = "on"
			case i >= v.Limit:
				b.Pips[i] = "off"
			}
		}
	}
	return b
}

func cuts(pieces int) string {
	if pieces > mostCuts {
		return fmt.Sprint(pieces*piece, " 0")
	}
	return fmt.Sprint(piece-cut, " ", cut)
}

// ago says how old an answer is, as a person would.
func ago(d time.Duration) string {
	switch {
	case d < 2*time.Second:
		return "just now"
	case d < 48*time.Hour:
		return decode.InWords(d.Truncate(time.Second)) + " ago"
	}
	return fmt.Sprintf("%d days ago", int(d/(24*time.Hour)))
}
