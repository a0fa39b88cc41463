"""Tracing: one span per request, without personal data, and off by default."""

import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, Self

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from listings.domain.errors import Problem
from listings.telemetry.logs import RequestLine
from listings.telemetry.tracing import Tracing
from tests.cli.commands import DEADLINE, Program, clean_environment
from tests.http.raw import Connection, request
from tests.processes import list_thread_names, run_program

LISTINGS = "/api/v1/listings"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
FAST = {"OTEL_BSP_SCHEDULE_DELAY": "20", "NO_PROXY": "*"}


class Collector:
    """An OpenTelemetry collector on this machine that stores its spans."""

    def __init__(self, bound: socket.socket | None = None) -> None:
        self.bodies: list[bytes] = []
        self._spans: SimpleQueue[Span] = SimpleQueue()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(), bind_and_activate=False)
        if bound is None:
            self._server.server_bind()
        else:
            self._server.socket.close()
            self._server.socket, self._server.server_port = bound, bound.getsockname()[1]
        self._server.server_activate()
        self.environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}",
            "LISTINGS_TRACING": "on",
            **FAST,
        }
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def next_span(self) -> Span:
        """Return the next span, in the order of arrival."""
        return self._spans.get(timeout=DEADLINE)

    def is_empty(self) -> bool:
        return self._spans.empty()

    def _store(self, body: bytes) -> None:
        self.bodies.append(body)
        for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    self._spans.put(span)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        store = self._store

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                store(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class SilentCollector:
    """A collector that accepts connections and never responds."""

    variables: ClassVar[dict[str, str]] = {"LISTINGS_TRACING": "on", **FAST}

    def __enter__(self) -> Self:
        self._socket = socket.create_server(("127.0.0.1", 0))
        port = self._socket.getsockname()[1]
        self.environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": str(DEADLINE),
            **self.variables,
        }
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def read_attributes(span: Span) -> dict[str, Any]:
    return {item.key: getattr(item.value, str(item.value.WhichOneof("value"))) for item in span.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture
def program(tmp_path: Path, collector: Collector) -> Program:
    return Program(tmp_path, **collector.environment)


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in FAST.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def read_demo_keys(folder: Path) -> list[str]:
    return re.findall(r"lst_\w+", (folder / "data/demo.env").read_text("utf-8"))


@pytest.mark.covers_programs
def test_a_request_has_one_span_that_follows_the_conventions(program: Program, collector: Collector) -> None:
    with program.serve("--demo") as serving:
        key = read_demo_keys(serving.folder)[0]
        headers = {"X-API-Key": key, "X-Request-Id": "r-1"}
        assert serving.http.get(f"{LISTINGS}/1025?secret=1", headers=headers).status_code == 200
        span = collector.next_span()
        serving.stop()
    assert span.name == "GET /api/v1/listings/{id}"
    assert span.kind == Span.SPAN_KIND_SERVER
    assert read_attributes(span) == {
        "http.request.method": "GET",
        "http.route": "/api/v1/listings/{id}",
        "http.response.status_code": 200,
        "listings.request_id": "r-1",
    }
    assert (len(span.trace_id), len(span.span_id), span.parent_span_id) == (16, 8, b"")
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 20 * 10**9
    assert collector.is_empty()


def test_the_trace_of_the_client_continues(program: Program, collector: Collector) -> None:
    with program.serve() as serving:
        serving.http.get("/healthz", headers={"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "shop=1,till=2"})
        outcome = serving.stop()
    span = collector.next_span()
    assert f'"trace_id":"{TRACE}"' in outcome.err
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert span.trace_state == "shop=1,till=2"


def test_a_trace_that_the_client_does_not_sample_is_not_exported(program: Program, collector: Collector) -> None:
    with program.serve() as serving:
        serving.http.get("/healthz", headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
        outcome = serving.stop()
    assert collector.is_empty()
    assert f'"trace_id":"{TRACE}"' in outcome.err


@pytest.mark.covers_programs
@pytest.mark.parametrize(
    "headers",
    [
        [b"traceparent: invalid"],
        [b"traceparent: 00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01"],
        [f"traceparent: 00-{TRACE}-{PARENT}-01".encode(), f"traceparent: 00-{TRACE[::-1]}-{PARENT}-01".encode()],
    ],
)
def test_an_invalid_traceparent_starts_a_new_trace(
    program: Program, collector: Collector, headers: list[bytes]
) -> None:
    with program.serve() as serving:
        with Connection(serving).send(request("GET", "/healthz", None, *headers)) as connection:
            assert connection.read_response().status == 200
        serving.stop()
    span = collector.next_span()
    assert span.parent_span_id == b""
    assert span.trace_id.hex() not in {TRACE, TRACE[::-1], "0" * 32}


def test_unknown_paths_have_no_route_and_invalid_requests_no_span(program: Program, collector: Collector) -> None:
    with program.serve() as serving:
        for data in (request("GET", "/wp-login.php"), request("PROPFIND", LISTINGS), b"invalid\r\n\r\n"):
            with Connection(serving).send(data) as connection:
                connection.read_response()
        serving.stop()
    unknown_path, unknown_method = collector.next_span(), collector.next_span()
    assert (unknown_path.name, read_attributes(unknown_path)["http.response.status_code"]) == ("GET", 404)
    assert "http.route" not in read_attributes(unknown_path)
    assert (unknown_method.name, read_attributes(unknown_method)["http.request.method"]) == (
        f"HTTP {LISTINGS}",
        "_OTHER",
    )
    assert collector.is_empty()


def test_no_span_contains_a_key_an_account_an_id_or_a_path(program: Program, collector: Collector) -> None:
    with program.serve("--demo") as serving:
        keys = [*read_demo_keys(serving.folder), "an-unknown-key-of-somebody"]
        for key in keys:
            headers = {"X-API-Key": key, "User-Agent": "agent-of-somebody"}
            for path in ("/1025", "/77777", "?email=alice@example.com", "/wp-login"):
                serving.http.get(LISTINGS + path, headers=headers)
            serving.http.post(LISTINGS, headers=headers, json={"title": "Bicycle", "content": "Two wheels."})
        host = serving.base_url.removeprefix("http://")
        serving.stop()
    exported = b"".join(collector.bodies)
    assert exported.count(b"http.request.method") == 5 * len(keys)
    for secret in (*keys, "1025", "77777", "alice@example.com", "wp-login", "Bicycle", "agent-of", host, "127.0.0.1"):
        assert secret.encode() not in exported
    allowed = {"http.request.method", "http.route", "http.response.status_code", "listings.request_id"}
    assert {name for _ in range(5 * len(keys)) for name in read_attributes(collector.next_span())} == allowed


def test_a_server_error_is_an_error_and_a_client_error_is_not(
    collector: Collector, variables: pytest.MonkeyPatch
) -> None:
    variables.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.environment["OTEL_EXPORTER_OTLP_ENDPOINT"])
    tracing = Tracing()
    for status in (404, 503):
        tracing.record_response(RequestLine(method="GET", route="/readyz", status=status, milliseconds=2.5), {})
    tracing.close()
    client_error, server_error = collector.next_span(), collector.next_span()
    assert client_error.status.code == Status.STATUS_CODE_UNSET
    assert server_error.status.code == Status.STATUS_CODE_ERROR
    assert read_attributes(server_error)["error.type"] == "503"
    assert server_error.end_time_unix_nano - server_error.start_time_unix_nano == 2_500_000


def test_an_unreachable_collector_costs_one_log_line_and_no_request(tmp_path: Path) -> None:
    unreachable = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "0.1"}
    with Program(tmp_path, LISTINGS_TRACING="on", **FAST, **unreachable).serve() as serving:
        for _ in range(100):  # few enough that their log lines fit in the pipe
            assert serving.http.get("/healthz").status_code == 200
        outcome = serving.stop()
    assert outcome.code == 0
    assert outcome.err.count("Traces can't be exported") == 1
    assert outcome.err.count('"event":"request"') == 100
    assert [text for text in outcome.err.splitlines() if "urllib3" in text or "opentelemetry" in text] == []


@pytest.mark.slow
def test_a_silent_collector_blocks_neither_requests_nor_the_stop(tmp_path: Path) -> None:
    with SilentCollector() as silent, Program(tmp_path, **silent.environment).serve() as serving:
        for _ in range(100):
            assert serving.http.get("/healthz").status_code == 200
        started = time.monotonic()
        outcome = serving.stop()
    assert outcome.code == 0
    assert time.monotonic() - started < DEADLINE / 2  # less than the timeout of the exporter


def is_logged(caplog: pytest.LogCaptureFixture, text: str, seconds: float) -> bool:
    """Wait for a text in the log. Return False after the given number of seconds."""
    end = time.monotonic() + seconds
    while text not in caplog.text and time.monotonic() < end:
        time.sleep(0.001)
    return text in caplog.text


def test_the_recovery_of_a_collector_is_logged_once(
    variables: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "listings.telemetry.tracing")
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    variables.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{bound.getsockname()[1]}")
    variables.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.75")  # less than the pause of the exporter before a retry
    tracing = Tracing()
    tracing.record_response(RequestLine(method="GET", route="/healthz", status=200), {})
    assert is_logged(caplog, "can't be exported", DEADLINE)
    with Collector(bound) as collector:
        for _ in range(60):  # on a busy machine the first response may take longer
            tracing.record_response(RequestLine(method="GET", route="/readyz", status=200), {})
            assert collector.next_span().name == "GET /readyz"
            if is_logged(caplog, "exported again", 2):
                break
        tracing.close()
    assert [record.message for record in caplog.records][1:] == ["Traces are exported again"]


def run_without_opentelemetry(folder: Path, *arguments: str, tracing: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from listings.cli import main\n"
        f"sys.exit(main({list(arguments)!r}))"
    )
    environment = clean_environment() | {"LISTINGS_TRACING": tracing}
    return run_program([sys.executable, "-c", code], cwd=folder, env=environment)


@pytest.mark.covers_programs
def test_tracing_without_the_extra_prevents_the_start(tmp_path: Path) -> None:
    outcome = run_without_opentelemetry(tmp_path, "serve", "--port", "0", tracing="on")
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith("listings: LISTINGS_TRACING is on")
    assert "requirements/tracing.txt" in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_without_tracing_the_extra_is_not_needed(tmp_path: Path) -> None:
    assert run_without_opentelemetry(tmp_path, "migrate", tracing="off").returncode == 0


def test_without_tracing_nothing_is_loaded_exported_or_logged(tmp_path: Path, collector: Collector) -> None:
    with Program(tmp_path, **collector.environment | {"LISTINGS_TRACING": "off"}).serve() as serving:
        serving.http.get("/healthz", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
        threads = list_thread_names(serving.process.pid)
        outcome = serving.stop()
    assert not [name for name in threads if "Otel" in name]
    assert "trace_id" not in outcome.err
    assert collector.bodies == []
    code = "import sys, listings.cli; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    loaded = run_program([sys.executable, "-c", code], check=True)
    assert loaded.stdout == "[]\n"


def test_an_invalid_variable_of_opentelemetry_is_reported(variables: pytest.MonkeyPatch) -> None:
    variables.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "0")
    with pytest.raises(Problem, match=r"OTEL_ variables: .*max_queue_size") as raised:
        Tracing()
    assert raised.value.code == "invalid_setting"
