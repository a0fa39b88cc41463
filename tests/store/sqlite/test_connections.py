"""Connections to the SQLite file: reading without changing anything, exclusive access, orphaned WAL files."""

import time
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from listings.domain.errors import Problem
from listings.store.sqlite import connections
from listings.store.sqlite.connections import find_orphaned_wal, open_exclusive, open_without_writes
from listings.store.sqlite.maintenance import inspection
from tests.store.databases import change, connect
from tests.store.sqlite.database_files import copy_as_killed, open_in_another_process, read_files


@pytest.mark.parametrize(
    ("version", "is_safe"), [("3.51.2", False), ("3.40.1", False), ("3.51.3", True), ("4.0", True)]
)
def test_a_sqlite_version_that_can_corrupt_the_file_is_rejected(
    version: str, monkeypatch: pytest.MonkeyPatch, *, is_safe: bool
) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    if is_safe:
        connections.require_safe_sqlite()
    else:
        with pytest.raises(Problem, match="can corrupt"):
            connections.require_safe_sqlite()


def test_a_wal_that_another_process_removes_meanwhile_is_no_error(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, exists = copy_as_killed(tmp_path / "killed", database), Path.exists

    def exist_for_the_last_time(path: Path) -> bool:
        found = exists(path)
        if path.name.endswith("-wal"):
            for suffix in ("-wal", "-shm"):
                killed.with_name(f"{killed.name}{suffix}").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "exists", exist_for_the_last_time)
    with closing(open_without_writes(killed)) as connection:
        assert connection.execute("SELECT 1 FROM accounts").fetchall() == [(1,)]


def test_reading_a_database_with_a_wal_changes_no_file(database: Path, tmp_path: Path) -> None:
    killed = copy_as_killed(tmp_path / "killed", database)
    before = read_files(killed.parent)
    with closing(open_without_writes(killed)) as connection:
        assert connection.execute("SELECT name FROM accounts").fetchall() == [("from the WAL",)]
        assert read_files(killed.parent) == before
    assert inspection.inspect(killed).corruption == []
    assert read_files(killed.parent) == before


def test_reading_a_database_that_another_process_uses_changes_no_file(database: Path) -> None:
    with open_in_another_process(database):
        before = read_files(database.parent)
        with closing(open_without_writes(database)) as connection:
            assert connection.execute("SELECT name FROM accounts").fetchall() == [("elsewhere",)]
        assert read_files(database.parent) == before


def test_a_database_that_needs_recovery_is_not_opened_for_reading(database: Path, tmp_path: Path) -> None:
    killed = copy_as_killed(tmp_path / "killed", database, with_index=False)
    with pytest.raises(Problem, match="WAL without its index") as without_index:
        open_without_writes(killed)
    assert f"`listings --database-url sqlite:///{killed} migrate`" in without_index.value.message
    Path(f"{database}-journal").write_text("half")
    with pytest.raises(Problem, match="unfinished transaction") as unfinished:
        open_without_writes(database)
    assert f"`listings --database-url sqlite:///{database} migrate`" in unfinished.value.message


def test_a_wal_that_a_closing_process_removes_needs_no_recovery(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = copy_as_killed(tmp_path / "killed", database, with_index=False)
    monkeypatch.setattr(time, "sleep", lambda _: Path(f"{killed}-wal").unlink())  # it has removed the index before
    with closing(open_without_writes(killed)) as connection:
        assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]


def test_a_journal_is_orphaned_only_if_the_database_is_missing(tmp_path: Path) -> None:
    database, journal = tmp_path / "listings.db", tmp_path / "listings.db-journal"
    journal.write_text("half")
    assert find_orphaned_wal(database) == journal
    database.touch()
    assert find_orphaned_wal(database) is None


def test_an_empty_wal_or_an_index_alone_is_not_orphaned(tmp_path: Path) -> None:
    for suffix in ("-wal", "-journal"):
        (tmp_path / f"listings.db{suffix}").touch()
    (tmp_path / "listings.db-shm").write_text("index")
    assert find_orphaned_wal(tmp_path / "listings.db") is None


def test_an_orphaned_wal_is_found_through_a_broken_link(tmp_path: Path) -> None:
    link, wal = tmp_path / "link.db", tmp_path / "listings.db-wal"
    link.symlink_to("listings.db")
    wal.write_text("frames")
    assert find_orphaned_wal(link) == wal


def test_exclusive_access_fails_while_the_database_is_open(database: Path) -> None:
    with closing(open_exclusive(database)), pytest.raises(apsw.BusyError):
        open_exclusive(database)
    with open_in_another_process(database), pytest.raises(apsw.BusyError):
        open_exclusive(database)


def test_exclusive_access_locks_out_readers_without_a_wal(database: Path) -> None:
    change(database, "PRAGMA journal_mode = DELETE")
    with closing(open_exclusive(database)), closing(connect(database)) as other, pytest.raises(apsw.BusyError):
        other.execute("SELECT 1 FROM accounts").fetchall()
