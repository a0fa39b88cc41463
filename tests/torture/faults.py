"""What is broken on purpose, in processes of tests alone, so that an instrument can show that it would find it."""

import itertools
import logging
import resource
import time
from collections import deque
from pathlib import Path
from typing import Any

import apsw

from listings import wiring
from listings.api.request import Request
from listings.contract.listings import Decide
from listings.contract.rate_limiter import RateLimiter
from listings.domain.model import Caller, Listing
from listings.http.asgi import ClientGoneError
from listings.http.connection import HttpConnection
from listings.ratelimit.mapped import MachineClock, _read_boot_id
from listings.ratelimit.memory import MemoryLimiter
from listings.service import Service
from listings.settings import Settings
from listings.store import migrations
from listings.store.sqlite import listing_writes
from listings.store.sqlite import writer as writers
from listings.store.sqlite.connections import open_writer
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.store import SqliteStore
from listings.store.sqlite.writer import Writer

_AHEAD = 0.004  # seconds
_STEPS = (0, 3600, 0, -3600)  # seconds
_LITTLE_MEMORY = 512 * 1024 * 1024


def acknowledge_before_commit() -> None:
    """Callers hear of their writes before these are committed."""

    def commit(self: Writer, batch: list[writers._Call]) -> list[writers._Outcome]:
        if self._connection is None:
            self._connection = open_writer(self._path)
        self._connection.execute("BEGIN IMMEDIATE")
        outcomes = [writers._run_in_savepoint(self._connection, call) for call in batch]
        self._loop.call_soon_threadsafe(writers._deliver, outcomes)
        time.sleep(_AHEAD)
        self._connection.execute("COMMIT")
        return outcomes

    Writer._commit = commit  # type: ignore[method-assign]  # that is the fault


def acknowledge_failed_commits() -> None:
    """Callers hear of their writes as if the commit had not failed."""
    commit = Writer._commit

    def commit_anyhow(self: Writer, batch: list[writers._Call]) -> list[writers._Outcome]:
        outcomes: list[writers._Outcome] = []

        def run(connection: apsw.Connection, batch: list[writers._Call]) -> list[writers._Outcome] | None:
            outcomes[:] = run_plainly(connection, batch) or []
            return outcomes or None

        writers._run_without_savepoints = run
        try:
            return commit(self, batch)
        except apsw.Error as error:
            self._recover(error)
            if len(outcomes) < len(batch):
                raise
            return outcomes

    run_plainly = writers._run_without_savepoints
    Writer._commit = commit_anyhow  # type: ignore[method-assign]  # that is the fault


def commit_without_sync() -> None:
    """Commits are on disk some time after they return: `synchronous = NORMAL`."""

    def open_normal(path: Path) -> apsw.Connection:
        connection = open_writer(path)
        connection.pragma("synchronous", "normal")
        return connection

    writers.open_writer = open_normal  # type: ignore[attr-defined]  # that is the fault


def update_without_transaction() -> None:
    """An update reads the row, decides, and writes the whole of it later, as if nobody else had meanwhile."""

    async def change_listing(self: SqliteStore, listing_id: int, decide: Decide, *more: Any) -> Listing:
        listing = await self.get_listing(listing_id)
        changes = decide(listing)
        stale = {name: getattr(listing, name) for name in _WRITTEN} | dict(changes)
        return await self._run(lambda connection: listing_writes.change(connection, listing_id, lambda _: stale, *more))

    SqliteStore.change_listing = change_listing  # type: ignore[assignment,method-assign]  # that is the fault


_WRITTEN = ("title", "content", "category", "price_cents", "location", "region", "district", "deleted_at")


def leak_with_every_read() -> None:
    """Every read of a caller keeps 64 KiB for ever."""
    find_caller = SqliteStore.find_caller
    leaked: list[bytearray] = []

    async def leaking(self: SqliteStore, digest: bytes) -> object:
        leaked.append(bytearray(b"\1" * 65_536))
        return await find_caller(self, digest)

    SqliteStore.find_caller = leaking  # type: ignore[method-assign,assignment]  # that is the fault


