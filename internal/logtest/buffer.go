// Package logtest collects what a program under test writes. It is for tests.
package logtest

import (
	"bytes"
	"sync"
)

// Buffer is a bytes.Buffer that many goroutines may write to while another reads. The zero Buffer is empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write is io.Writer's.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String is all that was written since the last Reset.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Bytes is a copy of it.
func (b *Buffer) Bytes() []byte { return []byte(b.String()) }

// Len is how many bytes that are.
func (b *Buffer) Len() int { return len(b.String()) }

// Reset forgets it.
func (b *Buffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b.Reset()
}
