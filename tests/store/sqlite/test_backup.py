"""Copies of the database and the way back: whole or not there, whatever happens meanwhile."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

from listings.domain.errors import Problem, Unavailable
from listings.store import migrations
from listings.store.migrations import Migration
from listings.store.sqlite.connections import left_behind, open_alone, open_reader, open_untouched, open_writer
from listings.store.sqlite.maintenance import backup as backups
from listings.store.sqlite.maintenance import inspection, migrate, snapshot
from listings.store.sqlite.maintenance import restore as restores
from tests.harness import TIMEOUT
from tests.store import databases
from tests.store.databases import change, connect, is_sound, rows

ROOT = Path(__file__).parents[3]
NEXT = Migration(len(migrations.shipped_migrations()) + 1, "next", "CREATE TABLE next (a INTEGER) STRICT")
ON_A_SMALL_DISK = 'mount -t tmpfs -o size=1024k none "$1" && shift && exec "$@"'
COUNT = "SELECT count(*) FROM listings"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return databases.make(tmp_path / "data" / "listings.db")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "backup.db"


@pytest.fixture
def backup(database: Path, file: Path) -> Path:
    return backups.back_up(database, file)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but an empty WAL, which is as good as none, and the lock file, which counts turns."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock"}
    return {name: content for name, content in files.items() if content or not name.endswith("-wal")}


def refused(database: Path, file: Path, *, force: bool = False) -> str:
    with pytest.raises(Problem) as raised:
        restores.restore(database, file, force=force)
    assert raised.value.code == "restore_refused"
    return raised.value.message


@contextmanager
def writing(database: Path) -> Iterator[list[int]]:
    """Another process's writes, without a pause: an account and its key in each transaction."""
    program = "import sys; from tests.store.sqlite.test_backup import write; write(sys.argv[1])"
    command = [sys.executable, "-c", program, str(database)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline())]
        whole = (line for line in process.stdout if line.endswith("\n"))  # a kill cuts the last one
        reader = threading.Thread(target=lambda: acknowledged.extend(map(int, whole)))
        reader.start()
        try:
            yield acknowledged
            assert process.poll() is None  # it has written all the while
        finally:
            process.kill()
            reader.join()


def wait_for_more(acknowledged: list[int]) -> None:
    """Until the other process has written meanwhile."""
    before, deadline = len(acknowledged), time.monotonic() + TIMEOUT
    while len(acknowledged) == before:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def write(database: str) -> None:
    """What the other process does; prints each account that is on the disk."""
    with closing(open_writer(Path(database))) as connection:
        for number in range(1001, 10**9):
            connection.execute("BEGIN IMMEDIATE").fetchall()
            databases.add_account(connection, number)
            connection.execute("COMMIT").fetchall()
            print(number, flush=True)  # noqa: T201 - to the test


# A backup


