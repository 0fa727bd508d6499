package honesttest

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"vingate/internal/vpic"
)

// root is the module's folder, seen from this package.
const root = "../.."

// vpicPath is the package that alone makes what is said of a vehicle. That nobody else can put an Answer, a Decoding, a Value or a batch's item together, or
// change one, is the compiler's business; the doors below are what it leaves open.
const vpicPath = "vingate/internal/vpic"

// doors are vpic's functions that make an answer of bytes or of a server, each with the only folder that may use it.
var doors = map[string]string{
	"Read":      "internal/results",  // of NHTSA's own body, as it was stored
	"ReadBatch": "",                  // tests only
	"New":       "functions/decode/", // of the configured server
}

// spared are the folders whose business is to answer like NHTSA.
var spared = []string{
	"internal/vpic/",    // the meaning of NHTSA's answers
	"internal/standin/", // the stand-in for NHTSA, which says so in every answer
	"cmd/vpic-standin/", // the same, its command
}

// questions are keys that are a part of the question, too, with where they are read or written as such.
var questions = map[string][]string{
	"vin":       {""},
	"modelyear": {"internal/edge/", "internal/api/"},
}

// carriers are the types outside of package vpic that have places for a part of a vehicle, by their folder: what was read from an answer
// of vingate's own API. They are filled by reading JSON, or by copying from each other under the same name; see inventions.
var carriers = map[string]string{
	"internal/api":  "Answer",  // the answer as the API's client reads it
	"internal/bulk": "Decoded", // what is written of it for a line of a file
}

// readers are files that fill a carrier otherwise, with the reason.
var readers = map[string]string{
	"internal/bulk/format.go": "reads back the lines that bulk wrote",
}

// source is a file of Go.
type source struct {
	path string // from the module's root
	file *ast.File
	set  *token.FileSet
}

// finding is something that must not be there.
type finding struct {
	line int
	says string
}

