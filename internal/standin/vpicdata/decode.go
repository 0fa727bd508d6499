package vpicdata

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
)

// FirstModelYear is the first year of the 17-character VIN.
const FirstModelYear = 1980

// Query asks for one decode.
type Query struct {
	VIN       string // in the caller's spelling
	ModelYear int    // as the caller gives it; 0 when none is given
}

// Decode says what NHTSA would say about a VIN, as far as the data allows. Every
// text is an acceptable VIN: what is wrong with it is in the row. An error means
// that the data could not be read.
func (c *Catalog) Decode(ctx context.Context, q Query) (Row, error) {
	vin := vinText(q.VIN)
	m, err := c.maker(ctx, wmiOf(vin))
	if err != nil {
		return nil, err
	}
	best, err := c.bestPass(ctx, vin, m, q.ModelYear)
	if err != nil {
		return nil, err
	}
	row, err := best.row(ctx)
	if err != nil {
		return nil, err
	}
	row.set("VIN", q.VIN)
	return row, nil
}

// bestPass decodes the VIN for each model year that it may have and gives the best
// result. Position 10 leaves two years 30 years apart. Position 7 tells them apart
// for cars, MPVs and light trucks; for the others both are tried. A caller's year
// that contradicts the VIN gets a pass of its own, and others only if that one
// finds nothing.
func (c *Catalog) bestPass(ctx context.Context, vin string, m *maker, given int) (*pass, error) {
	latest := c.now().UTC().Year() + 2
	year, earlier, conclusive := candidateYears(vin, m, latest)

	var passes []*pass
	run := func(p pass) (*pass, error) {
		p.c, p.vin, p.maker = c, vin, m
		if err := p.decode(ctx); err != nil {
			return nil, err
		}
		passes = append(passes, &p)
		return &p, nil
	}
	readVIN := true
	if given >= FirstModelYear && given <= latest && given != year && given != earlier {
		p, err := run(pass{year: given, conclusive: true, disagrees: true})
		if err != nil {
			return nil, err
		}
		readVIN = p.codes.has(codeNoDetails) && year != 0
	}
	if readVIN {
		disagrees := func(year int) bool { return given != 0 && year != 0 && given != year }
		if _, err := run(pass{year: year, conclusive: conclusive, disagrees: disagrees(year)}); err != nil {
			return nil, err
		}
		if earlier != 0 {
			if _, err := run(pass{year: earlier, conclusive: conclusive, disagrees: disagrees(earlier)}); err != nil {
				return nil, err
			}
		}
	}
	return slices.MaxFunc(passes, func(a, b *pass) int {
		return cmp.Or(
			cmp.Compare(a.codes.weight(), b.codes.weight()),
			cmp.Compare(a.weight(), b.weight()),
			cmp.Compare(a.patternCount(), b.patternCount()),
			cmp.Compare(a.yearRank(given), b.yearRank(given)),
		)
	}), nil
}

// candidateYears reads the model year. year is 0 if position 10 is none; earlier is
// the other possibility if the VIN leaves two, and 0 if it is conclusive.
func candidateYears(vin string, m *maker, latest int) (year, earlier int, conclusive bool) {
	year = yearOf(vin)
	if year == 0 {
		return 0, 0, true
	}
	if p7 := at(vin, 7); m.lightDuty() {
		switch {
		case p7 >= '0' && p7 <= '9':
			year, conclusive = year-30, true
		case p7 >= 'A' && p7 <= 'Z':
			conclusive = true
		}
	}
	if year > latest {
		year, conclusive = year-30, true
	}
	if !conclusive {
		return year, year - 30, false
	}
	// The maker may have used the other decade's rule: believe its filings.
	other := 0
	switch {
	case year >= FirstModelYear && year <= latest-30:
		other = year + 30
	case year >= FirstModelYear+30 && year <= latest:
		other = year - 30
	}
	if other != 0 && m != nil && !m.files(year) && m.files(other) {
		year = other
	}
	return year, 0, true
}

// files says whether the maker has a schema for that year.
func (m *maker) files(year int) bool {
	return slices.ContainsFunc(m.schemas, func(s schemaYears) bool { return s.covers(year) })
}

// covers is true for every schema if the year is not known.
func (s schemaYears) covers(year int) bool {
	return year == 0 || year >= s.from && year <= s.to
}

// Where an item comes from.
type source int

const (
	fromPattern source = iota
	fromEngine
	fromFormula
	fromMaker
	fromModel
	fromConversion
	fromDefault
)

// Priorities that NHTSA gives the sources; patterns have their schema's first year.
const (
	engineRank  = 50
	formulaRank = 100
)

// item is one statement about one element.
type item struct {
	element   int
	attribute string
	text      string // what to show, if ready is true; else the attribute's name
	ready     bool

	source  source
	rank    int    // the greater one counts
	changed string // then the later one
	key     key
	id      int // pattern
	schema  *schema
}

