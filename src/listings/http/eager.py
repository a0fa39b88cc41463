"""Run a request eagerly: step its coroutine without a task for as long as possible.

Most requests never block, and a task costs as much as reading a listing. A future needs no task either if its creator
always resolves it: such a class of futures has the attribute `needs_no_task = True`.
"""

import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeAlias

Running: TypeAlias = Coroutine[Any, Any, None]
Awaited: TypeAlias = Any
"""The object that a coroutine awaits, as returned by its `send`."""


def run(running: Running, start_task: Callable[[Running], None]) -> None:
    """Run the coroutine while it awaits only futures that need no task. Otherwise `start_task` gets the rest."""
    try:
        awaited = running.send(None)
    except StopIteration:
        return
    if getattr(awaited, "needs_no_task", False):
        awaited.add_done_callback(partial(_resume, running, start_task))
    else:
        start_task(_continue_in_task(running, awaited))


def _resume(running: Running, start_task: Callable[[Running], None], _resolved: object) -> None:
    run(running, start_task)


async def _continue_in_task(running: Running, awaited: Awaited) -> None:
    """Wrap the generator in a coroutine, because tasks accept no generators since Python 3.12."""
    await _delegate(running, awaited)


@types.coroutine
def _delegate(running: Running, awaited: Awaited) -> Generator[Any, Any, None]:
    """Pass what the coroutine awaits to the task, and the results back to the coroutine."""
    while True:
        try:
            result = yield awaited
        except BaseException as error:  # noqa: BLE001 - the coroutine must see a cancellation
            step = partial(running.throw, error)
        else:
            step = partial(running.send, result)
        try:
            awaited = step()
        except StopIteration:
            return
