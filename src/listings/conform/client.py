"""An HTTP client with one connection and a deadline for each response."""

import http.client
import select
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple
from urllib.parse import urlsplit

_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_FAILURES = (OSError, UnicodeError, http.client.HTTPException)  # UnicodeError: an invalid host name


class Address(NamedTuple):
    """The base URL of a server, in parts. `prefix` has no slash at its end."""

    secure: bool
    host: str
    port: int
    prefix: str


def parse_address(text: str) -> Address:
    """Parse a base URL. Raises ValueError whose message begins with "must"."""
    wrong = ValueError(
        "must be like https://shop.example or http://127.0.0.1:8000/prefix, without a user name, query or #"
    )
    if not all("!" <= letter <= "~" for letter in text):
        raise wrong
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc or "?" in text or "#" in text:
        raise wrong
    is_secure = parts.scheme == "https"
    return Address(is_secure, parts.hostname, port or (443 if is_secure else 80), parts.path.rstrip("/"))


class Response(NamedTuple):
    """A complete response. `repeated` means that the request was sent twice."""

    status: int
    body: bytes
    repeated: bool = False


class NoResponse(Exception):
    """There was no complete response. The text continues a sentence that begins with "the server"."""


class Client:
    """Sends requests one after another over a persistent connection."""

    def __init__(self, address: Address, timeout: float) -> None:
        """`timeout` is in seconds, for connecting and for each complete response."""
        self._prefix = address.prefix
        self._timeout = timeout
        if address.secure:
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                address.host, address.port, timeout=timeout, context=ssl.create_default_context()
            )
        else:
            self._connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout)

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> Response:
        """Send a request and return the response; `path` begins with a slash. Raises NoResponse."""
        self._drop_if_closed()
        was_open = self._connection.sock is not None
        try:
            return self._exchange(method, path, headers, body)
        except ConnectionError:  # a server may close an idle connection at any time
            if not was_open:
                raise NoResponse("closed the connection without a response") from None
        try:
            return self._exchange(method, path, headers, body)._replace(repeated=True)
        except ConnectionError:
            raise NoResponse("closed the connection without a response") from None

    def close(self) -> None:
        """Close the connection. The next request opens a new one."""
        self._connection.close()

    def _exchange(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Raises NoResponse, or ConnectionError if the connection ended before a response began."""
        try:
            connected = self._connect()
            with self._deadline(connected):
                self._connection.request(method, self._prefix + path, body, dict(headers))
                response = self._connection.getresponse()
                try:
                    content = _read_body(response)
                except ConnectionError as error:
                    raise NoResponse("ended its response early") from error
        except BaseException as error:
            self.close()
            if isinstance(error, ConnectionError) or not isinstance(error, _FAILURES):
                raise
            raise NoResponse(_describe(error, self._timeout)) from None
        if len(content) > _MAX_RESPONSE_BYTES:
            self.close()
            raise NoResponse(f"sent more than {_MAX_RESPONSE_BYTES} bytes")
        return Response(response.status, content)

    def _connect(self) -> socket.socket:
        if self._connection.sock is None:
            try:
                self._connection.connect()
            except ConnectionRefusedError:
                raise NoResponse("refuses connections: is it running?") from None
        connected: socket.socket = self._connection.sock
        return connected

    @contextmanager
    def _deadline(self, connected: socket.socket) -> Iterator[None]:
        """Shut the connection down after the timeout, even if the server is still sending."""
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            with suppress(OSError):  # already closed
                connected.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(self._timeout, expire)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (OSError, ValueError, http.client.HTTPException):
            if expired.is_set():
                raise TimeoutError from None
            raise
        finally:
            timer.cancel()
        if expired.is_set():
            raise TimeoutError

    def _drop_if_closed(self) -> None:
        """Close an idle connection that is readable: the server closed it, or sent data that belongs to no request."""
        if self._connection.sock is None:
            return
        poll = select.poll()
        poll.register(self._connection.sock, select.POLLIN)
        if poll.poll(0):
            self.close()


def _read_body(response: http.client.HTTPResponse) -> bytes:
    """Return the body, at most one byte above the limit. Raises IncompleteRead also for bodies without chunks."""
    content = response.read(_MAX_RESPONSE_BYTES + 1)
    if response.length and len(content) <= _MAX_RESPONSE_BYTES:
        raise http.client.IncompleteRead(content, response.length)
    return content


def _describe(error: Exception, timeout: float) -> str:
    text = next(text for kind, text in _ERROR_TEXTS if isinstance(error, kind))
    reason = (
        getattr(error, "verify_message", None) or getattr(error, "reason", None) or getattr(error, "strerror", None)
    )
    return text.format(seconds=f"{timeout:g}", reason=reason or type(error).__name__)


_ERROR_TEXTS: tuple[tuple[type[Exception], str], ...] = (  # the first match applies
    (TimeoutError, "did not respond within {seconds} seconds"),
    (http.client.IncompleteRead, "ended its response early"),
    (http.client.HTTPException, "sent something that is not HTTP/1.1"),
    (socket.gaierror, "has a host name that can't be resolved"),
    (UnicodeError, "has an invalid host name"),
    (ssl.SSLCertVerificationError, "has a certificate that is not trusted ({reason})"),
    (ssl.SSLError, "does not speak TLS ({reason})"),
    (Exception, "can't be reached ({reason})"),
)
