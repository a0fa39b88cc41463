"""Write the log to standard error, as JSON lines or as text for a terminal.

No line contains a key, a cookie, a password, a URL or a body (OWASP ASVS 16.2.5). Events go through logging. The line
of each request takes a faster path, because it is the only frequent one: lines are buffered and written a few times a
second.

Several processes may write to one stream. Then each write ends with a line break and has at most `PIPE_BUF` bytes,
unless a single line is longer, so that the lines of different processes do not mix.
"""

import asyncio
import json
import logging
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from queue import SimpleQueue
from typing import BinaryIO, Literal, TypeAlias

import msgspec

Level: TypeAlias = Literal["info", "warning", "error"]
LEVELS: dict[str, int] = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_FIRST_FIELDS = ("timestamp", "level", "event")
_FLUSH_SECONDS = 0.2
_MAX_BUFFERED_LINES = 500
_MAX_QUEUED_BATCHES = 100
_MAX_QUEUED_EVENTS = 10_000
_CLOSE_TIMEOUT_SECONDS = 1.0
_MAX_EVENT_BYTES = select.PIPE_BUF - 1  # without the line break
_SECURITY_RELEVANT = {401, 403, 429}
_CLIENT_ERROR = 400
_SERVER_ERROR = 500

NO_REQUEST = "-"
"""The method of input that was rejected before it was parsed as a request."""

_encode_lines = msgspec.json.Encoder().encode_lines
_operator: ContextVar[str | None] = ContextVar("operator", default=None)


class RequestLine(msgspec.Struct, gc=False):
    """The log line of a request. `route` is a pattern, never the path.

    `account_id` and `key_id` are None without a valid key. `trace_id` is absent without tracing, `pid` with a single
    process.
    """

    timestamp: str = ""
    level: Level = "info"
    event: str = "request"
    method: str = NO_REQUEST
    route: str = "-"
    status: int = 0
    milliseconds: float = 0.0
    account_id: int | None = None
    key_id: int | None = None
    request_id: str = ""
    code: str | None = None
    trace_id: str | msgspec.UnsetType = msgspec.UNSET
    pid: int | msgspec.UnsetType = msgspec.UNSET


def open_stderr() -> BinaryIO:
    """Return standard error without its buffer: at exit, Python would wait for the lock of a buffer in use."""
    stream: BinaryIO = getattr(sys.stderr.buffer, "raw", sys.stderr.buffer)
    return stream


def configure(stream: BinaryIO, level: int, *, as_json: bool, logger: str = "", pid: int | None = None) -> None:
    """Write all events to one stream, or only those of `logger` and its children.

    `pid` is added to each event. Pass it if several processes write to the stream.
    """
    handler = _LinesHandler(stream)
    handler.setFormatter(_EventFormatter(as_json=as_json, pid=pid))
    handler.addFilter(logging.Filter(logger))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("uvicorn").setLevel(max(level, logging.WARNING))  # its connection events repeat the request log