def migrate_without_transactions() -> None:
    """Each statement of a migration is committed by itself."""

    def apply(connection: apsw.Connection, migrations: list[migrations.Migration]) -> list[migrations.Migration]:
        connection.execute(migrate._TABLE).fetchall()
        missing = migrations[migrate._check(connection, migrations) :]
        for migration in missing:
            for statement in _statements(migration.text):
                connection.execute(statement).fetchall()
                time.sleep(_AHEAD)
            note = (migration.version, migration.name, migration.checksum, int(time.time()))
            connection.execute("INSERT INTO schema_migrations VALUES (?, ?, ?, ?)", note).fetchall()
        return missing

    migrate._apply = apply


def _statements(text: str) -> list[str]:
    found, begun = [], ""
    for line in text.splitlines(keepends=True):
        begun += line
        if apsw.complete(begun):
            found.append(begun)
            begun = ""
    return found


def take_any_framing() -> None:
    """The parser takes a length beside chunks, odd codings, and lines that end in any way."""
    made = HttpConnection.connection_made

    def connection_made(self: HttpConnection, transport: object) -> None:
        made(self, transport)
        self.parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_chunked_length=True,
            lenient_transfer_encoding=True,
            lenient_optional_lf_after_cr=True,
            lenient_optional_crlf_after_chunk=True,
            lenient_spaces_after_chunk_size=True,
        )

    HttpConnection.connection_made = connection_made  # type: ignore[method-assign]  # that is the fault


def take_cut_bodies() -> None:
    """A body whose client has left is taken for a whole one."""
    receive_chunk = Request._receive_chunk

    async def receive(self: Request) -> tuple[bytes, bool]:
        try:
            return await receive_chunk(self)
        except ClientGoneError:
            return b"", False

    Request._receive_chunk = receive  # type: ignore[method-assign]  # that is the fault


def answer_the_last_first() -> None:
    """Of the requests that wait on a connection the last one is answered first."""

    class Stack(deque[object]):
        def appendleft(self, item: object) -> None:
            self.append(item)

    made = HttpConnection.connection_made

    def connection_made(self: HttpConnection, transport: object) -> None:
        made(self, transport)
        self.pipeline = Stack()  # type: ignore[assignment]  # as above

    HttpConnection.connection_made = connection_made  # type: ignore[method-assign]  # that is the fault


def have_little_memory() -> None:
    """No fault: the process may have 512 MiB of address space."""
    resource.setrlimit(resource.RLIMIT_AS, (_LITTLE_MEMORY, _LITTLE_MEMORY))


def take_any_body() -> None:
    """Bodies of any size are taken into memory, of which there is little."""
    have_little_memory()
    read_body = Request.read_body

    async def read(self: Request, max_bytes: int) -> None:
        await read_body(self, max_bytes << 20)

    Request.read_body = read  # type: ignore[method-assign]  # that is the fault


def step_the_wall_clock() -> None:
    """No fault of the service: with every hundredth look the wall clock jumps by an hour, ahead or back."""
    wall, looks = time.time, itertools.count(1)
    time.time = lambda: wall() + _STEPS[next(looks) // 100 % len(_STEPS)]
    MachineClock.__new__.__defaults__ = (_read_boot_id, MachineClock().since_boot, time.time)
    opened: Any = wiring.open_service
    opened.__wrapped__.__kwdefaults__["clock"] = time.time


def count_by_the_wall_clock() -> None:
    """Requests are counted by a clock that somebody steps."""
    step_the_wall_clock()
    MachineClock.__new__.__defaults__ = (_read_boot_id, time.time, lambda: 0.0)


def count_for_itself() -> None:
    """Each process has a rate limit of its own."""

    def limiter(settings: Settings, database_id: str) -> RateLimiter:  # noqa: ARG001 - of no interest here
        return MemoryLimiter(settings.rate_limit, settings.rate_window)

    wiring._local_limiter = limiter


def log_the_keys() -> None:
    """Whoever is asked with a key tells it to the log."""
    authenticate = Service.authenticate

    async def tell(self: Service, key: str | None) -> Caller:
        logging.getLogger("listings").error("asked with %s", key)
        return await authenticate(self, key)

    Service.authenticate = tell  # type: ignore[method-assign]  # that is the fault