def test_a_copy_holds_all_and_is_one_file_for_its_owner_alone(database: Path, file: Path) -> None:
    assert backups.back_up(database, file) == file
    assert names(file.parent) == ["backup.db", "data"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_bytes()[18:20] == b"\x01\x01"  # no WAL is asked for
    for table in ("accounts", "api_keys", "account_state", "listings", "database_id", "schema_migrations"):
        assert rows(file, f"SELECT * FROM {table}") == rows(database, f"SELECT * FROM {table}")  # noqa: S608 - ours


@pytest.mark.alone
def test_a_copy_without_its_held_snapshot_would_never_end_while_another_process_writes(tmp_path: Path) -> None:
    database = databases.make(tmp_path / "listings.db", listings=300, size=8000)
    with (
        writing(database) as acknowledged,
        closing(connect(tmp_path / "copy.db")) as target,
        closing(open_reader(database)) as source,
    ):
        restarts, left = 0, None
        with target.backup("main", source, "main") as backup:
            for _ in range(100):
                backup.step(8)
                restarts += left is not None and backup.remaining > left
                left = backup.remaining
                wait_for_more(acknowledged)
        assert restarts > 0  # this is what the next test is about


@pytest.mark.alone
def test_a_copy_ends_while_another_process_writes_without_a_pause(tmp_path: Path, file: Path) -> None:
    database = databases.make(tmp_path / "listings.db", listings=300, size=8000)
    left: list[int] = []

    def progress(done: int, pages: int) -> None:
        assert not left or pages - done <= left[-1]  # or it would begin anew for ever
        left.append(pages - done)
        wait_for_more(acknowledged)

    with writing(database) as acknowledged:
        before = acknowledged[-1]
        backups.back_up(database, file, progress=progress)
        assert acknowledged[-1] > before
    assert left[-1] == 0
    assert is_sound(file)
    last = int(str(rows(file, "SELECT max(id) FROM accounts")[0][0]))
    assert last >= before
    assert rows(file, "SELECT count(*) FROM api_keys WHERE id > 1000") == [(last - 1000,)]  # one moment, for all tables


def test_the_snapshot_ends_with_the_copy(database: Path, file: Path) -> None:
    with closing(open_reader(database)) as source:
        snapshot.write_copy(source, file)
        assert source.txn_state() == 0


def test_the_copys_progress_is_told_up_to_its_end(database: Path, file: Path) -> None:
    told: list[tuple[int, int]] = []
    backups.back_up(database, file, progress=lambda done, pages: told.append((done, pages)))
    pages = int(str(rows(file, "PRAGMA page_count")[0][0]))
    assert told[-1] == (pages, pages)


def test_the_writes_in_a_wal_that_a_killed_service_left_are_in_the_copy(tmp_path: Path, file: Path) -> None:
    killed = as_killed(tmp_path / "killed", databases.make(tmp_path / "listings.db"))
    backups.back_up(killed, file)
    assert rows(file, "SELECT name FROM accounts") == [("from the WAL",)]


def test_a_file_that_is_there_is_replaced_by_force_alone(database: Path, file: Path) -> None:
    file.write_text("precious")
    with pytest.raises(Problem, match="is there already") as raised:
        backups.back_up(database, file)
    assert raised.value.code == "backup_refused"
    assert file.read_text() == "precious"
    backups.back_up(database, file, force=True)
    assert is_sound(file)
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal", ".lock", ".limits-0000", ".limits-0001"])
@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("force", [False, True])
def test_the_databases_own_files_are_never_written(database: Path, suffix: str, *, is_there: bool, force: bool) -> None:
    own = Path(f"{database}{suffix}")
    if is_there:
        own.touch()
    elif own.exists() and suffix:
        own.unlink()
    before = contents(database.parent)
    with pytest.raises(Problem, match="belongs to the database itself"):
        backups.back_up(database, own, force=force)
    assert contents(database.parent) == before


@pytest.mark.parametrize("way", ["symbolic link", "hard link", "linked folder", "detour", "through a link itself"])
def test_nor_by_any_other_name(database: Path, tmp_path: Path, way: str) -> None:
    other, through = tmp_path / "other.db", database
    if way == "symbolic link":
        other.symlink_to(database)
    elif way == "hard link":
        other.hardlink_to(database)
    elif way == "linked folder":
        (tmp_path / "folder").symlink_to(database.parent)
        other = tmp_path / "folder/listings.db-wal"
    elif way == "detour":
        other = database.parent / ".." / "data" / "listings.db.lock"
    else:
        through = tmp_path / "link.db"
        through.symlink_to(database)
        other = Path(f"{database}-wal")
    with pytest.raises(Problem, match="belongs to the database itself"):
        backups.back_up(through, other, force=True)
    assert is_sound(database)


def test_a_database_whose_name_a_draft_would_take_is_safe(tmp_path: Path) -> None:
    database = databases.make(tmp_path / "listings.part")
    with pytest.raises(Problem, match="belongs to the database itself"):
        backups.back_up(database, tmp_path / "listings")
    assert is_sound(database)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nowhere/backup.db", "There is no folder .*/nowhere"),
        ("data", "is a folder"),
        ("data/listings.db/backup.db", "There is no folder"),
        ("pipe", "is no regular file"),
        ("a" * 300, "can't be written: File name too long"),
        ("a" * 252, "can't be written: File name too long"),  # with .part it is
        ("nul\0", "can't be written"),
        ("loop", "can't be written|is no regular file"),  # from Python 3.13 on it can be resolved
    ],
)
def test_where_no_copy_can_be_is_told_and_nothing_is_left(
    database: Path, tmp_path: Path, place: str, said: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    before = names(tmp_path)
    with pytest.raises(Problem, match=said) as raised:
        backups.back_up(database, tmp_path / place, force=True)
    assert raised.value.code == "backup_refused"
    assert names(tmp_path) == before


def test_a_draft_that_a_killed_backup_left_is_replaced(database: Path, file: Path) -> None:
    draft = file.with_name("backup.db.part")
    draft.write_text("half")
    draft.with_name("backup.db.part-journal").write_text("half")
    assert snapshot.stale_drafts(file.parent) == [draft]
    backups.back_up(database, file)
    assert is_sound(file)
    assert names(file.parent) == ["backup.db", "data"]


def test_two_backups_to_one_file_do_not_meet(database: Path, file: Path) -> None:
    met: list[str] = []

    def progress(done: int, pages: int) -> None:
        if done == pages and not met:
            assert snapshot.stale_drafts(file.parent) == []
            with pytest.raises(Problem, match="is being written by another backup") as raised:
                backups.back_up(database, file)
            met.append(raised.value.code)

    backups.back_up(database, file, progress=progress)
    assert met == ["backup_refused"]
    assert is_sound(file)


def test_a_file_that_appears_meanwhile_is_not_replaced(database: Path, file: Path) -> None:
    def progress(*_: int) -> None:
        file.write_text("precious")

    with pytest.raises(Problem, match="is there already"):
        backups.back_up(database, file, progress=progress)
    assert file.read_text() == "precious"
    assert names(file.parent) == ["backup.db", "data"]


def test_a_damaged_database_is_not_copied(tmp_path: Path, file: Path) -> None:
    database = databases.make(tmp_path / "data" / "listings.db", listings=50, size=3000)
    databases.damage(database)
    with pytest.raises(Unavailable, match="damaged"):
        backups.back_up(database, file)
    assert names(tmp_path) == ["data"]


def test_a_missing_database_and_one_never_migrated_are_told(tmp_path: Path, file: Path) -> None:
    with pytest.raises(Problem) as raised:
        backups.back_up(tmp_path / "listings.db", file)
    assert raised.value.code == "database_missing"
    (tmp_path / "listings.db").touch()
    with pytest.raises(Problem, match="older schema"):
        backups.back_up(tmp_path / "listings.db", file)
    assert names(tmp_path) == ["listings.db"]


def test_on_a_full_disk_nothing_is_half_written(tmp_path: Path) -> None:
    namespace = ["unshare", "-m" if os.geteuid() == 0 else "-Urm"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine lets nobody mount a small disk")
    small, elsewhere = tmp_path / "small", tmp_path / "elsewhere"
    small.mkdir()
    elsewhere.mkdir()
    trial = [sys.executable, "-m", "tests.store.sqlite.small_disk", str(small), str(elsewhere)]
    command = [*namespace, "sh", "-c", ON_A_SMALL_DISK, "sh", str(small), *trial]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    *sentences, left, sound = outcome.stdout.splitlines()
    assert len(sentences) == 4, outcome
    for sentence in sentences:
        assert sentence.startswith("There is no room ")
    assert set(left.split()) == {"listings.db", "listings.db.lock", "new.db.lock"}
    assert sound == "True 100"


# Before a migration


def test_a_database_is_kept_before_its_schema_changes(database: Path) -> None:
    kept: list[Path] = []
    assert migrate.migrate(database, [*migrations.shipped_migrations(), NEXT], kept.append) == [NEXT]
    assert len(kept) == 1
    assert kept[0].parent == database.parent
    assert kept[0].name.startswith(f"listings.db.before-{NEXT.version:04}-")
    assert rows(kept[0], COUNT) == rows(database, COUNT) == [(3,)]
    assert rows(kept[0], "SELECT name FROM sqlite_schema WHERE name = 'next'") == []


def test_a_new_database_and_one_that_is_up_to_date_need_no_copy(tmp_path: Path) -> None:
    kept: list[Path] = []
    database = tmp_path / "listings.db"
    migrate.migrate(database, on_backup=kept.append)
    migrate.migrate(database, on_backup=kept.append)
    assert kept == []
    assert names(tmp_path) == ["listings.db", "listings.db.lock"]


def test_without_its_copy_nothing_is_migrated(tmp_path: Path) -> None:
    database = databases.make(tmp_path / "listings.db", listings=50, size=3000)
    databases.damage(database)
    with pytest.raises(Unavailable, match="damaged"):
        migrate.migrate(database, [*migrations.shipped_migrations(), NEXT])
    assert rows(database, "SELECT max(version) FROM schema_migrations") == [(NEXT.version - 1,)]


def test_two_copies_within_one_second_have_two_names(database: Path) -> None:
    with closing(open_reader(database)) as source:
        kept = {snapshot.keep(source, database, "before-0002") for _ in range(4)}
    assert len(kept) == 4
    assert all(is_sound(path) for path in kept)


def test_what_is_pending_is_told_without_a_change(database: Path, tmp_path: Path) -> None:
    before = contents(database.parent)
    assert migrate.pending(database) == []
    assert migrate.pending(database, [*migrations.shipped_migrations(), NEXT]) == [NEXT]
    assert contents(database.parent) == before
    assert migrate.pending(tmp_path / "nowhere" / "listings.db") == migrations.shipped_migrations()
    (tmp_path / "empty.db").touch()
    assert migrate.pending(tmp_path / "empty.db") == migrations.shipped_migrations()
    assert names(tmp_path) == ["data", "empty.db"]


# A look that changes nothing


def as_killed(folder: Path, database: Path, *, index: bool = True) -> Path:
    """The files as a process that was killed left them, with an account's name in the WAL alone."""
    folder.mkdir()
    with closing(open_writer(database)) as writer:
        writer.execute("UPDATE accounts SET name = 'from the WAL'").fetchall()
        for suffix in ("", "-wal", "-shm") if index else ("", "-wal"):
            shutil.copy(f"{database}{suffix}", folder / f"listings.db{suffix}")
    return folder / "listings.db"


def test_a_look_changes_no_byte_beside_a_wal_that_was_left(database: Path, tmp_path: Path) -> None:
    killed = as_killed(tmp_path / "killed", database)
    before = contents(killed.parent)
    with closing(open_untouched(killed)) as connection:
        assert connection.execute("SELECT name FROM accounts").fetchall() == [("from the WAL",)]
        assert contents(killed.parent) == before
    assert inspection.inspect(killed).damages == []
    assert contents(killed.parent) == before


def test_a_look_changes_no_byte_while_another_process_has_it_open(database: Path) -> None:
    with opened_elsewhere(database):
        before = contents(database.parent)
        with closing(open_untouched(database)) as connection:
            assert connection.execute("SELECT name FROM accounts").fetchall() == [("elsewhere",)]
        assert contents(database.parent) == before


def test_what_a_look_would_have_to_change_is_told(database: Path, tmp_path: Path) -> None:
    killed = as_killed(tmp_path / "killed", database, index=False)
    with pytest.raises(Problem, match="WAL without its index"):
        open_untouched(killed)
    Path(f"{database}-journal").write_text("half")
    with pytest.raises(Problem, match="middle of a change"):
        open_untouched(database)


def test_a_journal_is_left_behind_where_the_file_is_gone_and_not_where_a_kill_left_it_empty(tmp_path: Path) -> None:
    database, journal = tmp_path / "listings.db", tmp_path / "listings.db-journal"
    journal.write_text("half")
    assert left_behind(database) == journal
    database.touch()
    assert left_behind(database) is None


def test_an_empty_wal_and_an_index_alone_hold_nothing(tmp_path: Path) -> None:
    for suffix in ("-wal", "-journal"):
        (tmp_path / f"listings.db{suffix}").touch()
    (tmp_path / "listings.db-shm").write_text("index")
    assert left_behind(tmp_path / "listings.db") is None


def test_what_is_left_is_found_behind_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    link, wal = tmp_path / "link.db", tmp_path / "listings.db-wal"
    link.symlink_to("listings.db")
    wal.write_text("frames")
    assert left_behind(link) == wal


# A restore


def test_a_restored_database_is_the_backup(database: Path, backup: Path) -> None:
    change(database, "DELETE FROM listings")
    restored = restores.restore(database, backup, force=True)
    assert restored.database == database
    assert restored.pending == []
    assert restored.kept is not None
    assert rows(database, COUNT) == [(3,)]
    assert rows(restored.kept, COUNT) == [(0,)]
    assert is_sound(database)
    assert rows(database, "PRAGMA journal_mode") == [("wal",)]
    assert names(database.parent) == ["listings.db", restored.kept.name, "listings.db.lock"]
    assert restored.kept.stat().st_mode & 0o777 == 0o600


def test_where_there_is_no_database_it_is_made(backup: Path, tmp_path: Path) -> None:
    target = tmp_path / "new folder" / "listings.db"
    assert restores.restore(target, backup) == (target, None, [])
    assert rows(target, COUNT) == [(3,)]
    assert target.stat().st_mode & 0o777 == 0o600
    assert target.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("make_empty", [False, True])
def test_what_is_left_of_a_database_that_is_gone_is_kept_by_force_alone_and_not_replayed(
    database: Path, backup: Path, tmp_path: Path, *, make_empty: bool
) -> None:
    killed = as_killed(tmp_path / "killed", database)
    whole = killed.rename(tmp_path / "found.db")
    if make_empty:
        killed.touch()
    before = contents(killed.parent)
    assert f"is gone, and {killed}-wal still holds writes to it: give --force" in refused(killed, backup)
    assert contents(killed.parent) == before
    kept = restores.restore(killed, backup, force=True).kept
    assert kept is not None
    assert rows(killed, "SELECT name FROM accounts") == [("alice",)]
    kept.rename(f"{whole}-wal")
    assert rows(whole, "SELECT name FROM accounts") == [("from the WAL",)]


def test_a_wal_that_a_killed_service_left_is_kept_and_not_replayed(
    database: Path, backup: Path, tmp_path: Path
) -> None:
    killed = as_killed(tmp_path / "killed", database)
    restored = restores.restore(killed, backup, force=True)
    assert restored.kept is not None
    assert rows(killed, "SELECT name FROM accounts") == [("alice",)]
    assert rows(restored.kept, "SELECT name FROM accounts") == [("from the WAL",)]


def test_a_backup_with_other_pages_is_restored(database: Path, backup: Path) -> None:
    change(backup, "PRAGMA page_size = 8192", "VACUUM")
    restores.restore(database, backup)
    assert rows(database, COUNT) == [(3,)]
    assert is_sound(database)


def test_a_copy_in_wal_mode_is_restored(database: Path, backup: Path) -> None:
    change(backup, "PRAGMA journal_mode = WAL")
    restores.restore(database, backup)
    assert is_sound(database)


def test_a_larger_and_a_smaller_backup_are_restored(tmp_path: Path) -> None:
    small = databases.make(tmp_path / "a" / "listings.db")
    large = databases.make(tmp_path / "b" / "listings.db", listings=200, size=2000)
    copy_of_small = backups.back_up(small, tmp_path / "small.db")
    copy_of_large = backups.back_up(large, tmp_path / "large.db")
    restores.restore(small, copy_of_large, force=True)
    restores.restore(large, copy_of_small, force=True)
    assert (rows(small, COUNT), rows(large, COUNT)) == ([(200,)], [(3,)])
    assert is_sound(small)
    assert is_sound(large)


def test_a_database_behind_a_link_is_restored_and_the_link_kept(database: Path, backup: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(database)
    change(database, "DELETE FROM listings")
    kept = restores.restore(link, backup, force=True).kept
    assert link.is_symlink()
    assert rows(database, COUNT) == [(3,)]
    assert kept is not None
    assert kept.parent == database.parent
    database.write_text("no database " * 1000)
    restores.restore(link, backup, force=True)
    assert link.is_symlink()
    assert rows(database, COUNT) == [(3,)]


def test_an_older_schema_is_restored_and_told(database: Path, backup: Path) -> None:
    newer = [*migrations.shipped_migrations(), NEXT]
    assert restores.restore(database, backup, migrations=newer).pending == [NEXT]


def test_a_backup_of_now_needs_no_force(database: Path, backup: Path) -> None:
    before = rows(database, "SELECT * FROM listings")
    assert restores.restore(database, backup).kept is not None
    assert rows(database, "SELECT * FROM listings") == before


def test_an_older_database_needs_no_force(database: Path, tmp_path: Path) -> None:
    old = backups.back_up(database, tmp_path / "old.db")
    with closing(connect(database)) as connection:
        databases.add_account(connection, 2)
        databases.add_listing(connection, 1, 9)
    new = backups.back_up(database, tmp_path / "new.db")
    restores.restore(database, old, force=True)
    restores.restore(database, new)
    assert rows(database, COUNT) == [(4,)]


# What a restore refuses


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["UPDATE account_state SET revision = revision + 1"], "has 1 edit that"),
        (["UPDATE account_state SET revision = revision + 12"], "has 12 edits that"),
        (["UPDATE listings SET version = 2 WHERE id IN (1025, 2049)"], "has 2 edits that"),
        (["UPDATE listings SET updated_at = '2026-05-05 05:05:05' WHERE id = 1025"], "has 1 edit that"),
        (["UPDATE accounts SET plan_expires_at = 1"], "has 1 change of an account that"),
        (["UPDATE api_keys SET revoked_at = 1"], "has 1 revocation of a key that"),
        (["UPDATE api_keys SET digest = randomblob(32)"], "has 1 key that"),
        (
            [
                "INSERT INTO accounts (bucket, name, email, created_at) VALUES (2, 'bob', 'b', 1), (3, 'c', 'c', 1)",
                "UPDATE account_state SET revision = 9",
                "INSERT INTO api_keys (account_id, digest, hint, name, created_at) SELECT 2, randomblob(32), '', '', 1",
            ],
            "has 6 edits, 2 accounts and 1 key that",
        ),
    ],
)
def test_what_would_be_lost_is_told_and_needs_force(
    database: Path, backup: Path, statements: list[str], said: str
) -> None:
    change(database, *statements)
    before = contents(database.parent)
    assert said in refused(database, backup)
    assert contents(database.parent) == before
    restores.restore(database, backup, force=True)
    assert rows(database, "SELECT name FROM accounts") == [("alice",)]


