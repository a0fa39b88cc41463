"""`listings doctor`: every check with and without a problem, and that the command changes nothing."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from listings.cli import doctor
from listings.ratelimit.mapped_file import list_log_files
from listings.store.migrations import UNFINISHED_COPY, shipped_migrations
from listings.store.sqlite.connections import open_writer
from listings.store.sqlite.maintenance import migrate
from tests.cli import terminal
from tests.cli.commands import DEADLINE, PROGRAM, Cli, Data, Program, Serving
from tests.cli.fixed_response import responding
from tests.processes import run_program
from tests.store import databases
from tests.store.databases import change
from tests.waiting import until

CHECKS = [
    "settings",
    "clock",
    "rate limit",
    "open files",
    "workers",
    "service",
    "SQLite",
    "database",
    "file permissions",
    "folder permissions",
    "owner",
    "disk",
    "WAL",
    "unfinished backups",
    "copies",
    "rate limit files",
    "last backup",
    "schema",
    "stored times",
    "plan requests",
    "mail",
    "integrity",
    "pictures",
    "search index",
]


@pytest.fixture(autouse=True)
def unused_service_port(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:  # noqa: ARG001 - clears the environment
    monkeypatch.setenv("LISTINGS_PORT", "1")


def run_doctor(cli: Cli, *options: str, code: int = 0) -> dict[str, Data]:
    outcome = cli("doctor", "--json", *(options or ("--offline",)))
    assert (outcome.code, outcome.err) == (code, "")
    found = [json.loads(line) for line in outcome.out.splitlines()]
    assert code == int(any(row["verdict"] == "fault" for row in found))
    for row in found:
        assert list(row) == ["check", "verdict", "found", "advice"]
        assert (row["advice"] is None) == (row["verdict"] == "ok"), row
    return {row["check"]: row for row in found}


def get_problem(cli: Cli, check: str, verdict: str, *options: str) -> Data:
    found = run_doctor(cli, *options, code=int(verdict == "fault"))
    assert found[check]["verdict"] == verdict, found
    others = {row["check"]: row for row in found.values() if row["verdict"] != "ok" and row["check"] != check}
    assert others == {}
    return found[check]


def snapshot(folder: Path, *, with_index: bool = True) -> dict[str, tuple[bytes, int, float]]:
    paths = [folder]
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if with_index or not name.endswith(".search")]
        paths += [Path(parent, name) for name in (*folders, *files)]
    return {
        str(path.relative_to(folder)): (
            path.read_bytes() if path.is_file() else b"",
            path.stat().st_mode,
            path.stat().st_mtime_ns,
        )
        for path in paths
    }


@pytest.mark.usefixtures("database")
def test_every_check_is_ok_on_a_good_installation(cli: Cli) -> None:
    found = run_doctor(cli)
    assert list(found) == CHECKS
    assert {row["verdict"] for row in found.values()} == {"ok"}


@pytest.mark.covers_programs
@pytest.mark.usefixtures("database")
def test_the_table_has_colours_only_on_a_terminal(cli: Cli) -> None:
    lines = cli.run_ok("doctor", "--offline").out.splitlines()
    assert lines[0].split() == ["check", "verdict", "found", "advice"]
    assert [line.split("  ")[0] for line in lines[1:]] == CHECKS
    assert "\x1b" not in "".join(lines)
    code, written = terminal.run(cli.folder, "doctor", "--offline", stream="stdout", environment={"LISTINGS_PORT": "1"})
    assert code == 0
    assert "\x1b[32mok" in written


def test_a_running_service_is_ok(alice: Data, cli: Cli, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    key = cli.key(alice)["key"]
    with program.serve() as service:
        service.create(key)
        outcome = program.run("doctor", "--json", "--offline")  # with another port
        assert outcome.code == 0, outcome
        port = service.base_url.rpartition(":")[2]
        monkeypatch.setattr(doctor, "_RESPONSE_TIMEOUT_SECONDS", DEADLINE)
        monkeypatch.setenv("LISTINGS_PORT", port)
        found = run_doctor(cli)
    assert found["service"]["found"] == f"Ready at 127.0.0.1:{port}"
    assert {row["verdict"] for row in found.values()} == {"ok"}
    assert found["rate limit files"]["found"] == "1 file, of this database"


def leave_wal(folder: Path) -> None:
    database = folder / "data/listings.db"
    with closing(open_writer(database)) as writer:
        writer.execute("UPDATE accounts SET name = 'from the WAL'").fetchall()
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(f"{database}{suffix}", folder / f"listings.db{suffix}")
    for suffix in ("", "-wal", "-shm"):
        shutil.move(folder / f"listings.db{suffix}", f"{database}{suffix}")


@pytest.mark.usefixtures("alice")
@pytest.mark.parametrize("state", ["stopped", "killed", "damaged", "drafts", "rights", "empty"])
def test_doctor_changes_no_file(cli: Cli, state: str) -> None:
    database = cli.folder / "data/listings.db"
    if state == "killed":
        leave_wal(cli.folder)
    elif state == "damaged":
        databases.damage(database)
    elif state == "drafts":
        (cli.folder / "data/backup.db.part").write_bytes(b"SQLite format 3\0half")
    elif state == "rights":
        database.chmod(0o666)
    elif state == "empty":
        database.write_bytes(b"")
    before = snapshot(cli.folder)
    cli("doctor")
    cli("doctor", "--json", "--full")
    assert snapshot(cli.folder) == before


def test_doctor_changes_no_file_while_the_service_runs(cli: Cli, alice: Data, service: Serving) -> None:
    key = cli.key(alice)["key"]
    service.create(key)
    until(lambda: databases.rows(cli.folder / "data/listings.db", "SELECT serial FROM market_listings"))
    until(lambda: databases.rows(cli.folder / "data/listings.db", "SELECT hour FROM usage_hours"))
    until((cli.folder / "data/listings.db.search").exists)
    service.process.send_signal(signal.SIGSTOP)  # so that only doctor could write
    os.waitid(os.P_PID, service.process.pid, os.WSTOPPED | os.WNOWAIT)
    before = snapshot(cli.folder, with_index=False)  # its process is still running
    Program(cli.folder).run("doctor", "--full")
    assert snapshot(cli.folder, with_index=False) == before


def test_a_missing_database_is_a_fault_and_not_created(cli: Cli) -> None:
    row = get_problem(cli, "database", "fault")
    assert str(cli.folder / "data/listings.db") in row["found"]
    assert "`listings migrate`" in row["advice"]
    assert list(cli.folder.iterdir()) == []


@pytest.mark.usefixtures("alice")
@pytest.mark.parametrize("state", ["missing", "empty"])
def test_the_wal_of_a_missing_database_is_reported_and_preserved(cli: Cli, state: str) -> None:
    leave_wal(cli.folder)
    database = cli.folder / "data/listings.db"
    database.unlink()
    if state == "empty":
        database.touch()
    before = snapshot(cli.folder)
    row = get_problem(cli, "database", "fault")
    assert row["found"].startswith(f"The database {database} is missing or empty, but {database}-wal still contains")
    assert "Put the file back, restore a backup" in row["advice"]
    assert snapshot(cli.folder) == before


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("name", "value", "verdict", "found"),
    [
        ("RATELIMIT", "5", "warning", "LISTINGS_RATELIMIT"),
        ("RATE_WINDOW", "an hour", "fault", "LISTINGS_RATE_WINDOW must be "),
        ("DELETED_DAYS", "5", "fault", "at least LISTINGS_CHANGE_DAYS"),
        ("SMTP_URL", "smtp://127.0.0.1", "fault", "_SMTP_URL is set, which needs LISTINGS_MAIL_FROM: set it"),
        ("PAYMENT_PROVIDER", "stripe", "fault", "is stripe, which needs LISTINGS_STRIPE_SECRET_KEY: set it"),
    ],
)
def test_an_unusable_setting(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str, verdict: str, found: str
) -> None:
    monkeypatch.setenv(f"LISTINGS_{name}", value)
    assert found in get_problem(cli, "settings", verdict)["found"]
    if verdict == "fault":
        assert found in cli.get_error("serve")


@pytest.mark.usefixtures("database")
def test_metrics_are_not_served_and_traces_are_checked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTINGS_TRACING", "on")
    with socket.create_server(("127.0.0.1", 0)) as used:
        monkeypatch.setenv("LISTINGS_METRICS_ADDRESS", f"127.0.0.1:{used.getsockname()[1]}")
        assert run_doctor(cli)["settings"]["verdict"] == "ok"
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "-1")
    assert "OTEL_ variables" in get_problem(cli, "settings", "fault")["found"]


def test_an_invalid_database_url_skips_only_database_checks(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTINGS_DATABASE_URL", "mysql://localhost/listings")
    found = run_doctor(cli, code=1)
    assert list(found) == ["settings", "clock", "rate limit", "open files", "workers", "service"]
    assert found["settings"]["verdict"] == "fault"


@pytest.mark.parametrize(
    ("mode", "verdict", "access"), [(0o660, "fault", "write"), (0o602, "fault", "write"), (0o644, "warning", "read")]
)
@pytest.mark.parametrize("suffix", ["", ".lock"])
def test_permissions_of_the_files(cli: Cli, database: Path, mode: int, verdict: str, access: str, suffix: str) -> None:
    path = Path(f"{database}{suffix}")
    path.chmod(mode)
    row = get_problem(cli, "file permissions", verdict)
    assert row["found"] == f"Other users can {access} {path}"
    subprocess.run(["sh", "-ec", row["advice"].split("`")[1]], check=True)
    assert run_doctor(cli)["file permissions"]["verdict"] == "ok"


def test_permissions_of_the_folder(cli: Cli, database: Path) -> None:
    database.parent.chmod(0o777)
    row = get_problem(cli, "folder permissions", "fault")
    assert row["found"] == f"Everybody can write in {database.parent}"
    subprocess.run(["sh", "-ec", row["advice"].split("`")[1]], check=True)
    assert run_doctor(cli)["folder permissions"]["verdict"] == "ok"


@pytest.mark.parametrize(
    ("closed", "check", "expected"),
    [("data", "folder permissions", "can't write in"), ("listings.db", "owner", "can't read")],
)
def test_files_that_the_user_cannot_write(
    cli: Cli, database: Path, monkeypatch: pytest.MonkeyPatch, closed: str, check: str, expected: str
) -> None:
    allowed = os.access

    def access(path: Any, mode: int) -> bool:  # root can write everywhere
        return Path(path).name != closed and allowed(path, mode)

    monkeypatch.setattr(os, "access", access)
    row = get_problem(cli, check, "fault")
    assert expected in row["found"]
    assert str(database.parent) in row["found"]


def test_a_database_of_another_user(cli: Cli, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = database.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 12_345)
    assert f"user {owner + 12_345}" in get_problem(cli, "owner", "warning")["found"]


@pytest.mark.usefixtures("alice")
def test_a_damaged_page(cli: Cli, database: Path) -> None:
    assert run_doctor(cli, "--offline", "--full")["integrity"]["found"] == "All pages and references are intact"
    databases.damage(database)
    row = get_problem(cli, "integrity", "fault", "--offline", "--full")
    assert "damaged" in row["found"]
    assert "`listings restore FILE --force`" in row["advice"]


def test_a_file_that_is_not_a_database(cli: Cli, database: Path) -> None:
    database.write_text("no database " * 1000)
    row = get_problem(cli, "integrity", "fault")
    assert "damaged: file is not a database" in row["found"]
    assert row["advice"].startswith("Check that LISTINGS_DATABASE_URL is the right file. If it is: stop the service")


def test_unreadable_files_are_not_reported_as_damaged(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (cli.folder / "data/listings.db").mkdir(parents=True)  # root can read every file, but not a folder
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # noqa: ARG005 - names of os.access
    row = run_doctor(cli, code=1)["integrity"]
    assert "can't be read: " in row["found"]
    assert row["advice"] == "Run this command as the service's user, or give that user access to the files"


@pytest.mark.parametrize(
    ("statement", "found", "advice"),
    [
        (
            "DROP TABLE schema_migrations; ALTER TABLE accounts RENAME COLUMN created_at TO since",
            "listings.db is not a Listings database",
            "Check that LISTINGS_DATABASE_URL names the right file",
        ),
        (
            f"INSERT INTO schema_migrations VALUES ({UNFINISHED_COPY}, 'copy', 'x', 0)",  # noqa: S608 - constants
            "The database is an unfinished copy",
            "Run `listings copy` again to finish it",
        ),
        (
            "INSERT INTO schema_migrations VALUES (9999, 'later', 'x', 0)",
            "The database has a newer schema than this program",
            "Install a newer version of Listings",
        ),
        ("UPDATE schema_migrations SET checksum = 'x'", "differs from the one in this program", ""),
    ],
)
def test_another_schema(cli: Cli, database: Path, statement: str, found: str, advice: str) -> None:
    change(database, statement)
    row = get_problem(cli, "schema", "fault")
    assert found in row["found"]
    assert advice in row["advice"]


@pytest.mark.usefixtures("alice")
def test_a_row_that_refers_to_a_missing_row(cli: Cli, database: Path) -> None:
    change(database, "PRAGMA foreign_keys = OFF", "DELETE FROM accounts")
    assert (
        "1 rows refer to rows that do not exist"
        in get_problem(cli, "integrity", "fault", "--offline", "--full")["found"]
    )


@pytest.mark.parametrize("suffix", ["-journal", "-wal"])
def test_an_unprocessed_journal(cli: Cli, database: Path, suffix: str) -> None:
    path = Path(f"{database}{suffix}")
    path.write_text("half")
    path.chmod(0o600)
    assert "`listings migrate`" in get_problem(cli, "integrity", "warning")["advice"]


@pytest.mark.parametrize(
    ("statement", "verdict", "found", "repair"),
    [
        ("DROP INDEX listings_active", "fault", "index listings_active is missing", "CREATE INDEX listings_active ON"),
        (
            "ALTER TABLE accounts ADD COLUMN foo INTEGER",
            "fault",
            "column accounts.foo is",
            "ALTER TABLE accounts DROP COLUMN foo",
        ),
        ("DROP TABLE payments", "fault", "table payments is missing", "CREATE TABLE payments ("),
        (
            "CREATE TRIGGER foreign_one AFTER INSERT ON listings BEGIN SELECT 1; END",
            *("fault", "trigger foreign_one is not part of it", "DROP TRIGGER foreign_one"),
        ),
        ("CREATE INDEX extra ON listings (title)", "warning", "index extra is not part of it", "DROP INDEX extra"),
        # Litestream, for example, adds two tables.
        ("CREATE TABLE other (id INTEGER)", "warning", "table other is not part of it", "DROP TABLE other"),
        (
            "CREATE TABLE other (id INTEGER REFERENCES accounts)",
            *("fault", "table other is not part of it", "DROP TABLE other"),
        ),
        ("ANALYZE", "ok", "", ""),
    ],
)
def test_a_changed_catalogue(cli: Cli, database: Path, statement: str, verdict: str, found: str, repair: str) -> None:
    change(database, statement)
    row = run_doctor(cli, code=int(verdict == "fault"))["schema"]
    assert row["verdict"] == verdict
    assert found in row["found"]
    assert repair in (row["advice"] or "")
    outcome = cli("account", "list")
    assert (outcome.code, "The schema was altered" in outcome.err) == ((1, True) if verdict == "fault" else (0, False))


def test_the_advice_repairs_the_catalogue(cli: Cli, database: Path) -> None:
    change(database, "DROP INDEX listings_active", "DROP INDEX api_keys_account", "CREATE INDEX extra ON mails (kind)")
    advice = run_doctor(cli, code=1)["schema"]["advice"]
    change(database, *advice.removeprefix("Stop the service, then run: ").split("; "))
    advice = run_doctor(cli)["schema"]["advice"]
    change(database, *advice.removeprefix("Stop the service, then run: ").split("; "))
    assert run_doctor(cli)["schema"]["verdict"] == "ok"


def test_an_older_schema(cli: Cli, database: Path) -> None:
    database.unlink()
    migrate.migrate(database, shipped_migrations()[:-1])
    assert get_problem(cli, "schema", "warning")["found"] == "1 migration is pending"
    database.unlink()
    migrate.migrate(database, shipped_migrations()[:1])
    row = get_problem(cli, "schema", "warning")
    assert row["found"].endswith(" migrations are pending")
    assert "`listings migrate`" in row["advice"]


@pytest.mark.usefixtures("alice")
@pytest.mark.parametrize("column", ["accounts.created_at", "schema_migrations.applied_at", "api_keys.revoked_at"])
def test_a_stored_time_in_the_future(cli: Cli, database: Path, column: str) -> None:
    cli.key({"id": 1})
    table, name = column.split(".")
    change(database, f"UPDATE {table} SET {name} = unixepoch('now') + 250")  # noqa: S608 - constants
    assert run_doctor(cli)["stored times"]["verdict"] == "ok"
    change(database, f"UPDATE {table} SET {name} = unixepoch('2099-01-01')")  # noqa: S608 - constants
    assert "2099-01-01 00:00:00" in get_problem(cli, "stored times", "warning")["found"]


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("moment", [0, 1_600_000_000, 5_000_000_000])
def test_a_clock_in_another_year(cli: Cli, monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    monkeypatch.setattr(time, "time", lambda: moment)
    assert run_doctor(cli, code=1)["clock"]["verdict"] == "fault"


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("free", "verdict"), [(1024**3 // 4096, "ok"), (1024**3 // 4096 - 1, "warning"), (64 * 256 - 1, "fault")]
)
def test_free_disk_space(cli: Cli, monkeypatch: pytest.MonkeyPatch, free: int, verdict: str) -> None:
    fields = list(os.statvfs(cli.folder))
    fields[1], fields[4] = 4096, free  # f_frsize, f_bavail
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    row = run_doctor(cli, code=int(verdict == "fault"))["disk"]
    assert row["verdict"] == verdict
    assert row["found"] == f"{free * 4096 // 1024**2} MiB are free"


@pytest.mark.usefixtures("database")
def test_an_old_sqlite_version(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    assert "can corrupt" in run_doctor(cli, code=1)["SQLite"]["found"]


def diagnose_elsewhere(cli: Cli) -> dict[str, Data]:
    """Run doctor in another process: closing a file here would release this process's locks."""
    return Program(cli.folder, LISTINGS_PORT="1").diagnose()


