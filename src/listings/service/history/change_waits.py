"""Long polling for change sets (decision G47).

While clients wait, one task repeats one statement, which reads the id of the last change set of each of their accounts.
So the number of clients hardly matters to the database, and writes do not have to notify anybody.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from listings.domain.errors import Problem, Unavailable
from listings.domain.model import Caller
from listings.store.store import Store

_log = logging.getLogger(__name__)

MAX_WAIT_SECONDS = 30  # proxies and clients commonly give up after 60, some after 30
MAX_WAITS = 16  # waiting requests of one key in one process

_QUERY_SECONDS = 0.05  # between two queries; a client learns of a change within 0.1 s
RETRY_SECONDS = 1.0  # after a failed query

UntilClosed: TypeAlias = Callable[[], Coroutine[Any, Any, object]]
"""Waits until the client has disconnected, or its response must be sent soon because the service stops."""


class Poll(NamedTuple):
    """A request for at most `limit` change sets with ids above `after`.

    It waits at most `timeout` seconds for the first one. Then it waits at most `gather` seconds for more, until there
    are `limit`, but not longer than `timeout` in total.
    """

    after: int
    limit: int
    timeout: float
    gather: float


class _Wait(NamedTuple):
    edit_revision: int
    reached: asyncio.Future[None]


class ChangeWaits:
    """The requests of this process that wait for change sets."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waits: dict[int, list[_Wait]] = {}  # by account
        self._by_key: Counter[int] = Counter()
        self._watching: asyncio.Task[None] | None = None

    async def wait(self, caller: Caller, poll: Poll, until_closed: UntilClosed) -> None:
        """Wait until the response to a poll is due, or `until_closed` returns.

        Raises Problem: changes_gone, too_many_waits.
        """
        state = await self._store.get_edit_state(caller.bucket, caller.account_id)
        state.require_retained(poll.after)
        found = state.edit_revision - poll.after
        if found >= poll.limit or (found and not poll.gather):
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + poll.timeout
        with self._count(caller.key_id):
            closed = loop.create_task(until_closed())
            try:
                if not found:
                    await self._wait_for(caller.account_id, poll.after + 1, poll.timeout, closed)
                seconds = min(poll.gather, deadline - loop.time())
                await self._wait_for(caller.account_id, poll.after + poll.limit, seconds, closed)
            finally:
                closed.cancel()

    @contextmanager
    def _count(self, key_id: int) -> Iterator[None]:
        if self._by_key[key_id] >= MAX_WAITS:
            raise Problem(
                "too_many_waits",
                f"This key already has {MAX_WAITS} requests that wait for changes: let one of them end first",
                retry_after=MAX_WAIT_SECONDS,  # all of them have ended by then
            )
        self._by_key[key_id] += 1
        try:
            yield
        finally:
            self._by_key[key_id] -= 1
            if not self._by_key[key_id]:
                del self._by_key[key_id]

    async def _wait_for(self, account_id: int, edit_revision: int, seconds: float, closed: asyncio.Future[Any]) -> None:
        if seconds <= 0:
            return
        wait = _Wait(edit_revision, asyncio.get_running_loop().create_future())
        waits = self._waits.setdefault(account_id, [])
        waits.append(wait)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait([wait.reached, closed], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waits.remove(wait)
            if not waits:
                del self._waits[account_id]

    async def _watch(self) -> None:
        while self._waits:
            await asyncio.sleep(_QUERY_SECONDS)
            try:
                found = await self._store.list_edit_revisions(self._waits.keys()) if self._waits else {}
            except Exception as error:  # noqa: BLE001 - the waiting clients need the next query
                if not isinstance(error, Unavailable):
                    _log.exception("Reading the last change sets failed")
                await asyncio.sleep(RETRY_SECONDS)
                continue
            for account_id, edit_revision in found.items():
                for wait in self._waits.get(account_id, ()):
                    if edit_revision >= wait.edit_revision and not wait.reached.done():
                        wait.reached.set_result(None)
