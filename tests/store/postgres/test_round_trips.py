"""Writes to PostgreSQL send few statements, and all of them lock in the same order."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, TypeAlias

import pytest

from listings.domain.account_limits import AccountLimits
from listings.domain.errors import Problem
from listings.domain.history import Actor
from listings.domain.imports import ImportBatch, ImportKey, ImportRow, Position
from listings.domain.listings import AddResult, AddStep, Batch, ChangeStep, IdempotencyRecord, Step
from listings.domain.model import ImportedListing, NewListing
from listings.store.postgres import writes
from listings.store.postgres.pool import Session
from listings.store.postgres.store import PostgresStore
from tests.postgres_server import PostgresServer
from tests.store.postgres.test_statements import LIMITS

STAMP = "2026-11-21 10:00:00"
NEW = NewListing(title="Road bike", content="Two wheels.")
ACTOR = Actor(7, 1_000)
LISTING = ImportedListing(NEW, 0, STAMP, STAMP, None)
KEY = ImportKey(1, 1, b"\0" * 32, "csv", False)  # noqa: FBT003 - a field of the key
IDS = [1024 * serial + 1 for serial in range(1, 101)]
LOCKS = {  # in the order in which every transaction acquires them
    "accounts": ("FROM accounts WHERE id = $1 FOR",),
    "listing_ids": ("FROM listing_ids WHERE bucket = $1 FOR", "INTO listing_ids"),
    "listings": ("FROM listings WHERE bucket = $1 AND id = $2 FOR", "ORDER BY bucket, id FOR", "UPDATE listings SET"),
    "account_state": ("UPDATE account_state", "FROM account_state WHERE bucket = $1 AND account_id = $2 FOR"),
}
Write: TypeAlias = Callable[[PostgresStore], Awaitable[object]]


def run_batch(store: PostgresStore) -> Awaitable[object]:
    changes: list[Step] = [ChangeStep(listing_id, lambda _: {"title": "x"}) for listing_id in IDS[:50]]
    batch = Batch(changes + [AddStep(NEW, STAMP)] * 50, atomic=True, dry_run=False, encode=lambda _: "")
    return store.run_batch(1, 1, batch, IdempotencyRecord("k", b"d" * 32, 1_000, 900), ACTOR)


def import_rows(ids: Iterable[int | None]) -> Write:
    def decide(found: Any) -> Any:
        return {"title": "x"} if found else ImportedListing(NEW, 0, STAMP, STAMP, None)

    batch = ImportBatch(Position(), Position(1, 1), [ImportRow(listing_id, decide) for listing_id in ids])
    return lambda store: store.import_listings(KEY, batch, ACTOR)


def record_views(store: PostgresStore) -> Awaitable[object]:
    return store.record_views(1, {listing_id: [b"%016d" % visitor for visitor in range(3)] for listing_id in IDS[:5]})


WRITES: dict[str, tuple[Write, int]] = {
    "a create": (lambda store: store.add_listing(1, 1, AddStep(NEW, STAMP)), 1),
    "a change": (lambda store: store.change_listing(IDS[0], lambda _: {"title": "x"}, ACTOR), 6),
    "a batch of 50 changes and 50 creates": (run_batch, 19),
    "an import of 500 new listings": (import_rows([None] * 500), 21),
    "an import of 500 new listings with ids": (import_rows(1024 * serial + 1 for serial in range(1_000, 1_500)), 23),
    "an import of 100 changes": (import_rows(IDS), 22),
    "views of 5 listings": (record_views, 19),
}


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that this thread sends.

    Services of other tests, which share the process, send statements in threads of their own.
    """
    sent: list[str] = []
    thread = threading.get_ident()
    for method in ("fetch", "fetch_many", "execute"):
        send = getattr(Session, method)

        def record(session: Session, statement: str, *values: Any, send: Any = send) -> Any:
            if threading.get_ident() == thread:
                sent.append(" ".join(statement.split()))
            return send(session, statement, *values)

        monkeypatch.setattr(Session, method, record)
    return sent


ADD = AddStep(NEW, STAMP)
TAKEN = AddStep(NewListing(title="Lamp", content="Brass.", external_id="taken"), STAMP)
FULL = AddStep(NewListing(title="Lamp", content="x" * 10_000), STAMP)


