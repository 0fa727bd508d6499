package vpicdata

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// today is the day of all tests; the data is a little older.
var today = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// moduleRoot is the folder of go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = parent
	}
}

// openCatalog opens NHTSA's data once for all tests, from the cache that `make run`
// uses too.
var openCatalog = sync.OnceValues(func() (*Catalog, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	return Open(context.Background(), Options{
		Data:     Locate(os.Getenv, root),
		CacheDir: filepath.Join(root, ".local", "vpic"),
		Now:      func() time.Time { return today },
	})
})

func catalog(t testing.TB) *Catalog {
	t.Helper()
	c, err := openCatalog()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func decode(t testing.TB, vin string, year int) Row {
	t.Helper()
	row, err := catalog(t).Decode(context.Background(), Query{VIN: vin, ModelYear: year})
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	return row
}
