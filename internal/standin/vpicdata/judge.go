package vpicdata

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// judgedPositions are those whose character has to be explained by some pattern.
var judgedPositions = []int{4, 5, 6, 7, 8, 11}

// judgePositions compares the VIN's characters with those that the maker filed. It
// adds codes 2 to 5 and 14, sets suggested and possible, and gives the positions
// that nothing explains.
func (p *pass) judgePositions() (unexplained []int) {
	var named, explained positionChars
	for _, s := range p.schemas {
		named.merge(&s.named)
	}
	for _, i := range p.items {
		switch i.source {
		case fromPattern, fromEngine, fromFormula, fromModel:
			explained.add(i.key)
		}
	}
	model, hasModel := p.best(elementModel)

	wrong := func(position int) bool {
		c := at(p.vin, position)
		switch {
		case p.year == 0 || c == 0 || named[position] == 0 || named[position].has(c):
			return false
		case position == 11 || !hasModel:
			return true
		default:
			return model.schema.solid[position] != 0
		}
	}
	last := 14
	if len(wmiOf(p.vin)) == 6 {
		last = 11
	}
	var bad []int
	for position := 4; position <= last; position++ {
		if position != 9 && position != 10 && wrong(position) {
			bad = append(bad, position)
		}
	}
	p.suggest(bad, &named)

	for _, position := range judgedPositions {
		c := at(p.vin, position)
		if c == 0 || explained[position].has(c) || named[position] == 0 {
			continue
		}
		if !hasModel || wrong(position) {
			unexplained = append(unexplained, position)
		}
	}
	if len(unexplained) > 0 {
		p.codes.add(codeUnexplained)
	}
	return unexplained
}

// suggest says what may be meant instead of the wrong characters.
func (p *pass) suggest(bad []int, named *positionChars) {
	if len(bad) == 0 {
		return
	}
	marked := []byte(p.vin)
	for _, position := range bad {
		marked[position-1] = '!'
		p.possible += fmt.Sprintf("(%d:%s)", position, named[position].list())
	}
	p.suggested = string(marked)
	if len(bad) > 1 {
		p.codes.add(codeSomeWrong)
		return
	}

	position, candidates := bad[0], named[bad[0]].list()
	with := func(c byte) string { return p.vin[:position-1] + string(c) + p.vin[position:] }
	if len(candidates) == 1 {
		p.codes.add(codeCorrected)
		p.suggested = with(candidates[0])
		return
	}
	// The check digit may leave only one. Here NHTSA takes all makers for light duty.
	serialFrom := 13
	if at(p.vin, 3) == '9' {
		serialFrom = 15
	}
	var fitting []byte
	for _, c := range []byte(candidates) {
		if v := with(c); checkDigit(v, serialFrom) == at(v, 9) {
			fitting = append(fitting, c)
		}
	}
	if len(fitting) == 1 {
		p.codes.add(codeCorrectedByCD)
		p.suggested = with(fitting[0])
		p.possible = fmt.Sprintf("(%d:%c)", position, fitting[0])
		return
	}
	p.codes.add(codeOneWrong)
}

// Body classes that change the judgement.
var (
	offRoadBodies    = []string{"69", "84", "86", "88", "97", "105", "113", "124", "126", "127"}
	incompleteBodies = []string{"62", "63", "64", "65", "67", "70", "71", "72", "74", "75", "76", "77", "78", "107", "112", "116"}
)

const gliderBody = "64"

// judgeRest adds the codes that need no patterns, and the texts.
func (p *pass) judgeRest(unexplained []int) {
	body := ""
	if i, ok := p.best(elementBodyClass); ok {
		body = strings.TrimSpace(i.attribute)
	}
	if body == gliderBody {
		p.codes.add(codeGlider)
	}
	if slices.Contains(offRoadBodies, body) {
		p.offRoad = true
		p.codes.add(codeOffRoad)
	}
	if p.year == 0 {
		p.codes.add(codeYearPosition)
	}

	serialFrom := serialStart(p.vin, p.maker)
	invalid := p.markInvalid(invalidPositions(p.vin, serialFrom, p.offRoad))
	if p.disagrees {
		p.codes.add(codeYearDisagrees)
	}
	if len(p.vin) < lastPosition {
		p.codes.add(codeIncomplete)
	} else if at(p.vin, 9) != checkDigit(p.vin, serialFrom) {
		p.codes.add(codeCheckDigit)
	}
	if p.codes.nothingWrong() {
		p.codes.add(codeClean)
		if !p.has(elementModel) {
			p.codes.add(codeUnexplained)
		}
	}

	var notes []string
	for _, code := range []int{codeOneWrong, codeSomeWrong} {
		if p.codes.has(code) {
			notes = append(notes, errorCodes[code].extra)
		}
	}
	if len(unexplained) > 0 {
		texts := make([]string, len(unexplained))
		for n, position := range unexplained {
			texts[n] = strconv.Itoa(position)
		}
		notes = append(notes, "Unused position(s): "+strings.Join(texts, ",")+".")
	}
	if invalid != "" {
		notes = append(notes, "Invalid character(s): "+invalid+".")
	}
	if slices.Contains(incompleteBodies, body) || p.has(elementVehicleType) && p.maker.vehicleType == typeIncomplete {
		notes = append(notes, incompleteNote)
	}
	if !p.conclusive {
		notes = append(notes, yearNote)
	}
	p.extra = cut(strings.Join(notes, " "))
}

// markInvalid adds code 400 and puts a '!' at each invalid position of the
// suggestion. It gives NHTSA's list of them: "9:!, 11:I".
func (p *pass) markInvalid(positions []int) string {
	if len(positions) == 0 {
		return ""
	}
	p.codes.add(codeInvalidChars)
	if p.suggested == "" {
		p.suggested = p.vin
	}
	marked := []byte(p.suggested)
	list := make([]string, len(positions))
	for n, position := range positions {
		marked[position-1] = '!'
		list[n] = fmt.Sprintf("%d:%c", position, at(p.vin, position))
	}
	p.suggested = string(marked)
	return strings.Join(list, ", ")
}
