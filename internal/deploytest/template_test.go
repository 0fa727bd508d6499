package deploytest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// root is the module's folder, seen from this package.
const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// object is a mapping of the template. Scalars are strings as written, lists are []any, and CloudFormation's short
// tags have become their long form: !Ref X is object{"Ref": "X"}.
type object = map[string]any

type template struct{ root object }

func parseTemplate(text string) (template, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return template{}, err
	}
	if len(doc.Content) != 1 {
		return template{}, errors.New("template is empty")
	}
	v, err := plain(doc.Content[0])
	if err != nil {
		return template{}, err
	}
	top, ok := v.(object)
	if !ok {
		return template{}, errors.New("template is not a mapping")
	}
	return template{top}, nil
}

// plain turns a YAML node into objects, lists and strings. A key that stands twice is an error: YAML would let the
// later one win in silence.
func plain(n *yaml.Node) (any, error) {
	v, err := untagged(n)
	if err != nil || !strings.HasPrefix(n.Tag, "!") || strings.HasPrefix(n.Tag, "!!") {
		return v, err
	}
	switch name := strings.TrimPrefix(n.Tag, "!"); name {
	case "Ref", "Condition":
		return object{name: v}, nil
	case "GetAtt":
		if s, ok := v.(string); ok {
			resource, attribute, _ := strings.Cut(s, ".")
			v = []any{resource, attribute}
		}
		return object{"Fn::GetAtt": v}, nil
	default:
		return object{"Fn::" + name: v}, nil
	}
}

func untagged(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		return n.Value, nil
	case yaml.SequenceNode:
		list := []any{}
		for _, c := range n.Content {
			v, err := plain(c)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.MappingNode:
		m := object{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if _, twice := m[key]; twice {
				return nil, fmt.Errorf("line %d: %s stands twice", n.Content[i].Line, key)
			}
			v, err := plain(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			m[key] = v
		}
		return m, nil
	}
	return nil, fmt.Errorf("line %d: neither a mapping nor a list nor a scalar", n.Line)
}

// at follows keys into nested objects; what is not there is nil.
func at(v any, path ...string) any {
	for _, key := range path {
		m, ok := v.(object)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

// text is the scalar at a path, or "".
func text(v any, path ...string) string {
	s, _ := at(v, path...).(string)
	return s
}

// resources are the template's resources of one type, by logical id.
func (t template) resources(kind string) map[string]object {
	found := map[string]object{}
	all, _ := at(t.root, "Resources").(object)
	for id, r := range all {
		if text(r, "Type") == kind {
			found[id], _ = r.(object)
		}
	}
	return found
}

const serverlessFunction = "AWS::Serverless::Function"

// property is a function's own property, or what Globals says of all functions.
func (t template) property(function object, name string) any {
	if v := at(function, "Properties", name); v != nil {
		return v
	}
	return at(t.root, "Globals", "Function", name)
}

// variables are a function's environment, by name.
func (t template) variables(function object) object {
	all := object{}
	for _, source := range []any{at(t.root, "Globals", "Function", "Environment", "Variables"), at(function, "Properties", "Environment", "Variables")} {
		m, _ := source.(object)
		for name, v := range m {
			all[name] = v
		}
	}
	return all
}

func theTemplate(t *testing.T) template {
	t.Helper()
	tpl, err := parseTemplate(read(t, "template.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

func mustParse(t *testing.T, text string) template {
	t.Helper()
	tpl, err := parseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

// wantNone says what a check found in the real files.
func wantNone(t *testing.T, findings []string) {
	t.Helper()
	for _, f := range findings {
		t.Error(f)
	}
}

// wantFinding shows that a check can fail: exactly one finding, and it says this.
func wantFinding(t *testing.T, findings []string, says string) {
	t.Helper()
	if len(findings) != 1 || !strings.Contains(findings[0], says) {
		t.Errorf("findings are %q, want one that says %q", findings, says)
	}
}

func TestTemplateParserKnowsCloudFormationsShortTagsAndRefusesDoubleKeys(t *testing.T) {
	tpl := mustParse(t, "A: !Ref B\nC: !GetAtt D.Arn\nE: !Sub x${F}\nG: [!If [H, 1, true]]\n")
	if got := text(tpl.root, "A", "Ref"); got != "B" {
		t.Errorf("!Ref is %q", got)
	}
	if got := fmt.Sprint(at(tpl.root, "C", "Fn::GetAtt")); got != "[D Arn]" {
		t.Errorf("!GetAtt is %s", got)
	}
	if got := text(tpl.root, "E", "Fn::Sub"); got != "x${F}" {
		t.Errorf("!Sub is %q", got)
	}
	if got := fmt.Sprint(at(tpl.root, "G")); got != "[map[Fn::If:[H 1 true]]]" {
		t.Errorf("!If in a list is %s", got)
	}
	if _, err := parseTemplate("A: 1\nB: 2\nA: 3\n"); err == nil || !strings.Contains(err.Error(), "A stands twice") {
		t.Errorf("a double key gives %v", err)
	}
}
