"""Migrations of PostgreSQL run once, completely or not at all, and never on another program's schema."""

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from listings.domain.errors import Problem, Unavailable
from listings.store import migrations
from listings.store.migrations import Migration
from listings.store.postgres import inspection
from listings.store.postgres import migrate as postgres_migrate
from listings.store.postgres.pool import PoolLimits
from listings.store.postgres.store import PostgresStore
from tests.harness import TIMEOUT
from tests.postgres_server import USER, PostgresServer
from tests.store import databases

ONE = Migration(1, "one", "CREATE TABLE one (a integer); INSERT INTO one VALUES (1)")
TWO = Migration(2, "two", "INSERT INTO one VALUES (2)")
BROKEN = Migration(2, "broken", "INSERT INTO one VALUES (2); INSERT INTO nowhere VALUES (3)")
LIMITS = PoolLimits(sessions=2, seconds=60)


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.bare_database() as url:
        yield url


def run(url: str, *migrations: Migration) -> list[Migration]:
    return asyncio.run(postgres_migrate.migrate(url, list(migrations)))


def execute(postgres: PostgresServer, url: str, *statements: str) -> None:
    for statement in statements:
        postgres.execute(statement, url.rpartition("/")[2].partition("?")[0])


def rows(postgres: PostgresServer, url: str, query: str) -> list[tuple[object, ...]]:
    return postgres.execute(query, url.rpartition("/")[2].partition("?")[0])


def test_migrations_run_once_and_in_order(postgres: PostgresServer, url: str) -> None:
    assert run(url, ONE) == [ONE]
    assert run(url, ONE, TWO) == [TWO]
    assert run(url, ONE, TWO) == []
    assert rows(postgres, url, "SELECT a FROM one ORDER BY a") == [(1,), (2,)]
    assert rows(postgres, url, "SELECT version, name FROM schema_migrations") == [(1, "one"), (2, "two")]


def test_a_role_without_privileges_must_become_the_owner(postgres: PostgresServer, url: str) -> None:
    postgres.execute("CREATE ROLE guest LOGIN")
    try:
        with pytest.raises(Unavailable, match=r"permission denied .*: make the role the owner of the database"):
            run(url.replace(f"//{USER}@", "//guest@"), ONE)
    finally:
        postgres.execute("DROP ROLE guest")


def test_a_failed_migration_is_rolled_back(postgres: PostgresServer, url: str) -> None:
    run(url, ONE)
    with pytest.raises(Unavailable, match="nowhere"):
        run(url, ONE, BROKEN)
    assert rows(postgres, url, "SELECT a FROM one") == [(1,)]
    assert rows(postgres, url, "SELECT version FROM schema_migrations") == [(1,)]
    assert run(url, ONE, TWO) == [TWO]


def test_a_newer_schema_is_rejected(url: str) -> None:
    run(url, ONE, TWO)
    with pytest.raises(Problem, match="newer schema"):
        run(url, ONE)


def test_an_altered_migration_is_rejected(url: str) -> None:
    run(url, ONE)
    with pytest.raises(Problem, match="differs"):
        run(url, ONE._replace(text="SELECT 1"), TWO)


def test_pending_migrations_are_listed_and_not_applied(postgres: PostgresServer, url: str) -> None:
    assert asyncio.run(postgres_migrate.list_pending(url, [ONE, TWO])) == [ONE, TWO]
    assert rows(postgres, url, "SELECT to_regclass('schema_migrations')") == [(None,)]
    run(url, ONE)
    assert asyncio.run(postgres_migrate.list_pending(url, [ONE, TWO])) == [TWO]


def test_concurrent_runs_apply_each_migration_once(url: str) -> None:
    async def both() -> tuple[list[Migration], list[Migration]]:
        return await asyncio.gather(postgres_migrate.migrate(url), postgres_migrate.migrate(url))

    assert sorted(map(len, asyncio.run(both()))) == [0, len(migrations.shipped_migrations("postgres"))]


def test_a_migration_that_waits_for_a_table_lets_others_use_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_migrate, "_TABLE_LOCK_SECONDS", 0.1)
    monkeypatch.setattr(postgres_migrate, "_PAUSE_SECONDS", 0.1)
    alter = TWO._replace(text="ALTER TABLE one ADD COLUMN b integer")
    run(url, ONE)

    async def scenario() -> list[Migration]:
        dump, reader = await asyncpg.connect(url), await asyncpg.connect(url)
        async with asyncio.timeout(TIMEOUT):
            async with dump.transaction():
                await dump.fetch("SELECT a FROM one")
                migration = asyncio.create_task(postgres_migrate.migrate(url, [ONE, alter]))
                while not await reader.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert await reader.fetchval("SELECT a FROM one") == 1
                assert not migration.done()
            applied = await migration
        await asyncio.gather(dump.close(), reader.close())
        return applied

    assert asyncio.run(scenario()) == [alter]


def test_both_engines_have_the_same_migrations() -> None:
    names = [
        [(one.version, one.name) for one in migrations.shipped_migrations(engine)] for engine in ("sqlite", "postgres")
    ]
    assert names[0] == names[1]


