"""One polite HTTP connection to the server under test; no request outlasts its time."""

import http.client
import select
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

_LARGEST_ANSWER = 64 * 1024 * 1024  # bytes
_FAILURES = (OSError, UnicodeError, http.client.HTTPException)  # the second is a name that is none


class Address(NamedTuple):
    """Where a server is; `prefix` stands before every path and ends without a slash."""

    secure: bool
    host: str
    port: int | None
    prefix: str


def address_of(text: str) -> Address:
    """The address in a URL. Raises ValueError with a sentence that begins with "must"."""
    wrong = ValueError("must be like https://shop.example or http://127.0.0.1:8000/prefix, without user, query and #")
    if not all("!" <= letter <= "~" for letter in text):
        raise wrong
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc or "?" in text or "#" in text:
        raise wrong
    return Address(parts.scheme == "https", parts.hostname, port, parts.path.rstrip("/"))


class Answer(NamedTuple):
    """What a server answered, whole. `repeated` tells that the request was sent a second time for it."""

    status: int
    body: bytes
    repeated: bool = False


class NoAnswer(Exception):
    """No whole answer came; the text is the end of a sentence about the server."""


class Client:
    """Sends requests, one after the other, over a connection that is kept while the server keeps it."""

    def __init__(self, address: Address, timeout: float) -> None:
        """`timeout` is in seconds, for opening the connection and for each whole answer."""
        self._prefix = address.prefix
        self._timeout = timeout
        if address.secure:
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                address.host, address.port, timeout=timeout, context=ssl.create_default_context()
            )
        else:
            self._connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout)

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> Answer:
        """The answer to one request; `path` begins with a slash. Raises NoAnswer."""
        self._drop_if_closed()
        was_open = self._connection.sock is not None
        try:
            return self._exchange(method, path, headers, body)
        except ConnectionError:  # a kept connection may end at any time: that is no fault
            if not was_open:
                raise NoAnswer("closed the connection without an answer") from None
        try:
            return self._exchange(method, path, headers, body)._replace(repeated=True)
        except ConnectionError:
            raise NoAnswer("closed the connection without an answer") from None

    def close(self) -> None:
        """End the connection; another request opens a new one."""
        self._connection.close()

    def _exchange(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """Raises NoAnswer, and ConnectionError when the connection ended before an answer began."""
        try:
            connected = self._connect()
            with self._deadline(connected):
                self._connection.request(method, self._prefix + path, body, dict(headers))
                response = self._connection.getresponse()
                content = _content_of(response)
        except BaseException as error:
            self.close()
            if isinstance(error, ConnectionError) or not isinstance(error, _FAILURES):
                raise
            raise NoAnswer(_said_of(error, self._timeout)) from None
        if len(content) > _LARGEST_ANSWER:
            self.close()
            raise NoAnswer(f"answered more than {_LARGEST_ANSWER} bytes")
        return Answer(response.status, content)

    def _connect(self) -> socket.socket:
        if self._connection.sock is None:
            try:
                self._connection.connect()
            except ConnectionRefusedError:
                raise NoAnswer("refuses connections: is it running there?") from None
        connected: socket.socket = self._connection.sock
        return connected

    @contextmanager
    def _deadline(self, connected: socket.socket) -> Iterator[None]:
        """Cuts the connection when the time for an answer is over, however slowly the server goes on sending."""
        over = threading.Event()

        def cut() -> None:
            over.set()
            _shut(connected)

        timer = threading.Timer(self._timeout, cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (OSError, ValueError, http.client.HTTPException):
            if over.is_set():
                raise TimeoutError from None
            raise
        finally:
            timer.cancel()
        if over.is_set():
            raise TimeoutError

    def _drop_if_closed(self) -> None:
        """A kept connection on which something arrived unasked has ended, or can't be trusted."""
        if self._connection.sock is None:
            return
        poll = select.poll()
        poll.register(self._connection.sock, select.POLLIN)
        if poll.poll(0):
            self.close()


def _content_of(response: http.client.HTTPResponse) -> bytes:
    """The body, or a little more than is taken. Raises IncompleteRead, as the library does for chunks alone."""
    content = response.read(_LARGEST_ANSWER + 1)
    if response.length and len(content) <= _LARGEST_ANSWER:
        raise http.client.IncompleteRead(content, response.length)
    return content


def _shut(connected: socket.socket) -> None:
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has ended already


def _said_of(error: Exception, timeout: float) -> str:
    said = next(text for kind, text in _SAID if isinstance(error, kind))
    reason = (
        getattr(error, "verify_message", None) or getattr(error, "reason", None) or getattr(error, "strerror", None)
    )
    return said.format(seconds=f"{timeout:g}", reason=reason or type(error).__name__)


_SAID: tuple[tuple[type[Exception], str], ...] = (  # the first that fits
    (TimeoutError, "did not answer within {seconds} seconds"),
    (http.client.IncompleteRead, "ended its answer early"),
    (http.client.HTTPException, "answered what is no HTTP/1.1"),
    (socket.gaierror, "has a name for which no address is known"),
    (UnicodeError, "has a name for which there can be no address"),
    (ssl.SSLCertVerificationError, "shows a certificate that is not trusted ({reason})"),
    (ssl.SSLError, "does not speak TLS ({reason})"),
    (Exception, "can't be reached ({reason})"),
)
