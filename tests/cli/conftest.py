"""Fixtures of the command line's tests. Accounts are the data that `account create --json` prints."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Cli, Data, Program, Serving
from tests.harness import Harness
from tests.sqlite_database import create_database


@pytest.fixture
def cli(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    restore_logging: None,  # noqa: ARG001 - commands configure it
) -> Cli:
    """Runs commands in this process, from an empty folder."""
    return Cli(tmp_path, monkeypatch, capsys)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The installed program, in the same folder as `cli`."""
    return Program(tmp_path)


@pytest.fixture
def key(program: Program) -> str:
    with Harness(program.folder / "data", database=f"sqlite:///{program.folder}/data/listings.db") as harness:
        return harness.person("alice").key


@pytest.fixture
def service(program: Program) -> Iterator[Serving]:
    with program.serve() as service:
        yield service


@pytest.fixture
def taken_port() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield str(other.getsockname()[1])


@pytest.fixture
def database(cli: Cli) -> Path:
    """A new database in the folder, as `migrate` creates it."""
    path = cli.folder / "data/listings.db"
    create_database(path)
    return path


@pytest.fixture
def alice(cli: Cli, database: Path) -> Data:  # noqa: ARG001 - creates the database
    return cli.account("alice", "--months", "12")


@pytest.fixture
def bob(cli: Cli, database: Path) -> Data:  # noqa: ARG001 - creates the database
    return cli.account("bob", "--until", "2099-12-31")


@pytest.fixture
def charlie(cli: Cli, database: Path) -> Data:  # noqa: ARG001 - creates the database
    return cli.account("charlie", "--until", "2020-01-01")
