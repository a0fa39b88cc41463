"""Mutation: small faults in the rules, one at a time, each of which a test near it must notice."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from random import Random
from time import monotonic
from typing import NamedTuple

import click

from tests.torture.arms import cores
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.mutants import Mutant, mutants_of
from tests.torture.serving import ROOT, die_with_parent

_LEAST_KILLED = 0.9
_GRACE = 30.0  # seconds that a test may take beside three times its usual time
_LESS = ("-m", "not alone", "-k", "not postgres and not citus")  # one engine will do

_LISTING_TESTS = tuple(
    f"tests/api/test_{name}.py"
    for name in (
        "update_listing",
        "delete_listing",
        "restore_listing",
        "get_listing",
        "conditional_requests",
        "dry_run",
        "batch",
    )
)
NEAREST: Mapping[str, Sequence[str]] = {
    "keys.py": ("tests/unit/test_keys.py", "tests/api/test_authentication.py"),
    "fields.py": ("tests/unit/test_fields.py", "tests/api/test_bad_input.py"),
    "model.py": ("tests/api/test_authentication.py", "tests/api/test_list_parameters.py"),
    "api/app.py": (
        "tests/api/test_authentication.py",
        "tests/api/test_errors.py",
        "tests/api/test_rate_limit.py",
        "tests/api/test_early_answers.py",
        "tests/api/test_bad_input.py",
    ),
    "service/__init__.py": (
        "tests/api/test_authentication.py",
        "tests/api/test_readiness.py",
        "tests/service/test_usage.py",
    ),
    "service/listings.py": (*_LISTING_TESTS, "tests/api/test_idempotency.py", "tests/cli/test_support.py"),
    "service/accounts.py": ("tests/cli/test_accounts.py", "tests/cli/test_keys.py", "tests/api/test_authentication.py"),
    "limiter/memory.py": ("tests/conformance/test_limiter.py", "tests/api/test_rate_limit.py"),
    "limiter/mapped.py": (
        "tests/limiter/test_mapped.py",
        "tests/conformance/test_limiter.py",
        "tests/limiter/test_take_over.py",
    ),
    "limiter/fallback.py": ("tests/limiter/test_fallback.py",),
    "limiter/redis.py": ("tests/limiter/test_redis.py", "tests/conformance/test_limiter.py"),
}
"""Modules of src/listings, and the tests that are about them."""


class Project(NamedTuple):
    """Where the modules and their tests are."""

    sources: Path
    tests: Path  # from where pytest is run
    nearest: Mapping[str, Sequence[str]]
    arguments: Sequence[str] = ()
    plugins: bool = True  # of pytest, which take their time to load


class Trial(NamedTuple):
    """One mutant, and whether a test has noticed it."""

    module: str
    mutant: Mutant
    is_killed: bool


class Copy:
    """A copy of the sources in which modules may be broken."""

    def __init__(self, project: Project, folder: Path) -> None:
        self._project = project
        self._folder = folder
        shutil.copytree(project.sources, folder, ignore=shutil.ignore_patterns("__pycache__"))

    def passes(self, module: str, seconds: float) -> bool:
        """Whether the tests of a module find nothing; a test that hangs has found something."""
        environment = os.environ | {"PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1"}
        if not self._project.plugins:
            environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        command = [sys.executable, "-m", "pytest", "-q", "-x", *self._project.arguments, *self._project.nearest[module]]
        with subprocess.Popen(
            command,
            cwd=self._project.tests,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - it takes no lock
        ) as process:
            try:
                return process.wait(seconds) == 0
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                return False

    def try_one(self, module: str, mutant: Mutant, seconds: float) -> Trial:
        """Break a module, ask its tests, and mend it."""
        path = self._folder / module
        sound = path.read_text("utf-8")
        path.write_text(mutant.source, "utf-8")
        try:
            return Trial(module, mutant, not self.passes(module, seconds))
        finally:
            path.write_text(sound, "utf-8")


def hunt(project: Project, scale: Scale, most: int) -> tuple[list[Trial], int, list[str]]:
    """Try so many mutants, by chance; returns them, how many there are, and what was wrong before any was made."""
    prefix = "listings/" if (project.sources / "listings").exists() else ""
    copies = [Copy(project, scale.folder / f"copy{number}") for number in range(cores())]
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def look(module: str) -> float | None:
        """How long the tests of a module may take; None: they fail as it is."""
        copy, began = free.get(), monotonic()
        try:
            is_sound = copy.passes(module, scale.seconds)
            return (monotonic() - began) * 3 + _GRACE if is_sound else None
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        found = dict(zip(project.nearest, pool.map(look, project.nearest), strict=True))
    faults = [f"the tests of {module} fail as it is" for module, most_time in found.items() if most_time is None]
    times = {module: most_time or 0.0 for module, most_time in found.items()}
    every = [
        (module, mutant)
        for module in project.nearest
        for mutant in mutants_of((project.sources / prefix / module.removeprefix(prefix)).read_text("utf-8"))
    ]
    chosen = Random(1).sample(every, min(most, len(every))) if not faults else []

    def attempt(one: tuple[str, Mutant]) -> Trial | None:
        if scale.is_over:
            return None
        copy = free.get()
        try:
            return copy.try_one(*one, times[one[0]])
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        trials = [trial for trial in pool.map(attempt, chosen) if trial is not None]
    return trials, len(every), faults


def judge(trials: Sequence[Trial], faults: list[str]) -> list[str]:
    """What survived, where that is too much; each survivor is told on standard error in any case."""
    survivors = [f"{it.module}:{it.mutant.line}: {it.mutant.what}" for it in trials if not it.is_killed]
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
    trials, whole, faults = hunt(
        Project(ROOT / "src", ROOT, nearest, _LESS), scale, 10_000 if scale.part > SHORT else 6
    )
    return Outcome(_told(trials, whole), judge(trials, faults), len(trials) == whole)


SHORT = 0.01
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


def try_toy(scale: Scale, tests: str) -> tuple[list[Trial], list[str]]:
    """A small module with these tests; returns what survived if that is too much."""
    sources, folder = scale.folder / "sources", scale.folder / "tests"
    sources.mkdir()
    folder.mkdir()
    (sources / "toy.py").write_text(_TOY, "utf-8")
    (folder / "test_toy.py").write_text(tests, "utf-8")
    project = Project(
        sources, folder, {"toy.py": ("test_toy.py",)}, ("-p", "no:cacheprovider", "-c", os.devnull), plugins=False
    )
    trials, _, faults = hunt(project, scale, 1000)
    return trials, judge(trials, faults)


def control(scale: Scale) -> Outcome:
    """Tests of a toy that look at too little."""
    trials, faults = try_toy(scale, WEAK_TESTS)
    return Outcome(f"a toy with weak tests: {_told(trials, len(trials))}", faults)


INSTRUMENT = Instrument(
    16,
    "mutation: small faults in gate, service, rules, limiters and keys",
    "90 % of the mutants are killed by the tests nearest to them",
    9,
    run,
    control,
)
