"""An operation that waits for the writer thread, and its outcome."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias, TypeVar

import apsw

T = TypeVar("T")
Operation: TypeAlias = Callable[[apsw.Connection], T]


class Promise(asyncio.Future[T]):
    """A future that the writer always resolves. The server awaits it without creating a task for the request."""

    needs_no_task = True


class Call(NamedTuple):
    """The arguments of `Writer.run`, and the promise that `run` awaits."""

    operation: Operation[Any]
    promise: Promise[Any]
    changes_callers: bool
    track: Callable[[Any], None] | None
    is_dry_run: bool


class Outcome(NamedTuple):
    """The result or the error of a call."""

    call: Call
    result: object = None
    error: BaseException | None = None


def deliver(outcomes: Iterable[Outcome]) -> None:
    """Resolve the promises of callers that are still waiting. Runs on the event loop."""
    for call, result, error in outcomes:
        if call.promise.done():
            continue
        if error is None:
            call.promise.set_result(result)
        else:
            call.promise.set_exception(error)