@pytest.mark.covers_programs
def test_a_large_wal_that_nobody_keeps(cli: Cli, database: Path) -> None:
    wal = Path(f"{database}-wal")
    with closing(open_writer(database)) as writer:
        writer.execute("PRAGMA user_version = 1").fetchall()
        for size in (64 * 1024 * 1024, 64 * 1024 * 1024 + 1):
            os.truncate(wal, size)
            assert diagnose_elsewhere(cli)["WAL"]["verdict"] == "ok"


READ = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN").fetchall()
connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
print("reading", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux tells who locks a file")
@pytest.mark.parametrize(("arguments", "found"), [([], "process {}"), (["serve"], "the service sends a large list")])
def test_the_process_that_keeps_a_large_wal_is_named(
    cli: Cli, database: Path, arguments: list[str], found: str
) -> None:
    with closing(open_writer(database)) as writer:
        writer.execute("PRAGMA user_version = 1").fetchall()
        command = [sys.executable, "-c", READ, str(database), *arguments]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"reading\n"
            writer.execute("PRAGMA user_version = 2").fetchall()
            os.truncate(f"{database}-wal", 64 * 1024 * 1024 + 1)
            row = diagnose_elsewhere(cli)["WAL"]
            reader.communicate()
    assert row["verdict"] == "warning"
    assert row["found"].startswith(f"65536 KiB, because {found.format(reader.pid)}")


def test_copies_of_upgrades_and_restores_are_reported(cli: Cli, database: Path) -> None:
    copy = database.with_name(f"{database.name}.before-0028-20261129-101010")
    copy.write_bytes(bytes(3 * 2**20))
    row = get_problem(cli, "copies", "warning")
    assert row["found"] == "Upgrades and restores left copies of the database, 3 MiB"
    assert row["advice"] == f"When you no longer need them, run `rm {copy}`"


@pytest.mark.usefixtures("database")
def test_files_of_killed_backups(cli: Cli) -> None:
    draft = cli.folder / "data/backup.db.part"
    draft.touch()
    (cli.folder / "data/alice.csv.part").write_text("id,title\n")  # of an interrupted export
    row = get_problem(cli, "unfinished backups", "warning")
    assert row["found"] == f"An interrupted backup left {draft}"
    journal = draft.with_name("backup.db.part-journal")
    journal.touch()
    assert get_problem(cli, "unfinished backups", "warning")["advice"] == f"Run `rm {draft} {journal}`"
    subprocess.run(["sh", "-ec", row["advice"].split("`")[1]], check=True)
    assert run_doctor(cli)["unfinished backups"]["verdict"] == "ok"


@pytest.mark.covers_programs
@pytest.mark.usefixtures("database")
def test_too_few_open_files(cli: Cli) -> None:
    command = ["sh", "-c", 'ulimit -n 1000 && exec "$@"', "sh", str(PROGRAM), "doctor", "--json", "--offline"]
    outcome = run_program(command, cwd=cli.folder, check=True)
    (row,) = (row for row in map(json.loads, outcome.stdout.splitlines()) if row["check"] == "open files")
    assert row["verdict"] == "warning"
    assert row["found"] == "The limit is 1000, enough for 404 of 10000 connections"


@pytest.mark.parametrize(("processors", "text"), [(1, "1 processor"), (2, "2 processors")])
def test_more_workers_than_processors_are_a_warning(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, processors: int, text: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    monkeypatch.setenv("LISTINGS_WORKERS", str(processors + 1))
    found = run_doctor(cli, code=1)["workers"]
    assert (found["verdict"], found["found"]) == ("warning", f"{processors + 1} on {text}")
    assert f"LISTINGS_WORKERS to {processors}" in found["advice"]


@pytest.fixture
def limits(cli: Cli, alice: Data) -> Path:
    assert cli.status(cli.key(alice)["key"]) == 200
    return cli.folder / "data/listings.db.limits-0000"


def test_rate_limit_files_are_read_without_changes(cli: Cli, limits: Path, database: Path) -> None:
    before = limits.stat()
    (file,) = list_log_files(database)
    assert (file.path, file.is_valid) == (limits, True)
    assert databases.rows(database, "SELECT id FROM database_id") == [(file.database_id,)]
    assert limits.stat().st_mtime_ns == before.st_mtime_ns
    assert run_doctor(cli)["rate limit files"]["found"] == "1 file, of this database"


def overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda path: overwrite(path, 32, b"f" * 32), "belongs to another database"),
        (lambda path: overwrite(path, 0, b"LSTLIM99"), "is damaged"),
        (lambda path: os.truncate(path, 100_000), "is damaged"),
        (lambda path: os.truncate(path, 0), "is damaged"),
        (lambda path: path.chmod(0o640), "Other users can access"),
    ],
)
def test_a_damaged_or_foreign_rate_limit_file(
    cli: Cli, limits: Path, change: Callable[[Path], None], expected: str
) -> None:
    change(limits)
    row = get_problem(cli, "rate limit files", "warning")
    assert expected in row["found"]
    assert str(limits) in row["found"]


