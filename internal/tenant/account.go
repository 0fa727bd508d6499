package tenant

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"vingate/internal/gate"
)

// Account is what all instances share about one tenant's use: a token bucket in one number, as in package gcra, and the last charges.
// The zero Account is a tenant who has used nothing yet.
type Account struct {
	There  bool        // there is an item
	TAT    gate.Micros // theoretical arrival time
	Recent map[string]gate.Millis
	// Expires is when DynamoDB may delete the item, in seconds since 1970; 0 is never. From then on it counts as absent, deleted or
	// not: DynamoDB is late with it by days.
	Expires int64
	// Usage is what was charged on each of the last days, of a tenant with an API key. It decides nothing.
	Usage map[Day]int
}

// Day is a day of UTC, in days since 1970.
type Day int

// DayOf is the day of an instant.
func DayOf(t time.Time) Day { return Day(t.Unix() / 86400) }

// Time is the day's first instant.
func (d Day) Time() time.Time { return time.Unix(int64(d)*86400, 0).UTC() }

// UsageDays is how many days an account remembers, today included.
const UsageDays = 8

// absent says whether the account counts as one that has used nothing.
func (a Account) absent(now gate.Micros) bool {
	return !a.There || a.Expires != 0 && a.Expires <= seconds(now)
}

func seconds(m gate.Micros) int64 { return m.Time().Unix() }

// Refusal is a denial: a value, not an error. The tenant's own bucket is dry.
type Refusal struct {
	RetryAfter time.Duration // whole seconds, at least 1 s
}

// Look says whether a call of this cost may be asked for at now; nil means yes. It changes nothing.
// Because tat never moves back, an account once seen dry is dry until then, whatever has happened since: the refusal is exact however
// old the account is.
//
// A cost above the burst waits for the full bucket and goes into debt: no caller is told to come back for ever.
// The time to come back counts for every clock within skew of the true time: this instance's may be fast and the next one's slow.
func (a Account) Look(now gate.Micros, p Plan, cost int, skew time.Duration) *Refusal {
	if a.absent(now) {
		return nil
	}
	wait := p.bucket().Wait(int64(a.TAT), int64(now), min(max(1, cost), p.Burst))
	if wait == 0 {
		return nil
	}
	after := time.Duration(wait)*time.Microsecond + 2*skew
	return &Refusal{RetryAfter: max(time.Second, (after+time.Second-1)/time.Second*time.Second)}
}

// Left is the number of calls of cost 1 the caller could ask for at now, one after the other, and the time until there is one more, 0 when
// his bucket is full.
func (a Account) Left(now gate.Micros, p Plan) (calls int, next time.Duration) {
	if a.absent(now) {
		return p.Burst, 0
	}
	b := p.bucket()
	return b.Tokens(int64(a.TAT), int64(now)), time.Duration(b.More(int64(a.TAT), int64(now))) * time.Microsecond
}

// Band says which of a charge's updates applies.
type Band byte

const (
	Fresh Band = iota // the account counts as absent: begin it
	Busy              // tat' = tat + step, while tat >= now
	Reset             // tat' = now + step, while tat < now
)

func (b Band) String() string { return [...]string{"fresh", "busy", "reset"}[b] }

// Charge takes a cost out of an account, into debt if need be: it stands for a call that has been granted. It is one conditional
// write in the manner of gate.Write: a value, that may be repeated, delayed and reordered.
type Charge struct {
	ID      string // of what was granted, and the idempotency key
	Band    Band
	Now     gate.Micros
	Step    gate.Micros
	Forget  []string // ids so old that no try of theirs can come any more
	Expires int64    // to set; 0 for a tenant who is kept for ever

	// Usage of a tenant with a key, counted in the same write.
	Day  Day // 0: not counted
	Cost int
	Over []Day // to be forgotten
}

// mostForgotten bounds one write's expression. A charge adds one id, so they go faster than they come.
const mostForgotten = 32

// afterlife is how long an account without use is kept once its bucket is full again.
const afterlife = time.Hour

