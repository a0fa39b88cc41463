# Start here: make run, make test, make check.
PYTHON ?= python3
JOBS ?= $(shell $(PYTHON) -c 'import os; print(2 + len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2 + os.cpu_count())')
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := setup.py pyproject.toml $(shell find src/listings -type f -not -path '*/__pycache__/*')
COMPILE ?= 1

# Run a command that builds the package, compiled with mypyc if that is possible.
define compiling
@if [ "$(COMPILE)" = 1 ]; then echo "Compiling the request path with mypyc (about a minute, once)"; fi
@COMPILE=$(COMPILE) $(1) >$(VENV)/build.log 2>&1 || { echo "Compilation failed (see $(VENV)/build.log); installing plain Python, which is about a third slower"; COMPILE=0 $(1); }
endef
AS_USED := PYTHONPATH=$(CURDIR)/.compiled

.DEFAULT_GOAL := help
.PHONY: help setup dev compiled run clean-data test specification test-compiled test-citus clients fuzz bench bench-peers bench-scale bench-check torture check lint types imports prose screenshots dist sbom audit format newest lock clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 15

setup: $(if $(wildcard $(VENV)/.development),dev,$(VENV)/.program)  ## install into .venv for production, compiled; the command is .venv/bin/listings

dev: $(VENV)/.development  ## install into .venv for development: editable, with all tools

$(VENV)/.packages: requirements/runtime.txt
	@$(PYTHON) -c 'import sys; sys.exit("Listings needs Linux" if sys.platform != "linux" else "Listings needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else None)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r requirements/runtime.txt
	@touch $@

$(VENV)/.build-packages: $(VENV)/.packages requirements/build.txt
	$(PIP) --require-hashes -r requirements/build.txt
	@touch $@

# For production: compiled again when a source has changed.
$(VENV)/.program: $(VENV)/.build-packages $(SOURCES)
	@rm -rf build
	$(call compiling,$(PIP) --no-build-isolation --no-deps --force-reinstall .)
	@rm -rf build .compiled $(VENV)/.development
	@touch $@

# For development: plain Python from src/.
$(VENV)/.development: $(VENV)/.build-packages requirements/dev.txt pyproject.toml clients/python/pyproject.toml clients/python/setup.py \
        src/listings/service/transfer/synonyms.json
	$(PIP) --require-hashes -r requirements/dev.txt
	$(PIP) --no-build-isolation --no-deps --editable . --editable clients/python
	@rm -f $(VENV)/.program
	@touch $@

# The compiled package next to the editable one.
compiled: $(if $(wildcard $(VENV)/.development),.compiled/.built,$(VENV)/.program)

.compiled/.built: $(VENV)/.build-packages $(SOURCES)
	@rm -rf build .compiled
	$(call compiling,$(BIN)/python setup.py --quiet build --build-lib .compiled)
	@rm -rf build
	@touch $@

# Plain Python from src/: a demo that starts in seconds is worth more than a faster one.
run: $(VENV)/.packages  ## run a demo on SQLite in data/, uncompiled; PORT=9000 make run for another port, ARGS=--verbose to log every request
	@PYTHONPATH=src $(BIN)/python -m listings serve --demo $(ARGS)

clean-data:  ## delete the demo: the folder data/ with its database
	@test ! -d data || test -f data/demo.env || { echo "data/ is not a demo: delete it yourself"; exit 1; }
	rm -rf data

# Tests marked `alone`, which mostly wait, and those marked `timing` run after all others. CI measures the branch coverage.
PROCESSES = --numprocesses=$(JOBS) --max-worker-restart=0
PARALLEL = $(PROCESSES) --dist=loadfile --no-loadscope-reorder
FILES_MARKED = $(shell grep --recursive --files-with-matches --include='*.py' --regexp='mark\.$(1)' tests)
COVERAGE ?= $(CI)
PYTEST = $(BIN)/$(if $(COVERAGE),coverage run,python) -m pytest
unexport PYTHONDONTWRITEBYTECODE  # otherwise each program that a test starts is compiled to bytecode again

