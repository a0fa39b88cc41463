"""Parse requests with httptools, and reject invalid or endless heads and framing (RFC 9112; OWASP ASVS 15.2.2)."""

from typing import Literal, Protocol, TypeAlias

import httptools

from listings.domain.errors import Problem
from listings.http.asgi import Headers
from listings.http.host import is_host
from listings.http.limits import ConnectionLimits

_OTHER_HEAD_BYTES = 1024  # the rest of a head, without URL and headers, rounded up
_MAX_FRAMING_BYTES = 16 * 1024  # in a body, in addition to its chunks: extensions, leading zeros and trailers

_Part: TypeAlias = Literal[
    "between",  # requests; empty lines may have arrived
    "head",
    "body",
]


class RequestReceiver(Protocol):
    """Receives the parts of requests. May raise Problem to reject a request."""

    def begin_head(self) -> None:
        """A head has begun to arrive."""

    def receive_head(self) -> None:
        """A head is complete: the parser's attributes describe it until the next head begins."""

    def receive_body(self, part: bytes) -> None:
        """A part of the body has arrived."""

    def end_request(self) -> None:
        """The request is complete."""


class RequestParser:
    """Parses the bytes of one connection. Methods that begin with `on_` are called by httptools."""

    def __init__(self, receiver: RequestReceiver, limits: ConnectionLimits) -> None:
        self._receiver = receiver
        self._limits = limits
        self._max_head_bytes = limits.head_bytes + limits.url_bytes + _OTHER_HEAD_BYTES
        self._parser = self._build_parser()
        self.headers: Headers = []
        self.version = ""
        self.target = b""
        self.expects_100_continue = False
        self._part: _Part = "between"
        self._cause: Exception | None = None  # the error of a callback; httptools raises another one then
        self._upgrading = False
        self._heads_begun = 0  # in the bytes that are being parsed
        self._head_bytes = 0  # received of the current head, and of empty lines before it
        self._head_end = b""  # the last three bytes of it
        self._field_bytes = 0  # in its complete headers
        self._hosts = 0  # number of its Host headers
        self._host = b""  # the last of them
        self._valid_host = b""  # the last valid one, empty if there was none
        self.is_chunked = False  # the body of the current request
        self._framing_bytes = 0  # in its body, without those that its chunks need

    @property
    def method(self) -> str:
        """The current request's method, or "" while its head has no target yet."""
        # Without a target, httptools still returns the method of the previous request.
        return self._parser.get_method().decode("ascii") if self.target else ""

    @property
    def keep_alive(self) -> bool:
        """Whether the client may send another request on the connection. After HTTP/1.0, it may not."""
        return self.version == "1.1" and self._parser.should_keep_alive()

    def feed(self, data: bytes) -> None:
        """Parse received bytes, which may end anywhere. Raises Problem: then feed no more."""
        fresh = self._part == "between"  # no head has begun before these bytes
        if self._part != "body" and len(data) > self._max_head_bytes - self._head_bytes:
            # Cut a head that does not end within its limit to one byte more than the limit, so that it is rejected.
            # Otherwise, whitespace that the parser skips could let it end within `data`, and its size be unchecked.
            start = data[: max(0, self._max_head_bytes - self._head_bytes) + 1]
            data = data if b"\r\n\r\n" in self._head_end + start else start
        self._heads_begun = 0
        self._framing_bytes += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            raise _to_problem(error, self._cause) from None
        if self._part == "head" or (fresh and not self._heads_begun):
            is_same_head = self._heads_begun <= (1 if fresh else 0)  # a later head begins at an unknown offset
            self._head_bytes = self._head_bytes + len(data) if is_same_head else 0
            self._head_end = (self._head_end + data)[-3:]
            if self._head_bytes > self._max_head_bytes:
                raise self._head_too_large()
        elif self.is_chunked:
            # Bytes parsed together with the head do not count, because the body's offset in them is unknown.
            self._framing_bytes = max(0, self._framing_bytes)
            if self._framing_bytes > _MAX_FRAMING_BYTES and self._part == "body":
                raise _malformed("The chunk headers or trailers of the body are too large")

    def _feed(self, data: bytes) -> None:
        # Upgrades are ignored (Java's client offers h2c by default). After an upgrade header the parser treats the rest
        # as another protocol and would lose the body. So a new parser gets the head again, without the upgrade.
        rest: bytes | memoryview = data
        while True:
            try:
                self._parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                rest = memoryview(rest)[upgrade.args[0] :]  # copying it for each of many upgrades would be slow
                self._feed_without_upgrade()
            else:
                return

    def _feed_without_upgrade(self) -> None:
        lines = [
            b"%s: %s\r\n" % (name, _remove_upgrade(value) if name == b"connection" else value)
            for name, value in self.headers
            if name not in {b"upgrade", b"http2-settings"}
        ]
        version = self._parser.get_http_version().encode()
        head = b"%s %s HTTP/%s\r\n%s\r\n" % (self._parser.get_method(), self.target, version, b"".join(lines))
        self._upgrading = False
        self._parser = self._build_parser()
        self._parser.feed_data(head)

    def _build_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # Accept data after `Connection: close`, like uvicorn's, and any version.
        parser.set_dangerous_leniencies(lenient_data_after_close=True, lenient_version=True)
        return parser

    # Calls from httptools

    def on_message_begin(self) -> None:
        self._part = "head"
        self.target = b""
        self.headers = []
        self.expects_100_continue = False
        self._heads_begun += 1
        self._field_bytes = 0
        self._hosts = 0
        self.is_chunked = False
        self._receiver.begin_head()

    def on_url(self, url: bytes) -> None:
        self.target += url
        if len(self.target) > self._limits.url_bytes:
            raise self._fail(Problem("uri_too_long", f"The URL must be at most {self._limits.url_bytes} bytes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._field_bytes += len(name) + len(value) + 4
        if len(self.headers) >= self._limits.head_fields or self._field_bytes > self._limits.head_bytes:
            raise self._fail(self._head_too_large())
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expects_100_continue = True
        elif name == b"host":
            self._hosts += 1
            self._host = value
        elif name == b"transfer-encoding":
            # Other codings make the end or content of the body ambiguous (RFC 9112, 6.1).
            is_repeated = any(earlier == b"transfer-encoding" for earlier, _ in self.headers)
            if is_repeated or value.strip(b" \t").lower() != b"chunked":
                raise self._fail(_malformed('Transfer-Encoding must be "chunked", and appear only once'))
            self.is_chunked = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._parser.should_upgrade() and self._parser.get_method() != b"CONNECT":
            self._upgrading = True
            return
        self.version = self._parser.get_http_version()
        try:
            self._check_head()
            self.expects_100_continue = self.expects_100_continue and self.version == "1.1"
            self._receiver.receive_head()
        except (Problem, httptools.HttpParserError) as error:
            self._cause = error
            raise
        self.headers = []  # trailers after the body are not headers (RFC 9110, 6.5.1)
        self._head_bytes, self._head_end = 0, b""
        self._framing_bytes = 0
        self._part = "body"

    def on_body(self, body: bytes) -> None:
        if self.is_chunked:
            self._framing_bytes -= len(body) + len(f"{len(body):x}") + 4  # the chunk with its size and two line breaks
        self._receiver.receive_body(body)

    def on_message_complete(self) -> None:
        if not self._upgrading:
            self._part = "between"
            self._receiver.end_request()

    def _check_head(self) -> None:
        if self.version not in {"1.0", "1.1"}:
            raise Problem("version_not_supported", "Only HTTP/1.0 and HTTP/1.1 are supported")
        if self._parser.get_method() == b"CONNECT":
            raise _malformed("CONNECT is not supported")
        if self._hosts > 1 or (self._hosts == 0 and self.version == "1.1"):
            raise _malformed("Exactly one Host header is required")
        if self._hosts and (self._host != self._valid_host or not self._host):
            if not is_host(self._host):
                raise _malformed("The Host header must be a domain name or IP address, optionally with a port")
            self._valid_host = self._host

    def _fail(self, problem: Problem) -> Problem:
        self._cause = problem  # httptools raises another error then
        return problem

    def _head_too_large(self) -> Problem:
        limits = self._limits
        return Problem(
            "header_too_large",
            f"The request may have at most {limits.head_fields} headers, of at most {limits.head_bytes} bytes in total",
        )


def _remove_upgrade(connection: bytes) -> bytes:
    options = (option.strip() for option in connection.split(b","))
    return b", ".join(option for option in options if option.lower() not in {b"upgrade", b"http2-settings"})


def _to_problem(error: httptools.HttpParserError, cause: Exception | None) -> Problem:
    if isinstance(cause, Problem):
        return cause
    if isinstance(cause or error, httptools.HttpParserInvalidURLError):
        return _malformed(
            "The URL is not valid: check its host and port, and percent-encode all characters that URLs do not allow"
        )
    return _malformed("The request is not valid HTTP")


def _malformed(text: str) -> Problem:
    return Problem("malformed_request", text)
