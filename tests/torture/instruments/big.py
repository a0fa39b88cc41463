"""Big: bodies, heads, addresses and lists far beyond their bounds, on a service that has little memory."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import uvloop

from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.serving import Place, Zygote, make_people
from tests.torture.wire import LONGEST, PATH, Line, LostError, answer_of

_MEBIBYTE = 1024 * 1024
_MOST_GROWN = 50.0  # MiB
_WHOLE = 100 * _MEBIBYTE
_PIECE = b"x" * (256 * 1024)
_TIMES, _BESIDE = 5, 4  # of each in a long run, one after the other and beside each other


class Large(NamedTuple):
    """What is sent: a head without its key and its end, and what follows it."""

    name: str
    head: str
    body: Callable[[], Iterator[bytes]]
    statuses: frozenset[int]


def _large() -> Iterator[Large]:
    post, get = f"POST {PATH} HTTP/1.1\r\n", f"GET {PATH} HTTP/1.1\r\n"
    sized = post + "Content-Length: {}\r\n"
    nothing = iter
    yield Large(
        "100 MiB with a length", sized.format(_WHOLE), lambda: repeat(_PIECE, _WHOLE // len(_PIECE)), _only(413)
    )
    yield Large("100 MiB in chunks", post + "Transfer-Encoding: chunked\r\n", _chunks, _only(413))
    yield Large("100 MiB of one-byte chunks", post + "Transfer-Encoding: chunked\r\n", _small_chunks, _only(413))
    yield Large(
        "100 MiB to a wrong path", sized.replace(PATH, "/none").format(_WHOLE), lambda: repeat(_PIECE, 400), _only(404)
    )
    yield Large("10,000 fields", get + "".join(f"X-{n}: y\r\n" for n in range(10_000)), lambda: nothing([]), _only(431))
    yield Large("a field of 1 MiB", f"{get}X-A: {'y' * _MEBIBYTE}\r\n", lambda: nothing([]), _only(431))
    yield Large("an address of 1 MiB", get.replace(PATH, PATH + "?" + "a" * _MEBIBYTE), lambda: nothing([]), _only(414))
    for name, body, status in _bodies():
        encoding = "Content-Encoding: gzip\r\n" if name.startswith("gzip") else ""
        yield Large(name, sized.format(len(body)) + encoding, lambda body=body: iter([body]), _only(status))  # type: ignore[misc]


def _bodies() -> Iterator[tuple[str, bytes, int]]:
    listing = {"title": "Lamp", "content": "Bright."}
    yield "100,000 images", json.dumps(listing | {"images": ["https://x/a"] * 100_000}).encode(), 400
    yield "100,000 bad images", json.dumps(listing | {"images": [1] * 100_000}).encode(), 400
    yield "100,000 unknown fields", json.dumps(listing | {f"f{n}": n for n in range(100_000)}).encode(), 201
    yield "2 MiB of title", json.dumps(listing | {"title": "x" * (2 * _MEBIBYTE - 100)}).encode(), 400
    yield "2 MiB of brackets", b"[" * (2 * _MEBIBYTE), 400
    yield "1 MiB of empty lists", b'{"x": [' + b"[]," * (_MEBIBYTE // 3) + b"[]]}", 400
    yield "a number of 2 MiB", b'{"price": ' + b"9" * (2 * _MEBIBYTE - 20) + b"}", 400
    yield "gzip bomb", gzip.compress(bytes(_WHOLE)), 415


def _only(*statuses: int) -> frozenset[int]:
    return frozenset(statuses)


def _chunks() -> Iterator[bytes]:
    yield from repeat(b"%x\r\n%b\r\n" % (len(_PIECE), _PIECE), _WHOLE // len(_PIECE))
    yield b"0\r\n\r\n"


def _small_chunks() -> Iterator[bytes]:
    yield from repeat(b"1\r\nx\r\n" * 40_000, _WHOLE // 240_000)


async def _send(place: Place, key: str, large: Large) -> str:
    """What was wrong."""
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    head = f"{large.head}Host: x\r\nX-API-Key: {key}\r\n\r\n".encode()
    sending = asyncio.create_task(_push(writer, head, large.body))
    try:
        async with asyncio.timeout(2 * LONGEST):
            answer = await answer_of(reader)
    except (OSError, EOFError, ValueError) as error:
        return f"{large.name}: no answer could be read: {error!r}"
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError, OSError):
            await sending
        writer.transport.abort()
    return "" if answer.status in large.statuses else f"{large.name}: answered {answer.status}"


async def _push(writer: asyncio.StreamWriter, head: bytes, body: Callable[[], Iterator[bytes]]) -> None:
    with suppress(OSError):
        writer.write(head)
        async for piece in _slowly(body()):
            writer.write(piece)
            await writer.drain()


async def _slowly(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)


def _resident(pid: int, name: str) -> float:
    """A line of the process's status, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def _forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5", "ascii")


