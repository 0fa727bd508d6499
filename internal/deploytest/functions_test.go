package deploytest

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"vingate/internal/config"
)

// buildRule finds what the Makefile builds for a logical id.
var buildRule = regexp.MustCompile(`(?m)^build-([A-Za-z0-9]+):.*\n\t\$\(call sam_build,([a-z0-9-]+)\)$`)

// functionFaults holds the template's functions against the Makefile's rules and the folders under functions/.
func functionFaults(tpl template, makefile string, folders []string) []string {
	rules := map[string]string{}
	for _, m := range buildRule.FindAllStringSubmatch(makefile, -1) {
		rules[m[1]] = m[2]
	}
	functions := tpl.resources(serverlessFunction)
	if len(functions) == 0 {
		return []string{"the template has no function"}
	}
	var faults []string
	fault := func(format string, a ...any) { faults = append(faults, fmt.Sprintf(format, a...)) }
	built := map[string]bool{}
	for id, f := range functions {
		if got := text(tpl.property(f, "Handler")); got != "bootstrap" {
			fault("%s: Handler is %q, want bootstrap", id, got)
		}
		if got := text(tpl.property(f, "Runtime")); got != "provided.al2023" {
			fault("%s: Runtime is %q, want provided.al2023", id, got)
		}
		if got := text(f, "Metadata", "BuildMethod"); got != "makefile" {
			fault("%s: BuildMethod is %q, want makefile", id, got)
		}
		if got := text(tpl.property(f, "Tracing")); got != "Active" {
			fault("%s: Tracing is %q, want Active", id, got)
		}
		folder, ok := rules[id]
		switch {
		case !ok:
			fault("%s: the Makefile has no rule build-%s", id, id)
		case !slices.Contains(folders, folder):
			fault("%s: the Makefile builds it from functions/%s, which is not there", id, folder)
		default:
			built[folder] = true
		}
	}
	for id := range rules {
		if _, ok := functions[id]; !ok {
			fault("the Makefile builds %s, which is not in the template", id)
		}
	}
	for _, folder := range folders {
		if !built[folder] {
			fault("functions/%s is not deployed by the template", folder)
		}
	}
	return faults
}

