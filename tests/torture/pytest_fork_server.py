"""Runs pytest in forked processes: `python -P pytest_fork_server.py MODULES`.

It imports MODULES once, which is slow, and forks a child per run. The program and its tests are not among them, so
each child imports their current version. Each line of input is a JSON request: it names the tests to run, or asks for
the coverage of all tests. Each line of output is the exit code of pytest, or null if the run timed out and was killed.
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
    """Serve requests until standard input ends."""
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_run(json.loads(line))) + "\n")
        sys.stdout.flush()


def _run(request: dict[str, Any]) -> int | None:
    child = os.fork()
    if child == 0:
        _run_in_child(request)
    descriptor = os.pidfd_open(child)
    try:
        in_time, _, _ = select.select([descriptor], [], [], request["seconds"])
    finally:
        os.close(descriptor)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # also processes that its tests left running
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if in_time else None


def _run_in_child(request: dict[str, Any]) -> None:
    code = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        null = os.open(os.devnull, os.O_RDWR)
        for target, source in ((0, null), (1, log), (2, log)):
            os.dup2(source, target)
        work = _run_with_coverage if request["tests"] is None else _run_chosen
        code = int(work(request))
    except BaseException:  # noqa: BLE001 - no code of the parent may run in the child
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _run_chosen(request: dict[str, Any]) -> int:
    """Run these tests in order until one fails; a test that takes too long ends the process."""
    return pytest.main([*request["arguments"], "-x"], [_ChosenTests(request["tests"])])


def _run_with_coverage(request: dict[str, Any]) -> int:
    """Run all tests; record the duration and the lines of each, including subprocesses."""
    folder = Path(request["folder"])
    configuration = folder / "coveragerc"
    options = {
        "core": "ctrace",  # that of newer versions of Python reports only the first test that reaches a line
        "parallel": "true",
        "patch": "subprocess",
        "data_file": f"{folder}/data",
        "source": request["sources"],
    }
    configuration.write_text("[run]\n" + "".join(f"{name} = {value}\n" for name, value in options.items()), "utf-8")
    measure = coverage.Coverage(config_file=str(configuration))
    contexts = _CoverageContexts(measure)
    measure.start()
    try:
        return pytest.main(request["arguments"], [contexts])
    finally:
        measure.stop()
        measure.save()
        (folder / "seconds.json").write_text(json.dumps(contexts.seconds), "utf-8")


class _ChosenTests:
    """Select tests and enforce their time limits; `tests` maps each id to its limit in seconds."""

    def __init__(self, tests: dict[str, float]) -> None:
        self._seconds = tests
        self._positions = {name: position for position, name in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the chosen tests, in order."""
        wanted = [item for item in items if item.nodeid in self._positions]
        items[:] = sorted(wanted, key=lambda item: self._positions[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Set the test's time limit."""
        signal.setitimer(signal.ITIMER_REAL, self._seconds[item.nodeid])
        return (yield)


class _CoverageContexts:
    """Assign coverage to the running test; shared fixtures belong to no test."""

    def __init__(self, measure: coverage.Coverage) -> None:
        self.seconds: dict[str, float] = {}
        self._measure = measure
        self._name = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        began, self._name = monotonic(), item.nodeid
        self._measure.switch_context(self._name)
        try:
            return (yield)
        finally:
            self._measure.switch_context("")
            self.seconds[item.nodeid] = monotonic() - began

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Assign the code of a shared fixture to no test."""
        is_distributed = fixturedef.scope != "function"
        if is_distributed:
            self._measure.switch_context("")
        try:
            return (yield)
        finally:
            if is_distributed:
                self._measure.switch_context(self._name)


if __name__ == "__main__":
    main()