@contextmanager
def write_in_thread() -> Iterator[None]:
    """Write the events in a separate thread, because the stream may block. Drop them while too many are waiting."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    events: SimpleQueue[logging.LogRecord | None] = SimpleQueue()

    def write() -> None:
        while (event := events.get()) is not None:
            for handler in handlers:
                handler.handle(event)

    thread = threading.Thread(target=write, name="listings-events", daemon=True)
    thread.start()
    root.handlers[:] = [_EventQueue(events)]
    try:
        yield
    finally:
        root.handlers[:] = handlers
        events.put(None)
        thread.join(_CLOSE_TIMEOUT_SECONDS)


@contextmanager
def bind_operator(operator: str) -> Iterator[None]:
    """Name the operator in every event of this task."""
    token = _operator.set(operator)
    try:
        yield
    finally:
        _operator.reset(token)


def get_level(status: int) -> Level:
    """Return the log level of a status. Rejections that may be an attack are warnings."""
    if status >= _SERVER_ERROR:
        return "error"
    return "warning" if status in _SECURITY_RELEVANT else "info"


class _EventFormatter(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def __init__(self, *, as_json: bool, pid: int | None) -> None:
        super().__init__(datefmt=_TIME_FORMAT)
        self._as_json = as_json
        self._pid = pid

    def format(self, record: logging.LogRecord) -> str:
        timestamp, level = self.formatTime(record, self.datefmt), record.levelname.lower()
        traceback = self.formatException(record.exc_info) if record.exc_info else ""
        operator: dict[str, object] = {}
        if (name := getattr(record, "operator", None) or _operator.get()) is not None:
            operator = {"operator": name}
        pid: dict[str, object] = {} if self._pid is None else {"pid": self._pid}
        if self._as_json:
            first = dict(zip(_FIRST_FIELDS, (timestamp, level, record.getMessage()), strict=True))
            return self._encode(first | operator | {"logger": record.name} | pid, traceback)
        fields = [f"{name} {value}" for name, value in (operator | pid).items()]
        line = "  ".join((f"{timestamp} [{level:<7}] {record.name}: {record.getMessage()}", *fields))
        return f"{line}\n{traceback}".rstrip("\n")

    def _encode(self, event: dict[str, object], traceback: str) -> str:
        line = json.dumps(event | {"exception": traceback} if traceback else event)
        # Cut the start of the traceback if the line would be too long for an atomic write.
        while self._pid is not None and traceback and (excess := len(line) - _MAX_EVENT_BYTES) > 0:
            traceback = traceback[max(1, min(excess, len(traceback) // 4)) :]
            line = json.dumps(event | {"exception": traceback})
        return line


class _LinesHandler(logging.Handler):
    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream

    def createLock(self) -> None:  # noqa: N802 - logging's name
        self.lock = None  # chunks are written atomically; with a lock, logging would wait at exit for a blocked write

    def handle(self, record: logging.LogRecord) -> bool:
        if self.filter(record):
            self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        try:
            for chunk in _split_at_lines(f"{self.format(record)}\n".encode("utf-8", "backslashreplace")):
                _write(self._stream, chunk)
        except Exception:  # noqa: BLE001 - like all handlers of logging, it must not raise
            self.handleError(record)


def _write(stream: BinaryIO, data: bytes) -> None:
    while data:
        written: int | None = stream.write(data)  # perhaps only a part, if the stream is unbuffered
        if written is None:  # the pipe is full, and another program has made it non-blocking
            select.select([], [stream], [])
        data = data[written or 0 :]


class _EventQueue(logging.Handler):
    def __init__(self, events: SimpleQueue[logging.LogRecord | None]) -> None:
        super().__init__()
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        if self._events.qsize() < _MAX_QUEUED_EVENTS:
            record.operator = _operator.get()  # the thread that formats the event is outside of the task
            self._events.put(record)


class RequestLog:
    """Buffers the log lines of requests and writes them in a thread. For one event loop."""

    def __init__(
        self, stream: BinaryIO, level: int = logging.INFO, *, as_json: bool = True, pid: int | None = None
    ) -> None:
        """`stream` is not closed. `pid` is as for `configure`."""
        self._stream = stream
        self._level = level
        self._as_json = as_json
        self._pid = pid
        self._lines: list[RequestLine] = []
        self._timer: asyncio.TimerHandle | None = None
        self._second = 0
        self._timestamp = ""  # of that second
        self._batches: SimpleQueue[list[RequestLine] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="listings-log", daemon=True)
        self._thread.start()

    def record(self, line: RequestLine) -> None:
        """Queue the line of a request, with its time and level."""
        if line.status >= _CLIENT_ERROR:
            line.level = get_level(line.status)
        if LEVELS[line.level] < self._level:
            return
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._timestamp = time.strftime(_TIME_FORMAT, time.gmtime(second))
        line.timestamp = self._timestamp
        if self._pid is not None:
            line.pid = self._pid
        self._lines.append(line)
        if len(self._lines) >= _MAX_BUFFERED_LINES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Pass the buffered lines to the thread. Drop them if the stream is blocked, so that requests never wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lines, self._lines = self._lines, []
        if lines and self._batches.qsize() < _MAX_QUEUED_BATCHES:
            self._batches.put(lines)

    def close(self) -> None:
        """Write the remaining lines. Give up after a second."""
        self.flush()
        self._batches.put(None)
        self._thread.join(_CLOSE_TIMEOUT_SECONDS)

    def _write(self) -> None:
        while (batch := self._batches.get()) is not None:
            try:
                lines = _encode_lines(batch) if self._as_json else b"".join(map(_format_text, batch))
                for chunk in _split_at_lines(lines) if self._pid is not None else (lines,):
                    _write(self._stream, chunk)
            except (OSError, ValueError):
                continue


def _split_at_lines(lines: bytes) -> Iterator[bytes]:
    begin = 0  # the kernel writes each chunk atomically, unless a single line is too long
    while len(lines) - begin > select.PIPE_BUF:
        end = lines.rfind(b"\n", begin, begin + select.PIPE_BUF) + 1 or lines.find(b"\n", begin) + 1
        yield lines[begin:end]
        begin = end
    yield lines[begin:]


def _format_text(line: RequestLine) -> bytes:
    ids = f" account {line.account_id} key {line.key_id}" if line.key_id is not None else ""
    code = f" {line.code}" if line.code is not None else ""
    trace = f" trace {line.trace_id}" if line.trace_id is not msgspec.UNSET else ""
    pid = f" pid {line.pid}" if line.pid is not msgspec.UNSET else ""
    return (
        f"{line.timestamp} [{line.level:<7}] {line.status} {line.method} {line.route}{code}"
        f"  {line.milliseconds} ms{ids}  {line.request_id}{trace}{pid}\n"
    ).encode()