def test_rate_limit_files_are_ignored_without_a_limit(cli: Cli, limits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits.write_text("damaged")
    monkeypatch.setenv("LISTINGS_RATE_LIMIT", "0")
    assert run_doctor(cli)["rate limit files"]["found"] == "Not used"


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("status", "body", "verdict", "expected"),
    [
        (200, b'{"status": "ready"}', "ok", "Ready at 127.0.0.1:"),
        (200, b'{"status": "ready", "rate_limit": "all machines that use this Redis"}', "ok", "Ready at"),
        (
            200,
            b'{"status": "ready", "rate_limit": "this machine, because Redis is unavailable"}',
            "warning",
            "counts the rate limit across this machine, because Redis is unavailable",
        ),
        (200, b'{"status": "ready", "degraded": ["a is away", "b fails"]}', "warning", ", but a is away; b fails"),
        (200, b'{"status": "ready", "version": 3}', "fault", "Another program than Listings"),
        (200, b'["ready"]', "fault", "Another program than Listings"),
        (503, b'{"error": "The disk is almost full"}', "fault", "The disk is almost full"),
        (503, b"Bad gateway", "fault", "Another program than Listings"),
        (200, b"<h1>It works</h1>", "fault", "Another program than Listings"),
        (404, b'{"error": "no"}', "fault", "Another program than Listings"),
    ],
)
def test_responses_of_the_service(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, verdict: str, expected: str
) -> None:
    monkeypatch.setattr(doctor, "_RESPONSE_TIMEOUT_SECONDS", DEADLINE)
    with responding(status, body) as port:
        monkeypatch.setenv("LISTINGS_PORT", port)
        monkeypatch.setenv("LISTINGS_HOST", "0.0.0.0")  # noqa: S104 - nothing listens
        row = run_doctor(cli, "--full", code=int(verdict == "fault"))["service"]
        offline = run_doctor(cli, "--offline", code=int("Not ready" in row["found"]))["service"]
    assert row["verdict"] == verdict
    assert (offline["verdict"] == "warning") == (verdict == "warning" or "Another program" in row["found"])
    assert expected in row["found"]


