//go:build unix

package deploytest

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"vingate/internal/observe"
)

// emitted is what CloudWatch would make of the lines: each metric under each of its sets of dimensions, as Name or Name{Dimension=value}.
func emitted(lines []map[string]any) map[string]bool {
	found := map[string]bool{}
	for _, line := range lines {
		text, _ := json.Marshal(line["_aws"])
		var e struct {
			CloudWatchMetrics []struct {
				Namespace  string
				Dimensions [][]string
				Metrics    []struct{ Name, Unit string }
			}
		}
		if json.Unmarshal(text, &e) != nil {
			continue
		}
		for _, d := range e.CloudWatchMetrics {
			for _, m := range d.Metrics {
				if _, there := line[m.Name]; !there || d.Namespace != "vingate/test" {
					continue
				}
				for _, by := range d.Dimensions {
					var values []string
					for _, name := range by {
						value, ok := line[name].(string)
						if !ok {
							value = "?"
						}
						values = append(values, name+"="+value)
					}
					found[series(m.Name, values)] = true
				}
			}
		}
	}
	return found
}

func series(name string, dimensions []string) string {
	if len(dimensions) == 0 {
		return name
	}
	slices.Sort(dimensions)
	return name + "{" + strings.Join(dimensions, ",") + "}"
}

// alarmed are the metrics of our own that the alarms of a template look at, by alarm; those of AWS come with their namespace.
func alarmed(tpl template) map[string][]string {
	found := map[string][]string{}
	add := func(alarm string, m object) {
		var values []string
		dimensions, _ := m["Dimensions"].([]any)
		for _, d := range dimensions {
			values = append(values, text(d, "Name")+"="+text(d, "Value"))
		}
		name := text(m, "MetricName")
		if ns := text(m, "Namespace"); ns != "" {
			name = ns + "/" + name
		}
		found[alarm] = append(found[alarm], series(name, values))
	}
	for id, a := range tpl.resources("AWS::CloudWatch::Alarm") {
		p, _ := a["Properties"].(object)
		if p["MetricName"] != nil {
			add(id, p)
		}
		queries, _ := p["Metrics"].([]any)
		for _, q := range queries {
			if m, ok := at(q, "MetricStat", "Metric").(object); ok {
				add(id, m)
			}
		}
	}
	return found
}

// ofAWS are the metrics that AWS's own services emit, as their documentation lists them.
var ofAWS = []string{
	"AWS/ApiGateway/5xx", "AWS/ApiGateway/Count", "AWS/DynamoDB/ReadThrottleEvents", "AWS/DynamoDB/WriteThrottleEvents",
	"AWS/Lambda/Duration", "AWS/Lambda/Errors", "AWS/Lambda/Throttles",
}

// deafFaults finds alarms that can never go off because nothing emits what they look at.
func deafFaults(tpl template, emitted map[string]bool) []string {
	var faults []string
	for alarm, looksAt := range alarmed(tpl) {
		for _, m := range looksAt {
			bare, _, _ := strings.Cut(m, "{")
			if !emitted[m] && !slices.Contains(ofAWS, bare) {
				faults = append(faults, fmt.Sprintf("%s looks at %s, which nothing emits", alarm, m))
			}
		}
	}
	return faults
}

func nested(t *testing.T, name string) template {
	t.Helper()
	tpl, err := parseTemplate(read(t, path.Join("infra/stacks", name)))
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

func TestEveryAlarmCanGoOff(t *testing.T) {
	o := operate(t)
	for _, tpl := range []template{theTemplate(t), nested(t, "alarms.yaml")} {
		if len(alarmed(tpl)) < 2 {
			t.Error("hardly an alarm was found")
		}
		wantNone(t, deafFaults(tpl, emitted(o.lines)))
	}
	const one = "Resources: {A: {Type: AWS::CloudWatch::Alarm, Properties: {MetricName: Refusals, Dimensions: [{Name: Code, Value: NEVER}]}}}"
	wantFinding(t, deafFaults(mustParse(t, one), emitted(o.lines)), "Refusals{Code=NEVER}")
	wantFinding(t, deafFaults(mustParse(t, strings.Replace(one, "MetricName", "Namespace: AWS/Lambda, MetricName", 1)), nil), "AWS/Lambda/Refusals")
}

func TestEveryMetricOfTheCatalogueIsEmittedAndNoOther(t *testing.T) {
	found := emitted(operate(t).lines)
	known := map[string]bool{}
	for _, m := range observe.Catalogue() {
		known[m.Name] = true
		if !found[m.Name] {
			t.Errorf("%s is in the catalogue and nothing emits it", m.Name)
		}
		for _, by := range m.By {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(found)), func(s string) bool {
				for _, name := range by {
					if !strings.Contains(s, name+"=") {
						return false
					}
				}
				return strings.HasPrefix(s, m.Name+"{") && strings.Count(s, "=") == len(by)
			}) {
				t.Errorf("%s is never emitted by %v", m.Name, by)
			}
		}
	}
	for s := range found {
		name, _, _ := strings.Cut(s, "{")
		if !known[name] || strings.Contains(s, "=?") {
			t.Errorf("%s is emitted and not in the catalogue, or lacks a dimension", s)
		}
	}
	// Each is billed. Ours are bounded by routes and codes, whoever calls.
	if len(found) > 150 {
		t.Errorf("%d metrics", len(found))
	}
}