def test_another_database_needs_force(database: Path, tmp_path: Path) -> None:
    other = backups.back_up(databases.make(tmp_path / "other" / "listings.db"), tmp_path / "other.db")
    assert "is another one than the backup is of" in refused(database, other)
    restores.restore(database, other, force=True)
    assert rows(database, "SELECT * FROM database_id") == rows(other, "SELECT * FROM database_id")


def test_a_newer_schema_in_the_databases_place_needs_force(database: Path, backup: Path) -> None:
    migrate.migrate(database, [*migrations.shipped_migrations(), NEXT])
    assert "newer than this program knows" in refused(database, backup)
    assert restores.restore(database, backup, force=True).kept is not None
    migrate.migrate(database)


def test_a_database_of_something_else_needs_force(backup: Path, tmp_path: Path) -> None:
    other = tmp_path / "music.db"
    change(other, "CREATE TABLE songs (name)")
    assert "is no database of Listings" in refused(other, backup)
    kept = restores.restore(other, backup, force=True).kept
    assert kept is not None
    assert rows(kept, "SELECT count(*) FROM songs") == [(0,)]


@pytest.mark.parametrize("kind", ["text", "damaged page", "short", "orphan"])
def test_a_damaged_database_is_replaced_by_force_and_kept_as_it_was(tmp_path: Path, kind: str) -> None:
    whole = databases.make(tmp_path / "whole" / "listings.db", listings=50, size=3000)
    backup = backups.back_up(whole, tmp_path / "backup.db")
    database = as_killed(tmp_path / "killed", whole)
    if kind == "text":
        database.write_text("no database " * 1000)
    elif kind == "short":
        database.write_bytes(database.read_bytes()[:100])
    elif kind == "orphan":
        change(database, "PRAGMA foreign_keys = OFF", "DELETE FROM account_state", "PRAGMA wal_checkpoint(TRUNCATE)")
    else:
        databases.damage(database)
    before = contents(database.parent)
    assert "is damaged" in refused(database, backup)
    assert contents(database.parent) == before
    kept = restores.restore(database, backup, force=True).kept
    assert kept is not None
    for suffix in ("", "-wal"):
        if f"listings.db{suffix}" in before:
            assert Path(f"{kept}{suffix}").read_bytes() == before[f"listings.db{suffix}"]
    assert rows(database, "SELECT name FROM accounts") == [("alice",)]
    assert is_sound(database)


