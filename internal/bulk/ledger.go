//go:build unix

package bulk

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"vingate/internal/vpic"
)

// Ledger is the file of records: what a run leaves and what the next one goes on from. Records are added behind one another, each batch in one
// write that is on the disk before the next batch is asked; of two records for one line the later counts.
type Ledger struct {
	// Repaired is the number of bytes that were taken off: a last line that was torn.
	Repaired int64

	path   string
	format Format
	file   *os.File
	sync   func(*os.File) error // brings what was written to the disk
	size   int64
	seed   maphash.Seed
	lines  []entry     // by line of the input
	known  map[Key]int // lines whose records answer a question
	sorted bool        // the records stand in the order of the input, one for each line
	last   int         // line of the last record
}

// entry is a line's record.
type entry struct {
	offset  int64
	print   uint64 // of what stood in the input
	outcome uint8  // its place in outcomes from 1; 0 is a line without a record
}

// outcomes are those that a record may have.
var outcomes = []Outcome{Outcome(vpic.Clean), Outcome(vpic.Warned), Outcome(vpic.Partial), Outcome(vpic.Unknown), Invalid, Damaged, Refused}

// LedgerError says why a file is not taken for the record of this run. The file is as it was.
type LedgerError struct {
	Path string
	Line int // of the file, 0 for the whole
	Text string
}

func (e *LedgerError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s, line %d: %s", e.Path, e.Line, e.Text)
	}
	return fmt.Sprintf("%s: %s", e.Path, e.Text)
}

// longestLine bounds a record; NHTSA's answers have some kilobytes.
const longestLine = 1 << 20

// OpenLedger opens the file, or makes it, and reads what is there. Nobody else can open it until Close. The error is a *LedgerError, or that of
// the file system.
func OpenLedger(path string, format Format) (*Ledger, error) {
	return openLedger(path, format, (*os.File).Sync)
}