async def _work(place: Place, key: str, kinds: Sequence[Large], times: int, beside: int) -> tuple[str, list[str]]:
    await place.answers()
    assert place.process is not None
    pid, line = place.process.pid, Line(place.port, key)
    for _ in range(20):  # so that what the first requests load does not count
        await line.fetch("POST", PATH, {"title": "Lamp", "content": "Bright."})
    before, faults, sent = _resident(pid, "VmRSS"), [], 0
    peaks: dict[str, float] = {}
    for large in kinds:
        _forget_peak(pid)
        for _ in range(times):
            found = await asyncio.gather(*(_send(place, key, large) for _ in range(beside)), return_exceptions=True)
            faults += [str(fault) for fault in found if fault]
            sent += beside
            if place.process.has_ended:
                return f"{sent:,} requests", [*faults, f"{large.name}: the process has ended: {place.said()}"]
        peaks[large.name] = _resident(pid, "VmHWM") - before
        if peaks[large.name] > _MOST_GROWN:
            faults.append(f"{large.name}: the process grew by {peaks[large.name]:.0f} MiB")
    worst = max(peaks, key=peaks.__getitem__)
    try:
        if (await line.fetch("GET", PATH + "?limit=1")).status != 200:
            faults.append("afterwards it does not answer")
    except LostError as error:
        faults.append(f"afterwards it does not answer: {error}")
    line.close()
    place.stop()
    told = f"{sent:,} requests of {len(peaks)} kinds, {beside} concurrent"
    return f"{told}, peak {peaks[worst]:+.0f} MiB ({worst})", faults


def work(scale: Scale, times: int, beside: int, fault: str, most: int | None = None) -> tuple[str, list[str]]:
    """A service in 512 MiB, and all that is too large, or the first `most` kinds of it."""
    with ExitStack() as stack:
        zygote = stack.enter_context(Zygote())
        place = stack.enter_context(Place(scale.folder, zygote, fault, LISTINGS_BODY_TIMEOUT="120"))
        (alice,) = asyncio.run(make_people(scale.folder, 1))
        place.start()
        return uvloop.run(_work(place, alice.key, list(_large())[:most], times, beside))


def run(scale: Scale) -> Outcome:
    """Each kind several times and beside each other in a long run, once in a short one."""
    is_long = scale.part >= 1
    told, faults = work(scale, _TIMES if is_long else 1, _BESIDE if is_long else 1, "have_little_memory")
    return Outcome(told, faults, is_long)


def control(scale: Scale) -> Outcome:
    """Bodies of any size are taken into memory."""
    told, faults = work(scale, 1, 1, "take_any_body", 2)
    return Outcome(f"no bound on bodies: {told}", faults)


INSTRUMENT = Instrument(
    10,
    "large requests: bodies, heads and arrays far beyond the limits, in 512 MiB",
    "the correct status each time, peak at most +50 MiB",
    2,
    run,
    control,
)
