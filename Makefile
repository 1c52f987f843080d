# Every target sets itself up: all it needs is Python 3.11 or newer with pip.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test check unit fuzz bench lock clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(READY) ## A stream of stock trades, a pattern, and its matches
	@mkdir -p build/demo
	@cat examples/falling_cisco.ceql
	@$(BIN)/ceql generate stocks --events 1000000 --out build/demo/stocks.parquet
	@$(BIN)/ceql explain examples/falling_cisco.ceql --schema build/demo/stocks.parquet
	@$(BIN)/ceql run examples/falling_cisco.ceql --input build/demo/stocks.parquet --output build/demo/matches.jsonl
	@echo && echo "The first three matches of build/demo/matches.jsonl:" && head -n 3 build/demo/matches.jsonl

test: check unit ## Everything that CI checks

check: $(READY) ## Lint, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

unit: $(READY) ## All tests
	$(BIN)/pytest -q -n auto --dist loadgroup

fuzz: $(READY) ## Many more random queries and streams than `make test` tries
	CEQL_FUZZ=100 $(BIN)/pytest -q -n auto tests/test_properties.py tests/engine/test_engine_properties.py

bench: $(READY) ## Benchmarks; prints ratios measured in one run
	$(BIN)/python benchmarks/bench_engine.py

lock: $(READY) ## Renew requirements.lock from pyproject.toml
	$(BIN)/pip install -q uv
	$(BIN)/uv pip compile pyproject.toml --extra spark --group dev --universal --python-version 3.11 \
		--no-emit-index-url --no-header --no-annotate -q -o requirements.lock

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("ceql needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@