func TestEveryFunctionOfTheTemplateIsBuiltFromAFolderAndEveryFolderIsDeployed(t *testing.T) {
	mains, err := filepath.Glob(filepath.Join(root, "functions", "*", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	var folders []string
	for _, m := range mains {
		folders = append(folders, filepath.Base(filepath.Dir(m)))
	}
	wantNone(t, functionFaults(theTemplate(t), read(t, "Makefile"), folders))
}

func TestFunctionCheckCanFail(t *testing.T) {
	const good = "Resources:\n  AFunction:\n    Type: AWS::Serverless::Function\n    Metadata: {BuildMethod: makefile}\n" +
		"    Properties: {Handler: bootstrap, Runtime: provided.al2023, Tracing: Active}\n"
	const rule = "build-AFunction: ## text\n\t$(call sam_build,a)\n"
	wantNone(t, functionFaults(mustParse(t, good), rule, []string{"a"}))
	for name, c := range map[string]struct {
		template, makefile string
		folders            []string
		says               string
	}{
		"another handler":        {strings.Replace(good, "bootstrap", "main", 1), rule, []string{"a"}, `Handler is "main"`},
		"an old runtime":         {strings.Replace(good, "al2023", "al2", 1), rule, []string{"a"}, "Runtime"},
		"no build method":        {strings.Replace(good, "BuildMethod: makefile", "", 1), rule, []string{"a"}, "BuildMethod"},
		"tracing off":            {strings.Replace(good, "Active", "PassThrough", 1), rule, []string{"a"}, "Tracing"},
		"no rule":                {good, "", nil, "no rule build-AFunction"},
		"a rule without folder":  {good, rule, nil, "functions/a, which is not there"},
		"a rule too many":        {good, rule + "build-BFunction:\n\t$(call sam_build,a)\n", []string{"a"}, "BFunction, which is not in the template"},
		"a folder not deployed":  {good, rule, []string{"a", "b"}, "functions/b is not deployed"},
		"a template without any": {"Resources: {}\n", rule, []string{"a"}, "no function"},
	} {
		t.Run(name, func(t *testing.T) {
			wantFinding(t, functionFaults(mustParse(t, c.template), c.makefile, c.folders), c.says)
		})
	}
}

// sdkVariables are declared for the AWS SDK, which reads them itself.
var sdkVariables = []string{"AWS_ENDPOINT_URL_DYNAMODB"}

// declared is what a function gets for a variable when no parameter is changed: a default, or the kind of resource
// that gives the value.
func (t template) declared(value any) (def string, from string) {
	if s, ok := value.(string); ok {
		return s, ""
	}
	if ref := text(value, "Ref"); ref != "" {
		if p := at(t.root, "Parameters", ref); p != nil {
			return text(p, "Default"), ""
		}
		return "", text(t.root, "Resources", ref, "Type")
	}
	switch sub := text(value, "Fn::Sub"); {
	case strings.HasPrefix(sub, "{{resolve:secretsmanager:"):
		return "", "AWS::SecretsManager::Secret"
	case strings.HasSuffix(sub, "/${AWS::StackName}"):
		return strings.TrimSuffix(sub, "/${AWS::StackName}"), "AWS::StackName"
	}
	return "", "something unknown"
}

// variableFaults holds a function's environment against the variables the code reads: all of them, with the code's
// defaults, and no other.
func variableFaults(tpl template, id string, variables []config.Variable) []string {
	var faults []string
	fault := func(format string, a ...any) { faults = append(faults, fmt.Sprintf(id+": "+format, a...)) }
	env := tpl.variables(tpl.resources(serverlessFunction)[id])
	known := slices.Clone(sdkVariables)
	for _, v := range variables {
		known = append(known, v.Name)
		value, ok := env[v.Name]
		if !ok {
			fault("%s is read by the code and not declared", v.Name)
			continue
		}
		def, from := tpl.declared(value)
		switch {
		case v.Secret:
			if from != "AWS::SecretsManager::Secret" {
				fault("%s is a secret and does not come from Secrets Manager", v.Name)
			}
		case strings.HasSuffix(v.Name, "_TABLE"):
			if from != "AWS::DynamoDB::Table" {
				fault("%s does not come from a table of the template", v.Name)
			}
		case from == "AWS::StackName" && def == v.Default: // one of its own for each stack
		case from != "":
			fault("%s comes from %s, want a parameter", v.Name, from)
		case def != v.Default:
			fault("%s has the default %q, the code's is %q", v.Name, def, v.Default)
		}
	}
	for name := range env {
		if !slices.Contains(known, name) {
			fault("%s is declared and nothing reads it", name)
		}
	}
	return faults
}

func TestEveryVariableTheCodeReadsIsDeclaredWithTheSameDefaultAndNoOther(t *testing.T) {
	wantNone(t, variableFaults(theTemplate(t), "DecodeFunction", config.Variables()))
	wantNone(t, variableFaults(theTemplate(t), "KeeperFunction", config.GateVariables()))
}

func TestVariableCheckCanFail(t *testing.T) {
	const good = `
Parameters:
  Limit: {Type: Number, Default: 4}
Resources:
  Things: {Type: AWS::DynamoDB::Table}
  F:
    Type: AWS::Serverless::Function
    Properties:
      Environment:
        Variables:
          LIMIT: !Ref Limit
          THINGS_TABLE: !Ref Things
          KEY: !Sub "{{resolve:secretsmanager:${Key}}}"
          SPACE: !Sub mine/${AWS::StackName}
`
	variables := []config.Variable{{Name: "LIMIT", Default: "4"}, {Name: "SPACE", Default: "mine"}, {Name: "THINGS_TABLE", Default: "things"}, {Name: "KEY", Secret: true}}
	wantNone(t, variableFaults(mustParse(t, good), "F", variables))
	for name, c := range map[string]struct{ from, to, says string }{
		"a variable left out":        {"          LIMIT: !Ref Limit\n", "", "LIMIT is read by the code and not declared"},
		"another default":            {"Default: 4", "Default: 5", `the default "5", the code's is "4"`},
		"a table by name":            {"!Ref Things", "things", "THINGS_TABLE does not come from a table"},
		"a secret in the template":   {`!Sub "{{resolve:secretsmanager:${Key}}}"`, "hush", "KEY is a secret"},
		"a number from a resource":   {"!Ref Limit", "!Ref Things", "comes from AWS::DynamoDB::Table"},
		"another namespace":          {"mine/", "yours/", "SPACE comes from AWS::StackName"},
		"a variable nobody reads":    {"LIMIT: ", "LIMITS: 3\n          LIMIT: ", "LIMITS is declared and nothing reads it"},
		"a variable of all, unknown": {"\nResources", "\nGlobals: {Function: {Environment: {Variables: {X: 1}}}}\nResources", "X is declared"},
	} {
		t.Run(name, func(t *testing.T) {
			broken := strings.Replace(good, c.from, c.to, 1)
			wantFinding(t, variableFaults(mustParse(t, broken), "F", variables), c.says)
		})
	}
}

// parameterFaults: each parameter is used, explained and bounded, and its default lies within its bounds.
func parameterFaults(tpl template) []string {
	var faults []string
	fault := func(format string, a ...any) { faults = append(faults, fmt.Sprintf(format, a...)) }
	parameters, _ := at(tpl.root, "Parameters").(object)
	used := references(at(tpl.root, "Resources"))
	for _, section := range []string{"Globals", "Conditions"} {
		for name := range references(at(tpl.root, section)) {
			used[name] = true
		}
	}
	for name, p := range parameters {
		if text(p, "Description") == "" {
			fault("%s has no description", name)
		}
		if !used[name] {
			fault("%s is used nowhere", name)
		}
		def := text(p, "Default")
		switch allowed, _ := at(p, "AllowedValues").([]any); {
		case allowed != nil:
			if !slices.Contains(allowed, any(def)) {
				fault("%s: the default %q is not allowed", name, def)
			}
		case text(p, "Type") == "Number":
			low, lowErr := strconv.ParseFloat(text(p, "MinValue"), 64)
			high, highErr := strconv.ParseFloat(text(p, "MaxValue"), 64)
			value, err := strconv.ParseFloat(def, 64)
			if lowErr != nil || highErr != nil {
				fault("%s is a number without bounds", name)
			} else if err != nil || value < low || value > high {
				fault("%s: the default %q lies outside %v to %v", name, def, low, high)
			}
		default:
			pattern, err := regexp.Compile(text(p, "AllowedPattern"))
			if err != nil || pattern.String() == "" {
				fault("%s is a text without a pattern", name)
			} else if !pattern.MatchString(def) {
				fault("%s: the default %q does not match its pattern", name, def)
			}
		}
	}
	return faults
}

// references are the names that !Ref and !Sub use anywhere below v.
func references(v any) map[string]bool {
	names := map[string]bool{}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case object:
			for key, e := range v {
				s, _ := e.(string)
				switch key {
				case "Ref":
					names[s] = true
				case "Fn::Sub":
					for _, m := range regexp.MustCompile(`\$\{([A-Za-z0-9]+)`).FindAllStringSubmatch(s, -1) {
						names[m[1]] = true
					}
				}
				walk(e)
			}
		}
	}
	walk(v)
	return names
}