// walk visits every file of the project that is neither hidden nor fetched nor built nor a test's.
func walk(t *testing.T, visit func(path, name string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		switch {
		case !d.IsDir():
			visit(path, name)
		case name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "testdata" || name == "build"):
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// goFiles are the Go files that are not tests, but for those spared.
func goFiles(t *testing.T, spared func(name string) bool) []source {
	t.Helper()
	var list []source
	walk(t, func(path, name string) {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !spared(name) {
			list = append(list, parse(t, path, name))
		}
	})
	return list
}

func isSpared(name string) bool {
	return slices.ContainsFunc(spared, func(folder string) bool { return strings.HasPrefix(name, folder) })
}

func parse(t *testing.T, path, name string) source {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return source{name, file, set}
}

// fields are NHTSA's keys.
var fields = func() map[string]bool {
	keys := map[string]bool{}
	for _, g := range vpic.Groups() {
		for _, f := range g.Fields {
			keys[f.Name] = true
		}
	}
	return keys
}()

// vehicleKeys are NHTSA's and the API's, in small letters.
var vehicleKeys = func() map[string]bool {
	keys := map[string]bool{}
	for key := range fields {
		keys[strings.ToLower(key)] = true
	}
	for _, key := range []string{"summary", "fields", "numbers", "year", "vehicle"} {
		keys[key] = true
	}
	return keys
}()

var (
	jsonTag    = regexp.MustCompile(`json:"([^",]*)`)
	jsonInText = regexp.MustCompile(`"([A-Za-z_0-9]+)"\s*:`)
)

// makes are enough of them to notice a text that speaks of one. Those that are also a common word are left out.
var makes = regexp.MustCompile(`(?i)\b(acura|audi|bmw|buick|cadillac|chevrolet|chrysler|dodge|ferrari|ford|freightliner|gmc|harley|honda|hyundai|infiniti|jaguar|jeep|kawasaki|kenworth|kia|lexus|` +
	`mazda|mercedes|mitsubishi|nissan|peterbilt|pontiac|porsche|subaru|suzuki|tesla|toyota|volkswagen|volvo|yamaha)\b`)

// copied says whether a value comes from a place of the same name: x.Make or x.Make().
func copied(value ast.Expr, name string) bool {
	if call, ok := value.(*ast.CallExpr); ok && len(call.Args) == 0 {
		value = call.Fun
	}
	from, ok := value.(*ast.SelectorExpr)
	return ok && from.Sel.Name == name
}

// inventions finds what could say something of a vehicle that NHTSA did not.
func inventions(s source) []finding {
	var found []finding
	report := func(at token.Pos, format string, args ...any) {
		found = append(found, finding{s.set.Position(at).Line, fmt.Sprintf(format, args...)})
	}
	key := func(at token.Pos, what, name string) {
		lower := strings.ToLower(name)
		if vehicleKeys[lower] && !slices.ContainsFunc(questions[lower], func(folder string) bool { return strings.HasPrefix(s.path, folder) }) {
			report(at, "%s %q: only package vpic writes it", what, name)
		}
	}

	// place is a field of a struct that has NHTSA's name.
	place := func(at token.Pos, name string, value ast.Expr) {
		if fields[name] && readers[s.path] == "" && name != "VIN" && name != "ModelYear" && !copied(value, name) {
			report(at, "%s is given something that is no %s of an answer", name, name)
		}
	}
	folder := path.Dir(s.path)

	name := ""
	for _, i := range s.file.Imports {
		switch imported, _ := strconv.Unquote(i.Path.Value); imported {
		case "unsafe":
			report(i.Pos(), "imports unsafe, which reaches what is closed")
		case vpicPath:
			switch name = "vpic"; {
			case i.Name != nil && i.Name.Name == ".":
				report(i.Pos(), "dot import of vpic, whose doors cannot be told apart then")
			case i.Name != nil:
				name = i.Name.Name
			}
		}
	}
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:linkname") {
				report(c.Pos(), "go:linkname, which reaches what is closed")
			}
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			pkg, ok := n.X.(*ast.Ident)
			only, door := doors[n.Sel.Name]
			if ok && door && name != "" && pkg.Name == name && (only == "" || !strings.HasPrefix(s.path, only)) {
				report(n.Pos(), "vpic.%s makes an answer, which only %q may", n.Sel.Name, only)
			}
		case *ast.Field:
			if n.Tag != nil {
				tag, _ := strconv.Unquote(n.Tag.Value)
				if m := jsonTag.FindStringSubmatch(tag); m != nil {
					key(n.Tag.Pos(), "JSON key", m[1])
				}
			}
			return n.Tag == nil // it is no text
		case *ast.TypeSpec:
			return carriers[folder] != n.Name.Name
		case *ast.CompositeLit:
			named, ok := n.Type.(*ast.Ident)
			if ok && carriers[folder] == named.Name && len(n.Elts) > 0 {
				if _, keyed := n.Elts[0].(*ast.KeyValueExpr); !keyed {
					report(n.Pos(), "%s is filled without names", named.Name)
				}
			}
		case *ast.KeyValueExpr:
			if text, ok := literal(n.Key); ok {
				key(n.Pos(), "key", text)
			}
			if ident, ok := n.Key.(*ast.Ident); ok {
				place(n.Pos(), ident.Name, n.Value)
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				switch left := left.(type) {
				case *ast.IndexExpr:
					if text, ok := literal(left.Index); ok {
						key(left.Pos(), "key", text)
					}
				case *ast.SelectorExpr:
					var value ast.Expr // nil where one call gives several
					if len(n.Lhs) == len(n.Rhs) {
						value = n.Rhs[i]
					}
					place(left.Pos(), left.Sel.Name, value)
				}
			}
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if text, ok := literal(n); ok {
				for _, m := range jsonInText.FindAllStringSubmatch(text, -1) {
					key(n.Pos(), "JSON key", m[1])
				}
				if m := makes.FindString(text); m != "" {
					report(n.Pos(), "names a make: %s", m)
				}
			}
		}
		return true
	})
	return found
}

// literal is the text of a string literal.
func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

func TestOnlyNHTSAsAnswersSayAnythingOfAVehicle(t *testing.T) {
	files := goFiles(t, isSpared)
	seen := map[string]bool{}
	for _, s := range files {
		seen[filepath.ToSlash(filepath.Dir(s.path))] = true
		for _, f := range inventions(s) {
			t.Errorf("%s:%d: %s", s.path, f.line, f.says)
		}
	}
	for _, folder := range []string{"cmd/vingate", "functions/decode", "internal/decode", "internal/edge", "internal/results"} {
		if !seen[folder] {
			t.Errorf("%s was not looked at", folder)
		}
	}
}

// wanted are the comments "// want ..." of a file: for each line, what has to be found there.
var wantComment = regexp.MustCompile("(?:\"[^\"]*\"|`[^`]*`)")

func wanted(s source) map[int][]string {
	list := map[int][]string{}
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if _, text, ok := strings.Cut(c.Text, "// want "); ok {
				for _, quoted := range wantComment.FindAllString(text, -1) {
					line := s.set.Position(c.Pos()).Line
					list[line] = append(list[line], quoted[1:len(quoted)-1])
				}
			}
		}
	}
	return list
}

