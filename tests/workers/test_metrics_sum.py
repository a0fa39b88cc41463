"""Metrics of many workers as those of one service."""

from typing import Any

from listings.telemetry.metrics import Family, Sample
from listings.workers.metrics_sum import Tally


def counter(value: float, **labels: str) -> Family:
    return Family("answers", "Answers.", "counter", [Sample("answers_total", labels, value)])


def gauge(value: float, name: str = "open") -> Family:
    return Family(name, "Open.", "gauge", [Sample(name, {}, value)])


def told(tally: Tally) -> dict[Any, float]:
    """The values by name and labels."""
    return {(s.name, *s.labels.items()): s.value for family in tally.sums() for s in family.samples}


def test_counters_and_gauges_are_sums_by_their_labels() -> None:
    tally = Tally()
    tally.note(1, [counter(2, status="200"), gauge(3)])
    tally.note(2, [counter(5, status="200"), counter(1, status="404"), gauge(4)])
    assert told(tally) == {
        ("answers_total", ("status", "200")): 7,
        ("answers_total", ("status", "404")): 1,
        ("open",): 7,
    }


def test_a_later_report_takes_the_place_of_the_one_before() -> None:
    tally = Tally()
    tally.note(1, [counter(2)])
    tally.note(1, [counter(3)])
    assert told(tally) == told(tally) == {("answers_total",): 3}


def test_what_an_ended_worker_counted_stays_and_what_it_had_goes() -> None:
    tally = Tally()
    tally.note(1, [counter(2), gauge(3)])
    tally.end(1)
    tally.note(2, [counter(5), gauge(4)])
    tally.end(2)
    tally.end(3)
    tally.note(1, [counter(1), gauge(1)])  # a number may come again
    assert told(tally) == {("answers_total",): 8, ("open",): 1}


def test_buckets_of_histograms_are_sums() -> None:
    buckets = [Sample("seconds_bucket", {"le": bound}, 1) for bound in ("1.0", "+Inf")]
    tally = Tally()
    for worker in (1, 2):
        tally.note(worker, [Family("seconds", "Seconds.", "histogram", buckets)])
    tally.end(1)
    assert told(tally) == {("seconds_bucket", ("le", "1.0")): 2, ("seconds_bucket", ("le", "+Inf")): 2}
    assert [bucket.value for bucket in buckets] == [1, 1]


def test_what_all_tell_alike_is_no_sum() -> None:
    tally = Tally()
    for worker in (1, 2):
        info = Family("listings_build", "Version.", "info", [Sample("listings_build_info", {"version": "1"}, 1)])
        tally.note(worker, [info, gauge(100 + worker, "listings_database_bytes")])
    assert told(tally) == {("listings_build_info", ("version", "1")): 1, ("listings_database_bytes",): 102}