test: dev  ## run every test once; COVERAGE=1 to measure branch coverage, as CI does; JOBS=2 for two processes
	$(if $(COVERAGE),$(BIN)/coverage erase)
	$(PYTEST) $(PARALLEL) -m "not alone and not timing"
	$(PYTEST) $(PROCESSES) --dist=load -m "alone and not timing" $(call FILES_MARKED,alone)
	$(if $(COVERAGE),$(BIN)/coverage combine --quiet && $(BIN)/coverage report)
	$(BIN)/python -m pytest -m timing $(call FILES_MARKED,timing)

# It needs only pytest, so BASE_URL may be any server. `make test` runs it against this one.
specification: dev  ## check a server against the specification: make specification BASE_URL=http://... API_KEY=... (docs/conformance.md)
	@$(BIN)/python -m pytest tests/specification $(ARGS)

# The tests that reach the compiled modules, on SQLite and over the server's own protocol.
COMPILED_TESTS = tests/api tests/http tests/ratelimit tests/contract tests/domain/test_fields.py \
    tests/domain/test_image_fields.py tests/domain/test_api_keys.py tests/store/sqlite/test_write_lock.py tests/store/sqlite/test_revision_cache.py \
    tests/cli/test_serve.py tests/cli/test_stop.py tests/workers tests/telemetry tests/test_specification.py \
    tests/site/test_middleware.py tests/torture/test_rate_limit.py tests/torture/test_linearizability.py

test-compiled: dev .compiled/.built  ## run the tests that reach compiled modules over the compiled program
	LISTINGS_TEST_COMPILED=1 $(AS_USED) $(BIN)/python -m pytest $(PARALLEL) \
	    -m "not alone and not timing and not as_written" -k "not postgres and not citus" $(COMPILED_TESTS)

# The first line of pytest says what is missing if the database is not one on a Citus coordinator.
test-citus: dev  ## run the contract and API tests on Citus: LISTINGS_TEST_CITUS_URL=postgresql://... make test-citus
	@test -n "$$LISTINGS_TEST_CITUS_URL" || { echo "Set LISTINGS_TEST_CITUS_URL to a database on a Citus coordinator (docs/testing.md)"; exit 1; }
	$(BIN)/python -m pytest $(PARALLEL) -k citus tests/contract tests/api tests/deploy

# With uv, because pip can't install an extra that another package requires if hashes are required.
.clients/.packages: requirements/clients.txt clients/package-lock.json
	@mkdir -p .clients
	$(PYTHON) -m venv .clients/venv
	$(BIN)/uv pip install --quiet --python .clients/venv/bin/python --require-hashes -r requirements/clients.txt
	cp clients/package.json clients/package-lock.json .clients
	npm ci --prefix .clients --ignore-scripts --no-audit --no-fund
	@touch $@

clients: dev .clients/.packages  ## generate clients in nine languages, run a life cycle with six and each tool of an MCP server; needs Go, a JDK, Node.js, PHP, Ruby
	$(BIN)/python -m tests.generated_clients

fuzz: dev  ## send more than 20,000 requests generated from the OpenAPI document; CASES=1600 for each operation
	$(BIN)/python -m tests.api.fuzzing $(or $(CASES),1600)

bench: setup compiled  ## measure the speed, about 20 minutes; ARGS=--quick to try it, ARGS=--write to store the result
	$(AS_USED) $(BIN)/python -m bench $(ARGS)

bench-peers: setup compiled  ## compare with fastify, about 25 minutes; ARGS=--quick to try it
	$(AS_USED) $(BIN)/python -m bench.peers $(ARGS)

bench-scale: dev .compiled/.built  ## measure two processes, and PostgreSQL, about 16 minutes; ARGS=--quick, ARGS=--write
	$(AS_USED) $(BIN)/python -m bench.scale $(ARGS)

bench-check: setup compiled  ## fail if a response takes more CPU instructions than recorded; needs valgrind, three minutes
	$(AS_USED) $(BIN)/python -m bench.guard $(ARGS)

torture: dev  ## kills, power cuts, full disks, floods: 75 minutes; ARGS=--short to try it, ARGS=--write to store the result
	$(BIN)/python -m tests.torture $(ARGS)

