"""Restoring a backup: the database is the previous one or the backup at every moment."""

import errno
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

import apsw
import pytest

from listings.domain.errors import Problem, Unavailable
from listings.store import migrations
from listings.store.sqlite.connections import find_orphaned_wal, open_writer
from listings.store.sqlite.maintenance import backup as backups
from listings.store.sqlite.maintenance import inspection, migrate, snapshot
from listings.store.sqlite.maintenance import restore as restores
from tests.processes import run_program
from tests.store import databases
from tests.store.databases import change, connect, is_sound, rows
from tests.store.sqlite.database_files import (
    COUNT_LISTINGS,
    NEXT_MIGRATION,
    ROOT,
    copy_as_killed,
    list_names,
    open_in_another_process,
    read_files,
)

pytestmark = pytest.mark.covers_programs


def get_rejection(database: Path, file: Path, *, force: bool = False) -> str:
    """Return the message of the restore's rejection."""
    with pytest.raises(Problem) as raised:
        restores.restore(database, file, force=force)
    assert raised.value.code == "restore_refused"
    return raised.value.message


def refuse_link(*_: object) -> None:
    raise OSError(errno.EPERM, "No hard links")


def test_a_restore_replaces_the_database_and_keeps_the_previous_one(database: Path, backup: Path) -> None:
    change(database, "DELETE FROM listings")
    restored = restores.restore(database, backup, force=True)
    assert restored is not None
    assert rows(database, COUNT_LISTINGS) == [(3,)]
    assert rows(restored, COUNT_LISTINGS) == [(0,)]
    assert is_sound(database)
    assert rows(database, "PRAGMA journal_mode") == [("wal",)]
    assert list_names(database.parent) == ["listings.db", restored.name, "listings.db.last-backup", "listings.db.lock"]
    assert restored.stat().st_mode & 0o777 == 0o600


def test_a_missing_database_is_created_from_the_backup(backup: Path, tmp_path: Path) -> None:
    target = tmp_path / "new folder" / "listings.db"
    assert restores.restore(target, backup) is None
    assert rows(target, COUNT_LISTINGS) == [(3,)]
    assert target.stat().st_mode & 0o777 == 0o600
    assert target.parent.stat().st_mode & 0o777 == 0o700


def test_an_empty_database_is_replaced_and_not_kept(backup: Path, tmp_path: Path) -> None:
    target = tmp_path / "empty" / "listings.db"
    target.parent.mkdir()
    target.touch()
    assert restores.restore(target, backup) is None
    assert rows(target, COUNT_LISTINGS) == [(3,)]
    assert list_names(target.parent) == ["listings.db", "listings.db.lock"]


def test_the_new_file_belongs_to_the_owner_of_the_old_one(database: Path, backup: Path) -> None:
    owner = (database.stat().st_uid, database.stat().st_gid)
    if os.geteuid() == 0:
        owner = (65_534, 65_534)
        os.chown(database, *owner)
    restores.restore(database, backup)
    assert (database.stat().st_uid, database.stat().st_gid) == owner


@pytest.mark.parametrize("leave_empty_file", [False, True])
def test_an_orphaned_wal_is_set_aside_only_with_force_and_not_replayed(
    database: Path, backup: Path, tmp_path: Path, *, leave_empty_file: bool
) -> None:
    killed = copy_as_killed(tmp_path / "killed", database)
    sound = killed.rename(tmp_path / "found.db")
    if leave_empty_file:
        killed.touch()
    before = read_files(killed.parent)
    rejection = get_rejection(killed, backup)
    assert f"is missing or empty, but {killed}-wal still contains writes to it: use --force" in rejection
    assert read_files(killed.parent) == before
    previous_file = restores.restore(killed, backup, force=True)
    assert previous_file is not None
    assert rows(killed, "SELECT name FROM accounts") == [("alice",)]
    previous_file.rename(f"{sound}-wal")
    assert rows(sound, "SELECT name FROM accounts") == [("from the WAL",)]


