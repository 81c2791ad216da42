# The developer's whole interface. Needs python3 >= 3.11 (venv, pip), make and a C library; every target prepares what it needs.
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
BIN := .venv/bin
# Test workers: one a core up to two; more only heats the machine, since the system tests start daemons of their own.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 1); [ $$n -gt 2 ] && n=2; echo $$n)
TYPED := agent common controller rackctl sim proto tests tools $(patsubst %/run.py,%,$(wildcard bench/run.py))
PIP := -m pip --disable-pip-version-check --no-input

.PHONY: help
help:  ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: .venv/.stamp  ## Run a whole rack on this machine; ARGS="--seconds 60 --json" goes to `rackctl demo`.
	@$(BIN)/rackctl demo $(ARGS)

.PHONY: test
test: .venv/.stamp  ## Run every test; ARGS="-k lease" goes to pytest.
	$(BIN)/pytest -n $(WORKERS) $(ARGS)

.PHONY: bench
bench: .venv/.stamp  ## Measure what the README promises; ARGS go to bench.run.
	@test -f bench/run.py || { echo "bench: bench/run.py does not exist yet" >&2; exit 2; }
	$(BIN)/python -m bench.run $(ARGS)

.PHONY: lint
lint: .venv/.stamp  ## Check style, types, import rules, protos, and that the stubs are fresh.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(TYPED)
	$(BIN)/lint-imports
	$(BIN)/buf lint
	@$(BIN)/python tools/stubs.py check

.PHONY: format
format: .venv/.stamp  ## Put the code into shape.
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

.PHONY: proto
proto: .venv/.stamp .proto-venv/.stamp  ## Generate the stubs from proto/; commit what it writes.
	@.proto-venv/bin/python tools/stubs.py write

.PHONY: lock
lock: .lock-venv/.stamp  ## Resolve requirements/*.txt anew, keeping versions that still fit; ARGS="--upgrade" takes the newest.
	@tools/lock.sh .lock-venv/bin/uv $(ARGS)

.PHONY: clean
clean:  ## Remove everything that make and the tools made.
	rm -rf .venv .proto-venv .lock-venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written last, so that a build that was broken off is done again.
.venv/.stamp: requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rackpower needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0] + "; say make PYTHON=python3.12 ...")'
	@echo "Preparing .venv (about a minute, once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python $(PIP) install -qq --require-hashes -r requirements/dev.txt
	@$(BIN)/python $(PIP) install -qq --no-deps --no-build-isolation -e .
	@touch $@

# grpc_tools and ortools in one process abort the interpreter: the generator has an environment of its own.
.proto-venv/.stamp: requirements/proto.txt
	@echo "Preparing .proto-venv"
	@test -x .proto-venv/bin/python || $(PYTHON) -m venv .proto-venv
	@.proto-venv/bin/python $(PIP) install -qq --require-hashes -r $<
	@touch $@

.lock-venv/.stamp: requirements/lock.txt
	@test -x .lock-venv/bin/python || $(PYTHON) -m venv .lock-venv
	@.lock-venv/bin/python $(PIP) install -qq --require-hashes -r $<
	@touch $@