def reject(_: Any) -> Any:
    raise Problem("invalid_request", "no")


def run_adds(*steps: Step, **options: Any) -> Write:
    values: dict[str, Any] = {"atomic": True, "dry_run": False, "encode": lambda _: ""}
    return lambda store: store.run_batch(1, 1, Batch(steps, **values | options), None, ACTOR)


REJECTED: dict[str, Write] = {
    "a dry run": run_adds(ADD, ADD, dry_run=True),
    "a batch with an invalid step": run_adds(ADD, Problem("invalid_request", "no")),
    "a batch in another state": run_adds(ADD, require_state=reject),
    "a create with a taken external id": lambda store: store.add_listing(1, 1, TAKEN, None, ACTOR),
    "a create in a full account": lambda store: store.add_listing(1, 1, FULL, None, ACTOR),
}


@pytest.mark.parametrize("write", REJECTED.values(), ids=REJECTED)
def test_a_write_that_stores_nothing_does_not_index_the_account(
    write: Write, postgres: PostgresServer, statements: list[str]
) -> None:
    async def scene(url: str) -> None:
        store = await open_store(url, listings=999)
        statements.clear()
        with suppress(Problem):
            await write(store)
        assert find_indexing(statements) == []
        await store.add_listing(1, 1, ADD, None, ACTOR)
        assert len(find_indexing(statements)) == 1
        await store.close()

    with postgres.database() as url:
        asyncio.run(scene(url))


def test_a_repeated_concurrent_create_does_not_index_the_account(
    postgres: PostgresServer, statements: list[str]
) -> None:
    async def scene(url: str) -> None:
        store = await open_store(url, listings=998)
        idempotency = IdempotencyRecord("k", b"d" * 32, 1_000, 900)
        added = await store.add_listing(1, 1, ADD, idempotency)
        again = await store._run_script(  # noqa: SLF001 - what `add_listing` does if the other one commits meanwhile
            lambda tx: writes.add(tx, store.engine, (1, 1), TAKEN, writes.WriteOptions(idempotency, ACTOR))
        )
        assert again == AddResult(added.listing_id, replayed=True)
        assert find_indexing(statements) == []
        await store.close()

    with postgres.database() as url:
        asyncio.run(scene(url))


async def open_store(url: str, listings: int) -> PostgresStore:
    """Open a store with alice's account, which is not indexed. The first listing has the external id of TAKEN."""
    taken = ImportedListing(TAKEN.new, 0, STAMP, STAMP, None)
    rows = [ImportRow(None, lambda _: taken), *[ImportRow(None, lambda _: LISTING)] * (listings - 1)]
    store = PostgresStore(url, LIMITS, account_limits=AccountLimits(text_bytes=30_000))
    await store.open()
    await store.add_account("Alice", "alice@example.com", None, 1_000)
    await store.begin_import(KEY, None, 1_000, 0)
    await store.import_listings(KEY, ImportBatch(Position(), Position(1, 1), rows), ACTOR)
    return store


def find_indexing(statements: Iterable[str]) -> list[str]:
    return [sent for sent in statements if sent.startswith("UPDATE account_state SET indexed")]


@pytest.mark.parametrize(("write", "count"), WRITES.values(), ids=WRITES)
def test_a_write_sends_few_statements_and_locks_in_order(
    write: Write, count: int, postgres: PostgresServer, statements: list[str]
) -> None:
    async def scene(url: str) -> None:
        store = PostgresStore(url, LIMITS)
        await store.open()
        await store.add_account("Alice", "alice@example.com", None, 1_000)
        for _ in IDS:
            await store.add_listing(1, 1, AddStep(NEW, STAMP))
        await store.begin_import(KEY, None, 1_000, 0)
        statements.clear()
        await write(store)
        await store.close()

    with postgres.database() as url:
        asyncio.run(scene(url))
    assert len(statements) == count
    locked = dict.fromkeys(
        table for sent in statements for table, parts in LOCKS.items() if any(part in sent for part in parts)
    )
    assert list(locked) == [table for table in LOCKS if table in locked]
