"""The program on PostgreSQL, from the first migration to a restored dump, as docs/operating.md tells it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Program
from tests.postgres_server import PostgresServer, find_programs

PASSWORD = "hunter2"


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.bare_database() as url:
        yield url.replace("listings@", f"listings:{PASSWORD}@")


@pytest.fixture
def program(url: str, tmp_path: Path) -> Program:
    return Program(tmp_path, LISTINGS_DATABASE_URL=url)


def done(program: Program, *arguments: str) -> str:
    outcome = program.run(*arguments)
    assert outcome.code == 0, outcome
    assert PASSWORD not in outcome.out + outcome.err
    return outcome.out + outcome.err


def test_the_schema_is_made_once_and_told_without_the_password(program: Program, url: str) -> None:
    place = url.replace(f"listings:{PASSWORD}@", "").partition("?")[0]
    assert done(program, "migrate", "--dry-run").startswith(f"Pending migrations of {place}: 0001_listings")
    assert done(program, "migrate").startswith(f"{place} is up to date; applied migrations: 0001_listings, ")
    assert done(program, "migrate") == f"{place} is up to date; applied migrations: none\n"


def test_commands_and_the_service_work_as_on_sqlite(program: Program) -> None:
    done(program, "migrate")
    done(program, "account", "create", "--name", "alice", "--email", "alice@example.com", "--months", "12")
    key = json.loads(program.run("key", "create", "alice@example.com", "--name", "shop", "--json").out)["key"]
    with program.serve() as service:
        listing_id = service.create(key)
        assert service.http.get("/readyz").json() == {"status": "ready"}
        done(program, "delete", str(listing_id))
        assert service.read(key, listing_id).status_code == 404
        done(program, "undelete", str(listing_id), "--active")
        assert service.read(key, listing_id).status_code == 200
        stopped = service.stop()
    assert (stopped.code, PASSWORD in stopped.err) == (0, False)
    assert "Bicycle" in done(program, "list", "alice@example.com")
    done(program, "export", "alice@example.com", "alice.csv")
    done(program, "import", "alice@example.com", "alice.csv", "--new-ids")
    assert done(program, "list", "alice@example.com").count("Bicycle") == 2


def test_a_start_on_sqlite_does_without_the_driver() -> None:
    code = "import sys, listings.cli, listings.store.sqlite.store; sys.exit('asyncpg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_demo_starts_on_an_empty_database(program: Program) -> None:
    with program.serve("--demo") as service:
        assert service.http.get("/readyz").status_code == 200
    assert (program.folder / "data" / "demo.env").exists()


def test_the_doctor_finds_a_good_server_good(program: Program) -> None:
    done(program, "migrate")
    rows = [json.loads(line) for line in done(program, "doctor", "--json").splitlines()]
    assert {row["verdict"] for row in rows} == {"ok"}
    assert [row["check"] for row in rows] == [
        "settings",
        "database",
        "schema",
        "stored times",
        "durability",
        "standby",
        "connections",
        "server clock",
        "transactions",
        "clock",
        "rate limit",
        "open files",
        "workers",
        "service",
    ]


def test_the_doctor_tells_of_an_unsafe_server_that_is_too_small(tmp_path: Path) -> None:
    with PostgresServer(fsync="off", max_connections="8") as server, server.bare_database() as url:
        outcome = Program(tmp_path, LISTINGS_DATABASE_URL=url).run("doctor", "--json")
    found = {row["check"]: row for row in map(json.loads, outcome.out.splitlines())}
    assert outcome.code == 1
    assert (found["durability"]["verdict"], "fsync = on" in found["durability"]["advice"]) == ("fault", True)
    assert found["connections"]["verdict"] == "warning"
    assert found["schema"]["verdict"] == "warning"


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["migrate"], ["account", "list"]])
def test_without_a_server_there_is_one_sentence(tmp_path: Path, command: list[str]) -> None:
    program = Program(tmp_path, LISTINGS_DATABASE_URL=f"postgresql://listings:{PASSWORD}@127.0.0.1:1/listings")
    said = program.run(*command).sentence
    assert said.startswith("The database can't be reached: ")
    assert PASSWORD not in said


def test_without_a_server_the_doctor_says_what_to_do(tmp_path: Path) -> None:
    program = Program(tmp_path, LISTINGS_DATABASE_URL=f"postgresql://listings:{PASSWORD}@127.0.0.1:1/listings")
    outcome = program.run("doctor", "--json")
    found = {row["check"]: row for row in map(json.loads, outcome.out.splitlines())}
    assert (outcome.code, found["database"]["verdict"]) == (1, "fault")
    assert PASSWORD not in outcome.out


def test_a_database_of_another_encoding_is_refused_and_found_by_the_doctor(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    postgres.execute("CREATE DATABASE other_encoding TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    program = Program(tmp_path, LISTINGS_DATABASE_URL=postgres.url("other_encoding"))
    for command in (["serve", "--port", "0"], ["migrate"], ["migrate", "--dry-run"]):
        assert program.run(*command).sentence.startswith("The database's encoding is LATIN1")
    outcome = program.run("doctor", "--json")
    found = {row["check"]: row for row in map(json.loads, outcome.out.splitlines())}
    postgres.execute("DROP DATABASE other_encoding")
    assert (outcome.code, found["database"]["verdict"]) == (1, "fault")
    assert "createdb --encoding=UTF8" in found["database"]["found"]


@pytest.mark.parametrize(("command", "other"), [("backup", "pg_dump"), ("restore", "pg_restore")])
def test_a_backup_is_the_servers_own_affair(program: Program, command: str, other: str) -> None:
    assert f"`{other}" in program.run(command, "file").sentence


def test_a_dump_that_is_restored_is_the_same_service(program: Program, url: str, postgres: PostgresServer) -> None:
    done(program, "migrate")
    done(program, "account", "create", "--name", "alice", "--email", "alice@example.com", "--months", "12")
    key = json.loads(program.run("key", "create", "alice@example.com", "--name", "shop", "--json").out)["key"]
    with program.serve() as service:
        listing_id = service.create(key)
    file = program.folder / "listings.dump"
    subprocess.run([find_programs() / "pg_dump", "--format=custom", f"--file={file}", url], check=True)
    with postgres.bare_database() as trial:
        restore: list[str | Path] = [
            find_programs() / "pg_restore",
            f"--dbname={trial}",
            "--no-owner",
            "--role=listings",
            "--exit-on-error",
        ]
        subprocess.run([*restore, file], check=True)
        restored = Program(program.folder, LISTINGS_DATABASE_URL=trial)
        with restored.serve() as service:
            assert service.read(key, listing_id).status_code == 200
            assert service.create(key) > listing_id
        done(restored, "doctor")
