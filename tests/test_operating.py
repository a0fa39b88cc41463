"""The operator's pages in docs/: the tests run every command in their `sh` blocks, unchanged."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.commands import PROGRAM, Program, clean_environment
from tests.harness import RunningService
from tests.postgres_server import USER, PostgresServer, find_programs
from tests.processes import run_program
from tests.waiting import until

PROJECT_FOLDER = Path(__file__).parent.parent
NAMES = ("operating", "install", "accounts", "backups", "upgrading", "workers", "postgresql", "troubleshooting")
PAGES = {name: (PROJECT_FOLDER / "docs" / f"{name}.md").read_text("utf-8") for name in NAMES}
BLOCKS = [text for page in PAGES.values() for text in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)]
CONSOLE = "\n".join(re.findall(r"```console\n(.*?)```", PAGES["troubleshooting"], re.DOTALL))
INSTALLED = ["python3 -m venv /opt/listings\n", "pip wheel", "dist/listings_server-*.whl"]

SERVES, STOPPED = True, False


class CommandBlock(NamedTuple):
    mark: str  # text that only this block contains
    folder: str
    serving: bool
    prints: str  # a pattern for the output


COMMAND_BLOCKS = [
    CommandBlock("account create", "empty", SERVES, r"alice@example\.com[^$]*lst_\w{38}\n"),
    CommandBlock("curl", "empty", SERVES, r'{"status":"ready"}'),
    CommandBlock("account disable", "used", SERVES, r"alice@example\.com"),
    CommandBlock("key rotate", "used", SERVES, r"warehouse[^$]*lst_\w{38}\n"),
    CommandBlock("key revoke", "used", SERVES, r"lst_\w{38}\n"),
    CommandBlock("account invite", "used", SERVES, r"^https://market\.example/invitations/[\w-]{43}\n"),
    CommandBlock("account undo", "used", SERVES, r"conflicts +0\n"),
    CommandBlock("listings report", "used", SERVES, r"active_plans +1\n"),
    CommandBlock("account erase", "used", SERVES, r"Exported account 1 to alice\.json[^$]*Erased account 1\n$"),
    CommandBlock("account list --requests", "used", SERVES, r"plan_expires_at"),
    CommandBlock("listings backup listings-backup.db", "empty", SERVES, r"listings-backup\.db"),
    CommandBlock("trial/listings.db", "used", SERVES, r"integrity +ok"),
    CommandBlock("listings restore listings-backup.db", "used", STOPPED, r"before-restore-"),
    CommandBlock("restore --force", "used", STOPPED, r"before-restore-"),
    CommandBlock("migrate --dry-run", "used", STOPPED, r"Pending migrations of .*: none"),
    CommandBlock("backup listings-move.db", "empty", STOPPED, r"listings-move\.db"),
    CommandBlock("restore listings-move.db", "new", STOPPED, r"integrity +ok"),
    CommandBlock("listings doctor", "used", SERVES, r"service +ok"),
]


def find_block(mark: str) -> str:
    """Return the block that consists of the mark alone, or the only block that contains it."""
    if f"{mark}\n" in BLOCKS:
        return f"{mark}\n"
    (found,) = (text for text in BLOCKS if mark in text)
    return str(found)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Create three folders. empty: a new database; used: alice with a key, and a backup; new: only the backup."""
    home = tmp_path_factory.mktemp("folders")
    found = {name: home / name for name in ("empty", "used", "new")}
    found["empty"].mkdir()
    found["new"].mkdir()
    empty = Program(found["empty"])
    assert empty.run("migrate").code == 0
    shutil.copytree(found["empty"], found["used"])
    used = Program(found["used"])
    for arguments in (
        ("account", "create", "--name", "alice", "--email", "alice@example.com", "--months", "12"),
        ("key", "create", "alice@example.com", "--name", "warehouse"),
        ("backup", "listings-backup.db"),
        ("backup", str(found["new"] / "listings-move.db")),
    ):
        assert used.run(*arguments).code == 0
    return found


@contextmanager
def serve_if(folder: Path, *, serving: bool) -> Iterator[str]:
    """Serve the folder's database and yield the port, or 0 if `serving` is false."""
    if not serving:
        yield "0"
        return
    with RunningService(folder / "data") as service:
        yield service.base_url.rpartition(":")[2]


def run(script: str, folder: Path, **environment: str) -> str:
    """Return the output of a script. Fail if one of its commands fails."""
    path = f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"
    outcome = run_program(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=clean_environment() | {"PATH": path, "PIP_NO_COMPILE": "1", **environment},  # most modules are never loaded
        stdin=subprocess.DEVNULL,
    )
    assert outcome.returncode == 0, outcome
    return outcome.stdout + outcome.stderr


