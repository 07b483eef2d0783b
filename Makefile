# All commands of a developer. Needs python3 (3.11 or newer, with venv), make and standard tools; tools/setup.py installs
# the rest in .venv, once per change of pyproject.toml or constraints.txt. Another Python: make PYTHON=python3.13 test

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CHECKERS := $(VENV)/.installed-check
WARM := $(VENV)/.warm
KERNELS := $(shell find src/umdf -name '*kernel*.py')
# Else every process of the tests, of which there are many, compiles the package and the tests anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup test demo check bench bench-lake soak clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

setup: $(WARM) ## set up .venv and compile the kernels (the targets below do it if needed)

test: $(WARM) ## run the tests in reduced size; make test ARGS="-k pcap"
	@$(BIN)/python -m pytest -q -n 2 --dist loadgroup --no-loadscope-reorder $(ARGS)

demo: $(WARM) ## decode and explain captures, simulate a trading day, rebuild its books, build its lake on Spark
	@$(BIN)/python examples/demo.py $(ARGS)

check: $(CHECKERS) ## run ruff, pyright and the architecture test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/python -m pytest -q tests/test_architecture.py

bench: $(WARM) ## run the benchmarks: ratios and their targets
	@$(BIN)/python -m benchmarks $(ARGS)

bench-lake: $(WARM) ## benchmark the lake, on Spark and without; ARGS="--messages 2000000" for a short run
	@$(BIN)/python -m benchmarks.lake $(ARGS)

soak: $(WARM) ## run the tests at full size
	@$(BIN)/python -m pytest -q -n 2 --dist loadgroup --no-loadscope-reorder --soak $(ARGS)

clean: ## remove everything that the targets above created, including .venv
	@rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist demo-out examples/demo src/*.egg-info
	@find src tests tools -name __pycache__ -exec rm -rf {} +

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) tools/setup.py dev spark
	@touch $@

$(CHECKERS): $(INSTALLED)
	@$(PYTHON) tools/setup.py dev spark check
	@touch $@

# Before the tests fork, so that no two processes compile the same kernel. umdf.kernels.source_stamp decides what has
# changed; this file only saves starting Python to ask.
$(WARM): $(INSTALLED) $(KERNELS)
	@$(BIN)/python tools/warm.py
	@touch $@
