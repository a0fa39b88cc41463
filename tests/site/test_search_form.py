"""The search form of the market: from URL parameters to a query, and back."""

from typing import Any

import pytest
from starlette.datastructures import QueryParams

from listings.domain.model import MarketQuery
from listings.site.search import Search, read


@pytest.mark.parametrize(
    ("parameters", "query"),
    [
        ("", {}),
        ("q=&type=&category=&region=&price_min=&price_max=&sort=newest", {}),
        ("price_min=500&price_max=1%2C00", {"price_min": 50_000}),
        ("price_min=500&price_max=100", {"price_min": 10_000, "price_max": 50_000}),
        ("before=5-7", {"after": (5, 7)}),
        ("q=Rimu+table%2C+RIMU", {"text": "Rimu table, RIMU", "sort": "best"}),
        ("q=saw&sort=newest&after=450-12", {"text": "saw", "after": (450, 12)}),
        ("q=saw&after=450-12", {"text": "saw", "sort": "best"}),
        ("q=saw&after=24-12", {"text": "saw", "sort": "best"}),
        ("q=saw&after=24-0", {"text": "saw", "sort": "best", "after": (24, 0)}),
        ("q=saw&after=200-12", {"text": "saw", "sort": "best", "after": (200, 12)}),
        ("sort=best", {}),
        ("type=job&category=Retail&region=Otago", {"type": "job", "category": "Retail", "region": "Otago"}),
        ("type=car&sort=worst&after=x", {}),
        ("price_min=%241%2C200&price_max=1+500.5", {"price_min": 120_000, "price_max": 150_050}),
        ("price_min=1,200,000.50&price_max=2,000,000", {"price_min": 120_000_050, "price_max": 200_000_000}),
        ("price_min=0&price_max=999999999.99", {"price_min": 0, "price_max": 99_999_999_999}),
        ("sort=-price&after=120000-42", {"sort": "-price", "after": (120_000, 42)}),
        ("after=99999999999999999999-1", {}),
        ("nothing=known&q=saw&q=table", {"text": "table", "sort": "best"}),
    ],
)
def test_parameters_become_a_query(parameters: str, query: dict[str, Any]) -> None:
    assert read(QueryParams(parameters), "").query()[0] == MarketQuery(**query)


@pytest.mark.parametrize(
    ("parameters", "fields"),
    [
        ("price_min=cheap", {"price_min"}),
        ("price_min=-1&price_max=1e3", {"price_min", "price_max"}),
        ("price_min=1.234", {"price_min"}),
        ("price_max=9999999999", {"price_max"}),
        ("price_min=1,5&price_max=12,34,567", {"price_min", "price_max"}),
        ("price_min=1200,000&price_max=1,200,", {"price_min", "price_max"}),
        ("price_max=" + "9" * 200, {"price_max"}),
        ("price_min=5&price_max=4", set()),
        ("price_min=٣", {"price_min"}),
        ("q=%21%3F", {"q"}),
    ],
)
def test_invalid_parameters_are_reported_by_field(parameters: str, fields: set[str]) -> None:
    assert read(QueryParams(parameters), "").query()[1].keys() == fields


@pytest.mark.parametrize(
    ("search", "url"),
    [
        (Search(q="a&b", region="Hawke's Bay"), "/?q=a%26b&region=Hawke%27s+Bay"),
        (Search(sort="newest"), "/?sort=newest"),
        (Search(sort="price", after=(1, 2, "")), "/?sort=price&after=1-2"),
        (Search(q="saw", sort="price", before=(500, 7, "")), "/?q=saw&sort=price&before=500-7"),
    ],
)
def test_the_url_contains_only_filled_in_fields(search: Search, url: str) -> None:
    assert search.url() == url
    assert read(QueryParams(url.removeprefix("/?")), "") == search


def test_a_cursor_from_before_a_restore_leads_to_the_first_page() -> None:
    search = Search(q="saw", after=(24, 0, "abcdef01"))
    assert search.url() == "/?q=saw&after=24-0-abcdef01"
    parameters = QueryParams("q=saw&after=24-0-abcdef01")
    assert read(parameters, "abcdef01") == search
    for restore_id in ("", "abcdef02"):
        assert read(parameters, restore_id) == Search(q="saw")
    assert read(QueryParams("q=saw&after=24-0"), "abcdef01") == Search(q="saw")


def test_the_url_omits_the_usual_order_of_a_narrow_search() -> None:
    assert Search(q="saw", sort="best").url() == "/?q=saw"
    assert Search(q="saw", sort="newest").url() == "/?q=saw&sort=newest"
    assert Search(region="Otago", sort="newest").url() == "/?region=Otago"


@pytest.mark.parametrize(
    ("search", "heading"),
    [
        (Search(sort="price"), "All listings"),
        (Search(q="rimu", type="job", region="Otago"), "Results for “rimu”"),
        (Search(type="job"), "Jobs"),
        (Search(type="rental", region="Otago"), "Rentals in Otago"),
        (Search(type="product", category="Tools", region="Otago"), "Tools in Otago"),
        (Search(region="Otago"), "All listings in Otago"),
        (Search(price_max="5"), "All listings"),
    ],
)
def test_the_heading_describes_the_search(search: Search, heading: str) -> None:
    assert search.heading == heading