def test_the_wal_of_a_killed_service_is_kept_and_not_replayed(database: Path, backup: Path, tmp_path: Path) -> None:
    killed = copy_as_killed(tmp_path / "killed", database)
    restored = restores.restore(killed, backup, force=True)
    assert restored is not None
    assert rows(killed, "SELECT name FROM accounts") == [("alice",)]
    assert rows(restored, "SELECT name FROM accounts") == [("from the WAL",)]


def test_a_backup_with_a_different_page_size_is_restored(database: Path, backup: Path) -> None:
    change(backup, "PRAGMA page_size = 8192", "VACUUM")
    restores.restore(database, backup)
    assert rows(database, COUNT_LISTINGS) == [(3,)]
    assert is_sound(database)


def test_a_backup_in_wal_mode_is_restored(database: Path, backup: Path) -> None:
    change(backup, "PRAGMA journal_mode = WAL")
    restores.restore(database, backup)
    assert is_sound(database)


def test_a_copy_of_all_files_of_a_killed_service_is_restored(database: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    with closing(apsw.Connection(str(database))) as connection:  # leaves a WAL while it is open
        connection.execute("UPDATE listings SET title = 'In the WAL'").fetchall()
        for file in database.parent.glob(f"{database.name}*"):
            shutil.copy(file, copy)
    assert (copy / f"{database.name}-wal").stat().st_size
    restores.restore(database, copy / database.name)
    assert rows(database, "SELECT DISTINCT title FROM listings") == [("In the WAL",)]


def test_larger_and_smaller_backups_are_restored(tmp_path: Path) -> None:
    small = databases.make(tmp_path / "a" / "listings.db")
    large = databases.make(tmp_path / "b" / "listings.db", listings=200, size=2000)
    copy_of_small = backups.back_up(small, tmp_path / "small.db")
    copy_of_large = backups.back_up(large, tmp_path / "large.db")
    restores.restore(small, copy_of_large, force=True)
    restores.restore(large, copy_of_small, force=True)
    assert (rows(small, COUNT_LISTINGS), rows(large, COUNT_LISTINGS)) == ([(200,)], [(3,)])
    assert is_sound(small)
    assert is_sound(large)


def test_a_failed_restore_keeps_a_link_to_a_new_file(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise apsw.FullError("database or disk is full")

    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "new.db")
    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "copy_pages", fail)
        with pytest.raises(Problem, match="nothing was copied"):
            restores.restore(link, backup)
    assert link.is_symlink()
    assert not (tmp_path / "new.db").exists()


