"""Fixtures of the limiters' tests."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import pytest
import uvloop

from listings.ratelimit.mapped import MachineClock

Run: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Runs coroutines one after the other on one loop: the service's, and the commands'."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        yield runner.run


@pytest.fixture
def database_id() -> str:
    """Whose keys a test counts."""
    return uuid4().hex


class Machine:
    """A machine's clocks, turned by hand."""

    def __init__(self) -> None:
        self.boot = "boot-1"
        self.uptime = 500.0
        self.wall = 1_790_000_000.0

    def pass_time(self, seconds: float) -> None:
        self.uptime += seconds
        self.wall += seconds

    def reboot(self, seconds_away: float) -> None:
        self.boot, self.uptime = "boot-2", 1.0
        self.wall += seconds_away

    def clock(self) -> MachineClock:
        return MachineClock(lambda: self.boot, lambda: self.uptime, lambda: self.wall)


@pytest.fixture
def machine() -> Machine:
    """The machine whose clocks a test turns."""
    return Machine()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Where the files are counted beside, which is not made."""
    return tmp_path / "listings.db"
