package bulk

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"vingate/internal/vin"
)

// Columns say where the VINs stand.
type Columns struct {
	VIN  string // name of the column in the header line, in any letter case, or its number from 1
	Year string // likewise; "" when no model years are given
	// NoHeader says that the first line is a row already; the columns are numbers then.
	NoHeader bool
}

// DefaultColumn is the name of a VIN column that nobody named.
const DefaultColumn = "vin"

// Bounds of what is read. A record beyond them is not a row of a table but a quote that was never closed.
const (
	maxRecord = 1 << 20
	sniffed   = 64 << 10
	maxCell   = vin.MaxInput + 8 // what is longer is no VIN, and is kept cut
	maxLine   = 50_000_000       // what is remembered of each line is little, but not nothing
)

// SourceError says why a file cannot be read as a table of VINs, and where.
type SourceError struct {
	Name string // of the file
	Line int    // 0 for the file as a whole
	Text string
}

func (e *SourceError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s, line %d: %s", e.Name, e.Line, e.Text)
	}
	return fmt.Sprintf("%s: %s", e.Name, e.Text)
}

// Source reads the rows of a file, one after the other: text in UTF-8, UTF-16 or Windows-1252, cells with commas, semicolons, tabs or bars
// between, quoted or not, line ends of any kind.
type Source struct {
	Encoding string // what the file was found to be
	Comma    rune
	Header   []string // nil when there is none

	name      string
	vin, year int // columns from 0; year is -1 when there is none
	csv       *csv.Reader
	meter     *meter
	first     []string // a row that was read to find out whether it is the header
	firstLine int
	offset    int // lines in front of what the parser sees
	last      int // line of the record that was read last
}

// NewSource begins to read. The error is a *SourceError, or that of the reader.
func NewSource(r io.Reader, name string, columns Columns) (*Source, error) {
	s := &Source{name: name, year: -1}
	raw := bufio.NewReaderSize(r, sniffed)
	head, err := raw.Peek(sniffed)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if kind := workbook(head); kind != "" {
		return nil, s.fault(0, "this is %s; save it as CSV (UTF-8) first", kind)
	}
	text, label := decoder(head)
	s.Encoding = label
	plain := bufio.NewReaderSize(transform.NewReader(raw, text), sniffed)
	peeked, err := plain.Peek(sniffed)
	if err != nil && err != io.EOF {
		return nil, err
	}
	var lines io.Reader = plain
	if bytes.IndexByte(peeked, '\n') < 0 && bytes.IndexByte(peeked, '\r') >= 0 { // as old spreadsheets on a Mac write it
		lines = &carriageReturns{plain}
		peeked = bytes.ReplaceAll(peeked, []byte("\r"), []byte("\n"))
	}
	if columns.VIN == "" {
		columns.VIN = DefaultColumn
		if columns.NoHeader {
			columns.VIN = "1"
		}
	}
	first, _, _ := bytes.Cut(peeked, []byte("\n"))
	if said, ok := separatorLine(string(first)); ok { // Excel's own word for the separator
		b := bufio.NewReader(lines)
		if _, err := b.ReadString('\n'); err != nil && err != io.EOF {
			return nil, err
		}
		lines, s.Comma, s.offset = b, said, 1
	} else {
		s.Comma = separator(string(first), columns.VIN)
	}
	s.meter = &meter{r: lines}
	s.csv = csv.NewReader(s.meter)
	s.csv.Comma = s.Comma
	s.csv.FieldsPerRecord = -1
	return s, s.begin(columns)
}

func (s *Source) fault(line int, format string, args ...any) error {
	return &SourceError{Name: s.name, Line: line, Text: fmt.Sprintf(format, args...)}
}

// workbook recognises files that hold a table but are no text.
func workbook(head []byte) string {
	for magic, kind := range map[string]string{
		"PK\x03\x04": "an Excel workbook (or another zip file)", "\xD0\xCF\x11\xE0": "an old Excel workbook", "\x1F\x8B": "a gzip file", "%PDF-": "a PDF file",
	} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return kind
		}
	}
	return ""
}

