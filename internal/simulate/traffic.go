package simulate

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"vingate/internal/gate"
)

// Arrivals says how the requests of a stream come.
type Arrivals string

// The kinds of arrivals.
const (
	Constant Arrivals = "constant" // evenly paced
	Poisson  Arrivals = "poisson"  // independent of one another
	Diurnal  Arrivals = "diurnal"  // as Poisson, with a day's course: most at 15:00, least at 3:00
	Burst    Arrivals = "burst"    // Size at once, Every so often
	Dealer   Arrivals = "dealer"   // a list of Size VINs by one tenant, Every so often on average; one batch call for each fifty
	Scraper  Arrivals = "scraper"  // one address, evenly paced, always another VIN, deaf to refusals
	Trace    Arrivals = "trace"    // as a file says
)

// Stream is one kind of callers.
type Stream struct {
	Name     string
	Arrivals Arrivals
	Rate     float64       // requests a second: constant, poisson, diurnal (the mean), scraper
	Size     int           // burst, dealer
	Every    time.Duration // burst, dealer
	Tenants  int           // who asks: so many, each as often
	Keyed    bool          // with API keys; else by address
	Weight   int           // of the keys' plan, 0 means 1
	Unique   bool          // every request asks another VIN: nothing is ever stored
	Tries    int           // how often a refused caller comes back, each time when Retry-After says so
	From     time.Duration // after the start
	For      time.Duration // 0: to the end

	rows []row // trace
}

// row is one request of a trace.
type row struct {
	at     gate.Micros
	tenant int32
	vin    int32 // -1: another one each time
	size   int16 // VINs of a batch, 0: a single decode
}

// mostRate bounds a stream, and a call in mostRate seconds is the least.
const mostRate = 1e6

// Check says what is wrong with a stream.
func (s Stream) Check() error {
	switch s.Arrivals {
	case Constant, Poisson, Diurnal, Scraper:
		if !(s.Rate >= 1/mostRate && s.Rate <= mostRate) {
			return fmt.Errorf("%s: rate=%v is no number of requests a second from 0.000001 to a million", s.Name, s.Rate)
		}
	case Burst, Dealer:
		if s.Size < 1 || s.Size > 100_000 || s.Every < time.Millisecond || s.Every > mostTime {
			return fmt.Errorf("%s: needs a size from 1 to 100000 and every from 1ms to 31 days", s.Name)
		}
		if s.Every < time.Duration(s.Size)*time.Microsecond { // one comes in each microsecond
			return fmt.Errorf("%s: %d every %v are more than a million a second", s.Name, s.Size, s.Every)
		}
	case Trace:
		if len(s.rows) == 0 {
			return fmt.Errorf("%s: the trace is empty", s.Name)
		}
	default:
		return fmt.Errorf("%s: there are no %q arrivals: constant, poisson, diurnal, scraper, burst, dealer or trace", s.Name, s.Arrivals)
	}
	if s.Tenants < 1 || s.Tenants > 10_000_000 {
		return fmt.Errorf("%s: %d tenants are not between 1 and 10 million", s.Name, s.Tenants)
	}
	if s.Tries < 0 || s.Tries > 1000 {
		return fmt.Errorf("%s: tries is not between 0 and 1000", s.Name)
	}
	if s.Weight < 0 || s.Weight > gate.MaxWeight {
		return fmt.Errorf("%s: weight=%d is not between 1 and %d", s.Name, s.Weight, gate.MaxWeight)
	}
	if s.From < 0 || s.For < 0 {
		return fmt.Errorf("%s: from and for are no times before the start", s.Name)
	}
	return nil
}

// requests is about how many it makes until then, those who come back not counted.
func (s Stream) requests(until time.Duration) float64 {
	lasts := until - s.From
	if s.For > 0 {
		lasts = min(lasts, s.For)
	}
	switch s.Arrivals {
	case Burst, Dealer:
		return float64(s.Size) * (1 + float64(lasts)/float64(s.Every))
	case Trace:
		return float64(len(s.rows))
	}
	return s.Rate * lasts.Seconds()
}

