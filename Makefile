# Two commands: `make run` shows the main job, `make test` runs the tests. Each sets itself up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
# What users would run instead, in an environment of its own.
PEERS := benchmarks/.venv
# One BLAS thread: the matrices are small, and tests run in parallel.
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1

.PHONY: help run test lint format accept bench scale real paper docs lock clean chaos soak fuzz audit bandit \
  oldest sbom mutate

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/locked: requirements.lock
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 10), "Python 3.10 or newer is needed"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(READY): $(VENV)/locked setup.py
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

run: $(READY)  ## simulate a noisy mobility feed, estimate its transition matrix, compare with the truth
	@$(BIN)/aggmc run configs/quickstart.yaml

test: $(READY)  ## the tests, with doctests and the README's examples
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m "not accept and not chaos"

OLDEST := .oldest/bin
.oldest/ready: tests/oldest.txt setup.py
	$(PYTHON) -m venv .oldest
	$(OLDEST)/python -m pip install --quiet --disable-pip-version-check -c tests/oldest.txt -e ".[test]"
	@touch $@

oldest: .oldest/ready  ## the engines' tests with the oldest Beam and Polars that setup.py allows
	$(OLDEST)/python -m pytest -q -n 2 --dist loadgroup -o filterwarnings=ignore tests/test_tidy.py tests/test_local.py \
	  tests/test_beam_combine.py tests/test_beam_transform.py tests/test_beam_bounded.py tests/test_beam_stream.py \
	  tests/test_beam_poison.py tests/test_beam_pair.py

lint: $(READY)  ## ruff, mypy --strict, and which layer may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(READY)  ## let ruff rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

accept: $(READY)  ## the full acceptance list on simulated data
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m "accept or not accept" tests/test_acceptance.py tests/test_acceptance_full.py

chaos: $(READY)  ## the full form of the faults: kills, full disks, damage, retries, lost workers
	AGGMC_KILLS=50 $(BIN)/python -m pytest -q -n 2 --dist loadgroup -m "chaos or not chaos" \
	  tests/test_chaos_*.py tests/test_ledger.py tests/test_durable.py

soak: $(READY)  ## long runs: exact sums, flat memory, bounded state
	$(BIN)/python benchmarks/soak/local.py
	$(BIN)/python benchmarks/soak/stream.py

bench: $(READY) $(PEERS)/ready  ## measure speed against named alternatives; BENCH=--quick for a short form
	$(BIN)/python -m benchmarks.speed $(BENCH)

scale: $(READY)  ## measure what a record costs as data grow: bytes, state and processor time
	$(BIN)/python benchmarks/scale.py $(SCALE)

real: $(READY)  ## errors and intervals on counts that break the model; DATA=DIR adds published data, REAL=--quick
	$(BIN)/python benchmarks/real.py $(if $(DATA),--data $(DATA)) $(REAL)

$(PEERS)/ready: benchmarks/peers.lock
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r benchmarks/peers.lock
	@touch $@

paper: $(READY)  ## reproduce the figures and claims of the paper, into out/paper and docs/paper.md
	$(BIN)/python -m pipelines.paper --docs docs

FUZZ ?= --runs 10500000
fuzz: $(READY)  ## fuzz parsers, decoders and estimates; FUZZ="--seconds 2" for a short form
	@[ -d .fuzz/lib ] || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  --require-hashes --target .fuzz/lib -r fuzz/requirements.txt
	PYTHONPATH=.fuzz/lib $(BIN)/python fuzz/run.py $(FUZZ)

TOOLS := .tools/bin
.tools/ready: security/requirements.txt
	$(PYTHON) -m venv .tools
	$(TOOLS)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r security/requirements.txt
	@touch $@

audit: .tools/ready  ## look locked dependencies up among known vulnerabilities; ADVISORIES=FILE for an offline copy
	$(TOOLS)/python security/audit.py $(if $(ADVISORIES),--advisories $(ADVISORIES)) requirements.lock fuzz/requirements.txt pipelines/requirements.lock security/requirements.txt

sbom: $(READY)  ## write the software bill of materials, CycloneDX JSON, into out/sbom.json
	@mkdir -p out
	$(BIN)/python security/sbom.py requirements.lock > out/sbom.json

mutate: $(READY)  ## change the core in small ways and see whether the tests notice; MUTATE="--number 5" for a sample
	$(BIN)/python -m tools.mutate $(MUTATE)

bandit: .tools/ready  ## search the code for what commonly goes wrong
	$(TOOLS)/bandit --quiet --recursive --configfile pyproject.toml aggmc_beam pipelines

docs: $(READY)  ## write docs/config.md, its JSON Schema and the metadata of the template from the code
	$(BIN)/python -m tools.config_page
	$(BIN)/python -m tools.flex_template

# The Beam runner of `make conformance`.
RUNNER ?= fnapi
.PHONY: conformance flink-up flink-down prism

conformance: $(READY)  ## compare RUNNER=fnapi|fnapi-multi|prism|flink|flink-external|spark with the local engine
	AGGMC_RUNNER=$(RUNNER) $(BIN)/python -m pytest -q -rs -p no:threadexception -p no:unraisableexception \
	  -p no:hypothesispytest \
	  tests/conformance $(ONLY)

flink-up: $(READY)  ## start a Flink cluster on this machine (Java 17; fetched into the cache)
	$(BIN)/python clusters/flink.py up

flink-down: $(READY)  ## stop it
	$(BIN)/python clusters/flink.py down

prism: $(READY)  ## build Beam's Prism into the cache (Go), and print its path
	@$(BIN)/python clusters/prism.py

lock: $(READY)  ## resolve the dependencies anew, for all supported Pythons
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header \
	  --no-emit-index-url --no-annotate --upgrade --extra dev setup.py -o requirements.lock
	$(BIN)/uv pip compile --quiet --python-version 3.11 --python-platform x86_64-manylinux_2_28 --generate-hashes \
	  --no-header --no-emit-index-url --no-annotate --upgrade --constraint requirements.lock --extra image setup.py \
	  -o pipelines/requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header \
	  --no-emit-index-url --no-annotate --upgrade benchmarks/peers.in -o benchmarks/peers.lock

clean:  ## remove the environment and caches
	rm -rf $(VENV) .oldest $(PEERS) .tools .fuzz build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
