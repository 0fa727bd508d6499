//go:build unix

package deploytest

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"vingate/internal/observe"
)

// block is what stands in a document behind a comment <!-- name: ... -->, up to the next empty line.
func block(document, name string) string {
	_, rest, found := strings.Cut(document, "<!-- "+name+": ")
	if !found {
		return ""
	}
	_, rest, _ = strings.Cut(rest, "\n")
	table, _, _ := strings.Cut(rest, "\n\n")
	return strings.TrimSpace(table)
}

// metricsTable lists the catalogue as docs/operations.md does.
func metricsTable() string {
	b := &strings.Builder{}
	b.WriteString("| metric | unit | by | from | means |\n|---|---|---|---|---|\n")
	for _, m := range observe.Catalogue() {
		var by []string
		for _, names := range m.By {
			by = append(by, strings.Join(names, " and "))
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Unit, strings.Join(by, "; "), m.From, m.Meaning)
	}
	return strings.TrimSpace(b.String())
}

func TestTheGuideListsTheMetricsOfTheCode(t *testing.T) {
	if got, want := block(read(t, "docs/operations.md"), "metrics"), metricsTable(); got != want {
		t.Errorf("docs/operations.md has\n%s\nwant\n%s", got, want)
	}
}

// runbookFaults holds the alarms of templates against their entries in the guide.
func runbookFaults(guide string, templates ...template) []string {
	var faults []string
	alarms := map[string]string{}
	for _, tpl := range templates {
		for id, a := range tpl.resources("AWS::CloudWatch::Alarm") {
			alarms[strings.TrimSuffix(id, "Alarm")] = text(a, "Properties", "AlarmDescription")
		}
	}
	entry := regexp.MustCompile(`(?m)^### (\w+)\n\n\*\*Means:\*\* .+\n\n\*\*Look:\*\* .+\n\n\*\*Do:\*\* .+$`)
	entries := map[string]bool{}
	for _, m := range entry.FindAllStringSubmatch(guide, -1) {
		entries[m[1]] = true
		if _, there := alarms[m[1]]; !there {
			faults = append(faults, "the guide has an entry for "+m[1]+", which is no alarm")
		}
	}
	for name, description := range alarms {
		if !entries[name] {
			faults = append(faults, name+" has no entry that says what it means, how to look and what to do")
		}
		if !strings.HasSuffix(description, "docs/operations.md#"+strings.ToLower(name)) {
			faults = append(faults, name+" does not lead to its entry")
		}
		if !strings.Contains(guide, "| ["+name+"](#"+strings.ToLower(name)+") | ") {
			faults = append(faults, name+" is not in the guide's list of alarms")
		}
	}
	return faults
}

func TestEveryAlarmHasItsEntryInTheGuide(t *testing.T) {
	guide := read(t, "docs/operations.md")
	wantNone(t, runbookFaults(guide, theTemplate(t), nested(t, "alarms.yaml")))
	one := mustParse(t, "Resources: {A: {Type: AWS::CloudWatch::Alarm, Properties: {AlarmDescription: docs/operations.md#a}}}")
	const good = "| [A](#a) | now | x |\n\n### A\n\n**Means:** x\n\n**Look:** y\n\n**Do:** z\n"
	wantNone(t, runbookFaults(good, one))
	wantFinding(t, runbookFaults(strings.Replace(good, "**Do:** z", "", 1), one), "A has no entry")
	wantFinding(t, runbookFaults(good+strings.ReplaceAll(good, "A", "B"), one), "entry for B")
	wantFinding(t, runbookFaults(strings.Replace(good, "(#a)", "", 1), one), "list of alarms")
}

// Every alarm feeds one of the two that tell somebody, but for those of a deployment.
func TestEveryAlarmTellsSomebody(t *testing.T) {
	tpl := nested(t, "alarms.yaml")
	var rules string
	for _, c := range tpl.resources("AWS::CloudWatch::CompositeAlarm") {
		rules += text(at(c, "Properties", "AlarmRule"), "Fn::Sub") + " "
		if len(at(c, "Properties", "AlarmActions").([]any)) != 1 {
			t.Error("a composite alarm tells nobody")
		}
	}
	for id := range tpl.resources("AWS::CloudWatch::Alarm") {
		if strings.Count(rules, "ALARM(${"+id+"})") != 1 {
			t.Errorf("%s is in no composite alarm, or in two", id)
		}
	}
}

// Prices in USD, us-east-1. For a million, but for log volume, which is for a GB, and computing, for a million GB-seconds.
const (
	priceWrites, priceReads     = 0.625, 0.125 // DynamoDB, on demand
	priceRequests, priceCompute = 0.20, 13.3334
	priceAPI                    = 1.00
	priceLogs                   = 0.50
)

// What the machine here does not say of AWS.
const (
	liveSeconds, storedSeconds = 0.7, 0.01
	memoryGB                   = 0.5
	platformBytes              = 900 // of Lambda's own lines and API Gateway's access log, for each request
)

// costTable is the price of a million decodes by hit ratio.
func costTable(live, stored use) string {
	b := &strings.Builder{}
	b.WriteString("| hit ratio | DynamoDB | Lambda | API Gateway | logs | together |\n|---|---|---|---|---|---|\n")
	for _, percent := range []float64{0, 50, 90, 99} {
		h := percent / 100
		mix := func(live, stored float64) float64 { return (1-h)*live + h*stored }
		kilobytes := func(u use) float64 { return math.Ceil(float64(u.logged+platformBytes)/500) / 2 }
		dynamo := mix(live.writes, stored.writes)*priceWrites + mix(live.reads, stored.reads)*priceReads
		compute := priceRequests + mix(liveSeconds, storedSeconds)*memoryGB*priceCompute
		logs := mix(kilobytes(live), kilobytes(stored)) * priceLogs
		fmt.Fprintf(b, "| %v %% | %.2f | %.2f | %.2f | %.2f | %.2f |\n", percent, dynamo, compute, priceAPI, logs, dynamo+compute+priceAPI+logs)
	}
	return strings.TrimSpace(b.String())
}

func (u use) String() string { return fmt.Sprintf("%v write and %v read units", u.writes, u.reads) }

// The price is not typed in: it follows from what a decode takes of DynamoDB when the built function makes it.
func TestTheGuidesCostIsComputedFromMeasuredUnits(t *testing.T) {
	o := operate(t)
	if o.live.writes < 3 || o.live.reads < 0.5 || o.stored.writes != 0 || o.stored.reads < 0.5 || o.live.logged < 500 {
		t.Fatalf("measured %+v and %+v", o.live, o.stored)
	}
	want := costTable(o.live, o.stored)
	if os.Getenv("VINGATE_COST") != "" {
		fmt.Printf("a live decode: %v, %d bytes of log\na stored one, from the table: %v, %d bytes of log\n\n%s\n", o.live, o.live.logged, o.stored, o.stored.logged, want)
	}
	guide := read(t, "docs/operations.md")
	if got := block(guide, "cost"); got != want {
		t.Errorf("docs/operations.md has\n%s\nwant\n%s", got, want)
	}
	for _, u := range []use{o.live, o.stored} {
		if !strings.Contains(guide, u.String()) {
			t.Errorf("docs/operations.md does not say %q", u)
		}
	}
}
