//go:build unix

package results

import (
	"bytes"
	"os"
	"testing"

	"vingate/internal/devstack"
	"vingate/internal/tables"
	"vingate/internal/vpic"
)

func TestAnAnswerComesBackFromARealTable(t *testing.T) {
	local, err := devstack.StartStore(t.Context(), devstack.Options{Dynoxide: devstack.Find(".", os.Getenv).Dynoxide, Env: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(local.Close)
	names := tables.Names{Coordination: "coordination", Results: "results"}
	if _, err := tables.Create(t.Context(), local.Client, names); err != nil {
		t.Fatal(err)
	}
	s, _ := store(local.Client)
	q := vpic.Query{VIN: accord, ModelYear: 2003}
	put := answer(t, q, car())
	for range 2 { // an answer takes the place of an older one
		if err := s.Put(t.Context(), put); err != nil {
			t.Fatal(err)
		}
	}
	got, ok, err := s.Get(t.Context(), q)
	if !ok || err != nil || !bytes.Equal(got.Body(), put.Body()) || got.Make() != "HONDA" || !got.FetchedAt.Equal(noon) {
		t.Errorf("Get = %+v, %v, %v", got, ok, err)
	}
	if _, ok, err := s.Get(t.Context(), vpic.Query{VIN: accord}); ok || err != nil {
		t.Errorf("another question: %v, %v", ok, err)
	}
	if attrKey != tables.Key || attrExpires != tables.TTL {
		t.Errorf("the table is made for %s and %s, the items have %s and %s", tables.Key, tables.TTL, attrKey, attrExpires)
	}
}
