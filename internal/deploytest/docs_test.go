package deploytest

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"vingate/internal/config"
)

// row is a variable as docs/configuration.md lists it.
func row(v config.Variable) string {
	def := "`" + v.Default + "`"
	switch {
	case v.Required:
		def = "required"
	case v.Default == "":
		def = "unset"
	}
	return fmt.Sprintf("| `%s` | %s | %s |", v.Name, def, v.Description)
}

var variableRow = regexp.MustCompile("(?m)^\\| `[A-Z][A-Z0-9_]*` \\|.*$")

// configurationFaults holds the document's table against the code's list, row by row and in the same order.
func configurationFaults(document string, variables []config.Variable) []string {
	var want []string
	for _, v := range variables {
		want = append(want, row(v))
	}
	got := variableRow.FindAllString(document, -1)
	var faults []string
	for _, r := range want {
		if !slices.Contains(got, r) {
			faults = append(faults, "the table lacks the row "+r)
		}
	}
	for _, r := range got {
		if !slices.Contains(want, r) {
			faults = append(faults, "the code does not have the row "+r)
		}
	}
	if len(faults) == 0 && !slices.Equal(got, want) {
		faults = append(faults, "the rows do not stand in the code's order, each once")
	}
	return faults
}

func TestTheConfigurationTableIsTheCodesOwnList(t *testing.T) {
	wantNone(t, configurationFaults(read(t, "docs/configuration.md"), config.Variables()))
}

func TestConfigurationCheckCanFail(t *testing.T) {
	variables := []config.Variable{{Name: "A", Default: "1", Description: "one"}, {Name: "B", Required: true, Description: "two"}, {Name: "C", Description: "three"}}
	const good = "| variable | default | meaning |\n|---|---|---|\n| `A` | `1` | one |\n| `B` | required | two |\n| `C` | unset | three |\n"
	wantNone(t, configurationFaults(good, variables))
	wantFinding(t, configurationFaults(strings.Replace(good, "| `C` | unset | three |\n", "", 1), variables), "lacks the row | `C`")
	wantFinding(t, configurationFaults(good+"| `D` | unset | four |\n", variables), "does not have the row | `D`")
	wantFinding(t, configurationFaults(good+"| `A` | `1` | one |\n", variables), "order")
	if faults := configurationFaults(strings.Replace(good, "`1`", "`2`", 1), variables); len(faults) != 2 {
		t.Errorf("another default gives %q", faults)
	}
}

var (
	makeTarget   = regexp.MustCompile(`(?m)^([a-zA-Z0-9_-]+):(?:[^=]|$)`)
	spokenTarget = regexp.MustCompile(`(?m)^([a-zA-Z0-9_-]+):.*## `)
	codeSpan     = regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")
	makeCall     = regexp.MustCompile(`(?:^|[\s` + "`" + `;&(])make((?:[ \t]+[A-Z_]+=\S+)*)[ \t]+([a-zA-Z][a-zA-Z0-9_-]*)`)
)

// targetFaults finds make targets that a document names in code and the Makefile does not have.
func targetFaults(document, makefile string) []string {
	targets := map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(makefile, -1) {
		targets[m[1]] = true
	}
	var faults []string
	for _, span := range codeSpan.FindAllString(document, -1) {
		for _, call := range makeCall.FindAllStringSubmatch(span, -1) {
			if !targets[call[2]] {
				faults = append(faults, fmt.Sprintf("make %s is no target of the Makefile", call[2]))
			}
		}
	}
	return faults
}

func TestDocumentsNameOnlyMakeTargetsThatExist(t *testing.T) {
	makefile := read(t, "Makefile")
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(documents) == 0 {
		t.Fatalf("found %d documents: %v", len(documents), err)
	}
	for _, d := range append(documents, filepath.Join(root, "README.md")) {
		name, _ := filepath.Rel(root, d)
		for _, f := range targetFaults(read(t, name), makefile) {
			t.Errorf("%s: %s", name, f)
		}
	}
	// The README's first two commands are the product's promise.
	for _, command := range []string{"make run", "make test"} {
		if !strings.Contains(read(t, "README.md"), command) {
			t.Errorf("the README does not name %s", command)
		}
	}
	for _, m := range spokenTarget.FindAllStringSubmatch(makefile, -1) {
		if !strings.Contains(read(t, "docs/development.md"), "`make "+m[1]) {
			t.Errorf("docs/development.md does not name `make %s`", m[1])
		}
	}
}

func TestTargetCheckCanFail(t *testing.T) {
	const makefile = "X := 1\nrun: deps\n\ttrue\ntest:\n\ttrue\n"
	wantNone(t, targetFaults("To make sure, `make run PORT=1` and\n```\nPORT=1 make test\n```\n", makefile))
	wantFinding(t, targetFaults("`make rum`", makefile), "make rum")
	wantFinding(t, targetFaults("```\ncd x && make A=b deploy\n```", makefile), "make deploy")
	wantFinding(t, targetFaults("`make X`", makefile), "make X")
}

