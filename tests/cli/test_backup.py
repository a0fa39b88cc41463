"""`listings backup`: copies of the database, while the service runs."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli import terminal
from tests.cli.commands import DEADLINE, PROGRAM, Cli, Data, Program, Serving
from tests.cli.crowds import until
from tests.store.databases import is_sound, rows

IDS = "SELECT id FROM listings"


def test_a_backup_tells_where_it_is_how_large_and_how_long_it_took(cli: Cli, alice: Data) -> None:
    told = cli.data("backup", "backup.db")
    file = cli.folder / "backup.db"
    assert list(told) == ["backup", "bytes", "seconds"]
    assert (told["backup"], told["bytes"]) == (str(file), file.stat().st_size)
    assert 0 <= told["seconds"] < 20
    assert rows(file, "SELECT email FROM accounts") == [(alice["email"],)]
    assert str(file) in cli.done("backup", "--force", "backup.db").out


def test_a_backup_needs_a_database(cli: Cli) -> None:
    said = cli.refused("backup", "backup.db")
    assert str(cli.folder / "data/listings.db") in said
    assert "`listings migrate`" in said
    assert list(cli.folder.iterdir()) == []


@pytest.mark.parametrize("url", ["sqlite:///folder", "sqlite:///file/listings.db", "sqlite:///" + "a" * 300])
@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_path_that_cannot_be_a_database_is_refused(cli: Cli, database: Path, url: str, command: str) -> None:
    (cli.folder / "folder").mkdir()
    (cli.folder / "file").touch()
    if command == "restore":
        cli.done("--database-url", f"sqlite:///{database}", "backup", "new.db")
    cli.refused("--database-url", url, command, "new.db")


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("data/listings.db", "belongs to the database itself"),
        ("data/listings.db-wal", "belongs to the database itself"),
        ("data", "is a folder"),
        ("nowhere/backup.db", "There is no folder"),
        ("there.db", "--force"),
    ],
)
def test_a_backup_that_cannot_be_is_one_sentence(cli: Cli, file: str, said: str) -> None:
    (cli.folder / "there.db").write_text("precious")
    assert said in cli.refused("backup", file)
    assert (cli.folder / "there.db").read_text() == "precious"


def test_a_folder_on_a_disk_that_is_read_only_is_one_sentence(cli: Cli, database: Path, tmp_path: Path) -> None:
    (cli.folder / "closed").mkdir(mode=0o755)
    privilege = "-m" if os.geteuid() == 0 else "-Urm"
    namespace = ["unshare", privilege, "sh", "-c", 'mount -t tmpfs -o ro none "$1" && shift && exec "$@"', "sh"]
    if subprocess.run([*namespace, str(tmp_path / "closed"), "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a closed folder")
    command = [*namespace, "closed", str(PROGRAM), "backup", "closed/backup.db"]
    outcome = subprocess.run(command, cwd=cli.folder, capture_output=True, text=True, check=False)
    assert outcome.returncode == 1
    assert outcome.stderr.startswith(f"listings: {cli.folder}/closed/backup.db can't be written: Read-only file system")
    assert database.is_file()


@pytest.mark.usefixtures("database")
def test_progress_is_shown_on_a_terminal_alone(cli: Cli, program: Program) -> None:
    assert program.run("backup", "quiet.db").err == ""
    code, written = terminal.run(cli.folder, "backup", "shown.db", stream="stderr")
    assert code == 0
    assert "Copying" in written


@contextmanager
def creating(service: Serving, key: str, clients: int) -> Iterator[list[int]]:
    """Clients that create listings without a pause; the ids of those that were acknowledged."""
    acknowledged: list[int] = []
    stop = threading.Event()

    def create() -> None:
        with httpx.Client(base_url=service.base_url, timeout=DEADLINE) as http:
            while not stop.is_set():
                body = {"title": "Bicycle", "content": "Two wheels. " * 300}
                answer = http.post("/api/v1/listings", headers={"X-API-Key": key}, json=body)
                assert answer.status_code == 201, answer.text
                acknowledged.append(answer.json()["id"])

    threads = [threading.Thread(target=create) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        for thread in threads:
            thread.join(DEADLINE)


def test_every_listing_acknowledged_before_is_in_a_backup_made_while_clients_write(
    cli: Cli, alice: Data, tmp_path: Path
) -> None:
    key = cli.key(alice)["key"]
    program = Program(tmp_path, LISTINGS_RATE_LIMIT="0")
    with program.serve() as service, creating(service, key, clients=4) as acknowledged:
        before: list[int] = []
        for number in range(3):
            before = [service.create(key), *acknowledged]
            assert program.run("backup", f"backup-{number}.db").code == 0
            file = cli.folder / f"backup-{number}.db"
            assert is_sound(file)
            kept = {row[0] for row in rows(file, IDS)}
            assert kept.issuperset(before)
            assert rows(file, "SELECT sum(revision) FROM account_state") == [(len(kept),)]  # one moment
        until(lambda: len(acknowledged) > len(before))
    assert sorted(path.name for path in cli.folder.iterdir()) == ["backup-0.db", "backup-1.db", "backup-2.db", "data"]
