# Everything a newcomer runs. Needs python3 (3.11 or newer, with venv), make and everyday tools; the rest is set up in
# .venv by tools/setup.py, once per change of pyproject.toml or constraints.txt. Another Python: make PYTHON=python3.13 test

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CHECKERS := $(VENV)/.installed-check
WARM := $(VENV)/.warm
KERNELS := $(shell find src/umdf -name '*kernel*.py')

.PHONY: help setup test demo check bench bench-lake soak clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

setup: $(WARM) ## set up .venv and compile the kernels (every target below does it by itself)

test: $(WARM) ## the tests, in reduced sizes; make test ARGS="-k pcap"
	@$(BIN)/python -m pytest -q -n 2 --dist loadgroup $(ARGS)

demo: $(WARM) ## captures decoded and explained, a made-up day, its books, its lake on Spark
	@$(BIN)/python examples/demo.py $(ARGS)

check: $(CHECKERS) ## ruff, pyright and the doors between the rooms
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/python -m pytest -q tests/test_architecture.py

bench: $(WARM) ## a table of ratios with their targets
	@$(BIN)/python -m benchmarks $(ARGS)

bench-lake: $(WARM) ## captures into tables on Spark, beside plain processes; ARGS="--messages 2000000" for a short run
	@$(BIN)/python -m benchmarks.lake $(ARGS)

soak: $(WARM) ## the tests at full size
	@$(BIN)/python -m pytest -q -n 2 --dist loadgroup --soak $(ARGS)

clean: ## remove everything that the targets above made, .venv included
	@rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist demo-out examples/demo src/*.egg-info
	@find src tests tools -name __pycache__ -exec rm -rf {} +

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) tools/setup.py dev spark
	@touch $@

$(CHECKERS): $(INSTALLED)
	@$(PYTHON) tools/setup.py dev spark check
	@touch $@

# Before the tests fork, so that no two processes compile the same kernel. Python's own name for what changed is in
# umdf.kernels.source_stamp; this stamp only saves asking.
$(WARM): $(INSTALLED) $(KERNELS)
	@$(BIN)/python tools/warm.py
	@touch $@
