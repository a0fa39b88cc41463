"""Read large lists and change sets from snapshots, on connections of their own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from time import perf_counter, sleep, thread_time
from typing import TypeVar

import apsw

from listings.domain import market, tokenizer
from listings.domain.errors import Unavailable
from listings.domain.listings import MAX_COUNTED, ListStream, Pieces
from listings.domain.model import ListingQuery
from listings.store import search_sql, sql
from listings.store.mapping import Partition, build_listing
from listings.store.query import Row
from listings.store.scripts.script import Script
from listings.store.sqlite import search
from listings.store.sqlite.connections import open_reader
from listings.store.sqlite.script_runner import run_script

T = TypeVar("T")

_CACHE_KIBIBYTES = 1024
_SEARCH_WAIT_SECONDS = 1.0  # elapsed time of a search in addition to its CPU time
_STEPS_PER_CHECK = 1000  # of a search: 1% of its time, and at most 3 ms between two checks
_STEPS_PER_PAUSE = 500  # of a sort by a function of Python: 0.2 ms
_MAX_PAUSE_SECONDS = 0.001
_READ_PIECE = sql.to_sqlite(search.READ_PIECE)


class SnapshotReads:
    """Reads from snapshots. A thread runs scripts that only read, and finds which listings a large list has.

    The event loop reads these in pieces.
    """

    def __init__(self, path: Path, build_error: Callable[[Exception], Unavailable]) -> None:
        """`build_error` returns the error of a failed read. It may be called in the thread."""
        self._path = path
        self._build_error = build_error
        self._thread = ThreadPoolExecutor(1, "listings-lists")
        self._closing = False
        self._piece_lock = asyncio.Lock()  # one piece is read or searched per iteration of the event loop

    @asynccontextmanager
    async def read(self, partition: Partition, query: ListingQuery) -> AsyncIterator[ListStream]:
        """Yield the matching listings; see `Store.read_listings`."""
        connection = await self._run(self._begin)
        try:
            listings = await self._find(connection, partition, query)
            total = await self._count(connection, partition, query) if query.count else None
            yield ListStream(listings, total)
        finally:
            await self._run(connection.close)

    async def run_script(self, script: Script[T]) -> T:
        """Run a script that only reads."""
        return await self._run(partial(self._run_script, script))

    async def close(self) -> None:
        """End the thread after its current work. Queued tasks raise Unavailable. Exit every `read` before this call."""
        self._closing = True
        await asyncio.to_thread(self._thread.shutdown)

    async def _find(self, connection: apsw.Connection, partition: Partition, query: ListingQuery) -> Pieces:
        read = partial(self._fetch_any, connection)
        if query.sort == "folded_title":
            connection.set_progress_handler(_build_pauses(), _STEPS_PER_PAUSE)
        pieces, scanned = await self._run(partial(search.find_pieces, read, partition, query))
        return self._read_pieces(connection, pieces, query.words if scanned else ())

    async def _count(self, connection: apsw.Connection, partition: Partition, query: ListingQuery) -> int:
        read = partial(self._fetch_any, connection)
        plan = search.plan_count(partition, query, await self._run(partial(search.plan_search, read, partition, query)))
        if not plan.scans_texts:
            count = partial(search.count, read, partition, query, plan)
            return await self._run(partial(self._run_limited, connection, count) if query.words else count)
        total = 0  # in pieces: a long search in the thread would hold Python's lock, and so block the event loop
        async for listings in await self._find(connection, partition, search_sql.remove_page(query)):
            total += len(listings)
            if total > MAX_COUNTED:
                return MAX_COUNTED + 1
        return total

    async def _read_pieces(self, connection: apsw.Connection, pieces: list[str], words: tuple[str, ...]) -> Pieces:
        for ids in pieces:
            async with self._piece_lock:
                listings = [build_listing(row) for row in self._fetch(connection, _READ_PIECE, (ids,))]
                if words:
                    await asyncio.sleep(0)
                    listings = [one for one in listings if tokenizer.matches((one.title, one.content), words)]
                await asyncio.sleep(0)
            yield listings

    async def _run(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            future = loop.run_in_executor(self._thread, self._run_unless_closing, work)
        except RuntimeError as error:  # the thread has ended
            raise _build_stopping_error() from error
        return await future

    def _run_unless_closing(self, work: Callable[[], T]) -> T:
        if self._closing:
            raise _build_stopping_error()
        return work()

    def _run_script(self, script: Script[T]) -> T:
        with closing(self._begin()) as connection:
            try:
                return run_script(connection, script)
            except apsw.Error as error:
                raise self._build_error(error) from error

    def _run_limited(self, connection: apsw.Connection, work: Callable[[], T]) -> T:
        is_late = start_timer(market.SEARCH_SECONDS, _SEARCH_WAIT_SECONDS)
        connection.set_progress_handler(lambda: self._closing or is_late(), _STEPS_PER_CHECK)
        try:
            return work()
        finally:
            connection.set_progress_handler(None)

    def _begin(self) -> apsw.Connection:
        try:
            connection = open_reader(self._path, _CACHE_KIBIBYTES)
            search.prepare(connection)
            connection.execute("BEGIN").fetchall()
        except apsw.Error as error:
            raise self._build_error(error) from error
        return connection

    def _fetch_any(self, connection: apsw.Connection, statement: str, values: Row) -> list[Row]:
        return self._fetch(connection, sql.to_sqlite(statement), values)

    def _fetch(self, connection: apsw.Connection, statement: str, values: Row) -> list[Row]:
        try:
            return connection.execute(statement, values).fetchall()
        except apsw.InterruptError as error:  # by a progress handler
            raise market.build_timeout_error() from error
        except apsw.Error as error:
            raise self._build_error(error) from error


def _build_stopping_error() -> Unavailable:
    return Unavailable("The service is stopping")


def _build_pauses() -> Callable[[], bool]:
    # Half of the time is left to the event loop, which would otherwise wait up to 5 ms for Python's lock.
    start = perf_counter()

    def pause() -> bool:
        nonlocal start
        sleep(min(perf_counter() - start, _MAX_PAUSE_SECONDS))
        start = perf_counter()
        return False

    return pause


def start_timer(seconds: float, wait: float) -> Callable[[], bool]:
    """Return a function that returns True once a read has taken too long.

    That is after `seconds` of CPU time, or after `seconds` + `wait` of elapsed time.
    """
    end, processor_end = perf_counter() + seconds, thread_time() + seconds

    def is_over() -> bool:
        late = perf_counter() - end  # much cheaper than `thread_time`
        return late > 0 and (late > wait or thread_time() > processor_end)

    return is_over
