"""The entries of the market before its search had an index of its own become numbered listings."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from listings.domain.errors import Unavailable
from listings.store import migrations
from listings.store.postgres import migrate as postgres_migrate
from listings.store.postgres.pool import PoolLimits
from listings.store.postgres.store import PostgresStore
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.store import SqliteStore
from tests.harness import TIMEOUT
from tests.postgres_server import PostgresServer
from tests.store import databases

STORED = """
INSERT INTO accounts (id, bucket, name, email, created_at) VALUES (5, 5, 'alice', 'a@x', 1);
INSERT INTO account_state (bucket, account_id, revision, listings) VALUES (5, 5, 3, 3);
INSERT INTO listing_ids (bucket, last) VALUES (5, 3);
INSERT INTO listings (id, bucket, account_id, title, content, type, category, images, price_cents, price_type, location,
    region, district, is_active, created_at, updated_at, market_version)
VALUES (1029, 5, 5, 'Bike', 'c', 'product', '', '[]', 7, 'fixed', '', '', '', TRUE, '2026-01-02 03:04:05', 'x', 1),
    (2053, 5, 5, 'Lamp', 'c', 'product', '', '[]', 7, 'fixed', '', '', '', FALSE, '2026-01-02 03:04:05', 'x', 1),
    (3077, 5, 5, 'New', 'c', 'product', '', '[]', 0, 'fixed', '', '', '', TRUE, '2026-01-02 03:04:05', 'x', 0);
INSERT INTO market (serial, bucket, listing_id, account_id, state, title, type, category, image, price_cents,
    price_type, location, region, created_at, updated_at{words})
VALUES (3, 5, 1029, 5, 1, 'Bike', 'product', '', '', 7, 'fixed', '', '', '2026-01-02 03:04:05', 'x'{value}),
    (8, 5, 2053, 5, 0, 'Lamp', 'product', '', '', 7, 'fixed', '', '', '2026-01-03 03:04:05', 'x'{value});
INSERT INTO market_places (kind, name, listings) VALUES ('category', 'Bikes', 1)
"""


def upgrade_sqlite(folder: Path) -> SqliteStore:
    path = folder / "listings.db"
    migrate.migrate(path, [migration for migration in migrations.shipped_migrations() if migration.version < 30])
    with closing(databases.connect(path)) as connection:
        connection.execute(STORED.format(words="", value="")).fetchall()
    migrate.migrate(path)
    return SqliteStore(path)


async def check(store: SqliteStore | PostgresStore) -> None:
    await store.open()
    try:
        assert await store.get_market_state() == (8, 0, 8)
        changes = await store.list_market_changes(0, 9)
        assert [(it.serial, it.sequence, it.id, bool(it.is_shown)) for it in changes] == [
            *((3, 3, 1029, True), (8, 8, 2053, False)),
        ]
        assert [entry.listed_at for entry in await store.page_newest()] == ["2026-01-02 03:04:05"]
        assert (await store.stamp_market(10, b"i" * 16, 2e9)).done == 1
        assert [entry.serial for entry in await store.page_newest()] == [9, 3]
    finally:
        await store.close()


def test_entries_of_sqlite_keep_their_order(tmp_path: Path) -> None:
    asyncio.run(check(upgrade_sqlite(tmp_path)))


def test_entries_of_postgres_keep_their_order(postgres: PostgresServer) -> None:
    shipped = migrations.shipped_migrations("postgres")
    with postgres.bare_database() as url:
        asyncio.run(postgres_migrate.migrate(url, [it for it in shipped if it.version < 30]))
        name = url.rpartition("/")[2].partition("?")[0]
        for statement in STORED.format(words=", words", value=", '{}'").split(";"):
            postgres.execute(statement, name)
        asyncio.run(postgres_migrate.migrate(url))
        asyncio.run(check(PostgresStore(url, PoolLimits(sessions=2, seconds=TIMEOUT))))


def test_old_indexes_are_dropped_only_with_enough_disk_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "get_free_bytes", lambda _: 4096)
    with pytest.raises(Unavailable, match="free disk space, and run `listings migrate` again"):
        upgrade_sqlite(tmp_path)
    monkeypatch.undo()
    assert 32 in [it.version for it in migrate.migrate(tmp_path / "listings.db")]
