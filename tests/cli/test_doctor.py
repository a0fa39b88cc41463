"""`listings doctor`: every check, when all is well and when it is not; and that it changes nothing."""

import json
import os
import resource
import shutil
import signal
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import apsw
import pytest

from listings.cli import checks
from listings.ratelimit.mapped import list_log_files
from listings.store.migrations import UNFINISHED_COPY
from listings.store.sqlite.connections import open_writer
from tests.cli import terminal
from tests.cli.commands import DEADLINE, PROGRAM, Cli, Data, Program, Serving
from tests.cli.crowds import until
from tests.store import databases
from tests.store.databases import change

CHECKS = [
    "settings",
    "database",
    "integrity",
    "schema",
    "stored times",
    "file rights",
    "folder rights",
    "owner",
    "disk",
    "WAL",
    "rate limit files",
    "drafts",
    "clock",
    "SQLite",
    "rate limit",
    "open files",
    "workers",
    "service",
]


@pytest.fixture(autouse=True)
def nothing_listens(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:  # noqa: ARG001 - which empties the environment
    """Whatever else runs on this machine, port 1 is nobody's."""
    monkeypatch.setenv("LISTINGS_PORT", "1")


def findings(cli: Cli, *, code: int = 0) -> dict[str, Data]:
    outcome = cli("doctor", "--json")
    assert (outcome.code, outcome.err) == (code, "")
    found = [json.loads(line) for line in outcome.out.splitlines()]
    assert code == int(any(row["verdict"] == "fault" for row in found))
    for row in found:
        assert list(row) == ["check", "verdict", "found", "advice"]
        assert (row["advice"] is None) == (row["verdict"] == "ok"), row
    return {row["check"]: row for row in found}


def finding(cli: Cli, check: str, verdict: str) -> Data:
    """The one check that is not well."""
    found = findings(cli, code=int(verdict == "fault"))
    assert found[check]["verdict"] == verdict, found
    others = {row["check"]: row for row in found.values() if row["verdict"] != "ok" and row["check"] != check}
    assert others == {}
    return found[check]


def contents(folder: Path) -> dict[str, tuple[bytes, int, float]]:
    return {
        str(path.relative_to(folder)): (
            path.read_bytes() if path.is_file() else b"",
            path.stat().st_mode,
            path.stat().st_mtime_ns,
        )
        for path in [folder, *folder.rglob("*")]
    }


# All is well


@pytest.mark.usefixtures("database")
def test_when_all_is_well_every_check_says_so(cli: Cli) -> None:
    found = findings(cli)
    assert list(found) == CHECKS
    assert {row["verdict"] for row in found.values()} == {"ok"}


@pytest.mark.usefixtures("database")
def test_people_get_a_table_in_colour_on_a_terminal_alone(cli: Cli) -> None:
    lines = cli.done("doctor").out.splitlines()
    assert lines[0].split() == ["check", "verdict", "found", "advice"]
    assert [line.split("  ")[0] for line in lines[1:]] == CHECKS
    assert "\x1b" not in "".join(lines)
    code, written = terminal.run(cli.folder, "doctor", stream="stdout", environment={"LISTINGS_PORT": "1"})
    assert code == 0
    assert "\x1b[32mok" in written


def test_a_service_that_runs_is_found_well(
    alice: Data, cli: Cli, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = cli.key(alice)["key"]
    with program.serve() as service:
        service.create(key)
        outcome = program.run("doctor", "--json")  # its own port is another
        assert outcome.code == 0, outcome
        port = service.base_url.rpartition(":")[2]
        monkeypatch.setattr(checks, "_ANSWER_SECONDS", DEADLINE)
        monkeypatch.setenv("LISTINGS_PORT", port)
        found = findings(cli)
    assert found["service"]["found"] == f"It is ready at 127.0.0.1:{port}"
    assert {row["verdict"] for row in found.values()} == {"ok"}
    assert found["rate limit files"]["found"] == "1, of this database"


# Nothing is changed


def left_as_killed(folder: Path) -> None:
    """The files of a service that was killed: a WAL, and its index."""
    database = folder / "data/listings.db"
    with closing(open_writer(database)) as writer:
        writer.execute("UPDATE accounts SET name = 'from the WAL'").fetchall()
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(f"{database}{suffix}", folder / f"listings.db{suffix}")
    for suffix in ("", "-wal", "-shm"):
        shutil.move(folder / f"listings.db{suffix}", f"{database}{suffix}")


@pytest.mark.usefixtures("alice")
@pytest.mark.parametrize("state", ["stopped", "killed", "damaged", "drafts", "rights", "empty"])
def test_no_byte_on_the_disk_is_changed(cli: Cli, state: str) -> None:
    database = cli.folder / "data/listings.db"
    if state == "killed":
        left_as_killed(cli.folder)
    elif state == "damaged":
        databases.damage(database)
    elif state == "drafts":
        (cli.folder / "data/backup.db.part").write_text("half")
    elif state == "rights":
        database.chmod(0o666)
    elif state == "empty":
        database.write_bytes(b"")
    before = contents(cli.folder)
    cli("doctor")
    cli("doctor", "--json")
    assert contents(cli.folder) == before


def test_nor_while_the_service_runs(cli: Cli, alice: Data, service: Serving) -> None:
    key = cli.key(alice)["key"]
    service.create(key)
    until(lambda: databases.rows(cli.folder / "data/listings.db", "SELECT serial FROM market"))
    until(lambda: databases.rows(cli.folder / "data/listings.db", "SELECT hour FROM usage_hours"))
    service.process.send_signal(signal.SIGSTOP)  # so that only the doctor could write
    os.waitid(os.P_PID, service.process.pid, os.WSTOPPED | os.WNOWAIT)
    before = contents(cli.folder)
    Program(cli.folder).run("doctor")
    assert contents(cli.folder) == before


def test_where_there_is_nothing_nothing_is_made(cli: Cli) -> None:
    said = finding(cli, "database", "fault")
    assert str(cli.folder / "data/listings.db") in said["found"]
    assert "`listings migrate`" in said["advice"]
    assert list(cli.folder.iterdir()) == []


@pytest.mark.usefixtures("alice")
@pytest.mark.parametrize("state", ["missing", "empty"])
def test_what_is_left_of_a_database_that_is_gone_is_named_and_not_touched(cli: Cli, state: str) -> None:
    left_as_killed(cli.folder)
    database = cli.folder / "data/listings.db"
    database.unlink()
    if state == "empty":
        database.touch()
    before = contents(cli.folder)
    said = finding(cli, "database", "fault")
    assert said["found"] == f"The database {database} is missing, but {database}-wal still contains writes to it"
    assert "Put the file back, restore a backup" in said["advice"]
    assert contents(cli.folder) == before


# What is not well


@pytest.mark.usefixtures("database")
def test_a_wrong_setting(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTINGS_RATE_WINDOW", "an hour")
    assert finding(cli, "settings", "fault")["found"].startswith("LISTINGS_RATE_WINDOW must be ")


@pytest.mark.usefixtures("database")
def test_a_name_that_is_no_setting(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTINGS_RATELIMIT", "5")
    assert "LISTINGS_RATELIMIT" in finding(cli, "settings", "warning")["found"]


def test_a_wrong_place_of_the_database_leaves_the_other_checks(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTINGS_DATABASE_URL", "mysql://localhost/listings")
    found = findings(cli, code=1)
    assert list(found) == ["settings", "clock", "SQLite", "rate limit", "open files", "workers", "service"]
    assert found["settings"]["verdict"] == "fault"


@pytest.mark.parametrize("url", ["sqlite:///folder", "sqlite:///file/listings.db", "sqlite:///" + "a" * 300])
def test_a_path_that_cannot_be_a_database(cli: Cli, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    (cli.folder / "folder").mkdir()
    (cli.folder / "file").touch()
    monkeypatch.setenv("LISTINGS_DATABASE_URL", url)
    assert "fault" in {row["verdict"] for row in findings(cli, code=1).values()}


@pytest.mark.parametrize(
    ("mode", "verdict", "said"), [(0o660, "fault", "write"), (0o602, "fault", "write"), (0o644, "warning", "read")]
)
@pytest.mark.parametrize("suffix", ["", ".lock"])
def test_rights_of_the_files(cli: Cli, database: Path, mode: int, verdict: str, said: str, suffix: str) -> None:
    path = Path(f"{database}{suffix}")
    path.chmod(mode)
    row = finding(cli, "file rights", verdict)
    assert row["found"] == f"Others can {said} {path}"
    subprocess.run(["sh", "-ec", row["advice"].split("`")[1]], check=True)
    assert findings(cli)["file rights"]["verdict"] == "ok"


def test_rights_of_the_folder(cli: Cli, database: Path) -> None:
    database.parent.chmod(0o777)
    row = finding(cli, "folder rights", "fault")
    assert row["found"] == f"Everybody can write in {database.parent}"
    subprocess.run(["sh", "-ec", row["advice"].split("`")[1]], check=True)
    assert findings(cli)["folder rights"]["verdict"] == "ok"


@pytest.mark.parametrize(
    ("closed", "check", "said"), [("data", "folder rights", "can't write in"), ("listings.db", "owner", "can't read")]
)
def test_what_this_user_cannot_write(
    cli: Cli, database: Path, monkeypatch: pytest.MonkeyPatch, closed: str, check: str, said: str
) -> None:
    allowed = os.access

    def access(path: Any, mode: int) -> bool:  # root may write everywhere
        return Path(path).name != closed and allowed(path, mode)

    monkeypatch.setattr(os, "access", access)
    row = finding(cli, check, "fault")
    assert said in row["found"]
    assert str(database.parent) in row["found"]


def test_a_database_of_another_user(cli: Cli, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = database.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 12_345)
    assert f"user {owner + 12_345}" in finding(cli, "owner", "warning")["found"]


@pytest.mark.usefixtures("alice")
def test_a_damaged_page(cli: Cli, database: Path) -> None:
    databases.damage(database)
    row = finding(cli, "integrity", "fault")
    assert "damaged" in row["found"]
    assert "`listings restore FILE --force`" in row["advice"]


def test_what_is_no_database(cli: Cli, database: Path) -> None:
    database.write_text("no database " * 1000)
    row = finding(cli, "integrity", "fault")
    assert "damaged: file is not a database" in row["found"]
    assert row["advice"].startswith(
        "Check that LISTINGS_DATABASE_URL names the right file. If it does: stop the service"
    )


def test_what_this_user_cannot_read_is_no_reason_to_restore(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (cli.folder / "data/listings.db").mkdir(parents=True)  # root may read every file, but no folder as one
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # noqa: ARG005 - the system's names
    row = findings(cli, code=1)["integrity"]
    assert "can't be read: " in row["found"]
    assert row["advice"] == "Run this as the user that the service runs as, or give that user the files"


def test_another_programs_database(cli: Cli, database: Path) -> None:
    change(database, "DROP TABLE schema_migrations", "ALTER TABLE accounts RENAME COLUMN created_at TO since")
    row = finding(cli, "schema", "fault")
    assert row["found"] == f"{database} is not a Listings database"
    assert row["advice"] == "Check that LISTINGS_DATABASE_URL names the right file"


def test_an_unfinished_copy(cli: Cli, database: Path) -> None:
    change(database, f"INSERT INTO schema_migrations VALUES ({UNFINISHED_COPY}, 'copy', 'x', 0)")  # noqa: S608 - ours
    row = finding(cli, "schema", "fault")
    assert (row["found"], row["advice"]) == (
        "The database is an unfinished copy",
        "Run `listings copy` again to finish it",
    )


@pytest.mark.usefixtures("alice")
def test_a_row_that_refers_to_nothing(cli: Cli, database: Path) -> None:
    change(database, "PRAGMA foreign_keys = OFF", "DELETE FROM accounts")
    assert "1 rows refer to rows that do not exist" in finding(cli, "integrity", "fault")["found"]


@pytest.mark.parametrize("beside", ["-journal", "-wal"])
def test_what_a_look_would_change(cli: Cli, database: Path, beside: str) -> None:
    path = Path(f"{database}{beside}")
    path.write_text("half")
    path.chmod(0o600)
    assert "`listings migrate`" in finding(cli, "integrity", "warning")["advice"]


def test_a_newer_schema(cli: Cli, database: Path) -> None:
    change(database, "INSERT INTO schema_migrations VALUES (9999, 'later', 'x', 0)")
    row = finding(cli, "schema", "fault")
    assert row["found"] == "The database has a newer schema than this program"
    assert row["advice"] == "Install a newer version of Listings"


def test_an_altered_schema(cli: Cli, database: Path) -> None:
    change(database, "UPDATE schema_migrations SET checksum = 'x'")
    assert "differs" in finding(cli, "schema", "fault")["found"]


def test_an_older_schema(cli: Cli, database: Path) -> None:
    change(database, "DELETE FROM schema_migrations")
    assert "`listings migrate`" in finding(cli, "schema", "warning")["advice"]


@pytest.mark.usefixtures("alice")
@pytest.mark.parametrize("column", ["accounts.created_at", "schema_migrations.applied_at", "api_keys.revoked_at"])
def test_a_stored_time_in_the_future(cli: Cli, database: Path, column: str) -> None:
    cli.key({"id": 1})
    table, name = column.split(".")
    change(database, f"UPDATE {table} SET {name} = unixepoch('now') + 250")  # noqa: S608 - ours
    assert findings(cli)["stored times"]["verdict"] == "ok"
    change(database, f"UPDATE {table} SET {name} = unixepoch('2099-01-01')")  # noqa: S608 - ours
    assert "2099-01-01 00:00:00" in finding(cli, "stored times", "warning")["found"]


def test_a_listing_of_the_future(cli: Cli, alice: Data, database: Path, program: Program) -> None:
    key = cli.key(alice)["key"]
    with program.serve() as service:
        service.create(key)
    change(database, "UPDATE listings SET updated_at = '2099-01-01 00:00:00'")
    assert "2099-01-01 00:00:00" in finding(cli, "stored times", "warning")["found"]


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("moment", [0, 1_600_000_000, 5_000_000_000])
def test_a_clock_in_another_age(cli: Cli, monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    monkeypatch.setattr(time, "time", lambda: moment)
    assert findings(cli, code=1)["clock"]["verdict"] == "fault"


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("free", "verdict"), [(1024**3 // 4096, "ok"), (1024**3 // 4096 - 1, "warning"), (64 * 256 - 1, "fault")]
)
def test_the_room_on_the_disk(cli: Cli, monkeypatch: pytest.MonkeyPatch, free: int, verdict: str) -> None:
    fields = list(os.statvfs(cli.folder))
    fields[1], fields[4] = 4096, free  # f_frsize, f_bavail
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    row = findings(cli, code=int(verdict == "fault"))["disk"]
    assert row["verdict"] == verdict
    assert row["found"] == f"{free * 4096 // 1024**2} MiB are free"


@pytest.mark.usefixtures("database")
def test_an_old_sqlite(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    assert "can corrupt" in findings(cli, code=1)["SQLite"]["found"]


def test_a_large_wal(cli: Cli, database: Path) -> None:
    wal = Path(f"{database}-wal")
    with closing(open_writer(database)) as writer:
        writer.execute("PRAGMA user_version = 1").fetchall()
        os.truncate(wal, 64 * 1024 * 1024)
        assert finding_elsewhere(cli, "WAL")["verdict"] == "ok"
        os.truncate(wal, 64 * 1024 * 1024 + 1)
        row = finding_elsewhere(cli, "WAL")
    assert row["verdict"] == "warning"
    assert "snapshot" in row["advice"]


def finding_elsewhere(cli: Cli, check: str) -> Data:
    """By a process of its own, since closing a file here would give up the locks of this one."""
    outcome = Program(cli.folder, LISTINGS_PORT="1").run("doctor", "--json")
    (row,) = (row for row in map(json.loads, outcome.out.splitlines()) if row["check"] == check)
    data: Data = row
    return data


@pytest.mark.usefixtures("database")
def test_drafts_of_killed_backups(cli: Cli) -> None:
    draft = cli.folder / "data/backup.db.part"
    draft.touch()
    row = finding(cli, "drafts", "warning")
    assert str(draft) in row["found"]
    subprocess.run(["sh", "-ec", row["advice"].split("`")[1]], check=True)
    assert findings(cli)["drafts"]["verdict"] == "ok"


@pytest.mark.usefixtures("database")
def test_too_few_open_files(cli: Cli) -> None:
    command = ["sh", "-c", 'ulimit -n 1000 && exec "$@"', "sh", str(PROGRAM), "doctor", "--json"]
    outcome = subprocess.run(command, cwd=cli.folder, capture_output=True, text=True, check=True)
    (row,) = (row for row in map(json.loads, outcome.stdout.splitlines()) if row["check"] == "open files")
    assert row["verdict"] == "warning"
    assert row["found"] == "1000 are allowed here, enough for 936 of 10000 connections"


@pytest.mark.usefixtures("database")
def test_enough_open_files_without_a_limit(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))
    assert findings(cli)["open files"]["verdict"] == "ok"


def test_more_workers_than_processors_are_a_warning(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    processors = len(os.sched_getaffinity(0))
    monkeypatch.setenv("LISTINGS_WORKERS", str(processors + 1))
    found = findings(cli, code=1)["workers"]
    assert (found["verdict"], found["found"]) == ("warning", f"{processors + 1} on {processors} processors")
    assert f"LISTINGS_WORKERS to {processors}" in found["advice"]


# The files of the rate limit


@pytest.fixture
def limits(cli: Cli, alice: Data, program: Program) -> Path:
    """A file of the log that a service has made and used."""
    key = cli.key(alice)["key"]
    with program.serve() as service:
        service.create(key)
    return cli.folder / "data/listings.db.limits-0000"


def test_the_files_of_the_log_are_read_without_a_change(cli: Cli, limits: Path, database: Path) -> None:
    before = limits.stat()
    (file,) = list_log_files(database)
    assert (file.path, file.is_valid) == (limits, True)
    assert databases.rows(database, "SELECT id FROM database_id") == [(file.database_id,)]
    assert limits.stat().st_mtime_ns == before.st_mtime_ns
    assert findings(cli)["rate limit files"]["found"] == "1, of this database"


def overwrite(path: Path, place: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(content)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: overwrite(path, 32, b"f" * 32), "of another database"),
        (lambda path: overwrite(path, 0, b"LSTLIM99"), "is damaged"),
        (lambda path: os.truncate(path, 100_000), "is damaged"),
        (lambda path: os.truncate(path, 0), "is damaged"),
        (lambda path: path.chmod(0o640), "Others can use"),
    ],
)
def test_a_file_of_the_log_that_is_not_as_it_should_be(
    cli: Cli, limits: Path, spoil: Callable[[Path], None], said: str
) -> None:
    spoil(limits)
    row = finding(cli, "rate limit files", "warning")
    assert said in row["found"]
    assert str(limits) in row["found"]


@pytest.mark.usefixtures("database")
def test_a_file_of_the_log_that_cannot_be_read(cli: Cli) -> None:
    (cli.folder / "data/listings.db.limits-0000").mkdir()
    assert "limits-0000" in finding(cli, "rate limit files", "fault")["found"]


def test_without_a_limit_its_files_are_nobodys_business(
    cli: Cli, limits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits.write_text("whatever")
    monkeypatch.setenv("LISTINGS_RATE_LIMIT", "0")
    assert findings(cli)["rate limit files"]["found"] == "There are none to be"


# What answers at the service's address


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield str(server.server_address[1])
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("status", "body", "verdict", "said"),
    [
        (200, b'{"status": "ready"}', "ok", "It is ready at 127.0.0.1:"),
        (200, b'{"status": "ready", "rate_limit": "all machines that use this Redis"}', "ok", "It is ready at"),
        (
            200,
            b'{"status": "ready", "rate_limit": "this machine, since Redis is away"}',
            "warning",
            "counts the rate limit over this machine, since Redis is away",
        ),
        (200, b'{"status": "ready", "version": 3}', "warning", "is not Listings"),
        (200, b'["ready"]', "warning", "is not Listings"),
        (503, b'{"error": "The disk is almost full"}', "fault", "The disk is almost full"),
        (503, b"Bad gateway", "warning", "is not Listings"),
        (200, b"<h1>It works</h1>", "warning", "is not Listings"),
        (404, b'{"error": "no"}', "warning", "is not Listings"),
    ],
)
def test_what_the_service_answers(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, verdict: str, said: str
) -> None:
    monkeypatch.setattr(checks, "_ANSWER_SECONDS", DEADLINE)
    with answering(status, body) as port:
        monkeypatch.setenv("LISTINGS_PORT", port)
        monkeypatch.setenv("LISTINGS_HOST", "0.0.0.0")  # noqa: S104 - nothing listens
        row = findings(cli, code=int(verdict == "fault"))["service"]
    assert row["verdict"] == verdict
    assert said in row["found"]


@pytest.mark.usefixtures("database")
def test_a_service_that_does_not_answer(cli: Cli, monkeypatch: pytest.MonkeyPatch, taken_port: str) -> None:
    monkeypatch.setenv("LISTINGS_PORT", taken_port)
    assert "does not answer" in finding(cli, "service", "warning")["found"]


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(("port", "said"), [("1", "It does not run at 127.0.0.1:1"), ("0", "so it was not asked")])
def test_a_service_that_does_not_run_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch, port: str, said: str) -> None:
    monkeypatch.setenv("LISTINGS_PORT", port)
    assert said in findings(cli)["service"]["found"]
