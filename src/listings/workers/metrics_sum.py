"""The metrics of all workers as those of one service."""

from collections.abc import Iterable

from listings.telemetry.metrics import Family, Sample

_CUMULATIVE = {"counter", "histogram"}
_NO_SUMS = {
    "listings_database_bytes",
    "listings_database_wal_bytes",
    "listings_rate_limit_away",
    "process_start_time_seconds",
    "python_info",
}


class Tally:
    """Sums of what the workers last reported, and of what those counted that have ended: no counter goes back."""

    def __init__(self) -> None:
        self._latest: dict[int, list[Family]] = {}
        self._ended: list[Family] = []

    def note(self, worker: int, report: list[Family]) -> None:
        """What a worker tells now, by its number, which no other worker has."""
        self._latest[worker] = report

    def end(self, worker: int) -> None:
        """The worker has ended: what it has counted stays, what it has no longer counts."""
        counted = [family for family in self._latest.pop(worker, []) if family.kind in _CUMULATIVE]
        self._ended = summed([*self._ended, *counted])

    def sums(self) -> list[Family]:
        """All metrics."""
        families = [family for report in self._latest.values() for family in report]
        return summed([*families, *self._ended])


def summed(families: Iterable[Family]) -> list[Family]:
    """Each metric once, each of its series once: the sum, or the largest where a sum would mean nothing."""
    metrics: dict[str, Family] = {}
    series: dict[tuple[str, ...], Sample] = {}
    for family in families:
        metric = metrics.setdefault(family.name, Family(family.name, family.text, family.kind, []))
        alike = family.kind == "info" or family.name in _NO_SUMS
        for sample in family.samples:
            key = (sample.name, *(text for label in sorted(sample.labels.items()) for text in label))
            known = series.get(key)
            if known is None:
                series[key] = known = Sample(sample.name, sample.labels, sample.value)
                metric.samples.append(known)
            else:
                known.value = max(known.value, sample.value) if alike else known.value + sample.value
    return list(metrics.values())


def about_workers(count: int, deaths: int) -> list[Family]:
    """What is told of the workers themselves: how many there are, and how many ended unasked."""
    return [
        Family("listings_workers", "Processes that answer requests.", "gauge", [Sample("listings_workers", {}, count)]),
        Family(
            "listings_worker_deaths",
            "Workers that ended unasked.",
            "counter",
            [Sample("listings_worker_deaths_total", {}, deaths)],
        ),
    ]