var requirement = regexp.MustCompile(`(?m)^\t?(?:require )?(\S+\.\S+/\S+) (v\S+)(?: // indirect)?$`)

// dependencyFaults holds the list of dependencies against the modules that the code imports, with go.mod's versions.
func dependencyFaults(document, gomod string, imports []string) []string {
	versions := map[string]string{}
	for _, m := range requirement.FindAllStringSubmatch(gomod, -1) {
		versions[m[1]] = m[2]
	}
	direct := map[string]bool{}
	var faults []string
	for _, path := range imports {
		module := ""
		for m := range versions {
			if (path == m || strings.HasPrefix(path, m+"/")) && len(m) > len(module) {
				module = m
			}
		}
		if module == "" {
			faults = append(faults, path+" is imported and belongs to no module of go.mod")
			continue
		}
		direct[module] = true
	}
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (v[^ ]+) \\|").FindAllStringSubmatch(document, -1) {
		listed[m[1]] = m[2]
	}
	for module := range direct {
		if listed[module] != versions[module] {
			faults = append(faults, fmt.Sprintf("%s is at %s, the list says %q", module, versions[module], listed[module]))
		}
	}
	for module := range listed {
		if !direct[module] {
			faults = append(faults, module+" is listed and nothing imports it")
		}
	}
	return faults
}