@pytest.mark.slow
@pytest.mark.uncovered
@pytest.mark.parametrize("block", COMMAND_BLOCKS, ids=[block.mark for block in COMMAND_BLOCKS])
def test_the_commands_of_a_block_work(block: CommandBlock, folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(folders[block.folder], folder)
    with serve_if(folder, serving=block.serving) as port:
        script = find_block(block.mark).replace("http://127.0.0.1:8000", f"http://127.0.0.1:{port}")
        script = script.replace("2026-11-20 22:00:00", time.strftime("%Y-%m-%d 00:00:00"))
        if block.mark == "listings doctor":  # it waits only two seconds for the service
            until(lambda: re.search(block.prints, run(script, folder, LISTINGS_PORT=port)))
        else:
            assert re.search(block.prints, run(script, folder, LISTINGS_PORT=port))


@pytest.mark.uncovered
def test_the_commands_for_the_copy_to_postgresql_work(
    folders: dict[str, Path], tmp_path: Path, postgres: PostgresServer
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(folders["used"], folder)
    section = PAGES["postgresql"].partition("\n## From SQLite to PostgreSQL\n")[2].partition("\n## ")[0]
    copy, doctor = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    (lines,) = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    url_file = folder / "database-url"
    settings = dict(line.split("=", 1) for line in lines.replace("/etc/listings/database-url", str(url_file)).split())
    with postgres.bare_database() as url:
        url_file.write_text(url, "utf-8")
        assert re.search(r"accounts +1\n", run(copy.replace("/etc/listings/database-url", str(url_file)), folder))
        assert re.search(r"schema +ok", run(doctor, folder, LISTINGS_PORT="0", **settings))
        assert "alice@example.com" in run("listings account list", folder, **settings)


def test_every_block_is_tested() -> None:
    ran = [find_block(mark) for mark in [*INSTALLED, *(block.mark for block in COMMAND_BLOCKS)]]
    assert sorted(ran) == sorted(BLOCKS)


@pytest.mark.slow
@pytest.mark.uncovered
def test_an_installation_does_not_need_the_checkout(tmp_path: Path) -> None:
    """Install plain Python: compiling takes a minute, and `make test-compiled` has done it.

    The environment on the other machine is created first. The one next to the checkout begins as a copy of it, because
    nothing else is gained by installing the same packages twice.
    """
    checkout, copied = tmp_path / "checkout", tmp_path / "copied"
    checkout.mkdir()
    copied.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(PROJECT_FOLDER / name, checkout)
    for name in ("requirements", "src"):
        shutil.copytree(PROJECT_FOLDER / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    install, wheel, other = (find_block(mark).replace("COMPILE=1", "COMPILE=0") for mark in INSTALLED)
    create, *install_here = install.splitlines(keepends=True)
    packages, program_there = other.splitlines(keepends=True)
    run(use_folder(create + packages, tmp_path / "other"), checkout)
    shutil.copytree(tmp_path / "other", tmp_path / "opt", symlinks=True)
    run(use_folder("".join(install_here) + wheel, tmp_path / "opt"), checkout)
    for name in ("dist", "requirements"):
        shutil.move(checkout / name, copied / name)
    shutil.rmtree(checkout)
    run(use_folder(program_there, tmp_path / "other"), copied)
    for name in ("opt", "other"):
        (tmp_path / f"folder-{name}").mkdir()
        program = tmp_path / name / "bin" / "listings"
        serve_and_stop(program, tmp_path / f"folder-{name}")


def use_folder(script: str, target: Path) -> str:
    """Return the script with another folder, and with this interpreter, whose pip is configured."""
    assert "/opt/listings" in script
    return script.replace("/opt/listings", str(target)).replace("python3 ", f"{sys.executable} ")


def serve_and_stop(command: Path, folder: Path) -> None:
    program = Program(folder)
    program.command = (command,)
    with program.serve() as service:
        assert service.stop().code == 0


@pytest.mark.uncovered
def test_the_commands_to_search_the_log_work(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(folders["used"], folder)
    (key,) = re.findall(r"lst_\w{38}", run("listings key create 1 --name other", folder))
    with Program(folder).serve() as service:
        assert service.status(key) == 200
        request_id = service.http.get("/api/v1/listings/1025", headers={"X-API-Key": key}).headers["X-Request-Id"]
        service.http.get("/healthz")
        (folder / "log").write_text(service.stop().err, "utf-8")
    searches = [line for line in CONSOLE.splitlines() if line.startswith(("journalctl", "docker"))]
    filters = [line.partition(" | ")[2] for line in searches if " | grep " in line]
    by_id, by_id_in_docker, by_key = filters
    assert by_id == by_id_in_docker
    (example,) = re.findall(r'"request_id":"(\w+)"', PAGES["troubleshooting"])
    found = run(f"{by_id.replace(example, request_id)} log", folder)
    assert [request_id in line for line in found.splitlines()] == [True]
    of_key = run(f"{by_key.replace(':1,', ':2,')} log", folder).splitlines()
    assert len(of_key) == 2


@pytest.mark.uncovered
def test_the_commands_for_postgresql_work(postgres: PostgresServer, tmp_path: Path) -> None:
    section = PAGES["postgresql"].partition("\n## From SQLite to PostgreSQL\n")[0]
    created, migrated, dumped = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    assert "--pwprompt listings\n" in created  # the test server has the role already, and needs no password
    created = created.replace("--pwprompt listings\n", "another_role\n")
    assert "--host=HOST " in dumped
    dumped = dumped.replace("--host=HOST ", "")  # PGHOST
    environment = {
        "PATH": f"{PROGRAM.parent}{os.pathsep}{find_programs()}{os.pathsep}{os.environ['PATH']}",
        "PGHOST": "127.0.0.1",
        "PGPORT": str(postgres.port),
        "PGUSER": USER,
        "LISTINGS_DATABASE_URL": postgres.url("listings"),
    }
    try:
        printed = run(created + migrated + dumped, tmp_path, **environment)
        assert re.search(r"schema +ok", printed)
        assert (tmp_path / "listings.dump").stat().st_size
        rows = postgres.execute("SELECT count(*) FROM schema_migrations", "listings_trial")
        assert rows == postgres.execute("SELECT count(*) FROM schema_migrations", "listings")
    finally:
        for statement in ("DATABASE IF EXISTS listings", "DATABASE IF EXISTS listings_trial", "ROLE another_role"):
            postgres.execute(f"DROP {statement}")
