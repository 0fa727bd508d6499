//go:build unix

package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"vingate/internal/config"
	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"
	"vingate/internal/tables"
)

// NHTSA is the base URL of the real upstream.
func NHTSA() string {
	for _, v := range config.Variables() {
		if v.Name == "UPSTREAM_URL" {
			return v.Default
		}
	}
	return ""
}

// Banner tells a person what runs and what to try first.
func (s *Stack) Banner(w io.Writer, o Options) {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "\nvingate serves on %s\n\n", s.EdgeURL)
	if s.StandInURL != "" {
		line("upstream", "vpic-standin at %s: a stand-in with NHTSA's public data. It is NOT NHTSA", s.StandInURL)
	} else {
		line("upstream", "NHTSA itself, %s: what it gives is shared by everybody", s.UpstreamURL)
	}
	switch {
	case o.StoreURL != "":
		line("store", "%s, as asked; tables %s and %s", s.StoreURL, s.Config.CoordinationTable, s.Config.ResultsTable)
	case o.DBPath != "":
		line("store", "dynoxide at %s, kept in %s", s.StoreURL, o.DBPath)
	default:
		line("store", "dynoxide at %s, in memory", s.StoreURL)
	}
	line("budget", "%s", budget(s.Gate))
	if d := s.Config.Knobs.Differences(s.Gate.Knobs); !s.NewGate && len(d) > 0 {
		line("", "made earlier, and its numbers count: %s", strings.Join(d, "; "))
		if o.StoreURL == "" {
			line("", "to begin anew with the environment's: stop, rm %s*, start", o.DBPath)
		}
	}
	line("lambda", "up to %d instances, %d at once in each; control socket %s", max(o.Instances, 1), max(o.Concurrency, 1), o.Control)
	fmt.Fprintf(&b, "\n  curl -s %s/v1/vins/1HGCM82633A004352\n\nCtrl-C stops everything.\n\n", s.EdgeURL)
	_, _ = io.WriteString(w, b.String())
}

func budget(v gate.View) string {
	s := fmt.Sprintf("%d of %d calls at once, %v a second, %d in a burst", v.Limit, v.Knobs.MaxInFlight, v.Knobs.RatePerSecond, v.Knobs.Burst)
	if v.HeldFor > 0 {
		s += fmt.Sprintf("; held for %v more (%s)", v.HeldFor, v.Hold)
	}
	return s
}

// Write tells what Provision did.
func (p Provisioned) Write(w io.Writer, g config.Gate) {
	if p.New {
		_, _ = fmt.Fprintf(w, "created %s with a gate for %s: %s\n", g.CoordinationTable, Upstream, budget(p.View))
		_, _ = fmt.Fprintf(w, "%s is there\n", g.ResultsTable)
		return
	}
	_, _ = fmt.Fprintf(w, "%s and %s are there; the gate is as it was: %s\n", g.CoordinationTable, g.ResultsTable, budget(p.View))
	for _, d := range g.Knobs.Differences(p.View.Knobs) {
		_, _ = fmt.Fprintf(w, "note: %s; the gate's number counts\n", d)
	}
}

// Describe writes what a person wants to know of the tables and the gate, and changes nothing. It is an error when
// something is missing that vingate needs.
func Describe(ctx context.Context, c Client, g config.Gate, w io.Writer) error {
	found, err := tables.Describe(ctx, c, tables.Names{Coordination: g.CoordinationTable, Results: g.ResultsTable})
	if err != nil {
		return err
	}
	var faults []error
	for _, d := range found {
		switch {
		case !d.Exists:
			_, _ = fmt.Fprintf(w, "%s: does not exist\n", d.Name)
			faults = append(faults, fmt.Errorf("table %s does not exist: `vingate tables create` makes it", d.Name))
			continue
		case !d.Usable:
			faults = append(faults, fmt.Errorf("table %s has another key than %s, a string: name another table", d.Name, tables.Key))
		}
		ttl := "off: items are never deleted, though they expire"
		if d.TTL != "" {
			ttl = "attribute " + d.TTL
		}
		_, _ = fmt.Fprintf(w, "%s: %s, %s, %d items, %d bytes, TTL %s\n", d.Name, d.Status, d.Billing, d.Items, d.Bytes, ttl)
	}
	if found[0].Exists && found[0].Usable {
		v, err := NewGateStore(c, g.CoordinationTable).View(ctx)
		var de *dynamo.Error
		switch {
		case err == nil:
			_, _ = fmt.Fprintf(w, "gate %s: %s\n", Upstream, budget(v))
		case errors.As(err, &de) && de.Kind == dynamo.KindMissingGate:
			_, _ = fmt.Fprintf(w, "gate %s: missing\n", Upstream)
			faults = append(faults, &NoGateError{g.CoordinationTable})
		default:
			return fmt.Errorf("table %s: %w", g.CoordinationTable, err)
		}
	}
	return errors.Join(faults...)
}
