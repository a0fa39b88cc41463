"""Formatting and parsing timestamps (decision G7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listings.domain import timestamps
from listings.domain.errors import Problem

LAST_SECOND = 253_402_300_799  # 9999-12-31 23:59:59


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01 00:00:00"),
        (1_790_000_000, "2026-09-21 14:13:20"),
        (951_782_400, "2000-02-29 00:00:00"),
        (LAST_SECOND, "9999-12-31 23:59:59"),
    ],
)
def test_a_timestamp_is_formatted_in_utc_to_the_second(seconds: int, text: str) -> None:
    assert timestamps.format_timestamp(seconds) == text


@pytest.mark.parametrize("fraction", [0.001, 0.5, 0.999])
def test_a_fraction_of_a_second_is_cut_not_rounded(fraction: float) -> None:
    assert timestamps.format_timestamp(1_790_000_000 + fraction) == "2026-09-21 14:13:20"


@given(st.integers(0, LAST_SECOND))
def test_parsing_reverses_formatting(seconds: int) -> None:
    assert timestamps.parse_timestamp(timestamps.format_timestamp(seconds)) == seconds


@given(st.integers(0, LAST_SECOND), st.integers(0, LAST_SECOND))
def test_formatted_timestamps_sort_by_time(one: int, other: int) -> None:
    assert (timestamps.format_timestamp(one) < timestamps.format_timestamp(other)) == (one < other)


def test_a_date_without_a_time_is_midnight() -> None:
    assert timestamps.parse_timestamp("2026-09-21") == timestamps.parse_timestamp("2026-09-21 00:00:00")


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
def test_any_other_text_is_rejected_and_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="is not a date") as caught:
        timestamps.parse_timestamp(text)
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
def test_months_are_calendar_months_and_end_on_the_last_day(start: str, months: int, end: str) -> None:
    assert timestamps.format_timestamp(timestamps.add_months(timestamps.parse_timestamp(start), months)) == end


def test_adding_months_cuts_a_fraction_of_a_second() -> None:
    assert timestamps.add_months(1_790_000_000.9, 0) == 1_790_000_000


@pytest.mark.parametrize(("start", "months"), [("9999-12-01", 1), ("2026-09-21", 12 * 8000), ("2026-09-21", 10**30)])
def test_months_after_the_year_9999_are_rejected(start: str, months: int) -> None:
    period = "1 month" if months == 1 else f"{months} months"
    with pytest.raises(Problem, match=f"^{period} would end after the year 9999$"):
        timestamps.add_months(timestamps.parse_timestamp(start), months)


def test_the_last_days_of_the_year_9999_have_a_local_date() -> None:
    assert timestamps.format_date(timestamps.parse_timestamp("9999-12-31 23:59:59")) == "31 Dec 9999"
    assert timestamps.format_date(timestamps.parse_timestamp("9999-12-31")) == "31 Dec 9999"
