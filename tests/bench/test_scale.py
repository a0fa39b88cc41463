"""The scale-out's benchmark compares like with like, on servers that it begins and ends."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from bench import RejectedRequest, servers
from bench.data import Data, Owner
from bench.exchange import Answer
from bench.machine import two_cores
from bench.peers.contenders import Start
from bench.peers.contest import Cell
from bench.rounds import Plan, Run, require_count
from bench.scale import parts, table
from bench.scale.parts import ONE, TWO, Goal, Part
from bench.scale.postgres import _SETTINGS, Postgres, started
from bench.scale.variants import OWN_POOL, STATEMENTS, VARIANTS
from bench.scenarios import SCENARIOS
from bench.servers import Server, pinned
from bench.witness import Watched
from listings import maintenance, wiring
from listings.domain import api_keys
from listings.domain.model import NewListing
from listings.settings import load
from listings.store.postgres.batched_lookups import BatchedLookups
from listings.store.postgres.pool import PoolLimits
from listings.store.postgres.store import PostgresStore
from tests.harness import TIMEOUT
from tests.postgres_server import PostgresServer

HOME = Path(__file__).parent.parent.parent
PAGE = HOME / "docs/performance.md"
NOTHING = Data(Path("none"), (), 0)


def run(rate: float, p99: int = 4000) -> Watched[Run]:
    return Watched(Run(rate, p50=1500, p99=p99, processor=25.04, peak_mebibytes=47.4, foreign=0.0), 0.0)


BOUNDS = PoolLimits(sessions=2, seconds=TIMEOUT)
CELL = Cell("list of 100", 32, {ONE: [run(1000), run(3000), run(2000)], TWO: [run(1900), run(5700), run(3800, 16_000)]})
PART = parts.of_lists(NOTHING, (0, 1))


# What is told


def test_a_goal_is_told_with_what_it_has_come_to() -> None:
    assert table.goal_lines(PART, [CELL]) == [
        "Rate of lists, two processes relative to one, 32 connections: 1.90 (target: at least 1.85): reached.",
        "p99 (list of 100), two processes relative to one, 32 connections: 1.00 (target: at most 3): reached.",
    ]


@pytest.mark.parametrize(
    ("bound", "at_most", "reached"), [(2.0, False, True), (2.1, False, False), (2.0, True, True), (1.9, True, False)]
)
def test_a_goal_is_a_least_or_a_most(bound: float, at_most: bool, reached: bool) -> None:  # noqa: FBT001 - a case
    assert Goal("x", "create", lambda _: 2.0, bound, at_most=at_most).is_reached(CELL) is reached


def test_a_row_tells_medians_and_the_ratio_to_the_first_way() -> None:
    rows = table.table({PART: [CELL]}).splitlines()
    assert rows[2:] == [
        "| lists | list of 100 | 32 | one process | 2,000 | 1.00 | 1.50 | 4.00 | 25.0 | 47 | 0 |",
        "| lists | list of 100 | 32 | two processes | 3,800 | 1.90 | 1.50 | 4.00 | 25.0 | 47 | 0 |",
    ]


def test_the_report_has_facts_table_and_goals() -> None:
    text = table.report({PART: [CELL]}, Plan((), rounds=3), {"PostgreSQL": "18"}, goes_first=True)
    assert text.startswith("- PostgreSQL: 18.\n- Runs: 3 rounds of 10 s")
    assert text.index("| Part |") < text.index("\n- Rate of lists") < text.index("Other programs")


@pytest.fixture
def every_part() -> list[Part]:
    with subprocess.Popen(["true"]) as process:
        server = Postgres(process, 1)
    return [
        parts.of_lists(NOTHING, (0, 1)),
        parts.of_processes(NOTHING, (0, 1)),
        parts.of_reads(NOTHING, NOTHING, server, 0),
        parts.of_creates(NOTHING, server),
    ]


def test_every_goal_is_of_a_scenario_and_of_ways_that_are_measured(every_part: list[Part]) -> None:
    for part in every_part:
        assert len({way.name for way in part.contenders}) == len(part.contenders)
        for goal in part.goals:
            assert goal.scenario in {scenario.name for scenario in part.scenarios}
            cell = Cell(goal.scenario, 1, {way.name: [run(1000)] for way in part.contenders})
            assert goal.value(cell) > 0


def test_the_page_has_a_place_for_the_result_and_tells_every_part(every_part: list[Part]) -> None:
    text = PAGE.read_text("utf-8")
    assert 0 < text.index(table.BEGIN) < text.index(table.END)
    assert all(f"- **{part.name}**:" in text for part in every_part)


@pytest.mark.parametrize(
    ("options", "told"), [(["--quick", "--write"], "A quick result"), (["--part", "reads", "--write"], "A part of")]
)
def test_a_quick_result_and_a_part_are_not_kept(options: list[str], told: str) -> None:
    command = [sys.executable, "-m", "bench.scale", *options]
    outcome = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert told in outcome.stderr


def test_creates_that_are_not_stored_end_the_benchmark() -> None:
    require_count(105, wanted=100, connections=3)
    for rows in (99, 107):
        with pytest.raises(RejectedRequest, match=f"{rows} listings are stored where 100 should be"):
            require_count(rows, wanted=100, connections=3)


# What runs


def test_a_server_may_have_several_cores(tmp_path: Path) -> None:
    code = "import os, time; print('Uvicorn running on http://127.0.0.1:1', os.sched_getaffinity(0), flush=True)"
    with (
        pinned(two_cores()),
        servers.started([sys.executable, "-c", f"{code}; time.sleep(60)"], {}, tmp_path, two_cores()),
    ):
        assert str(set(two_cores())) in (tmp_path / "log").read_text("utf-8")


async def fill(url: str, folder: Path) -> Owner:
    """One account without listings."""
    async with wiring.open_service(load({}, {"database": url, "data_folder": str(folder)})) as service:
        account = await service.add_account("Alice", "alice@example.com", int(service.clock()) + 10**6)
        return Owner((await service.add_key(account, "bench", api_keys.generate())).secret, ())


def created(server: Server, owner: Owner) -> int:
    scenario = next(row for row in SCENARIOS if row.creates)
    return scenario.check(Data(Path("none"), (owner,), 0), server.port).status


@pytest.fixture
def ground() -> Iterator[Path]:
    """A folder below one that another user may enter, as pytest's is not."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        yield Path(folder)


