# Detserve's commands. `make help` lists them; everything is installed into .venv on first use,
# the references of the published families into .venv-reference.

PYTHON ?= python3
BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
REFERENCE := .venv-reference/bin/python
REFERENCE_INSTALL := $(REFERENCE) -m pip install --quiet --disable-pip-version-check --no-deps
# where torch comes without CUDA (Linux wheels on PyPI need 3 GB of it); empty: pip's own indexes
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

.DEFAULT_GOAL := help
.PHONY: help serve qualify export-env reference-env test test-quick test-checkpoints lint format lock clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: .venv/.qualify ## serve the models of serve_config.yaml on http://127.0.0.1:8000
	$(BIN)/serve run serve_config.yaml

qualify: .venv/.qualify ## start the application, qualify every model, write results/<run>/report.html
	$(BIN)/python scripts/qualify.py

export-env: .venv/.export ## add torch to .venv, which building from published weights (.pt, safetensors) needs

reference-env: .venv-reference/.installed ## install the publishers' own code, which references run, into .venv-reference

test: .venv/.dev ## run the whole test suite
	$(BIN)/python -m pytest

test-quick: .venv/.dev ## run the tests that start no server
	$(BIN)/python -m pytest -m "not slow"

test-checkpoints: .venv/.dev .venv/.export .venv-reference/.installed ## export, judge and build the ten at real size with random weights (half an hour)
	$(BIN)/python -m pytest -m checkpoints

lint: .venv/.dev ## check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.dev ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: docs
docs: .venv/.qualify ## write docs/checkpoints.md from the catalogue
	$(BIN)/python scripts/checkpoints.py --write

lock: .venv/.dev ## write the installed versions to constraints.txt
	$(BIN)/python -m pip freeze --exclude-editable | LC_ALL=C sort --ignore-case > constraints.txt

clean: ## remove .venv and .venv-reference (the cache under DETSERVE_HOME and results/ stay)
	rm -rf .venv .venv-reference

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

.venv/.export: pyproject.toml constraints.txt | .venv/.qualify
	@echo "Installing torch into .venv (1 GB, about a minute)"
	$(PIP_INSTALL) $(addprefix --extra-index-url ,$(TORCH_INDEX)) --editable '.[qualify,export]'
	@touch $@

# Everything is pinned, so no dependencies are resolved: torchvision, which ultralytics asks for, has
# no build for every torch, and no reference calls it.
.venv-reference/.installed: requirements-reference.txt | .venv-reference/.python
	@echo "Installing torch, transformers and ultralytics into .venv-reference (1.4 GB, 1 to 2 minutes)"
	$(REFERENCE_INSTALL) $(addprefix --extra-index-url ,$(TORCH_INDEX)) "$$(grep '^torch==' requirements-reference.txt)"
	$(REFERENCE_INSTALL) --requirement requirements-reference.txt
	@$(REFERENCE) -c 'import cv2, torch, transformers' || \
		{ $(REFERENCE) -m pip uninstall --quiet --yes torch; \
		  echo "This torch does not run without CUDA's libraries: name an index that has it for the CPU with make reference-env TORCH_INDEX=URL"; exit 1; }
	@touch $@

%/.python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
		{ echo "Detserve needs Python 3.11 to 3.13; name one with make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $* || \
		{ echo "venv is missing: on Debian or Ubuntu, apt install python3-venv"; rm -rf $*; exit 1; }
	@touch $@
