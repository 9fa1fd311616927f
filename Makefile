# Everything here is a short name for a command that works by itself; the checks
# live in .ci and need nothing but Go.
.PHONY: build test race lint bench gen gen-check fuzz check ci clean

build: ## bin/refrain
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/refrain

test: ## the whole suite
	@bash .ci/test.sh

race: ## the race detector over the concurrent rooms
	@bash .ci/race.sh

lint: ## gofmt, vet, module sums
	@bash .ci/lint.sh

bench: ## micro benchmarks beside the code, six counts, for benchstat
	go test -run '^$$' -bench . -count 6 ./...

gen: ## rewrite generated code
	go generate ./...

gen-check: ## generated code is fresh
	@bash .ci/gen.sh

fuzz: ## every fuzz target, FUZZTIME=30s each
	@bash .ci/fuzz.sh

check: ## what to run before a commit
	@STEPS="lint gen purego test" bash .ci/run

ci: ## all that must hold before a change lands
	@bash .ci/run

clean:
	rm -rf bin
