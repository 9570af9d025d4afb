# Every target sets up what it needs, asks nothing, needs no root, and says what it does.
# On a fresh machine: Python 3.11 or newer, make, and a way to the package registries.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Times that `make chaos` meets each boundary.
CHAOS ?= 5
# Trips that `make chaos` books or undoes while everything is killed; REFOLD_CHAOS_SEED repeats a run.
TRIPS ?= 1000
# Tests wait more than they compute: three at a time on two cores, a file at a time.
PYTEST_ARGS ?= -n 3 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help setup demo test check fix bench chaos lock stop clean

help: ## Say what there is to make.
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: $(READY) ## Make the virtual environment, exactly as locked.

$(READY): requirements.lock pyproject.toml
	@echo "==> making $(VENV) with $(PYTHON) and the locked packages (a minute, once)"
	@$(PYTHON) -c 'import sys; sys.exit("refold needs Python 3.11 or newer: make PYTHON=...") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -C editable_mode=compat
	@touch $@

demo: $(READY) ## Run the main job: replay a service desk's log, kill a worker, prove the result.
	@echo "==> refold demo"
	@$(BIN)/refold demo

test: check ## Run the checks, then every test.
	@echo "==> all tests"
	@$(BIN)/pytest $(PYTEST_ARGS)

check: $(READY) ## Format, lint, types, import rules, tidiness: no server is started.
	@echo "==> format"
	@$(BIN)/ruff format --check --quiet
	@echo "==> lint"
	@$(BIN)/ruff check --quiet
	@echo "==> types"
	@$(BIN)/mypy
	@echo "==> import rules"
	@$(BIN)/lint-imports --no-logo
	@echo "==> tidiness"
	@$(BIN)/pytest -q tests/test_tidy.py tests/test_packaging.py -m "not slow"

fix: $(READY) ## Format, and repair what the linter can repair.
	@$(BIN)/ruff format --quiet
	@$(BIN)/ruff check --quiet --fix

bench: $(READY) ## Measure the product beside the bare loops; results go to bench/results/.
	@echo "==> benchmarks"
	@$(BIN)/python -m bench

chaos: $(READY) ## The whole crash matrix with repeats, 1,000 trips, 300 orders (make test: a sample).
	@echo "==> crash matrix"
	@REFOLD_CHAOS=$(CHAOS) $(BIN)/pytest tests/crash tests/kafka/test_loan.py $(PYTEST_ARGS)
	@echo "==> $(TRIPS) trips, with workers, executors and the world killed at random"
	@REFOLD_CHAOS_TRIPS=$(TRIPS) $(BIN)/pytest -q -s tests/executors/saga
	@echo "==> orders, every step with another truth mode, with executors killed at random"
	@REFOLD_CHAOS=$(CHAOS) $(BIN)/pytest -q -s tests/executors/test_fulfilment.py

lock: $(READY) ## Choose the newest allowed versions anew: packages and Kafka's jars.
	@echo "==> requirements.lock"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --upgrade --universal \
		--python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" --quiet -o requirements.lock
	@$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --quiet \
		-c requirements.lock -o compose/runtime.lock
	@echo "==> compose/kafka.lock"
	@$(BIN)/python -c 'from refold.local.jars import resolve_lock; print(resolve_lock(), end="")' > compose/kafka.lock.new
	@mv compose/kafka.lock.new compose/kafka.lock

stop: ## Stop the servers that tests left running for the next run.
	@test ! -x $(BIN)/refold || $(BIN)/python -m refold.testing.servers

clean: stop ## Stop the test servers; remove everything that was made here.
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
