"""Backups of a database that is in use: a complete file, or none at all."""

import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from listings.domain.errors import Problem, Unavailable
from listings.store.sqlite.connections import open_reader, open_writer
from listings.store.sqlite.maintenance import backup as backups
from listings.store.sqlite.maintenance import snapshot
from tests.harness import TIMEOUT
from tests.processes import run_program
from tests.store import databases
from tests.store.databases import change, connect, is_sound, rows
from tests.store.sqlite.database_files import ROOT, copy_as_killed, list_names, read_files

pytestmark = pytest.mark.covers_programs

ON_A_SMALL_DISK = 'mount -t tmpfs -o size=3072k none "$1" && shift && exec "$@"'


@contextmanager
def write_in_another_process(database: Path) -> Iterator[list[int]]:
    """Let another process add an account and its key per transaction, without a pause; yield the committed ids."""
    program = "import sys; from tests.store.sqlite.test_backup import write_without_pause as write; write(sys.argv[1])"
    command = [sys.executable, "-c", program, str(database)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        committed = [int(process.stdout.readline())]
        complete_lines = (line for line in process.stdout if line.endswith("\n"))  # a kill truncates the last one
        reader = threading.Thread(target=lambda: committed.extend(map(int, complete_lines)))
        reader.start()
        try:
            yield committed
            assert process.poll() is None  # it was writing until now
        finally:
            process.kill()
            reader.join()


def wait_for_another_write(committed: list[int]) -> None:
    before, deadline = len(committed), time.monotonic() + TIMEOUT
    while len(committed) == before:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def write_without_pause(database: str) -> None:
    """Run in the other process: print the id of each account whose commit is durable."""
    with closing(open_writer(Path(database))) as connection:
        for number in range(1001, 10**9):
            connection.execute("BEGIN IMMEDIATE").fetchall()
            databases.add_account(connection, number)
            connection.execute("COMMIT").fetchall()
            print(number, flush=True)  # noqa: T201 - the test reads it


def test_a_backup_is_one_complete_file_readable_by_its_owner_only(database: Path, file: Path) -> None:
    assert backups.back_up(database, file) == file
    assert list_names(file.parent) == ["backup.db", "data"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_bytes()[18:20] == b"\x01\x01"  # the header requests no WAL
    for table in ("accounts", "api_keys", "account_state", "listings", "database_id", "schema_migrations"):
        assert rows(file, f"SELECT * FROM {table}") == rows(database, f"SELECT * FROM {table}")  # noqa: S608 - a constant


@pytest.mark.alone
def test_a_copy_without_a_held_snapshot_restarts_on_every_commit(tmp_path: Path) -> None:
    database = databases.make(tmp_path / "listings.db", listings=300, size=8000)
    with (
        write_in_another_process(database) as committed,
        closing(connect(tmp_path / "copy.db")) as target,
        closing(open_reader(database)) as source,
    ):
        restarts, pages_left = 0, None
        with target.backup("main", source, "main") as backup:
            for _ in range(100):
                backup.step(8)
                restarts += pages_left is not None and backup.remaining > pages_left
                pages_left = backup.remaining
                wait_for_another_write(committed)
        assert restarts > 0  # the next test shows that a backup avoids this


@pytest.mark.alone
def test_a_backup_finishes_while_another_process_writes(tmp_path: Path, file: Path) -> None:
    database = databases.make(tmp_path / "listings.db", listings=300, size=8000)
    pages_left: list[int] = []

    def progress(done: int, pages: int) -> None:
        assert not pages_left or pages - done <= pages_left[-1]  # a restarted copy would have more pages pages_left
        pages_left.append(pages - done)
        wait_for_another_write(committed)

    with write_in_another_process(database) as committed:
        before = committed[-1]
        backups.back_up(database, file, progress=progress)
        assert committed[-1] > before
    assert pages_left[-1] == 0
    assert is_sound(file)
    last = int(str(rows(file, "SELECT max(id) FROM accounts")[0][0]))
    assert last >= before
    # All tables are from the same snapshot.
    assert rows(file, "SELECT count(*) FROM api_keys WHERE id > 1000") == [(last - 1000,)]


def test_the_snapshot_is_released_after_the_copy(database: Path, file: Path) -> None:
    with closing(open_reader(database)) as source:
        snapshot.write_copy(source, file)
        assert source.txn_state() == 0


def test_progress_is_reported_up_to_the_last_page(database: Path, file: Path) -> None:
    reported: list[tuple[int, int]] = []
    backups.back_up(database, file, progress=lambda done, pages: reported.append((done, pages)))
    pages = int(str(rows(file, "PRAGMA page_count")[0][0]))
    assert reported[-1] == (pages, pages)


def test_a_backup_includes_the_wal_of_a_killed_service(tmp_path: Path, file: Path) -> None:
    killed = copy_as_killed(tmp_path / "killed", databases.make(tmp_path / "listings.db"))
    backups.back_up(killed, file)
    assert rows(file, "SELECT name FROM accounts") == [("from the WAL",)]


def test_an_existing_file_is_overwritten_only_with_force(database: Path, file: Path) -> None:
    file.write_text("precious")
    with pytest.raises(Problem, match="exists: name another file") as raised:
        backups.back_up(database, file)
    assert raised.value.code == "backup_refused"
    assert file.read_text() == "precious"
    backups.back_up(database, file, force=True)
    assert is_sound(file)
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_wal_of_an_overwritten_file_is_not_replayed_into_the_backup(
    database: Path, tmp_path: Path, file: Path
) -> None:
    killed = copy_as_killed(tmp_path / "killed", database)
    change(database, "UPDATE accounts SET name = 'current'")
    backups.back_up(database, file)
    shutil.copy(f"{killed}-wal", f"{file}-wal")
    backups.back_up(database, killed, force=True)
    assert rows(killed, "SELECT name FROM accounts") == [("current",)]
    assert list_names(killed.parent) == ["listings.db"]
    assert rows(file, "SELECT name FROM accounts") == [("from the WAL",)]  # SQLite replays any intact WAL


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_side_file_without_its_database_is_deleted_only_with_force(database: Path, file: Path, suffix: str) -> None:
    side_file = file.with_name(f"backup.db{suffix}")
    side_file.write_text("half")
    with pytest.raises(Problem, match=f"{side_file} exists: .* --force") as raised:
        backups.back_up(database, file)
    assert raised.value.code == "backup_refused"
    assert side_file.read_text() == "half"
    backups.back_up(database, file, force=True)
    assert list_names(file.parent) == ["backup.db", "data"]
    assert is_sound(file)


def test_a_file_is_not_overwritten_if_its_side_file_cannot_be_deleted(database: Path, file: Path) -> None:
    file.write_text("precious")
    file.with_name("backup.db-wal").mkdir()
    with pytest.raises(Problem, match=r"backup\.db-wal is not a regular file"):
        backups.back_up(database, file, force=True)
    assert file.read_text() == "precious"


def test_a_database_with_the_name_of_a_side_file_is_not_deleted(tmp_path: Path) -> None:
    database = databases.make(tmp_path / "listings-wal")
    with pytest.raises(Problem, match="belongs to the database itself"):
        backups.back_up(database, tmp_path / "listings", force=True)
    assert is_sound(database)


@pytest.mark.parametrize(
    "suffix", ["", "-wal", "-shm", "-journal", ".lock", ".needs-recovery", ".limits-0000", ".limits-0001"]
)
@pytest.mark.parametrize("exists", [False, True])
def test_a_backup_never_overwrites_the_databases_own_files(database: Path, suffix: str, *, exists: bool) -> None:
    own = Path(f"{database}{suffix}")
    if exists:
        own.touch()
    elif own.exists() and suffix:
        own.unlink()
    before = read_files(database.parent)
    with pytest.raises(Problem, match="belongs to the database itself"):
        backups.back_up(database, own, force=exists)
    assert read_files(database.parent) == before


@pytest.mark.parametrize("alias", ["symbolic link", "hard link", "linked folder", "path with ..", "linked database"])
def test_the_databases_own_files_are_recognised_by_any_name(database: Path, tmp_path: Path, alias: str) -> None:
    other, through = tmp_path / "other.db", database
    if alias == "symbolic link":
        other.symlink_to(database)
    elif alias == "hard link":
        other.hardlink_to(database)
    elif alias == "linked folder":
        (tmp_path / "folder").symlink_to(database.parent)
        other = tmp_path / "folder/listings.db-wal"
    elif alias == "path with ..":
        other = database.parent / ".." / "data" / "listings.db.lock"
    else:
        through = tmp_path / "link.db"
        through.symlink_to(database)
        other = Path(f"{database}-wal")
    with pytest.raises(Problem, match="belongs to the database itself"):
        backups.back_up(through, other, force=True)
    assert is_sound(database)


def test_a_draft_never_overwrites_the_database(tmp_path: Path) -> None:
    database = databases.make(tmp_path / "listings.part")
    with pytest.raises(Problem, match="belongs to the database itself"):
        backups.back_up(database, tmp_path / "listings")
    assert is_sound(database)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere/backup.db", "There is no folder .*/nowhere"),
        ("data", "is a folder"),
        ("data/listings.db/backup.db", "There is no folder"),
        ("pipe", "is not a regular file"),
        ("a" * 300, "can't be written: File name too long"),
        ("a" * 252, "can't be written: File name too long"),  # including .part
        ("nul\0", "can't be written"),
        ("loop", "can't be written|is not a regular file"),  # Python 3.13 and later resolve it
    ],
)
def test_an_invalid_target_is_rejected_without_leaving_files(
    database: Path, tmp_path: Path, target: str, message: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    before = list_names(tmp_path)
    with pytest.raises(Problem, match=message) as raised:
        backups.back_up(database, tmp_path / target, force=True)
    assert raised.value.code == "backup_refused"
    assert list_names(tmp_path) == before


def test_the_stale_draft_of_a_killed_backup_is_replaced(database: Path, file: Path) -> None:
    draft = file.with_name("backup.db.part")
    draft.write_bytes(b"SQLite format 3\0half")
    file.with_name("alice.csv.part").write_text("id,title\n")  # of an export
    journal = draft.with_name("backup.db.part-journal")
    journal.write_text("half")
    assert snapshot.find_stale_drafts(file.parent) == [draft, journal]
    backups.back_up(database, file)
    assert is_sound(file)
    assert list_names(file.parent) == ["alice.csv.part", "backup.db", "data"]


@pytest.mark.parametrize("force", [False, True])
def test_a_file_with_the_name_of_a_draft_is_not_deleted(database: Path, file: Path, *, force: bool) -> None:
    export = file.with_name("backup.db.part")
    export.write_text("id,title\n")
    with pytest.raises(Problem, match=f"{export} is not an unfinished backup: move it") as raised:
        backups.back_up(database, file, force=force)
    assert raised.value.code == "backup_refused"
    assert export.read_text() == "id,title\n"
    assert list_names(file.parent) == ["backup.db.part", "data"]


def test_a_pipe_with_the_name_of_a_draft_is_not_opened(database: Path, file: Path) -> None:
    os.mkfifo(file.with_name("backup.db.part"))
    with pytest.raises(Problem, match="is not an unfinished backup"):
        backups.back_up(database, file)


def test_a_second_backup_to_the_same_file_is_rejected(database: Path, file: Path) -> None:
    codes: list[str] = []

    def progress(done: int, pages: int) -> None:
        if done == pages and not codes:
            assert snapshot.find_stale_drafts(file.parent) == []
            with pytest.raises(Problem, match="Another backup is writing") as raised:
                backups.back_up(database, file)
            codes.append(raised.value.code)

    backups.back_up(database, file, progress=progress)
    assert codes == ["backup_refused"]
    assert is_sound(file)


def test_a_file_created_during_the_backup_is_not_overwritten(database: Path, file: Path) -> None:
    def progress(*_: int) -> None:
        file.write_text("precious")

    with pytest.raises(Problem, match="exists: name another file"):
        backups.back_up(database, file, progress=progress)
    assert file.read_text() == "precious"
    assert list_names(file.parent) == ["backup.db", "data"]


def test_a_damaged_database_is_not_backed_up(tmp_path: Path, file: Path) -> None:
    database = databases.make(tmp_path / "data" / "listings.db", listings=50, size=3000)
    databases.damage(database)
    with pytest.raises(Unavailable, match="damaged"):
        backups.back_up(database, file)
    assert list_names(tmp_path) == ["data"]


def test_a_missing_or_unmigrated_database_is_rejected(tmp_path: Path, file: Path) -> None:
    with pytest.raises(Problem) as raised:
        backups.back_up(tmp_path / "listings.db", file)
    assert raised.value.code == "database_missing"
    (tmp_path / "listings.db").touch()
    with pytest.raises(Problem, match="older schema"):
        backups.back_up(tmp_path / "listings.db", file)
    assert list_names(tmp_path) == ["listings.db"]


def test_a_full_disk_leaves_no_partial_files(tmp_path: Path) -> None:
    namespace = ["unshare", "-m" if os.geteuid() == 0 else "-Urm"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk is not permitted on this machine")
    small, elsewhere = tmp_path / "small", tmp_path / "elsewhere"
    small.mkdir()
    elsewhere.mkdir()
    program = [sys.executable, "-m", "tests.store.sqlite.small_disk", str(small), str(elsewhere)]
    command = [*namespace, "sh", "-c", ON_A_SMALL_DISK, "sh", str(small), *program]
    outcome = run_program(command, cwd=ROOT)
    *messages, remaining, small_state, tiny_state = outcome.stdout.splitlines()
    assert len(messages) == 6, outcome
    for message in messages:
        assert message.startswith("Not enough disk space ")
    assert set(remaining.split()) == {
        *("listings.db", "listings.db.lock", "listings.db.last-backup", "tiny.db", "tiny.db.lock", "new.db.lock"),
        *("lost.db-journal", "lost.db.lock"),  # without an empty database, with which SQLite would remove the journal
    }
    assert (small_state, tiny_state) == ("True 100", "True 3")


def test_a_limit_of_file_sizes_leaves_no_partial_file(database: Path, file: Path) -> None:
    before, (soft, hard) = list_names(file.parent), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (database.stat().st_size // 2, hard))
    try:
        with pytest.raises(Problem, match="can't be written: the disk failed, or a size limit was reached"):
            backups.back_up(database, file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list_names(file.parent) == before


def test_copies_within_one_second_get_different_names(database: Path) -> None:
    with closing(open_reader(database)) as source:
        copies = {snapshot.copy_aside(source, database, "before-0002") for _ in range(4)}
    assert len(copies) == 4
    assert all(is_sound(path) for path in copies)
