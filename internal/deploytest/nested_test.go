package deploytest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// nestedFaults holds the template's nested stacks against their own templates: each is there, is given what it asks for and nothing else,
// and has the outputs that are used.
func nestedFaults(tpl template, load func(path string) (template, error)) []string {
	var faults []string
	fault := func(format string, a ...any) { faults = append(faults, fmt.Sprintf(format, a...)) }
	outputs := map[string]bool{}
	for id, stack := range tpl.resources("AWS::CloudFormation::Stack") {
		inner, err := load(text(stack, "Properties", "TemplateURL"))
		if err != nil {
			fault("%s: %v", id, err)
			continue
		}
		asked, _ := at(inner.root, "Parameters").(object)
		given, _ := at(stack, "Properties", "Parameters").(object)
		for name := range given {
			if asked[name] == nil {
				fault("%s is given %s, which it does not know", id, name)
			}
		}
		used := references(at(inner.root, "Resources"))
		for name := range references(at(inner.root, "Conditions")) {
			used[name] = true
		}
		for name, p := range asked {
			if given[name] == nil && at(p, "Default") == nil {
				fault("%s is not given %s", id, name)
			}
			if !used[name] {
				fault("%s asks for %s and does not use it", id, name)
			}
		}
		all, _ := at(inner.root, "Outputs").(object)
		for name := range all {
			outputs[id+".Outputs."+name] = true
		}
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case object:
			if get, ok := v["Fn::GetAtt"].([]any); ok && len(get) == 2 && strings.HasPrefix(fmt.Sprint(get[1]), "Outputs.") {
				if name := fmt.Sprint(get[0], ".", get[1]); !outputs[name] {
					fault("%s is used and is no output", name)
				}
			}
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(tpl.root)
	return faults
}

func loadTemplate(path string) (template, error) {
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return template{}, err
	}
	return parseTemplate(string(b))
}

func TestNestedStacksGetWhatTheyAskFor(t *testing.T) {
	tpl := theTemplate(t)
	if n := len(tpl.resources("AWS::CloudFormation::Stack")); n != 3 {
		t.Errorf("%d nested stacks", n)
	}
	wantNone(t, nestedFaults(tpl, loadTemplate))
	files, err := filepath.Glob(filepath.Join(root, "infra", "stacks", "*.yaml"))
	if err != nil || len(files) != 3 {
		t.Errorf("%v, %v", files, err)
	}

	const inner = "Parameters: {A: {Type: String}, B: {Type: String, Default: b}}\nResources: {R: {P: !Ref A, Q: !Ref B}}\nOutputs: {O: {Value: 1}}\n"
	const outer = "Resources: {S: {Type: AWS::CloudFormation::Stack, Properties: {TemplateURL: x, Parameters: {A: 1}}}, T: {P: !GetAtt S.Outputs.O}}\n"
	for name, c := range map[string]struct{ outer, inner, says string }{
		"":                    {outer, inner, ""},
		"one too many":        {strings.Replace(outer, "{A: 1}", "{A: 1, C: 2}", 1), inner, "given C, which it does not know"},
		"one too few":         {strings.Replace(outer, "{A: 1}", "{B: 1}", 1), inner, "is not given A"},
		"an output of others": {strings.Replace(outer, "Outputs.O", "Outputs.Other", 1), inner, "S.Outputs.Other is used"},
		"one without use":     {outer, strings.Replace(inner, ", Q: !Ref B", "", 1), "asks for B"},
	} {
		faults := nestedFaults(mustParse(t, c.outer), func(string) (template, error) { return mustParse(t, c.inner), nil })
		if c.says == "" {
			wantNone(t, faults)
			continue
		}
		t.Run(name, func(t *testing.T) { wantFinding(t, faults, c.says) })
	}
	wantFinding(t, nestedFaults(mustParse(t, "Resources: {S: {Type: AWS::CloudFormation::Stack, Properties: {TemplateURL: nowhere.yaml}}}"), loadTemplate), "nowhere.yaml")
}

// A Sub that names something that is not there is an error only when CloudFormation meets it, minutes into a deployment.
func TestEverySubAndRefNamesSomething(t *testing.T) {
	for _, name := range []string{"template.yaml", "infra/stacks/alarms.yaml", "infra/stacks/dashboard.yaml", "infra/stacks/egress.yaml"} {
		tpl, err := loadTemplate(name)
		if err != nil {
			t.Fatal(err)
		}
		parameters, _ := at(tpl.root, "Parameters").(object)
		resources, _ := at(tpl.root, "Resources").(object)
		pseudo := regexp.MustCompile(`^AWS(::[A-Za-z]+)?$`)
		for _, section := range []string{"Resources", "Outputs", "Conditions", "Globals"} {
			for ref := range references(at(tpl.root, section)) {
				bare, _, _ := strings.Cut(ref, ".")
				if parameters[bare] == nil && resources[bare] == nil && !pseudo.MatchString(bare) {
					t.Errorf("%s: %s names nothing", name, ref)
				}
			}
		}
	}
}