func TestEveryParameterIsUsedExplainedAndBounded(t *testing.T) {
	wantNone(t, parameterFaults(theTemplate(t)))
}

func TestParameterCheckCanFail(t *testing.T) {
	const good = "Parameters:\n  N: {Type: Number, Default: 4, MinValue: 1, MaxValue: 8, Description: text}\n" +
		"  S: {Type: String, Default: 4s, AllowedPattern: '^[0-9]+s$', Description: text}\n" +
		"  O: {Type: String, Default: a, AllowedValues: [a, b], Description: text}\n" +
		"Resources: {A: {B: !Ref N, C: !Sub '${S}-x', D: [!Ref O]}}\n"
	wantNone(t, parameterFaults(mustParse(t, good)))
	for name, c := range map[string]struct{ from, to, says string }{
		"no description":         {", Description: text}\n  S", "}\n  S", "N has no description"},
		"unused":                 {"!Ref N", "1", "N is used nowhere"},
		"a number without bound": {", MaxValue: 8", "", "N is a number without bounds"},
		"a default out of bound": {"Default: 4,", "Default: 9,", `N: the default "9" lies outside`},
		"a text without pattern": {", AllowedPattern: '^[0-9]+s$'", "", "S is a text without a pattern"},
		"a default off pattern":  {"Default: 4s", "Default: four", `"four" does not match`},
		"a default not allowed":  {"Default: a", "Default: c", `"c" is not allowed`},
	} {
		t.Run(name, func(t *testing.T) {
			wantFinding(t, parameterFaults(mustParse(t, strings.Replace(good, c.from, c.to, 1))), c.says)
		})
	}
}

