package vpic

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// P2: the call starts within the grace of its grant, however long the connection took, or not a byte of it leaves.
func TestACallStartsInTimeOrNotAtAll(t *testing.T) {
	for name, c := range map[string]struct {
		connecting, bound time.Duration
		leaves            bool
	}{
		"connected in time": {200 * time.Millisecond, 250 * time.Millisecond, true},
		"just in time":      {250 * time.Millisecond, 250 * time.Millisecond, true},
		"a moment too late": {250*time.Millisecond + 1, 250 * time.Millisecond, false},
		"much too late":     {time.Second, 250 * time.Millisecond, false},
		"without a bound":   {time.Second, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, asJSON(envelope(flat(accord, nil))), func(t *testing.T, client *Client, calls *atomic.Int32) {
				connect := client.transport.DialContext
				client.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
					time.Sleep(c.connecting)
					return connect(ctx, network, address)
				}
				ctx := t.Context()
				if c.bound > 0 {
					ctx = WithStartBy(ctx, time.Now().Add(c.bound))
				}
				_, err := client.Decode(ctx, Query{VIN: accord})
				synctest.Wait()
				if c.leaves {
					if err != nil || calls.Load() != 1 {
						t.Errorf("%v, %d calls", err, calls.Load())
					}
					return
				}
				if e := mustFail(t, err); e.Kind != NotStarted || e.Started || calls.Load() != 0 {
					t.Errorf("%#v, %d calls", e, calls.Load())
				}
			})
		})
	}
}

// The handshake comes before the start, so a slow one counts too.
func TestASlowHandshakeIsNoStart(t *testing.T) {
	var calls atomic.Int32
	srv := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	defer srv.Close()
	client := newClient(t, srv.URL)
	client.transport.TLSClientConfig.RootCAs = x509.NewCertPool()
	client.transport.TLSClientConfig.RootCAs.AddCert(srv.Certificate())
	granted := time.Now()
	var handshaken atomic.Bool
	client.transport.TLSClientConfig.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error {
		handshaken.Store(true)
		return nil
	}
	client.now = func() time.Time { // the clock jumps while the handshake runs
		if handshaken.Load() {
			return granted.Add(time.Second)
		}
		return granted
	}
	_, err := client.Decode(WithStartBy(t.Context(), granted.Add(250*time.Millisecond)), Query{VIN: accord})
	if e := mustFail(t, err); e.Kind != NotStarted || !handshaken.Load() || calls.Load() != 0 {
		t.Errorf("%#v, %d calls", e, calls.Load())
	}
}
