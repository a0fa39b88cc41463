"""Run a request eagerly: step its coroutine without a task for as long as possible.

Most requests never block, and a task costs as much as reading a listing. A coroutine can also await a future without
a task, if that future always completes, with a result or an exception, and is never cancelled. The class of such a
future sets `needs_no_task = True`.

Until a coroutine has a task of its own, `asyncio.current_task()` is None or the task of another request, and
`asyncio.timeout` raises RuntimeError or cancels that other task. `await asyncio.sleep(0)` starts the task.
"""

import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeAlias

RequestCoroutine: TypeAlias = Coroutine[Any, Any, None]
Awaited: TypeAlias = Any
"""The object that a coroutine awaits, as returned by its `send`."""


def run(coroutine: RequestCoroutine, start_task: Callable[[RequestCoroutine], None]) -> None:
    """Run the coroutine while it awaits only futures that need no task. Otherwise `start_task` gets the rest."""
    try:
        awaited = coroutine.send(None)
    except StopIteration:
        return
    if getattr(awaited, "needs_no_task", False):
        awaited.add_done_callback(partial(_resume, coroutine, start_task))
    else:
        start_task(_continue_in_task(coroutine, awaited))


def _resume(coroutine: RequestCoroutine, start_task: Callable[[RequestCoroutine], None], _resolved: object) -> None:
    run(coroutine, start_task)


async def _continue_in_task(coroutine: RequestCoroutine, awaited: Awaited) -> None:
    # A coroutine, because tasks accept no generators since Python 3.12.
    await _delegate(coroutine, awaited)


@types.coroutine
def _delegate(coroutine: RequestCoroutine, awaited: Awaited) -> Generator[Any, Any, None]:
    while True:
        try:
            result = yield awaited
        except BaseException as error:  # noqa: BLE001 - the coroutine must see a cancellation
            step = partial(coroutine.throw, error)
        else:
            step = partial(coroutine.send, result)
        try:
            awaited = step()
        except StopIteration:
            return
