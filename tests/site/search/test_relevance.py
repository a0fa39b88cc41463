"""Searches find what they must, in the right order, over the demo and over near misses."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from listings.cli import demo
from listings.domain import fields
from listings.domain.model import Caller, MarketQuery, bucket_of
from tests.harness import Harness, cheap_passwords

TABLE = tomllib.loads(Path(__file__).with_name("relevance.toml").read_text("utf-8"))


@pytest.fixture(scope="module")
def demo_market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    folder = tmp_path_factory.mktemp("demo")
    with cheap_passwords(), Harness(folder) as harness:
        harness.run(demo.prepare(harness.services, folder))
        harness.index_market()
        yield harness


@pytest.fixture(scope="module")
def near_misses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    with Harness(tmp_path_factory.mktemp("near")) as harness:
        callers = []
        for name in ("alice", "bob", "charlie"):
            account = harness.person(name).account
            callers.append(Caller(1, account.id, bucket_of(account.id), 2**40, None, None, None, "write"))
        for number, listing in enumerate(TABLE["listings"]):
            new, _ = fields.parse_new_listing({"content": "For sale.", **listing}, strict=False)
            harness.run(harness.services.listings.create(callers[number % len(callers)], new))
        harness.index_market()
        yield harness


def check(harness: Harness, row: dict[str, Any]) -> None:
    results = harness.run(harness.services.market.find(MarketQuery(text=row["q"], sort="best", limit=200)))
    titles = [] if results.left_out else [entry.title for entry in results.page.entries]
    if "first" in row:
        assert [*titles, "none"][0] == row["first"], (row, titles)
    assert set(row.get("found", ())) <= set(titles), (row, titles)
    assert not set(row.get("not", ())) & set(titles), (row, titles)


@pytest.mark.decision("G51")
def test_searches_of_the_demo(demo_market: Harness) -> None:
    for row in TABLE["demo"]:
        check(demo_market, row)


@pytest.mark.decision("G51")
def test_searches_with_near_misses(near_misses: Harness) -> None:
    for row in TABLE["near"]:
        check(near_misses, row)