// foreignImports are the packages of other modules that the Go code imports, tests included.
func foreignImports(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	for _, folder := range []string{"cmd", "functions", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, i := range file.Imports {
				name, err := strconv.Unquote(i.Path.Value)
				if err != nil {
					return err
				}
				if first, _, _ := strings.Cut(name, "/"); strings.Contains(first, ".") {
					found[name] = true
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func TestEveryImportedModuleIsListedWithItsVersion(t *testing.T) {
	wantNone(t, dependencyFaults(read(t, "docs/dependencies.md"), read(t, "go.mod"), foreignImports(t)))
}

func TestDependencyCheckCanFail(t *testing.T) {
	const gomod = "module x\n\ngo 1.26.8\n\nrequire (\n\texample.com/a v1.0.0\n\texample.com/a/b v1.2.0 // indirect\n)\n"
	const list = "| module | version |\n|---|---|\n| `example.com/a` | v1.0.0 | why |\n"
	imports := []string{"example.com/a/c"}
	wantNone(t, dependencyFaults(list, gomod, imports))
	wantFinding(t, dependencyFaults(list, strings.Replace(gomod, "a v1.0.0", "a v1.1.0", 1), imports), "example.com/a is at v1.1.0")
	wantFinding(t, dependencyFaults("", gomod, imports), "example.com/a is at v1.0.0")
	wantFinding(t, dependencyFaults(list, gomod, append(imports, "example.com/a/b/c")), "example.com/a/b is at v1.2.0")
	wantFinding(t, dependencyFaults(list+"| `example.com/a/b` | v1.2.0 | why |\n", gomod, imports), "example.com/a/b is listed")
	wantFinding(t, dependencyFaults(list, gomod, append(imports, "example.org/d")), "example.org/d is imported")
}

// lockFaults: npm's part is pinned exactly, by checksum, and leaves the registry to whoever installs.
func lockFaults(manifest, lock string) []string {
	var m struct{ Dependencies, DevDependencies, OptionalDependencies map[string]string }
	var l struct {
		Packages map[string]struct{ Version, Integrity, Resolved string }
	}
	if err := json.Unmarshal([]byte(manifest), &m); err != nil {
		return []string{err.Error()}
	}
	if err := json.Unmarshal([]byte(lock), &l); err != nil {
		return []string{err.Error()}
	}
	var faults []string
	for _, pins := range []map[string]string{m.Dependencies, m.DevDependencies, m.OptionalDependencies} {
		for name, version := range pins {
			if locked := l.Packages["node_modules/"+name].Version; locked != version {
				faults = append(faults, fmt.Sprintf("%s is %q in package.json and %q in the lock", name, version, locked))
			}
		}
	}
	for path, p := range l.Packages {
		if path != "" && p.Integrity == "" {
			faults = append(faults, path+" has no checksum")
		}
		if p.Resolved != "" {
			faults = append(faults, path+" names where it was fetched from")
		}
	}
	return faults
}

func TestNpmsLockPinsByChecksumAndNamesNoRegistry(t *testing.T) {
	for _, dir := range []string{"tools/npm/", "tools/peers/node/"} {
		wantNone(t, lockFaults(read(t, dir+"package.json"), read(t, dir+"package-lock.json")))
	}
	const manifest = `{"dependencies":{"a":"1.0.0"}}`
	wantNone(t, lockFaults(manifest, `{"packages":{"":{},"node_modules/a":{"version":"1.0.0","integrity":"x"}}}`))
	wantFinding(t, lockFaults(`{"dependencies":{"a":"^1.0.0"}}`, `{"packages":{"node_modules/a":{"version":"1.0.0","integrity":"x"}}}`), `a is "^1.0.0"`)
	wantFinding(t, lockFaults(`{"devDependencies":{"a":"^1.0.0"}}`, `{"packages":{"node_modules/a":{"version":"1.0.0","integrity":"x"}}}`), `a is "^1.0.0"`)
	wantFinding(t, lockFaults(manifest, `{"packages":{"node_modules/a":{"version":"1.0.0"}}}`), "no checksum")
	wantFinding(t, lockFaults(manifest, `{"packages":{"node_modules/a":{"version":"1.0.0","integrity":"x","resolved":"y"}}}`), "fetched from")
}

// npmFaults holds the packages that are pinned for npm against the list of dependencies.
func npmFaults(document, manifest string) []string {
	var m struct{ Dependencies, DevDependencies, OptionalDependencies map[string]string }
	if err := json.Unmarshal([]byte(manifest), &m); err != nil {
		return []string{err.Error()}
	}
	listed := map[string]string{}
	for _, found := range regexp.MustCompile("(?m)^\\| npm `([^`]+)` \\| ([^ ]+) \\|").FindAllStringSubmatch(document, -1) {
		listed[found[1]] = found[2]
	}
	var faults []string
	for _, pins := range []map[string]string{m.Dependencies, m.DevDependencies, m.OptionalDependencies} {
		for name, version := range pins {
			if listed[name] != version {
				faults = append(faults, fmt.Sprintf("%s is at %s, the list says %q", name, version, listed[name]))
			}
			delete(listed, name)
		}
	}
	for name := range listed {
		faults = append(faults, name+" is listed and not installed")
	}
	return faults
}

func TestEveryPackageOfNpmIsListedWithItsVersion(t *testing.T) {
	wantNone(t, npmFaults(read(t, "docs/dependencies.md"), read(t, "tools/npm/package.json")))
	const list = "| npm `a` | 1.0.0 | MIT | why |\n"
	wantNone(t, npmFaults(list, `{"devDependencies":{"a":"1.0.0"}}`))
	wantFinding(t, npmFaults(list, `{"dependencies":{"a":"1.1.0"}}`), "a is at 1.1.0")
	wantFinding(t, npmFaults("", `{"optionalDependencies":{"a":"1.0.0"}}`), `the list says ""`)
	wantFinding(t, npmFaults(list, `{}`), "a is listed")
}

var (
	testName = regexp.MustCompile("`(?:[a-z/]+: )?((?:Test|Fuzz|Benchmark)[A-Z]\\w+)`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
)

// testFaults finds tests that a document names and no code has.
func testFaults(document string, code ...string) []string {
	known := map[string]bool{}
	for _, c := range code {
		for _, m := range testFunc.FindAllStringSubmatch(c, -1) {
			known[m[1]] = true
		}
	}
	var faults []string
	for _, m := range testName.FindAllStringSubmatch(document, -1) {
		if !known[m[1]] {
			faults = append(faults, m[1]+" is not among the tests")
		}
	}
	return faults
}

func TestDocumentsNameOnlyTestsThatExist(t *testing.T) {
	var code []string
	for _, folder := range []string{"cmd", "functions", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, "_test.go") {
				b, err := os.ReadFile(path)
				code = append(code, string(b))
				return err
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		documents, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(documents) == 0 {
			t.Fatalf("found %d documents: %v", len(documents), err)
		}
		for _, d := range documents {
			name, _ := filepath.Rel(root, d)
			for _, f := range testFaults(read(t, name), code...) {
				t.Errorf("%s: %s", name, f)
			}
		}
	}
}

func TestTestNameCheckCanFail(t *testing.T) {
	const code = "func TestOne(t *testing.T) {}\nfunc FuzzTwo(f *testing.F) {}\n"
	wantNone(t, testFaults("`TestOne` and `FuzzTwo`, but `Testing` is a word", code))
	wantFinding(t, testFaults("`TestOne`, `TestThree_3`", code), "TestThree_3 is not")
}

func TestLocalLinksOfTheDocumentsLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)
	seen := 0
	for _, pattern := range []string{"README.md", "SECURITY.md", "docs/*.md", "docs/*/*.md"} {
		documents, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents {
			body, err := os.ReadFile(d)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range link.FindAllStringSubmatch(string(body), -1) {
				if strings.Contains(m[1], "://") {
					continue
				}
				seen++
				if _, err := os.Stat(filepath.Join(filepath.Dir(d), m[1])); err != nil {
					t.Errorf("%s links to %s, which is not there", d, m[1])
				}
			}
		}
	}
	if seen == 0 {
		t.Error("found no link to look at")
	}
}