// ParseStream reads a stream as it is written on the command line: kind:key=value,... Files are opened by open.
func ParseStream(text string, open func(string) (io.ReadCloser, error)) (Stream, error) {
	kind, rest, _ := strings.Cut(text, ":")
	s := Stream{Name: kind, Arrivals: Arrivals(kind), Tenants: 1000, Tries: 0}
	switch s.Arrivals {
	case Dealer:
		s.Size, s.Every, s.Tenants, s.Keyed = 50, time.Minute, 20, true
	case Burst:
		s.Size, s.Every = 100, time.Minute
	case Scraper:
		s.Rate, s.Tenants, s.Unique = 10, 1, true
	}
	file := ""
	for part := range strings.SplitSeq(rest, ",") {
		if part == "" {
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		var err error
		switch key {
		case "name":
			s.Name = value
		case "rate":
			s.Rate, err = readNumber(value)
		case "size":
			s.Size, err = readWhole(value)
		case "every":
			s.Every, err = readTime(value)
		case "tenants":
			s.Tenants, err = readWhole(value)
		case "keyed":
			s.Keyed, err = truth(value)
		case "unique":
			s.Unique, err = truth(value)
		case "weight":
			s.Weight, err = readWhole(value)
		case "tries":
			s.Tries, err = readWhole(value)
		case "from":
			s.From, err = readTime(value)
		case "for":
			s.For, err = readTime(value)
		case "file":
			file = value
		default:
			err = errors.New("there is no such key: rate, size, every, tenants, keyed, unique, weight, tries, from, for, name or file")
		}
		if err != nil {
			return s, fmt.Errorf("%s: %s: %w", text, part, err)
		}
	}
	if s.Arrivals == Trace {
		if file == "" {
			return s, errors.New("trace: needs file=NAME.csv")
		}
		f, err := open(file)
		if err != nil {
			return s, err
		}
		defer func() { _ = f.Close() }()
		if err := s.ReadTrace(f); err != nil {
			return s, fmt.Errorf("%s: %w", file, err)
		}
	}
	return s, s.Check()
}

func truth(value string) (bool, error) {
	if value == "" {
		return true, nil
	}
	yes, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("%q is neither true nor false", value)
	}
	return yes, nil
}

func readNumber(value string) (float64, error) {
	f, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no number", value)
	}
	return f, nil
}

func readWhole(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil {
		return 0, fmt.Errorf("%q is no whole number", value)
	}
	return n, nil
}

func readTime(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil {
		return 0, fmt.Errorf("%q is no time such as 90s or 1h30m", value)
	}
	return d, nil
}

// mostRows bounds a trace.
const mostRows = 20_000_000

