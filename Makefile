# Detserve's commands. `make help` lists them; everything is installed into .venv on first use.

PYTHON ?= python3
BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help serve qualify test test-quick lint format lock clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: .venv/.qualify ## serve the models of serve_config.yaml on http://127.0.0.1:8000
	$(BIN)/serve run serve_config.yaml

qualify: .venv/.qualify ## start the application, qualify every model, write results/<run>/report.md
	$(BIN)/python scripts/qualify.py

test: .venv/.dev ## run the whole test suite
	$(BIN)/python -m pytest

test-quick: .venv/.dev ## run the tests that start no server
	$(BIN)/python -m pytest -m "not slow"

lint: .venv/.dev ## check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.dev ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: .venv/.dev ## write the installed versions to constraints.txt
	$(BIN)/python -m pip freeze --exclude-editable | LC_ALL=C sort --ignore-case > constraints.txt

clean: ## remove .venv (the cache under DETSERVE_HOME and results/ stay)
	rm -rf .venv

# One stamp a set of packages; an interrupted install is taken up again by the next make.
.venv/.qualify: pyproject.toml constraints.txt | .venv/.python
	@echo "Installing Detserve and AIPerf into .venv (about 3 minutes the first time)"
	$(PIP_INSTALL) --editable '.[qualify]'
	@touch $@

.venv/.dev: pyproject.toml constraints.txt scripts/mend_tensorrt_stubs.py | .venv/.python
	@echo "Installing Detserve, AIPerf and the development tools into .venv (about 3 minutes the first time)"
	$(PIP_INSTALL) --editable '.[qualify,dev]'
	@# not in the extra: they require tensorrt itself, which is for machines with a GPU
	$(PIP_INSTALL) --no-deps tensorrt-stubs
	@$(BIN)/python scripts/mend_tensorrt_stubs.py
	@touch $@

.venv/.python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
		{ echo "Detserve needs Python 3.11 to 3.13; name one with make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv .venv || \
		{ echo "venv is missing: on Debian or Ubuntu, apt install python3-venv"; rm -rf .venv; exit 1; }
	@touch $@
