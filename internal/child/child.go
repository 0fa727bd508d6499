//go:build unix

// Package child starts processes that never outlive this one.
//
// It promises: every child leads a process group of its own, so a Ctrl-C in the terminal reaches this process only and
// the end of a child takes its own children along; a signal never reaches a process that merely got a dead child's
// number; and when this process dies, however it dies, the kernel ends the children (Linux only: elsewhere an orderly
// Close does, a crash does not).
package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// ErrClosed is returned by Start after Close.
var ErrClosed = errors.New("child: the parent is closed")

// ErrExited is returned by a signal to a child that has ended.
var ErrExited = errors.New("child: the process has ended")

// outputGrace bounds how long the output of a dead child is waited for: something it started may have left its group
// and still hold the pipe.
const outputGrace = 2 * time.Second

// Spec says what to start.
type Spec struct {
	Path   string
	Args   []string  // without the name of the program
	Env    []string  // the whole environment, "NAME=value"
	Dir    string    // "" for this process's directory
	Stdout io.Writer // gets all the child writes; one Write at a time; closed at its end when it is an io.Closer
	Stderr io.Writer // likewise; may equal Stdout when that is safe for two writers
}

// Parent starts children and answers for them.
//
// The kernel's parent-death signal hangs on the thread that forked, not on the process. So one goroutine, locked to a
// thread that lives as long as any child, does all the forking.
type Parent struct {
	work chan func()
	done chan struct{} // closed when the forking thread may end

	mu       sync.Mutex
	closed   bool
	children map[*Child]struct{}
}

// NewParent returns a Parent without children. Close ends its thread.
func NewParent() *Parent {
	p := &Parent{work: make(chan func()), done: make(chan struct{}), children: map[*Child]struct{}{}}
	go p.fork()
	return p
}

func (p *Parent) fork() {
	// Never unlocked: the thread ends with the goroutine, after the last child.
	runtime.LockOSThread()
	for {
		select {
		case f := <-p.work:
			f()
		case <-p.done:
			return
		}
	}
}

// Start starts one child.
func (p *Parent) Start(s Spec) (*Child, error) {
	cmd := exec.Command(s.Path, s.Args...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = s.Env, s.Dir, sysProcAttr()

	c := &Child{cmd: cmd, done: make(chan struct{})}
	var readers, writers []*os.File
	shut := func(files []*os.File) {
		for _, f := range files {
			_ = f.Close()
		}
	}
	// Pipes of our own, and not those of exec.Cmd: its Wait would wait for their end before telling of the exit.
	for _, o := range []struct {
		file *io.Writer
		to   io.Writer
	}{{&cmd.Stdout, s.Stdout}, {&cmd.Stderr, s.Stderr}} {
		if o.to == nil {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			shut(readers)
			shut(writers)
			return nil, fmt.Errorf("child: pipe for %s: %w", s.Path, err)
		}
		*o.file = w
		readers, writers = append(readers, r), append(writers, w)
		c.copiers.Add(1)
		go func() {
			defer c.copiers.Done()
			_, _ = io.Copy(o.to, r)
			if cl, ok := o.to.(io.Closer); ok {
				_ = cl.Close()
			}
		}()
	}

	err := p.onThread(func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.closed {
			return ErrClosed
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		c.pid = cmd.Process.Pid
		p.children[c] = struct{}{}
		return nil
	})
	shut(writers)
	if err != nil {
		c.copiers.Wait()
		shut(readers)
		if errors.Is(err, ErrClosed) {
			return nil, err
		}
		return nil, fmt.Errorf("child: start %s: %w", s.Path, err)
	}
	go func() {
		c.wait(readers)
		p.mu.Lock()
		delete(p.children, c)
		p.mu.Unlock()
		close(c.done)
	}()
	return c, nil
}

func (p *Parent) onThread(f func() error) error {
	res := make(chan error, 1)
	select {
	case p.work <- func() { res <- f() }:
		return <-res
	case <-p.done:
		return ErrClosed
	}
}

// Close kills what still runs, waits for it, and ends the thread. Start fails from then on. It may be called again.
func (p *Parent) Close() {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	left := make([]*Child, 0, len(p.children))
	for c := range p.children {
		left = append(left, c)
	}
	p.mu.Unlock()
	for _, c := range left {
		c.Kill()
	}
	for _, c := range left {
		<-c.done
	}
	if first {
		close(p.done)
	}
}

// Child is one started process.
type Child struct {
	cmd     *exec.Cmd
	pid     int
	copiers sync.WaitGroup
	done    chan struct{}

	mu     sync.Mutex
	reaped bool // from here on the number may belong to somebody else
}

// PID is the child's process id, and its process group's.
func (c *Child) PID() int { return c.pid }

// Done is closed when the process has ended, is reaped, and its output is complete.
func (c *Child) Done() <-chan struct{} { return c.done }

// State says how it ended; nil before Done is closed.
func (c *Child) State() *os.ProcessState {
	select {
	case <-c.done:
		return c.cmd.ProcessState
	default:
		return nil
	}
}

func (c *Child) wait(readers []*os.File) {
	unreaped := awaitExit(c.pid)
	if !unreaped {
		_ = c.cmd.Wait() // the state is in ProcessState
	}
	c.mu.Lock()
	// End what it left behind. While the leader is not reaped, the group's number cannot be anybody else's.
	_ = syscall.Kill(-c.pid, syscall.SIGKILL)
	c.reaped = true
	c.mu.Unlock()
	if unreaped {
		_ = c.cmd.Wait()
	}

	copied := make(chan struct{})
	go func() {
		c.copiers.Wait()
		close(copied)
	}()
	select {
	case <-copied:
	case <-time.After(outputGrace):
	}
	for _, r := range readers {
		_ = r.Close()
	}
	<-copied
}

// Signal sends sig to the child's group.
func (c *Child) Signal(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return ErrExited
	}
	if err := syscall.Kill(-c.pid, sig); err != nil {
		return fmt.Errorf("child: signal %v to %d: %w", sig, c.pid, err)
	}
	return nil
}

// Kill ends the group by force. It does not wait.
func (c *Child) Kill() { _ = c.Signal(syscall.SIGKILL) }

// Freeze stops every thread of the child and returns when they stand (on Linux; elsewhere once the signal is sent).
func (c *Child) Freeze(ctx context.Context) error {
	if err := c.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		c.mu.Lock()
		stopped, gone := isStopped(c.pid), c.reaped
		c.mu.Unlock()
		switch {
		case gone:
			return ErrExited
		case stopped:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			return ErrExited
		case <-tick.C:
		}
	}
}

// Thaw lets a frozen child run on.
func (c *Child) Thaw() error { return c.Signal(syscall.SIGCONT) }

// Stop asks the child to end, kills it after grace, and returns when it is gone.
func (c *Child) Stop(grace time.Duration) {
	_ = c.Signal(syscall.SIGTERM)
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
		c.Kill()
		<-c.done
	}
}
