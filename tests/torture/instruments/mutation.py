"""Mutation: small faults in the rules, one at a time; a test of the module must notice each.

Each core has a copy of the sources and a process that forks a child per test run, with all dependencies loaded
(`pytest_fork_server`). First, each test file runs once without a mutant. That records whether it passes, the duration
of each test, and the lines that it reaches.

A mutant is then run against the tests that reach its line, until one fails. The fastest file comes first. Within a
file, tests that reach the line themselves come before tests that reach it only through an import or a shared fixture.
Tests that run rare lines of the function come before the others. The number of tests per mutant is limited and divided
among the files. A mutant survives if none of these tests fails, or if no test reaches it.

The tests are those of the parallel run, with one engine and one kind of server. Tests that must run alone, measure
time, or are marked as slow are excluded.
"""

import compileall
import json
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from random import Random
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

import click
import pytest
from coverage import CoverageData

from tests.torture import pytest_fork_server
from tests.torture.instrument import SHORT_FRACTION, Instrument, Outcome, Scale
from tests.torture.mutants import Mutant, generate_mutants
from tests.torture.parallel import count_cores
from tests.torture.services import ROOT, die_with_parent

T = TypeVar("T")
R = TypeVar("R")
_MIN_KILLED_FRACTION = 0.9
_GRACE_SECONDS = 15.0  # that a test may take in addition to five times its usual duration
_MAX_TESTS_PER_MUTANT = 1_000
_SHORT_MUTANTS = 6  # mutants of the short form
_NO_TIME = "no mutant was tested: no time left"
PYTEST_ARGUMENTS = (
    "-m",
    "not alone and not timing and not slow",
    "-k",
    "not postgres and not citus",
    "--measure-all",  # otherwise a test that the total coverage does not need would reach no line
)
_PRELOADED = (
    "apsw", "argon2", "asyncpg", "click", "hiredis", "httptools", "httpx2", "hypothesis.strategies", "jinja2",
    "msgspec", "obstore", "opentelemetry.sdk.trace", "prometheus_client", "redis", "rich.console", "rich.table",
    "starlette.applications", "stripe", "uvicorn", "uvloop",
)  # fmt: skip
_UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH  # two mutants may have the same size and time