@pytest.mark.usefixtures("database")
def test_a_host_that_is_no_name_is_reported(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTINGS_HOST", "market..example")
    assert "does not respond: encoding with 'idna' codec failed" in cli("doctor").out


@pytest.mark.usefixtures("database")
def test_a_service_that_does_not_respond(cli: Cli, monkeypatch: pytest.MonkeyPatch, taken_port: str) -> None:
    monkeypatch.setenv("LISTINGS_PORT", taken_port)
    assert "does not respond" in get_problem(cli, "service", "warning")["found"]


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("port", "expected"), [("1", "Nothing is listening at 127.0.0.1:1"), ("0", "Not checked, because")]
)
def test_a_stopped_service_is_ok_if_it_may_be(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, port: str, expected: str
) -> None:
    monkeypatch.setenv("LISTINGS_PORT", port)
    assert expected in run_doctor(cli, "--offline")["service"]["found"]


@pytest.mark.usefixtures("database")
def test_a_stopped_service_is_a_fault(cli: Cli) -> None:
    row = get_problem(cli, "service", "fault", "--full")
    assert row["found"] == "Nothing is listening at 127.0.0.1:1"
    assert "--offline" in row["advice"]


def test_the_last_backup_is_reported(cli: Cli, database: Path) -> None:
    assert run_doctor(cli)["last backup"]["found"] == "There is none yet"
    cli.run_ok("backup", "backup.db")
    row = run_doctor(cli)["last backup"]
    assert row["found"].startswith("The last one is of 20")
    stamp = Path(f"{database}.last-backup")
    os.utime(stamp, (0, time.time() - 37 * 3600))
    assert "`listings backup FILE` every day" in get_problem(cli, "last backup", "warning")["advice"]
    cli.run_ok("backup", "backup.db", "--force")
    assert run_doctor(cli)["last backup"]["verdict"] == "ok"


