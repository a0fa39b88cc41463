"""A session with PostgreSQL over TLS, as the database's address asks for it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from listings.domain.errors import Problem
from listings.store.postgres.pool import PoolLimits
from listings.store.postgres.store import PostgresStore
from tests.certificates import self_signed
from tests.postgres_server import USER, PostgresServer

BOUNDS = PoolLimits(sessions=2, seconds=60)
_REQUEST = (8).to_bytes(4, "big") + (80_877_103).to_bytes(4, "big")  # PostgreSQL 15 documentation, 55.2.10


class Terminator:
    """Speaks TLS in front of a PostgreSQL that may be built without it; counts who has spoken it to the end."""

    def __init__(self, port: int, signed: Path, key: Path) -> None:
        self._port = port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(signed, key)
        self.spoken = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            if await reader.readexactly(len(_REQUEST)) == _REQUEST:
                writer.write(b"S")
                await writer.start_tls(self._context)
                self.spoken += 1
                await self._connect(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await asyncio.gather(_hand_on(reader, inner_writer), _hand_on(inner_reader, writer))
        finally:
            inner_writer.close()


async def _hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


@asynccontextmanager
async def in_front_of(port: int, signed: Path, key: Path) -> AsyncIterator[tuple[Terminator, int]]:
    terminator = Terminator(port, signed, key)
    server = await asyncio.start_server(terminator.take, "127.0.0.1", 0)
    async with server:
        yield terminator, server.sockets[0].getsockname()[1]


def fetch(server: PostgresServer, pair: tuple[Path, Path], parameters: str, host: str = "localhost") -> int:
    """Open a store by an address with these parameters and ask it something; returns how many sessions spoke TLS."""

    async def run(database: str) -> int:
        async with in_front_of(server.port, *pair) as (terminator, port):
            store = PostgresStore(f"postgresql://{USER}@{host}:{port}/{database}?{parameters}", BOUNDS)
            await store.open()
            try:
                assert await store.get_listing(1025) is None
            finally:
                await store.close()
            return terminator.spoken

    with server.database() as url:
        return asyncio.run(run(url.rpartition("/")[2].partition("?")[0]))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return self_signed(tmp_path, "localhost")


@pytest.mark.parametrize("mode", ["prefer", "require"])
def test_sessions_speak_tls_where_the_server_does(postgres: PostgresServer, pair: tuple[Path, Path], mode: str) -> None:
    assert fetch(postgres, pair, f"sslmode={mode}") >= 1


def test_a_certificate_of_the_named_authority_and_host_is_taken(
    postgres: PostgresServer, pair: tuple[Path, Path]
) -> None:
    assert fetch(postgres, pair, f"sslmode=verify-full&sslrootcert={quote(str(pair[0]))}") >= 1


def test_a_certificate_of_another_authority_is_refused(
    postgres: PostgresServer, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other, _ = self_signed(tmp_path / "other", "localhost")
    with pytest.raises(Problem, match=r"can't be reached: .*certificate"):
        fetch(postgres, pair, f"sslmode=verify-full&sslrootcert={quote(str(other))}")


def test_a_certificate_of_another_host_is_refused(postgres: PostgresServer, pair: tuple[Path, Path]) -> None:
    root = f"sslrootcert={quote(str(pair[0]))}"
    with pytest.raises(Problem, match=r"can't be reached: .*certificate"):
        fetch(postgres, pair, f"sslmode=verify-full&{root}", host="127.0.0.1")
    assert fetch(postgres, pair, f"sslmode=verify-ca&{root}", host="127.0.0.1") >= 1


def test_a_server_without_tls_is_refused_where_it_is_required(postgres: PostgresServer) -> None:
    async def run(url: str) -> None:
        await PostgresStore(url, BOUNDS).open()

    with postgres.database() as url, pytest.raises(Problem, match="can't be reached"):
        asyncio.run(run(url.replace("sslmode=disable", "sslmode=require")))
