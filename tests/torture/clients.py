"""Writers and a reader beside each other while something goes wrong, and how long until it is good again."""

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from time import monotonic

from tests.harness import Person
from tests.torture.wire import PATH, Line, LostError
from tests.torture.writers import Writer, finish

WRITERS = 16
_LONGEST = 120.0  # seconds: what takes longer hangs
_PAUSE = 0.002


class Crowd:
    """Each writer has an account of its own; the reader asks for a list and a listing of the first one."""

    def __init__(self, port: int, people: Sequence[Person]) -> None:
        self.writers = [
            Writer(port, person.key, person.account.id, f"w{number}") for number, person in enumerate(people)
        ]
        self.gate = asyncio.Event()
        self.gate.set()
        self.reads = 0
        self.read_refusals = 0
        self.faults: list[str] = []
        self.reads_may_fail = False
        self._line = Line(port, people[0].key)
        self._tasks = [asyncio.create_task(writer.work(self.gate)) for writer in self.writers]
        self._reader = asyncio.create_task(self._read())

    async def finish(self) -> None:
        """Nothing is in doubt afterwards."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        self._line.close()
        await finish(self.writers, self._tasks, self.gate)

    @property
    def acknowledged(self) -> int:
        return sum(writer.acknowledged for writer in self.writers)

    @property
    def refused(self) -> int:
        return sum(writer.refused for writer in self.writers)

    async def until_refused(self, most: float = _LONGEST) -> bool:
        """Until every writer could have been told; False when none was in time."""
        return await self._until(lambda: self.refused, WRITERS, most)

    async def until_acknowledged(self, count: int = 1) -> float:
        """Returns the seconds until so many more writes are acknowledged."""
        began = monotonic()
        if not await self._until(lambda: self.acknowledged, count, _LONGEST):
            self.faults.append(f"nothing was acknowledged for {_LONGEST:.0f} s")
        return monotonic() - began

    async def until_read(self, count: int = 3) -> None:
        """So many more reads were answered."""
        if not await self._until(lambda: self.reads, count, _LONGEST):
            self.faults.append(f"nothing was read for {_LONGEST:.0f} s")

    async def _until(self, counted: Callable[[], int], more: int, most: float) -> bool:
        before, end = counted(), monotonic() + most
        while counted() < before + more:
            if monotonic() > end:
                return False
            await asyncio.sleep(_PAUSE)
        return True

    async def _read(self) -> None:
        while True:
            for path in (f"{PATH}?limit=2", f"{PATH}?limit=2&sort=price"):
                try:
                    answer = await self._line.fetch("GET", path)
                except LostError:
                    await asyncio.sleep(_PAUSE)
                    continue
                self._note(answer.status, answer.body)
            await asyncio.sleep(_PAUSE)

    def _note(self, status: int, body: bytes) -> None:
        if status == HTTPStatus.SERVICE_UNAVAILABLE and self.reads_may_fail:
            self.read_refusals += 1
        elif status != HTTPStatus.OK:
            self.faults.append(f"a read was answered {status} {body[:200]!r}")
        else:
            self.reads += 1