// pass is one decode of a VIN for one model year.
type pass struct {
	c          *Catalog
	vin        string
	maker      *maker
	year       int  // 0 when unknown
	conclusive bool // whether the VIN leaves no other year
	disagrees  bool // whether the caller gave another year

	schemas []*schema // that cover the year
	items   []item

	codes     codeSet
	suggested string
	possible  string
	extra     string
	offRoad   bool
}

func (p *pass) decode(ctx context.Context) error {
	known := p.maker != nil && p.maker.publicFrom != "" && p.maker.publicFrom <= p.c.now().UTC().Format("2006-01-02 15:04:05")
	var unexplained []int
	if !known {
		p.codes.add(codeUnknownMaker)
	} else {
		if err := p.collect(ctx); err != nil {
			return err
		}
		p.keepBest()
		if err := p.addMake(ctx); err != nil {
			return err
		}
		p.convert()
		if !slices.ContainsFunc(p.items, func(i item) bool { return i.id != 0 }) {
			p.codes.add(codeNoDetails)
		} else {
			unexplained = p.judgePositions()
		}
	}
	p.judgeRest(unexplained)
	if known {
		p.addDefaults()
	}
	return nil
}

// collect gathers all statements: of matching patterns, of the engine model, of the
// maker, of the model year.
func (p *pass) collect(ctx context.Context) error {
	text := keyText(p.vin)
	var formulas []item
	for _, years := range p.maker.schemas {
		if !years.covers(p.year) {
			continue
		}
		s, err := p.c.schema(ctx, years.schema)
		if err != nil {
			return err
		}
		p.schemas = append(p.schemas, s)
		for _, t := range s.patterns {
			e, ok := p.c.elements[t.element]
			if !ok || !e.decoded || fromMakerOnly(t.element) || !t.key.matches(text) {
				continue
			}
			i := item{element: t.element, attribute: t.attribute, source: fromPattern, rank: years.from,
				changed: t.changed, key: t.key, id: t.id, schema: s}
			if t.key.formula {
				i.source, i.rank, i.text, i.ready = fromFormula, formulaRank, t.key.formulaValue(text), true
				formulas = append(formulas, i)
				continue
			}
			p.items = append(p.items, i)
		}
	}
	slices.SortStableFunc(p.items, func(a, b item) int { return cmp.Compare(a.id, b.id) })

	if engine, ok := p.best(elementEngineModel); ok {
		for _, r := range p.c.engines[engineKey(engine.attribute)] {
			p.items = append(p.items, item{element: r.element, attribute: r.attribute, source: fromEngine, rank: engineRank,
				changed: r.changed, key: engine.key, id: engine.id, schema: engine.schema})
		}
	}
	if p.maker.vehicleType != 0 {
		p.state(elementVehicleType, strconv.Itoa(p.maker.vehicleType), strings.ToUpper(p.maker.vehicleName))
	}
	if p.maker.manufacturer != "" {
		p.state(elementManufacturer, p.maker.manufacturerID, strings.ToUpper(p.maker.manufacturer))
	}
	if p.year != 0 {
		p.state(elementModelYear, strconv.Itoa(p.year), strconv.Itoa(p.year))
	}
	p.items = append(p.items, formulas...)
	return nil
}

// fromMakerOnly are the elements that no pattern decides.
func fromMakerOnly(element int) bool {
	switch element {
	case elementMake, elementManufacturer, elementModelYear, elementVehicleType:
		return true
	}
	return false
}

// state adds what is known without a pattern.
func (p *pass) state(element int, attribute, text string) {
	p.items = append(p.items, item{element: element, attribute: attribute, text: text, ready: true, source: fromMaker, rank: formulaRank})
}

// better orders statements about one element, the best first: schemas of later years,
// then later changes; the rest is how NHTSA breaks ties.
func better(a, b item) int {
	return cmp.Or(
		-cmp.Compare(a.rank, b.rank),
		-cmp.Compare(a.changed, b.changed),
		cmp.Compare(a.key.rankLength, b.key.rankLength),
		cmp.Compare(a.key.rankText, b.key.rankText),
		cmp.Compare(a.id, b.id),
	)
}

