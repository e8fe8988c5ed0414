# Every target explains itself: make help
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Two environments' worth of packages in one folder: a run needs a few, the tests need all.
RUN    := $(VENV)/.installed-run
DEV    := $(VENV)/.installed-dev
REPORT ?= reports/replay.html
TRACE  ?= workload:chat
JOBS   ?= 2

.DEFAULT_GOAL := help
.PHONY: help run test test-fast test-slow lint format bench bench-peers clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(RUN)  ## replay a built-in workload, LRU beside the offline optimum, and write an HTML report
	@mkdir -p $(dir $(REPORT))
	$(BIN)/kvsim replay $(TRACE) --device-tokens 2% --policy lru,optimal --report $(REPORT)
	@echo "report: $(abspath $(REPORT))"

test: lint test-fast  ## everything that CI runs: format, lint, types, layers, tests

test-fast: $(DEV)  ## the tests alone
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow and not gpu"

test-slow: $(DEV)  ## exhaustive properties and the long exact replays of the real traces
	$(BIN)/python -m pytest -n $(JOBS) -m "slow"

lint: $(DEV)  ## format check, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/architecture

format: $(DEV)  ## rewrite the formatting
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(DEV)  ## measure the hot operations; results go to benchmarks/results
	$(BIN)/python -m benchmarks.micro

bench-peers: $(DEV)  ## the same work through vLLM, SGLang and this store (installs the peers into .venvs/peers)
	$(BIN)/python benchmarks/peers/run.py

clean:  ## remove environments, caches and reports
	rm -rf .venv .venvs reports .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(RUN): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[report]'
	@touch $@

# The pinned CPU build goes first: any newer torch is gigabytes of CUDA.
$(DEV): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(RUN)