screenshots: dev  ## draw the pictures of the README with Chromium
	$(BIN)/python -m tests.site.screenshots docs

# All are the same bytes wherever a commit is built: they contain the commit's time, and no umask.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/listings/__init__.py)

BUILD = umask 022; SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) COMPILE=0 \
    $(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python

dist: dev  ## build the source distribution, the uncompiled wheel and that of the client into dist/
	@rm -rf dist build
	$(BUILD)
	$(BUILD) --out-dir build clients/python && mv build/*.whl dist

RELEASE = .release/bin

.release/.packages: requirements/release.txt
	$(PYTHON) -m venv .release
	$(RELEASE)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

sbom: .release/.packages  ## write the list of shipped packages (CycloneDX) into dist/
	@mkdir -p dist
	sed 's/^dynamic = .*/version = "$(VERSION)"/' pyproject.toml >.release/pyproject.toml
	$(RELEASE)/cyclonedx-py requirements --pyproject .release/pyproject.toml --output-reproducible \
	    -o dist/listings_server-$(VERSION).cdx.json requirements/runtime.txt

audit: .release/.packages  ## compare the pinned packages with PyPI's list of known vulnerabilities
	@$(RELEASE)/pip-audit --strict --progress-spinner=off --disable-pip --require-hashes $(AUDITED) 2>.release/audit.log \
	    || if grep -qE "$(UNREACHABLE)" .release/audit.log && [ -z "$(REQUIRED)" ]; \
	    then echo "PyPI's list of vulnerabilities is unreachable: nothing was audited"; \
	    else cat .release/audit.log; exit 1; fi
AUDITED = $(patsubst %,-r requirements/%.txt,runtime s3 stripe tracing)
UNREACHABLE = could not be audited|ConnectionError|ConnectTimeout

check: lint types imports prose  ## lint, spelling, types, import rules and wording

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/zizmor --offline --quiet .
	@if test -x $(BIN)/actionlint; then $(LINT_ON_LINUX); else echo "Workflows, scripts and Dockerfile are linted on Linux only"; fi

LINT_ON_LINUX = $(BIN)/actionlint -shellcheck $(BIN)/shellcheck && $(BIN)/shellcheck --exclude=SC1091 .ci/* deploy/*.sh && $(BIN)/hadolint Dockerfile

prose: dev
	$(BIN)/python -m tests.prose

types: dev
	$(BIN)/mypy

imports: dev
	$(BIN)/lint-imports

format: dev  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The files contain these commands, so that bots can repeat them. `make lock UPGRADE=` keeps the present versions.
UPGRADE = --upgrade
LOCK = $(BIN)/uv pip compile --quiet $(UPGRADE) --universal --python-version 3.11 --generate-hashes --exclude-newer P7D

newest: $(VENV)/.packages  ## install the newest packages that pyproject.toml allows, without pins or hashes
	$(PIP) --upgrade pip
	$(PIP) --upgrade --group build --group dev --editable . --editable clients/python
	@touch $(VENV)/.build-packages $(VENV)/.development

lock: dev  ## pin the newest allowed dependencies that are at least a week old, with hashes
	$(LOCK) -o requirements/runtime.txt pyproject.toml
	$(LOCK) -o requirements/s3.txt -c requirements/runtime.txt --extra s3 pyproject.toml
	$(LOCK) -o requirements/stripe.txt -c requirements/runtime.txt --extra stripe pyproject.toml
	$(LOCK) -o requirements/tracing.txt -c requirements/runtime.txt --extra tracing pyproject.toml
	$(LOCK) -o requirements/dev.txt -c requirements/runtime.txt --group dev
	$(LOCK) -o requirements/build.txt -c requirements/dev.txt --group build
	$(LOCK) -o requirements/clients.txt -c requirements/dev.txt --group clients
	$(LOCK) -o requirements/release.txt -c requirements/dev.txt --group release

clean:  ## delete everything that the other targets create, except the data
	rm -rf $(VENV) .clients .release .compiled build .peers .coverage .coverage.* .mypy_cache .ruff_cache .import_linter_cache .hypothesis htmlcov dist src/*.egg-info clients/python/src/*.egg-info clients/python/build clients/python/src/listings_client/synonyms.json
