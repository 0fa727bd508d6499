package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"vingate/internal/child"
)

// counts are what a store was asked. Scripts and pipelined commands of Redis count one each.
type counts struct {
	Writes   float64 `json:"writes,omitempty"`   // of DynamoDB, failed conditions included
	Reads    float64 `json:"reads,omitempty"`    // of DynamoDB, in eventually consistent ones: a consistent one counts two
	Commands float64 `json:"commands,omitempty"` // of Redis
}

func (c counts) less(o counts) counts {
	return counts{c.Writes - o.Writes, c.Reads - o.Reads, c.Commands - o.Commands}
}

// each shares the counts out among n.
func (c counts) each(n float64) counts {
	if n == 0 {
		return counts{}
	}
	return counts{round(c.Writes / n), round(c.Reads / n), round(c.Commands / n)}
}

// tap stands before a store, counts what is asked, and can be shut as if the store were gone.
type tap struct {
	Address string // where the store is to be asked

	serve func(net.Listener) // until the listener is closed

	mu       sync.Mutex
	n        counts
	listener net.Listener
	conns    map[net.Conn]bool
}

func newTap(serve func(*tap, net.Listener)) (*tap, error) {
	t := &tap{Address: "127.0.0.1:0", conns: map[net.Conn]bool{}}
	t.serve = func(l net.Listener) { serve(t, l) }
	return t, t.open()
}

func (t *tap) open() error {
	l, err := net.Listen("tcp", t.Address)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.Address, t.listener = l.Addr().String(), l
	t.mu.Unlock()
	go t.serve(listener{l, t})
	return nil
}

// shut refuses connections and cuts those that there are.
func (t *tap) shut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.listener.Close()
	for c := range t.conns {
		_ = c.Close()
	}
	clear(t.conns)
}

func (t *tap) counts() counts {
	if t == nil {
		return counts{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

func (t *tap) add(c counts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n = counts{t.n.Writes + c.Writes, t.n.Reads + c.Reads, t.n.Commands + c.Commands}
}

// listener remembers its connections for the tap.
type listener struct {
	net.Listener
	t *tap
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.t.mu.Lock()
		l.t.conns[c] = true
		l.t.mu.Unlock()
	}
	return c, err
}

// tapDynamoDB counts by the operation that each request names.
func tapDynamoDB(store string) (*tap, error) {
	to, err := url.Parse(store)
	if err != nil {
		return nil, err
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 1000}
	return newTap(func(t *tap, l net.Listener) {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // ends when the tap is shut
			switch _, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); op {
			case "UpdateItem", "PutItem", "DeleteItem":
				t.add(counts{Writes: 1})
			case "GetItem":
				body, err := io.ReadAll(r.Body)
				if err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
					return
				}
				reads := 1.0
				if strings.Contains(string(body), `"ConsistentRead":true`) {
					reads = 2
				}
				t.add(counts{Reads: reads})
				r.Body = io.NopCloser(strings.NewReader(string(body)))
			}
			proxy.ServeHTTP(w, r)
		}))
	})
}

// tapRedis counts commands as they are sent: arrays of texts.
func tapRedis(address string) (*tap, error) {
	return newTap(func(t *tap, l net.Listener) {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				server, err := net.Dial("tcp", address)
				if err != nil {
					return
				}
				defer server.Close()
				go func() {
					defer client.Close()
					_, _ = io.Copy(client, server)
				}()
				_ = eachCommand(io.TeeReader(client, server), func() { t.add(counts{Commands: 1}) }) // ends with either side
			}()
		}
	})
}

// eachCommand reads commands in Redis's protocol and tells of each.
func eachCommand(from io.Reader, found func()) error {
	r := bufio.NewReader(from)
	number := func(mark byte) (int, error) {
		l, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		if l[0] != mark {
			return 0, fmt.Errorf("%q is no command of Redis", l)
		}
		return strconv.Atoi(strings.TrimSpace(l[1:]))
	}
	for {
		parts, err := number('*')
		if err != nil {
			return err
		}
		for range parts {
			size, err := number('$')
			if err != nil {
				return err
			}
			if _, err := r.Discard(size + len("\r\n")); err != nil {
				return err
			}
		}
		found()
	}
}

// startRedis starts a server that keeps nothing, and waits until it answers.
func startRedis(ctx context.Context, parent *child.Parent) (address string, err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", errors.New("redis-server is not installed: as root on Debian, apt-get install redis-server")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address = l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(address)
	c, err := parent.Start(child.Spec{Path: path, Args: []string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no"}})
	if err != nil {
		return "", err
	}
	for range 100 {
		if conn, err := net.Dial("tcp", address); err == nil {
			return address, conn.Close()
		}
		select {
		case <-c.Done():
			return "", errors.New("redis-server ended at once")
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return "", errors.New("redis-server does not answer")
}
