"""A revert that was not finished when the database was upgraded continues afterwards."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from listings.domain.history import LATEST
from listings.domain.reverts import Revert, RevertCounts, RevertRequest
from listings.service.history.reverts import Reverts
from listings.store import migrations
from listings.store.postgres import migrate as postgres_migrate
from listings.store.postgres.pool import PoolLimits
from listings.store.postgres.store import PostgresStore
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.store import SqliteStore
from tests.harness import TIMEOUT
from tests.postgres_server import PostgresServer
from tests.store import databases

PARTITION = (5, 5)
IDS = [1029, 2053, 3077, 4101]
NOW = 1_800_000_000

STORED = """
INSERT INTO accounts (id, bucket, name, email, created_at) VALUES (5, 5, 'alice', 'a@x', 1);
INSERT INTO account_state (bucket, account_id, revision, edit_revision, listings) VALUES (5, 5, 10, 10, 4);
INSERT INTO listing_ids (bucket, last) VALUES (5, 4);
INSERT INTO listings (id, bucket, account_id, title, content, type, category, images, price_cents, price_type, location,
    region, district, is_active, created_at, updated_at, author, revision, edit_revision)
VALUES (1029, 5, 5, 't', 'c', 'job', '', '[]', 7, 'fixed', '', '', '', TRUE, '2026-01-02 03:04:05', 'x', 8, 1, 1),
    (2053, 5, 5, 't', 'c', 'job', '', '[]', 7, 'fixed', '', '', '', TRUE, '2026-01-02 03:04:05', 'x', 8, 2, 2),
    (3077, 5, 5, 't', 'c', 'job', '', '[]', 0, 'fixed', '', '', '', TRUE, '2026-01-02 03:04:05', 'x', 8, 3, 3),
    (4101, 5, 5, 't', 'c', 'job', '', '[]', 9, 'fixed', '', '', '', TRUE, '2026-01-02 03:04:05', 'x', 8, 4, 4);
INSERT INTO changes (bucket, account_id, edit_revision, number, listing_id, moment, author, kind, import_id, fields,
    detail, last_serial)
VALUES (5, 5, 5, 0, 1029, 1790000005, 7, 'updated', NULL, 'price_cents', '[[0,7]]', 4),
    (5, 5, 6, 0, 2053, 1790000006, 7, 'updated', NULL, 'price_cents', '[[0,7]]', 4),
    (5, 5, 7, 0, 3077, 1790000007, 7, 'updated', NULL, 'price_cents', '[[0,7]]', 4),
    (5, 5, 8, 0, 4101, 1790000008, 7, 'updated', NULL, 'price_cents', '[[0,7]]', 4),
    (5, 5, 9, 0, 4101, 1790000009, 8, 'updated', NULL, 'price_cents', '[[7,9]]', 4),
    (5, 5, 10, 0, 0, 1790000010, 8, 'reverted', 10, '', '[]', 4),
    (5, 5, 10, 1, 3077, 1790000010, 8, 'reverted', 10, 'price_cents', '[[7,0]]', 0);
INSERT INTO revert_conflicts (bucket, account_id, revert_id, number, listing_id, reason, fields, subject)
VALUES (5, 5, 10, 1, 4101, 'changed_later', '["price_cents"]', 9);
INSERT INTO reverts (bucket, account_id, id, kind, subject, first_revision, last_revision, since, until, overwrite,
    author, revision, started_at, done_revision, done_number, reverted, unchanged, conflicts)
VALUES (5, 5, 10, 'key', 7, 5, 9, 0, 1900000000, FALSE, 8, 10, 1790000010, 7, -9007199254740991, 1, 0, 1);
INSERT INTO activity (bucket, account_id, revision, number, moment, author, kind, subject, detail)
VALUES (5, 5, 10, 0, 1790000010, 8, 'reverted', 10, '{"reverted":1,"unchanged":0,"conflicts":1}')
"""
"""Four listings with new prices, and a revert that has undone the third one and goes on with the two before it.

The last listing is a conflict, because somebody else changed its price after the key.
"""


def open_sqlite(folder: Path) -> SqliteStore:
    path = folder / "listings.db"
    migrate.migrate(path, [migration for migration in migrations.shipped_migrations() if migration.version < 29])
    with closing(databases.connect(path)) as connection:
        connection.execute(STORED).fetchall()
    migrate.migrate(path)
    return SqliteStore(path)


def open_postgres(server: PostgresServer, url: str) -> PostgresStore:
    shipped = migrations.shipped_migrations("postgres")
    asyncio.run(postgres_migrate.migrate(url, [migration for migration in shipped if migration.version < 29]))
    name = url.rpartition("/")[2].partition("?")[0]
    for statement in STORED.split(";"):
        server.execute(statement, name)
    asyncio.run(postgres_migrate.migrate(url, shipped))
    return PostgresStore(url, PoolLimits(sessions=2, seconds=TIMEOUT))


Open: TypeAlias = Callable[[], Any]


@pytest.fixture(params=["sqlite", "postgres"])
def open_upgraded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    if request.param == "sqlite":
        yield lambda: open_sqlite(tmp_path)
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.bare_database() as url:
        yield lambda: open_postgres(server, url)


@pytest.mark.decision("G55")
def test_an_unfinished_revert_continues_after_an_upgrade(open_upgraded: Open) -> None:
    store = open_upgraded()

    async def scenario() -> None:
        await store.open()
        try:
            await check(store)
        finally:
            await store.close()

    async def check(store: Any) -> None:
        service = Reverts(store, lambda: NOW + 60, days=90)
        await service.run()
        old = await service.get(5, 10)
        assert old.finished_at is not None
        assert old.counts == RevertCounts(reverted=3, unchanged=0, conflicts=1)
        assert await list_prices(store) == [0, 0, 0, 9]
        (event,) = [one for one in await store.page_events(*PARTITION, LATEST, 10) if one.kind == "reverted"]
        assert (event.subject, event.change, event.detail) == (10, 10, '{"reverted":3,"unchanged":0,"conflicts":1}')
        (group,) = (await store.page_change_groups(*PARTITION, 10**9, 10)).groups
        assert (group.id, group.last_id, group.sets, group.changes, group.revert) == (10, 11, 2, 3, 10)
        redone = (await service.start(5, RevertRequest("revert", 10), 8))[0]
        assert isinstance(redone, Revert)
        assert (redone.key.id, redone.group_id, redone.counts.reverted) == (11, 12, 3)
        assert await list_prices(store) == [7, 7, 7, 9]

    asyncio.run(scenario())


async def list_prices(store: Any) -> list[int]:
    return [(await store.get_listing(one)).price_cents for one in IDS]