func openLedger(path string, format Format, sync func(*os.File) error) (_ *Ledger, err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a sorted file takes the place of the file, not of a link to it
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	l := &Ledger{path: path, format: format, file: file, sync: sync, seed: maphash.MakeSeed(), known: map[Key]int{}, sorted: true}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	// The kernel drops the lock with the process.
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, l.fault(0, "another vingate is writing to it")
	}
	here, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !here.Mode().IsRegular() {
		return nil, l.fault(0, "this is not a regular file, and so could not be gone on with")
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(here, there) {
		return nil, l.fault(0, "another vingate has just put its records here; try again")
	}
	if err := l.read(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Ledger) fault(line int, format string, args ...any) error {
	return &LedgerError{Path: l.path, Line: line, Text: fmt.Sprintf(format, args...)}
}

// notOurs says so, without touching anything.
func (l *Ledger) notOurs(line int, err error) error {
	return l.fault(line, "%v. Nothing was changed; give another --out, or take this file away", err)
}

// read goes through the file, indexes it, and takes a torn last line off.
func (l *Ledger) read() error {
	r := bufio.NewReaderSize(l.file, longestLine)
	header := l.format.header()
	for n := 1; ; n++ {
		text, err := r.ReadSlice('\n')
		switch {
		case err == io.EOF:
			return l.finish(text, n, header)
		case errors.Is(err, bufio.ErrBufferFull):
			return l.notOurs(n, errNoRecord)
		case err != nil:
			return err
		}
		if n == 1 && len(header) > 0 {
			if !bytes.Equal(text, header) {
				return l.notOurs(1, errors.New("these are not the columns that this command writes: a file of something else, or of other --fields"))
			}
		} else {
			record, err := l.format.decode(text[:len(text)-1])
			if err == nil && (record.Line > maxLine || !slices.Contains(outcomes, record.Outcome)) {
				err = errNoRecord
			}
			if err != nil {
				return l.notOurs(n, err)
			}
			l.note(record, l.size)
		}
		l.size += int64(len(text))
	}
}

// finish deals with what stands behind the last line's end, and writes the header where there is none.
func (l *Ledger) finish(rest []byte, n int, header []byte) error {
	if len(rest) > 0 {
		begin := header
		if len(header) == 0 {
			begin = []byte(`{"line":`)
		}
		if n == 1 && !bytes.HasPrefix(begin, rest) && (len(header) > 0 || !bytes.HasPrefix(rest, begin)) {
			return l.notOurs(1, errNoRecord)
		}
		l.Repaired = int64(len(rest))
		if err := l.file.Truncate(l.size); err != nil {
			return err
		}
	}
	if l.size == 0 && len(header) > 0 {
		return l.write(header)
	}
	return nil
}

// note puts a record that stands at an offset into the index.
func (l *Ledger) note(r Record, offset int64) {
	for len(l.lines) <= r.Line {
		l.lines = append(l.lines, entry{})
	}
	if r.Line <= l.last {
		l.sorted = false
	}
	l.last = r.Line
	vin, year := l.format.cells(Row{VIN: r.VIN, Year: r.Year})
	l.lines[r.Line] = entry{offset: offset, print: l.print(vin, year), outcome: uint8(1 + slices.Index(outcomes, r.Outcome))}
	if k, ok := r.Key(); ok {
		l.known[k] = r.Line
	}
}

func (l *Ledger) print(vin, year string) uint64 {
	return maphash.Comparable(l.seed, [2]string{vin, year})
}

// Outcome is that of the row's record, "" when there is none. The error says that the file is the record of another input.
func (l *Ledger) Outcome(row Row) (Outcome, error) {
	if row.Line >= len(l.lines) || l.lines[row.Line].outcome == 0 {
		return "", nil
	}
	e := l.lines[row.Line]
	if vin, year := l.format.cells(row); e.print != l.print(vin, year) {
		return "", l.notOurs(0, fmt.Errorf("its record of line %d is of another VIN or model year than what stands there now: it belongs to another input, or to other columns of it", row.Line))
	}
	return outcomes[e.outcome-1], nil
}

// Has says whether there is a record of the row that nothing can be added to; the error is Outcome's.
func (l *Ledger) Has(row Row) (bool, error) {
	outcome, err := l.Outcome(row)
	return outcome != "" && outcome != Refused, err
}

// Survey reads an input to its end and holds it against the records.
func (l *Ledger) Survey(next func() (Row, error)) (Survey, error) {
	s := Survey{Counts: map[Outcome]int{}}
	for {
		row, err := next()
		if err == io.EOF {
			return s, nil
		}
		if err != nil {
			return Survey{}, err
		}
		s.Total++
		switch outcome, err := l.Outcome(row); {
		case err != nil:
			return Survey{}, err
		case outcome != "" && outcome != Refused:
			s.Done++
			s.Counts[outcome]++
		}
	}
}

// Answered gives the record of an earlier row that answers the question.
func (l *Ledger) Answered(k Key) (Record, bool, error) {
	line, ok := l.known[k]
	if !ok {
		return Record{}, false, nil
	}
	text, err := l.at(l.lines[line].offset)
	if err != nil {
		return Record{}, false, err
	}
	r, err := l.format.decode(text[:len(text)-1])
	if err != nil {
		return Record{}, false, l.fault(0, "the record of line %d, written by this run, cannot be read back: %v", line, err)
	}
	if found, ok := r.Key(); !ok || found != k {
		return Record{}, false, l.fault(0, "the record of line %d is not where this run wrote it: something else has changed the file", line)
	}
	return r, true, nil
}

// at reads the line that begins at an offset, with its end.
func (l *Ledger) at(offset int64) ([]byte, error) {
	r := bufio.NewReader(io.NewSectionReader(l.file, offset, longestLine))
	return r.ReadBytes('\n')
}

// Append writes records, all in one write, and returns when they are on the disk. After an error the file holds what it held before.
func (l *Ledger) Append(records []Record) error {
	var b []byte
	offsets := make([]int64, len(records))
	for i, r := range records {
		text, err := l.format.encode(r)
		if err != nil {
			return err
		}
		offsets[i] = l.size + int64(len(b))
		b = append(b, text...)
	}
	if err := l.write(b); err != nil {
		return err
	}
	for i, r := range records {
		l.note(r, offsets[i])
	}
	return nil
}

func (l *Ledger) write(b []byte) error {
	_, err := l.file.WriteAt(b, l.size)
	if err == nil {
		err = l.sync(l.file)
	}
	if err != nil {
		return errors.Join(err, l.file.Truncate(l.size)) // a full disk takes a part
	}
	l.size += int64(len(b))
	return nil
}

// Sort puts the records into the order of the input, one for each line, in a new file that takes the place of the old one at once. Records of
// lines that the input does not have (any more) stay. Nothing can be appended afterwards.
func (l *Ledger) Sort() (err error) {
	if l.sorted {
		return nil
	}
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	path := filepath.Join(filepath.Dir(l.path), "."+filepath.Base(l.path)+".sorting")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a run that was killed in the middle of this
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(path)
		}
	}()
	w := bufio.NewWriterSize(file, 256<<10)
	_, err = w.Write(l.format.header())
	for _, e := range l.lines {
		if e.outcome == 0 || err != nil {
			continue
		}
		var text []byte
		if text, err = l.at(e.offset); err == nil {
			_, err = w.Write(text)
		}
	}
	if err = cmp.Or(err, w.Flush(), file.Chmod(info.Mode().Perm()), l.sync(file), file.Close()); err != nil {
		_ = file.Close()
		return err
	}
	if err := os.Rename(path, l.path); err != nil {
		return err
	}
	if dir, err := os.Open(filepath.Dir(l.path)); err == nil {
		_ = l.sync(dir)
		_ = dir.Close()
	}
	l.sorted = true
	return nil
}

// Close gives the file free.
func (l *Ledger) Close() error { return l.file.Close() }