// widgetMetrics are the metrics of a dashboard, with CloudWatch's shorthands resolved.
func widgetMetrics(body string) (found []string, rows []string, err error) {
	var b struct {
		Widgets []struct {
			Type       string
			Properties struct {
				Title, Markdown, Query string
				Metrics                [][]any
			}
		}
	}
	d := json.NewDecoder(strings.NewReader(body))
	if err := d.Decode(&b); err != nil {
		return nil, nil, err
	}
	for _, w := range b.Widgets {
		if w.Type == "text" {
			rows = append(rows, w.Properties.Markdown)
		}
		for _, m := range w.Properties.Metrics {
			var parts []string
			for _, p := range m {
				if s, ok := p.(string); ok {
					parts = append(parts, s)
				}
			}
			if len(parts) < 2 {
				continue // an expression
			}
			name := parts[1]
			if parts[0] != "${Namespace}" {
				name = parts[0] + "/" + name
			}
			var values []string
			for i := 2; i+1 < len(parts); i += 2 {
				values = append(values, parts[i]+"="+parts[i+1])
			}
			found = append(found, series(name, values))
		}
	}
	return found, rows, nil
}

var number = regexp.MustCompile(`:\s*\$\{[A-Za-z]+\}`)

func TestEveryWidgetOfTheDashboardShowsSomethingAndThereIsARowForEveryPromise(t *testing.T) {
	found := emitted(operate(t).lines)
	tpl := nested(t, "dashboard.yaml")
	body := text(at(tpl.root, "Resources", "Promises", "Properties", "DashboardBody"), "Fn::Sub")
	metrics, rows, err := widgetMetrics(number.ReplaceAllString(body, ": 1"))
	if err != nil {
		t.Fatal(err)
	}
	if len(metrics) < 30 {
		t.Errorf("found %d metrics only", len(metrics))
	}
	for _, m := range metrics {
		bare, _, _ := strings.Cut(m, "{")
		if !found[m] && !slices.Contains(ofAWS, bare) {
			t.Errorf("a widget shows %s, which nothing emits", m)
		}
	}
	design := read(t, "docs/design.md")
	for n := 1; ; n++ {
		promise := fmt.Sprintf("P%d ", n)
		if !strings.Contains(design, "\n| "+promise) {
			if n < 12 {
				t.Errorf("docs/design.md lists %d promises", n-1)
			}
			break
		}
		i := slices.IndexFunc(rows, func(r string) bool { return strings.HasPrefix(r, "### "+promise) })
		if i < 0 || !strings.Contains(rows[i], "**now**") || !strings.Contains(rows[i], "**bound**") {
			t.Errorf("%shas no row that says what is now and what is the bound", promise)
		}
	}
	parameters, _ := at(tpl.root, "Parameters").(object)
	used := references(at(tpl.root, "Resources"))
	for name := range parameters {
		if !used[name] {
			t.Errorf("the dashboard does not use %s", name)
		}
	}
}

// grant is one statement of a role.
type grant struct {
	sid     string
	actions []string
	table   string   // logical id
	keys    []string // leading keys, none for any
	columns []string // attributes that may be asked for, none for any
}

