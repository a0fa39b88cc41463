"""Migrations run once, completely or not at all, and never on the schema of another program."""

import asyncio
import multiprocessing
import os
import re
import shutil
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from listings.domain.errors import Problem, Unavailable
from listings.store import migrations
from listings.store.migrations import Migration
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.store import SqliteStore
from tests.processes import run_program
from tests.store import databases
from tests.store.sqlite.database_files import COUNT_LISTINGS, NEXT_MIGRATION, ROOT, list_names, read_files

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


def test_a_failed_migration_is_rolled_back(path: Path) -> None:
    migrate.migrate(path, [ONE])
    with pytest.raises(Unavailable):
        migrate.migrate(path, [ONE, BROKEN])
    assert rows(path, "SELECT a FROM one") == [(1,)]
    assert rows(path, "SELECT version FROM schema_migrations") == [(1,)]
    assert migrate.migrate(path, [ONE, TWO]) == [TWO]


def test_a_newer_schema_is_rejected(path: Path) -> None:
    migrate.migrate(path, [ONE, TWO])
    with pytest.raises(Problem, match="newer schema"):
        migrate.migrate(path, [ONE])


def test_an_altered_migration_is_rejected(path: Path) -> None:
    migrate.migrate(path, [ONE])
    with pytest.raises(Problem, match="differs"):
        migrate.migrate(path, [ONE._replace(text="SELECT 1"), TWO])


def test_shipped_migrations_are_numbered_from_one_without_gaps() -> None:
    assert [migration.version for migration in migrations.shipped_migrations()] == list(
        range(1, len(migrations.shipped_migrations()) + 1)
    )


