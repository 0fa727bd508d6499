//go:build unix

package child

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// maxLine bounds what is held of a line without an end; a longer one comes out in pieces.
const maxLine = 64 << 10

// Log writes whole lines of several processes to one writer, each line behind the name of who said it.
type Log struct {
	mu sync.Mutex
	w  io.Writer
}

// NewLog returns a Log on w; a nil w discards.
func NewLog(w io.Writer) *Log {
	if w == nil {
		w = io.Discard
	}
	return &Log{w: w}
}

// Printf writes one line.
func (l *Log) Printf(name, format string, args ...any) {
	l.line(name, fmt.Appendf(nil, format, args...))
}

func (l *Log) line(name string, line []byte) {
	out := make([]byte, 0, len(name)+len(line)+4)
	out = append(out, '[')
	out = append(out, name...)
	out = append(out, "] "...)
	out = append(out, line...)
	out = append(out, '\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.w.Write(out)
}

// Lines returns a writer for one output of one process. Each complete line is also given to watch, when there is one.
// Close writes what is left of a line without an end.
func (l *Log) Lines(name string, watch func(line string)) io.WriteCloser {
	return &lines{log: l, name: name, watch: watch}
}

type lines struct {
	log   *Log
	name  string
	watch func(string)
	rest  []byte
}

func (w *lines) Write(p []byte) (int, error) {
	n := len(p)
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			break
		}
		w.out(append(w.rest, p[:i]...))
		w.rest, p = w.rest[:0], p[i+1:]
	}
	w.rest = append(w.rest, p...)
	if len(w.rest) > maxLine {
		w.out(w.rest)
		w.rest = w.rest[:0]
	}
	return n, nil
}

func (w *lines) Close() error {
	if len(w.rest) > 0 {
		w.out(w.rest)
		w.rest = nil
	}
	return nil
}

func (w *lines) out(line []byte) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	w.log.line(w.name, line)
	if w.watch != nil {
		w.watch(string(line))
	}
}
