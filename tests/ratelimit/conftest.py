"""Fixtures for the tests of the rate limiters."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import pytest
import uvloop

from listings.ratelimit.mapped_file import MachineClock
from tests.harness import Clock
from tests.redis_server import RedisServer

Run: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Run coroutines on one event loop: uvloop as in the service, or asyncio as in the commands."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        yield runner.run


@pytest.fixture
def database_id() -> str:
    return uuid4().hex


class Machine:
    def __init__(self) -> None:
        self.boot = "boot-1"
        self.uptime = 500.0
        self.wall = 1_790_000_000.0

    def pass_time(self, seconds: float) -> None:
        self.uptime += seconds
        self.wall += seconds

    def reboot(self, downtime_seconds: float) -> None:
        self.boot, self.uptime = "boot-2", 1.0
        self.wall += downtime_seconds

    def clock(self) -> MachineClock:
        return MachineClock(lambda: self.boot, lambda: self.uptime, lambda: self.wall)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """The path of a database, which does not exist. The log files are created next to it."""
    return tmp_path / "listings.db"


@pytest.fixture
def clock() -> Clock:
    """A clock that tests control, instead of Redis's."""
    return Clock()


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of the test's own, which may end."""
    with RedisServer() as server:
        yield server