def test_restoring_through_a_link_keeps_the_link(database: Path, backup: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(database)
    change(database, "DELETE FROM listings")
    previous_file = restores.restore(link, backup, force=True)
    assert link.is_symlink()
    assert rows(database, COUNT_LISTINGS) == [(3,)]
    assert previous_file is not None
    assert previous_file.parent == database.parent
    database.write_text("not a database " * 1000)
    restores.restore(link, backup, force=True)
    assert link.is_symlink()
    assert rows(database, COUNT_LISTINGS) == [(3,)]


def test_an_older_schema_is_restored_and_updated(database: Path, backup: Path) -> None:
    newer = [*migrations.shipped_migrations(), NEXT_MIGRATION]
    restores.restore(database, backup, migrations=newer)
    assert migrate.list_pending(database, newer) == []
    assert rows(database, COUNT_LISTINGS) == [(3,)]


def test_a_current_backup_is_restored_without_force(database: Path, backup: Path) -> None:
    before = rows(database, "SELECT * FROM listings")
    assert restores.restore(database, backup) is not None
    assert rows(database, "SELECT * FROM listings") == before


def test_a_database_older_than_the_backup_needs_no_force(database: Path, tmp_path: Path) -> None:
    old = backups.back_up(database, tmp_path / "old.db")
    with closing(connect(database)) as connection:
        databases.add_account(connection, 2)
        databases.add_listing(connection, 1, 9)
    new = backups.back_up(database, tmp_path / "new.db")
    restores.restore(database, old, force=True)
    restores.restore(database, new)
    assert rows(database, COUNT_LISTINGS) == [(4,)]


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["UPDATE listings SET version = 2 WHERE id IN (1025, 2049)"], "2 listings, the newest of 2026-01-02 03:04:05"),
        (
            ["UPDATE listings SET updated_at = '2026-05-05 05:05:05' WHERE id = 1025"],
            "1 listing, the newest of 2026-05",
        ),
        (["UPDATE accounts SET plan_expires_at = 9999999999"], "1 account, the newest of 2026-01-02 03:04:05"),
        (["UPDATE accounts SET public_contact = 'a@b.c'"], "1 account, "),
        (["UPDATE accounts SET disabled_at = 1800000000"], "1 account, the newest of 2027-01-15 08:00:00"),
        (["UPDATE api_keys SET revoked_at = 1800000000"], "1 key, the newest of 2027-01-15 08:00:00"),
        (["UPDATE members SET password = 'new', changed_at = 1800000000"], "1 password, the newest of 2027-01-15"),
        (
            ["INSERT INTO payments VALUES ('stripe', 'p', 1, 1, 9999999999, 1800000000, '')"],
            "1 payment, the newest of 2027",
        ),
        (["INSERT INTO closed_accounts VALUES (1, 1800000000)"], "1 closed account, the newest of 2027-01-15 08:00:00"),
        (["UPDATE account_state SET max_listings = 7"], "1 account limit"),
        (
            ["INSERT INTO plan_requests (account_id, requested_at) VALUES (1, 1800000000)"],
            "1 plan request, the newest of 2027-01-15 08:00:00",
        ),
        (
            [
                "INSERT INTO accounts (bucket, name, email, created_at) VALUES (2, 'bob', 'b', 1), (3, 'c', 'c', 1)",
                "INSERT INTO api_keys (account_id, digest, hint, name, created_at) SELECT 2, randomblob(32), '', '', 1",
                "DELETE FROM members",
            ],
            "2 accounts and 1 key, the newest of 1970-01-01 00:00:01",
        ),
    ],
)
def test_losing_data_needs_force(database: Path, file: Path, statements: list[str], message: str) -> None:
    change(database, "INSERT INTO members VALUES (1, 'old', 1)")
    backups.back_up(database, file)
    change(database, *statements)
    before = read_files(database.parent)
    assert f"has new or changed rows that the backup lacks: {message}" in get_rejection(database, file)
    assert read_files(database.parent) == before
    restores.restore(database, file, force=True)
    assert rows(database, "SELECT name, password FROM accounts JOIN members") == [("alice", "old")]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE listings SET view_count = 7, market_version = 1, indexed = TRUE",
        "UPDATE api_keys SET last_used_at = 1800000000",
        "UPDATE account_state SET revision = revision + 7",
        "INSERT INTO sessions VALUES (randomblob(32), 1, 'a', 'b', 1, 1, 1, '', NULL)",
        "INSERT INTO usage_hours VALUES (1, 1, 1, 1, 200, 5)",
        "INSERT INTO views VALUES (1, 1, 1025, randomblob(16))",
        "INSERT INTO sign_in_attempts VALUES (randomblob(32), 1, 1)",
        "INSERT INTO mails VALUES ('a', 'buyer_message', 'a@example.com', 1, '{}', 1, 1, 0)",
        "INSERT INTO listings_words (rowid, words) VALUES (1, 'x')",
    ],
)
def test_counters_and_short_lived_rows_can_be_lost(database: Path, backup: Path, statement: str) -> None:
    change(database, statement)
    restores.restore(database, backup)


def test_tables_of_another_program_are_not_compared(database: Path, file: Path) -> None:
    change(database, 'CREATE TABLE "other-one" (value)')
    backups.back_up(database, file)
    change(database, """INSERT INTO "other-one" VALUES ('lost')""")
    restores.restore(database, file)


def test_replacing_another_database_needs_force(database: Path, tmp_path: Path) -> None:
    other = backups.back_up(databases.make(tmp_path / "other" / "listings.db"), tmp_path / "other.db")
    assert "is not the database that was backed up" in get_rejection(database, other)
    restores.restore(database, other, force=True)
    assert rows(database, "SELECT id FROM database_id") == rows(other, "SELECT id FROM database_id")


def test_replacing_a_newer_schema_needs_force(database: Path, backup: Path) -> None:
    migrate.migrate(database, [*migrations.shipped_migrations(), NEXT_MIGRATION])
    assert "newer than this program's" in get_rejection(database, backup)
    assert restores.restore(database, backup, force=True) is not None
    migrate.migrate(database)


