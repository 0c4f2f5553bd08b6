# Everything runs in .venv, created on first use. Start with `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
TOOLS := $(VENV)/.installed-tools
DOCS := $(VENV)/.installed-docs
# Tools for the dashboard's JavaScript; where there is no npm, its checks are left out.
NPM := $(shell command -v npm 2>/dev/null)
JS := $(if $(NPM),node_modules/.installed)
# Bytecode is written at the first import: of torch, most of it never is.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt

BENCH := .venv-bench
BENCH_INSTALL := $(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check \
	-c constraints.txt -c benchmarks/constraints.txt
PEERS_VENV := .venv-peers
PEERS := lightning accelerate pytorch-ignite matplotlib

# Tests and benchmarks start many interpreters; where this is set, each would compile everything anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo dashboard test test-slow test-all test-faults test-versions coverage check check-js format bench bench-platform bench-quick bench-kills proof docs clean

$(INSTALLED): pyproject.toml constraints.txt
	@echo "Creating $(VENV) and installing torch and determined (once, a minute or two) ..."
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) setuptools torch
	$(PIP_INSTALL) --no-build-isolation -e '.[examples,dashboard,optuna]'
	@touch $@

$(TOOLS): $(INSTALLED)
	@echo "Installing the development tools (once) ..."
	$(PIP_INSTALL) --no-build-isolation -e '.[dev]'
	@touch $@

node_modules/.installed: package.json package-lock.json
	@echo "Installing the tools for JavaScript (once) ..."
	npm ci --silent --no-audit --no-fund
	@touch $@

demo: $(INSTALLED)
	@$(BIN)/python -m determined.demo --folder $(VENV)/demo

dashboard: $(INSTALLED)
	DET_HOME=$(CURDIR)/$(VENV)/demo/home $(BIN)/det dashboard

# More than there are cores, as tests often wait for processes that they started.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) '*' 3 / 2)
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
test: $(TOOLS)
	$(PYTEST) -m 'not slow'

# Browsers, clusters, many processes, kills one after another.
test-slow: $(TOOLS)
	$(PYTEST) -m slow

test-all: $(TOOLS)
	$(PYTEST)

# The long form of the fault tests: FAULTS times as many random cases as in `make test`.
FAULTS ?= 12
test-faults: $(TOOLS)
	DET_TEST_FAULTS=$(FAULTS) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -rP \
		--timeout 7200 tests/faults tests/config/test_laws.py tests/dashboard/endpoints \
		tests/platform/runs/launchers/ray tests/exactness tests/pytorch/test_exact_resume.py \
		tests/pytorch/checkpoint/resuming/test_resume.py tests/pytorch/test_watching.py tests/pytorch/data \
		tests/pytorch/checkpoint/saving tests/platform/service/test_forking.py \
		tests/platform/runs/launchers/test_local.py
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults.soak --kills 1000 --minutes 5
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults.platform.soak --kills 1000

# The lines that no test reaches, in this process and in those that tests start: read them in htmlcov/index.html.
COVERED ?= not slow
coverage: $(TOOLS)
	$(BIN)/python -m coverage erase
	-OMP_NUM_THREADS=1 $(BIN)/python -m coverage run -m pytest -q -n $(WORKERS) --dist worksteal -m '$(COVERED)'
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage html --quiet --skip-covered
	$(BIN)/python -m coverage report --skip-covered --sort=miss | tail -40

# The fast tests with other interpreters, and on the oldest torch that is supported and on the newest; by hand, as each
# brings gigabytes along. An interpreter that is not found is left out.
TORCHES ?= 2.10.0 newest
PYTHONS ?= python3.10 python3.12 python3.13
test-versions:
	@for pair in $(foreach torch,$(TORCHES),$(PYTHON)/$(torch)) $(addsuffix /newest,$(PYTHONS)); do \
		python=$${pair%/*}; version=$${pair##*/}; \
		command -v $$python >/dev/null || { echo "Leaving out $$python: it is not installed."; continue; }; \
		venv=.venv-$$(basename $$python)-torch-$$version; \
		wanted=torch; [ $$version = newest ] || wanted=torch==$$version; \
		$$python -m venv $$venv && \
		grep -v -i -E '^(torch|setuptools)==' constraints.txt > $$venv/constraints.txt && \
		$$venv/bin/python -m pip install --quiet --disable-pip-version-check -U pip setuptools wheel && \
		$$venv/bin/python -m pip install --quiet --disable-pip-version-check $$wanted && \
		$$venv/bin/python -m pip install --quiet --disable-pip-version-check -c $$venv/constraints.txt \
			--no-build-isolation -e '.[test]' && \
		$$venv/bin/python -c 'import torch; import sys; print("Python", sys.version.split()[0], "torch", torch.__version__)' && \
		OMP_NUM_THREADS=1 $$venv/bin/python -m pytest -q -n $(WORKERS) --dist worksteal \
			-m 'not slow and not multiprocess' || exit 1; \
	done

check: $(TOOLS) check-js
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check-js: $(JS)
ifdef NPM
	node_modules/.bin/biome check --error-on-warnings
	node_modules/.bin/tsc
else
	@echo "Skipping the checks of the dashboard's JavaScript: there is no npm."
endif

format: $(TOOLS) $(JS)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
ifdef NPM
	node_modules/.bin/biome check --write
endif

bench: $(BENCH)/.installed
	$(BENCH)/bin/python -m benchmarks
	$(BENCH)/bin/python -m benchmarks.report

bench-platform: $(TOOLS) $(PEERS_VENV)/.installed
	PEERS_PYTHON=$(CURDIR)/$(PEERS_VENV)/bin/python $(BIN)/python -m benchmarks.platform
	$(PEERS_VENV)/bin/python -m benchmarks.platform.page

# The same kills in four libraries: the table of docs/comparison.md. Needs the development tools, which bring the others.
bench-kills: $(TOOLS)
	$(PIP_INSTALL) -c benchmarks/constraints.txt torchdata
	$(BIN)/python -m benchmarks.kills

# Every promise of the README, tried here; ten minutes on two quiet cores.
proof: $(INSTALLED)
	$(BIN)/python -m benchmarks.proof

bench-quick: $(INSTALLED)
	$(BIN)/python -m benchmarks --quick

$(BENCH)/.installed: pyproject.toml constraints.txt benchmarks/constraints.txt
	@echo "Creating $(BENCH) and installing torch, determined and its peers (once) ..."
	$(PYTHON) -m venv $(BENCH)
	$(BENCH_INSTALL) setuptools torch
	$(BENCH_INSTALL) --no-build-isolation -e '.[examples]' $(PEERS)
	@touch $@

# trackio wants an older pillow than we do.
$(PEERS_VENV)/.installed: constraints.txt benchmarks/constraints.txt
	@echo "Making $(PEERS_VENV) and installing what the platform is compared with (once) ..."
	$(PYTHON) -m venv $(PEERS_VENV)
	grep -vi '^pillow' constraints.txt > $(PEERS_VENV)/constraints.txt
	$(PEERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		-c $(PEERS_VENV)/constraints.txt -c benchmarks/constraints.txt torch 'ray[tune]' optuna trackio mlflow
	@touch $@

$(DOCS): $(INSTALLED)
	@echo "Installing what builds the site (once) ..."
	$(PIP_INSTALL) --no-build-isolation -e '.[docs]'
	@touch $@

docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "Open site/index.html"

clean:
	rm -rf $(VENV) node_modules build dist site
