# Everything runs in .venv, made on first use. `make demo` and `make test` are the two doors.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
TOOLS := $(VENV)/.installed-tools
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test check format bench docs clean

$(INSTALLED): pyproject.toml constraints.txt
	@echo "Making $(VENV) and installing torch and determined (once, a minute or two) ..."
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) setuptools torch
	$(PIP_INSTALL) --no-build-isolation -e '.[examples]'
	@touch $@

$(TOOLS): $(INSTALLED)
	@echo "Installing the development tools (once) ..."
	$(PIP_INSTALL) --no-build-isolation -e '.[dev]'
	@touch $@

demo: $(INSTALLED)
	cd examples/digits && $(CURDIR)/$(BIN)/python train.py

test: $(TOOLS)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

check: $(TOOLS)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(TOOLS)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(TOOLS)
	$(BIN)/python -m benchmarks

docs: $(TOOLS)
	$(PIP_INSTALL) '.[docs]'
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site
