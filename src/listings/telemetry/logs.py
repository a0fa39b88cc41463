"""What the service writes about itself: JSON lines, or lines for people on a terminal, on standard error.

No line holds a key, a cookie, a password, an address or a body (OWASP ASVS 16.2.5). Events go through logging and
structlog; the line that every request gets takes a short way of its own, since it is the only one that is frequent:
lines are gathered and written a few times a second.

Several processes may write to one stream. So nothing is written in pieces larger than the kernel takes whole, and each
ends with a line: no line stands within another.
"""

import asyncio
import json
import logging
import select
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from queue import SimpleQueue
from typing import BinaryIO, Literal, TextIO, TypeAlias

import msgspec
import structlog

Level: TypeAlias = Literal["info", "warning", "error"]
LEVELS: dict[str, int] = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_FLUSH_SECONDS = 0.2
_MOST_GATHERED = 500
_MOST_BATCHES = 100
_LAST_SECONDS = 1.0
_LONGEST_EVENT = select.PIPE_BUF - 1  # and its end of line
_SECURITY_RELEVANT = {401, 403, 429}
_REFUSED = 400
_FAILED = 500

NO_REQUEST = "-"
"""The method of what was refused before it was a request."""

_encode_lines = msgspec.json.Encoder().encode_lines


class RequestLine(msgspec.Struct, gc=False):
    """What is written of a request. `route` is its pattern, never its address; ids are None where no key counted.

    `trace_id` is left out where requests are not traced, `pid` where there is but one process.
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


def configure(stream: TextIO, level: int, *, as_json: bool, of: str = "", pid: int | None = None) -> None:
    """Send all events to one stream, or those `of` one logger and the ones below it.

    `pid`: of this process, where several write to the stream; each event names it.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
    ]
    if pid is not None:
        shared.append(_adding("pid", pid))
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    render: list[structlog.typing.Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if as_json:
        cut = [_cut_exception] if pid is not None else []
        render += [structlog.processors.format_exc_info, *cut, structlog.processors.JSONRenderer()]
    else:
        plain = structlog.dev.plain_traceback  # the others show local variables
        render += [structlog.dev.ConsoleRenderer(colors=False, exception_formatter=plain)]
    handler = _LinesHandler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=render, foreign_pre_chain=[*shared, stamp]))
    handler.addFilter(logging.Filter(of))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("uvicorn").setLevel(max(level, logging.WARNING))  # its stories about connections are not ours


def on_behalf_of(operator: str) -> AbstractContextManager[object]:
    """While it lasts, every event of this task names the operator who brings it about."""
    return structlog.contextvars.bound_contextvars(operator=operator)


def level_of(status: int) -> Level:
    """How grave an answer is: refusals that may be an attack are warnings."""
    if status >= _FAILED:
        return "error"
    return "warning" if status in _SECURITY_RELEVANT else "info"


class _LinesHandler(logging.StreamHandler[TextIO]):
    """Writes an event of many lines, as a traceback for people is, in pieces of whole lines."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            for piece in _whole_lines(f"{self.format(record)}\n".encode("utf-8", "backslashreplace")):
                self.stream.write(piece.decode())
                self.flush()
        except Exception:  # noqa: BLE001 - as every handler of logging: a log never ends what it tells of
            self.handleError(record)


class RequestLog:
    """Gathers the lines of requests and writes them. For one event loop."""

    def __init__(
        self, stream: BinaryIO, level: int = logging.INFO, *, as_json: bool = True, pid: int | None = None
    ) -> None:
        """`stream` is written to without being closed; `pid` as for `configure`."""
        self._stream = stream
        self._level = level
        self._as_json = as_json
        self._pid = pid
        self._lines: list[RequestLine] = []
        self._timer: asyncio.TimerHandle | None = None
        self._second = 0
        self._stamp = ""
        self._batches: SimpleQueue[list[RequestLine] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="listings-log", daemon=True)
        self._thread.start()

    def note(self, line: RequestLine) -> None:
        """Write the line of a request, with its time and level."""
        if line.status >= _REFUSED:
            line.level = level_of(line.status)
        if LEVELS[line.level] < self._level:
            return
        line.timestamp = self._now()
        if self._pid is not None:
            line.pid = self._pid
        self._lines.append(line)
        if len(self._lines) >= _MOST_GATHERED:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Hand over what was gathered; while nobody reads the stream, lines are lost and requests go on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lines, self._lines = self._lines, []
        if lines and self._batches.qsize() < _MOST_BATCHES:
            self._batches.put(lines)

    def close(self) -> None:
        """Write what there is, for a second at most."""
        self.flush()
        self._batches.put(None)
        self._thread.join(_LAST_SECONDS)

    def _write(self) -> None:
        """In a thread of its own, since a stream may block."""
        while (batch := self._batches.get()) is not None:
            try:
                lines = _encode_lines(batch) if self._as_json else b"".join(map(_for_people, batch))
                for piece in _whole_lines(lines) if self._pid is not None else (lines,):
                    self._stream.write(piece)
                    self._stream.flush()
            except (OSError, ValueError):
                continue

    def _now(self) -> str:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))
        return self._stamp


def _whole_lines(lines: bytes) -> Iterator[bytes]:
    """Pieces that end with a line, each as large as the kernel writes without another process's between its bytes."""
    begin = 0
    while len(lines) - begin > select.PIPE_BUF:
        end = lines.rfind(b"\n", begin, begin + select.PIPE_BUF) + 1 or lines.find(b"\n", begin) + 1
        yield lines[begin:end]
        begin = end
    yield lines[begin:]


def _adding(name: str, value: object) -> structlog.typing.Processor:
    def add(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        event[name] = value
        return event

    return add


def _cut_exception(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Leave out the beginning of a traceback that makes the line larger than the kernel writes whole."""
    while (text := event.get("exception")) and (excess := len(json.dumps(event, default=repr)) - _LONGEST_EVENT) > 0:
        event["exception"] = text[max(1, min(excess, len(text) // 4)) :]
    return event


def _for_people(line: RequestLine) -> bytes:
    ids = f" account {line.account_id} key {line.key_id}" if line.key_id is not None else ""
    code = f" {line.code}" if line.code is not None else ""
    trace = f" trace {line.trace_id}" if line.trace_id is not msgspec.UNSET else ""
    pid = f" pid {line.pid}" if line.pid is not msgspec.UNSET else ""
    return (
        f"{line.timestamp} [{line.level:<7}] {line.status} {line.method} {line.route}{code}"
        f"  {line.milliseconds} ms{ids}  {line.request_id}{trace}{pid}\n"
    ).encode()
