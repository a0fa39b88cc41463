"""Numbers on the results page of the market."""

from typing import Any

import pytest

from listings.service.market import results
from listings.site.search.results import format_facet_count
from tests.harness import Harness
from tests.site.market import create, get_page


@pytest.mark.parametrize(("count", "complete", "text"), [(100, True, "100"), (101, True, "100+"), (7, False, "7+")])
def test_the_count_of_a_value_is_limited_and_may_be_a_minimum(count: int, text: str, *, complete: bool) -> None:
    assert format_facet_count(count, is_complete=complete) == text


def test_values_beyond_the_counted_listings_are_offered_without_a_number(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields: list[dict[str, Any]] = [{"region": "Otago", "type": "job"}, {"region": "Nelson"}, {"region": "Nelson"}]
    for one in fields:
        create(harness, harness.person("alice"), **one)
    monkeypatch.setattr(results, "MAX_COUNTED", 1)
    page = get_page(harness, "/?type=product")
    assert "All types For sale 2+ Services Rentals Jobs Region All regions Nelson 2+ Otago" in page.text
