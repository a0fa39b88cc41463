"""A request that is run at once as far as it comes, and goes on when what it waits for is there.

Most requests wait for nothing, and to wait in a task costs as much as to read a listing.
"""

import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeAlias

from listings.contract.listings import Promise

Running: TypeAlias = Coroutine[Any, Any, None]


def run(running: Running, start_task: Callable[[Running], None]) -> None:
    """Run it until it ends; `start_task` is given the rest of one that waits for anything but a promise."""
    try:
        waits_for = running.send(None)
    except StopIteration:
        return
    if type(waits_for) is Promise:
        waits_for.add_done_callback(partial(_go_on, running, start_task))
    else:
        start_task(_rest_of(running, waits_for))


def _go_on(running: Running, start_task: Callable[[Running], None], _promise: Promise[Any]) -> None:
    run(running, start_task)


async def _rest_of(running: Running, waits_for: Any) -> None:  # noqa: ANN401 - what a task is handed
    """A coroutine itself, since from Python 3.12 on a task takes no generator."""
    await _handed_through(running, waits_for)


@types.coroutine
def _handed_through(running: Running, waits_for: Any) -> Generator[Any, Any, None]:  # noqa: ANN401 - as above
    """Hand on to the task what the coroutine waits for, and to the coroutine what comes of it."""
    while True:
        try:
            result = yield waits_for
        except BaseException as error:  # noqa: BLE001 - a cancellation belongs to the coroutine
            step = partial(running.throw, error)
        else:
            step = partial(running.send, result)
        try:
            waits_for = step()
        except StopIteration:
            return
