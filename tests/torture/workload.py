"""Concurrent writers and a reader, and the time until the service has recovered from a disturbance."""

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from time import monotonic

from tests.harness import Person
from tests.http.raw import PATH, AsyncConnection, ConnectionLostError
from tests.torture.writers import Writer, finish_writers

WRITERS = 16
_TIMEOUT_SECONDS = 120.0
_PAUSE_SECONDS = 0.002


class Workload:
    """A writer per account, and one reader that lists the first account's listings. All wait while `gate` is closed."""

    def __init__(self, port: int, people: Sequence[Person]) -> None:
        self.writers = [
            Writer(port, person.key, person.account.id, f"w{number}") for number, person in enumerate(people)
        ]
        self.gate = asyncio.Event()
        self.gate.set()
        self.reads = 0
        self.rejected_reads = 0
        self.failures: list[str] = []
        self.reads_may_fail = False
        self._connection = AsyncConnection(port, people[0].key)
        self._tasks = [asyncio.create_task(writer.work(self.gate)) for writer in self.writers]
        self._reader = asyncio.create_task(self._read())

    async def finish(self) -> None:
        """Stop the reader, and let the writers retry until no write has an unknown outcome."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        self._connection.close()
        await finish_writers(self.writers, self._tasks, self.gate)

    @property
    def acknowledged(self) -> int:
        return sum(writer.acknowledged for writer in self.writers)

    @property
    def rejected(self) -> int:
        return sum(writer.rejected for writer in self.writers)

    async def wait_until_rejected(self, max_seconds: float = _TIMEOUT_SECONDS) -> bool:
        """Wait until one rejection per writer is counted; return False after `max_seconds`."""
        return await self._wait_until(lambda: self.rejected, WRITERS, max_seconds)

    async def wait_until_acknowledged(self, count: int = 1) -> float:
        """Wait until `count` more writes are acknowledged; return the seconds it took."""
        began = monotonic()
        if not await self._wait_until(lambda: self.acknowledged, count, _TIMEOUT_SECONDS):
            self.failures.append(f"no write was acknowledged for {_TIMEOUT_SECONDS:.0f} s")
        return monotonic() - began

    async def wait_until_read(self, count: int = 3) -> None:
        """Wait until `count` more reads have succeeded."""
        if not await self._wait_until(lambda: self.reads, count, _TIMEOUT_SECONDS):
            self.failures.append(f"no read succeeded for {_TIMEOUT_SECONDS:.0f} s")

    async def _wait_until(self, counted: Callable[[], int], more: int, max_seconds: float) -> bool:
        before, end = counted(), monotonic() + max_seconds
        while counted() < before + more:
            if monotonic() > end:
                return False
            await asyncio.sleep(_PAUSE_SECONDS)
        return True

    async def _read(self) -> None:
        while True:
            await self.gate.wait()
            for path in (f"{PATH}?limit=2", f"{PATH}?limit=2&sort=price"):
                try:
                    response = await self._connection.fetch("GET", path)
                except ConnectionLostError:
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                self._record(response.status, response.body)
            await asyncio.sleep(_PAUSE_SECONDS)

    def _record(self, status: int, body: bytes) -> None:
        if status == HTTPStatus.SERVICE_UNAVAILABLE and self.reads_may_fail:
            self.rejected_reads += 1
        elif status != HTTPStatus.OK:
            self.failures.append(f"a read returned {status} {body[:200]!r}")
        else:
            self.reads += 1
