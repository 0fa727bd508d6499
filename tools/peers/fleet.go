package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"sync"
	"time"

	"vingate/internal/load"
)

// call is one question and all that became of it, attempts of a caller that came back included.
type call struct {
	load.Call
	tries    int
	is       string // admitted, refused or failed; "" while it is not answered
	asked    time.Time
	answered time.Time
	over     time.Time // of an admitted call; zero while it runs
	retry    time.Duration
	err      string
}

// instance is one running limiter.
type instance struct {
	in   io.Writer
	kill func()

	mu     sync.Mutex
	asking map[int]chan line // by question; a channel for what follows
	ended  chan struct{}
}

// starter starts one instance: what it reads and writes, and how it is killed.
type starter func(settings) (in io.Writer, out io.Reader, kill func(), err error)

// fleet is a set of instances of one limiter on one budget, and what was asked of them.
type fleet struct {
	instances []*instance

	mu    sync.Mutex
	next  int
	calls []*call
	open  sync.WaitGroup // admitted calls that run
}

// launch starts n instances, of which the first has its clock off by skew.
func launch(ctx context.Context, n int, start starter, s settings, skew time.Duration) (*fleet, error) {
	f := &fleet{}
	ready := make(chan error, n)
	for i := range n {
		own := s
		if i == 0 {
			own.SkewMs = skew.Milliseconds()
		}
		in, out, kill, err := start(own)
		if err != nil {
			f.close()
			return nil, err
		}
		inst := &instance{in: in, kill: kill, asking: map[int]chan line{}, ended: make(chan struct{})}
		f.instances = append(f.instances, inst)
		go inst.listen(out, ready)
	}
	for range n {
		select {
		case err := <-ready:
			if err != nil {
				f.close()
				return nil, err
			}
		case <-ctx.Done():
			f.close()
			return nil, ctx.Err()
		case <-time.After(time.Minute):
			f.close()
			return nil, fmt.Errorf("an instance of %s was not ready within a minute", s.Peer)
		}
	}
	return f, nil
}

// listen passes on what the instance says until it ends.
func (i *instance) listen(out io.Reader, ready chan<- error) {
	defer close(i.ended)
	lines, told := bufio.NewScanner(out), false
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			continue // a library's own word
		}
		if l.Is == "ready" {
			told = true
			ready <- nil
			continue
		}
		i.mu.Lock()
		heard := i.asking[l.ID]
		i.mu.Unlock()
		if heard != nil {
			heard <- l
		}
	}
	if !told {
		ready <- errEnded
	}
}

// ask asks once, and returns when there is an answer, or none within the time.
func (f *fleet) ask(ctx context.Context, c load.Call, within time.Duration) *call {
	inst := f.instances[c.Instance]
	done := &call{Call: c, tries: 1}
	heard := make(chan line, 2)
	f.mu.Lock()
	f.next++
	id := f.next
	f.calls = append(f.calls, done)
	f.mu.Unlock()
	inst.mu.Lock()
	inst.asking[id] = heard
	done.asked = time.Now()
	err := json.NewEncoder(inst.in).Encode(question{ID: id, Tenant: c.Tenant, PatienceMs: c.Patience.Milliseconds(), HoldMs: c.Upstream.Milliseconds()})
	inst.mu.Unlock()
	if err != nil {
		done.is, done.err = "failed", err.Error()
		return done
	}
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	select {
	case l := <-heard:
		f.mu.Lock()
		defer f.mu.Unlock()
		done.is, done.asked, done.answered = l.Is, time.UnixMicro(l.Asked), time.UnixMicro(l.At)
		done.retry, done.err = time.Duration(l.RetryMs)*time.Millisecond, l.Error
		if l.Is == "admitted" {
			f.open.Go(func() {
				over := time.Time{}
				select {
				case l := <-heard:
					over = time.UnixMicro(l.At)
				case <-inst.ended: // killed: so is its call
					over = time.Now()
				}
				f.mu.Lock()
				done.over = over
				f.mu.Unlock()
			})
		}
	case <-inst.ended:
		done.is, done.err = "failed", errEnded.Error()
	case <-timeout.C:
	case <-ctx.Done():
	}
	return done
}

// play asks all at their times and returns when all are answered and all admitted calls are over. one is what becomes of each.
func (f *fleet) play(ctx context.Context, calls []load.Call, one func(load.Call) *call) []*call {
	done := make([]*call, len(calls))
	start := time.Now()
	var callers sync.WaitGroup
	for i, c := range calls {
		time.Sleep(time.Until(start.Add(c.At)))
		if ctx.Err() != nil {
			break
		}
		callers.Go(func() { done[i] = one(c) })
	}
	callers.Wait()
	f.open.Wait()
	return slices.DeleteFunc(done, func(c *call) bool { return c == nil })
}

// spans are the calls that were made so far, by their true times.
func (f *fleet) spans() []span {
	f.mu.Lock()
	defer f.mu.Unlock()
	var made []span
	for _, c := range f.calls {
		if c.is == "admitted" {
			end := c.over
			if end.IsZero() {
				end = time.Now()
			}
			made = append(made, span{c.answered, end})
		}
	}
	return made
}

// count counts the attempts so far that ended so.
func (f *fleet) count(is string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.calls {
		if c.is == is {
			n++
		}
	}
	return n
}

// took are the times from asking to the answer of the attempts that began at that time or later and ended so, sorted.
func (f *fleet) took(is string, from time.Time) []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var took []time.Duration
	for _, c := range f.calls {
		if c.is == is && !c.asked.Before(from) {
			took = append(took, c.answered.Sub(c.asked))
		}
	}
	slices.Sort(took)
	return took
}

// close ends every instance.
func (f *fleet) close() {
	for _, i := range f.instances {
		i.kill()
	}
	for _, i := range f.instances {
		<-i.ended
	}
}

// processes starts instances as processes of their own. They end with their standard input, and so with this one.
func processes(stderr io.Writer, path string, args ...string) starter {
	return func(s settings) (io.Writer, io.Reader, func(), error) {
		told, err := json.Marshal(s)
		if err != nil {
			return nil, nil, nil, err
		}
		cmd := exec.Command(path, append(slices.Clone(args), string(told))...)
		cmd.Stderr = stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, nil, nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, nil, nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, nil, nil, err
		}
		return in, ending{out, cmd}, func() { _ = cmd.Process.Kill() }, nil
	}
}

// ending takes leave of a process when all it said is read.
type ending struct {
	io.Reader
	cmd *exec.Cmd
}

func (e ending) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if err != nil {
		_ = e.cmd.Wait()
	}
	return n, err
}

// inside starts instances in this process, each on the limiter of its number.
func inside(ctx context.Context, limiterOf func(instance int) limiter) starter {
	started := 0
	return func(settings) (io.Writer, io.Reader, func(), error) {
		l := limiterOf(started)
		started++
		in, questions := io.Pipe()
		answers, out := io.Pipe()
		go func() {
			_ = serve(ctx, l, in, out)
			_ = out.Close()
		}()
		return questions, answers, func() { _ = questions.Close() }, nil
	}
}
