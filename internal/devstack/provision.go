//go:build unix

package devstack

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"vingate/internal/config"
	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"
	"vingate/internal/tables"
)

// Upstream is the name of the shared budget: the one NHTSA gives.
const Upstream = "nhtsa"

// Client is what provisioning needs of DynamoDB.
type Client interface {
	tables.Client
	dynamo.Client
}

// Provisioned says what Provision found or made.
type Provisioned struct {
	New  bool // the coordination table was made, and the gate in it from the knobs, with a full bucket
	View gate.View
}

// NoGateError is a coordination table that was there before and has no gate. None is made for it: nobody knows what
// may still be running on grants of a gate that was there once.
type NoGateError struct{ Table string }

func (e *NoGateError) Error() string {
	return fmt.Sprintf("table %s exists but has no gate, so no call to NHTSA will be made. Nothing was changed. "+
		"`vingate gate init --table %s` makes one, which begins empty and held; with `--new-tables` it begins full", e.Table, e.Table)
}

// Provision makes the tables and, when the coordination table is new, the gate. On existing tables it writes nothing.
func Provision(ctx context.Context, c Client, g config.Gate) (Provisioned, error) {
	made, err := tables.Create(ctx, c, tables.Names{Coordination: g.CoordinationTable, Results: g.ResultsTable})
	if err != nil {
		return Provisioned{}, err
	}
	store := NewGateStore(c, g.CoordinationTable)
	if made {
		if err := store.Init(ctx, g.Knobs, dynamo.FullBucket); err != nil {
			return Provisioned{}, fmt.Errorf("table %s: %w", g.CoordinationTable, err)
		}
	}
	view, err := store.View(ctx)
	if err != nil {
		var de *dynamo.Error
		if errors.As(err, &de) && de.Kind == dynamo.KindMissingGate {
			return Provisioned{}, &NoGateError{g.CoordinationTable}
		}
		return Provisioned{}, fmt.Errorf("table %s: %w", g.CoordinationTable, err)
	}
	return Provisioned{New: made, View: view}, nil
}

// NewGateStore is the gate of that table, for tools.
func NewGateStore(c dynamo.Client, table string) *dynamo.Store {
	return dynamo.New(dynamo.Config{Client: c, Table: table, Name: Upstream, Now: time.Now, NewID: newID})
}

func newID() string { return randomHex(12) }

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
