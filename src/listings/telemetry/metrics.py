"""All metrics of the service, for Prometheus (documented in docs/metrics.md).

No label has a value that a client can choose: routes are patterns, and unknown methods are "other".
"""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPMethod
from pathlib import Path

import msgspec
import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from listings import __version__
from listings.domain.errors import Problem
from listings.telemetry.logs import NO_REQUEST, RequestLine

_METHODS = frozenset([*HTTPMethod.__members__, NO_REQUEST])
_OTHER = "other"
_RATE_LIMITED = 429

_MILLISECOND = 0.001
_REQUEST_SECONDS = tuple(
    _MILLISECOND * count for count in (0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)
)
_BATCH_SECONDS = tuple(_MILLISECOND * count for count in (0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000))
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Sample(msgspec.Struct, array_like=True):
    """The value of a time series."""

    name: str
    labels: dict[str, str]
    value: float


class Family(msgspec.Struct, array_like=True):
    """A metric with all its series, as plain data for another process."""

    name: str
    text: str  # the help text
    kind: str  # prometheus_client's name: counter, gauge, histogram, info
    samples: list[Sample]


class Listener:
    """Serves GET /metrics in a separate thread."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        """Start to listen. Raises Problem("invalid_setting") if that fails."""
        try:
            self._server, self._thread = prometheus_client.start_http_server(port, host, registry)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "not a valid host name"
            raise Problem(
                "invalid_setting",
                f"Can't listen on {host} port {port} for metrics: {reason}. "
                "Choose another address with LISTINGS_METRICS_ADDRESS",
            ) from None
        url_host = f"[{host}]" if ":" in host else host
        self.url = f"http://{url_host}:{self._server.server_port}/metrics"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def start_listener(report: Callable[[], list[Family]], host: str, port: int) -> Listener:
    """Serve the metrics that `report` returns. Each scrape calls it in a thread of its own. Raises Problem."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_FamilyCollector(report))
    return Listener(registry, host, port)


class _FamilyCollector(Collector):
    def __init__(self, report: Callable[[], list[Family]]) -> None:
        self._report = report

    def collect(self) -> Iterator[Metric]:
        for family in self._report():
            metric = Metric(family.name, family.text, family.kind)
            for sample in family.samples:
                metric.add_sample(sample.name, sample.labels, sample.value)
            yield metric


