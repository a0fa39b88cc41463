"""Sum the metrics of all workers."""

from collections.abc import Iterable

from listings.telemetry.metrics import Family, Sample

_CUMULATIVE = {"counter", "histogram"}
_METRICS_BY_MAXIMUM = {  # a sum would mean nothing, so the largest value is reported
    "listings_database_bytes",
    "listings_database_wal_bytes",
    "listings_disk_free_bytes",
    "listings_last_backup_timestamp_seconds",
    "listings_mail_oldest_timestamp_seconds",
    "listings_market_lag_seconds",
    "listings_picture_bytes",
    "listings_rate_limit_away",
    "listings_ready",
    "listings_stored_bytes",
    "process_start_time_seconds",
    "python_info",
}


class MetricsSum:
    """Sums of the workers' latest reports. Counters of removed workers are included, so that no sum decreases."""

    def __init__(self) -> None:
        self._latest: dict[int, list[Family]] = {}
        self._removed: list[Family] = []

    def record(self, worker: int, report: list[Family]) -> None:
        """Store the latest report of a worker, identified by its process ID."""
        self._latest[worker] = report

    def remove(self, worker: int) -> None:
        """Keep the counters and histograms of an ended worker, and drop its gauges."""
        counted = [family for family in self._latest.pop(worker, []) if family.kind in _CUMULATIVE]
        self._removed = _sum_families([*self._removed, *counted])

    def compute(self) -> list[Family]:
        families = [family for report in self._latest.values() for family in report]
        return _sum_families([*families, *self._removed])


def _sum_families(families: Iterable[Family]) -> list[Family]:
    metrics: dict[str, Family] = {}
    series: dict[tuple[str, ...], Sample] = {}
    for family in families:
        metric = metrics.setdefault(family.name, Family(family.name, family.text, family.kind, []))
        uses_maximum = family.kind == "info" or family.name in _METRICS_BY_MAXIMUM
        for sample in family.samples:
            key = (sample.name, *(text for label in sorted(sample.labels.items()) for text in label))
            total = series.get(key)
            if total is None:
                series[key] = total = Sample(sample.name, sample.labels, sample.value)
                metric.samples.append(total)
            else:
                total.value = max(total.value, sample.value) if uses_maximum else total.value + sample.value
    return list(metrics.values())


def build_worker_metrics(count: int, deaths: int) -> list[Family]:
    """Return the metrics of the supervisor: the number of workers and of unexpected exits."""
    return [
        Family(
            "listings_workers",
            "Worker processes, including those that are starting or stopping.",
            "gauge",
            [Sample("listings_workers", {}, count)],
        ),
        Family(
            "listings_worker_deaths",
            "Workers that exited unexpectedly.",
            "counter",
            [Sample("listings_worker_deaths_total", {}, deaths)],
        ),
    ]
