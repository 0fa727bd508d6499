package vpic

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// errLate stops a request whose connection was ready too late.
var errLate = errors.New("vpic: the connection was ready after the time to start")

// call is what a connection knows of the one call it is for.
type call struct {
	ctx     context.Context // of the call; the transport dials under one that outlives it
	startBy time.Time       // zero: no bound
	now     func() time.Time
	late    atomic.Bool
}

type callKey struct{}

type startByKey struct{}

// WithStartBy bounds the start of the calls made under ctx: the first byte of a request leaves by t, on the wall clock, or no byte of
// it does, and the call ends with NotStarted. Looking up the name, connecting and the TLS handshake come before the start.
func WithStartBy(ctx context.Context, t time.Time) context.Context {
	return context.WithValue(ctx, startByKey{}, t)
}

func startBy(ctx context.Context) time.Time {
	t, _ := ctx.Value(startByKey{}).(time.Time)
	return t
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// forCall ties a connection to its call. The transport dials under a context that outlives the request, to have the
// connection for a later one; here there is no later one, so when the call is over its dial ends and its connection is
// closed, a TLS handshake included. A dial, with its name lookup, has a deadline of its own.
func forCall(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, ok := ctx.Value(callKey{}).(*call)
		if !ok {
			c = &call{ctx: ctx}
		}
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		defer context.AfterFunc(c.ctx, cancel)()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(c.ctx, func() { conn.Close() })
		return newCallConn(conn, c), nil
	}
}

// secured adds the TLS handshake, so that what it gives is ready for the request's first byte.
func secured(plain dialFunc, config func() *tls.Config, within time.Duration) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := plain(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := conn.(*callConn)
		cfg := config().Clone()
		if cfg.ServerName == "" {
			if cfg.ServerName, _, err = net.SplitHostPort(address); err != nil {
				return nil, err
			}
		}
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		defer context.AfterFunc(c.call.ctx, cancel)()
		safe := tls.Client(c.Conn, cfg)
		if err := safe.HandshakeContext(ctx); err != nil {
			c.Conn.Close()
			return nil, err
		}
		return newCallConn(safe, c.call), nil
	}
}

// callConn lets the first byte of the request through only while the call may start, and gives no byte of the server's
// before that: the transport would print what comes unasked, with its first bytes, through package log.
type callConn struct {
	net.Conn
	call    *call
	started bool          // only the transport's write loop writes
	asked   chan struct{} // closed when the first byte may leave
}

func newCallConn(conn net.Conn, c *call) *callConn {
	return &callConn{Conn: conn, call: c, asked: make(chan struct{})}
}

func (c *callConn) Read(b []byte) (int, error) {
	select {
	case <-c.asked:
	case <-c.call.ctx.Done():
		return 0, net.ErrClosed
	}
	return c.Conn.Read(b)
}

func (c *callConn) Write(b []byte) (int, error) {
	if !c.started {
		if !c.call.startBy.IsZero() && c.call.now().Round(0).After(c.call.startBy) {
			c.call.late.Store(true)
			c.Conn.Close()
			return 0, errLate
		}
		c.started = true
		close(c.asked)
	}
	return c.Conn.Write(b)
}
