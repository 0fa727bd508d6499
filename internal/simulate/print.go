package simulate

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// JSON writes the report for programs.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) error {
	p := &page{w: w}
	p.line("%s simulated, seed %d: %s requests of %s callers, %s instances, %s", r.For, r.Seed, whole(r.Requests), whole(int64(r.NTenants)), whole(int64(r.Instances)), r.budgetText())
	if r.Retried > 0 {
		p.line("%s of them came back after a refusal", whole(r.Retried))
	}
	rows := [][]string{{"OUTCOME", "REQUESTS", "SHARE", "A SECOND", "ANSWER"}}
	for _, c := range r.Counts {
		if c.N > 0 {
			rows = append(rows, []string{c.Text, whole(c.N), percent(c.Share), rate(float64(c.N) / r.ForSeconds), c.Code})
		}
	}
	p.table(rows)
	if r.Stale > 0 {
		p.line("%s of the stored answers were past CACHE_SOFT_TTL; %s times a refresh was put off because others wanted the budget", whole(r.Stale), whole(r.PutOff))
	}
	rows = [][]string{{"", "REQUESTS", "ANSWERED", "REFUSED", "LIVE", "WAIT P50", "P95", "P99", "TOLD NO IN P50", "P99", "FAIR"}}
	for _, g := range r.Routes {
		rows = append(rows, g.row())
	}
	if len(r.Streams) > 1 || len(r.Routes) > 1 || r.Streams[0].Name != r.Routes[0].Name {
		for _, g := range r.Streams {
			rows = append(rows, g.row())
		}
	}
	p.table(rows)
	rows = [][]string{{"CALLER", "OF", "ASKED NHTSA", "GOT", "SHARE", "WAIT P50", "P95", "P99"}}
	for _, t := range r.Tenants {
		row := []string{t.ID, t.Stream, whole(t.Asked), whole(t.Live), percent(share(t.Live, t.Asked)), "", "", ""}
		if t.Wait != nil && t.Wait.N > 0 {
			row[5], row[6], row[7] = seconds(t.Wait.P50), seconds(t.Wait.P95), seconds(t.Wait.P99)
		}
		rows = append(rows, row)
	}
	p.table(rows)
	p.table([][]string{
		{"BUDGET", ""},
		{"used", fmt.Sprintf("%s of what the rate allows: %s calls", percent(r.Use), whole(int64(r.Calls)))},
		{"in flight at most", fmt.Sprintf("%d of %d slots", r.Peak, r.Slots)},
		{"fullest window", fmt.Sprintf("%.1f starts beyond rate x its length, %d are allowed", r.Window, r.Burst)},
		{"longest line", strconv.Itoa(r.PeakLine)},
		{"fairness (Jain)", fmt.Sprintf("%.3f between all callers, of what each got of its fair share", r.Fairness)},
	})
	if rows = r.pauseRows(); len(rows) > 1 {
		p.table(rows)
		p.line("%s", r.pausesText())
	}
	rows = [][]string{{"DYNAMODB", "WRITES", "UNITS", "READS", "UNITS", "MOST UNITS IN A SECOND, ONE ITEM"}}
	most := []string{
		fmt.Sprintf("%.0f written of %d, %.0f read of %d", r.MostWrites, ItemWriteUnits, r.MostReads, ItemReadUnits),
		fmt.Sprintf("%.0f written, %.0f read", r.PromiseW, r.MostPromise), fmt.Sprintf("%.0f read", r.MostAccount), ""}
	for i, u := range r.Dynamo {
		rows = append(rows, []string{u.Item, whole(u.Writes), whole(int64(u.WriteUnits)), whole(u.Reads), whole(int64(u.ReadUnits)), most[i]})
	}
	p.table(rows)
	p.line("%.2f write units on the gate for each call, %s writes in vain, %.3f writes on gate and promise for each refusal", r.PerCall, whole(r.InVain), r.PerRefusal)
	rows = [][]string{{"USD A MONTH", ""}}
	for _, c := range r.Month {
		rows = append(rows, []string{c.What, fmt.Sprintf("%.2f", c.USD)})
	}
	p.table(append(rows, []string{"for a million requests", fmt.Sprintf("%.2f", r.PerMillion)}))
	p.line("not modelled: %s", strings.Join(r.NotModelled, "; "))
	if r.Took > 0 {
		p.line("took %v", r.Took.Round(10*time.Millisecond))
	}
	return p.err
}

