"""Test the scale benchmark."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from bench.data import Data, Owner
from bench.http_client import Response
from bench.machine import choose_cores
from bench.peers.candidates import StartOptions
from bench.scale import parts
from bench.scale.postgres import run_postgres
from bench.scale.variants import OWN_POOL, STATEMENTS, VARIANTS
from bench.scenarios import SCENARIOS
from bench.servers import Server
from listings import maintenance, wiring
from listings.domain import api_keys
from listings.domain.listings import AddStep
from listings.domain.model import NewListing
from listings.settings import load
from listings.store.postgres.batched_lookups import BatchedLookups
from listings.store.postgres.pool import PoolLimits
from listings.store.postgres.store import PostgresStore
from tests.harness import TIMEOUT
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.uncovered

NO_DATA = Data(Path("none"), (), 0)


BOUNDS = PoolLimits(sessions=2, seconds=TIMEOUT)


# Servers


async def fill(url: str, folder: Path) -> Owner:
    """Create an account without listings."""
    async with wiring.open_services(load({}, {"database": url, "data_folder": str(folder)})) as services:
        account = await services.accounts.add("Alice", "alice@example.com", int(services.clock()) + 10**6)
        return Owner((await services.keys.add(account, "bench", api_keys.generate())).secret, ())


def create_listing(server: Server, owner: Owner) -> int:
    scenario = next(row for row in SCENARIOS if row.creates)
    return scenario.check(Data(Path("none"), (owner,), 0), server.port).status


@pytest.fixture
def work_folder() -> Iterator[Path]:
    """Create a folder that other users may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.mark.parametrize("variant", ["", *VARIANTS])
def test_each_variant_runs_on_a_new_copy(work_folder: Path, variant: str) -> None:
    with run_postgres(work_folder, choose_cores()[1]) as server:
        url = server.create_template()
        maintenance.migrate_database(load({}, {"database": url, "data_folder": str(work_folder)}))
        owner = asyncio.run(fill(url, work_folder))
        fetch(url, "ALTER ROLE CURRENT_USER SET track_functions = 'pl'")
        server.analyze()
        candidate = parts._on_postgres("variant", NO_DATA, server, variant)  # noqa: SLF001 - the builder of the parts
        for name in ("one", "two"):
            folder = work_folder / name
            folder.mkdir()
            with candidate.run(StartOptions(folder, choose_cores()[0], Response(b"", b""))) as service:
                assert create_listing(service, owner) == 201
                assert service.get_database_seconds() > 0
            assert candidate.count_rows(folder) == 1
            called = fetch(server.url(server._copies[folder]), "SELECT count(*) FROM pg_stat_user_functions")  # noqa: SLF001 - the name of the copy
            assert called == (0 if variant == STATEMENTS else 1)
    assert server.process.poll() is not None
    assert not list(work_folder.glob("postgres-*/data/postmaster.pid"))


def fetch(url: str, statement: str) -> Any:
    async def fetch() -> Any:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    return asyncio.run(fetch())


def test_the_asyncpg_pool_variant_reads_the_same(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(store: PostgresStore) -> list[Any]:
        await store.open()
        try:
            found = [await store.get_listing(1025), await store.get_listing_and_revision(1025)]
            return [*found, await store.get_listing_and_revision(2049), (await store.get_revisions(1, 1)).revision]
        finally:
            await store.close()

    async def write(store: PostgresStore) -> None:
        await store.open()
        await store.add_account("Alice", "alice@example.com", None, 1_000)
        await store.add_listing(1, 1, AddStep(NewListing(title="Lamp", content="Bright."), "2026-11-21 10:00:00"))
        await store.close()

    with postgres.database() as url:
        asyncio.run(write(PostgresStore(url, BOUNDS)))
        usual = asyncio.run(read(PostgresStore(url, BOUNDS)))
        assert usual[1][1] == usual[3] == 1
        monkeypatch.delattr(BatchedLookups, "find")
        assert asyncio.run(read(VARIANTS[OWN_POOL](url, BOUNDS))) == usual