_LISTING_TESTS = tuple(
    f"tests/api/test_{name}.py"
    for name in (
        "update_listing",
        "delete_listing",
        "restore_listing",
        "get_listing",
        "list_listings",
        "list_parameters",
        "list_pages",
        "response_cache",
        "conditional_requests",
        "dry_run",
        "batch",
        "batch_state",
        "idempotency",
        "large_lists",
        "external_ids",
    )
)
_REQUEST_TESTS = (
    "tests/api/test_authentication.py",
    "tests/api/test_errors.py",
    "tests/api/test_rate_limit.py",
    "tests/service/test_activity.py",
    "tests/service/test_usage.py",
)
TESTS_BY_MODULE: Mapping[str, Sequence[str]] = {
    "domain/api_keys.py": ("tests/domain/test_api_keys.py", "tests/api/test_authentication.py"),
    **dict.fromkeys(
        ("domain/fields.py", "domain/rules.py"),
        (
            "tests/domain/test_fields.py",
            "tests/domain/test_image_fields.py",
            "tests/api/test_bad_input.py",
            "tests/api/test_list_parameters.py",
        ),
    ),
    "domain/model.py": (
        "tests/api/test_authentication.py",
        "tests/api/test_list_parameters.py",
        "tests/api/test_list_pages.py",
        "tests/service/test_market.py",
    ),
    "api/app.py": (
        *_REQUEST_TESTS,
        "tests/http/test_body_files.py",
        "tests/api/test_large_lists.py",
        "tests/http/test_connection.py",
        "tests/http/test_pipelines.py",
        "tests/http/test_application_failures.py",
        "tests/http/test_unread_responses.py",
        "tests/http/test_early_responses.py",
        "tests/api/test_bad_input.py",
        "tests/telemetry/test_metrics.py",
        "tests/api/test_paths.py",
        "tests/telemetry/test_tracing.py",
        "tests/site/test_middleware.py",
        "tests/telemetry/test_logs.py",
    ),
    "service/__init__.py": (
        "tests/api/test_readiness.py",
        "tests/api/test_errors.py",
        "tests/service/test_payments.py",
        "tests/api/test_openapi_document.py",
        "tests/api/test_guides.py",
        "tests/site/test_password_reset.py",
    ),
    "service/access.py": _REQUEST_TESTS,
    "service/background_tasks.py": ("tests/service/test_background_tasks.py", "tests/service/test_market.py"),
    "service/listings/__init__.py": (
        *_LISTING_TESTS,
        "tests/cli/test_accounts.py",
        "tests/cli/test_listing.py",
        "tests/service/test_market.py",
        "tests/site/console/test_bulk.py",
        "tests/site/console/test_listings.py",
        "tests/site/console/test_pages.py",
    ),
    "service/listings/steps.py": (
        *_LISTING_TESTS,
        "tests/cli/test_accounts.py",
        "tests/site/console/test_listings.py",
    ),
    "service/listings/moderation.py": ("tests/cli/test_listing.py",),
    "service/accounts.py": (
        "tests/cli/test_accounts.py",
        "tests/service/test_erasure.py",
        "tests/service/test_activity.py",
        "tests/service/test_payments.py",
        "tests/service/test_members.py",
        "tests/service/test_member_keys.py",
        "tests/cli/test_members.py",
        "tests/site/console/test_pages.py",
    ),
    "service/keys.py": (
        "tests/cli/test_keys.py",
        "tests/api/test_authentication.py",
        "tests/service/test_mail.py",
        "tests/service/test_member_keys.py",
        "tests/service/test_activity.py",
        "tests/site/console/test_keys.py",
    ),
    "ratelimit/memory.py": (
        "tests/ratelimit/test_memory.py",
        "tests/contract/test_limiter.py",
        "tests/ratelimit/test_mapped.py",
    ),
    "ratelimit/mapped.py": (
        "tests/ratelimit/test_mapped.py",
        "tests/ratelimit/test_exclusive_mode.py",
        "tests/ratelimit/test_import_history.py",
        "tests/contract/test_limiter.py",
    ),
    "ratelimit/mapped_file.py": (
        "tests/ratelimit/test_mapped.py",
        "tests/ratelimit/test_exclusive_mode.py",
        "tests/contract/test_limiter.py",
        "tests/ratelimit/test_import_history.py",
    ),
    "ratelimit/fallback.py": ("tests/ratelimit/test_fallback.py",),
    "ratelimit/redis.py": (
        "tests/ratelimit/test_fallback.py",
        "tests/ratelimit/test_redis.py",
        "tests/ratelimit/test_import_history.py",
        "tests/contract/test_limiter.py",
    ),
}
"""Modules of src/listings, and the tests that cover them."""


class Project(NamedTuple):
    sources: Path
    tests: Path  # the working directory of pytest
    tests_by_module: Mapping[str, Sequence[str]]
    arguments: Sequence[str] = ()
    preloaded: Sequence[str] = ()  # modules that all tests need and that are never mutated
    grace_seconds: float = _GRACE_SECONDS


class Baseline(NamedTuple):
    """The results of a test file without a mutant."""

    passes: bool
    seconds: Mapping[str, float]  # by test
    reached: Mapping[tuple[str, int], frozenset[str]]  # tests by module and line; "" means the whole file

    def rank_tests(self, module: str, mutant: Mutant) -> list[str]:
        """Return the tests that reach the mutant, the most specific ones first."""
        names = frozenset[str]().union(*(self.reached.get((module, line), frozenset()) for line in mutant.span))
        rarest: dict[str, int] = {}
        for line in mutant.function_lines:
            tests = self.reached.get((module, line), frozenset())
            rarest |= {test: min(len(tests), rarest.get(test, len(tests))) for test in tests}

        def rank(test: str) -> tuple[bool, float, float]:
            return test not in names, rarest.get(test, len(self.seconds)), self.seconds[test]

        return sorted(self.seconds if "" in names else names, key=rank)


class MutantResult(NamedTuple):
    """A mutant, and whether a test failed because of it."""

    module: str
    mutant: Mutant
    is_killed: bool
    is_reached: bool = True

    def __str__(self) -> str:
        reached = "" if self.is_reached else " (no test reaches it)"
        return f"{self.module}:{self.mutant.line}: {self.mutant.description}{reached}"


