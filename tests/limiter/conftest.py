"""Fixtures of the limiters' tests."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeAlias
from uuid import uuid4

import pytest
import uvloop

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
