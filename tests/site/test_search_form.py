"""The form of the search: what it means, and the address it has."""

from typing import Any

import pytest
from starlette.datastructures import QueryParams

from listings.domain.model import MarketQuery
from listings.site.search import Search, read


@pytest.mark.parametrize(
    ("address", "query"),
    [
        ("", {}),
        ("q=&type=&category=&region=&price_min=&price_max=&sort=newest", {}),
        ("q=Rimu+table%2C+RIMU", {"words": ("rimu", "table")}),
        ("type=job&category=Retail&region=Otago", {"type": "job", "category": "Retail", "region": "Otago"}),
        ("type=car&sort=worst&after=x", {}),
        ("price_min=%241%2C200&price_max=1+500.5", {"price_min": 120_000, "price_max": 150_050}),
        ("price_min=1,200,000.50&price_max=2,000,000", {"price_min": 120_000_050, "price_max": 200_000_000}),
        ("price_min=0&price_max=999999999.99", {"price_min": 0, "price_max": 99_999_999_999}),
        ("sort=-price&after=120000-42", {"sort": "-price", "after": (120_000, 42)}),
        ("after=99999999999999999999-1", {}),
        ("q=" + "+".join(f"w{number}" for number in range(40)), {"words": tuple(f"w{number}" for number in range(20))}),
        ("nothing=known&q=saw&q=table", {"words": ("table",)}),
    ],
)
def test_what_is_in_the_form_is_what_is_asked_for(address: str, query: dict[str, Any]) -> None:
    assert read(QueryParams(address)).query() == (MarketQuery(**query), {})


@pytest.mark.parametrize(
    ("address", "fields"),
    [
        ("price_min=cheap", {"price_min"}),
        ("price_min=-1&price_max=1e3", {"price_min", "price_max"}),
        ("price_min=1.234", {"price_min"}),
        ("price_max=9999999999", {"price_max"}),
        ("price_min=1,5&price_max=12,34,567", {"price_min", "price_max"}),
        ("price_min=1200,000&price_max=1,200,", {"price_min", "price_max"}),
        ("price_max=" + "9" * 200, {"price_max"}),
        ("price_min=5&price_max=4", {"price_max"}),
        ("price_min=٣", {"price_min"}),
        ("q=%21%3F", {"q"}),
    ],
)
def test_what_can_not_be_understood_is_told_by_its_field(address: str, fields: set[str]) -> None:
    assert read(QueryParams(address)).query()[1].keys() == fields


@pytest.mark.parametrize(
    ("search", "address"),
    [
        (Search(), "/"),
        (Search(q="a&b", region="Hawke's Bay"), "/?q=a%26b&region=Hawke%27s+Bay"),
        (Search(sort="price", after=(1, 2)), "/?sort=price"),
    ],
)
def test_the_address_has_what_was_filled_in_alone(search: Search, address: str) -> None:
    assert search.address() == address
    assert read(QueryParams(address.removeprefix("/?"))) == search._replace(after=None)


def test_the_next_page_has_all_that_is_asked_for_and_its_place() -> None:
    search = Search(q="saw", type="product", price_min="$5", sort="-price")
    following = read(QueryParams(search.address((500, 7)).removeprefix("/?")))
    assert following == search._replace(after=(500, 7))


@pytest.mark.parametrize(
    ("search", "heading"),
    [
        (Search(), "Latest listings"),
        (Search(sort="price"), "All listings"),
        (Search(q="rimu", type="job", region="Otago"), "Results for “rimu”"),
        (Search(type="job"), "Jobs"),
        (Search(type="rental", region="Otago"), "Rentals in Otago"),
        (Search(type="product", category="Tools", region="Otago"), "Tools in Otago"),
        (Search(region="Otago"), "All listings in Otago"),
        (Search(price_max="5"), "All listings"),
    ],
)
def test_what_is_looked_for_is_said_in_words(search: Search, heading: str) -> None:
    assert search.heading == heading