def test_a_damaged_database_that_another_process_has_open_is_not_replaced(tmp_path: Path) -> None:
    whole = databases.make(tmp_path / "whole" / "listings.db", listings=50, size=3000)
    backup = backups.back_up(whole, tmp_path / "backup.db")
    with opened_elsewhere(whole):
        content = bytearray(whole.read_bytes())
        content[:16] = b"no database here"
        with whole.open("r+b") as file:
            file.write(content)
        assert "stop the service first" in refused(whole, backup, force=True)
        assert whole.read_bytes() == content


def spoil(*statements: str) -> Callable[[Path, Path], Path]:
    def act(_: Path, file: Path) -> Path:
        change(file, *statements)
        return file

    return act


def replace_with(make: Callable[[Path, Path], object]) -> Callable[[Path, Path], Path]:
    def act(database: Path, file: Path) -> Path:
        file.unlink()
        make(database, file)
        return file

    return act


def leave_a_wal(_: Path, file: Path) -> Path:
    file.with_name("backup.db-wal").write_text("half")
    return file


def damage_a_page(_: Path, file: Path) -> Path:
    databases.damage(file)
    return file


SPOIL: dict[str, Callable[[Path, Path], Path]] = {
    "missing": replace_with(lambda _, __: None),
    "folder": replace_with(lambda _, file: file.mkdir()),
    "text": replace_with(lambda _, file: file.write_text("no database " * 1000)),
    "empty": replace_with(lambda _, file: file.touch()),
    "link": replace_with(lambda database, file: file.symlink_to(database)),
    "other": spoil("DROP TABLE schema_migrations"),
    "orphan": spoil("PRAGMA foreign_keys = OFF", "DELETE FROM account_state"),
    "newer": spoil("INSERT INTO schema_migrations VALUES (9999, 'later', 'x', 0)"),
    "altered": spoil("UPDATE schema_migrations SET checksum = 'x'"),
    "page": damage_a_page,
    "database": lambda database, _: database,
    "wal": leave_a_wal,
}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("missing", "No such file"),
        ("folder", "no file"),
        ("text", "no database"),
        ("empty", "no database of Listings"),
        ("other", "no database of Listings"),
        ("page", "damaged"),
        ("orphan", "refer to rows that are not there"),
        ("newer", "newer schema"),
        ("altered", "differs from the one in this program"),
        ("database", "belongs to the database itself"),
        ("link", "belongs to the database itself"),
        ("wal", "WAL without its index"),
    ],
)
def test_what_is_no_sound_backup_is_refused_and_nothing_changed(tmp_path: Path, kind: str, said: str) -> None:
    database = databases.make(tmp_path / "data" / "listings.db", listings=50, size=3000)
    file = SPOIL[kind](database, backups.back_up(database, tmp_path / "backup.db"))
    before = contents(database.parent)
    sentence = refused(database, file, force=True)
    assert said in sentence
    assert str(file) in sentence
    assert contents(database.parent) == before


