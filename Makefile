# Everything a newcomer needs: make run, make test, make check.
PYTHON ?= python3
JOBS ?= $(shell $(PYTHON) -c 'import os; print(1 + len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1 + os.cpu_count())')
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := setup.py pyproject.toml $(shell find src/listings -type f -not -path '*/__pycache__/*')
COMPILE ?= 1

# Runs a command that builds the package, compiled where that can be done.
define compiling
@if [ "$(COMPILE)" = 1 ]; then echo "Compiling the way of a request, for half a minute"; fi
@COMPILE=$(COMPILE) $(1) >$(VENV)/build.log 2>&1 || { echo "It can't be compiled, which $(VENV)/build.log tells more of: it runs as it is written, at two thirds of the speed"; COMPILE=0 $(1); }
endef
AS_USED := PYTHONPATH=$(CURDIR)/.compiled

.DEFAULT_GOAL := help
.PHONY: help setup dev compiled run test test-compiled fuzz bench bench-peers bench-scale bench-check torture check lint types imports coverage format lock clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 13

setup: $(if $(wildcard $(VENV)/.development),dev,$(VENV)/.program)  ## make .venv with the pinned dependencies; .venv/bin/listings is the command

dev: $(VENV)/.development

$(VENV)/.packages: requirements/runtime.txt requirements/build.txt
	@$(PYTHON) -c 'import sys; sys.exit("Listings needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r requirements/runtime.txt -r requirements/build.txt
	@touch $@

# For those who use it: compiled, anew when it has changed.
$(VENV)/.program: $(VENV)/.packages $(SOURCES)
	@rm -rf build
	$(call compiling,$(PIP) --no-build-isolation --no-deps --force-reinstall .)
	@rm -rf build .compiled $(VENV)/.development
	@touch $@

# For those who change it: as it is written.
$(VENV)/.development: $(VENV)/.packages requirements/dev.txt pyproject.toml
	$(PIP) --require-hashes -r requirements/dev.txt
	$(PIP) --no-build-isolation --no-deps --editable .
	@rm -f $(VENV)/.program
	@touch $@

# As it is used, beside what is changed.
compiled: $(if $(wildcard $(VENV)/.development),.compiled/.built,$(VENV)/.program)

.compiled/.built: $(VENV)/.packages $(SOURCES)
	@rm -rf build .compiled
	$(call compiling,$(BIN)/python setup.py --quiet build --build-lib .compiled)
	@rm -rf build
	@touch $@

run: setup  ## run the service with demo accounts on SQLite in data/
	@$(BIN)/listings serve --demo

# Those that nothing may run beside come behind all others, which run in as many processes as JOBS tells.
BESIDE = --numprocesses=$(JOBS) --dist=loadfile --no-loadscope-reorder
unexport PYTHONDONTWRITEBYTECODE  # or each of the programs that tests start would be compiled anew

test: dev  ## run every test; JOBS=4 in four processes, by default in one more than there are cores
	$(BIN)/python -m pytest $(BESIDE) -m "not alone and not timing"
	$(BIN)/python -m pytest -m "alone or timing"

test-compiled: dev .compiled/.built  ## run the tests over what users have, which is compiled
	LISTINGS_TEST_COMPILED=1 $(AS_USED) $(BIN)/python -m pytest $(BESIDE) -m "not alone and not timing and not as_written" --ignore=tests/bench

fuzz: dev  ## send more than 20,000 requests that schemathesis makes of the description; CASES=1600 for each operation
	$(BIN)/python -m tests.api.fuzzing $(or $(CASES),1600)

bench: setup compiled  ## measure the speed, about 20 minutes; ARGS=--quick to try it, ARGS=--write to keep the result
	$(AS_USED) $(BIN)/python -m bench $(ARGS)

bench-peers: setup compiled  ## measure it beside FastAPI, Django and fastify, about an hour; ARGS=--quick to try it
	$(AS_USED) $(BIN)/python -m bench.peers $(ARGS)

bench-scale: dev .compiled/.built  ## measure two processes, and PostgreSQL, about 15 minutes; ARGS=--quick to try it, ARGS=--write to keep it
	$(AS_USED) $(BIN)/python -m bench.scale $(ARGS)

bench-check: setup compiled  ## tell whether an answer takes more instructions than it did; needs valgrind, a minute or two
	$(AS_USED) $(BIN)/python -m bench.guard $(ARGS)

torture: dev  ## kill it, cut its power, fill its disk, flood it: an hour; ARGS=--short to try it, ARGS=--write to keep it
	$(BIN)/python -m tests.torture $(ARGS)

check: lint types imports coverage  ## lint, types, import rules, and every test with branch coverage

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@if test -x $(BIN)/hadolint; then $(BIN)/hadolint Dockerfile; else echo "hadolint is for Linux: Dockerfile not checked"; fi

types: dev
	$(BIN)/mypy

imports: dev
	$(BIN)/lint-imports

coverage: dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(BESIDE) -m "not alone and not timing"
	$(BIN)/coverage run -m pytest -m "alone and not timing"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

format: dev  ## put the code into its one format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: dev  ## pin the newest allowed dependencies that are a week old, with hashes
	$(BIN)/uv pip compile --quiet --universal --upgrade --exclude-newer "7 days" --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --python-version 3.11 pyproject.toml -o requirements/runtime.txt
	$(BIN)/uv pip compile --quiet --universal --upgrade --exclude-newer "7 days" --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --python-version 3.11 --group dev -c requirements/runtime.txt -o requirements/dev.txt
	$(BIN)/uv pip compile --quiet --universal --upgrade --exclude-newer "7 days" --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --python-version 3.11 --group build -c requirements/dev.txt -o requirements/build.txt

clean:  ## remove what the other targets made, but for the data
	rm -rf $(VENV) .compiled build .peers .coverage .coverage.* .mypy_cache .ruff_cache .hypothesis htmlcov dist
