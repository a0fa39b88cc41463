"""Requests that no HTTP client would send, and what must become of each: smuggled, cut, folded, pipelined.

Every connection carries some good requests, then one of an odd shape, then more. A shape is either plainly allowed
by RFC 9112, and then all of them are answered, or plainly not, and then nothing behind it may be.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import cycle
from random import Random
from typing import NamedTuple

PATH = "/api/v1/listings"


class Expectation(Enum):
    """What must become of a shape."""

    SERVED = "served"  # every request is answered, in its turn
    REFUSED = "rejected"  # it is answered 4xx or 505 and the connection ends; nothing behind it is answered
    EITHER = "either"  # one of the two
    CUT = "cut"  # the client leaves before its end: it is not answered, and nothing of it is done
    ANY = "any"  # bytes by chance: no more than that the service bears it


class Shape(NamedTuple):
    """A request by its parts. `{body}` in the text stands for a body that makes a listing, `{size}` for its length,
    `{hex}` for that in hexadecimal, `{inner}` for a whole request that would make one.
    """

    name: str
    verdict: Expectation
    text: str
    makes: bool = False  # whether it makes the listing when it is served


class Case(NamedTuple):
    """What one client sends, and what must come of it."""

    name: str
    verdict: Expectation
    pieces: Sequence[bytes]
    marks: Sequence[str]  # names of the requests before the odd one, of itself, and of those behind it
    place: int  # of the odd one among them
    may_make: Sequence[str]  # titles of listings that may be made
    is_reset: bool  # whether a client that leaves does so without a good-bye


HEAD = "POST {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\nX-Request-Id: {mark}\r\n"
GET = "GET {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\nX-Request-Id: {mark}\r\n"
_CHUNK = "{hex}\r\n{body}\r\n0\r\n\r\n"
_CHUNKED = "Transfer-Encoding: chunked\r\n"
_LENGTH = "Content-Length: {size}\r\n"

_BAD_CODINGS = (
    "gzip, chunked", "identity, chunked", ",chunked", "chunked, chunked",
    "xchunked", "chunked, identity", "chunked, gzip", "identity", "gzip", "chunkedx", "chunk", "chunked;q=1",
    "\x0bchunked", "chunked\x0b", "\x0cchunked", "'chunked'", '"chunked"', "chunked,\x0bchunked", "\x00chunked",
    "chunked\x00", "cow", "chunked, cow", "c hunked", "chunked chunked",
)  # fmt: skip
_BAD_LENGTHS = (
    "+{size}", "-{size}", "-0", "0x{hex}", "{size}.0", "{size}, {size}", "{size},{size}", "{size} {size}", "1e1",
    "{size}x", "x", "1_0", "\x0b{size}", "{size}\x0c", "{size};", "184467440737095516{size}00", "9" * 40, "٣",
)  # fmt: skip
_BAD_SIZES = (
    "zz", "-1", "+{hex}", "0x{hex}", "g", "", " {hex}", "\x0b{hex}", "{hex}\x0b", "{hex} {hex}", "ffffffffffffffffff",
    "10000000000000000", "{hex}\x00", "{hex},", "{hex}h",
)  # fmt: skip
_BAD_FIELDS = (
    "X-A: b\r\n c\r\n", "X-A: b\r\n\tc\r\n", "X-A : b\r\n", "X-A\t: b\r\n", ": b\r\n", "X A: b\r\n", "nonsense\r\n",
    "X-A: a\x00b\r\n", "X\x00A: b\r\n", "X-A: a\rb\r\n", "X-\x7f: b\r\n", "X(A): b\r\n", "X-é: b\r\n", "\r: b\r\n",
    "X-A: a\x01b\r\n", "Host: y\r\n", "Host: x\r\n", "[X]: b\r\n", "X,A: b\r\n", "\x0bX-A: b\r\n",
)  # fmt: skip
_BAD_LINES = (
    "GET {path}", "GET {path} HTTP/1.2", "GET {path} HTTP/2.0", "GET {path} http/1.1", "GET {path} HTTP/1.1 x",
    "GET {path} HTTP/11", "GET {path} HTTP/1,1", "get {path} HTTP/1.1", "GET\t{path} HTTP/1.1",
    "BREW {path} HTTP/1.1", "GET {path} HTTP/1.", "GET {path} HTTP/.1", "GET {path} FTP/1.1", " GET {path} HTTP/1.1",
    "GET {path}\x00 HTTP/1.1", "GET {path} a HTTP/1.1", "GET  HTTP/1.1", "{path} HTTP/1.1", "GET {path} HTTP/3.0",
    "CONNECT localhost:80 HTTP/1.1", "GET {path}é HTTP/1.1", "GET {path}\x7f HTTP/1.1", "PRI * HTTP/2.0",
    "GET {path} HTTP/01.1", "GET {path} HTTP/1.01", "G\x00ET {path} HTTP/1.1", "\x16\x03\x01\x02", "\x00\x01\x02",
)  # fmt: skip
_ODD_LINES = (  # sound, if seldom
    "GET http://x{path} HTTP/1.1", "GET HTTP://X:80{path} HTTP/1.1", "GET {path}?a=b&a=c HTTP/1.1",
    "OPTIONS * HTTP/1.1", "GET {path}/ HTTP/1.1", "GET //{path} HTTP/1.1", "GET {path}/../x HTTP/1.1",
    "GET {path}/%2e%2e/x HTTP/1.1", "GET {path}/%00 HTTP/1.1", "GET {path}/%ff%fe HTTP/1.1",
    "GET {path}?%zz HTTP/1.1", "GET /;x HTTP/1.1", "GET {path}%2f1 HTTP/1.1", "TRACE {path} HTTP/1.1",
    "PURGE {path} HTTP/1.1", "PROPFIND {path} HTTP/1.1", "\r\nGET {path} HTTP/1.1", "\r\n\r\n\r\nGET {path} HTTP/1.1",
    "GET {path}/%E2%82%AC HTTP/1.1",
)  # fmt: skip
_DOUBTFUL_LINES = (
    "GET  {path} HTTP/1.1", "GET {path}#a HTTP/1.1", "GET x:80 HTTP/1.1", "GET x HTTP/1.1", "GET * HTTP/1.1",
    "GET http:// HTTP/1.1", "GET http://[::1 HTTP/1.1", "GET ?a=b HTTP/1.1", "GET {path} HTTP/1.1 ",
    "GET {path}\t HTTP/1.1", "GET {path}\\x HTTP/1.1", "GET {path}<> HTTP/1.1", 'GET {path}" HTTP/1.1',
    "GET http://x:99999{path} HTTP/1.1", "GET http://a@x{path} HTTP/1.1", "GET {path} HTTP/1.1\r",
    "GET ftp://x{path} HTTP/1.1", "GET {path}%zz HTTP/1.1",
)  # fmt: skip
_ODD_FIELDS = (
    "X-A:\r\n", "X-A:b\r\n", "X-A: \t b \t \r\n", "X-A: éÿ\r\n", "!#$%&'*+-.^_`|~09az: b\r\n", "Expect: nothing\r\n",
    "Upgrade: h2c\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\n", "X-A: " + "b" * 8000 + "\r\n",
    "Cookie: " + "a;" * 99 + "\r\n", "TE: trailers\r\n", "Via: 1.1 x\r\n", 'X-Forwarded-For: 1.2.3.4, "\r\n',
    "Range: bytes=0-\r\n", "Prefer: a=b;c\r\n", "Content-Type: text/html\r\n", "X-HTTP-Method-Override: DELETE\r\n",
    "Connection: X-API-Key\r\n", "Trailer: Host\r\n", "Transfer_Encoding: chunked\r\n", "Content_Length: 5\r\n",
    "Content-Length: 0\r\n", 'If-None-Match: "\r\n',
)  # fmt: skip


def _lengths() -> Iterator[Shape]:
    """Two lengths, or a length and chunks: what one reads as a body, another reads as requests."""
    inner = "0\r\n\r\n{inner}"
    yield Shape("CL.TE", Expectation.REFUSED, HEAD + _LENGTH + _CHUNKED + "\r\n" + _CHUNK)
    yield Shape("TE.CL", Expectation.REFUSED, HEAD + _CHUNKED + _LENGTH + "\r\n" + _CHUNK)
    yield Shape(
        "CL.TE with one inside", Expectation.REFUSED, HEAD + "Content-Length: 4\r\n" + _CHUNKED + "\r\n" + inner
    )
    yield Shape("CL.0", Expectation.REFUSED, HEAD + "Content-Length: 0\r\n" + _CHUNKED + "\r\n" + inner)
    yield Shape("GET with both", Expectation.REFUSED, GET + _LENGTH + _CHUNKED + "\r\n" + inner)
    for first, second in (("{size}", "0"), ("0", "{size}"), ("{size}", "{size}"), ("5", "6"), ("", "{size}")):
        for name in ("Content-Length", "content-length"):
            fields = f"Content-Length: {first}\r\n{name}: {second}\r\n"
            yield Shape(
                f"lengths {first!r} and {second!r} ({name[0]})", Expectation.REFUSED, HEAD + fields + "\r\n{body}"
            )
    for length in _BAD_LENGTHS:
        yield Shape(f"length {length!r}", Expectation.REFUSED, HEAD + f"Content-Length: {length}\r\n\r\n{{body}}")
    for length in ("{size}", "000{size}", " {size}\t "):
        yield Shape(
            f"length {length!r}",
            Expectation.SERVED,
            HEAD + f"Content-Length:{length}\r\n\r\n{{body}}",
            makes=True,
        )
    yield Shape("length behind a space", Expectation.REFUSED, HEAD + "Content-Length : {size}\r\n\r\n{body}")
    yield Shape("folded length", Expectation.REFUSED, HEAD + "Content-Length:\r\n {size}\r\n\r\n{body}")


def _codings() -> Iterator[Shape]:
    for coding in _BAD_CODINGS:
        field = f"Transfer-Encoding: {coding}\r\n"
        yield Shape(f"coding {coding!r}", Expectation.REFUSED, HEAD + field + "\r\n" + _CHUNK)
        yield Shape(f"length and coding {coding!r}", Expectation.REFUSED, HEAD + _LENGTH + field + "\r\n{body}")
    identity = "Transfer-Encoding: identity\r\n"
    for fields in (_CHUNKED + identity, identity + _CHUNKED, _CHUNKED * 2, _CHUNKED + "Transfer-Encoding: x\r\n"):
        yield Shape(f"codings {fields!r}", Expectation.REFUSED, HEAD + fields + "\r\n" + _CHUNK)
    yield Shape(
        "coding before white space",
        Expectation.EITHER,
        HEAD + "Transfer-Encoding: chunked\t \r\n\r\n" + _CHUNK,
        makes=True,
    )
    yield Shape("coding behind a space", Expectation.REFUSED, HEAD + "Transfer-Encoding : chunked\r\n\r\n" + _CHUNK)
    yield Shape("folded coding", Expectation.REFUSED, HEAD + "Transfer-Encoding:\r\n chunked\r\n\r\n" + _CHUNK)
    yield Shape(
        "coding behind a bare LF",
        Expectation.EITHER,
        HEAD + "X-A: b\nTransfer-Encoding: chunked\r\n\r\n" + _CHUNK,
        makes=True,
    )
    yield Shape(
        "coding behind a bare CR",
        Expectation.REFUSED,
        HEAD + "X-A: b\rTransfer-Encoding: chunked\r\n\r\n" + _CHUNK,
    )
    for coding in ("CHUNKED", "Chunked", " \t chunked"):
        yield Shape(
            f"coding {coding!r}",
            Expectation.SERVED,
            HEAD + f"Transfer-Encoding:{coding}\r\n\r\n" + _CHUNK,
            makes=True,
        )
    yield Shape(
        "HTTP/1.0 with chunks",
        Expectation.EITHER,
        HEAD.replace("1.1", "1.0", 1) + _CHUNKED + "\r\n" + _CHUNK,
        makes=True,
    )


def _chunks() -> Iterator[Shape]:
    chunked = HEAD + _CHUNKED + "\r\n"
    for size in _BAD_SIZES:
        yield Shape(f"chunk size {size!r}", Expectation.REFUSED, chunked + f"{size}\r\n{{body}}\r\n0\r\n\r\n")
    for size in ("{hex}", "000{hex}", "{hex};a", "{hex};a=b", '{hex};a="b c"', "{hex};a=b;c=d", "{hex};" + "a" * 900):
        yield Shape(
            f"chunk size {size[:20]!r}",
            Expectation.SERVED,
            chunked + f"{size}\r\n{{body}}\r\n0\r\n\r\n",
            makes=True,
        )
    for size in ("{hex} ", "{hex}\t", "{hex};", "{hex} ;a", "{hex};a=\x00", "{hex};a\x01", '{hex};a="', "{hex};;"):
        yield Shape(
            f"chunk size {size!r}", Expectation.EITHER, chunked + f"{size}\r\n{{body}}\r\n0\r\n\r\n", makes=True
        )
    for end in ("{body}0\r\n\r\n", "{body}x\r\n0\r\n\r\n", "{body}\r\r0\r\n\r\n"):
        yield Shape(f"chunk ends {end!r}", Expectation.REFUSED, chunked + "{hex}\r\n" + end)
    for text in (
        "{hex}\n{body}\n0\n\n",
        "{hex}\n{body}\r\n0\r\n\r\n",
        "{hex}\r\n{body}\n0\r\n\r\n",
        "{hex};a\nb\r\n{body}\r\n0\r\n\r\n",
    ):
        yield Shape(f"chunks with bare LF {text!r}", Expectation.EITHER, chunked + text, makes=True)
    end = "{hex}\r\n{body}\r\n0\r\n"
    for trailer in ("X-A: b\r\n", "Host: y\r\nX-API-Key: z\r\n", "Content-Encoding: gzip\r\n"):
        yield Shape(f"trailer {trailer!r}", Expectation.SERVED, chunked + end + trailer + "\r\n", makes=True)
    for trailer in ("Content-Length: 5\r\n", "Transfer-Encoding: x\r\n"):
        yield Shape(f"trailer {trailer!r}", Expectation.EITHER, chunked + end + trailer + "\r\n", makes=True)
    for trailer in ("nonsense\r\n", "X-A : b\r\n", " b\r\n", "X-A: \x00\r\n"):
        yield Shape(
            f"trailer {trailer!r}", Expectation.REFUSED, chunked + "{hex}\r\n{body}\r\n0\r\n" + trailer + "\r\n"
        )


def _heads() -> Iterator[Shape]:
    for line in _BAD_LINES:
        yield Shape(f"line {line!r}", Expectation.REFUSED, line + GET[GET.index("\r\n") :] + "\r\n")
    for line in _ODD_LINES:
        yield Shape(f"line {line!r}", Expectation.SERVED, line + GET[GET.index("\r\n") :] + "\r\n")
    for line in _DOUBTFUL_LINES:
        yield Shape(f"line {line!r}", Expectation.EITHER, line + GET[GET.index("\r\n") :] + "\r\n")
    for field in _BAD_FIELDS:
        yield Shape(f"field {field!r}", Expectation.REFUSED, GET + field + "\r\n")
        yield Shape(f"field {field!r} with a body", Expectation.REFUSED, HEAD + field + _LENGTH + "\r\n{body}")
    for field in _ODD_FIELDS:
        yield Shape(f"field {field[:30]!r}", Expectation.SERVED, GET + field + "\r\n")
    yield Shape("a field of white space", Expectation.REFUSED, GET + "X-A: b\r\n \r\n\r\n")
    yield Shape(
        "white space before the first field", Expectation.REFUSED, GET.replace("\r\nHost", "\r\n Host") + "\r\n"
    )
    yield Shape("no Host", Expectation.REFUSED, GET.replace("Host: x\r\n", "") + "\r\n")
    yield Shape("bare LF everywhere", Expectation.EITHER, (GET + "\r\n").replace("\r\n", "\n"))
    yield Shape("bare CR everywhere", Expectation.REFUSED, (GET + "\r\n").replace("\r\n", "\r") + "\r\n\r\n")
    yield Shape("101 fields", Expectation.REFUSED, GET + "X-A: b\r\n" * 101 + "\r\n")
    yield Shape("much white space", Expectation.EITHER, GET + "X-A:" + " " * 40_000 + "b\r\n\r\n")
    yield Shape("many empty lines", Expectation.EITHER, "\r\n" * 500 + GET + "\r\n")
    yield Shape("an address of 9 KiB", Expectation.REFUSED, GET.replace("{path}", "{path}?" + "a" * 9216) + "\r\n")
    yield Shape("a body with GET", Expectation.SERVED, GET + _LENGTH + "\r\n{body}")
    yield Shape("a request as the body of GET", Expectation.SERVED, GET + "Content-Length: {inner_size}\r\n\r\n{inner}")
    yield Shape("a request as a body", Expectation.SERVED, HEAD + "Content-Length: {inner_size}\r\n\r\n{inner}")


SHAPES: Sequence[Shape] = (*_lengths(), *_codings(), *_chunks(), *_heads())
_MARK = "1-12345-1"
_CUT = (
    HEAD + _LENGTH + "\r\n{body}",
    HEAD + "Content-Length: 100\r\n\r\n{body}" + " " * 20,
    HEAD + _CHUNKED + "\r\n" + _CHUNK,
    HEAD + "Expect: 100-continue\r\n" + _LENGTH + "\r\n{body}",
    HEAD + _CHUNKED + "\r\n3\r\n{first}\r\n{rest_hex};a=b\r\n{rest}\r\n0\r\nX-A: b\r\n\r\n",
)


class Maker:
    """Makes cases, the same ones for the same seed."""

    def __init__(self, key: str, wild_key: str, seed: int) -> None:
        """Bytes by chance are sent with `wild_key`, whose listings nobody knows."""
        self._key = key
        self._wild_key = wild_key
        self._random = Random(seed)
        self._seed = seed
        self._number = 0
        self._shapes = cycle(self._random.sample(SHAPES, len(SHAPES)))
        self._places = self._cuts()

    def next(self) -> Case:
        """Half of all are of a shape, a third is cut, the rest are bytes by chance."""
        self._number += 1
        kind = self._number % 6
        if kind < 3:
            return self._shaped(next(self._shapes))
        return next(self._places) if kind < 5 else self._wild()

    def _shaped(self, shape: Shape) -> Case:
        before, behind = self._random.randrange(4), self._random.randrange(3)
        texts = [self._good() for _ in range(before)] + [shape.text] + [self._good() for _ in range(behind)]
        texts.append(GET + "Connection: close\r\n\r\n")
        marks = [f"{self._seed}-{self._number}-{place}" for place in range(len(texts))]
        data = b"".join(self._filled(text, mark) for text, mark in zip(texts, marks, strict=True))
        last = before if shape.verdict is Expectation.REFUSED else len(marks)
        may_make = [mark for place, mark in enumerate(marks[:last]) if place != before or shape.makes]
        return Case(shape.name, shape.verdict, self._in_pieces(data), marks, before, may_make, is_reset=False)

    def _cuts(self) -> Iterator[Case]:
        """Each of some requests, alone or behind a good one, ended at each of its bytes, in any order."""
        ways = [
            (text, behind, is_reset, end)
            for text in _CUT
            for behind in (0, 1)
            for is_reset in (False, True)
            for end in range(len(self._filled(text, _MARK)))
        ]
        while True:
            for text, behind, is_reset, end in self._random.sample(ways, len(ways)):
                marks = [self._mark(place) for place in range(behind + 1)]
                good = b"".join(self._filled(self._good(), mark) for mark in marks[:-1])
                cut = self._filled(text, marks[-1])
                if end < len(cut):
                    name = f"cut at {end} of {text[-20:]!r}"
                    yield Case(name, Expectation.CUT, [good + cut[:end]], marks, behind, marks[:-1], is_reset)

    def _wild(self) -> Case:
        """A good request, or two, with some bytes changed, left out, doubled or from anywhere."""
        random = self._random
        texts = [
            random.choice((self._good(), _CUT[1], random.choice(SHAPES).text)) for _ in range(random.randrange(1, 4))
        ]
        data = bytearray(b"".join(self._filled(text, self._mark(9), wild=True) for text in texts))
        for _ in range(random.randrange(1, 8)):
            place = random.randrange(len(data))
            match random.randrange(5):
                case 0:
                    data[place] = random.randrange(256)
                case 1:
                    del data[place : place + random.randrange(1, 20)]
                case 2:
                    data[place:place] = data[place : place + random.randrange(1, 30)]
                case 3:
                    data[place:place] = random.choice((b"\r\n", b"\n", b"\0", b" ", b"\r", b"\t", b":", b"0\r\n\r\n"))
                case _:
                    data[place:place] = random.randbytes(random.randrange(1, 40))
            data = data or bytearray(b"\0")
        return Case("bytes by chance", Expectation.ANY, self._in_pieces(bytes(data)), (), 0, (), random.random() < 0.5)

    def _good(self) -> str:
        return self._random.choice((GET + "\r\n", HEAD + _LENGTH + "\r\n{body}", HEAD + _CHUNKED + "\r\n" + _CHUNK))

    def _mark(self, place: int) -> str:
        return f"{self._seed}-{self._number}-{place}"

    def _filled(self, text: str, mark: str, *, wild: bool = False) -> bytes:
        body = f'{{"title": "{mark}", "content": "c"}}'
        key = self._wild_key if wild else self._key
        hidden = f'{{"title": "inner {mark}", "content": "c"}}'
        inner = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\nContent-Length: {len(hidden)}\r\n\r\n{hidden}"
        values: dict[str, str] = {
            "path": PATH, "key": key, "mark": mark, "size": str(len(body)), "hex": f"{len(body):x}", "inner": inner,
            "inner_size": str(len(inner)), "body": body, "first": body[:3], "rest": body[3:],
            "rest_hex": f"{len(body) - 3:x}",
        }  # fmt: skip
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", value)
        return text.encode("latin-1", "replace") if text.isascii() else text.encode()

    def _in_pieces(self, data: bytes) -> list[bytes]:
        """Most in one, some in two or three, a few byte by byte."""
        chance = self._random.random()
        if chance < 0.02 and len(data) < 1000:
            return [data[place : place + 1] for place in range(len(data))]
        if chance < 0.7:
            return [data]
        ends = sorted(self._random.randrange(len(data) + 1) for _ in range(2))
        return [data[: ends[0]], data[ends[0] : ends[1]], data[ends[1] :]]
