# `make` alone lists the targets. Two are enough to begin with: `make run` and `make test`.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# What `make run` takes from the command line.
PORT ?= 8080
UPSTREAM ?= standin
# The file that `make invoke` and `make sam-invoke` hand to the function.
EVENT ?= events/decode.json
# What `make bench-gate` hands to the benchmark: --table, --brief, --for 5s, --scenario flood, --variant cas, --seed 2.
BENCH ?=
# What `make compare` hands to the comparison: --peer bottleneck, --phase flood, --seed 2, --from FILE, --verbose.
COMPARE ?=
# How often `make bench-cold` starts each function.
N ?= 40
# How long `make fuzz` stays with each parser.
FUZZTIME ?= 10s
# The parsers of what anybody may send by HTTP are worth a minute, unless FUZZTIME is given.
FUZZTIME_HTTP := $(if $(filter file default,$(origin FUZZTIME)),60s,$(FUZZTIME))
# How many faults `make explore` allows in one history.
FAULTS ?= 1

BIN := .local/bin
NPM_STAMP := tools/npm/node_modules/.installed
FUNCTIONS := $(patsubst functions/%/main.go,%,$(wildcard functions/*/main.go))

# The version is the VERSION file's, with the commit behind it where there is one: SAM builds in a copy without .git.
VINGATE_VERSION ?= $(shell cat VERSION)$(addprefix +,$(shell git describe --always --dirty --exclude '*' 2>/dev/null))

# One set of flags for everything that is shipped. The same sources give the same bytes: no paths, no build id of
# the repository, no symbol table.
LDFLAGS := -s -w -X main.version=$(VINGATE_VERSION)
GO_BUILD = CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "$(LDFLAGS)"
# go_lambda FUNCTION,OUTPUT: one Lambda's bootstrap. lambda.norpc leaves out the RPC mode of the retired go1.x runtime.
go_lambda = $(GO_BUILD) -tags lambda.norpc -o $(2) ./functions/$(1)

.PHONY: help
help: ## List the targets (this list)
	@echo "vingate $(VINGATE_VERSION)"
	@echo
	@awk -F ':.*## ' '/^[a-zA-Z0-9_-]+:.*## / { printf "  make %-24s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  make run knows PORT (8080), UPSTREAM (standin or live), STANDIN_PORT, STORE_PORT and INSTANCES;"
	@echo "  every variable of docs/configuration.md works from the environment: MAX_WAIT=10s make run."; echo "  The shared numbers (MAX_IN_FLIGHT, RATE_...) count when the budget is made: after make clean."

.PHONY: deps
deps: $(NPM_STAMP) ## Fetch what is not a Go module: the local store and NHTSA's vPIC data, by npm

$(NPM_STAMP): tools/npm/package.json tools/npm/package-lock.json tools/npm/.npmrc
	@tools/need npm
	@echo "fetching the local store and NHTSA's vPIC data (npm ci in tools/npm)"
	@cd tools/npm && npm ci --loglevel=error --no-progress
	@[ -x tools/npm/node_modules/@dynoxide/linux-x64/dynoxide ] || \
	  echo "there is no local store for this platform: set VINGATE_DYNOXIDE to a dynoxide binary of your own"
	@touch $@

.PHONY: go-toolchain
go-toolchain:
	@tools/need go

.PHONY: local-binaries
local-binaries: go-toolchain
	@mkdir -p $(BIN)
	@[ -x $(BIN)/bootstrap ] || echo "building (the first time takes a minute or more)"
	@$(GO_BUILD) -o $(BIN)/ ./cmd/...
	@$(call go_lambda,decode,$(BIN)/bootstrap)
	@$(call go_lambda,keeper,$(BIN)/keeper)

$(BIN)/aws-lambda-rie: tools/go.mod tools/go.sum | go-toolchain
	@echo "building the Lambda runtime interface emulator"
	@mkdir -p $(BIN)
	@cd tools && CGO_ENABLED=0 go build -o ../$@ github.com/aws/aws-lambda-runtime-interface-emulator/cmd/aws-lambda-rie

$(BIN)/staticcheck: tools/go.mod tools/go.sum | go-toolchain
	@echo "building staticcheck"
	@mkdir -p $(BIN)
	@cd tools && CGO_ENABLED=0 go build -o ../$@ honnef.co/go/tools/cmd/staticcheck

AUDIT := $(addprefix $(BIN)/,cyclonedx-gomod govulncheck)
$(AUDIT): tools/audit/go.mod tools/audit/go.sum | go-toolchain
	@echo "building the tools of the audit"
	@mkdir -p $(BIN)
	@cd tools/audit && CGO_ENABLED=0 go build -o ../../$(BIN)/ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod golang.org/x/vuln/cmd/govulncheck

.PHONY: sbom
sbom: $(BIN)/cyclonedx-gomod ## List every module in each function, with its licence, as CycloneDX under build/sbom
	@mkdir -p build/sbom
	@for fn in $(FUNCTIONS); do \
	  CGO_ENABLED=0 GOOS=linux GOARCH=arm64 GOFLAGS=-tags=lambda.norpc $(BIN)/cyclonedx-gomod app -json -licenses -noserial -output build/sbom/$$fn.json -main functions/$$fn . ; \
	  echo "build/sbom/$$fn.json: $$(grep -c '"type": "library"' build/sbom/$$fn.json) modules"; \
	done

.PHONY: vulncheck
vulncheck: $(BIN)/govulncheck ## Look for known vulnerabilities that the code can reach; asks vuln.go.dev
	@$(BIN)/govulncheck ./...
	@$(BIN)/govulncheck -tags lambda.norpc ./functions/...

.PHONY: run
run: deps local-binaries ## Serve the decode API on http://127.0.0.1:8080, with a local store and a stand-in for NHTSA
	@exec $(BIN)/vingate run --port $(PORT) --upstream $(UPSTREAM) --data-dir .local --bin-dir $(BIN)

.PHONY: test
test: deps $(BIN)/aws-lambda-rie ## Run every test, the end-to-end ones included, with the race detector and in random order, and a minute under fire
	@tools/need cc
	@tools/need chromium
	@CGO_ENABLED=1 go test -race -shuffle=on -timeout 8m ./...
	@# The explorers of interleavings run in one goroutine and look deeper without the race detector; load in virtual time is slow with it,
	@# and so are the many calls of the slips.
	@go test -shuffle=on -timeout 8m ./internal/gate
	@go test -shuffle=on -timeout 8m -run 'Interleaving|Clause' ./internal/results
	@go test -shuffle=on -timeout 8m -run 'Capacity|EverySlip' ./internal/gate/dynamo
	@cd tools/bench && go test -shuffle=on ./...
	@cd tools/fire && go test -shuffle=on ./...
	@cd tools/peers && go test -shuffle=on ./...
	@# Last and alone: the product on real processes under every kind of fault, for a minute and a quarter, judged from outside (docs/proof.md).
	$(call fire,chaos) --brief --seed 1

.PHONY: screenshots
screenshots: deps ## Make the pictures of the page in docs/images anew, in Chromium, from the states its tests go through
	@tools/need chromium
	@VINGATE_IMAGES=$(CURDIR)/docs/images go test -count=1 ./internal/browsertest

.PHONY: capacity
capacity: deps ## Hold the gate to what it may cost in write units and reads, and say what it costs: half a minute
	@go test -v -count=1 -run 'Capacity' ./internal/gate/dynamo

.PHONY: cost
cost: deps ## Print what a million decodes cost on AWS, computed from what a decode takes of DynamoDB here
	@VINGATE_COST=1 go test -count=1 -run TestTheGuidesCost -v ./internal/deploytest | sed -n '/^a live decode/,/^$$/p;/^|/p'

.PHONY: bench-gate
bench-gate: go-toolchain ## Compare the gate with two other schemes on the local store, a line of JSON each; BENCH=--table for a table
	@$(MAKE) -s deps >&2
	@cd tools/bench && go run . $(BENCH)

PEERS_STAMP := tools/peers/node/node_modules/.installed
$(PEERS_STAMP): tools/peers/node/package.json tools/peers/node/package-lock.json tools/peers/node/.npmrc
	@tools/need npm >&2
	@echo "fetching the Node limiters (npm ci in tools/peers/node)" >&2
	@cd tools/peers/node && npm ci --loglevel=error --no-progress >&2
	@touch $@

.PHONY: compare
compare: go-toolchain ## Hold the gate beside limiters that one could take instead, ten processes each: a line of JSON each, and tables; a quarter of an hour
	@$(MAKE) -s deps $(PEERS_STAMP) >&2
	@tools/need redis >&2
	@tools/need limits >&2
	@mkdir -p $(BIN); cd tools/peers && go build -o ../../$(BIN)/peers . && ../../$(BIN)/peers $(COMPARE)

COLD := build/cold
.PHONY: bench-cold
bench-cold: deps ## Measure a cold start against a function that does nothing, a line of JSON each; N=40 starts
	@GOOS=$$(go env GOOS) GOARCH=$$(go env GOARCH) $(call go_lambda,decode,$(COLD)/decode)
	@cd tools/bench && $(GO_BUILD) -tags lambda.norpc -o ../../$(COLD)/hello ./cold/hello
	@cd tools/bench && go run ./cold --hello ../../$(COLD)/hello --decode ../../$(COLD)/decode --n $(N)

# What `make chaos`, `make soak` and `make load` take.
SEED ?= 0
CHAOS ?=
MINUTES ?= 10
LOAD ?=
# go run would add a last line of its own to that of a verdict.
fire = @mkdir -p $(BIN); cd tools/fire && go build -o ../../$(BIN)/fire-$(1) ./$(1) && ../../$(BIN)/fire-$(1)
.PHONY: chaos
chaos: deps ## Put the built product under fire for three minutes and judge it from outside; SEED=n plays a plan again, CHAOS=--verbose tells it, CHAOS="--break P3" breaks a promise
	$(call fire,chaos) --seed $(SEED) $(CHAOS)

.PHONY: soak
soak: deps ## The same at steady load for MINUTES (10), with figures over time under build/soak as CSV and SVG
	$(call fire,chaos) --seed $(SEED) --for $(MINUTES)m --steady --out ../../build/soak $(CHAOS)
	@echo "figures: build/soak/series.csv, build/soak/series.svg; log of all parts: build/soak/parts.log"

.PHONY: load
load: deps ## Measure what vingate adds to a call and how it behaves at ten times its budget, with vegeta: a line of JSON each, and a table
	$(call fire,load) $(LOAD)

.PHONY: reality
reality: deps ## Play three scenarios against the built function and in the simulator, and compare what is refused: a minute
	@VINGATE_REALITY=1 go test -v -count=1 -timeout 8m -run 'TestRealityAgrees' ./internal/simulate

.PHONY: explore
explore: go-toolchain ## Walk every interleaving of the gate with FAULTS (1) faults anywhere: minutes
	@VINGATE_EXPLORE_FAULTS=$(FAULTS) go test -v -count=1 -timeout 60m -run 'TestEveryInterleaving' ./internal/gate

.PHONY: fuzz
fuzz: go-toolchain ## Fuzz every parser for FUZZTIME (10s; what HTTP brings, 60s) each
	@for file in $$(grep -rl --include='*_test.go' '^func Fuzz' cmd functions internal | sort); do \
	  for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$$file"); do \
	    case "$$file" in internal/edge/*) long=$(FUZZTIME_HTTP);; *) long=$(FUZZTIME);; esac; \
	    echo "== $$name ($$(dirname "$$file"), $$long)"; \
	    go test "./$$(dirname "$$file")" -run '^$$' -fuzz "^$$name$$" -fuzztime "$$long"; \
	  done; \
	done

.PHONY: lint
lint: $(BIN)/staticcheck ## Check format, vet and staticcheck, also with the tags of the shipped build
	@unformatted=$$(gofmt -l cmd functions internal tools/bench tools/fire tools/peers); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change (make fmt does it):"; echo "$$unformatted"; exit 1; fi
	@go vet ./...
	@go vet -tags lambda.norpc ./functions/...
	@$(BIN)/staticcheck ./...
	@$(BIN)/staticcheck -tags lambda.norpc ./functions/...
	@go vet -tags lambda.norpc,chaos ./functions/decode
	@$(BIN)/staticcheck -tags lambda.norpc,chaos ./functions/decode
	@for module in bench fire peers; do (cd tools/$$module && go vet ./... && ../../$(BIN)/staticcheck ./...); done
	@echo "lint: nothing to say"

.PHONY: fmt
fmt: go-toolchain ## Format the Go code
	@gofmt -w cmd functions internal tools/bench tools/fire tools/peers

ARCHS ?= arm64 amd64
.PHONY: build
build: go-toolchain ## Build every function as SAM would, for arm64 and amd64, and hold the sizes against functions/size-budget.txt
	@printf '%-40s %12s %12s %12s\n' bootstrap bytes gzip budget
	@over=0; for arch in $(ARCHS); do for fn in $(FUNCTIONS); do \
	  out=build/$$arch/$$fn/bootstrap; \
	  GOOS=linux GOARCH=$$arch $(call go_lambda,$$fn,$$out); \
	  packed=$$(gzip -9 -n -c $$out | wc -c); \
	  budget=$$(awk -v arch=$$arch -v fn=$$fn '$$1 == arch && $$2 == fn { print $$3 }' functions/size-budget.txt); \
	  printf '%-40s %12d %12d %12s\n' "$$out" "$$(wc -c < $$out)" "$$packed" "$${budget:-none}"; \
	  [ -n "$$budget" ] && [ "$$packed" -le "$$budget" ] || over=1; \
	done; done; \
	if [ $$over = 1 ]; then echo "a bootstrap is over its budget in functions/size-budget.txt, or has none: a cold start loads every byte"; exit 1; fi

.PHONY: reproducible
reproducible: go-toolchain ## Build the functions for arm64 twice, in two folders with empty caches, and compare every byte: minutes
	@work=$$(mktemp -d); trap 'chmod -R u+w "$$work"; rm -rf "$$work"' EXIT; \
	for copy in one two/deeper; do \
	  mkdir -p "$$work/$$copy/src"; \
	  git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -cf - 2>/dev/null | tar -xf - -C "$$work/$$copy/src"; \
	  GOCACHE="$$work/$$copy/cache" $(MAKE) -s -C "$$work/$$copy/src" build ARCHS=arm64 VINGATE_VERSION=$(VINGATE_VERSION); \
	done; \
	diff -r "$$work/one/src/build" "$$work/two/deeper/src/build"; \
	echo "reproducible: the same bytes twice"; sha256sum "$$work"/one/src/build/arm64/*/bootstrap | sed "s|$$work/one/src/||"

# SAM's makefile builder calls build-<logical id> in a copy of the sources and collects $ARTIFACTS_DIR.
LAMBDA_ARCH ?= arm64
# The settings' sum lies beside the bootstrap because SAM publishes a new version only for a new package: without it, a number that is
# changed in samconfig.toml would reach the function, and not the version that people are served by.
sam_build = @: "$${ARTIFACTS_DIR:?is set by sam build}"; GOOS=linux GOARCH=$(LAMBDA_ARCH) $(call go_lambda,$(1),$$ARTIFACTS_DIR/bootstrap); \
  sha256sum template.yaml samconfig.toml > "$$ARTIFACTS_DIR/settings.sha256"

.PHONY: build-DecodeFunction
build-DecodeFunction: ## What sam build calls for DecodeFunction
	$(call sam_build,decode)

.PHONY: build-KeeperFunction
build-KeeperFunction: ## What sam build calls for KeeperFunction
	$(call sam_build,keeper)

.PHONY: invoke
invoke: deps local-binaries $(BIN)/aws-lambda-rie ## Run the built function once under AWS's emulator with EVENT (events/decode.json)
	@$(BIN)/vingate invoke --event $(EVENT) --rie $(BIN)/aws-lambda-rie --bootstrap $(BIN)/$(if $(filter %keeper.json,$(EVENT)),keeper,bootstrap)

.PHONY: sam-invoke
sam-invoke: ## The same by sam local invoke, where SAM and Docker are installed
	@tools/need sam
	@tools/need docker
	@$(MAKE) -s deps local-binaries
	@tools/sam-invoke $(EVENT)

.PHONY: clean
clean: ## Remove what was built, and the local store
	rm -rf build .local .aws-sam