// grants are a role's statements about DynamoDB.
func grants(tpl template, role string) []grant {
	var all []grant
	policies, _ := at(tpl.resources("AWS::IAM::Role")[role], "Properties", "Policies").([]any)
	for _, p := range policies {
		statements, _ := at(p, "PolicyDocument", "Statement").([]any)
		for _, s := range statements {
			g := grant{sid: text(s, "Sid")}
			actions, _ := at(s, "Action").([]any)
			for _, a := range actions {
				if op, ok := strings.CutPrefix(fmt.Sprint(a), "dynamodb:"); ok {
					g.actions = append(g.actions, op)
				}
			}
			if len(g.actions) == 0 {
				continue
			}
			if resource, _ := at(s, "Resource", "Fn::GetAtt").([]any); len(resource) > 0 {
				g.table = fmt.Sprint(resource[0])
			}
			for _, test := range []string{"ForAllValues:StringLike", "ForAllValues:StringEquals"} {
				keys, _ := at(s, "Condition", test, "dynamodb:LeadingKeys").([]any)
				for _, k := range keys {
					g.keys = append(g.keys, fmt.Sprint(k))
				}
				columns, _ := at(s, "Condition", test, "dynamodb:Attributes").([]any)
				for _, c := range columns {
					g.columns = append(g.columns, fmt.Sprint(c))
				}
			}
			all = append(all, g)
		}
	}
	return all
}

// covers says by which of its keys a grant covers a call, "*" where it has none.
func (g grant) covers(c call) (key string, ok bool) {
	if g.table != c.table || !slices.Contains(g.actions, c.op) || len(g.columns) > 0 && strings.Join(g.columns, ",") != c.attributes {
		return "", false
	}
	if len(g.keys) == 0 {
		return "*", true
	}
	for _, k := range g.keys {
		if prefix, open := strings.CutSuffix(k, "*"); k == c.pk || open && strings.HasPrefix(c.pk, prefix) {
			return k, true
		}
	}
	return "", false
}

// grantUseFaults holds the calls that were on the wire against a role: each is covered, and each action is used on each of its keys.
func grantUseFaults(granted []grant, calls map[call]int) []string {
	var faults []string
	used := map[string]bool{}
	for c := range calls {
		covered := false
		for _, g := range granted {
			if key, ok := g.covers(c); ok {
				covered, used[g.sid+" "+c.op+" "+key] = true, true
			}
		}
		if !covered {
			faults = append(faults, fmt.Sprintf("%s on %s of %s is not permitted", c.op, c.pk, c.table))
		}
	}
	for _, g := range granted {
		keys := g.keys
		if len(keys) == 0 {
			keys = []string{"*"}
		}
		for _, op := range g.actions {
			// An action that is used on some keys of its statement, and on none of another, wants two statements.
			for _, key := range keys {
				if !used[g.sid+" "+op+" "+key] {
					faults = append(faults, fmt.Sprintf("%s permits %s on %s, which was never used", g.sid, op, key))
				}
			}
		}
	}
	return faults
}

func TestEveryPermissionIsUsedAndNoneIsMissing(t *testing.T) {
	o := operate(t)
	tpl := theTemplate(t)
	if len(o.decode) < 20 || len(o.keeper) < 4 {
		t.Errorf("%d and %d different calls were seen: this shows little", len(o.decode), len(o.keeper))
	}
	wantNone(t, grantUseFaults(grants(tpl, "DecodeRole"), o.decode))
	wantNone(t, grantUseFaults(grants(tpl, "KeeperRole"), o.keeper))
}

func TestPermissionCheckCanFail(t *testing.T) {
	granted := []grant{{"A", []string{"GetItem"}, "T", []string{"a#*", "b"}, nil}, {"S", []string{"Scan"}, "T", nil, []string{"pk"}}}
	calls := map[call]int{{"GetItem", "T", "a#1", ""}: 1, {"GetItem", "T", "b", ""}: 2, {"Scan", "T", "", "pk"}: 1}
	wantNone(t, grantUseFaults(granted, calls))
	for says, c := range map[string]call{"PutItem on b of T": {"PutItem", "T", "b", ""}, "GetItem on c of T": {"GetItem", "T", "c", ""},
		"GetItem on b of U": {"GetItem", "U", "b", ""}, "Scan on  of T": {"Scan", "T", "", "pk, secret"}} {
		more := maps.Clone(calls)
		more[c] = 1
		wantFinding(t, grantUseFaults(granted, more), says)
	}
	delete(calls, call{"GetItem", "T", "b", ""})
	wantFinding(t, grantUseFaults(granted, calls), "A permits GetItem on b")
	wantFinding(t, grantUseFaults(append(granted, grant{"B", []string{"DeleteItem"}, "T", nil, nil}), map[call]int{{"GetItem", "T", "a#1", ""}: 1,
		{"GetItem", "T", "b", ""}: 1, {"Scan", "T", "", "pk"}: 1}), "B permits DeleteItem")
}
