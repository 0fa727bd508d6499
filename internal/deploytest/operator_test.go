//go:build unix

package deploytest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"vingate/internal/devstack"
	"vingate/internal/tables"
)

// statement is one of the operator's policy.
type statement struct {
	Sid, Effect, Resource string
	Action                []string
	Condition             map[string]map[string][]string
}

func operatorPolicy(t *testing.T) map[string]statement {
	t.Helper()
	var policy struct {
		Version   string
		Statement []statement
	}
	if err := strict(read(t, "infra/operator-policy.json"), &policy); err != nil {
		t.Fatal(err)
	}
	all := map[string]statement{}
	for _, s := range policy.Statement {
		if _, twice := all[s.Sid]; twice {
			t.Errorf("two statements are called %q", s.Sid)
		}
		all[s.Sid] = s
	}
	return all
}

// covers says whether a statement allows a call.
func (s statement) covers(c call) bool {
	table, _ := strings.CutPrefix(s.Resource, "arn:aws:dynamodb:*:*:table/")
	if !slices.Contains(s.Action, "dynamodb:"+c.op) || !like(table, c.table) {
		return false
	}
	for test, conditions := range s.Condition {
		for key, allowed := range conditions {
			if key != "dynamodb:LeadingKeys" {
				return false // of any other nothing is known here
			}
			if !slices.ContainsFunc(allowed, func(pattern string) bool {
				return c.pk == pattern || strings.HasSuffix(test, "StringLike") && like(pattern, c.pk)
			}) {
				return false
			}
		}
	}
	return true
}

// like is a pattern with a star at its end.
func like(pattern, s string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	return s == pattern || open && strings.HasPrefix(s, prefix)
}

// policyFaults is what is wrong with the operator's statements by themselves.
func policyFaults(all map[string]statement) (faults []string) {
	if len(all) == 0 {
		return []string{"the policy allows nothing"}
	}
	for sid, s := range all {
		for _, a := range s.Action {
			if op, is := strings.CutPrefix(a, "dynamodb:"); !is || strings.Contains(a, "*") || strings.HasPrefix(op, "Delete") || strings.HasPrefix(op, "Create") {
				faults = append(faults, fmt.Sprintf("%s allows %s", sid, a))
				continue
			}
			onItems := strings.HasSuffix(a, "Item")
			if bound := len(s.Condition) > 0; onItems != bound { // a Scan has no leading keys: such a condition would always hold, or never
				faults = append(faults, fmt.Sprintf("%s allows %s with the condition %v", sid, a, s.Condition))
			}
		}
		if s.Effect != "Allow" || s.Resource != "arn:aws:dynamodb:*:*:table/vingate-*" {
			faults = append(faults, fmt.Sprintf("%s is a %s about %s", sid, s.Effect, s.Resource))
		}
	}
	return faults
}

func TestTheOperatorsPolicyNamesItsCallsAndItsThings(t *testing.T) {
	wantNone(t, policyFaults(operatorPolicy(t)))
	good := statement{Sid: "x", Effect: "Allow", Resource: "arn:aws:dynamodb:*:*:table/vingate-*", Action: []string{"dynamodb:GetItem"},
		Condition: map[string]map[string][]string{"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": {"gate#nhtsa"}}}}
	for says, spoil := range map[string]func(*statement){
		"allows dynamodb:*":          func(s *statement) { s.Action = []string{"dynamodb:*"} },
		"allows dynamodb:DeleteItem": func(s *statement) { s.Action = []string{"dynamodb:DeleteItem"} },
		"allows iam:PassRole":        func(s *statement) { s.Action = []string{"iam:PassRole"} },
		"with the condition map[]":   func(s *statement) { s.Condition = nil },
		"about *":                    func(s *statement) { s.Resource = "*" },
		"is a Deny":                  func(s *statement) { s.Effect = "Deny" },
		"allows dynamodb:Scan with":  func(s *statement) { s.Action = []string{"dynamodb:Scan"} },
	} {
		bad := good
		spoil(&bad)
		wantFinding(t, policyFaults(map[string]statement{"x": bad}), says)
	}
}

