package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"html/template"
	"path"
	"strings"
)

//go:embed assets
var assetFiles embed.FS

// Assets is the path in front of every asset.
const Assets = "/assets/"

// Asset is a file of the page. Its name holds a hash of its content: under one name there is only ever one content.
type Asset struct {
	Name string // core-0123456789abcdef.mjs
	Type string // Content-Type
	Body []byte
}

func (a Asset) path() string { return Assets + a.Name }

var (
	core = asset("core.mjs", "text/javascript; charset=utf-8", assetFile("core.mjs"))
	// The app finds the core by the name it is served under.
	app = asset("app.mjs", "text/javascript; charset=utf-8",
		bytes.Replace(assetFile("app.mjs"), []byte(`"./core.mjs"`), []byte(`"./`+core.Name+`"`), 1))
	icon = asset("icon.svg", "image/svg+xml", assetFile("icon.svg"))

	style = template.CSS(assetFile("page.css"))
)

func assetFile(name string) []byte {
	b, err := assetFiles.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return b
}

func asset(name, contentType string, body []byte) Asset {
	sum := sha256.Sum256(body)
	ext := path.Ext(name)
	return Asset{strings.TrimSuffix(name, ext) + "-" + hex.EncodeToString(sum[:8]) + ext, contentType, body}
}

// FindAsset gives the asset of a name; the name is that behind Assets.
func FindAsset(name string) (Asset, bool) {
	for _, a := range []Asset{core, app, icon} {
		if a.Name == name {
			return a, true
		}
	}
	return Asset{}, false
}

// Policy is the Content-Security-Policy of a page: its own files, its own calls, and the one style that stands in it, by
// its hash. Markup is only ever made of this service's own answers, through one named place in the script.
var Policy = strings.Join([]string{
	"default-src 'none'", "script-src 'self'", "style-src 'sha256-" + styleHash() + "'", "img-src 'self'", "connect-src 'self'",
	"form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
	"require-trusted-types-for 'script'", "trusted-types vingate",
}, "; ")

func styleHash() string {
	sum := sha256.Sum256([]byte(style))
	return base64.StdEncoding.EncodeToString(sum[:])
}