def test_the_file_and_its_folder_are_accessible_to_their_owner_only(path: Path) -> None:
    migrate.migrate(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.with_name("listings.db.lock").stat().st_mode & 0o777 == 0o600


def test_two_concurrent_processes_apply_each_migration_once(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        applied = pool.map(migrate.migrate, [path, path])
    assert sorted(map(len, applied)) == [0, len(migrations.shipped_migrations())]


def test_a_file_that_is_not_a_database_is_unavailable(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("This is a text file, not a database. " * 100)
    with pytest.raises(Unavailable, match="can't be used"):
        migrate.migrate(path)


def test_a_file_of_another_user_is_named(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wal = Path(f"{database}-wal")
    wal.mkdir()  # root can use every file, but no folder
    monkeypatch.setattr(os, "access", lambda path, mode: path != wal)  # noqa: ARG005 - names of os.access
    with pytest.raises(Unavailable, match=re.escape(f"can't be used: {wal}: no permission to read and write (")):
        migrate.migrate(database)


def test_a_full_disk_is_named(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(f"{database}-wal").mkdir()  # SQLite fails
    with pytest.raises(Unavailable, match=r"can't be used: unable to open database file$"):
        migrate.migrate(database)
    monkeypatch.setattr(migrate, "get_free_bytes", lambda _: 4096)
    with pytest.raises(Unavailable, match=r"can't be used: the disk is full \(unable to open database file\)"):
        migrate.migrate(database)


def test_a_store_does_not_open_without_a_database(path: Path) -> None:
    with pytest.raises(Problem, match="There is no database") as raised:
        asyncio.run(SqliteStore(path).open())
    assert raised.value.code == "database_missing"
    assert not path.exists()


@pytest.mark.parametrize("migrations", [[], [ONE]])
def test_a_store_does_not_open_a_different_schema(path: Path, migrations: list[Migration]) -> None:
    migrate.migrate(path, migrations)
    with pytest.raises(Problem) as raised:
        asyncio.run(SqliteStore(path).open())
    assert raised.value.code == "schema_mismatch"


def test_a_store_does_not_open_an_empty_or_foreign_file(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with pytest.raises(Problem, match="older schema"):
        asyncio.run(SqliteStore(path).open())
    path.write_text("not a database " * 1000)
    with pytest.raises(Unavailable, match="can't be opened"):
        asyncio.run(SqliteStore(path).open())


def test_a_migration_keeps_a_copy_of_the_previous_database(database: Path) -> None:
    copies: list[Path] = []
    applied = migrate.migrate(database, [*migrations.shipped_migrations(), NEXT_MIGRATION], copies.append)
    assert applied == [NEXT_MIGRATION]
    assert len(copies) == 1
    assert copies[0].parent == database.parent
    assert copies[0].name.startswith(f"listings.db.before-{NEXT_MIGRATION.version:04}-")
    assert databases.rows(copies[0], COUNT_LISTINGS) == databases.rows(database, COUNT_LISTINGS) == [(3,)]
    assert databases.rows(copies[0], "SELECT name FROM sqlite_schema WHERE name = 'next'") == []


CLONE = """
truncate -s 320M "$1/image" && mkfs.xfs -q "$1/image" && mkdir "$1/disk" && mount -o loop "$1/image" "$1/disk"
shift && exec "$@"
"""


@pytest.mark.skipif(shutil.which("mkfs.xfs") is None, reason="xfsprogs is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")
def test_the_copy_of_a_migration_is_a_clone_where_that_is_possible(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.store.sqlite.cloned_copy", str(tmp_path / "disk")]
    command = ["unshare", "-m", "sh", "-ec", CLONE, "sh", str(tmp_path), *program]
    outcome = run_program(command, cwd=ROOT)
    sizes, counts, views = outcome.stdout.splitlines()
    database_bytes, copy_bytes = map(int, sizes.split())
    assert database_bytes > 8_000_000 > 8 * copy_bytes
    assert (counts, views) == ("(1000,) (1000,)", "(7,)")


def test_a_new_or_current_database_is_not_copied(tmp_path: Path) -> None:
    copies: list[Path] = []
    database = tmp_path / "listings.db"
    migrate.migrate(database, on_backup=copies.append)
    migrate.migrate(database, on_backup=copies.append)
    assert copies == []
    assert list_names(tmp_path) == ["listings.db", "listings.db.lock"]


def test_a_migration_does_not_start_if_the_copy_fails(tmp_path: Path) -> None:
    database = databases.make(tmp_path / "listings.db", listings=200, size=3000)
    databases.damage(database)
    with pytest.raises(Unavailable, match="damaged"):
        migrate.migrate(database, [*migrations.shipped_migrations(), NEXT_MIGRATION])
    assert databases.rows(database, "SELECT max(version) FROM schema_migrations") == [(NEXT_MIGRATION.version - 1,)]


def test_pending_migrations_are_listed_without_changing_anything(database: Path, tmp_path: Path) -> None:
    before = read_files(database.parent)
    assert migrate.list_pending(database) == []
    assert migrate.list_pending(database, [*migrations.shipped_migrations(), NEXT_MIGRATION]) == [NEXT_MIGRATION]
    assert read_files(database.parent) == before
    assert migrate.list_pending(tmp_path / "nowhere" / "listings.db") == migrations.shipped_migrations()
    (tmp_path / "empty.db").touch()
    assert migrate.list_pending(tmp_path / "empty.db") == migrations.shipped_migrations()
    assert list_names(tmp_path) == ["data", "empty.db"]


@pytest.mark.decision("G44")
def test_an_existing_key_gets_write_access(path: Path) -> None:
    migrate.migrate(path, [migration for migration in migrations.shipped_migrations() if migration.version < 13])
    with closing(databases.connect(path)) as connection:
        databases.add_account(connection, 5)
    migrate.migrate(path)
    assert databases.rows(path, "SELECT access FROM api_keys") == [("write",)]
    with pytest.raises(apsw.ConstraintError):
        databases.change(path, "UPDATE api_keys SET access = 'admin'")


def test_changed_columns_are_separated_by_commas(path: Path) -> None:
    migrate.migrate(path, [migration for migration in migrations.shipped_migrations() if migration.version < 25])
    with closing(databases.connect(path)) as connection:
        databases.add_account(connection, 5)
        for number, fields in enumerate(("", '["price_cents"]', '["price_cents","title"]')):
            values = (number, int(number > 0), fields)
            connection.execute(
                "INSERT INTO changes (bucket, account_id, edit_revision, number, listing_id, moment, author, kind,"
                " last_serial, fields, detail) VALUES (5, 5, 1, ?, ?, 1, 1, 'batch', 1, ?, '[]')",
                values,
            )
    migrate.migrate(path)
    assert databases.rows(path, "SELECT fields FROM changes ORDER BY number") == [
        ("",),
        ("price_cents",),
        ("price_cents,title",),
    ]


def test_an_upgrade_counts_what_is_stored(path: Path) -> None:
    migrate.migrate(path, [migration for migration in migrations.shipped_migrations() if migration.version < 28])
    with closing(databases.connect(path)) as connection:
        databases.add_account(connection, 5)
        connection.execute(databases.STORED).fetchall()
    migrate.migrate(path)
    counted = databases.rows(path, "SELECT history_bytes, edited_at, max_listings FROM account_state")
    assert counted == [(databases.STORED_BYTES, 9, None)]


def test_indexed_listings_with_unusual_capitals_are_indexed_again(path: Path) -> None:
    migrate.migrate(path, [migration for migration in migrations.shipped_migrations() if migration.version < 26])
    with closing(databases.connect(path)) as connection:
        for account, texts in {1: ("47 ㏀", "47 kΩ", "𝚺"), 2: ("Bike™", "Café")}.items():
            databases.add_account(connection, account)
            for serial, text in enumerate(texts, 1):
                values = (serial, account, text, databases.CREATED)
                connection.execute(databases.LISTING, values).fetchall()
    databases.change(path, "UPDATE account_state SET indexed = 1", "UPDATE listings SET indexed = 1")
    migrate.migrate(path)
    assert databases.rows(path, "SELECT indexed FROM account_state ORDER BY account_id") == [(2,), (1,)]
    assert databases.rows(path, "SELECT title FROM listings WHERE NOT indexed ORDER BY id") == [("47 ㏀",), ("𝚺",)]