// best is the statement that counts for an element.
func (p *pass) best(element int) (item, bool) {
	var found []item
	for _, i := range p.items {
		if i.element == element {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		return item{}, false
	}
	return slices.MinFunc(found, better), true
}

// listed are the elements that may have several values at once: free texts.
var listed = map[int]bool{114: true, elementRestraint: true, elementEngineInfo: true, 150: true, 154: true, 155: true, 169: true, 186: true}

// keepBest leaves one statement per element, and all of the listed ones.
func (p *pass) keepBest() {
	winner := make(map[int]int) // element -> index
	for n, i := range p.items {
		if w, ok := winner[i.element]; !ok || better(i, p.items[w]) < 0 {
			winner[i.element] = n
		}
	}
	kept := p.items[:0:0]
	for n, i := range p.items {
		if listed[i.element] || winner[i.element] == n {
			kept = append(kept, i)
		}
	}
	p.items = kept
}

// addMake takes the make from the model. Without a model the maker must have only one.
func (p *pass) addMake(ctx context.Context) error {
	m, ok := p.best(elementModel)
	if !ok {
		if len(p.maker.makes) == 1 {
			n := p.maker.makes[0]
			p.state(elementMake, strconv.Itoa(n.id), strings.ToUpper(n.name))
		}
		return nil
	}
	id, err := strconv.Atoi(strings.TrimSpace(m.attribute))
	if err != nil {
		return nil
	}
	found, err := p.c.model(ctx, id)
	if err != nil {
		return err
	}
	for _, n := range found.makes {
		p.items = append(p.items, item{element: elementMake, attribute: strconv.Itoa(n.id), text: strings.ToUpper(n.name), ready: true,
			source: fromModel, key: m.key, id: m.id, schema: m.schema})
	}
	return nil
}

// convert derives the displacements that are missing from those that are there.
func (p *pass) convert() {
	type step struct {
		from item
		conversion
	}
	var steps []step
	for _, i := range p.items {
		for _, v := range p.c.conversions {
			if v.from == i.element {
				steps = append(steps, step{i, v})
			}
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int {
		return cmp.Or(-cmp.Compare(a.from.rank, b.from.rank), -cmp.Compare(a.from.changed, b.from.changed), cmp.Compare(a.id, b.id))
	})
	for _, s := range steps {
		if p.has(s.to) {
			continue
		}
		value := s.formula.apply(s.from.attribute)
		p.items = append(p.items, item{element: s.to, attribute: value, text: value, ready: true, source: fromConversion,
			rank: formulaRank, key: s.from.key, id: s.from.id, schema: s.from.schema})
	}
}

func (p *pass) has(element int) bool {
	return slices.ContainsFunc(p.items, func(i item) bool { return i.element == element })
}

// addDefaults fills what the type of vehicle cannot have.
func (p *pass) addDefaults() {
	present := make(map[int]bool, len(p.items))
	for _, i := range p.items {
		present[i.element] = true
	}
	for _, group := range notApplicableTo[p.maker.vehicleType] {
		for _, e := range group {
			if !present[e] {
				p.items = append(p.items, item{element: e, text: notApplicable, ready: true, source: fromDefault})
			}
		}
	}
	if lightByDefault[p.maker.vehicleType] && !present[elementGVWR] {
		p.items = append(p.items, item{element: elementGVWR, attribute: lightestClass, source: fromDefault})
	}
}

// weight sums NHTSA's weights of the elements that the pass says something about.
func (p *pass) weight() (sum int) {
	counted := make(map[int]bool, len(p.items))
	for _, i := range p.items {
		if !counted[i.element] && (!i.ready || i.text != "") {
			counted[i.element] = true
			sum += p.c.elements[i.element].weight
		}
	}
	return sum
}

func (p *pass) patternCount() (n int) {
	for _, i := range p.items {
		if i.source == fromPattern || i.source == fromEngine || i.source == fromFormula && i.text != "" {
			n++
		}
	}
	return n
}

// yearRank prefers the later year, and the caller's before all.
func (p *pass) yearRank(given int) int {
	if p.year != 0 && p.year == given {
		return p.year + 10000
	}
	return p.year
}

// row writes the pass in NHTSA's flat form.
func (p *pass) row(ctx context.Context) (Row, error) {
	row := newRow()
	values := make(map[int][]string)
	for _, i := range p.items {
		if !i.ready {
			var err error
			if i.text, err = p.c.valueOf(ctx, i.element, i.attribute); err != nil {
				return nil, err
			}
		}
		if text := oneLine(i.text); text != "" && !slices.Contains(values[i.element], text) {
			values[i.element] = append(values[i.element], text)
		}
		switch i.element {
		case elementMake:
			row.set("MakeID", i.attribute)
		case elementModel:
			row.set("ModelID", strings.TrimSpace(i.attribute))
		case elementManufacturer:
			row.set("ManufacturerId", i.attribute)
		}
	}
	for element, texts := range values {
		if e := p.c.elements[element]; e.decoded {
			row.set(e.code, strings.Join(texts, ", "))
		}
	}
	row.set("ErrorCode", p.codes.String())
	row.set("ErrorText", p.codes.text(p.offRoad))
	row.set("AdditionalErrorText", p.extra)
	row.set("SuggestedVIN", p.suggested)
	row.set("PossibleValues", p.possible)
	row.set("VehicleDescriptor", descriptorOf(p.vin))
	return row, nil
}

// oneLine puts a blank for every tab and line break, as NHTSA does.
var lineBreaks = strings.NewReplacer("\t", " ", "\r", " ", "\n", " ")

func oneLine(text string) string { return lineBreaks.Replace(text) }