def test_a_failed_backup_does_not_count(cli: Cli, database: Path) -> None:
    change(database, f"UPDATE schema_migrations SET applied_at = {int(time.time()) - 37 * 3600}")  # noqa: S608 - a number
    cli("backup", str(database))
    assert get_problem(cli, "last backup", "warning")["found"] == "There is none yet"


def test_an_open_request_for_the_plan_is_a_warning(cli: Cli, database: Path, alice: Data) -> None:  # noqa: ARG001 - an account
    change(database, "INSERT INTO plan_requests (account_id, requested_at) SELECT id, 1790000000 FROM accounts")
    found = run_doctor(cli)["plan requests"]
    assert (found["verdict"], found["found"]) == ("warning", "1 open, the oldest since 2026-09-21 14:13:20")


def test_mail_that_is_late_or_given_up_is_a_warning(cli: Cli, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add = "INSERT INTO mails VALUES ('{}', 'password_reset', 'a@b', NULL, '{{}}', {}, {}, 1)"
    now = int(time.time())
    assert run_doctor(cli)["mail"]["found"] == "Off, because LISTINGS_SMTP_URL is not set"
    change(database, add.format("new", now, now))
    assert run_doctor(cli)["mail"]["verdict"] == "warning"
    monkeypatch.setenv("LISTINGS_SMTP_URL", "smtp://127.0.0.1")
    monkeypatch.setenv("LISTINGS_MAIL_FROM", "no-reply@market.example")
    monkeypatch.setenv("LISTINGS_BASE_URL", "https://market.example")
    assert run_doctor(cli)["mail"]["verdict"] == "ok"
    change(database, add.format("late", now - 3601, now))
    assert run_doctor(cli)["mail"]["verdict"] == "warning"
    change(database, "DELETE FROM mails", add.format("given up", now, "NULL"))
    found = run_doctor(cli)["mail"]
    assert (found["verdict"], found["found"]) == ("warning", "0 queued, 1 given up in the last 30 days")