// mostPauses is how many a report lists.
const mostPauses = 12

// pauseRows are the pauses that NHTSA's trouble led to, with a head.
func (r *Report) pauseRows() [][]string {
	rows := [][]string{{"PAUSE AT", "WHY", "CALLS TOLD NO", "NOBODY STARTED FOR", "LEAST SLOTS", "ALL SLOTS AGAIN AFTER", "SENT AWAY"}}
	for i, p := range r.Pauses {
		if i == mostPauses {
			rows = append(rows, []string{fmt.Sprintf("and %d more", len(r.Pauses)-i)})
			break
		}
		again := "not before the end"
		if p.Lasted > 0 {
			again = lasting(p.Lasted)
		}
		held := lasting(p.Held)
		if p.Holds > 1 {
			held = fmt.Sprintf("%s in %d holds", held, p.Holds)
		}
		why := string(p.Why)
		if r.Setup.Gates > 1 {
			why = fmt.Sprintf("%s, gate %d", why, p.Gate+1)
		}
		rows = append(rows, []string{clock(p.At), why, whole(int64(p.Told)), held, fmt.Sprintf("%d of %d", p.Slots, r.Setup.Knobs.MaxInFlight), again, whole(p.Refused)})
	}
	return rows
}

// clock is a time after the start.
func clock(seconds float64) string {
	s := int(seconds)
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

func lasting(seconds float64) string {
	return Short(time.Duration(math.Round(seconds)) * time.Second)
}

func (r *Report) budgetText() string {
	k := r.Setup.Knobs
	text := fmt.Sprintf("%v calls a second, burst %d, %d slots", k.RatePerSecond, k.Burst, k.MaxInFlight)
	if r.Setup.Gates > 1 {
		text = fmt.Sprintf("%d gates of %s", r.Setup.Gates, text)
	}
	return text
}

func (g Group) row() []string {
	row := []string{g.Name, whole(g.Requests), whole(g.Answered), whole(g.Refused), whole(g.Live), "", "", "", "", "", ""}
	if g.Fairness > 0 {
		row[10] = fmt.Sprintf("%.3f", g.Fairness)
	}
	if g.Wait.N > 0 {
		row[5], row[6], row[7] = seconds(g.Wait.P50), seconds(g.Wait.P95), seconds(g.Wait.P99)
	}
	if g.Refusals.N > 0 {
		row[8], row[9] = seconds(g.Refusals.P50), seconds(g.Refusals.P99)
	}
	return row
}

// page keeps the first error of many writes.
type page struct {
	w   io.Writer
	err error
}

func (p *page) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *page) table(rows [][]string) {
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	_, _ = t.Write([]byte("\n"))
	for _, r := range rows {
		_, _ = t.Write([]byte(strings.TrimRight(strings.Join(r, "\t"), "\t") + "\n"))
	}
	if err := t.Flush(); p.err == nil {
		p.err = err
	}
}

// whole is a number with its thousands apart.
func whole(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func percent(x float64) string {
	switch p := 100 * x; {
	case p != 0 && p < 0.1:
		return fmt.Sprintf("%.3f %%", p)
	default:
		return fmt.Sprintf("%.1f %%", p)
	}
}

func rate(x float64) string {
	if x < 1 {
		return fmt.Sprintf("%.3f", x)
	}
	return fmt.Sprintf("%.1f", x)
}

func seconds(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.0f ms", 1000*s)
	}
	return fmt.Sprintf("%.2f s", s)
}
