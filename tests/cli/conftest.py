"""Fixtures of the command line's tests. The cast are accounts here, as `account create --json` prints them."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Cli, Data, Program, Serving


@pytest.fixture
def cli(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    restore_logging: None,  # noqa: ARG001 - commands configure it
) -> Cli:
    """Commands in this process, from an empty folder."""
    return Cli(tmp_path, monkeypatch, capsys)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The installed program, from the same folder."""
    return Program(tmp_path)


@pytest.fixture
def service(program: Program) -> Iterator[Serving]:
    """The service over the folder's database, in a process of its own."""
    with program.serve() as service:
        yield service


@pytest.fixture
def taken_port() -> Iterator[str]:
    """A port on which something else listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield str(other.getsockname()[1])


@pytest.fixture
def database(cli: Cli) -> Path:
    """The folder's database, new."""
    return Path(cli.data("migrate")["database"])


@pytest.fixture
def alice(cli: Cli, database: Path) -> Data:  # noqa: ARG001 - it must be there
    """The owner."""
    return cli.account("alice", "--months", "12")


@pytest.fixture
def bob(cli: Cli, database: Path) -> Data:  # noqa: ARG001 - it must be there
    """Another account."""
    return cli.account("bob", "--until", "2099-12-31")


@pytest.fixture
def charlie(cli: Cli, database: Path) -> Data:  # noqa: ARG001 - it must be there
    """An account whose plan has expired."""
    return cli.account("charlie", "--until", "2020-01-01")