@contextmanager
def opened_elsewhere(database: Path) -> Iterator[None]:
    """Another process has the database open, as an idle service has: it has written, and does nothing more."""
    program = (
        "import sys; from pathlib import Path; from listings.store.sqlite.connections import open_writer\n"
        "writer = open_writer(Path(sys.argv[1])); writer.execute(\"UPDATE accounts SET name = 'elsewhere'\")\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            yield
        finally:
            process.kill()


@pytest.mark.parametrize("force", [False, True])
def test_a_database_that_another_process_has_open_is_not_touched(database: Path, backup: Path, *, force: bool) -> None:
    change(database, "DELETE FROM listings")
    with opened_elsewhere(database):
        before = contents(database.parent)
        assert "stop the service first" in refused(database, backup, force=force)
        assert contents(database.parent) == before
    restores.restore(database, backup, force=True)


def test_nobody_can_open_a_database_while_it_is_restored(database: Path, backup: Path) -> None:
    seen: list[str] = []

    def progress(done: int, pages: int) -> None:
        if done == pages:
            with closing(connect(database)) as other:
                try:
                    other.execute("SELECT 1 FROM accounts").fetchall()
                except apsw.BusyError:
                    seen.append("busy")

    restores.restore(database, backup, progress=progress)
    assert seen == ["busy"]


def test_alone_means_that_nobody_else_is_there(database: Path) -> None:
    with closing(open_alone(database)), pytest.raises(apsw.BusyError):
        open_alone(database)
    with opened_elsewhere(database), pytest.raises(apsw.BusyError):
        open_alone(database)


def test_alone_holds_without_a_wal_too(database: Path) -> None:
    change(database, "PRAGMA journal_mode = DELETE")
    with closing(open_alone(database)), closing(connect(database)) as other, pytest.raises(apsw.BusyError):
        other.execute("SELECT 1 FROM accounts").fetchall()


def test_the_engines_lock_is_held_while_a_damaged_database_is_replaced(database: Path, backup: Path) -> None:
    database.write_text("no database " * 1000)
    outcomes: list[str] = []
    share = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'rb') as file: fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 510, 0x40000002)"
    )

    def progress(*_: int) -> None:
        command = [sys.executable, "-c", share, str(database)]
        outcomes.append(subprocess.run(command, capture_output=True, text=True, check=False).stderr)

    restores.restore(database, backup, force=True, progress=progress)
    assert outcomes
    assert all("BlockingIOError" in outcome for outcome in outcomes)