// timeoutFaults: the code's own deadline ends first, then Lambda's, then API Gateway's, so that whoever ends a request
// is the one who can explain it.
func timeoutFaults(tpl template, id string) []string {
	f := tpl.resources(serverlessFunction)[id]
	seconds, err := strconv.Atoi(text(tpl.property(f, "Timeout")))
	if err != nil {
		return []string{id + " has no timeout"}
	}
	function := time.Duration(seconds) * time.Second
	var faults []string
	def, _ := tpl.declared(tpl.variables(f)["REQUEST_DEADLINE"])
	if deadline, err := time.ParseDuration(def); err != nil || function < deadline+time.Second {
		faults = append(faults, fmt.Sprintf("%s: the timeout %v is not a second above REQUEST_DEADLINE %q", id, function, def))
	}
	if function >= 29*time.Second {
		faults = append(faults, fmt.Sprintf("%s: the timeout %v leaves API Gateway, which gives up after 30 s, no time", id, function))
	}
	const most = 30 * time.Second // of an HTTP API
	events, _ := at(f, "Properties", "Events").(object)
	for name, e := range events {
		if text(e, "Type") != "HttpApi" {
			continue
		}
		millis, err := strconv.Atoi(text(e, "Properties", "TimeoutInMillis"))
		if gateway := time.Duration(millis) * time.Millisecond; err != nil || gateway <= function || gateway > most {
			faults = append(faults, fmt.Sprintf("%s: event %s ends after %v, want more than the function's %v and at most %v", id, name, gateway, function, most))
		}
	}
	return faults
}

func TestTheCodesDeadlineEndsBeforeLambdasAndLambdasBeforeTheGateways(t *testing.T) {
	wantNone(t, timeoutFaults(theTemplate(t), "DecodeFunction"))
}

func TestTimeoutCheckCanFail(t *testing.T) {
	const good = "Parameters: {D: {Default: 27s}}\nResources:\n  F:\n    Type: AWS::Serverless::Function\n    Properties:\n" +
		"      Timeout: 28\n      Environment: {Variables: {REQUEST_DEADLINE: !Ref D}}\n" +
		"      Events: {H: {Type: HttpApi, Properties: {TimeoutInMillis: 30000}}}\n"
	wantNone(t, timeoutFaults(mustParse(t, good), "F"))
	for name, c := range map[string]struct{ from, to, says string }{
		"no timeout":          {"Timeout: 28", "Memory: 1", "no timeout"},
		"a long timeout":      {"Timeout: 28", "Timeout: 29", "no time"},
		"a long deadline":     {"27s", "27500ms", "REQUEST_DEADLINE"},
		"no deadline":         {"REQUEST_DEADLINE", "DEADLINE", "REQUEST_DEADLINE"},
		"a gateway too early": {"30000", "28000", "event H ends after 28s"},
		"a gateway too late":  {"30000", "31000", "event H ends after 31s"},
	} {
		t.Run(name, func(t *testing.T) {
			wantFinding(t, timeoutFaults(mustParse(t, strings.Replace(good, c.from, c.to, 1)), "F"), c.says)
		})
	}
}

// environment is what a function starts with when nothing is changed at deployment.
func (t template) environment(id string) func(string) string {
	env := t.variables(t.resources(serverlessFunction)[id])
	return func(name string) string {
		def, from := t.declared(env[name])
		switch from {
		case "AWS::SecretsManager::Secret":
			return strings.Repeat("k", 64)
		case "AWS::DynamoDB::Table":
			return text(env[name], "Ref")
		}
		return def
	}
}