// wantExactly holds what was found against what is wanted.
func wantExactly(t *testing.T, s source, found []finding) {
	t.Helper()
	want := wanted(s)
	if len(want) == 0 {
		t.Fatalf("%s wants nothing", s.path)
	}
	for _, f := range found {
		i := slices.IndexFunc(want[f.line], func(says string) bool { return strings.Contains(f.says, says) })
		if i < 0 {
			t.Errorf("%s:%d: unexpected: %s", s.path, f.line, f.says)
			continue
		}
		want[f.line] = slices.Delete(want[f.line], i, i+1)
	}
	for line, missing := range want {
		for _, says := range missing {
			t.Errorf("%s:%d: not found: %s", s.path, line, says)
		}
	}
}

func TestSourceCheckCanFail(t *testing.T) {
	for name, as := range map[string]string{"doors.go": "internal/decode/doors.go", "invented.go": "internal/decode/invented.go", "carried.go": "internal/bulk/carried.go"} {
		s := parse(t, filepath.Join("testdata", name), as)
		wantExactly(t, s, inventions(s))
	}
	// The same is right where it belongs.
	s := parse(t, filepath.Join("testdata", "doors.go"), "internal/results/doors.go")
	for _, f := range inventions(s) {
		if strings.Contains(f.says, "vpic.Read makes") {
			t.Errorf("package results may not read what it stored: %s", f.says)
		}
	}
}

// compiled imports vpic and what it imports as the go command compiled them.
func compiled(t *testing.T, set *token.FileSet) types.Importer {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-export", "-f", "{{.ImportPath}} {{.Export}}", vpicPath)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
}

// What the compiler refuses is the other half of the promise.
func TestNobodyElseCanPutAnAnswerTogether(t *testing.T) {
	s := parse(t, filepath.Join("testdata", "forged.go"), "internal/decode/forged.go")
	var found []finding
	cfg := types.Config{
		Importer: compiled(t, s.set),
		Error: func(err error) {
			e := err.(types.Error)
			found = append(found, finding{s.set.Position(e.Pos).Line, e.Msg})
		},
	}
	_, _ = cfg.Check("forged", s.set, []*ast.File{s.file}, nil)
	wantExactly(t, s, found)
}

// vpic's own types and functions are what both checks rely on.
func TestTheDoorsOfPackageVPIC(t *testing.T) {
	pkg, err := compiled(t, token.NewFileSet()).Import(vpicPath)
	if err != nil {
		t.Fatal(err)
	}
	closed := map[string][]string{ // with what may be open in each
		"Answer": {"Quota", "FetchedAt", "Took"}, "BatchItem": {"Err"}, "Decoding": nil, "Value": nil,
	}
	var isClosed func(types.Type) bool
	isClosed = func(ty types.Type) bool {
		switch u := ty.(type) {
		case interface{ Elem() types.Type }: // a pointer, a list, a map
			return isClosed(u.Elem())
		case *types.Named:
			_, ok := closed[u.Obj().Name()]
			return u.Obj().Pkg() == pkg && (ok || u.Obj().Name() == "BatchAnswer" || u.Obj().Name() == "Client")
		}
		return false
	}
	for name, open := range closed {
		s := pkg.Scope().Lookup(name).Type().Underlying().(*types.Struct)
		for f := range s.Fields() {
			if f.Exported() && !slices.Contains(open, f.Name()) {
				t.Errorf("%s.%s is open to everybody", name, f.Name())
			}
		}
	}
	makesOne := func(name string, f *types.Func) {
		for r := range f.Signature().Results().Variables() {
			if _, known := doors[name]; f.Exported() && isClosed(r.Type()) && !known {
				t.Errorf("vpic.%s makes a %s and is not among the doors", name, r.Type())
			}
		}
	}
	for _, name := range pkg.Scope().Names() {
		switch o := pkg.Scope().Lookup(name).(type) {
		case *types.Func:
			makesOne(name, o)
		case *types.TypeName:
			if named, ok := o.Type().(*types.Named); ok && !isClosed(named) { // what is closed gives only what it has
				for m := range named.Methods() {
					makesOne(name+"."+m.Name(), m)
				}
			}
		}
	}
	for name := range doors {
		if pkg.Scope().Lookup(name) == nil {
			t.Errorf("vpic has no %s", name)
		}
	}
}
