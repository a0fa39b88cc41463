"""Moments as text and back (decision G7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listings.domain import timestamps

LAST_SECOND = 253_402_300_799  # 9999-12-31 23:59:59


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (0, "1970-01-01 00:00:00"),
        (1_790_000_000, "2026-09-21 14:13:20"),
        (951_782_400, "2000-02-29 00:00:00"),
        (LAST_SECOND, "9999-12-31 23:59:59"),
    ],
)
def test_a_moment_is_told_in_utc_to_the_second(moment: int, text: str) -> None:
    assert timestamps.text_of(moment) == text


@pytest.mark.parametrize("fraction", [0.001, 0.5, 0.999])
def test_a_fraction_of_a_second_is_cut_and_not_rounded(fraction: float) -> None:
    assert timestamps.text_of(1_790_000_000 + fraction) == "2026-09-21 14:13:20"


@given(st.integers(0, LAST_SECOND))
def test_every_moment_is_read_back_from_its_text(moment: int) -> None:
    assert timestamps.moment_of(timestamps.text_of(moment)) == moment


@given(st.integers(0, LAST_SECOND), st.integers(0, LAST_SECOND))
def test_texts_sort_as_their_moments_do(one: int, other: int) -> None:
    assert (timestamps.text_of(one) < timestamps.text_of(other)) == (one < other)


def test_a_date_alone_is_its_first_second() -> None:
    assert timestamps.moment_of("2026-09-21") == timestamps.moment_of("2026-09-21 00:00:00")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2026-9-1",
        "21-09-2026",
        "2026-09-21T14:13:20",
        "2026-09-21 14:13",
        "2026-09-21 14:13:20Z",
        "2026-09-21 14:13:20.5",
        "2026-09-21\n",
        " 2026-09-21",
        "2026-13-01",
        "2026-00-01",
        "2026-02-29",
        "2026-09-31",
        "0000-01-01",
        "2026-09-21 24:00:00",
        "2026-09-21 23:60:00",
        "2026-12-31 23:59:60",
        "٢٠٢٦-٠٩-٢١",
        "1790000000",
    ],
)
def test_anything_else_is_refused_with_what_was_got(text: str) -> None:
    with pytest.raises(ValueError, match="is not a date") as caught:
        timestamps.moment_of(text)
    assert str(caught.value).startswith(repr(text))


@pytest.mark.parametrize(
    ("start", "months", "end"),
    [
        ("2026-09-21 14:13:20", 1, "2026-10-21 14:13:20"),
        ("2026-09-21 14:13:20", 12, "2027-09-21 14:13:20"),
        ("2026-12-15 00:00:00", 1, "2027-01-15 00:00:00"),
        ("2026-11-30 00:00:00", 1, "2026-12-30 00:00:00"),
        ("2026-01-31 23:59:59", 1, "2026-02-28 23:59:59"),
        ("2028-01-31 00:00:00", 1, "2028-02-29 00:00:00"),
        ("2028-02-29 00:00:00", 12, "2029-02-28 00:00:00"),
        ("2026-03-31 00:00:00", 1, "2026-04-30 00:00:00"),
        ("2026-09-21 14:13:20", 0, "2026-09-21 14:13:20"),
        ("9999-11-30 00:00:00", 1, "9999-12-30 00:00:00"),
    ],
)
def test_months_are_calendar_months_and_end_on_the_last_day_of_a_shorter_one(start: str, months: int, end: str) -> None:
    assert timestamps.text_of(timestamps.add_months(timestamps.moment_of(start), months)) == end


def test_a_fraction_of_a_second_is_cut_from_months_too() -> None:
    assert timestamps.add_months(1_790_000_000.9, 0) == 1_790_000_000


@pytest.mark.parametrize(("start", "months"), [("9999-12-01", 1), ("2026-09-21", 12 * 8000), ("2026-09-21", 10**30)])
def test_months_beyond_the_year_9999_are_refused(start: str, months: int) -> None:
    told = "1 month leads" if months == 1 else f"{months} months lead"
    with pytest.raises(ValueError, match=f"^{told} beyond the year 9999$"):
        timestamps.add_months(timestamps.moment_of(start), months)