func TestTheTemplatesDefaultsAreAConfigurationTheCodeAccepts(t *testing.T) {
	if _, err := config.Load(theTemplate(t).environment("DecodeFunction")); err != nil {
		t.Error(err)
	}
	if _, err := config.LoadGate(theTemplate(t).environment("KeeperFunction")); err != nil {
		t.Error(err)
	}
	// And the check can fail: one number that breaks the lease inequality.
	broken := mustParse(t, strings.Replace(read(t, "template.yaml"), "Default: 10s", "Default: 15s", 1))
	if _, err := config.Load(broken.environment("DecodeFunction")); err == nil || !strings.Contains(err.Error(), "UPSTREAM_TIMEOUT") {
		t.Errorf("an upstream timeout as long as the lease gives %v", err)
	}
}

// tableFaults: the tables have the key the code uses, cost nothing when idle, and survive a mistake.
func tableFaults(tpl template) []string {
	tables := tpl.resources("AWS::DynamoDB::Table")
	if len(tables) != 2 {
		return []string{fmt.Sprintf("the template has %d tables, want two", len(tables))}
	}
	var faults []string
	for id, table := range tables {
		for what, ok := range map[string]bool{
			"be billed on demand":                     text(table, "Properties", "BillingMode") == "PAY_PER_REQUEST",
			"have a ceiling for reads":                text(table, "Properties", "OnDemandThroughput", "MaxReadRequestUnits", "Ref") != "",
			"have a ceiling for writes":               text(table, "Properties", "OnDemandThroughput", "MaxWriteRequestUnits", "Ref") != "",
			"have the key pk alone":                   fmt.Sprint(at(table, "Properties", "KeySchema")) == "[map[AttributeName:pk KeyType:HASH]]",
			"have a key of type S":                    fmt.Sprint(at(table, "Properties", "AttributeDefinitions")) == "[map[AttributeName:pk AttributeType:S]]",
			"expire items by expires":                 fmt.Sprint(at(table, "Properties", "TimeToLiveSpecification")) == "map[AttributeName:expires Enabled:true]",
			"have point-in-time recovery":             text(table, "Properties", "PointInTimeRecoverySpecification", "PointInTimeRecoveryEnabled") == "true",
			"be encrypted by a key of the account":    text(table, "Properties", "SSESpecification", "SSEEnabled") == "true",
			"be protected against deletion":           text(table, "Properties", "DeletionProtectionEnabled") == "true",
			"stay when it leaves the template":        text(table, "DeletionPolicy") == "Retain",
			"stay when a change would replace it":     text(table, "UpdateReplacePolicy") == "Retain",
			"have a name that CloudFormation made up": at(table, "Properties", "TableName") == nil,
		} {
			if !ok {
				faults = append(faults, id+" should "+what)
			}
		}
	}
	return faults
}

func TestTheTablesHaveTheCodesKeyAndSurviveAMistake(t *testing.T) {
	wantNone(t, tableFaults(theTemplate(t)))
}

func TestTableCheckCanFail(t *testing.T) {
	whole := read(t, "template.yaml")
	start := strings.Index(whole, "  ResultsTable:\n    Type: AWS::DynamoDB::Table")
	if start < 0 {
		t.Fatal("the template has no ResultsTable")
	}
	for _, c := range []struct{ from, to, says string }{
		{"PAY_PER_REQUEST", "PROVISIONED", "on demand"},
		{"MaxWriteRequestUnits: !Ref ResultsMaxWrites", "", "ceiling for writes"},
		{"KeyType: HASH", "KeyType: RANGE", "key pk alone"},
		{"AttributeType: S", "AttributeType: N", "type S"},
		{"expires", "expiry", "expires"},
		{"PointInTimeRecoveryEnabled: true", "PointInTimeRecoveryEnabled: false", "point-in-time"},
		{"SSEEnabled: true", "SSEEnabled: false", "encrypted"},
		{"DeletionProtectionEnabled: true", "DeletionProtectionEnabled: false", "deletion"},
		{"DeletionPolicy: Retain", "DeletionPolicy: Delete", "leaves the template"},
		{"UpdateReplacePolicy: Retain", "UpdateReplacePolicy: Delete", "replace it"},
		{"BillingMode:", "TableName: results\n      BillingMode:", "made up"},
	} {
		broken := whole[:start] + strings.Replace(whole[start:], c.from, c.to, 1)
		wantFinding(t, tableFaults(mustParse(t, broken)), c.says)
	}
}