class Sandbox:
    """A copy of the sources in which modules are mutated, and the process that runs tests on it."""

    def __init__(self, project: Project, folder: Path) -> None:
        self._project = project
        self._folder = folder
        self._copy = folder / "copy"
        self._runs = 0
        shutil.copytree(project.sources, self._copy, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "tmp").mkdir()
        compileall.compile_dir(self._copy, quiet=2, invalidation_mode=_UNCHECKED)

    def __enter__(self) -> Self:
        extra = {
            "PYTHONPATH": str(self._copy),  # also for subprocesses of the tests
            "TMPDIR": str(self._folder / "tmp"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", pytest_fork_server.__file__, *self._project.preloaded],
            cwd=self._project.tests,
            env=os.environ | extra,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - takes no lock
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with self._process as process:
            process.kill()

    def measure_baseline(self, file: str, seconds: float) -> Baseline:
        self._runs += 1
        folder = self._folder / f"folder{self._runs}"
        folder.mkdir()
        if not self._passes([file], seconds, folder=str(folder), sources=str(self._copy)):
            return Baseline(passes=False, seconds={}, reached={})
        seconds_by_test: dict[str, float] = json.loads((folder / "seconds.json").read_text("utf-8"))
        return Baseline(passes=True, seconds=seconds_by_test, reached=self._reached(folder))

    def _reached(self, folder: Path) -> dict[tuple[str, int], frozenset[str]]:
        found: dict[tuple[str, int], frozenset[str]] = {}
        for path in folder.glob("data*"):
            data = CoverageData(str(path))
            data.read()
            for name in data.measured_files():
                module = str(Path(name).relative_to(self._copy))
                for line, tests in data.contexts_by_lineno(name).items():
                    found[module, line] = found.get((module, line), frozenset()).union(tests)
        return found

    def survives(self, module: str, mutant: Mutant, tests: Mapping[str, float]) -> bool:
        """Run tests against the mutant, then restore the module; a test that exceeds its limit counts as failed."""
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        original = (self._copy / module).read_text("utf-8")
        self._write(module, mutant.source)
        try:
            return self._passes(files, sum(tests.values()) + self._project.grace_seconds, tests=tests)
        finally:
            self._write(module, original)

    def _write(self, module: str, source: str) -> None:
        path = self._copy / module
        path.write_text(source, "utf-8")
        py_compile.compile(str(path), doraise=True, invalidation_mode=_UNCHECKED)

    def _passes(self, files: Iterable[str], seconds: float, **extra: object) -> bool:
        request = {
            "arguments": ["-q", *self._project.arguments, *files],
            "tests": None,
            "seconds": seconds,
            "log": str(self._folder / "log"),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request | extra) + "\n")
        self._process.stdin.flush()
        code = json.loads(self._process.stdout.readline())
        return code in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}


