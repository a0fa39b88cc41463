"""Send a span of each request to OpenTelemetry, with OTLP over HTTP. Needs the extra `tracing`.

A span has the pattern of the route, never the path, and no data of the key, the account or the client. OpenTelemetry's
own variables configure the collector and the sampling (docs/metrics.md). A separate thread exports the spans and drops
those that do not fit in its queue, so requests never wait for the collector.
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

_NANOSECONDS_PER_MS = 1_000_000
_SERVER_ERROR = 500
_FLUSH_TIMEOUT_SECONDS = 2.0
_ABORT_TIMEOUT_SECONDS = 1.0
_NO_ROUTE = "-"
_OTHER = "_OTHER"  # the conventions' name for unknown methods

_log = logging.getLogger(__name__)


class Tracing:
    """Creates spans of requests. Raises Problem("invalid_setting") if OpenTelemetry's variables are invalid."""

    def __init__(self) -> None:
        try:
            self._exporter = _LoggingExporter(OTLPSpanExporter())
            defaults = Resource({"service.name": "listings", "service.version": __version__})
            # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
            resource = Resource.create().merge(defaults).merge(OTELResourceDetector().detect())
            self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
            self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        except ValueError as error:
            raise Problem(
                "invalid_setting", f"OpenTelemetry can't be configured from its OTEL_ variables: {error}"
            ) from None
        for name in ("opentelemetry", "urllib3"):  # they log every failure, `_LoggingExporter` only the first
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._tracer = self._provider.get_tracer("listings", __version__)
        self._extract_context = TraceContextTextMapPropagator().extract

    def record_response(self, line: RequestLine, context: Mapping[str, str]) -> str | None:
        """Create the span of a request that has just ended. Return the trace id, or None if it is not valid.

        `context` has the client's traceparent and tracestate. The span continues the client's trace.
        """
        end = time.time_ns()
        start = end - round(line.milliseconds * _NANOSECONDS_PER_MS)
        # As in OpenTelemetry's conventions for HTTP servers.
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
        if line.status >= _SERVER_ERROR:
            attributes["error.type"] = str(line.status)
        span = self._tracer.start_span(
            name, self._extract_context(context), SpanKind.SERVER, attributes, start_time=start
        )
        if line.status >= _SERVER_ERROR:
            span.set_status(StatusCode.ERROR)
        span.end(end)
        created = span.get_span_context()
        return format_trace_id(created.trace_id) if created.is_valid else None

    def close(self) -> None:
        """Export the queued spans. Give up after three seconds, so that the collector can't delay the stop."""
        thread = threading.Thread(target=self._provider.shutdown, name="listings-traces", daemon=True)
        thread.start()
        thread.join(_FLUSH_TIMEOUT_SECONDS)
        if thread.is_alive():
            self._exporter.shutdown()  # ends the pause between attempts
            thread.join(_ABORT_TIMEOUT_SECONDS)


class _LoggingExporter(SpanExporter):
    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._is_working = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        is_working = result is SpanExportResult.SUCCESS
        if is_working != self._is_working:
            self._is_working = is_working
            if is_working:
                _log.info("Traces are exported again")
            else:
                _log.warning("Traces can't be exported: check the collector and OTEL_EXPORTER_OTLP_ENDPOINT")
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()
