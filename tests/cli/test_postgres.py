"""The program on PostgreSQL, from the first migration to a restored dump."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from listings.cli.postgres_checks import run_checks
from tests.cli.commands import Program
from tests.harness import load_test_settings
from tests.postgres_server import PostgresServer, find_programs

pytestmark = pytest.mark.covers_programs

PASSWORD = "hunter2"


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.bare_database() as url:
        yield url.replace("listings@", f"listings:{PASSWORD}@")


@pytest.fixture
def program(url: str, tmp_path: Path) -> Program:
    return Program(tmp_path, LISTINGS_DATABASE_URL=url)


def run_ok(program: Program, *arguments: str) -> str:
    outcome = program.run(*arguments)
    assert outcome.code == 0, outcome
    assert PASSWORD not in outcome.out + outcome.err
    return outcome.out + outcome.err


def test_migrate_creates_the_schema_and_hides_the_password(program: Program, url: str) -> None:
    shown = url.replace(f"listings:{PASSWORD}@", "").partition("?")[0]
    planned = run_ok(program, "migrate", "--dry-run")
    assert planned.startswith(f"Pending migrations of {shown}: 0001_listings")
    count = planned.count(",") + 1
    assert run_ok(program, "migrate") == f"Created {shown} ({count} migrations)\n"
    assert run_ok(program, "migrate") == f"{shown} is up to date; applied migrations: none\n"


@pytest.mark.slow
def test_commands_and_the_service_work_as_on_sqlite(program: Program) -> None:
    run_ok(program, "migrate")
    run_ok(program, "account", "create", "--name", "alice", "--email", "alice@example.com", "--months", "12")
    key = json.loads(program.run("key", "create", "alice@example.com", "--name", "shop", "--json").out)["key"]
    with program.serve() as service:
        listing_id = service.create(key)
        assert service.http.get("/readyz").json() == {"status": "ready"}
        run_ok(program, "delete", str(listing_id))
        assert service.read(key, listing_id).status_code == 404
        run_ok(program, "undelete", str(listing_id), "--active")
        assert service.read(key, listing_id).status_code == 200
        stopped = service.stop()
    assert (stopped.code, PASSWORD in stopped.err) == (0, False)
    assert "Bicycle" in run_ok(program, "list", "alice@example.com")
    report = json.loads(program.run("report", "--json").out)
    assert (report["requests"], report["free_disk_mib"]) == (3, None)
    run_ok(program, "export", "alice@example.com", "alice.csv")
    run_ok(program, "import", "alice@example.com", "alice.csv", "--ids", "new")
    assert run_ok(program, "list", "alice@example.com").count("Bicycle") == 2


def test_the_sqlite_store_does_not_import_the_driver() -> None:
    code = "import sys, listings.cli, listings.store.sqlite.store; sys.exit('asyncpg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_demo_works_on_an_empty_database(program: Program) -> None:
    with program.serve("--demo") as service:
        assert service.http.get("/readyz").status_code == 200
    assert (program.folder / "data" / "demo.env").exists()


def test_doctor_finds_no_problem_on_a_good_server(program: Program) -> None:
    run_ok(program, "migrate")
    rows = program.diagnose()
    assert {row["verdict"] for row in rows.values()} == {"ok"}
    assert list(rows) == [
        "settings",
        "clock",
        "rate limit",
        "open files",
        "workers",
        "service",
        "database",
        "schema",
        "stored times",
        "plan requests",
        "mail",
        "durability",
        "standby",
        "connections",
        "server clock",
        "transactions",
        "market index",
        "pictures",
        "search index",
        "disk",
    ]
    assert rows["pictures"]["found"].endswith("/media: several machines must share this folder, or use S3")


def test_doctor_reports_a_disk_that_is_almost_full(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = list(os.statvfs(tmp_path))
    fields[1], fields[4] = 4096, 256 * 256 - 1  # f_frsize, f_bavail
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    finding = dict(run_checks(load_test_settings(tmp_path, database=url)))["disk"]
    assert (finding.verdict, finding.found) == ("warning", f"255 MiB are free in {tmp_path}")


def test_doctor_reports_a_data_folder_that_cannot_be_read(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "disk_usage", fail)
    finding = dict(run_checks(load_test_settings(tmp_path, database=url)))["disk"]
    assert (finding.verdict, finding.found) == ("fault", f"{tmp_path} can't be read: Permission denied")


def test_doctor_reports_an_unsafe_server_with_few_connections(tmp_path: Path) -> None:
    with PostgresServer(fsync="off", max_connections="8") as server, server.bare_database() as url:
        results = Program(tmp_path, LISTINGS_DATABASE_URL=url).diagnose()
    assert (results["durability"]["verdict"], "fsync = on" in results["durability"]["advice"]) == ("fault", True)
    assert results["connections"]["verdict"] == "warning"
    assert results["schema"]["verdict"] == "warning"


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["migrate"], ["account", "list"]])
def test_an_unreachable_server_is_a_one_line_error(tmp_path: Path, command: list[str]) -> None:
    program = Program(tmp_path, LISTINGS_DATABASE_URL=f"postgresql://listings:{PASSWORD}@127.0.0.1:1/listings")
    error = program.run(*command).error_message
    assert error.startswith("The database can't be reached: ")
    found = program.diagnose()
    assert found["database"]["verdict"] == "fault"
    assert PASSWORD not in error + str(found)


def test_a_database_of_another_encoding_is_rejected(tmp_path: Path, postgres: PostgresServer) -> None:
    postgres.execute("CREATE DATABASE other_encoding TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    program = Program(tmp_path, LISTINGS_DATABASE_URL=postgres.url("other_encoding"))
    for command in (["serve", "--port", "0"], ["migrate"], ["migrate", "--dry-run"]):
        assert program.run(*command).error_message.startswith("The database's encoding is LATIN1")
    found = program.diagnose()["database"]
    postgres.execute("DROP DATABASE other_encoding")
    assert (found["verdict"], "createdb --encoding=UTF8" in found["found"]) == ("fault", True)


@pytest.mark.parametrize(("command", "other"), [("backup", "pg_dump"), ("restore", "pg_restore")])
def test_backup_and_restore_refer_to_the_servers_programs(program: Program, command: str, other: str) -> None:
    assert f"`{other}" in program.run(command, "file").error_message


def test_doctor_and_migrate_find_an_altered_schema(program: Program, url: str, postgres: PostgresServer) -> None:
    run_ok(program, "migrate")
    postgres.execute("DROP INDEX listings_active", url.rpartition("/")[2].partition("?")[0])
    found = "The schema was altered (index listings_active is missing): run `listings doctor`"
    assert found in program.run("migrate").error_message
    schema = program.diagnose()["schema"]
    assert schema["verdict"] == "fault"
    assert "CREATE INDEX listings_active ON listings USING btree" in schema["advice"]


def test_a_restored_dump_works(program: Program, url: str, postgres: PostgresServer) -> None:
    run_ok(program, "migrate")
    run_ok(program, "account", "create", "--name", "alice", "--email", "alice@example.com", "--months", "12")
    key = json.loads(program.run("key", "create", "alice@example.com", "--name", "shop", "--json").out)["key"]
    with program.serve() as service:
        listing_id = service.create(key)
    file = program.folder / "listings.dump"
    subprocess.run([find_programs() / "pg_dump", "--format=custom", f"--file={file}", url], check=True)
    with postgres.bare_database() as other:
        restore: list[str | Path] = [
            find_programs() / "pg_restore",
            f"--dbname={other}",
            "--no-owner",
            "--role=listings",
            "--exit-on-error",
        ]
        subprocess.run([*restore, file], check=True)
        restored = Program(program.folder, LISTINGS_DATABASE_URL=other)
        assert "Everybody must sign in again" in run_ok(restored, "restored", "--above", str(listing_id + 9 * 1024))
        with restored.serve() as service:
            assert service.read(key, listing_id).status_code == 200
            assert service.create(key) == listing_id + 10 * 1024
            assert "stop it first" in restored.run("restored").error_message
        run_ok(restored, "doctor", "--offline")
