"""The price of the Business plan has one home: the setting (decision G26)."""

from pathlib import Path

import pytest

from tests.harness import Harness
from tests.site.tab import open_console, open_harness


def read_docs(harness: Harness) -> list[str]:
    return [harness.fetch("GET", path).body.decode() for path in ("/docs", "/openapi.json")]


@pytest.mark.decision("G26")
@pytest.mark.parametrize(
    ("flags", "price"),
    [
        ({}, "49 NZD a month"),
        ({"plan_price": "59.50"}, "59.50 NZD a month"),
        ({"plan_price": "1200", "stripe_currency": "usd"}, "1,200 USD a month"),
    ],
)
def test_the_price_is_the_same_everywhere(tmp_path: Path, flags: dict[str, str], price: str) -> None:
    with open_harness(tmp_path, **flags) as harness:
        tab = open_console(harness, months=0)
        paths = ("/console", "/console/keys", "/console/plan", "/console/listings/new")
        texts = [tab.get(path).text for path in paths] + read_docs(harness)
        texts.append(harness.fetch("GET", "/sign-up", headers={"Accept": "text/html"}).body.decode())
    assert [price in text for text in texts] == [True] * 7


@pytest.mark.decision("G26")
@pytest.mark.parametrize(
    ("flags", "source"),
    [
        ({}, "Create a key in the console at `/console/keys`."),
        ({"base_url": "https://a.example"}, "Create a key in the console at `https://a.example/console/keys`."),
        ({"site": "off"}, "Ask the operator for a key."),
    ],
)
def test_the_documentation_names_where_keys_come_from(tmp_path: Path, flags: dict[str, str], source: str) -> None:
    with Harness(tmp_path, **flags) as harness:
        page, document = read_docs(harness)
    assert source in document
    before, _, after = source.partition("`")
    assert before in page
    assert not after or f"<code>{after.partition('`')[0]}</code>" in page
