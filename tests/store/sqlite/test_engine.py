"""A create without an idempotency key bypasses the script, with the same result."""

from pathlib import Path
from typing import Any

import pytest

from listings.domain.account_limits import NO_LIMITS
from listings.domain.history import Actor
from listings.domain.listings import AddStep, IdempotencyRecord
from listings.domain.model import NewListing
from listings.store.scripts import accounts
from listings.store.scripts.listings import Added
from listings.store.search_sql import MIN_INDEXED_LISTINGS
from listings.store.sqlite.connections import open_writer
from listings.store.sqlite.engine import SqliteEngine
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.script_runner import run_script

NEW = NewListing(title="Road bike", content="Two wheels.", price_cents=5, latitude=1.5, is_active=False)
TABLES = ("listings", "listing_ids", "account_state", "listings_words")


def create(path: Path, count: int, indexed: int, idempotency: IdempotencyRecord | None) -> tuple[Added, list[Any]]:
    """Create a listing in an account that has `count` others. Return the result and the rows of all tables."""
    migrate.migrate(path)
    connection = open_writer(path)
    run_script(connection, lambda tx: accounts.add(tx, "Alice", "alice@example.com", None, 1_000))
    connection.execute("UPDATE account_state SET listings = ?, indexed = ?", (count, indexed)).fetchall()
    engine, actor = SqliteEngine(NO_LIMITS), Actor(7, 1_000)
    added = engine.add(connection, (1, 1), AddStep(NEW, "2026-11-21 10:00:00"), idempotency, actor)
    rows = [connection.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES]  # noqa: S608 - a constant
    connection.close()
    return added, rows


@pytest.mark.parametrize(("count", "indexed"), [(0, 0), (MIN_INDEXED_LISTINGS - 1, 0), (2_500, 2), (5_000, 1)])
def test_a_create_without_a_key_does_what_the_script_does(tmp_path: Path, count: int, indexed: int) -> None:
    by_script = create(tmp_path / "script.db", count, indexed, IdempotencyRecord("k", b"d" * 32, 1_000, 900))
    assert create(tmp_path / "direct.db", count, indexed, None) == by_script
