"""`listings backup`, also while the service is running."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.cli import terminal
from tests.cli.commands import DEADLINE, PROGRAM, Cli, Data, Program, Serving
from tests.cli.crowds import until
from tests.store.databases import is_sound, rows

IDS = "SELECT id FROM listings"


def test_a_backup_prints_path_size_and_duration(cli: Cli, alice: Data) -> None:
    result = cli.data("backup", "backup.db")
    file = cli.folder / "backup.db"
    assert list(result) == ["backup", "bytes", "seconds"]
    assert (result["backup"], result["bytes"]) == (str(file), file.stat().st_size)
    assert 0 <= result["seconds"] < 20
    assert rows(file, "SELECT email FROM accounts") == [(alice["email"],)]
    assert str(file) in cli.run_ok("backup", "--force", "backup.db").out


def test_a_read_only_disk_is_a_one_line_error(cli: Cli, database: Path, tmp_path: Path) -> None:
    (cli.folder / "closed").mkdir(mode=0o755)
    privilege = "-m" if os.geteuid() == 0 else "-Urm"
    namespace = ["unshare", privilege, "sh", "-c", 'mount -t tmpfs -o ro none "$1" && shift && exec "$@"', "sh"]
    if subprocess.run([*namespace, str(tmp_path / "closed"), "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounting a read-only folder is not permitted on this machine")
    command = [*namespace, "closed", str(PROGRAM), "backup", "closed/backup.db"]
    outcome = subprocess.run(command, cwd=cli.folder, capture_output=True, text=True, check=False)
    assert outcome.returncode == 1
    assert outcome.stderr.startswith(f"listings: {cli.folder}/closed/backup.db can't be written: Read-only file system")
    assert database.is_file()


@pytest.mark.usefixtures("database")
def test_progress_is_shown_only_on_a_terminal(cli: Cli, program: Program) -> None:
    assert program.run("backup", "quiet.db").err == ""
    code, written = terminal.run(cli.folder, "backup", "shown.db", stream="stderr")
    assert code == 0
    assert "Copying" in written


@contextmanager
def creating(service: Serving, key: str, clients: int) -> Iterator[list[int]]:
    """Run clients that create listings without a pause. Yield the ids of the acknowledged listings."""
    acknowledged: list[int] = []
    stop = threading.Event()

    def create() -> None:
        with httpx2.Client(base_url=service.base_url, timeout=DEADLINE) as http:
            while not stop.is_set():
                body = {"title": "Bicycle", "content": "Two wheels. " * 300}
                response = http.post("/api/v1/listings", headers={"X-API-Key": key}, json=body)
                assert response.status_code == 201, response.text
                acknowledged.append(response.json()["id"])

    threads = [threading.Thread(target=create) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        for thread in threads:
            thread.join(DEADLINE)


def test_a_backup_under_load_contains_every_acknowledged_listing(cli: Cli, alice: Data, tmp_path: Path) -> None:
    key = cli.key(alice)["key"]
    program = Program(tmp_path, LISTINGS_RATE_LIMIT="0")
    with program.serve() as service, creating(service, key, clients=4) as acknowledged:
        before: list[int] = []
        for number in range(3):
            before = [service.create(key), *acknowledged]
            assert program.run("backup", f"backup-{number}.db").code == 0
            file = cli.folder / f"backup-{number}.db"
            assert is_sound(file)
            stored = {row[0] for row in rows(file, IDS)}
            assert stored.issuperset(before)
            assert rows(file, "SELECT sum(revision) FROM account_state") == [(len(stored),)]  # a consistent snapshot
        until(lambda: len(acknowledged) > len(before))
    assert sorted(path.name for path in cli.folder.iterdir()) == ["backup-0.db", "backup-1.db", "backup-2.db", "data"]
