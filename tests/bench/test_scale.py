"""Test the scale benchmark."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from bench import BenchmarkError, servers
from bench.data import Data, Owner
from bench.http_client import Response
from bench.machine import choose_cores
from bench.peers.candidates import StartOptions
from bench.peers.comparison import Cell
from bench.rounds import Plan, Run, require_count
from bench.scale import parts, table
from bench.scale.parts import ONE, TWO, Goal, Part
from bench.scale.postgres import _SETTINGS, Postgres, run_postgres
from bench.scale.variants import OWN_POOL, STATEMENTS, VARIANTS
from bench.scenarios import SCENARIOS
from bench.servers import Server, pinned
from bench.stall_detector import MeasuredRun
from listings import maintenance, wiring
from listings.contract.listings import AddStep
from listings.domain import api_keys
from listings.domain.model import NewListing
from listings.settings import load
from listings.store.postgres.batched_lookups import BatchedLookups
from listings.store.postgres.pool import PoolLimits
from listings.store.postgres.store import PostgresStore
from tests.harness import TIMEOUT
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.uncovered

PROJECT_FOLDER = Path(__file__).parent.parent.parent
PAGE = PROJECT_FOLDER / "docs/performance.md"
NO_DATA = Data(Path("none"), (), 0)


def run(rate: float, p99: int = 4000) -> MeasuredRun[Run]:
    return MeasuredRun(Run(rate, p50=1500, p99=p99, processor=25.04, peak_mebibytes=47.4, other_load=0.0), 0.0)


BOUNDS = PoolLimits(sessions=2, seconds=TIMEOUT)
CELL = Cell("list of 100", 32, {ONE: [run(1000), run(3000), run(2000)], TWO: [run(1900), run(5700), run(3800, 16_000)]})
PART = parts.build_lists_part(NO_DATA, (0, 1))


# The report


def test_a_goal_is_formatted_with_its_result() -> None:
    assert table.format_goals(PART, [CELL]) == [
        "Rate of lists, two processes relative to one, 32 connections: 1.90 (target: at least 1.85): reached.",
        "p99 (list of 100), two processes relative to one, 32 connections: 1.00 (target: at most 3): reached.",
    ]


@pytest.mark.parametrize(
    ("bound", "is_maximum", "is_reached"),
    [(2.0, False, True), (2.1, False, False), (2.0, True, True), (1.9, True, False)],
)
def test_a_goal_is_a_minimum_or_a_maximum(bound: float, is_maximum: bool, is_reached: bool) -> None:  # noqa: FBT001 - a parameter
    assert Goal("x", "create", lambda _: 2.0, bound, is_maximum=is_maximum).is_reached(CELL) is is_reached


def test_a_row_has_medians_and_the_ratio_to_the_first_variant() -> None:
    rows = table.format_table({PART: [CELL]}).splitlines()
    assert rows[2:] == [
        "| lists | list of 100 | 32 | one process | 2,000 | 1.00 | 1.50 | 4.00 | 25.0 | 47 | 0 |",
        "| lists | list of 100 | 32 | two processes | 3,800 | 1.90 | 1.50 | 4.00 | 25.0 | 47 | 0 |",
    ]


def test_the_report_has_facts_table_and_goals() -> None:
    text = table.format_report({PART: [CELL]}, Plan((), rounds=3), {"PostgreSQL": "18"}, has_priority=True)
    assert text.startswith("- PostgreSQL: 18.\n- Runs: 3 rounds of 10 s")
    assert text.index("| Part |") < text.index("\n- Rate of lists") < text.index("Other programs")


@pytest.fixture
def all_parts() -> list[Part]:
    with subprocess.Popen(["true"]) as process:
        server = Postgres(process, 1)
    return [
        parts.build_lists_part(NO_DATA, (0, 1)),
        parts.build_processes_part(NO_DATA, (0, 1)),
        parts.build_reads_part(NO_DATA, NO_DATA, server, 0),
        parts.build_creates_part(NO_DATA, server),
    ]


def test_every_goal_uses_a_measured_scenario(all_parts: list[Part]) -> None:
    for part in all_parts:
        assert len({candidate.name for candidate in part.candidates}) == len(part.candidates)
        for goal in part.goals:
            assert goal.scenario in {scenario.name for scenario in part.scenarios}
            cell = Cell(goal.scenario, 1, {candidate.name: [run(1000)] for candidate in part.candidates})
            assert goal.value(cell) > 0


def test_the_page_has_the_markers_and_names_every_part(all_parts: list[Part]) -> None:
    text = PAGE.read_text("utf-8")
    assert 0 < text.index(table.BEGIN) < text.index(table.END)
    assert all(f"- **{part.name}**:" in text for part in all_parts)


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--quick", "--write"], "A quick result"), (["--part", "reads", "--write"], "An incomplete result")],
)
def test_an_incomplete_result_is_not_written(options: list[str], message: str) -> None:
    command = [sys.executable, "-m", "bench.scale", *options]
    outcome = subprocess.run(command, cwd=PROJECT_FOLDER, capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert message in outcome.stderr


def test_creates_that_are_not_stored_are_an_error() -> None:
    require_count(105, expected=100, connections=3)
    for rows in (99, 107):
        with pytest.raises(BenchmarkError, match=f"{rows} listings are stored, expected 100"):
            require_count(rows, expected=100, connections=3)


# Servers


def test_a_server_may_have_several_cores(tmp_path: Path) -> None:
    code = "import os, time; print('Uvicorn running on http://127.0.0.1:1', os.sched_getaffinity(0), flush=True)"
    with (
        pinned(choose_cores()),
        servers.run_server([sys.executable, "-c", f"{code}; time.sleep(60)"], {}, tmp_path, choose_cores()),
    ):
        assert str(set(choose_cores())) in (tmp_path / "log").read_text("utf-8")


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
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
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


def test_there_are_two_variants() -> None:
    assert set(VARIANTS) == {OWN_POOL, STATEMENTS}


def test_a_server_that_does_not_start_is_reported(work_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_SETTINGS, "shared_buffers", "nonsense")
    with (
        pytest.raises(BenchmarkError, match="PostgreSQL does not start: "),
        run_postgres(work_folder, choose_cores()[1]),
    ):
        pass