// decoder finds the encoding by the byte order mark, by where the zero bytes of UTF-16 stand, or by what is no UTF-8.
func decoder(head []byte) (transform.Transformer, string) {
	utf16 := func(e unicode.Endianness) encoding.Encoding { return unicode.UTF16(e, unicode.UseBOM) }
	switch {
	case bytes.HasPrefix(head, []byte{0xEF, 0xBB, 0xBF}):
		return unicode.UTF8BOM.NewDecoder(), "UTF-8"
	case bytes.HasPrefix(head, []byte{0xFF, 0xFE}):
		return utf16(unicode.LittleEndian).NewDecoder(), "UTF-16 LE"
	case bytes.HasPrefix(head, []byte{0xFE, 0xFF}):
		return utf16(unicode.BigEndian).NewDecoder(), "UTF-16 BE"
	}
	var zeros [2]int
	for i, b := range head {
		if b == 0 {
			zeros[i%2]++
		}
	}
	half := len(head) / 2
	switch {
	case half > 0 && zeros[1] > half/2 && zeros[0] == 0:
		return unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM).NewDecoder(), "UTF-16 LE"
	case half > 0 && zeros[0] > half/2 && zeros[1] == 0:
		return unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM).NewDecoder(), "UTF-16 BE"
	case validUTF8(head):
		return unicode.UTF8.NewDecoder(), "UTF-8"
	}
	return charmap.Windows1252.NewDecoder(), "Windows-1252"
}

// validUTF8 looks at the beginning of a text, which may end within a character.
func validUTF8(head []byte) bool {
	for range utf8.UTFMax - 1 {
		if utf8.Valid(head) || len(head) < sniffed-utf8.UTFMax {
			break
		}
		head = head[:len(head)-1]
	}
	return utf8.Valid(head)
}

// carriageReturns makes line feeds of them.
type carriageReturns struct{ r io.Reader }

func (c *carriageReturns) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	for i, b := range p[:n] {
		if b == '\r' {
			p[i] = '\n'
		}
	}
	return n, err
}

// errRecordTooLong ends the reading of a record whose quote is never closed.
var errRecordTooLong = errors.New("record too long")

// meter bounds how much is read for one record.
type meter struct {
	r io.Reader
	n int
}

func (m *meter) Read(p []byte) (int, error) {
	if m.n > maxRecord {
		return 0, errRecordTooLong
	}
	n, err := m.r.Read(p)
	m.n += n
	return n, err
}

const separators = ",;\t|"

// separatorLine reads the line "sep=;" that Excel understands.
func separatorLine(line string) (rune, bool) {
	rest, ok := strings.CutPrefix(strings.ToLower(strings.Trim(line, "\r\" ")), "sep=")
	if !ok || len(rest) != 1 || !strings.Contains(separators, rest) {
		return 0, false
	}
	return rune(rest[0]), true
}

// separator is the one under which the first line has the column that is looked for, or a VIN; else the one that stands there most.
func separator(line, column string) rune {
	best, most := ',', -1
	for _, c := range separators {
		cells := split(line, c)
		score := len(cells) - 1
		if slices.ContainsFunc(cells, func(cell string) bool { return sameName(cell, column) || looksLikeVIN(cell) }) {
			score += 1 << 20
		}
		if score > most {
			best, most = c, score
		}
	}
	return best
}

func split(line string, comma rune) []string {
	r := csv.NewReader(strings.NewReader(line))
	r.Comma, r.LazyQuotes = comma, true
	cells, err := r.Read()
	if err != nil {
		return nil
	}
	return cells
}

func sameName(cell, name string) bool {
	return strings.EqualFold(strings.TrimSpace(cell), strings.TrimSpace(name))
}

// looksLikeVIN is for cells of a first line: a complete VIN with a digit in it is no name of a column.
func looksLikeVIN(cell string) bool {
	v, err := vin.Parse(cell)
	return err == nil && !v.Partial() && strings.ContainsAny(v.Value, "0123456789")
}

// begin finds the columns.
func (s *Source) begin(columns Columns) error {
	first, line, err := s.record()
	var bad *csv.ParseError
	switch {
	case err == io.EOF:
		return s.fault(0, "there is nothing in it")
	case errors.As(err, &bad):
		return s.fault(line, "the first line cannot be read: %s", said(bad))
	case err != nil:
		return err
	}
	if !columns.NoHeader {
		at := s.find(first, columns.VIN)
		if at == nil && slices.ContainsFunc(first, looksLikeVIN) {
			if len(first) > 1 || columns.Year != "" {
				return s.fault(line, "the first line has a VIN already. If there is no header line, say --no-header, and give the VIN column by its number, such as --column 2")
			}
			columns = Columns{VIN: "1", NoHeader: true} // a plain list
		} else {
			s.Header = first
		}
	}
	if s.vin, err = s.column(first, columns.VIN, "--column", columns.NoHeader, line); err != nil {
		return err
	}
	if columns.Year != "" {
		if s.year, err = s.column(first, columns.Year, "--year-column", columns.NoHeader, line); err != nil {
			return err
		}
	}
	if columns.NoHeader {
		s.first, s.firstLine = first, line
	}
	return nil
}

