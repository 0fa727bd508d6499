// Package link is chaos.Link by Shopify's toxiproxy.
package link

import (
	"context"
	"fmt"
	"strings"
	"sync"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"vingate/internal/chaos"
)

// New listens on a free port of 127.0.0.1 before an address.
func New(to string) (chaos.Link, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	p := toxiproxy.NewProxy(server, "store", "127.0.0.1:0", to)
	if err := p.Start(); err != nil {
		return nil, err
	}
	return &proxy{p: p}, nil
}

type proxy struct {
	mu sync.Mutex
	p  *toxiproxy.Proxy
}

func (l *proxy) Addr() string { return l.p.Listen }

func (l *proxy) Slow(ms int) error {
	return l.toxic("slow", ms > 0, fmt.Sprintf(`{"name":"slow","type":"latency","stream":"downstream","attributes":{"latency":%d,"jitter":%d}}`, ms, ms/4))
}

func (l *proxy) Reset(on bool) error {
	return l.toxic("reset", on, `{"name":"reset","type":"reset_peer","stream":"downstream","toxicity":0.5,"attributes":{"timeout":0}}`)
}

func (l *proxy) toxic(name string, on bool, json string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	there := l.p.Toxics.GetToxic(name) != nil
	if there {
		if err := l.p.Toxics.RemoveToxic(context.Background(), name); err != nil {
			return err
		}
	}
	if !on {
		return nil
	}
	_, err := l.p.Toxics.AddToxicJson(strings.NewReader(json))
	return err
}

func (l *proxy) Cut(on bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.p.Update(&toxiproxy.Proxy{Listen: l.p.Listen, Upstream: l.p.Upstream, Enabled: !on})
}