@pytest.mark.parametrize("variant", ["", *VARIANTS])
def test_the_service_runs_each_way_on_a_fresh_copy(ground: Path, variant: str) -> None:
    with started(ground, two_cores()[1]) as server:
        url = server.new()
        maintenance.migrate_database(load({}, {"database": url, "data_folder": str(ground)}))
        owner = asyncio.run(fill(url, ground))
        fetch(url, "ALTER ROLE CURRENT_USER SET track_functions = 'pl'")
        server.settle()
        way = parts._on_postgres("way", NOTHING, server, variant)  # noqa: SLF001 - what a part is made of
        for name in ("one", "two"):
            folder = ground / name
            folder.mkdir()
            with way.running(Start(folder, two_cores()[0], Answer(b"", b""))) as service:
                assert created(service, owner) == 201
                assert service.beside_seconds() > 0
            assert way.stored(folder) == 1
            called = fetch(server.url(server._copies[folder]), "SELECT count(*) FROM pg_stat_user_functions")  # noqa: SLF001 - its name
            assert called == (0 if variant == STATEMENTS else 1)
    assert server.process.poll() is not None
    assert not list(ground.glob("postgres-*/data/postmaster.pid"))


def fetch(url: str, statement: str) -> Any:
    async def fetch() -> Any:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    return asyncio.run(fetch())


def test_what_is_read_on_the_drivers_own_pool_is_read_each_by_itself_and_is_the_same(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(store: PostgresStore) -> list[Any]:
        await store.open()
        try:
            found = [await store.get_listing(1025), await store.get_listing_and_revision(1025)]
            return [*found, await store.get_listing_and_revision(2049), await store.get_revision(1, 1)]
        finally:
            await store.close()

    async def write(store: PostgresStore) -> None:
        await store.open()
        await store.add_account("Alice", "alice@example.com", None, 1_000)
        await store.add_listing(1, 1, NewListing(title="Lamp", content="Bright."), "2026-11-21 10:00:00")
        await store.close()

    with postgres.database() as url:
        asyncio.run(write(PostgresStore(url, BOUNDS)))
        usual = asyncio.run(read(PostgresStore(url, BOUNDS)))
        assert usual[1][1] == usual[3] == 1
        monkeypatch.delattr(BatchedLookups, "find")
        assert asyncio.run(read(VARIANTS[OWN_POOL](url, BOUNDS))) == usual


def test_both_variants_are_measured() -> None:
    assert set(VARIANTS) == {OWN_POOL, STATEMENTS}


def test_a_server_that_can_not_start_is_told(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_SETTINGS, "shared_buffers", "nonsense")
    with pytest.raises(RejectedRequest, match="PostgreSQL does not start: "), started(ground, two_cores()[1]):
        pass