// grantFaults: a role names each call and each thing. Only X-Ray and the network interfaces of a VPC know no narrower resource than all.
func grantFaults(tpl template) []string {
	var faults []string
	roles := tpl.resources("AWS::IAM::Role")
	if len(roles) == 0 {
		return []string{"the template has no role"}
	}
	for id, f := range tpl.resources(serverlessFunction) {
		role, _ := at(f, "Properties", "Role", "Fn::GetAtt").([]any)
		if len(role) == 0 || roles[fmt.Sprint(role[0])] == nil {
			faults = append(faults, id+" has no role of its own")
		}
	}
	for id, role := range roles {
		policies, _ := at(role, "Properties", "Policies").([]any)
		for _, p := range policies {
			statements, _ := at(p, "PolicyDocument", "Statement").([]any)
			for _, s := range statements {
				if branches, conditional := at(s, "Fn::If").([]any); conditional && len(branches) == 3 {
					s = branches[1]
				}
				actions, _ := at(s, "Action").([]any)
				tracing := true
				for _, a := range actions {
					action := fmt.Sprint(a)
					tracing = tracing && (strings.HasPrefix(action, "xray:") || strings.HasPrefix(action, "ec2:"))
					if strings.Contains(action, "*") {
						faults = append(faults, fmt.Sprintf("%s may do %s", id, action))
					}
				}
				if len(actions) == 0 {
					faults = append(faults, fmt.Sprintf("%s has a statement without a list of actions", id))
				}
				if r := fmt.Sprint(at(s, "Resource")); !tracing && (r == "*" || strings.Contains(r, "[*") || r == "<nil>") {
					faults = append(faults, fmt.Sprintf("%s may do %v with everything", id, actions))
				}
			}
		}
	}
	return faults
}

func TestEveryRoleNamesItsCallsAndItsThings(t *testing.T) {
	wantNone(t, grantFaults(theTemplate(t)))
}

func TestGrantCheckCanFail(t *testing.T) {
	whole := read(t, "template.yaml")
	for _, c := range []struct{ from, to, says string }{
		{"[dynamodb:GetItem, dynamodb:UpdateItem]", "['dynamodb:*']", "may do dynamodb:*"},
		{"- ec2:DescribeSubnets", "- s3:GetObject", "with everything"},
		{"[dynamodb:GetItem, dynamodb:UpdateItem]", "dynamodb:GetItem", "without a list"},
		{"Resource: !GetAtt ResultsTable.Arn", `Resource: "*"`, "with everything"},
		{"Role: !GetAtt KeeperRole.Arn", "Policies: [AWSLambdaBasicExecutionRole]", "no role of its own"},
	} {
		if !strings.Contains(whole, c.from) {
			t.Fatalf("the template no longer holds %q", c.from)
		}
		faults := grantFaults(mustParse(t, strings.Replace(whole, c.from, c.to, 1)))
		if !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, c.says) }) {
			t.Errorf("findings are %q, want one that says %q", faults, c.says)
		}
	}
}

func TestTheRepositoryHasWhatADeploymentNeeds(t *testing.T) {
	for _, name := range []string{"LICENSE", "SECURITY.md", "VERSION", "samconfig.toml", ".editorconfig", ".gitignore", ".ci/run"} {
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil || info.Size() == 0 {
			t.Errorf("%s is missing or empty: %v", name, err)
		}
	}
}

// sizeFaults: each function has a budget on each architecture, and none for arm64 is above what a cold start was measured with.
func sizeFaults(budget string, folders []string) []string {
	const most = 6_500_000 // bytes, gzip, arm64
	found := map[string]int{}
	var faults []string
	for line := range strings.Lines(budget) {
		var arch, fn string
		var bytes int
		if strings.HasPrefix(line, "#") {
			continue
		}
		if _, err := fmt.Sscan(line, &arch, &fn, &bytes); err != nil {
			faults = append(faults, fmt.Sprintf("%q is no budget", strings.TrimSpace(line)))
			continue
		}
		found[arch+" "+fn] = bytes
		if arch == "arm64" && bytes > most {
			faults = append(faults, fmt.Sprintf("%s may take %d bytes on arm64, want at most %d", fn, bytes, most))
		}
		if !slices.Contains(folders, fn) {
			faults = append(faults, fn+" has a budget and is no function")
		}
	}
	for _, fn := range folders {
		for _, arch := range []string{"arm64", "amd64"} {
			if found[arch+" "+fn] == 0 {
				faults = append(faults, fn+" has no budget on "+arch)
			}
		}
	}
	return faults
}

