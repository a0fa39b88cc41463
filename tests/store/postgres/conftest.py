"""Databases of PostgreSQL, by their URLs."""

from collections.abc import Iterator

import pytest

from tests.postgres_server import PostgresServer


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database() as url:
        yield url


@pytest.fixture
def altered_url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database(altered=True) as url:
        yield url
