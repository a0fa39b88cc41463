"""Sessions with PostgreSQL use TLS as the parameters of the database URL say."""

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
from tests.certificates import create_certificate
from tests.postgres_server import USER, PostgresServer

LIMITS = PoolLimits(sessions=2, seconds=60)
_REQUEST = (8).to_bytes(4, "big") + (80_877_103).to_bytes(4, "big")  # PostgreSQL 15 documentation, 55.2.10


class TlsProxy:
    """Terminates TLS in front of a PostgreSQL server that may be built without it, and counts completed handshakes."""

    def __init__(self, port: int, certificate: Path, key: Path) -> None:
        self._port = port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self.handshakes = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await reader.readexactly(len(_REQUEST)) == _REQUEST:
                writer.write(b"S")
                await writer.start_tls(self._context)
                self.handshakes += 1
                await self._connect(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await asyncio.gather(_forward(reader, inner_writer), _forward(inner_reader, writer))
        finally:
            inner_writer.close()


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


@asynccontextmanager
async def run_proxy(port: int, certificate: Path, key: Path) -> AsyncIterator[tuple[TlsProxy, int]]:
    proxy = TlsProxy(port, certificate, key)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    async with server:
        yield proxy, server.sockets[0].getsockname()[1]


def count_handshakes(server: PostgresServer, pair: tuple[Path, Path], parameters: str, host: str = "localhost") -> int:
    """Open a store with these URL parameters, read from it, and return the number of TLS handshakes."""

    async def run(database: str) -> int:
        async with run_proxy(server.port, *pair) as (proxy, port):
            store = PostgresStore(f"postgresql://{USER}@{host}:{port}/{database}?{parameters}", LIMITS)
            await store.open()
            try:
                assert await store.get_listing(1025) is None
            finally:
                await store.close()
            return proxy.handshakes

    with server.database() as url:
        return asyncio.run(run(url.rpartition("/")[2].partition("?")[0]))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return create_certificate(tmp_path, "localhost")


@pytest.mark.parametrize("mode", ["prefer", "require"])
def test_tls_is_used_if_the_server_supports_it(postgres: PostgresServer, pair: tuple[Path, Path], mode: str) -> None:
    assert count_handshakes(postgres, pair, f"sslmode={mode}") >= 1


def test_a_certificate_for_the_authority_and_host_is_accepted(
    postgres: PostgresServer, pair: tuple[Path, Path]
) -> None:
    assert count_handshakes(postgres, pair, f"sslmode=verify-full&sslrootcert={quote(str(pair[0]))}") >= 1


def test_a_certificate_of_another_authority_is_rejected(
    postgres: PostgresServer, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other, _ = create_certificate(tmp_path / "other", "localhost")
    with pytest.raises(Problem, match=r"can't be reached: .*certificate"):
        count_handshakes(postgres, pair, f"sslmode=verify-full&sslrootcert={quote(str(other))}")


def test_a_certificate_for_another_host_is_rejected(postgres: PostgresServer, pair: tuple[Path, Path]) -> None:
    root = f"sslrootcert={quote(str(pair[0]))}"
    with pytest.raises(Problem, match=r"can't be reached: .*certificate"):
        count_handshakes(postgres, pair, f"sslmode=verify-full&{root}", host="127.0.0.1")
    assert count_handshakes(postgres, pair, f"sslmode=verify-ca&{root}", host="127.0.0.1") >= 1


def test_a_server_without_tls_is_rejected_if_tls_is_required(postgres: PostgresServer) -> None:
    async def run(url: str) -> None:
        await PostgresStore(url, LIMITS).open()

    with postgres.database() as url, pytest.raises(Problem, match="can't be reached"):
        asyncio.run(run(url.replace("sslmode=disable", "sslmode=require")))