func TestEveryFunctionHasASizeBudget(t *testing.T) {
	mains, _ := filepath.Glob(filepath.Join(root, "functions", "*", "main.go"))
	var folders []string
	for _, m := range mains {
		folders = append(folders, filepath.Base(filepath.Dir(m)))
	}
	wantNone(t, sizeFaults(read(t, "functions/size-budget.txt"), folders))
	const good = "# c\narm64 a 6500000\namd64 a 7000000\n"
	wantNone(t, sizeFaults(good, []string{"a"}))
	wantFinding(t, sizeFaults(strings.Replace(good, "6500000", "6500001", 1), []string{"a"}), "at most 6500000")
	wantFinding(t, sizeFaults(strings.Replace(good, "amd64 a 7000000\n", "", 1), []string{"a"}), "a has no budget on amd64")
	wantFinding(t, sizeFaults(good+"arm64 b 1\n", []string{"a"}), "b has a budget")
	wantFinding(t, sizeFaults(good+"arm64 a lot\n", []string{"a"}), "is no budget")
}

// boundFaults: a number at either bound of its parameter is one that the code can read. Whether it goes together with the others is another
// question, which the code answers at the start.
func boundFaults(tpl template, id string) []string {
	var faults []string
	base := tpl.environment(id)
	for name, value := range tpl.variables(tpl.resources(serverlessFunction)[id]) {
		p := at(tpl.root, "Parameters", text(value, "Ref"))
		if text(p, "Type") != "Number" {
			continue
		}
		for _, bound := range []string{"MinValue", "MaxValue"} {
			_, err := config.Load(func(n string) string {
				if n == name {
					return text(p, bound)
				}
				return base(n)
			})
			var e *config.Error
			if !errors.As(err, &e) {
				continue
			}
			for _, f := range e.Faults {
				if f.Variable == name && (strings.Contains(f.Problem, "that fits") || strings.Contains(f.Problem, "is not between")) {
					faults = append(faults, fmt.Sprintf("%s of %s: the code does not take it: %s", bound, name, f))
				}
			}
		}
	}
	return faults
}

func TestWhatAParameterAllowsTheCodeCanRead(t *testing.T) {
	tpl := theTemplate(t)
	wantNone(t, boundFaults(tpl, "DecodeFunction"))
	for from, says := range map[string]string{"MaxValue: 32\n    Description: Slots": "MaxValue of MAX_IN_FLIGHT", "MinValue: 0.01\n    MaxValue: 30": "MinValue of RATE_PER_SECOND"} {
		whole := read(t, "template.yaml")
		if !strings.Contains(whole, from) {
			t.Fatalf("the template no longer holds %q", from)
		}
		to := strings.Replace(strings.Replace(from, "32", "3200", 1), "0.01", "0", 1)
		wantFinding(t, boundFaults(mustParse(t, strings.Replace(whole, from, to, 1)), "DecodeFunction"), says)
	}
}