@pytest.mark.parametrize("migrations", [[], [ONE]], ids=["no schema", "another schema"])
def test_a_store_rejects_another_schema(url: str, migrations: list[Migration]) -> None:
    run(url, *migrations)
    with pytest.raises(Problem) as caught:
        asyncio.run(PostgresStore(url, LIMITS).open())
    assert caught.value.code == "schema_mismatch"


def test_a_store_rejects_an_empty_database(url: str) -> None:
    with pytest.raises(Problem, match="older schema"):
        asyncio.run(PostgresStore(url, LIMITS).open())


def test_a_database_with_another_encoding_is_rejected(postgres: PostgresServer) -> None:
    postgres.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    url = postgres.url("latin")
    for use in (
        lambda: postgres_migrate.list_pending(url),
        lambda: postgres_migrate.migrate(url),
        lambda: inspection.inspect(url),
        lambda: PostgresStore(url, LIMITS).open(),
    ):
        with pytest.raises(Problem, match=r"encoding is LATIN1: create it with `createdb --encoding=UTF8`") as caught:
            asyncio.run(use())
        assert caught.value.code == "schema_mismatch"
    postgres.execute("DROP DATABASE latin")


def test_a_missing_database_is_reported(postgres: PostgresServer) -> None:
    for use in (postgres_migrate.migrate, lambda url: PostgresStore(url, LIMITS).open()):
        with pytest.raises(Problem, match='"nowhere" does not exist') as caught:
            asyncio.run(use(postgres.url("nowhere")))
        assert caught.value.code == "database_missing"


def test_an_unreachable_server_is_reported() -> None:
    with pytest.raises(Unavailable, match="can't be reached") as caught:
        asyncio.run(PostgresStore("postgresql://listings:secret@127.0.0.1:1/listings", LIMITS).open())
    assert "secret" not in caught.value.message


@pytest.mark.decision("G44")
def test_an_existing_key_gets_write_access(postgres: PostgresServer, url: str) -> None:
    shipped = migrations.shipped_migrations("postgres")
    run(url, *(migration for migration in shipped if migration.version < 13))
    account = "INSERT INTO accounts (id, bucket, name, email, created_at) VALUES (5, 5, 'alice', 'a@x', 1)"
    key = "INSERT INTO api_keys (account_id, digest, hint, name, created_at) VALUES (5, sha256('k'), 'lst_', 'till', 1)"
    execute(postgres, url, account, key)
    run(url, *shipped)
    assert rows(postgres, url, "SELECT access FROM api_keys") == [("write",)]


def test_changed_columns_are_separated_by_commas(postgres: PostgresServer, url: str) -> None:
    shipped = migrations.shipped_migrations("postgres")
    run(url, *(migration for migration in shipped if migration.version < 25))
    account = "INSERT INTO accounts (id, bucket, name, email, created_at) VALUES (5, 5, 'alice', 'a@x', 1)"
    state = "INSERT INTO account_state (bucket, account_id, revision) VALUES (5, 5, 0)"
    changes = """
        INSERT INTO changes (bucket, account_id, edit_revision, number, listing_id, moment, author, kind, last_serial,
            fields, detail)
        VALUES (5, 5, 1, 0, 0, 1, 1, 'batch', 1, '', '[]'), (5, 5, 1, 1, 1, 1, 1, 'batch', 1, '["price_cents"]', '[]'),
            (5, 5, 1, 2, 1, 1, 1, 'batch', 1, '["price_cents","title"]', '[]')
    """
    execute(postgres, url, account, state, changes)
    run(url, *shipped)
    expected = [("",), ("price_cents",), ("price_cents,title",)]
    assert rows(postgres, url, "SELECT fields FROM changes ORDER BY number") == expected


def test_an_upgrade_counts_what_is_stored(postgres: PostgresServer, url: str) -> None:
    shipped = migrations.shipped_migrations("postgres")
    run(url, *(migration for migration in shipped if migration.version < 28))
    account = "INSERT INTO accounts (id, bucket, name, email, created_at) VALUES (5, 5, 'alice', 'a@x', 1)"
    state = "INSERT INTO account_state (bucket, account_id, revision) VALUES (5, 5, 0)"
    execute(postgres, url, account, state, *databases.STORED.split(";"))
    run(url, *shipped)
    expected = [(databases.STORED_BYTES, 9, None)]
    assert rows(postgres, url, "SELECT history_bytes, edited_at, max_listings FROM account_state") == expected


def test_words_of_indexed_listings_have_no_capitals(postgres: PostgresServer, url: str) -> None:
    shipped = migrations.shipped_migrations("postgres")
    run(url, *(migration for migration in shipped if migration.version < 26))
    words = "INSERT INTO listing_words (bucket, id, words) VALUES (5, 1029, $${5:bikeTM,5:kΩ,5:zoë}$$), (5, 5, '{5:a}')"
    execute(postgres, url, words)
    run(url, *shipped)
    found = rows(postgres, url, "SELECT id, words FROM listing_words ORDER BY id")
    assert found == [(5, ["5:a"]), (1029, ["5:biketm", "5:kω", "5:zoë"])]