class Sandboxes:
    def __init__(self, project: Project, folder: Path) -> None:
        self._stack = ExitStack()
        self._free: SimpleQueue[Sandbox] = SimpleQueue()
        for number in range(count_cores()):
            self._free.put(self._stack.enter_context(Sandbox(project, folder / f"sandbox{number}")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._stack.close()

    def map(self, work: Callable[[Sandbox, T], R], items: Sequence[T]) -> list[R]:
        """Run each item in a free sandbox; return the results in order."""

        def run_item(item: T) -> R:
            sandbox = self._free.get()
            try:
                return work(sandbox, item)
            finally:
                self._free.put(sandbox)

        with ThreadPoolExecutor(self._free.qsize()) as pool:
            return list(pool.map(run_item, items))


def run_mutants(project: Project, scale: Scale, max_mutants: int) -> tuple[list[MutantResult], int, list[str]]:
    """Run a random sample of mutants; return the results, the number of all mutants, and failures without a mutant."""
    candidates = [
        (module, mutant)
        for module in project.tests_by_module
        for mutant in generate_mutants((project.sources / module).read_text("utf-8"))
    ]
    sampled = Random(1).sample(candidates, min(max_mutants, len(candidates)))
    files = sorted({file for module, _ in sampled for file in project.tests_by_module[module]})

    def measure(sandbox: Sandbox, file: str) -> Baseline:
        found = sandbox.measure_baseline(file, scale.seconds_left)
        return found if found.passes else sandbox.measure_baseline(file, scale.seconds_left)  # may be flaky under load

    with Sandboxes(project, scale.folder) as sandboxes:
        baselines = dict(zip(files, sandboxes.map(measure, files), strict=True))
        failures = [f"{file} fails without a mutant" for file, baseline in baselines.items() if not baseline.passes]
        if failures:
            return [], len(candidates), [_NO_TIME] if scale.is_time_up else failures

        def run_mutant(sandbox: Sandbox, candidate: tuple[str, Mutant]) -> MutantResult | None:
            module, mutant = candidate
            if scale.is_time_up:
                return None
            tests = _select_tests([baselines[file] for file in project.tests_by_module[module]], module, mutant)
            survives = not tests or sandbox.survives(module, mutant, tests)
            return MutantResult(module, mutant, is_killed=not survives, is_reached=bool(tests))

        results = [result for result in sandboxes.map(run_mutant, sampled) if result is not None]
    return results, len(candidates), [] if results else [_NO_TIME]


def _select_tests(baselines: Iterable[Baseline], module: str, mutant: Mutant) -> dict[str, float]:
    """Return the tests for a mutant in order, with the limit of each in seconds."""
    found = [(baseline, tests) for baseline in baselines if (tests := baseline.rank_tests(module, mutant))]
    shares = [
        {test: baseline.seconds[test] for test in tests[: _MAX_TESTS_PER_MUTANT // len(found)]}
        for baseline, tests in found
    ]
    shares.sort(key=lambda share: sum(share.values()))
    return {test: 5 * seconds + _GRACE_SECONDS for share in shares for test, seconds in share.items()}


def find_failures(results: Sequence[MutantResult], failures: list[str]) -> list[str]:
    """Return the survivors if there are too many; print each to standard error in any case."""
    survivors = [str(result) for result in results if not result.is_killed]
    for survivor in survivors:
        click.echo(f"   survived: {survivor}", err=True)
    killed = len(results) - len(survivors)
    return failures + (survivors if killed < _MIN_KILLED_FRACTION * len(results) else [])


def _summarize(results: Sequence[MutantResult], total: int) -> str:
    killed = sum(result.is_killed for result in results)
    return f"{len(results)} of {total} mutants tried, {killed} killed ({100 * killed / max(1, len(results)):.0f}%)"


def run(scale: Scale) -> Outcome:
    """Run as many mutants as the time allows, sampled from all modules."""
    tests_by_module = {f"listings/{module}": tests for module, tests in TESTS_BY_MODULE.items()}
    project = Project(ROOT / "src", ROOT, tests_by_module, PYTEST_ARGUMENTS, _PRELOADED)
    results, total, failures = run_mutants(
        project, scale, 10_000 if scale.fraction > SHORT_FRACTION else _SHORT_MUTANTS
    )
    return Outcome(_summarize(results, total), find_failures(results, failures), len(results) == total)


_TOY = """
def grade(points, max_points=10):
    if points < 0 or points > max_points:
        raise ValueError("no such points")
    if not points:
        return "none"
    return "good" if points >= 5 and points != 7 else "poor"
"""
GOOD_TESTS = """
import pytest
from toy import grade

@pytest.mark.parametrize(("points", "grade_"), [(0, "none"), (1, "poor"), (4, "poor"), (5, "good"), (6, "good"),
                                                (7, "poor"), (8, "good"), (10, "good")])
def test_grades(points, grade_):
    assert grade(points) == grade_

@pytest.mark.parametrize("points", [-1, 11, -2, 12])
def test_none(points):
    with pytest.raises(ValueError):
        grade(points)
"""
WEAK_TESTS = "from toy import grade\n\ndef test_grades():\n    assert grade(6) == 'good'\n"


def build_toy(folder: Path, tests: str) -> Project:
    sources, tests_folder = folder / "sources", folder / "tests"
    sources.mkdir()
    tests_folder.mkdir()
    (sources / "toy.py").write_text(_TOY, "utf-8")
    (tests_folder / "test_toy.py").write_text(tests, "utf-8")
    return Project(sources, tests_folder, {"toy.py": ("test_toy.py",)}, ("-p", "no:cacheprovider", "-c", os.devnull))


def run_toy_mutants(scale: Scale, tests: str) -> tuple[list[MutantResult], list[str]]:
    results, _, failures = run_mutants(build_toy(scale.folder, tests), scale, 1000)
    return results, find_failures(results, failures)


def control(scale: Scale) -> Outcome:
    """Run weak tests of a toy module."""
    results, failures = run_toy_mutants(scale, WEAK_TESTS)
    return Outcome(f"a toy with weak tests: {_summarize(results, len(results))}", failures)


INSTRUMENT = Instrument(
    16,
    "mutation: small bugs in request checks, service, field rules, limiters and keys",
    "the nearest tests kill 90% of the mutants",
    6,
    run,
    control,
)