# Kills


def states_after_kills(folder: Path, old: Path, backup: Path) -> list[str]:
    """What a database is after a restore that was killed at its first step, its second and so on, or not at all."""
    folder.mkdir()
    command = [sys.executable, "-m", "tests.store.sqlite.killed_restore", str(folder), str(old), str(backup)]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert outcome.stderr == ""
    return outcome.stdout.split()


@pytest.fixture
def scene(tmp_path: Path) -> tuple[Path, Path]:
    """The folder of a database called old, whose name is in its WAL alone, and a backup of one called new."""
    new = databases.make(tmp_path / "new.db", listings=10, size=3000)
    change(new, "UPDATE accounts SET name = 'new'")
    live = databases.make(tmp_path / "live" / "listings.db", accounts=2, listings=4, size=2000)
    with closing(open_writer(live)) as writer:
        writer.execute("UPDATE accounts SET name = 'old'").fetchall()
        (tmp_path / "old").mkdir()
        for suffix in ("", "-wal"):
            shutil.copy(f"{live}{suffix}", tmp_path / f"old/listings.db{suffix}")
    return tmp_path / "old", backups.back_up(new, tmp_path / "backup.db")


@pytest.mark.slow
def test_a_restore_that_is_killed_leaves_the_old_or_the_new_database(scene: tuple[Path, Path], tmp_path: Path) -> None:
    states = states_after_kills(tmp_path / "kills", *scene)
    first_new = states.index("new")
    assert first_new > 50
    assert set(states[:first_new]) == {"old"}
    assert set(states[first_new:]) == {"new"}


def test_a_damaged_database_is_as_it_was_until_the_new_one_is_whole(scene: tuple[Path, Path], tmp_path: Path) -> None:
    old, backup = scene
    with (old / "listings.db").open("r+b") as file:
        file.write(b"no database here")
    states = states_after_kills(tmp_path / "kills", old, backup)
    assert len(states) > 20
    assert set(states[:-1]) <= {"untouched", "new"}
    assert states[-1] == "new"
    assert "untouched" not in states[states.index("new") :]