// The gateway's own limit is an outer fuse: it never stands in front of what the function allows.
func TestTheGatewaysLimitIsAboveOurOwn(t *testing.T) {
	tpl := theTemplate(t)
	number := func(path ...string) float64 {
		n, err := strconv.ParseFloat(text(tpl.root, append(append([]string{"Parameters"}, path...), "Default")...), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if rate := number("ApiRateLimit"); rate < 10*number("RatePerSecond") || rate < 10*number("TenantRatePerSecond") {
		t.Errorf("API Gateway lets %v a second through", rate)
	}
	if burst := number("ApiBurstLimit"); burst < number("TenantBurst")+number("MaxQueued")+number("RateBurst") {
		t.Errorf("API Gateway lets %v at once through", burst)
	}
}

// An access log tells what happened, and of nobody.
func TestTheAccessLogNamesNobody(t *testing.T) {
	var api object
	for _, api = range theTemplate(t).resources("AWS::Serverless::HttpApi") {
	}
	format := text(api, "Properties", "AccessLogSettings", "Format")
	var fields map[string]string
	if err := json.Unmarshal([]byte(format), &fields); err != nil || len(fields) < 8 {
		t.Fatalf("%v in %s", err, format)
	}
	for name, value := range fields {
		for _, private := range []string{"path", "Path", "sourceIp", "userAgent", "querystring", "authorizer", "identity", "routeKey"} {
			if strings.Contains(value, private) {
				t.Errorf("%s logs %s", name, value)
			}
		}
	}
	if fields["requestId"] != "$context.requestId" || fields["status"] != "$context.status" {
		t.Errorf("%v", fields)
	}
}

var (
	samSection  = regexp.MustCompile(`(?m)^\[(\w+)\.deploy\.parameters\]\n((?:[^\[\n].*\n|  ".*\n|\n)*)`)
	samOverride = regexp.MustCompile(`(?m)^  "(\w+)=([^"]*)",$`)
)

// samFaults holds what samconfig.toml sets in each environment against the template's parameters, and against the code.
func samFaults(samconfig string, tpl template) []string {
	var faults []string
	sections := samSection.FindAllStringSubmatch(samconfig, -1)
	for _, section := range sections {
		set := map[string]string{}
		for _, o := range samOverride.FindAllStringSubmatch(section[2], -1) {
			name, value := o[1], o[2]
			p := at(tpl.root, "Parameters", name)
			if p == nil {
				faults = append(faults, fmt.Sprintf("%s sets %s, which is no parameter", section[1], name))
				continue
			}
			if allowed, _ := at(p, "AllowedValues").([]any); allowed != nil && !slices.Contains(allowed, any(value)) {
				faults = append(faults, fmt.Sprintf("%s sets %s to %s, which is not allowed", section[1], name, value))
			}
			set[name] = value
		}
		base := tpl.environment("DecodeFunction")
		env := tpl.variables(tpl.resources(serverlessFunction)["DecodeFunction"])
		if _, err := config.Load(func(variable string) string {
			if v, ok := set[text(env[variable], "Ref")]; ok {
				return v
			}
			return base(variable)
		}); err != nil {
			faults = append(faults, section[1]+": "+err.Error())
		}
		if !strings.Contains(section[2], "CAPABILITY_AUTO_EXPAND") {
			faults = append(faults, section[1]+" may not deploy nested stacks")
		}
	}
	for _, want := range []string{"dev", "prod"} {
		if !slices.ContainsFunc(sections, func(s []string) bool { return s[1] == want }) {
			faults = append(faults, "there is no "+want)
		}
	}
	return faults
}

func TestSamconfigSetsWhatTheTemplateHasAndTheCodeTakes(t *testing.T) {
	tpl, whole := theTemplate(t), read(t, "samconfig.toml")
	wantNone(t, samFaults(whole, tpl))
	if n := len(samOverride.FindAllString(whole, -1)); n < 6 {
		t.Errorf("found %d overrides", n)
	}
	wantFinding(t, samFaults(strings.Replace(whole, `"MaxInFlight=2"`, `"MaxInflight=2"`, 1), tpl), "MaxInflight, which is no parameter")
	wantFinding(t, samFaults(strings.Replace(whole, `"RatePerSecond=0.5"`, `"RatePerSecond=30"`, 1), tpl), "RATE_BURST")
	wantFinding(t, samFaults(strings.Replace(whole, "LogRetentionDays=90", "LogRetentionDays=91", 1), tpl), "not allowed")
	wantFinding(t, samFaults(strings.ReplaceAll(whole, "[prod.", "[production."), tpl), "there is no prod")
}

// A changed number has to become a new version, or it never reaches anybody: SAM looks at the package alone.
func TestAChangedParameterMakesAnotherPackage(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("make is not installed")
	}
	dir := t.TempDir()
	cmd := exec.Command("make", "-s", "build-KeeperFunction", "LAMBDA_ARCH="+runtime.GOARCH)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "ARTIFACTS_DIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sums, err := os.ReadFile(filepath.Join(dir, "settings.sha256"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"template.yaml", "samconfig.toml"} {
		if want := fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(read(t, name))), name); !strings.Contains(string(sums), want) {
			t.Errorf("the package has %q, want %q in it", sums, want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "bootstrap")); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("no bootstrap: %v", err)
	}
}
