"""Oversized requests: bodies, heads, URLs and arrays far beyond the limits, on a service with little memory."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import repeat
from typing import NamedTuple

import uvloop

from tests.harness import TIMEOUT
from tests.http import timeouts
from tests.http.raw import PATH, AsyncConnection, ConnectionLostError, read_response
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.memory import read_status_mib, reset_peak
from tests.torture.services import RestartableService, create_people

_MEBIBYTE = 1024 * 1024
_MAX_GROWTH_MIB = 50.0
_OVERSIZE_BYTES = 100 * _MEBIBYTE
_PIECE = b"x" * (256 * 1024)
_EXTENSIONS = "100 MiB of chunk extensions"
CONTROL_KINDS = ("100 MiB with a length", "100 MiB in chunks", _EXTENSIONS)
_REPETITIONS, _CONCURRENT_REQUESTS = 5, 4  # per kind in a full run


class OversizedRequest(NamedTuple):
    """A head without key and final line, and the body."""

    name: str
    head: str
    body: Callable[[], Iterator[bytes]]
    statuses: frozenset[int]


def _generate_requests() -> Iterator[OversizedRequest]:
    post, get = f"POST {PATH} HTTP/1.1\r\n", f"GET {PATH} HTTP/1.1\r\n"
    sized = post + "Content-Length: {}\r\n"
    no_body = iter
    yield OversizedRequest(
        "100 MiB with a length",
        sized.format(_OVERSIZE_BYTES),
        lambda: repeat(_PIECE, _OVERSIZE_BYTES // len(_PIECE)),
        _only(413),
    )
    yield OversizedRequest("100 MiB in chunks", post + "Transfer-Encoding: chunked\r\n", _chunks, _only(413))
    yield OversizedRequest(
        "100 MiB of one-byte chunks", post + "Transfer-Encoding: chunked\r\n", _small_chunks, _only(413)
    )
    yield OversizedRequest(_EXTENSIONS, post + "Transfer-Encoding: chunked\r\n", _chunk_extensions, _only(400))
    yield OversizedRequest(
        "100 MiB to a wrong path",
        sized.replace(PATH, "/none").format(_OVERSIZE_BYTES),
        lambda: repeat(_PIECE, 400),
        _only(404),
    )
    yield OversizedRequest(
        "10,000 fields", get + "".join(f"X-{n}: y\r\n" for n in range(10_000)), lambda: no_body([]), _only(431)
    )
    yield OversizedRequest("a field of 1 MiB", f"{get}X-A: {'y' * _MEBIBYTE}\r\n", lambda: no_body([]), _only(431))
    yield OversizedRequest(
        "an address of 1 MiB", get.replace(PATH, PATH + "?" + "a" * _MEBIBYTE), lambda: no_body([]), _only(414)
    )
    for name, body, status in _bodies():
        encoding = "Content-Encoding: gzip\r\n" if name.startswith("gzip") else ""
        yield OversizedRequest(name, sized.format(len(body)) + encoding, lambda body=body: iter([body]), _only(status))  # type: ignore[misc]


def _bodies() -> Iterator[tuple[str, bytes, int]]:
    listing = {"title": "Lamp", "content": "Bright."}
    yield "100,000 images", json.dumps(listing | {"images": ["https://x/a"] * 100_000}).encode(), 400
    yield "100,000 bad images", json.dumps(listing | {"images": [1] * 100_000}).encode(), 400
    yield "100,000 unknown fields", json.dumps(listing | {f"f{n}": n for n in range(100_000)}).encode(), 400
    yield "2 MiB of title", json.dumps(listing | {"title": "x" * (2 * _MEBIBYTE - 100)}).encode(), 400
    yield "2 MiB of brackets", b"[" * (2 * _MEBIBYTE), 400
    yield "1 MiB of empty lists", b'{"x": [' + b"[]," * (_MEBIBYTE // 3) + b"[]]}", 400
    yield "a number of 2 MiB", b'{"price": ' + b"9" * (2 * _MEBIBYTE - 20) + b"}", 400
    yield "gzip bomb", gzip.compress(bytes(_OVERSIZE_BYTES)), 415


def _only(*statuses: int) -> frozenset[int]:
    return frozenset(statuses)


def _chunks() -> Iterator[bytes]:
    yield from repeat(b"%x\r\n%b\r\n" % (len(_PIECE), _PIECE), _OVERSIZE_BYTES // len(_PIECE))
    yield b"0\r\n\r\n"


def _small_chunks() -> Iterator[bytes]:
    yield from repeat(b"1\r\nx\r\n" * 40_000, _OVERSIZE_BYTES // 240_000)


def _chunk_extensions() -> Iterator[bytes]:
    """Yield a valid body of 10 kB, so that only its extensions are wrong."""
    for piece in (b'{"title": "Lamp", "content": "', *repeat(b"x", _OVERSIZE_BYTES // 10_000), b'"}'):
        yield b"%x;a=%b\r\n%b\r\n" % (len(piece), b"a" * 10_000, piece)
    yield b"0\r\n\r\n"


async def _send(service: RestartableService, key: str, request: OversizedRequest) -> str:
    """Send a request; return a failure or an empty string."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    head = f"{request.head}Host: x\r\nX-API-Key: {key}\r\n\r\n".encode()
    sending = asyncio.create_task(_write(writer, head, request.body))
    try:
        async with asyncio.timeout(2 * TIMEOUT):
            response = await read_response(reader)
    except (OSError, EOFError, ValueError) as error:
        return f"{request.name}: no response could be read: {error!r}"
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError, OSError):
            await sending
        writer.transport.abort()
    return "" if response.status in request.statuses else f"{request.name}: returned {response.status}"