// Charge plans to charge a caller at now, on a view of the account. memory is how long a charge may still be tried again.
func (a Account) Charge(now gate.Micros, c Caller, id string, cost int, memory time.Duration) Charge {
	bucket := c.Plan.bucket()
	w := Charge{ID: id, Now: now, Step: gate.Micros(int64(max(1, cost)) * bucket.T)}
	next := now + w.Step
	switch {
	case a.absent(now):
		w.Band = Fresh
	case a.TAT >= now:
		w.Band, next = Busy, a.TAT+w.Step
	default:
		w.Band = Reset
	}
	if w.Band != Fresh {
		w.Forget = a.forgettable(now, memory, id)
	}
	if !c.Anonymous {
		w.Day, w.Cost = DayOf(now.Time()), max(1, cost)
		for day := range a.Usage {
			if day <= w.Day-UsageDays {
				w.Over = append(w.Over, day)
			}
		}
		slices.Sort(w.Over)
	}
	if c.Anonymous {
		// Another burst's time is added for charges by others that this view has not seen.
		full := next + gate.Micros(int64(c.Plan.Burst)*bucket.T+afterlife.Microseconds())
		w.Expires = seconds(full) + 1
	}
	return w
}

// forgettable lists the ids older than memory, the oldest first. Not the charge's own: a write that names it twice is invalid, and does
// not hold anyway.
func (a Account) forgettable(now gate.Micros, memory time.Duration, own string) []string {
	before := now.Millis() - gate.Millis(memory.Milliseconds())
	var old []string
	for id, at := range a.Recent {
		if at < before && id != own {
			old = append(old, id)
		}
	}
	slices.SortFunc(old, func(x, y string) int { return cmp.Or(cmp.Compare(a.Recent[x], a.Recent[y]), cmp.Compare(x, y)) })
	return old[:min(len(old), mostForgotten)]
}

// Checks is the condition, clause by clause.
func (w Charge) Checks(a Account) []gate.Check {
	_, charged := a.Recent[w.ID]
	switch w.Band {
	case Fresh:
		return []gate.Check{{Name: "absent", OK: a.absent(w.Now)}}
	case Busy:
		return []gate.Check{{Name: "there", OK: !a.absent(w.Now)}, {Name: "id", OK: !charged}, {Name: "tat", OK: a.TAT >= w.Now}}
	}
	return []gate.Check{{Name: "there", OK: !a.absent(w.Now)}, {Name: "id", OK: !charged}, {Name: "tat", OK: a.TAT < w.Now}}
}

// Holds is the condition.
func (w Charge) Holds(a Account) bool {
	return !slices.ContainsFunc(w.Checks(a), func(c gate.Check) bool { return !c.OK })
}

// Apply is the update.
func (w Charge) Apply(a Account) Account {
	if w.Day != 0 {
		usage := map[Day]int{}
		for day, n := range a.Usage {
			if !slices.Contains(w.Over, day) {
				usage[day] = n
			}
		}
		usage[w.Day] += w.Cost
		a.Usage = usage
	}
	if w.Band == Fresh {
		return Account{There: true, TAT: w.Now + w.Step, Recent: map[string]gate.Millis{w.ID: w.Now.Millis()}, Expires: w.Expires, Usage: a.Usage}
	}
	a.Recent = maps.Clone(a.Recent)
	for _, id := range w.Forget {
		delete(a.Recent, id)
	}
	a.Recent[w.ID] = w.Now.Millis()
	if w.Band == Busy {
		a.TAT += w.Step
	} else {
		a.TAT = w.Now + w.Step
	}
	if w.Expires != 0 {
		a.Expires = w.Expires
	}
	return a
}

// Charged says whether the charge of that id is among those remembered.
func (a Account) Charged(id string) bool { _, there := a.Recent[id]; return there }

// Later is the further of two views of one account: a read may be answered by a replica that is behind. tat never moves back, except
// where an account begins anew.
func (a Account) Later(b Account, now gate.Micros) Account {
	if !a.absent(now) && a.TAT > b.TAT {
		return a
	}
	return b
}
