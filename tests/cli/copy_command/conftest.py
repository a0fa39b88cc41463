"""Fixtures for the tests of `listings copy`."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.cli.commands import Cli
from tests.cli.copy_command.copies import Source, Target, add_rows, fill
from tests.postgres_server import PostgresServer
from tests.store import databases


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A source: alice has enough listings to be indexed, bob has unusual ones, and charlie has no plan."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / "data").mkdir()
    source = Source(folder, fill(folder))
    add_rows(source)
    return source


@pytest.fixture
def source(filled: Source, cli: Cli) -> Source:
    (cli.folder / "data").mkdir()
    with closing(databases.connect(filled.file)) as connection:
        connection.execute("VACUUM INTO ?", (str(cli.folder / "data" / "listings.db"),)).fetchall()
    return filled._replace(folder=cli.folder)


@pytest.fixture
def target(postgres: PostgresServer) -> Iterator[Target]:
    with postgres.bare_database() as url:
        yield Target(postgres, url)


@pytest.fixture
def other(postgres: PostgresServer) -> Iterator[Target]:
    with postgres.bare_database() as url:
        yield Target(postgres, url)