async def _write(writer: asyncio.StreamWriter, head: bytes, body: Callable[[], Iterator[bytes]]) -> None:
    with suppress(OSError):
        writer.write(head)
        async for piece in _yielding(body()):
            writer.write(piece)
            await writer.drain()


async def _yielding(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)


async def _work(
    service: RestartableService, key: str, kinds: Sequence[OversizedRequest], repetitions: int, concurrent: int
) -> tuple[str, list[str]]:
    await service.wait_until_ready()
    assert service.process is not None
    pid, connection = service.process.pid, AsyncConnection(service.port, key)
    for _ in range(20):  # load the code first, so that its memory does not count
        await connection.fetch("POST", PATH, {"title": "Lamp", "content": "Bright."})
    before, failures, sent = read_status_mib(pid, "VmRSS"), [], 0
    peaks: dict[str, float] = {}
    for request in kinds:
        reset_peak(pid)
        for _ in range(repetitions):
            found = await asyncio.gather(
                *(_send(service, key, request) for _ in range(concurrent)), return_exceptions=True
            )
            failures += [str(failure) for failure in found if failure]
            sent += concurrent
            if service.process.has_ended:
                return f"{sent:,} requests", [*failures, f"{request.name}: the process has ended: {service.read_log()}"]
        peaks[request.name] = read_status_mib(pid, "VmHWM") - before
        if peaks[request.name] > _MAX_GROWTH_MIB:
            failures.append(f"{request.name}: the process grew by {peaks[request.name]:.0f} MiB")
    worst = max(peaks, key=peaks.__getitem__)
    try:
        if (await connection.fetch("GET", PATH + "?limit=1")).status != 200:
            failures.append("the service does not respond afterwards")
    except ConnectionLostError as error:
        failures.append(f"the service does not respond afterwards: {error}")
    connection.close()
    service.stop()
    summary = f"{sent:,} requests of {len(peaks)} kinds, {concurrent} concurrent"
    return f"{summary}, peak {peaks[worst]:+.0f} MiB ({worst})", failures


def work(
    scale: Scale, repetitions: int, concurrent: int, fault: str, names: Collection[str] = ()
) -> tuple[str, list[str]]:
    """Send all kinds of requests, or those with these names, to a service with 512 MiB of memory."""
    kinds = [kind for kind in _generate_requests() if not names or kind.name in names]
    with ExitStack() as stack:
        service = stack.enter_context(RestartableService(scale.folder, fault, **{timeouts.VARIABLE: "120"}))
        (alice,) = asyncio.run(create_people(scale.folder, 1))
        service.start()
        return uvloop.run(_work(service, alice.key, kinds, repetitions, concurrent))


def run(scale: Scale) -> Outcome:
    """Send each kind several times concurrently, or once in the short form."""
    is_long = scale.fraction >= 1
    summary, failures = work(
        scale, _REPETITIONS if is_long else 1, _CONCURRENT_REQUESTS if is_long else 1, "limit_memory"
    )
    return Outcome(summary, failures, is_long)


def control(scale: Scale) -> Outcome:
    """Read bodies of any size and with any framing into memory."""
    summary, failures = work(scale, 1, 1, "accept_any_body", CONTROL_KINDS)
    return Outcome(f"no limit on bodies and their framing: {summary}", failures)


INSTRUMENT = Instrument(
    10,
    "large requests: bodies, heads and arrays far beyond the limits, in 512 MiB",
    "the correct status each time, peak at most +50 MiB",
    1,
    run,
    control,
)
