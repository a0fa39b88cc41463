"""A database of many listings is filled, asked and told of as it is."""

import asyncio
import shutil
from pathlib import Path

import apsw
import pytest

from bench import large
from bench.large import Run, told
from tests.bench.programs import run_program


def test_a_stock_has_its_listings_and_asks_for_those_of_accounts_with_a_key(tmp_path: Path) -> None:
    stock = asyncio.run(large.fill(tmp_path / "stock.db", 500))
    rows = apsw.Connection(str(stock.database)).execute("SELECT id, account_id FROM listings").fetchall()
    assert len(rows) == 500
    assert len({account for _, account in rows}) == 100
    asked_for = [int(request.path.rpartition("/")[2]) for request in stock.requests]
    assert set(asked_for) == {listing_id for listing_id, _ in rows}
    assert len({request.key for request in stock.requests}) == 100
    assert stock.rate > 0


def test_what_was_found_is_told_by_medians() -> None:
    runs = [(Run(0.1, 100), Run(0.3, 90)), (Run(0.2, 100), Run(0.2, 80)), (Run(0.4, 200), Run(0.4, 200))]
    assert told(2_000, 60_000, runs).splitlines() == [
        "2,000 listings came in through the store: 60,000 rows a second (to be at least 50,000).",
        "Reads with them as a part of those with 10,000: 0.90 (to be at least 0.85).",
        "From the start to the first answer: 0.30 s (to be at most 0.5); with 10,000 0.20 s.",
    ]


@pytest.mark.timing
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_a_short_run_measures_and_leaves_nothing_behind(tmp_path: Path) -> None:
    options = ["--listings", "20000", "--rounds", "1", "--seconds", "1", "--folder", str(tmp_path)]
    done = run_program("bench.large", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("20,000 listings came in through the store: ")
    assert list(tmp_path.iterdir()) == []
