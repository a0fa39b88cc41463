"""What the service counts and measures, for Prometheus: every metric is here (docs/metrics.md explains them).

No label holds anything of a client's making: routes are patterns, methods the known ones, statuses ours.
"""

from collections.abc import Callable, Iterator
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
    """The value of one series."""

    name: str
    labels: dict[str, str]
    value: float


class Family(msgspec.Struct, array_like=True):
    """One metric with all its series, as plain data that can be sent to another process."""

    name: str
    text: str
    kind: str  # as prometheus_client names them: counter, gauge, histogram, info
    samples: list[Sample]


class Listener:
    """Answers GET /metrics from a thread of its own."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        """Raises Problem("invalid_setting") where listening is not possible."""
        try:
            self._server, self._thread = prometheus_client.start_http_server(port, host, registry)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "this is no name of a host"
            raise Problem(
                "invalid_setting",
                f"Can't listen on {host} port {port} for metrics: {reason}. "
                "Choose another with LISTINGS_METRICS_ADDRESS",
            ) from None
        place = f"[{host}]" if ":" in host else host
        self.url = f"http://{place}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def listener_of(tell: Callable[[], list[Family]], host: str, port: int) -> Listener:
    """Answers with what is told, which is asked for with each scrape, in the listener's thread. Raises Problem."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Told(tell))
    return Listener(registry, host, port)


class _Told(Collector):
    """Families of plain data, for a registry."""

    def __init__(self, tell: Callable[[], list[Family]]) -> None:
        self._tell = tell

    def collect(self) -> Iterator[Metric]:
        for family in self._tell():
            metric = Metric(family.name, family.text, family.kind)
            for sample in family.samples:
                metric.add_sample(sample.name, sample.labels, sample.value)
            yield metric


class Metrics:
    """All metrics of one process.

    A scrape runs in a thread of its own, beside the event loop and the writer: what it calls may only read.
    """

    def __init__(self, database: Path) -> None:
        """`database` is the file whose size, and that of its WAL, is told."""
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # leaves out a series for each
        self.registry = registry = CollectorRegistry()
        self._listener: Listener | None = None
        self._add_requests(registry)
        self._add_writes(registry)
        self._add_limiter(registry)
        self._add_files(registry, database)
        Info("listings_build", "The version that runs.", registry=registry).info({"version": __version__})
        prometheus_client.ProcessCollector(registry=registry)
        prometheus_client.PlatformCollector(registry=registry)
        prometheus_client.GCCollector(registry=registry)

    # The listener

    def listen(self, host: str, port: int) -> None:
        """Answer GET /metrics. Raises Problem("invalid_setting") where that is not possible."""
        self._listener = Listener(self.registry, host, port)

    @property
    def url(self) -> str:
        """Where the listener answers; empty where there is none."""
        return self._listener.url if self._listener is not None else ""

    def close(self) -> None:
        """Answer no more."""
        if self._listener is not None:
            self._listener.close()

    def report(self) -> list[Family]:
        """All metrics as they are now, as plain data. May be called from any thread."""
        return [
            Family(
                metric.name,
                metric.documentation,
                metric.type,
                [Sample(sample.name, sample.labels, sample.value) for sample in metric.samples],
            )
            for metric in self.registry.collect()
        ]

    # What is told of the running service

    def watch_connections(self, count: Callable[[], int], most: int) -> None:
        """`count` tells how many are open, of at most so many."""
        self._connections.set_function(count)
        self._most_connections.set(most)

    def watch_writes(self, waiting: Callable[[], int]) -> None:
        """`waiting` tells how many operations the writer has not taken yet."""
        self._writes_waiting.set_function(waiting)

    def watch_limiter(self, is_away: Callable[[], bool]) -> None:
        """`is_away` tells whether the Redis that should count the rate limit doesn't."""
        self._limiter_away.set_function(is_away)

    def record_local_count(self) -> None:
        """Count a request whose rate limit this machine counts in the place of Redis."""
        self._counted_locally.inc()

    def record_response(self, line: RequestLine) -> None:
        """Count an answer; on the event loop."""
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

    def record_batch(self, size: int, seconds: float, *, committed: bool) -> None:
        """Count a batch of writes; in the writer's thread."""
        self._batch_size.observe(size)
        self._batch_seconds.observe(seconds)
        if not committed:
            self._failed_batches.inc()

    # The metrics

    def _add_requests(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "listings_requests",
            "Answers, by the request's method, the pattern that its path fits, and the status.",
            ["method", "route", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "listings_request_duration_seconds",
            "From a request's head to the end of its answer.",
            ["route"],
            buckets=_REQUEST_SECONDS,
            registry=registry,
        )
        self._counts: dict[tuple[str, str, int], Callable[[], None]] = {}
        self._observers: dict[str, Callable[[float], None]] = {}
        self._rate_limited = Counter("listings_rate_limited", "Requests beyond a key's limit.", registry=registry)
        self._connections = Gauge("listings_connections", "Open connections.", registry=registry)
        self._most_connections = Gauge("listings_connections_max", "Connections at most.", registry=registry)

    def _add_limiter(self, registry: CollectorRegistry) -> None:
        self._limiter_away = Gauge(
            "listings_rate_limit_away", "1 while the Redis that should count doesn't.", registry=registry
        )
        self._counted_locally = Counter(
            "listings_rate_limit_local", "Requests that a machine counted in the place of Redis.", registry=registry
        )

    def _add_writes(self, registry: CollectorRegistry) -> None:
        self._writes_waiting = Gauge("listings_writes_waiting", "Writes that wait for the writer.", registry=registry)
        self._batch_size = Histogram(
            "listings_write_batch_size", "Writes that share one commit.", buckets=_BATCH_SIZES, registry=registry
        )
        self._batch_seconds = Histogram(
            "listings_write_batch_duration_seconds",
            "A batch from the writer's turn to the end of its commit.",
            buckets=_BATCH_SECONDS,
            registry=registry,
        )
        self._failed_batches = Counter(
            "listings_write_batches_failed", "Batches of which nothing was confirmed.", registry=registry
        )

    def _add_files(self, registry: CollectorRegistry, database: Path) -> None:
        wal = database.with_name(f"{database.name}-wal")
        for name, text, path in (
            ("listings_database_bytes", "Size of the database file.", database),
            ("listings_database_wal_bytes", "Size of the write-ahead log.", wal),
        ):
            Gauge(name, text, registry=registry).set_function(_size_of(path))


def _size_of(path: Path) -> Callable[[], int]:
    """What tells a file's size in bytes, 0 where there is none."""

    def size() -> int:
        try:
            return path.stat().st_size
        except OSError:
            return 0

    return size
