"""Prices, places, dates and texts as people in New Zealand write them."""

import zoneinfo
from collections.abc import Iterator

import pytest

from listings.domain import timestamps
from listings.site import presentation
from tests.harness import START


@pytest.mark.parametrize(
    ("cents", "price_type", "text"),
    [
        (199_900, "fixed", "$1,999.00"),
        (5, "fixed", "$0.05"),
        (99_999_999_999, "fixed", "$999,999,999.99"),
        (3_500, "per_hour", "$35 per hour"),
        (2_780, "per_hour", "$27.80 per hour"),
        (8_000, "per_night", "$80 per night"),
        (50_000, "negotiable", "$500, negotiable"),
        (125_050, "negotiable", "$1,250.50, negotiable"),
        *((0, price_type, "Price on request") for price_type in ("fixed", "negotiable", "per_hour", "per_night")),
    ],
)
def test_a_price_is_written_as_people_write_it(cents: int, price_type: str, text: str) -> None:
    assert presentation.price_of(cents, price_type) == text


@pytest.mark.parametrize(
    ("parts", "place"),
    [
        (("12 Cuba Street, Te Aro", "", "Wellington"), "12 Cuba Street, Te Aro, Wellington"),
        (("Riccarton, Christchurch", "christchurch"), "Riccarton, Christchurch"),
        (("", " Otago "), "Otago"),
        (("", ""), ""),
    ],
)
def test_a_place_goes_from_near_to_far_and_says_nothing_twice(parts: tuple[str, ...], place: str) -> None:
    assert presentation.place_of(*parts) == place


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
def test_an_age_is_told_in_the_largest_unit_and_from_a_week_on_as_the_day(seconds: int, age: str) -> None:
    assert presentation.age_of(timestamps.format_timestamp(START), START + seconds) == age


def test_the_day_is_that_of_new_zealand() -> None:
    assert presentation.day_of("2026-11-08 11:00:00") == "9 November 2026"
    assert presentation.machine_time_of("2026-11-08 11:00:00") == "2026-11-08T11:00:00Z"


@pytest.fixture
def without_zones(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    paths = zoneinfo.TZPATH
    monkeypatch.setitem(__import__("sys").modules, "tzdata", None)
    zoneinfo.reset_tzpath(to=[])
    zoneinfo.ZoneInfo.clear_cache()
    presentation._zone.cache_clear()  # noqa: SLF001 - what it found before
    yield
    zoneinfo.reset_tzpath(to=paths)
    presentation._zone.cache_clear()  # noqa: SLF001


@pytest.mark.usefixtures("without_zones")
def test_where_a_system_knows_no_zones_the_day_is_that_of_greenwich() -> None:
    assert presentation.day_of("2026-11-08 11:00:00") == "8 November 2026"


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
def test_a_text_keeps_its_lines_and_paragraphs(text: str, paragraphs: list[list[str]]) -> None:
    assert presentation.paragraphs_of(text) == paragraphs


def test_a_summary_is_one_line_and_is_cut_where_it_is_long() -> None:
    assert presentation.summary_of(" a\n\tb ") == "a b"
    long = presentation.summary_of("word " * 1000)
    assert (len(long), long[-5:]) == (200, "word…")


@pytest.mark.parametrize(
    ("address", "shown"),
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
def test_only_absolute_addresses_of_the_web_are_pictures(address: str, shown: bool) -> None:  # noqa: FBT001 - a column
    assert bool(presentation.picture_of(address)) is shown


def test_a_map_is_linked_where_both_coordinates_are_known() -> None:
    assert presentation.map_of(-41.29361, 0.0) == (
        "https://www.openstreetmap.org/?mlat=-41.29361&mlon=0.00000#map=15/-41.29361/0.00000"
    )
    assert presentation.map_of(None, 174.0) == presentation.map_of(-41.0, None) == ""


@pytest.mark.parametrize(
    ("size", "told"),
    [(2 * 1024 * 1024, "2 MB"), (1_500_000, "1.4 MB"), (51_200, "50 kB"), (1, "1 byte"), (900, "900 bytes")],
)
def test_a_size_is_told_as_people_say_it(size: int, told: str) -> None:
    assert presentation.size_of(size) == told


def test_one_is_told_as_one_and_many_with_their_thousands() -> None:
    assert [presentation.count_of(number, "view") for number in (0, 1, 1234)] == ["0 views", "1 view", "1,234 views"]
