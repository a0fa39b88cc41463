"""Mutation: small faults in the rules, one at a time, each of which a test near it must notice.

For each core there is a copy of the sources, and a process that forks a child for each run of tests, with all loaded
but the program and its tests (`pytest_zygote`). First each file of tests is run once as things are, which tells that
it passes, how long each test takes, and which lines it reaches. A mutant is then asked only of the tests that reach its
line, until one fails: of the quickest file first, and in a file first those that reach the line by themselves and not
by an import or a service that they share, and that go the most unusual ways through the function. So many are asked
and no more, of each file its share: what these do not notice has survived, as has at once what no test reaches.

The tests that are asked are those of the parallel run, on one engine and with one way of answering. Left out are those
that must be alone, that time something, or that are marked slow.
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

from tests.torture import pytest_zygote
from tests.torture.instrument import SHORT, Instrument, Outcome, Scale
from tests.torture.mutants import Mutant, mutants_of
from tests.torture.serving import ROOT, die_with_parent
from tests.torture.signals import cores

T = TypeVar("T")
R = TypeVar("R")
_LEAST_KILLED = 0.9
_GRACE = 15.0  # seconds that a test may take beside five times its usual time
_MOST_ASKED = 1_000  # tests of one mutant
_FEW = 6  # mutants of a short run
_NO_TIME = "no mutant was tried: there was no time for one"
_LESS = ("-m", "not alone and not timing and not slow", "-k", "not postgres and not citus and not asgi")
_LOADED = (
    "apsw", "argon2", "asyncpg", "click", "hiredis", "httptools", "httpx", "hypothesis.strategies", "jinja2", "msgspec",
    "opentelemetry.sdk.trace", "prometheus_client", "redis", "rich.console", "rich.table", "starlette.applications",
    "stripe", "structlog", "uvicorn", "uvloop",
)  # fmt: skip
_UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH  # two mutants may be of one size and one second

_ON_LISTINGS = tuple(
    f"tests/api/test_{name}.py"
    for name in (
        "update_listing",
        "delete_listing",
        "restore_listing",
        "get_listing",
        "list_listings",
        "list_parameters",
        "response_cache",
        "conditional_requests",
        "dry_run",
        "batch",
        "idempotency",
    )
)
_AT_THE_GATE = (
    "tests/api/test_authentication.py",
    "tests/api/test_errors.py",
    "tests/api/test_rate_limit.py",
    "tests/service/test_activity.py",
    "tests/service/test_usage.py",
)
NEAREST: Mapping[str, Sequence[str]] = {
    "domain/api_keys.py": ("tests/domain/test_api_keys.py", "tests/api/test_authentication.py"),
    "domain/fields.py": (
        "tests/domain/test_fields.py",
        "tests/api/test_bad_input.py",
        "tests/api/test_list_parameters.py",
    ),
    "domain/model.py": (
        "tests/api/test_authentication.py",
        "tests/api/test_list_parameters.py",
        "tests/service/test_market.py",
    ),
    "api/app.py": (
        *_AT_THE_GATE,
        "tests/http/test_early_responses.py",
        "tests/api/test_bad_input.py",
        "tests/telemetry/test_metrics.py",
        "tests/api/test_paths.py",
        "tests/telemetry/test_tracing.py",
        "tests/site/test_middleware.py",
        "tests/telemetry/test_logs.py",
    ),
    "service/__init__.py": (
        *_AT_THE_GATE,
        "tests/api/test_readiness.py",
        "tests/api/test_idempotency.py",
        "tests/service/test_payments.py",
        "tests/service/test_maintenance.py",
    ),
    "service/listings.py": (
        *_ON_LISTINGS,
        "tests/cli/test_accounts.py",
        "tests/cli/test_listing.py",
        "tests/site/test_console_listings.py",
    ),
    "service/accounts.py": (
        "tests/cli/test_accounts.py",
        "tests/cli/test_keys.py",
        "tests/api/test_authentication.py",
        "tests/service/test_activity.py",
        "tests/site/test_console_keys.py",
    ),
    "ratelimit/memory.py": ("tests/ratelimit/test_memory.py", "tests/conformance/test_limiter.py"),
    "ratelimit/mapped.py": (
        "tests/ratelimit/test_mapped.py",
        "tests/ratelimit/test_exclusive_mode.py",
        "tests/conformance/test_limiter.py",
        "tests/ratelimit/test_import_history.py",
    ),
    "ratelimit/fallback.py": ("tests/ratelimit/test_fallback.py",),
    "ratelimit/redis.py": (
        "tests/ratelimit/test_fallback.py",
        "tests/ratelimit/test_redis.py",
        "tests/ratelimit/test_import_history.py",
        "tests/conformance/test_limiter.py",
    ),
}
"""Modules of src/listings, and the tests that are about them."""


class Project(NamedTuple):
    """Where the modules and their tests are."""

    sources: Path
    tests: Path  # from where pytest is run
    nearest: Mapping[str, Sequence[str]]
    arguments: Sequence[str] = ()
    loaded: Sequence[str] = ()  # modules that all tests share, and that are never broken


class Look(NamedTuple):
    """What a file of tests does while nothing is broken."""

    passes: bool
    seconds: Mapping[str, float]  # by test
    reached: Mapping[tuple[str, int], frozenset[str]]  # by module and line, the tests; "" stands for all of the file

    def tests_of(self, module: str, mutant: Mutant) -> list[str]:
        """Those that reach the mutant, the most telling first."""
        names = frozenset[str]().union(*(self.reached.get((module, line), frozenset()) for line in mutant.span))
        rarest: dict[str, int] = {}
        for line in mutant.around:
            tests = self.reached.get((module, line), frozenset())
            rarest |= {test: min(len(tests), rarest.get(test, len(tests))) for test in tests}

        def rank(test: str) -> tuple[bool, float, float]:
            return test not in names, rarest.get(test, len(self.seconds)), self.seconds[test]

        return sorted(self.seconds if "" in names else names, key=rank)


class Trial(NamedTuple):
    """One mutant, and whether a test has noticed it."""

    module: str
    mutant: Mutant
    is_killed: bool
    is_reached: bool = True

    def __str__(self) -> str:
        """For whoever is to write the test that is missing."""
        reached = "" if self.is_reached else " (no test reaches it)"
        return f"{self.module}:{self.mutant.line}: {self.mutant.what}{reached}"


class Ward:
    """A copy of the sources in which modules may be broken, and the process that runs tests on it."""

    def __init__(self, project: Project, folder: Path) -> None:
        self._project = project
        self._folder = folder
        self._copy = folder / "copy"
        self._runs = 0
        shutil.copytree(project.sources, self._copy, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "tmp").mkdir()
        compileall.compile_dir(self._copy, quiet=2, invalidation_mode=_UNCHECKED)

    def __enter__(self) -> Self:
        more = {
            "PYTHONPATH": str(self._copy),  # for the programs that tests start, too
            "TMPDIR": str(self._folder / "tmp"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", pytest_zygote.__file__, *self._project.loaded],
            cwd=self._project.tests,
            env=os.environ | more,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - it takes no lock
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with self._process as process:
            process.kill()

    def look(self, file: str, seconds: float) -> Look:
        """Run a file of tests on what is whole."""
        self._runs += 1
        notes = self._folder / f"notes{self._runs}"
        notes.mkdir()
        if not self._passes([file], seconds, notes=str(notes), sources=str(self._copy)):
            return Look(passes=False, seconds={}, reached={})
        taken: dict[str, float] = json.loads((notes / "seconds.json").read_text("utf-8"))
        return Look(passes=True, seconds=taken, reached=self._reached(notes))

    def _reached(self, notes: Path) -> dict[tuple[str, int], frozenset[str]]:
        found: dict[tuple[str, int], frozenset[str]] = {}
        for path in notes.glob("data*"):
            data = CoverageData(str(path))
            data.read()
            for name in data.measured_files():
                module = str(Path(name).relative_to(self._copy))
                for line, tests in data.contexts_by_lineno(name).items():
                    found[module, line] = found.get((module, line), frozenset()).union(tests)
        return found

    def survives(self, module: str, mutant: Mutant, tests: Mapping[str, float]) -> bool:
        """Break a module, ask these tests, and mend it; one that takes more than its seconds has noticed it."""
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        whole = (self._copy / module).read_text("utf-8")
        self._write(module, mutant.source)
        try:
            return self._passes(files, sum(tests.values()) + _GRACE, tests=tests)
        finally:
            self._write(module, whole)

    def _write(self, module: str, source: str) -> None:
        path = self._copy / module
        path.write_text(source, "utf-8")
        py_compile.compile(str(path), doraise=True, invalidation_mode=_UNCHECKED)

    def _passes(self, files: Iterable[str], seconds: float, **more: object) -> bool:
        order = {
            "arguments": ["-q", *self._project.arguments, *files],
            "tests": None,
            "seconds": seconds,
            "log": str(self._folder / "log"),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order | more) + "\n")
        self._process.stdin.flush()
        code = json.loads(self._process.stdout.readline())
        return code in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}


class Wards:
    """One for each core."""

    def __init__(self, project: Project, folder: Path) -> None:
        self._stack = ExitStack()
        self._free: SimpleQueue[Ward] = SimpleQueue()
        for number in range(cores()):
            self._free.put(self._stack.enter_context(Ward(project, folder / f"ward{number}")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._stack.close()

    def beside(self, work: Callable[[Ward, T], R], shares: Sequence[T]) -> list[R]:
        """The results of all shares, in their order."""

        def do(share: T) -> R:
            ward = self._free.get()
            try:
                return work(ward, share)
            finally:
                self._free.put(ward)

        with ThreadPoolExecutor(self._free.qsize()) as pool:
            return list(pool.map(do, shares))


def hunt(project: Project, scale: Scale, most: int) -> tuple[list[Trial], int, list[str]]:
    """Try so many mutants, by chance; returns them, how many there are, and what was wrong before any was made."""
    every = [
        (module, mutant)
        for module in project.nearest
        for mutant in mutants_of((project.sources / module).read_text("utf-8"))
    ]
    chosen = Random(1).sample(every, min(most, len(every)))
    files = sorted({file for module, _ in chosen for file in project.nearest[module]})

    def look(ward: Ward, file: str) -> Look:
        found = ward.look(file, scale.left)
        return found if found.passes else ward.look(file, scale.left)  # what a busy machine fails once, it may pass

    with Wards(project, scale.folder) as wards:
        looks = dict(zip(files, wards.beside(look, files), strict=True))
        faults = [f"{file} fails as it is" for file, look in looks.items() if not look.passes]
        if faults:
            return [], len(every), [_NO_TIME] if scale.is_over else faults

        def attempt(ward: Ward, one: tuple[str, Mutant]) -> Trial | None:
            module, mutant = one
            if scale.is_over:
                return None
            asked = _asked([looks[file] for file in project.nearest[module]], module, mutant)
            survives = not asked or ward.survives(module, mutant, asked)
            return Trial(module, mutant, is_killed=not survives, is_reached=bool(asked))

        trials = [trial for trial in wards.beside(attempt, chosen) if trial is not None]
    return trials, len(every), [] if trials else [_NO_TIME]


def _asked(looks: Iterable[Look], module: str, mutant: Mutant) -> dict[str, float]:
    """The tests that a mutant is asked of, in their order, with the seconds that each may take."""
    found = [(look, tests) for look in looks if (tests := look.tests_of(module, mutant))]
    shares = [{test: look.seconds[test] for test in tests[: _MOST_ASKED // len(found)]} for look, tests in found]
    shares.sort(key=lambda share: sum(share.values()))
    return {test: 5 * seconds + _GRACE for share in shares for test, seconds in share.items()}


def judge(trials: Sequence[Trial], faults: list[str]) -> list[str]:
    """What survived, where that is too much; each survivor is told on standard error in any case."""
    survivors = [str(trial) for trial in trials if not trial.is_killed]
    for survivor in survivors:
        click.echo(f"   survived: {survivor}", err=True)
    killed = len(trials) - len(survivors)
    return faults + (survivors if killed < _LEAST_KILLED * len(trials) else [])


def _told(trials: Sequence[Trial], whole: int) -> str:
    killed = sum(trial.is_killed for trial in trials)
    return f"{len(trials)} of {whole} mutants tried, {killed} killed ({100 * killed / max(1, len(trials)):.0f} %)"


def run(scale: Scale) -> Outcome:
    """As many as the time allows, by chance over all modules."""
    nearest = {f"listings/{module}": tests for module, tests in NEAREST.items()}
    project = Project(ROOT / "src", ROOT, nearest, _LESS, _LOADED)
    trials, whole, faults = hunt(project, scale, 10_000 if scale.part > SHORT else _FEW)
    return Outcome(_told(trials, whole), judge(trials, faults), len(trials) == whole)


_TOY = """
def grade(points, most=10):
    if points < 0 or points > most:
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


def toy_of(folder: Path, tests: str) -> Project:
    """A small module with these tests."""
    sources, beside = folder / "sources", folder / "tests"
    sources.mkdir()
    beside.mkdir()
    (sources / "toy.py").write_text(_TOY, "utf-8")
    (beside / "test_toy.py").write_text(tests, "utf-8")
    return Project(sources, beside, {"toy.py": ("test_toy.py",)}, ("-p", "no:cacheprovider", "-c", os.devnull))


def try_toy(scale: Scale, tests: str) -> tuple[list[Trial], list[str]]:
    """Try all mutants of the toy; returns what survived if that is too much."""
    trials, _, faults = hunt(toy_of(scale.folder, tests), scale, 1000)
    return trials, judge(trials, faults)


def control(scale: Scale) -> Outcome:
    """Tests of a toy that look at too little."""
    trials, faults = try_toy(scale, WEAK_TESTS)
    return Outcome(f"a toy with weak tests: {_told(trials, len(trials))}", faults)


INSTRUMENT = Instrument(
    16,
    "mutation: small bugs in request checks, service, field rules, limiters and keys",
    "the nearest tests kill 90 % of the mutants",
    9,
    run,
    control,
)