// find gives the columns that a word may mean.
func (s *Source) find(header []string, word string) []int {
	var at []int
	for i, cell := range header {
		if sameName(cell, word) {
			at = append(at, i)
		}
	}
	return at
}

func (s *Source) column(first []string, word, flag string, noHeader bool, line int) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(word))
	number := err == nil && n >= 1 && n <= len(first)
	if noHeader {
		if !number {
			return 0, s.fault(line, "without a header line %s is a number from 1 to %d, not %q", flag, len(first), word)
		}
		return n - 1, nil
	}
	switch at := s.find(first, word); {
	case len(at) == 1:
		return at[0], nil
	case len(at) > 1:
		return 0, s.fault(line, "there are %d columns named %q; give the number of the one you mean, such as %s %d", len(at), word, flag, at[0]+1)
	case number:
		return n - 1, nil
	}
	return 0, s.fault(line, "there is no column %q. The columns are: %s. Name one with %s, or say --no-header if this line is a row already", word, names(first), flag)
}

// names lists the columns of a header, not endlessly.
func names(header []string) string {
	const most, longest = 40, 60
	var list []string
	for i, cell := range header {
		if i == most {
			list = append(list, fmt.Sprintf("and %d more", len(header)-most))
			break
		}
		if cell = strings.TrimSpace(cell); len([]rune(cell)) > longest {
			cell = string([]rune(cell)[:longest]) + "…"
		}
		list = append(list, strconv.Quote(cell))
	}
	return strings.Join(list, ", ")
}

// record reads one, blank ones left out, and says on which line it begins. With a *csv.ParseError the cells in front of the fault are there.
func (s *Source) record() ([]string, int, error) {
	for {
		s.meter.n = 0
		cells, err := s.csv.Read()
		var bad *csv.ParseError
		switch {
		case errors.Is(err, errRecordTooLong):
			return nil, s.last + 1, s.fault(s.last+1, "a quote is opened here or soon below and never closed")
		case errors.As(err, &bad):
			if bad.Line != bad.StartLine {
				return nil, bad.StartLine + s.offset, s.fault(bad.StartLine+s.offset, "a quote that is opened here is not closed as it should be, in line %d: %s", bad.Line+s.offset, said(bad))
			}
			s.last = bad.StartLine + s.offset
			return cells, s.last, err
		case err != nil:
			return nil, 0, err
		case slices.ContainsFunc(cells, func(c string) bool { return strings.TrimSpace(c) != "" }):
			line, _ := s.csv.FieldPos(0)
			s.last = line + s.offset
			return cells, s.last, nil
		}
	}
}

// said puts the parser's reason in words.
func said(e *csv.ParseError) string {
	if errors.Is(e.Err, csv.ErrBareQuote) {
		return fmt.Sprintf("there is a quote inside a cell that is not quoted, at character %d", e.Column)
	}
	return fmt.Sprintf("a quoted cell does not end where its quote does, at character %d", e.Column)
}

// Next gives the next row, or io.EOF. Other errors are a *SourceError, after which nothing can be read, or the reader's.
func (s *Source) Next() (Row, error) {
	cells, line := s.first, s.firstLine
	var bad *csv.ParseError
	if s.first != nil {
		s.first = nil
	} else {
		var err error
		if cells, line, err = s.record(); err != nil && !errors.As(err, &bad) {
			return Row{}, err
		}
	}
	if line > maxLine {
		return Row{}, s.fault(line, "a file of more than %d lines is too much for one run; cut it into several", maxLine)
	}
	row := Row{Line: line, VIN: cell(cells, s.vin), Year: cell(cells, s.year)}
	if bad != nil && len(cells) <= max(s.vin, s.year) { // what stands in front of the fault can be trusted
		row.VIN, row.Year = "", ""
		row.Fault = "This line cannot be read: " + said(bad) + "."
	}
	return row, nil
}

// cell is a cell's text, cut where no VIN is that long. A missing cell is an empty one.
func cell(cells []string, i int) string {
	if i < 0 || i >= len(cells) {
		return ""
	}
	text := strings.ToValidUTF8(cells[i], "\uFFFD")
	if len(text) <= maxCell {
		return text
	}
	cut := maxCell
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

// Column says where the VINs are, for a person.
func (s *Source) Column() string {
	if s.Header == nil {
		return fmt.Sprintf("column %d, no header line", s.vin+1)
	}
	return fmt.Sprintf("column %q", strings.TrimSpace(s.Header[s.vin]))
}
