"""Test the benchmark of a large database."""

import asyncio
import shutil
from pathlib import Path

import apsw
import pytest

from bench import large
from bench.large import Run, summarize
from tests.bench.programs import run_program


def test_the_requests_cover_listings_of_accounts_with_a_key(tmp_path: Path) -> None:
    database = asyncio.run(large.fill(tmp_path / "large.db", 500))
    rows = apsw.Connection(str(database.file)).execute("SELECT id, account_id FROM listings").fetchall()
    assert len(rows) == 500
    assert len({account for _, account in rows}) == 100
    requested = [int(request.path.rpartition("/")[2]) for request in database.requests]
    assert set(requested) == {listing_id for listing_id, _ in rows}
    assert len({request.key for request in database.requests}) == 100
    assert database.rate > 0


def test_runs_are_summarized_by_medians() -> None:
    runs = [(Run(0.1, 100), Run(0.3, 90)), (Run(0.2, 100), Run(0.2, 80)), (Run(0.4, 200), Run(0.4, 200))]
    assert summarize(2_000, 60_000, runs).splitlines() == [
        "2,000 listings were imported through the store: 60,000 rows per second (target: at least 50,000).",
        "Rate of reads relative to 10,000 listings: 0.90 (target: at least 0.85).",
        "From the start to the first response: 0.30 s (target: at most 0.5); with 10,000 listings 0.20 s.",
    ]


@pytest.mark.uncovered
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_a_short_run_measures_and_cleans_up(tmp_path: Path) -> None:
    options = ["--listings", "20000", "--rounds", "1", "--seconds", "1", "--folder", str(tmp_path)]
    done = run_program("bench.large", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("20,000 listings were imported through the store: ")
    assert list(tmp_path.iterdir()) == []