// ReadTrace makes the stream the one of a CSV file with a header: "at", in seconds or as RFC 3339; and if there are such columns "tenant" and
// "vin" (any text, equal ones are the same; without a VIN it is another one each time) and "size", the VINs of a batch, 0 for a single decode.
func (s *Stream) ReadTrace(r io.Reader) error {
	s.Arrivals = Trace
	c := csv.NewReader(r)
	c.ReuseRecord = true
	head, err := c.Read()
	if errors.Is(err, io.EOF) {
		return errors.New(`the file is empty: it needs a header with a column "at"`)
	}
	if err != nil {
		return fmt.Errorf("the header: %w", err)
	}
	column := map[string]int{}
	for i, name := range head {
		column[strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")))] = i
	}
	at, ok := column["at"]
	if !ok {
		return errors.New(`the header has no column "at"`)
	}
	tenants, vins := map[string]int32{}, map[string]int32{}
	known := func(in map[string]int32, text string) int32 {
		n, ok := in[text]
		if !ok {
			n = int32(len(in))
			in[text] = n
		}
		return n
	}
	cell := func(record []string, name string) string {
		if i, ok := column[name]; ok {
			return strings.TrimSpace(record[i])
		}
		return ""
	}
	for {
		record, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		line, _ := c.FieldPos(0) // of a record that could not be read there is none
		when, err := instant(strings.TrimSpace(record[at]))
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		w := row{at: when, tenant: known(tenants, cell(record, "tenant")), vin: -1}
		if vin := cell(record, "vin"); vin != "" {
			w.vin = known(vins, vin)
		}
		if size := cell(record, "size"); size != "" {
			n, err := strconv.Atoi(size)
			if err != nil || n < 0 || n > 50 {
				return fmt.Errorf("line %d: size %q is no number from 0 to 50", line, size)
			}
			w.size = int16(n)
		}
		if s.rows = append(s.rows, w); len(s.rows) > mostRows {
			return fmt.Errorf("more than %d rows", mostRows)
		}
	}
	if len(s.rows) == 0 {
		return errors.New("there are no rows")
	}
	slices.SortStableFunc(s.rows, func(a, b row) int { return cmp.Compare(a.at, b.at) })
	for i := range s.rows[1:] {
		s.rows[i+1].at -= s.rows[0].at
	}
	s.rows[0].at = 0
	s.Tenants = len(tenants)
	return nil
}

// instant is seconds after anything, or a time of day.
func instant(text string) (gate.Micros, error) {
	if f, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(f) < 1e11 { // refuses NaN too
		return gate.Micros(f * 1e6), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, fmt.Errorf("%q is neither seconds nor a time like 2026-11-30T08:15:00Z", text)
	}
	return gate.MicrosOf(t), nil
}

// Latency is how long NHTSA takes to answer.
type Latency struct {
	Kind        string // fixed, uniform, lognormal
	A, B        time.Duration
	Sigma       float64
	text        string
	logOfMedian float64
}

// ParseLatency reads fixed:600ms, uniform:100ms,300ms or lognormal:600ms,0.5 (the median, and the standard deviation of the logarithm).
func ParseLatency(text string) (Latency, error) {
	l := Latency{text: text}
	kind, rest, _ := strings.Cut(text, ":")
	first, second, two := strings.Cut(rest, ",")
	l.Kind = kind
	var err, err2 error
	l.A, err = readTime(first)
	switch kind {
	case "fixed":
		l.B = l.A
	case "uniform":
		l.B, err2 = readTime(second)
	case "lognormal":
		l.Sigma, err2 = readNumber(second)
		l.logOfMedian = math.Log(float64(l.A.Microseconds()))
	default:
		return l, fmt.Errorf("latency %q: it is neither fixed, uniform nor lognormal", text)
	}
	switch err = cmp.Or(err, err2); {
	case two == (kind == "fixed"):
		err = errors.New("it has the wrong number of values: fixed:TIME, uniform:FROM,TO or lognormal:MEDIAN,SIGMA")
	case err != nil:
	case l.A < time.Microsecond || max(l.A, l.B) > time.Hour || kind == "uniform" && l.B < l.A || !(l.Sigma >= 0 && l.Sigma <= 5):
		err = errors.New("its times are from 1us to 1h, and sigma from 0 to 5")
	}
	if err != nil {
		return l, fmt.Errorf("latency %q: %w", text, err)
	}
	return l, nil
}

func (l Latency) String() string { return l.text }

func (l Latency) draw(r *rand.Rand) time.Duration {
	switch l.Kind {
	case "uniform":
		return l.A + time.Duration(r.Int64N(int64(l.B-l.A)+1))
	case "lognormal":
		return time.Duration(min(math.Exp(l.logOfMedian+l.Sigma*r.NormFloat64()), float64(mostTime.Microseconds()))) * time.Microsecond
	}
	return l.A
}

// source draws the requests of a stream, one after the other.
type source struct {
	Stream
	first int32 // of its tenants
	from  gate.Micros
	until gate.Micros
	next  gate.Micros // of the next arrival
	left  int         // of a burst or a list that has begun
	who   int32       // pastes it
	row   int
}

// begin sets the first arrival.
func (s *source) begin(r *rand.Rand) {
	s.next = s.from
	switch s.Arrivals {
	case Trace:
		s.next = s.from + s.rows[0].at
	case Burst:
		s.left = s.Size
	case Dealer:
		s.next += gate.Micros(r.ExpFloat64() * float64(s.Every.Microseconds()))
	case Poisson, Diurnal:
		s.advance(r)
	case Constant, Scraper:
		s.next += gate.Micros(r.Float64() * 1e6 / s.Rate)
	}
}

// advance sets the arrival after the one that was.
func (s *source) advance(r *rand.Rand) {
	switch s.Arrivals {
	case Constant, Scraper:
		s.next += gate.Micros(1e6 / s.Rate)
	case Poisson:
		s.next += gate.Micros(r.ExpFloat64() * 1e6 / s.Rate)
	case Diurnal:
		for { // thinned from the busiest hour's
			s.next += gate.Micros(r.ExpFloat64() * 1e6 / (s.Rate * (1 + swing)))
			if r.Float64()*(1+swing) < course(s.next) {
				return
			}
		}
	case Burst:
		if s.left--; s.left > 0 {
			s.next++
			return
		}
		s.left = s.Size
		s.next += gate.Micros(s.Every.Microseconds())
		s.next -= gate.Micros(s.Size - 1)
	case Dealer:
		if s.left > 0 {
			s.next++
			return
		}
		s.next += gate.Micros(r.ExpFloat64() * float64(s.Every.Microseconds()))
	case Trace:
		if s.row++; s.row == len(s.rows) {
			s.next = math.MaxInt64
			return
		}
		s.next = s.from + s.rows[s.row].at
	}
}

// swing is how far a day's course goes up and down from its mean.
const swing = 0.8

// course is the load of that time of the day, 1 on average.
func course(at gate.Micros) float64 {
	const day = 24 * 3600 * 1e6
	return 1 + swing*math.Cos(2*math.Pi*(float64(at)/day-15./24))
}