def test_replacing_the_database_of_another_program_needs_force(backup: Path, tmp_path: Path) -> None:
    other = tmp_path / "music.db"
    change(other, "CREATE TABLE songs (name)")
    assert "is not a Listings database" in get_rejection(other, backup)
    previous_file = restores.restore(other, backup, force=True)
    assert previous_file is not None
    assert rows(previous_file, "SELECT count(*) FROM songs") == [(0,)]


@pytest.mark.parametrize("kind", ["text", "damaged page", "short", "orphan"])
def test_a_damaged_database_is_replaced_with_force_and_kept_unchanged(tmp_path: Path, kind: str) -> None:
    sound = databases.make(tmp_path / "sound" / "listings.db", listings=50, size=3000)
    backup = backups.back_up(sound, tmp_path / "backup.db")
    database = copy_as_killed(tmp_path / "killed", sound)
    if kind == "text":
        database.write_text("not a database " * 1000)
    elif kind == "short":
        database.write_bytes(database.read_bytes()[:100])
    elif kind == "orphan":
        change(database, "PRAGMA foreign_keys = OFF", "DELETE FROM account_state", "PRAGMA wal_checkpoint(TRUNCATE)")
    else:
        databases.damage(database)
    before = read_files(database.parent)
    assert "is damaged" in get_rejection(database, backup)
    assert read_files(database.parent) == before
    previous_file = restores.restore(database, backup, force=True)
    assert previous_file is not None
    for suffix in ("", "-wal"):
        if f"listings.db{suffix}" in before:
            assert Path(f"{previous_file}{suffix}").read_bytes() == before[f"listings.db{suffix}"]
    assert rows(database, "SELECT name FROM accounts") == [("alice",)]
    assert is_sound(database)


class UnreadableFile(apsw.VFSFile):
    """A file on a disk with damaged blocks after the first page."""

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's name
        if offset >= 4096:
            raise apsw.exception_for(apsw.SQLITE_IOERR_CORRUPTFS)
        return super().xRead(amount, offset)


class DamagedDisk(apsw.VFS):
    """The default VFS, on which one database is unreadable."""

    def __init__(self, database: Path) -> None:
        super().__init__("damaged", "unix", makedefault=True)
        self._database = str(database)

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        path = name if isinstance(name, str | None) else name.filename()
        return (UnreadableFile if path == self._database else apsw.VFSFile)("unix", name, flags)


def test_a_database_with_unreadable_blocks_is_replaced_with_force(database: Path, backup: Path) -> None:
    disk = DamagedDisk(database)
    try:
        assert inspection.inspect(database).corruption != []
        assert "is damaged" in get_rejection(database, backup)
        restored = restores.restore(database, backup, force=True)
    finally:
        disk.unregister()
    assert restored is not None
    assert is_sound(database)


def test_an_open_damaged_database_is_not_replaced(tmp_path: Path) -> None:
    sound = databases.make(tmp_path / "sound" / "listings.db", listings=50, size=3000)
    backup = backups.back_up(sound, tmp_path / "backup.db")
    with open_in_another_process(sound):
        content = bytearray(sound.read_bytes())
        content[:16] = b"not a database!!"
        with sound.open("r+b") as file:
            file.write(content)
        assert "stop the service first" in get_rejection(sound, backup, force=True)
        assert sound.read_bytes() == content


def change_backup(*statements: str) -> Callable[[Path, Path], Path]:
    def apply(_: Path, file: Path) -> Path:
        change(file, *statements)
        return file

    return apply


def replace_backup(create: Callable[[Path, Path], object]) -> Callable[[Path, Path], Path]:
    def apply(database: Path, file: Path) -> Path:
        file.unlink()
        create(database, file)
        return file

    return apply


def leave_wal(_: Path, file: Path) -> Path:
    file.with_name("backup.db-wal").write_text("half")
    return file


def damage_page(_: Path, file: Path) -> Path:
    databases.damage(file)
    return file


