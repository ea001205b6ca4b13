# A fresh machine needs python 3.11 or newer and make; everything else comes from the package index.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The constraints keep torch at a CPU build: without them pip adds gigabytes of CUDA.
INSTALL := $(PIP) install --quiet --constraint constraints.txt
ARGS ?=

PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell \
	$(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))

# One thread each: on a busy machine more of them spin against each other.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help venv install demo test lint format types coverage clean

help:  ## Show what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(BIN)/python  ## Create the virtual environment

install: $(VENV)/.installed-dev  ## Install the package with everything that developing it needs

demo: $(VENV)/.installed-demo  ## Run the demonstration: make demo ARGS="..."
	@$(BIN)/python -m langchain_hermes_memory.demo $(ARGS)

test: lint types  ## Check style and types, then run all tests
	@$(BIN)/python -m pytest

lint: install  ## Check style, formatting and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

format: install  ## Rewrite the sources in the house style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: install  ## Check types
	@$(BIN)/mypy

coverage: install  ## Run all tests and show which lines none of them reaches
	@$(BIN)/coverage run -m pytest
	@$(BIN)/coverage report

clean:  ## Remove the virtual environment and all caches
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, as python3.11 or python3 (or: make PYTHON=/path/to/python)." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) cannot create a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

# Stamps: nothing is installed again until what is asked for changes.
$(VENV)/.installed-demo: pyproject.toml constraints.txt | $(BIN)/python
	@$(INSTALL) --editable ".[agents,offline]"
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@$(INSTALL) --editable ".[dev,community-test]"
	@touch $@ $(VENV)/.installed-demo
