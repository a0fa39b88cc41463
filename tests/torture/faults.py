"""Faults that are injected into test processes to prove that an instrument would find them."""

import itertools
import logging
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import apsw

from listings import wiring
from listings.api import request
from listings.domain.history import Actor
from listings.domain.listings import Decide
from listings.domain.model import Caller, Listing
from listings.domain.rate_limiter import RateLimiter
from listings.domain.reverts import Revert, RevertKey, RevertStep
from listings.http.asgi import BodySource
from listings.http.byte_budget import ByteBudget
from listings.http.connection import parser
from listings.http.connection.exchange import HttpExchange
from listings.http.large_bodies import LargeBodies, ReceivedBody
from listings.ratelimit.mapped_file import MachineClock
from listings.ratelimit.memory import MemoryLimiter
from listings.service.access import Access
from listings.service.members.passwords import Passwords
from listings.site.context import CostlyPages
from listings.store import migrations
from listings.store.postgres import writes
from listings.store.reverts.plans import Planner
from listings.store.reverts.store import ScriptedRevertStore
from listings.store.scripts import batches, listings
from listings.store.scripts.changes import ChangeSet
from listings.store.scripts.script import Transaction
from listings.store.sqlite.connections import open_writer
from listings.store.sqlite.file_identity import OpenFiles
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.store import SqliteStore
from listings.store.sqlite.writer import batch_writer, transaction
from listings.store.sqlite.writer.batch_writer import BatchWriter
from listings.store.sqlite.writer.calls import Call, Outcome, deliver
from tests.http.timeouts import set_timeouts

_DELAY_SECONDS = 0.004
_CLOCK_STEPS_SECONDS = (0, 3600, 0, -3600)
_MEMORY_LIMIT_BYTES = 512 * 1024 * 1024


def acknowledge_before_commit() -> None:
    """Acknowledge writes before they are committed."""

    def commit(self: BatchWriter, batch: list[Call]) -> list[Outcome]:
        if self._connection is None:
            self._connection = open_writer(self._path)
        self._connection.execute("BEGIN IMMEDIATE")
        outcomes = [transaction._run_in_savepoint(self._connection, call) for call in batch]
        batch[0].promise.get_loop().call_soon_threadsafe(deliver, outcomes)
        time.sleep(_DELAY_SECONDS)
        self._connection.execute("COMMIT")
        return outcomes

    BatchWriter._commit = commit  # type: ignore[method-assign]  # the injected fault


def ignore_lost_files() -> None:
    """Write to deleted and truncated files, and checkpoint into them at the end."""

    OpenFiles.find_change = lambda *_: None  # type: ignore[method-assign]  # the injected fault
    OpenFiles.may_checkpoint = lambda *_: True  # type: ignore[method-assign]  # the injected fault


def acknowledge_failed_commits() -> None:
    """Acknowledge writes even if their commit failed."""
    commit = BatchWriter._commit

    def commit_ignoring_errors(self: BatchWriter, batch: list[Call]) -> list[Outcome]:
        outcomes: list[Outcome] = []

        def run(connection: apsw.Connection, batch: list[Call]) -> list[Outcome] | None:
            outcomes[:] = run_plainly(connection, batch) or []
            return outcomes or None

        transaction.run_without_savepoints = run
        try:
            return commit(self, batch)
        except apsw.Error as error:
            self._recover(error)
            if len(outcomes) < len(batch):
                raise
            return outcomes

    run_plainly = transaction.run_without_savepoints
    BatchWriter._commit = commit_ignoring_errors  # type: ignore[method-assign]  # the injected fault


def commit_without_sync() -> None:
    """Commit without fsync: `synchronous = NORMAL`."""

    def open_normal(path: Path) -> apsw.Connection:
        connection = open_writer(path)
        connection.pragma("synchronous", "normal")
        return connection

    batch_writer.open_writer = open_normal  # type: ignore[attr-defined]  # the injected fault


def update_without_transaction() -> None:
    """Read a listing, decide, and write all its fields later, ignoring writes in between."""

    async def change_listing(self: SqliteStore, listing_id: int, decide: Decide, actor: Actor | None = None) -> Listing:
        listing = await self.get_listing(listing_id)
        changes = decide(listing)
        stale = {name: getattr(listing, name) for name in _WRITTEN} | dict(changes)
        return await self._run_script(lambda tx: listings.change(tx, self.engine, listing_id, lambda _: stale, actor))

    SqliteStore.change_listing = change_listing  # type: ignore[assignment,method-assign]  # the injected fault


_WRITTEN = ("title", "content", "category", "price_cents", "location", "region", "district", "deleted_at")


def store_progress_before_changes() -> None:
    """Commit the progress of a revert before the changes of its step."""
    advance = ScriptedRevertStore.advance_revert

    async def advance_revert(
        self: ScriptedRevertStore, key: RevertKey, step: RevertStep, worker: bytes, now: int
    ) -> Revert | None:
        revert = await advance(self, key, step._replace(candidates=[]), worker, now)
        if revert is not None:
            await self._run_script(lambda tx: _write_late(self, tx, revert, step, now))
        return revert

    ScriptedRevertStore.advance_revert = advance_revert  # type: ignore[method-assign]  # the injected fault


