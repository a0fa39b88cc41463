"""Migrations: once each, whole or not at all, and never on a schema that isn't ours."""

import asyncio
import multiprocessing
from pathlib import Path

import apsw
import pytest

from listings.domain.errors import Problem, Unavailable
from listings.store import migrations
from listings.store.migrations import Migration
from listings.store.sqlite import connections
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.store import SqliteStore

ONE = Migration(1, "one", "CREATE TABLE one (a INTEGER) STRICT; INSERT INTO one VALUES (1)")
TWO = Migration(2, "two", "INSERT INTO one VALUES (2)")
BROKEN = Migration(2, "broken", "INSERT INTO one VALUES (2); INSERT INTO nowhere VALUES (3)")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "listings.db"


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    return apsw.Connection(str(path)).execute(query).fetchall()


def test_migrations_run_once_and_in_order(path: Path) -> None:
    assert migrate.migrate(path, [ONE]) == [ONE]
    assert migrate.migrate(path, [ONE, TWO]) == [TWO]
    assert migrate.migrate(path, [ONE, TWO]) == []
    assert rows(path, "SELECT a FROM one ORDER BY a") == [(1,), (2,)]
    assert rows(path, "SELECT version, name FROM schema_migrations") == [(1, "one"), (2, "two")]


def test_a_failing_migration_leaves_nothing_behind(path: Path) -> None:
    migrate.migrate(path, [ONE])
    with pytest.raises(Unavailable):
        migrate.migrate(path, [ONE, BROKEN])
    assert rows(path, "SELECT a FROM one") == [(1,)]
    assert rows(path, "SELECT version FROM schema_migrations") == [(1,)]
    assert migrate.migrate(path, [ONE, TWO]) == [TWO]


def test_a_newer_schema_is_refused(path: Path) -> None:
    migrate.migrate(path, [ONE, TWO])
    with pytest.raises(Problem, match="newer schema"):
        migrate.migrate(path, [ONE])


def test_an_altered_migration_is_refused(path: Path) -> None:
    migrate.migrate(path, [ONE])
    with pytest.raises(Problem, match="differs"):
        migrate.migrate(path, [ONE._replace(text="SELECT 1"), TWO])


def test_the_shipped_migrations_are_numbered_from_one_without_a_gap() -> None:
    assert [migration.version for migration in migrations.shipped_migrations()] == list(
        range(1, len(migrations.shipped_migrations()) + 1)
    )


def test_the_file_and_its_folder_belong_to_their_owner_alone(path: Path) -> None:
    migrate.migrate(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.with_name("listings.db.lock").stat().st_mode & 0o777 == 0o600


def test_two_processes_at_once_migrate_once(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        applied = pool.map(migrate.migrate, [path, path])
    assert sorted(map(len, applied)) == [0, len(migrations.shipped_migrations())]


def test_a_file_that_is_no_database_is_unavailable(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("This is a letter to my grandmother, and no database at all. " * 100)
    with pytest.raises(Unavailable, match="can't be used"):
        migrate.migrate(path)


def test_a_store_does_not_open_without_a_database(path: Path) -> None:
    with pytest.raises(Problem, match="There is no database") as caught:
        asyncio.run(SqliteStore(path).open())
    assert caught.value.code == "database_missing"
    assert not path.exists()


@pytest.mark.parametrize("migrations", [[], [ONE]])
def test_a_store_does_not_open_another_schema(path: Path, migrations: list[Migration]) -> None:
    migrate.migrate(path, migrations)
    with pytest.raises(Problem) as caught:
        asyncio.run(SqliteStore(path).open())
    assert caught.value.code == "schema_mismatch"


def test_a_store_does_not_open_an_empty_file_or_what_is_no_database(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with pytest.raises(Problem, match="older schema"):
        asyncio.run(SqliteStore(path).open())
    path.write_text("no database " * 1000)
    with pytest.raises(Unavailable, match="can't be opened"):
        asyncio.run(SqliteStore(path).open())


@pytest.mark.parametrize(("version", "sound"), [("3.51.2", False), ("3.40.1", False), ("3.51.3", True), ("4.0", True)])
def test_a_sqlite_that_can_corrupt_the_file_is_refused(
    version: str, monkeypatch: pytest.MonkeyPatch, *, sound: bool
) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    if sound:
        connections.require_sound_sqlite()
    else:
        with pytest.raises(Problem, match="can corrupt"):
            connections.require_sound_sqlite()
