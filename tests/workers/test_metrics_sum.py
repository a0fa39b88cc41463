"""Sums of the workers' metrics."""

from typing import Any

from listings.telemetry.metrics import Family, Sample
from listings.workers.metrics_sum import MetricsSum


def counter(value: float, **labels: str) -> Family:
    return Family("answers", "Answers.", "counter", [Sample("answers_total", labels, value)])


def gauge(value: float, name: str = "open") -> Family:
    return Family(name, "Open.", "gauge", [Sample(name, {}, value)])


def values(metrics: MetricsSum) -> dict[Any, float]:
    """Return the values by name and labels."""
    return {(s.name, *s.labels.items()): s.value for family in metrics.compute() for s in family.samples}


def test_counters_and_gauges_are_summed_by_labels() -> None:
    metrics = MetricsSum()
    metrics.record(1, [counter(2, status="200"), gauge(3)])
    metrics.record(2, [counter(5, status="200"), counter(1, status="404"), gauge(4)])
    assert values(metrics) == {
        ("answers_total", ("status", "200")): 7,
        ("answers_total", ("status", "404")): 1,
        ("open",): 7,
    }


def test_a_later_report_replaces_the_previous_one() -> None:
    metrics = MetricsSum()
    metrics.record(1, [counter(2)])
    metrics.record(1, [counter(3)])
    assert values(metrics) == values(metrics) == {("answers_total",): 3}


def test_counters_of_an_ended_worker_stay_and_gauges_go() -> None:
    metrics = MetricsSum()
    metrics.record(1, [counter(2), gauge(3)])
    metrics.remove(1)
    metrics.record(2, [counter(5), gauge(4)])
    metrics.remove(2)
    metrics.remove(3)
    metrics.record(1, [counter(1), gauge(1)])  # a process ID can be reused
    assert values(metrics) == {("answers_total",): 8, ("open",): 1}


def test_histogram_buckets_are_summed() -> None:
    buckets = [Sample("seconds_bucket", {"le": bound}, 1) for bound in ("1.0", "+Inf")]
    metrics = MetricsSum()
    for worker in (1, 2):
        metrics.record(worker, [Family("seconds", "Seconds.", "histogram", buckets)])
    metrics.remove(1)
    assert values(metrics) == {("seconds_bucket", ("le", "1.0")): 2, ("seconds_bucket", ("le", "+Inf")): 2}
    assert [bucket.value for bucket in buckets] == [1, 1]


def test_values_common_to_all_workers_are_not_summed() -> None:
    metrics = MetricsSum()
    for worker in (1, 2):
        info = Family("listings_build", "Version.", "info", [Sample("listings_build_info", {"version": "1"}, 1)])
        metrics.record(worker, [info, gauge(100 + worker, "listings_database_bytes")])
    assert values(metrics) == {("listings_build_info", ("version", "1")): 1, ("listings_database_bytes",): 102}
