"""A span of each request for OpenTelemetry, delivered by OTLP over HTTP; its packages are the extra `tracing`.

A span tells the route's pattern, never the address, and nothing of the key, the account or the client. Where spans
go, and how many, is told by OpenTelemetry's own variables (docs/metrics.md). Delivery has a thread of its own, and
what does not fit its queue is dropped: a collector that is away costs a request nothing.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from http import HTTPMethod

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode, format_trace_id
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from listings import __version__
from listings.domain.errors import Problem
from listings.telemetry.logs import RequestLine

_NANOSECONDS = 1_000_000  # of a millisecond
_FAILED = 500
_LAST_SECONDS = 2.0
_GIVE_UP_SECONDS = 1.0
_NO_ROUTE = "-"
_OTHER = "_OTHER"  # the conventions' name for every method that is not known

_log = logging.getLogger(__name__)


class Tracing:
    """Makes spans of answered requests. Raises Problem("invalid_setting") where OpenTelemetry's variables are wrong."""

    def __init__(self) -> None:
        try:
            self._delivery = _Delivery(OTLPSpanExporter())
            self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
            self._provider.add_span_processor(BatchSpanProcessor(self._delivery))
        except ValueError as error:
            raise Problem("invalid_setting", f"OpenTelemetry can't be set up by its OTEL_ variables: {error}") from None
        for name in ("opentelemetry", "urllib3"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # they tell of every attempt, `_Delivery` of changes
        self._tracer = self._provider.get_tracer("listings", __version__)
        self._context_of = TraceContextTextMapPropagator().extract

    def record_response(self, line: RequestLine, context: Mapping[str, str]) -> str | None:
        """Make the span of a request that was answered just now, and return its trace's id, if it has one.

        `context` is what the client sent of traceparent and tracestate; a trace that these name is continued.
        """
        end = time.time_ns()
        start = end - round(line.milliseconds * _NANOSECONDS)
        name, attributes = _description(line)
        span = self._tracer.start_span(name, self._context_of(context), SpanKind.SERVER, attributes, start_time=start)
        if line.status >= _FAILED:
            span.set_status(StatusCode.ERROR)
        span.end(end)
        made = span.get_span_context()
        return format_trace_id(made.trace_id) if made.is_valid else None

    def close(self) -> None:
        """Deliver what waits, for two seconds; whoever can't take it by then does not hold up the stop."""
        last = threading.Thread(target=self._provider.shutdown, name="listings-traces", daemon=True)
        last.start()
        last.join(_LAST_SECONDS)
        if last.is_alive():
            self._delivery.shutdown()  # ends the waiting between attempts
            last.join(_GIVE_UP_SECONDS)


class _Delivery(SpanExporter):
    """An exporter that logs when delivery fails and when it works again, not each attempt."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._works = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Deliver some spans, in the thread of delivery."""
        result = self._exporter.export(spans)
        works = result is SpanExportResult.SUCCESS
        if works != self._works:
            self._works = works
            if works:
                _log.info("Traces are delivered again")
            else:
                _log.warning("Traces can't be delivered: look at the collector and OTEL_EXPORTER_OTLP_ENDPOINT")
        return result

    def shutdown(self) -> None:
        """Deliver no more."""
        self._exporter.shutdown()


def _description(line: RequestLine) -> tuple[str, dict[str, str | int]]:
    """Name and attributes of a request's span, by the conventions for HTTP servers."""
    method = line.method if line.method in HTTPMethod.__members__ else _OTHER
    name = "HTTP" if method == _OTHER else method
    attributes: dict[str, str | int] = {
        "http.request.method": method,
        "http.response.status_code": line.status,
        "listings.request_id": line.request_id,
    }
    if line.route != _NO_ROUTE:
        attributes["http.route"] = line.route
        name = f"{name} {line.route}"
    if line.status >= _FAILED:
        attributes["error.type"] = str(line.status)
    return name, attributes


def _resource() -> Resource:
    """The service, with what the operator says of it in OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES."""
    ours = Resource({"service.name": "listings", "service.version": __version__})
    return Resource.create().merge(ours).merge(OTELResourceDetector().detect())