async def _write_late(store: ScriptedRevertStore, tx: Transaction, revert: Revert, step: RevertStep, now: int) -> None:
    partition = revert.key[:2]
    plans = await Planner(tx, partition, revert.scope, store.engine, now).plan_step(step, locks=False)
    change_set = ChangeSet(partition, Actor(revert.actor, now), revert_id=plans.edit_revision + 1)
    await store._write_plans(tx, partition, plans, change_set)


def leak_memory_on_read() -> None:
    """Leak 64 KiB with every lookup of a caller."""
    find_caller = SqliteStore.find_caller
    leaked: list[bytearray] = []

    async def find_and_leak(self: SqliteStore, digest: bytes) -> object:
        leaked.append(bytearray(b"\1" * 65_536))
        return await find_caller(self, digest)

    SqliteStore.find_caller = find_and_leak  # type: ignore[method-assign,assignment]  # the injected fault


def migrate_without_transactions() -> None:
    """Commit each statement of a migration separately."""

    def apply(connection: apsw.Connection, migrations: list[migrations.Migration]) -> list[migrations.Migration]:
        connection.execute(migrate._TABLE).fetchall()
        missing = migrations[migrate.count_applied(connection, migrations) :]
        for migration in missing:
            for statement in _split_statements(migration.text):
                connection.execute(statement).fetchall()
                time.sleep(_DELAY_SECONDS)
            row = (migration.version, migration.name, migration.checksum, int(time.time()))
            connection.execute("INSERT INTO schema_migrations VALUES (?, ?, ?, ?)", row).fetchall()
        return missing

    migrate.apply = apply


def _split_statements(text: str) -> list[str]:
    found, statement = [], ""
    for line in text.splitlines(keepends=True):
        statement += line
        if apsw.complete(statement):
            found.append(statement)
            statement = ""
    return found


def limit_memory() -> None:
    """Limit the address space to 512 MiB and set the timeouts; not a fault by itself."""
    set_timeouts()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT_BYTES, _MEMORY_LIMIT_BYTES))


def use_unlimited_memory() -> None:
    """Send lists from memory, and accept any number of large bodies, unread responses, previews and exports."""

    async def respond_from(self: HttpExchange, status: int, head: bytes, file: BodySource) -> None:
        pieces, size = [], 0
        while size < file.size:
            pieces.append(await file.read(size, file.size - size))
            size += len(pieces[-1])
        await self.respond(status, head, b"".join(pieces))

    async def needs_more(self: ReceivedBody) -> bool:
        return self._more

    async def enter(*_: object) -> None:
        pass

    set_timeouts()
    HttpExchange.respond_from = cast("Any", respond_from)  # type: ignore[method-assign]  # the injected fault
    ByteBudget.has_room = cast("Any", lambda *_: True)  # type: ignore[method-assign]  # as above
    LargeBodies.has_room = cast("Any", lambda *_: True)  # type: ignore[method-assign]  # as above
    ReceivedBody.needs_more = cast("Any", needs_more)  # type: ignore[method-assign]  # as above
    CostlyPages.enter = cast("Any", enter)  # type: ignore[method-assign]  # as above
    batches.MAX_PREVIEW_CHARACTERS = 1 << 40  # type: ignore[attr-defined]  # as above
    writes._PAUSE_RATIO = 0


def accept_any_body() -> None:
    """Read bodies of any size and with any framing into memory, which is limited."""
    limit_memory()
    parser._MAX_FRAMING_BYTES = 1 << 40  # the injected fault
    request.MAX_BODY_BYTES <<= 20


def check_passwords_in_the_event_loop() -> None:
    """Set the timeouts, and hash passwords in the thread that serves all requests."""

    async def run(self: Passwords, work: Callable[[], Any]) -> Any:  # noqa: ARG001 - the signature of `_run`
        return work()

    set_timeouts()
    Passwords._run = cast("Any", run)  # type: ignore[method-assign]  # the injected fault


def step_wall_clock() -> None:
    """Let the wall clock jump an hour forward or back with every hundredth reading; the service must not care."""
    wall, readings = time.time, itertools.count(1)
    time.time = lambda: wall() + _CLOCK_STEPS_SECONDS[next(readings) // 100 % len(_CLOCK_STEPS_SECONDS)]
    MachineClock.__new__.__defaults__ = (MachineClock().boot_id, MachineClock().since_boot, time.time)
    opened: Any = wiring.open_services
    opened.__wrapped__.__kwdefaults__["clock"] = time.time


def count_by_wall_clock() -> None:
    """Count requests by the wall clock, which jumps."""
    step_wall_clock()
    MachineClock.__new__.__defaults__ = (MachineClock().boot_id, time.time, lambda: 0.0)


def count_per_process() -> None:
    """Give each process its own rate limit."""

    def limiter(_file: Path, _database_id: str, limit: int, window: int) -> RateLimiter:
        return MemoryLimiter(limit, window)

    cast("Any", wiring).MappedLimiter = limiter


def log_api_keys() -> None:
    authenticate = Access.authenticate

    async def log_key(self: Access, key: str | None) -> Caller:
        logging.getLogger("listings").error("API key: %s", key)
        return await authenticate(self, key)

    Access.authenticate = log_key  # type: ignore[method-assign]  # the injected fault
