"""Generates malformed HTTP requests and the expected outcome of each.

Every connection carries some valid requests, then one of an unusual shape, then more. RFC 9112 either clearly allows a
shape, and then all requests are served, or clearly forbids it, and then no request after it may be served.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import cycle
from random import Random
from typing import NamedTuple

PATH = "/api/v1/listings"


class Expectation(Enum):
    """The expected outcome of a shape."""

    SERVED = "to be served"  # all requests are served, in order
    REJECTED = "to be rejected"  # it gets 4xx or 505, the connection closes, and no later request is served
    EITHER = "to be served or rejected"
    CUT = "cut off"  # the client disconnects before its end: it gets no response and has no effect
    ANY = "with random bytes"  # random bytes: the service must only survive them


class Shape(NamedTuple):
    """A template of a request.

    Placeholders: `{body}` is a body that creates a listing, `{size}` and `{hex}` are its length in decimal and
    hexadecimal, and `{inner}` is a complete request that would create another listing.
    """

    name: str
    expectation: Expectation
    text: str
    creates_listing: bool = False  # if it is served


class Case(NamedTuple):
    """The bytes that a client sends on one connection, and the expected outcome."""

    name: str
    expectation: Expectation
    pieces: Sequence[bytes]
    marks: Sequence[str]  # X-Request-Id of each request
    position: int  # position of the unusual request
    allowed_titles: Sequence[str]  # of listings that may be created
    is_reset: bool  # whether a client that disconnects does so without FIN


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
_BAD_HOSTS = (
    "a b", "a/b", "a?b", "a#b", "a@b", "a\\b", "a<b", '"a"', "a:80x", "a:-1", "a:1:2", "::1", "[::1", "::1]", "[:::1]",
    "[1::2::3]", "[1.2.3.4]", "[]", "[::1]a", "[::1%25a]", "[v1.]", "[x.a]", "%", "%zz", "é", "http://a", "a\tb",
)  # fmt: skip
_ODD_HOSTS = (
    "", "x:", "x:0", "x:99999", "1.2.3.4:80", "999.1", "[::1]", "[::1]:80", "[::ffff:1.2.3.4]", "[V1.a:b]", "a_b",
    "a,b", "%41", "!$&'()*+,;=~", "x" * 300, "x.", "*.x",
)  # fmt: skip
_BAD_LINES = (
    "GET {path}", "GET {path} HTTP/1.2", "GET {path} HTTP/2.0", "GET {path} http/1.1", "GET {path} HTTP/1.1 x",
    "GET {path} HTTP/11", "GET {path} HTTP/1,1", "get {path} HTTP/1.1", "GET\t{path} HTTP/1.1",
    "BREW {path} HTTP/1.1", "GET {path} HTTP/1.", "GET {path} HTTP/.1", "GET {path} FTP/1.1", " GET {path} HTTP/1.1",
    "GET {path}\x00 HTTP/1.1", "GET {path} a HTTP/1.1", "GET  HTTP/1.1", "{path} HTTP/1.1", "GET {path} HTTP/3.0",
    "CONNECT localhost:80 HTTP/1.1", "GET {path}é HTTP/1.1", "GET {path}\x7f HTTP/1.1", "PRI * HTTP/2.0",
    "GET {path} HTTP/01.1", "GET {path} HTTP/1.01", "G\x00ET {path} HTTP/1.1", "\x16\x03\x01\x02", "\x00\x01\x02",
)  # fmt: skip
_ODD_LINES = (  # valid but rare
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
    """Yield requests with two lengths, or a length and chunks: parsers may disagree where the body ends."""
    inner = "0\r\n\r\n{inner}"
    yield Shape("CL.TE", Expectation.REJECTED, HEAD + _LENGTH + _CHUNKED + "\r\n" + _CHUNK)
    yield Shape("TE.CL", Expectation.REJECTED, HEAD + _CHUNKED + _LENGTH + "\r\n" + _CHUNK)
    yield Shape(
        "CL.TE with one inside", Expectation.REJECTED, HEAD + "Content-Length: 4\r\n" + _CHUNKED + "\r\n" + inner
    )
    yield Shape("CL.0", Expectation.REJECTED, HEAD + "Content-Length: 0\r\n" + _CHUNKED + "\r\n" + inner)
    yield Shape("GET with both", Expectation.REJECTED, GET + _LENGTH + _CHUNKED + "\r\n" + inner)
    for first, second in (("{size}", "0"), ("0", "{size}"), ("{size}", "{size}"), ("5", "6"), ("", "{size}")):
        for name in ("Content-Length", "content-length"):
            fields = f"Content-Length: {first}\r\n{name}: {second}\r\n"
            yield Shape(
                f"lengths {first!r} and {second!r} ({name[0]})", Expectation.REJECTED, HEAD + fields + "\r\n{body}"
            )
    for length in _BAD_LENGTHS:
        yield Shape(f"length {length!r}", Expectation.REJECTED, HEAD + f"Content-Length: {length}\r\n\r\n{{body}}")
    for length in ("{size}", "000{size}", " {size}\t "):
        yield Shape(
            f"length {length!r}",
            Expectation.SERVED,
            HEAD + f"Content-Length:{length}\r\n\r\n{{body}}",
            creates_listing=True,
        )
    yield Shape("length after a space", Expectation.REJECTED, HEAD + "Content-Length : {size}\r\n\r\n{body}")
    yield Shape("folded length", Expectation.REJECTED, HEAD + "Content-Length:\r\n {size}\r\n\r\n{body}")


def _codings() -> Iterator[Shape]:
    for coding in _BAD_CODINGS:
        field = f"Transfer-Encoding: {coding}\r\n"
        yield Shape(f"coding {coding!r}", Expectation.REJECTED, HEAD + field + "\r\n" + _CHUNK)
        yield Shape(f"length and coding {coding!r}", Expectation.REJECTED, HEAD + _LENGTH + field + "\r\n{body}")
    identity = "Transfer-Encoding: identity\r\n"
    for fields in (_CHUNKED + identity, identity + _CHUNKED, _CHUNKED * 2, _CHUNKED + "Transfer-Encoding: x\r\n"):
        yield Shape(f"codings {fields!r}", Expectation.REJECTED, HEAD + fields + "\r\n" + _CHUNK)
    yield Shape(
        "coding before white space",
        Expectation.EITHER,
        HEAD + "Transfer-Encoding: chunked\t \r\n\r\n" + _CHUNK,
        creates_listing=True,
    )
    yield Shape("coding after a space", Expectation.REJECTED, HEAD + "Transfer-Encoding : chunked\r\n\r\n" + _CHUNK)
    yield Shape("folded coding", Expectation.REJECTED, HEAD + "Transfer-Encoding:\r\n chunked\r\n\r\n" + _CHUNK)
    yield Shape(
        "coding after a bare LF",
        Expectation.EITHER,
        HEAD + "X-A: b\nTransfer-Encoding: chunked\r\n\r\n" + _CHUNK,
        creates_listing=True,
    )
    yield Shape(
        "coding after a bare CR",
        Expectation.REJECTED,
        HEAD + "X-A: b\rTransfer-Encoding: chunked\r\n\r\n" + _CHUNK,
    )
    for coding in ("CHUNKED", "Chunked", " \t chunked"):
        yield Shape(
            f"coding {coding!r}",
            Expectation.SERVED,
            HEAD + f"Transfer-Encoding:{coding}\r\n\r\n" + _CHUNK,
            creates_listing=True,
        )
    yield Shape(
        "HTTP/1.0 with chunks",
        Expectation.EITHER,
        HEAD.replace("1.1", "1.0", 1) + _CHUNKED + "\r\n" + _CHUNK,
        creates_listing=True,
    )


def _chunks() -> Iterator[Shape]:
    chunked = HEAD + _CHUNKED + "\r\n"
    for size in _BAD_SIZES:
        yield Shape(f"chunk size {size!r}", Expectation.REJECTED, chunked + f"{size}\r\n{{body}}\r\n0\r\n\r\n")
    for size in ("{hex}", "000{hex}", "{hex};a", "{hex};a=b", '{hex};a="b c"', "{hex};a=b;c=d", "{hex};" + "a" * 900):
        yield Shape(
            f"chunk size {size[:20]!r}",
            Expectation.SERVED,
            chunked + f"{size}\r\n{{body}}\r\n0\r\n\r\n",
            creates_listing=True,
        )
    for size in ("{hex} ", "{hex}\t", "{hex};", "{hex} ;a", "{hex};a=\x00", "{hex};a\x01", '{hex};a="', "{hex};;"):
        yield Shape(
            f"chunk size {size!r}",
            Expectation.EITHER,
            chunked + f"{size}\r\n{{body}}\r\n0\r\n\r\n",
            creates_listing=True,
        )
    for end in ("{body}0\r\n\r\n", "{body}x\r\n0\r\n\r\n", "{body}\r\r0\r\n\r\n"):
        yield Shape(f"chunk ends {end!r}", Expectation.REJECTED, chunked + "{hex}\r\n" + end)
    for text in (
        "{hex}\n{body}\n0\n\n",
        "{hex}\n{body}\r\n0\r\n\r\n",
        "{hex}\r\n{body}\n0\r\n\r\n",
        "{hex};a\nb\r\n{body}\r\n0\r\n\r\n",
    ):
        yield Shape(f"chunks with bare LF {text!r}", Expectation.EITHER, chunked + text, creates_listing=True)
    end = "{hex}\r\n{body}\r\n0\r\n"
    for trailer in ("X-A: b\r\n", "Host: y\r\nX-API-Key: z\r\n", "Content-Encoding: gzip\r\n"):
        yield Shape(f"trailer {trailer!r}", Expectation.SERVED, chunked + end + trailer + "\r\n", creates_listing=True)
    for trailer in ("Content-Length: 5\r\n", "Transfer-Encoding: x\r\n"):
        yield Shape(f"trailer {trailer!r}", Expectation.EITHER, chunked + end + trailer + "\r\n", creates_listing=True)
    for trailer in ("nonsense\r\n", "X-A : b\r\n", " b\r\n", "X-A: \x00\r\n"):
        yield Shape(
            f"trailer {trailer!r}", Expectation.REJECTED, chunked + "{hex}\r\n{body}\r\n0\r\n" + trailer + "\r\n"
        )


def _heads() -> Iterator[Shape]:
    for line in _BAD_LINES:
        yield Shape(f"line {line!r}", Expectation.REJECTED, line + GET[GET.index("\r\n") :] + "\r\n")
    for line in _ODD_LINES:
        yield Shape(f"line {line!r}", Expectation.SERVED, line + GET[GET.index("\r\n") :] + "\r\n")
    for line in _DOUBTFUL_LINES:
        yield Shape(f"line {line!r}", Expectation.EITHER, line + GET[GET.index("\r\n") :] + "\r\n")
    for field in _BAD_FIELDS:
        yield Shape(f"field {field!r}", Expectation.REJECTED, GET + field + "\r\n")
        yield Shape(f"field {field!r} with a body", Expectation.REJECTED, HEAD + field + _LENGTH + "\r\n{body}")
    for field in _ODD_FIELDS:
        yield Shape(f"field {field[:30]!r}", Expectation.SERVED, GET + field + "\r\n")
    yield Shape("a field of white space", Expectation.REJECTED, GET + "X-A: b\r\n \r\n\r\n")
    yield Shape(
        "white space before the first field", Expectation.REJECTED, GET.replace("\r\nHost", "\r\n Host") + "\r\n"
    )
    yield Shape("no Host", Expectation.REJECTED, GET.replace("Host: x\r\n", "") + "\r\n")
    for hosts, expectation in ((_BAD_HOSTS, Expectation.REJECTED), (_ODD_HOSTS, Expectation.SERVED)):
        for host in hosts:
            yield Shape(f"host {host[:30]!r}", expectation, GET.replace("Host: x", f"Host: {host}") + "\r\n")
    yield Shape("bare LF everywhere", Expectation.EITHER, (GET + "\r\n").replace("\r\n", "\n"))
    yield Shape("bare CR everywhere", Expectation.REJECTED, (GET + "\r\n").replace("\r\n", "\r") + "\r\n\r\n")
    yield Shape("101 fields", Expectation.REJECTED, GET + "X-A: b\r\n" * 101 + "\r\n")
    yield Shape("much white space", Expectation.EITHER, GET + "X-A:" + " " * 40_000 + "b\r\n\r\n")
    yield Shape("many empty lines", Expectation.EITHER, "\r\n" * 500 + GET + "\r\n")
    yield Shape("an address of 9 KiB", Expectation.REJECTED, GET.replace("{path}", "{path}?" + "a" * 9216) + "\r\n")
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


class CaseGenerator:
    """Generates the same cases for the same seed."""

    def __init__(self, key: str, fuzz_key: str, seed: int) -> None:
        """Send fuzzed requests with `fuzz_key`, whose listings are not checked."""
        self._key = key
        self._fuzz_key = fuzz_key
        self._random = Random(seed)
        self._seed = seed
        self._number = 0
        self._shapes = cycle(self._random.sample(SHAPES, len(SHAPES)))
        self._cut_cases = self._generate_cuts()

    def next(self) -> Case:
        """Generate a case: half of them have a shape, a third are cut, the rest are fuzzed."""
        self._number += 1
        kind = self._number % 6
        if kind < 3:
            return self._generate_shaped(next(self._shapes))
        return next(self._cut_cases) if kind < 5 else self._generate_fuzzed()

    def _generate_shaped(self, shape: Shape) -> Case:
        before, after = self._random.randrange(4), self._random.randrange(3)
        texts = (
            [self._generate_good() for _ in range(before)]
            + [shape.text]
            + [self._generate_good() for _ in range(after)]
        )
        texts.append(GET + "Connection: close\r\n\r\n")
        marks = [f"{self._seed}-{self._number}-{index}" for index in range(len(texts))]
        data = b"".join(self._fill(text, mark) for text, mark in zip(texts, marks, strict=True))
        last = before if shape.expectation is Expectation.REJECTED else len(marks)
        allowed_titles = [mark for index, mark in enumerate(marks[:last]) if index != before or shape.creates_listing]
        return Case(shape.name, shape.expectation, self._split(data), marks, before, allowed_titles, is_reset=False)

    def _generate_cuts(self) -> Iterator[Case]:
        """Cut some requests, alone or after a valid one, at each of their bytes, in random order."""
        cuts = [
            (text, before, is_reset, end)
            for text in _CUT
            for before in (0, 1)
            for is_reset in (False, True)
            for end in range(len(self._fill(text, _MARK)))
        ]
        while True:
            for text, before, is_reset, end in self._random.sample(cuts, len(cuts)):
                marks = [self._get_mark(index) for index in range(before + 1)]
                good = b"".join(self._fill(self._generate_good(), mark) for mark in marks[:-1])
                cut = self._fill(text, marks[-1])
                if end < len(cut):
                    name = f"cut at {end} of {text[-20:]!r}"
                    yield Case(name, Expectation.CUT, [good + cut[:end]], marks, before, marks[:-1], is_reset)

    def _generate_fuzzed(self) -> Case:
        """Change, delete, duplicate or insert random bytes in some requests."""
        random = self._random
        texts = [
            random.choice((self._generate_good(), _CUT[1], random.choice(SHAPES).text))
            for _ in range(random.randrange(1, 4))
        ]
        data = bytearray(b"".join(self._fill(text, self._get_mark(9), is_fuzzed=True) for text in texts))
        for _ in range(random.randrange(1, 8)):
            index = random.randrange(len(data))
            match random.randrange(5):
                case 0:
                    data[index] = random.randrange(256)
                case 1:
                    del data[index : index + random.randrange(1, 20)]
                case 2:
                    data[index:index] = data[index : index + random.randrange(1, 30)]
                case 3:
                    data[index:index] = random.choice((b"\r\n", b"\n", b"\0", b" ", b"\r", b"\t", b":", b"0\r\n\r\n"))
                case _:
                    data[index:index] = random.randbytes(random.randrange(1, 40))
            data = data or bytearray(b"\0")
        return Case("random bytes", Expectation.ANY, self._split(bytes(data)), (), 0, (), random.random() < 0.5)

    def _generate_good(self) -> str:
        return self._random.choice((GET + "\r\n", HEAD + _LENGTH + "\r\n{body}", HEAD + _CHUNKED + "\r\n" + _CHUNK))

    def _get_mark(self, index: int) -> str:
        return f"{self._seed}-{self._number}-{index}"

    def _fill(self, text: str, mark: str, *, is_fuzzed: bool = False) -> bytes:
        body = f'{{"title": "{mark}", "content": "c"}}'
        key = self._fuzz_key if is_fuzzed else self._key
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

    def _split(self, data: bytes) -> list[bytes]:
        """Split most data into one piece, some into three, and a few into single bytes."""
        chance = self._random.random()
        if chance < 0.02 and len(data) < 1000:
            return [data[index : index + 1] for index in range(len(data))]
        if chance < 0.7:
            return [data]
        ends = sorted(self._random.randrange(len(data) + 1) for _ in range(2))
        return [data[: ends[0]], data[ends[0] : ends[1]], data[ends[1] :]]