UNUSABLE_BACKUPS: list[tuple[str, Callable[[Path, Path], Path]]] = [
    ("No such file", replace_backup(lambda _, __: None)),
    ("not a file", replace_backup(lambda _, file: file.mkdir())),
    ("not a database", replace_backup(lambda _, file: file.write_text("not a database " * 1000))),
    ("not a Listings database", replace_backup(lambda _, file: file.touch())),
    ("not a Listings database", change_backup("DROP TABLE schema_migrations")),
    ("damaged", damage_page),
    ("refer to rows that do not exist", change_backup("PRAGMA foreign_keys = OFF", "DELETE FROM account_state")),
    ("newer schema", change_backup("INSERT INTO schema_migrations VALUES (9999, 'later', 'x', 0)")),
    ("differs from the one in this program", change_backup("UPDATE schema_migrations SET checksum = 'x'")),
    ("The schema was altered (index listings_active is missing)", change_backup("DROP INDEX listings_active")),
    (
        "The schema was altered (trigger foreign_one is not part of it)",
        change_backup("CREATE TRIGGER foreign_one AFTER INSERT ON listings BEGIN SELECT 1; END"),
    ),
    ("belongs to the database itself", lambda database, _: database),
    ("belongs to the database itself", replace_backup(lambda database, file: file.symlink_to(database))),
    ("WAL without its index", leave_wal),
]


@pytest.mark.parametrize(("message", "spoil"), UNUSABLE_BACKUPS)
def test_an_unusable_backup_is_rejected_without_changes(
    tmp_path: Path, message: str, spoil: Callable[[Path, Path], Path]
) -> None:
    database = databases.make(tmp_path / "data" / "listings.db", listings=50, size=3000)
    file = spoil(database, backups.back_up(database, tmp_path / "backup.db"))
    before = read_files(database.parent)
    error = get_rejection(database, file, force=True)
    assert message in error
    assert str(file) in error
    assert read_files(database.parent) == before


@pytest.mark.parametrize("force", [False, True])
def test_a_database_that_another_process_has_open_is_not_changed(database: Path, backup: Path, *, force: bool) -> None:
    change(database, "DELETE FROM listings")
    with open_in_another_process(database):
        before = read_files(database.parent)
        assert "stop the service first" in get_rejection(database, backup, force=force)
        assert read_files(database.parent) == before
    restores.restore(database, backup, force=True)


def test_a_database_is_locked_while_it_is_restored(database: Path, backup: Path) -> None:
    errors: list[str] = []

    def progress(done: int, pages: int) -> None:
        if done == pages:
            with closing(connect(database)) as other:
                try:
                    other.execute("SELECT 1 FROM accounts").fetchall()
                except apsw.BusyError:
                    errors.append("busy")

    restores.restore(database, backup, progress=progress)
    assert errors == ["busy"]


@pytest.mark.parametrize("has_links", [True, False])
def test_sqlites_lock_is_held_while_a_damaged_database_is_replaced(
    database: Path, backup: Path, monkeypatch: pytest.MonkeyPatch, *, has_links: bool
) -> None:
    database.write_text("not a database " * 1000)
    outcomes: list[str] = []
    lock_program = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'rb') as file: fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 510, 0x40000002)"
    )

    def try_to_lock(*_: object) -> None:
        command = [sys.executable, "-c", lock_program, str(database)]
        outcomes.append(run_program(command).stderr)

    if not has_links:
        monkeypatch.setattr(os, "link", refuse_link)
    replace = Path.replace

    def replace_when_locked(file: Path, target: Path) -> Path:
        if target == database:
            try_to_lock()
        return replace(file, target)

    monkeypatch.setattr(Path, "replace", replace_when_locked)
    previous_file = restores.restore(database, backup, force=True, progress=try_to_lock)
    assert len(outcomes) >= 2
    assert all("BlockingIOError" in outcome for outcome in outcomes)
    assert previous_file is not None
    assert previous_file.read_text() == "not a database " * 1000
    assert previous_file.stat().st_mode & 0o777 == 0o600


