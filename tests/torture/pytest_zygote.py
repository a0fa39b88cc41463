"""Runs pytest by forking a process that has loaded what takes long: `python -P pytest_zygote.py MODULES`.

Neither the program nor its tests are among the modules, so that each child finds them as they are then. Reads a line
of JSON for each run, and answers with the exit code of pytest, or null for a run that took too long and was killed:
of certain tests, to ask whether one of them fails, or of all, to look what they do.
"""

import ctypes
import importlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import coverage
import pytest

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def main() -> None:
    """Until standard input ends."""
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_run(json.loads(line))) + "\n")
        sys.stdout.flush()


def _run(order: dict[str, Any]) -> int | None:
    child = os.fork()
    if child == 0:
        _test(order)
    descriptor = os.pidfd_open(child)
    try:
        in_time, _, _ = select.select([descriptor], [], [], order["seconds"])
    finally:
        os.close(descriptor)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what its tests have left over, too
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if in_time else None


def _test(order: dict[str, Any]) -> None:
    """In the child, which never returns."""
    code = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDWR)
        for target, source in ((0, nothing), (1, log), (2, log)):
            os.dup2(source, target)
        work = _look if order["tests"] is None else _ask
        code = int(work(order))
    except BaseException:  # noqa: BLE001 - nothing of the parent's may run here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _ask(order: dict[str, Any]) -> int:
    """Run these tests, in their order, until one fails, or takes too long, of which the process dies."""
    return pytest.main([*order["arguments"], "-x"], [_Chosen(order["tests"])])


def _look(order: dict[str, Any]) -> int:
    """Run all, and note of each how long it takes and which lines it reaches, also in the programs that it starts."""
    notes = Path(order["notes"])
    configuration = notes / "coveragerc"
    configuration.write_text(
        f"[run]\nparallel = true\npatch = subprocess\ndata_file = {notes}/data\nsource = {order['sources']}\n", "utf-8"
    )
    measure = coverage.Coverage(config_file=str(configuration))
    watch = _Watch(measure)
    measure.start()
    try:
        return pytest.main(order["arguments"], [watch])
    finally:
        measure.stop()
        measure.save()
        (notes / "seconds.json").write_text(json.dumps(watch.seconds), "utf-8")


class _Chosen:
    """A plugin of pytest: the tests that are wanted, and no other; by name, with the seconds that each may take."""

    def __init__(self, tests: dict[str, float]) -> None:
        self._seconds = tests
        self._places = {name: place for place, name in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Called when all are found."""
        wanted = [item for item in items if item.nodeid in self._places]
        items[:] = sorted(wanted, key=lambda item: self._places[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Around a test with its fixtures."""
        signal.setitimer(signal.ITIMER_REAL, self._seconds[item.nodeid])
        return (yield)


class _Watch:
    """A plugin of pytest: tells coverage which test is at work; none for what is made for several tests."""

    def __init__(self, measure: coverage.Coverage) -> None:
        self.seconds: dict[str, float] = {}
        self._measure = measure
        self._name = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Around a test with its fixtures."""
        began, self._name = monotonic(), item.nodeid
        self._measure.switch_context(self._name)
        try:
            return (yield)
        finally:
            self._measure.switch_context("")
            self.seconds[item.nodeid] = monotonic() - began

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Around the making of a fixture."""
        is_shared = fixturedef.scope != "function"
        if is_shared:
            self._measure.switch_context("")
        try:
            return (yield)
        finally:
            if is_shared:
                self._measure.switch_context(self._name)


if __name__ == "__main__":
    main()