class Metrics:
    """All metrics of one process.

    A scrape runs in a separate thread, so the functions that it calls must only read.
    """

    def __init__(self, database: Path, get_last_backup: Callable[[], int | None] | None = None) -> None:
        """`database` is the file whose size is reported, along with that of its WAL, and the free space of its disk.

        `get_last_backup` returns the Unix time of its last backup. None: there is no such file.
        """
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # omits the _created series
        self.registry = registry = CollectorRegistry()
        self._gauge = partial(Gauge, registry=registry)
        self._counter = partial(Counter, registry=registry)
        self._histogram = partial(Histogram, registry=registry)
        self.url = ""  # of the listener, if there is one
        self._reason = ""  # why the service is not ready
        self._add_requests()
        self._add_writes()
        self.limiter_away = self._gauge("listings_rate_limit_away", "1 while Redis is unavailable for the rate limit.")
        self.counted_locally = self._counter(
            "listings_rate_limit_local", "Requests counted by this machine instead of Redis."
        )
        self._mails = self._counter(
            "listings_mails", "Attempts to send an email: sent, failed or given_up.", ["outcome"]
        )
        for outcome in ("sent", "failed", "given_up"):  # an alert does not see the first increase of a new series
            self._mails.labels(outcome)
        self._add_files(database)
        self._add_state()
        if get_last_backup is not None:
            self._gauge(
                "listings_last_backup_timestamp_seconds", "Time of the last checked backup; 0: never."
            ).set_function(lambda: get_last_backup() or 0)
        Info("listings_build", "The running version.", registry=registry).info({"version": __version__})
        prometheus_client.ProcessCollector(registry=registry)
        prometheus_client.PlatformCollector(registry=registry)
        prometheus_client.GCCollector(registry=registry)

    def report(self) -> list[Family]:
        """Return the current values of all metrics. Thread-safe."""
        return [
            Family(one.name, one.documentation, one.type, [Sample(it.name, it.labels, it.value) for it in one.samples])
            for one in self.registry.collect()
        ]

    # Recording

    def record_state(self, reason: str, oldest_mail: int, stored_bytes: int, picture_bytes: int) -> None:
        """Record why the service is not ready, the time of the oldest queued email, and what accounts store."""
        if reason != self._reason:
            self._ready.clear()
            self._reason = reason
        self._ready.labels(reason).set(not reason)
        self._oldest_mail.set(oldest_mail)
        self._stored_bytes.set(stored_bytes)
        self._picture_bytes.set(picture_bytes)

    def record_response(self, line: RequestLine) -> None:
        """Count a response. Called on the event loop."""
        method = line.method if line.method in _METHODS else _OTHER
        key = (method, line.route, line.status)
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = self._requests.labels(method, line.route, str(line.status)).inc
        count()
        if method == NO_REQUEST:
            return
        observe = self._observers.get(line.route)
        if observe is None:
            observe = self._observers[line.route] = self._seconds.labels(line.route).observe
        observe(line.milliseconds * _MILLISECOND)
        if line.status == _RATE_LIMITED:
            self._rate_limited.inc()

    def record_mail(self, outcome: str) -> None:
        """Count an attempt to send an email: sent, failed or given_up."""
        self._mails.labels(outcome).inc()

    def record_batch(self, size: int, seconds: float, *, committed: bool) -> None:
        """Record a batch of writes. Called in the writer's thread."""
        self._batch_size.observe(size)
        self._batch_seconds.observe(seconds)
        if not committed:
            self.failed_batches.inc()

    # Definitions

    def _add_requests(self) -> None:
        self._requests = self._counter(
            "listings_requests", "HTTP responses by method, route and status.", ["method", "route", "status"]
        )
        self._seconds = self._histogram(
            "listings_request_duration_seconds",
            "Time from the headers of a request to the end of its response.",
            ["route"],
            buckets=_REQUEST_SECONDS,
        )
        self._counts: dict[tuple[str, str, int], Callable[[], None]] = {}
        self._observers: dict[str, Callable[[float], None]] = {}
        self._rate_limited = self._counter(
            "listings_rate_limited",
            "Responses with status 429: over the rate limit, too many waits for changes, too many attempts on a page.",
        )
        self.connections = self._gauge("listings_connections", "Open connections.")
        self.max_connections = self._gauge("listings_connections_max", "Maximum number of connections.")

    def _add_writes(self) -> None:
        self.writes_waiting = self._gauge("listings_writes_waiting", "Writes in the queue.")
        self.market_lag = self._gauge(
            "listings_market_lag_seconds",
            "Age of the oldest change that the market's search index can't follow yet, at most.",
        )
        self._batch_size = self._histogram("listings_write_batch_size", "Writes per commit.", buckets=_BATCH_SIZES)
        self._batch_seconds = self._histogram(
            "listings_write_batch_duration_seconds",
            "Time of a batch from taking the write lock to the end of its commit.",
            buckets=_BATCH_SECONDS,
        )
        self.failed_batches = self._counter(
            "listings_write_batches_failed", "Batches (PostgreSQL: writes) that were not committed."
        )

    def _add_files(self, database: Path) -> None:
        wal = database.with_name(f"{database.name}-wal")
        for name, text, path in (
            ("listings_database_bytes", "Size of the database file.", database),
            ("listings_database_wal_bytes", "Size of the write-ahead log.", wal),
        ):
            self._gauge(name, text).set_function(partial(_measure_size, path))
        self._gauge("listings_disk_free_bytes", "Free space of the database's disk.").set_function(
            partial(_measure_free_space, database.parent)
        )

    def _add_state(self) -> None:
        self._ready = self._gauge(
            "listings_ready", "1, or 0 with the reason while the service is not ready.", ["reason"]
        )
        self._oldest_mail = self._gauge(
            "listings_mail_oldest_timestamp_seconds", "Time of the oldest queued email; 0: none."
        )
        self._stored_bytes = self._gauge("listings_stored_bytes", "Bytes that all accounts have stored.")
        self._picture_bytes = self._gauge("listings_picture_bytes", "Bytes of all uploaded pictures.")
        self.sessions = self._gauge(
            "listings_database_sessions", "Sessions of PostgreSQL in use, and waits.", ["state"]
        )
        for state in ("in_use", "waiting"):
            self.sessions.labels(state)


def _measure_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # the WAL is missing while nobody uses the database
        return 0


def _measure_free_space(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0