def test_the_previous_file_is_named_if_the_disk_fails_after_a_move(
    database: Path, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, replace = copy_as_killed(tmp_path / "killed", database), Path.replace
    killed.write_text("not a database " * 1000)
    before = read_files(killed.parent)

    def fail_at_the_end(file: Path, target: Path) -> Path:
        if target == killed:
            raise OSError(errno.EIO, "Input/output error")
        return replace(file, target)

    monkeypatch.setattr(Path, "replace", fail_at_the_end)
    with pytest.raises(Unavailable, match="Input/output error") as raised:
        restores.restore(killed, backup, force=True)
    (previous_wal,) = killed.parent.glob("listings.db.before-restore-*-wal")
    assert str(previous_wal).removesuffix("-wal") in raised.value.message
    assert previous_wal.read_bytes() == before["listings.db-wal"]


def test_the_copy_of_a_damaged_database_is_durable_before_its_wal_is_moved(
    database: Path, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, fsync, flushed = copy_as_killed(tmp_path / "killed", database), os.fsync, []
    killed.write_text("not a database " * 1000)

    def record(descriptor: int) -> None:
        if Path(f"{killed}-wal").exists():
            flushed.append((os.fstat(descriptor).st_ino, os.fstat(descriptor).st_size))
        fsync(descriptor)

    monkeypatch.setattr(os, "link", refuse_link)
    monkeypatch.setattr(os, "fsync", record)
    previous_file = restores.restore(killed, backup, force=True)
    assert previous_file is not None
    assert (previous_file.stat().st_ino, previous_file.stat().st_size) in flushed


def test_a_failed_copy_of_a_damaged_database_is_removed(
    database: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    database.write_text("not a database " * 1000)
    before = read_files(database.parent)
    monkeypatch.setattr(os, "link", refuse_link)
    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(Problem, match=r"before-restore-.* can't be written: Input/output error") as raised:
        restores.restore(database, backup, force=True)
    assert raised.value.code == "backup_refused"
    assert read_files(database.parent) == before


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_an_orphaned_file_is_recognised_until_the_database_is_replaced(
    backup: Path, tmp_path: Path, suffix: str
) -> None:
    database, orphan = tmp_path / "lost.db", tmp_path / f"lost.db{suffix}"
    orphan.write_text("half")
    found: list[Path | None] = []
    previous_file = restores.restore(
        database, backup, force=True, progress=lambda *_: found.append(find_orphaned_wal(database))
    )
    assert set(found) == {orphan}
    assert previous_file is not None
    assert previous_file.read_text() == "half"
    assert rows(database, COUNT_LISTINGS) == [(3,)]


def find_states_after_kills(folder: Path, old: Path, backup: Path) -> list[str]:
    """Return the state of a database after a restore killed at its first step, its second and so on, and not killed."""
    folder.mkdir()
    command = [sys.executable, "-m", "tests.store.sqlite.killed_restore", str(folder), str(old), str(backup)]
    outcome = run_program(command, cwd=ROOT)
    assert outcome.stderr == ""
    return outcome.stdout.split()


@pytest.fixture
def old_and_new(tmp_path: Path) -> tuple[Path, Path]:
    """A folder with the files of a database named "old", by a write in its WAL, and a backup of one named "new"."""
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
@pytest.mark.uncovered
def test_a_killed_restore_leaves_the_old_or_the_new_database(old_and_new: tuple[Path, Path], tmp_path: Path) -> None:
    states = find_states_after_kills(tmp_path / "kills", *old_and_new)
    first_new = states.index("new")
    assert first_new > 50
    assert set(states[:first_new]) == {"old"}
    assert set(states[first_new:]) == {"new"}


@pytest.mark.uncovered
@pytest.mark.parametrize("is_missing", [False, True], ids=["damaged", "missing"])
def test_an_unusable_database_with_a_wal_stays_so_until_it_is_replaced(
    old_and_new: tuple[Path, Path], tmp_path: Path, *, is_missing: bool
) -> None:
    old, backup = old_and_new
    database = old / "listings.db"
    if is_missing:
        database.unlink()
    else:
        with database.open("r+b") as file:
            file.write(b"not a database!!")
    states = find_states_after_kills(tmp_path / "kills", old, backup)
    assert len(states) > 20
    assert states[0] == "untouched"
    assert states[-1] == "new"
    assert [state for state, _ in groupby(states)] in (["untouched", "interrupted", "new"], ["untouched", "new"])