// operatorsCommands are the commands of the guide's table, each with the statements that it needs.
func operatorsCommands(t *testing.T) map[string][]string {
	t.Helper()
	commands := map[string][]string{}
	for line := range strings.Lines(read(t, "docs/deploy.md")) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || !strings.Contains(cells[1], "`vingate ") {
			continue
		}
		for _, c := range regexp.MustCompile("`vingate ([a-z ]+)`").FindAllStringSubmatch(cells[1], -1) {
			for _, s := range regexp.MustCompile("`([A-Za-z]+)`").FindAllStringSubmatch(cells[2], -1) {
				commands[c[1]] = append(commands[c[1]], s[1])
			}
		}
	}
	return commands
}

// Every command that works on a live table is run, and every call that it really makes is held against the statements that the guide says
// it needs: none is missing, and none is there for nothing.
func TestTheOperatorsPolicyIsWhatHisCommandsDo(t *testing.T) {
	policy, commands := operatorPolicy(t), operatorsCommands(t)
	store, err := devstack.StartStore(t.Context(), devstack.Options{Dynoxide: devstack.Find(".", os.Getenv).Dynoxide})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	d := newDesk(store.StoreURL)
	t.Cleanup(d.Close)
	tool := filepath.Join(t.TempDir(), "vingate")
	build := exec.Command("go", "build", "-o", tool, "vingate/cmd/vingate")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, b)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(tool, args...)
		cmd.Env = []string{"AWS_ENDPOINT_URL_DYNAMODB=" + d.URL, "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local",
			"COORDINATION_TABLE=vingate-coordination", "RESULTS_TABLE=vingate-results", "HOME=" + t.TempDir()}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("vingate %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("tables", "create")
	key := func() string {
		t.Helper()
		var made struct{ Hash string }
		if err := json.Unmarshal([]byte(run("keys", "create", "--label", "Dealer", "--json")), &made); err != nil || made.Hash == "" {
			t.Fatal(err)
		}
		return made.Hash
	}
	old, lost := key(), key()
	played := map[string][][]string{
		"tables describe": {{"tables", "describe"}},
		"gate show":       {{"gate", "show"}},
		"gate watch":      {{"gate", "watch", "--count", "1"}},
		"gate set":        {{"gate", "set", "--rate-per-second", "3"}},
		"gate hold":       {{"gate", "hold", "--for", "1m"}, {"gate", "hold", "--clear"}, {"gate", "hold", "--for", "1m"}, {"gate", "hold", "--clear", "--force"}},
		"gate init":       {{"gate", "init", "--table", "vingate-other"}},
		"keys create":     {{"keys", "create", "--label", "Another"}},
		"keys list":       {{"keys", "list"}},
		"keys usage":      {{"keys", "usage"}},
		"keys rotate":     {{"keys", "rotate", old}},
		"keys revoke":     {{"keys", "revoke", lost}},
	}
	// A table without a gate.
	if _, err := tables.Create(t.Context(), store.Client, tables.Names{Coordination: "vingate-other", Results: "vingate-results"}); err != nil {
		t.Fatal(err)
	}
	for name := range commands {
		if played[name] == nil {
			t.Errorf("the guide has `vingate %s`, which is not played here", name)
		}
	}
	for name, lines := range played {
		d.mu.Lock()
		clear(d.calls)
		d.mu.Unlock()
		for _, args := range lines {
			run(args...)
		}
		needed := map[string]bool{}
		d.mu.Lock()
		for c := range d.calls {
			covered := false
			for _, sid := range commands[name] {
				if policy[sid].covers(c) {
					covered, needed[sid] = true, true
				}
			}
			if !covered {
				t.Errorf("vingate %s does %+v, which none of %v allows", name, c, commands[name])
			}
		}
		d.mu.Unlock()
		for _, sid := range commands[name] {
			if !needed[sid] {
				t.Errorf("vingate %s does not need %s", name, sid)
			}
		}
	}
	for sid := range policy {
		if !slices.ContainsFunc(slices.Collect(maps.Values(commands)), func(s []string) bool { return slices.Contains(s, sid) }) {
			t.Errorf("no command of the guide needs %s", sid)
		}
	}
}
