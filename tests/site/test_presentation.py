"""Formatting of prices, places, dates and texts."""

import zoneinfo
from collections.abc import Iterator

import pytest

from listings.domain import timestamps
from listings.domain.number_text import format_count
from listings.site import presentation
from tests.harness import START


@pytest.mark.parametrize(
    ("cents", "price_type", "text"),
    [
        (199_900, "fixed", "$1,999"),
        (5, "fixed", "$0.05"),
        (99_999_999_999, "fixed", "$999,999,999.99"),
        (3_500, "per_hour", "$35 per hour"),
        (2_780, "per_hour", "$27.80 per hour"),
        (8_000, "per_night", "$80 per night"),
        (50_000, "negotiable", "$500 negotiable"),
        (125_050, "negotiable", "$1,250.50 negotiable"),
        *((0, price_type, "Price on request") for price_type in ("fixed", "negotiable", "per_hour", "per_night")),
    ],
)
def test_prices_are_formatted(cents: int, price_type: str, text: str) -> None:
    assert presentation.format_price(cents, price_type) == text


@pytest.mark.parametrize(
    ("parts", "place"),
    [
        (("12 Cuba Street, Te Aro", "", "Wellington"), "12 Cuba Street, Te Aro, Wellington"),
        (("Riccarton, Christchurch", "christchurch"), "Riccarton, Christchurch"),
        (("", " Otago "), "Otago"),
        (("", ""), ""),
    ],
)
def test_places_are_joined_without_repetition(parts: tuple[str, ...], place: str) -> None:
    assert presentation.format_place(*parts) == place


@pytest.mark.parametrize(
    ("seconds", "age"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 minute ago"),
        (3_599, "59 minutes ago"),
        (3_600, "1 hour ago"),
        (86_399, "23 hours ago"),
        (86_400, "1 day ago"),
        (7 * 86_400 - 1, "6 days ago"),
        (7 * 86_400, "22 September 2026"),
    ],
)
def test_ages_use_the_largest_unit_and_after_a_week_the_date(seconds: int, age: str) -> None:
    assert presentation.format_age(timestamps.format_timestamp(START), START + seconds) == age


def test_days_are_those_of_new_zealand() -> None:
    assert presentation.format_day("2026-11-08 11:00:00") == "9 November 2026"
    assert presentation.timestamp_to_iso("2026-11-08 11:00:00") == "2026-11-08T11:00:00Z"


@pytest.fixture
def without_zones(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    paths = zoneinfo.TZPATH
    monkeypatch.setitem(__import__("sys").modules, "tzdata", None)
    zoneinfo.reset_tzpath(to=[])
    zoneinfo.ZoneInfo.clear_cache()
    timestamps.get_zone.cache_clear()
    yield
    zoneinfo.reset_tzpath(to=paths)
    timestamps.get_zone.cache_clear()


@pytest.mark.usefixtures("without_zones")
def test_days_are_utc_without_a_time_zone_database() -> None:
    assert presentation.format_day("2026-11-08 11:00:00") == "8 November 2026"


def test_a_text_of_very_many_lines_is_not_split() -> None:
    text = "a\n\n" * 501
    assert presentation.split_paragraphs(text) == [[text]]


@pytest.mark.parametrize(
    ("text", "paragraphs"),
    [
        ("one", [["one"]]),
        ("one\ntwo\r\nthree\rfour", [["one", "two", "three", "four"]]),
        ("one\n\n \n\ntwo\n", [["one"], ["two"]]),
        ("\n\none\u2028two\u2029\u2029three", [["one", "two"], ["three"]]),
        ("  ", []),
    ],
)
def test_texts_are_split_into_lines_and_paragraphs(text: str, paragraphs: list[list[str]]) -> None:
    assert presentation.split_paragraphs(text) == paragraphs


def test_a_summary_is_one_line_of_limited_length() -> None:
    assert presentation.summarize(" a\n\tb ") == "a b"
    long = presentation.summarize("word " * 1000)
    assert (len(long), long[-5:]) == (200, "word…")


@pytest.mark.parametrize(
    ("url", "is_picture"),
    [
        ("https://images.example/a.jpg", True),
        ("HTTP://images.example/a.jpg", True),
        ("/a.jpg", False),
        ("a.jpg", False),
        ("//images.example/a.jpg", False),
        ("javascript:alert(1)", False),
        ("data:image/png;base64,AAAA", False),
        ("https:///a.jpg", False),
        ("http://[a/b.jpg", False),
    ],
)
def test_only_absolute_http_urls_are_pictures(url: str, is_picture: bool) -> None:  # noqa: FBT001 - a column
    assert bool(presentation.picture_url(url)) is is_picture


def test_a_map_needs_both_coordinates() -> None:
    assert presentation.map_url(-41.29361, 0.0) == (
        "https://www.openstreetmap.org/?mlat=-41.29361&mlon=0#map=15/-41.29361/0"
    )
    assert presentation.map_url(None, 174.0) == presentation.map_url(-41.0, None) == ""


@pytest.mark.parametrize(
    ("size", "text"),
    [(2 * 1024 * 1024, "2 MB"), (1_500_000, "1.4 MB"), (51_200, "50 kB"), (1, "1 byte"), (900, "900 bytes")],
)
def test_sizes_are_formatted(size: int, text: str) -> None:
    assert presentation.format_size(size) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 results"), (1, "1 result"), (1_001, "Over 1,000 results")])
def test_a_count_may_be_bounded(count: int, text: str) -> None:
    assert presentation.format_bounded_count(count, "result", 1_000) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (60, "in less than a minute"),
        (60.5, "in 2 minutes"),
        (7_200, "in 120 minutes"),
        (7_201, "in 3 hours"),
        (2 * 86_400, "in 48 hours"),
        (30 * 86_400, "in 30 days"),
    ],
)
def test_a_wait_has_the_unit_that_fits(seconds: float, text: str) -> None:
    assert presentation.format_wait(seconds) == text


def test_counts_are_formatted() -> None:
    assert [format_count(number, "view") for number in (0, 1, 1234)] == [
        "0 views",
        "1 view",
        "1,234 views",
    ]
