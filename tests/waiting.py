"""Wait until a condition is true that no event announces, because it depends on another process or thread."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from tests.harness import TIMEOUT

T = TypeVar("T")
_PAUSE_SECONDS = 0.01


def until(condition: Callable[[], T]) -> T:
    """Wait until the condition is true, and return its value. Fails after TIMEOUT."""
    end = time.monotonic() + TIMEOUT
    while not (value := condition()):
        assert time.monotonic() < end
        time.sleep(_PAUSE_SECONDS)
    return value


async def until_async(condition: Callable[[], object]) -> None:
    """Do the same while other tasks run. Raises TimeoutError after TIMEOUT."""
    async with asyncio.timeout(TIMEOUT):
        while not condition():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(_PAUSE_SECONDS)
