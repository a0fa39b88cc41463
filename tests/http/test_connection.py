"""Limits of a connection, and rejection of invalid HTTP (RFC 9112)."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Client
from tests.harness import TIMEOUT, Cast, RunningService
from tests.http.raw import Connection, assert_rejected, request

LISTINGS = "/api/v1/listings"
HEAD = b"Host: localhost\r\n"


MALFORMED = {
    "binary": b"\x00\x01\x02\x03\r\n\r\n",
    "a TLS handshake": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(60),
    "an unknown method": b"BREW / HTTP/1.1\r\n" + HEAD + b"\r\n",
    "CONNECT": b"CONNECT localhost:1 HTTP/1.1\r\n" + HEAD + b"\r\n",
    "two lengths": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "two equal lengths": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a length and a chunked body": b"POST / HTTP/1.1\r\n"
    + HEAD
    + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "an unknown transfer coding": b"POST / HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: xchunked\r\n\r\nabc",
    "identity after chunked": b"POST / HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    **{
        f"transfer coding: {name}": b"POST /healthz HTTP/1.1\r\n" + HEAD + field + b"\r\n0\r\n\r\n"
        for name, field in {
            "chunked twice": b"Transfer-Encoding: chunked, chunked\r\n",
            "gzip, chunked": b"Transfer-Encoding: gzip, chunked\r\n",
            "unknown, chunked": b"Transfer-Encoding: foo,chunked\r\n",
            "empty, chunked": b"Transfer-Encoding: ,chunked\r\n",
            "in two headers": b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
            "chunked in two headers": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        }.items()
    },
    "a negative length": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: -1\r\n\r\n",
    "a length that is not a number": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 1x\r\n\r\n",
    "a length beyond 64 bits": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\n" + HEAD + b"X-A: b\r\n  c\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "a NUL in a header": b"GET / HTTP/1.1\r\n" + HEAD + b"X-A: a\x00b\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\n" + HEAD + b"nonsense\r\n\r\n",
    "a bare carriage return": b"GET / HTTP/1.1\r\n" + HEAD + b"X-A: a\rb\r\n\r\n",
    "a bad chunk size": b"POST /healthz HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET / HTTP/1.1\r\n" + HEAD + b"Host: other\r\n\r\n",
    **{
        f"Host: {host!r}": b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
        for host in (
            b"",
            b"a b",
            b"a,b",
            b"a;b",
            b"a/b",
            b"a@b",
            b"a:8x",
            b"a:1:2",
            b"a:65536",
            b"a:99999",
            b"a:" + b"9" * 5000,
            b"[::1]:65536",
            b":80",
            b".",
            b"a..b",
            b"*.a",
            b"%41",
            b"a" * 255,
            b"::1",
            b"[::1",
            b"[:::1]",
            b"[]",
            b"[::1]a",
            b"%zz",
            b"\xe9",
        )
    },
    **{
        f"host in the URL: {host!r}": b"GET http://" + host + b"/ HTTP/1.1\r\n" + HEAD + b"\r\n"
        for host in (b"", b":80", b"user@localhost", b"[:::1]", b"a:8x", b"a:65536", b"a,b", b"%zz")
    },
    "no Host, and one in the URL": b"GET http://localhost/ HTTP/1.1\r\n\r\n",
    "an invalid Host, and one in the URL": b"GET http://localhost/ HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "a space in the path": b"GET /a b HTTP/1.1\r\n" + HEAD + b"\r\n",
    "raw UTF-8 in the path": "GET /é HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
}


@pytest.mark.decision("G31")
def test_malformed_http_is_400_and_closes_the_connection(running: RunningService, subtests: pytest.Subtests) -> None:
    for name, sent in MALFORMED.items():
        with subtests.test(name), Connection(running).send(sent) as connection:
            assert_rejected(connection.read_response(), 400, "malformed_request")
            assert connection.is_closed()


@pytest.mark.parametrize("version", [b"2.0", b"1.2", b"3.0", b"0.9"])
def test_another_version_in_the_request_line_is_505(running: RunningService, version: bytes) -> None:
    with Connection(running).send(b"GET / HTTP/" + version + b"\r\n" + HEAD + b"\r\n") as connection:
        assert_rejected(connection.read_response(), 505, "version_not_supported")


def test_the_error_for_a_non_ascii_url_says_to_percent_encode(running: RunningService) -> None:
    line = f"GET {LISTINGS}?region=Manawatū HTTP/1.1\r\n".encode()
    with Connection(running).send(line + HEAD + b"\r\n") as connection:
        response = connection.read_response()
        assert_rejected(response, 400, "malformed_request")
        assert "percent-encode all characters that URLs do not allow" in response.json()["error"]


@pytest.mark.parametrize("url", ["http://localhost:port/", "http://[::1/"])
def test_the_error_for_an_invalid_absolute_url_names_the_url(running: RunningService, url: str) -> None:
    with Connection(running).send(f"GET {url} HTTP/1.1\r\n".encode() + HEAD + b"\r\n") as connection:
        response = connection.read_response()
        assert_rejected(response, 400, "malformed_request")
        assert response.json()["error"].startswith("The URL is not valid")


@pytest.mark.parametrize(
    ("line", "fields", "status"),
    [
        (b"HEAD / HTTP/1.1", b"", 400),
        (b"HEAD / HTTP/2.0", HEAD, 505),
        (b"HEAD /" + b"a" * 9000 + b" HTTP/1.1", HEAD, 414),
        (b"HEAD / HTTP/1.1", HEAD + b"X-A: " + b"a" * 17_000 + b"\r\n", 431),
    ],
)
def test_a_rejected_head_request_gets_no_body(running: RunningService, line: bytes, fields: bytes, status: int) -> None:
    with Connection(running).send(line + b"\r\n" + fields + b"\r\n") as connection:
        received = b"".join(iter(lambda: connection.socket.recv(65_536), b""))
    assert received.startswith(b"HTTP/1.1 %d " % status)
    assert received.endswith(b"\r\n\r\n")
    assert b"content-length: 0" not in received


@pytest.mark.decision("G31")
def test_a_url_over_8_kib_is_414(running: RunningService, cast: Cast) -> None:
    longest = LISTINGS + "?" + "a" * (8192 - len(LISTINGS) - 1)
    with Connection(running).send(request("GET", longest, cast.alice.key)) as connection:
        assert connection.read_response().status == 200
    with Connection(running).send(request("GET", longest + "a", cast.alice.key)) as connection:
        assert_rejected(connection.read_response(), 414, "uri_too_long")
        assert connection.is_closed()


def test_the_414_for_a_url_of_a_megabyte_can_be_read(running: RunningService) -> None:
    with Connection(running).send(b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n" + HEAD + b"\r\n") as connection:
        assert_rejected(connection.read_response(), 414, "uri_too_long")


@pytest.mark.decision("G31")
def test_more_than_100_headers_are_431(running: RunningService, cast: Cast) -> None:
    fields = [b"X-%d: y" % number for number in range(98)]
    with Connection(running).send(request("GET", LISTINGS, cast.alice.key, *fields)) as connection:
        assert connection.read_response().status == 200
    with Connection(running).send(request("GET", LISTINGS, cast.alice.key, *fields, b"X-More: y")) as connection:
        assert_rejected(connection.read_response(), 431, "header_too_large")


@pytest.mark.parametrize("size", [16_384, 100_000, 1_000_000])
def test_more_than_16_kib_of_headers_are_431(running: RunningService, size: int) -> None:
    with Connection(running).send(request("GET", LISTINGS, None, b"X-A: " + b"y" * size)) as connection:
        assert_rejected(connection.read_response(), 431, "header_too_large")


@pytest.mark.parametrize("prefix", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nX-A:"])
def test_white_space_counts_towards_the_header_limit(running: RunningService, prefix: bytes) -> None:
    head = b"GET / HTTP/1.1\r\nHost: x\r\nX-A:" + b" " * 40_000 + b"a\r\n\r\n"
    with Connection(running) as connection:
        if prefix:
            connection.send(prefix)
            with Connection(running) as other:  # meanwhile the service reads the first bytes
                assert other.send(request("GET", "/healthz")).read_response().status == 200
        assert_rejected(connection.send(head.removeprefix(prefix)).read_response(), 431, "header_too_large")


@pytest.mark.parametrize("earlier", [b"", request("GET", "/healthz")])
def test_empty_lines_before_a_request_count_towards_the_header_limit(running: RunningService, earlier: bytes) -> None:
    with Connection(running).send(earlier) as connection:
        assert not earlier or connection.read_response().status == 200
        assert connection.send(b"\r\n" * 1000 + request("GET", "/healthz")).read_response().status == 200
        assert_rejected(connection.send(b"\r\n" * 13_000).read_response(), 431, "header_too_large")


def test_a_body_in_the_same_segment_does_not_count_as_head(running: RunningService, cast: Cast) -> None:
    body = b'{"title": "t", "content": "' + b"c" * 60_000 + b'"}'
    head = request("POST", LISTINGS, cast.alice.key, b"Content-Length: %d" % len(body))
    for cut in range(len(head) - 5, len(head) + 1):
        with Connection(running).send(head[:cut]) as connection:
            with Connection(running) as other:
                assert other.send(request("GET", "/healthz")).read_response().status == 200
            assert connection.send(head[cut:] + body).read_response().status == 201


def test_a_header_that_never_ends_is_431(running: RunningService) -> None:
    with Connection(running).send(b"GET / HTTP/1.1\r\n" + HEAD + b"X-A: ") as connection:
        for _ in range(30):
            connection.send(b"y" * 1000)
        assert_rejected(connection.read_response(), 431, "header_too_large")


@pytest.mark.parametrize("extra", [0, 1])
def test_nothing_after_a_head_at_the_limit_is_lost(running: RunningService, alice: Client, extra: int) -> None:
    body, size = b'{"title": "t", "content": "c"}', 25 * 1024 + extra
    start = request("POST", LISTINGS, alice.person.key, b"Content-Length: %d" % len(body)).removesuffix(b"\r\n")
    head = start + b"X-A: " + b" " * (size - len(start) - 10) + b"a\r\n\r\n"
    assert len(head) == size
    with Connection(running).send(head + body + request("GET", "/healthz")) as connection:
        assert [connection.read_response().status for _ in range(2)] == [201, 200]


def test_headers_just_below_the_limit_are_accepted(running: RunningService, cast: Cast) -> None:
    with Connection(running).send(request("GET", LISTINGS, cast.alice.key, b"X-A: " + b"y" * 16_000)) as connection:
        assert connection.read_response().status == 200


def test_http_1_0_with_an_empty_host_is_400(running: RunningService) -> None:
    with Connection(running).send(b"GET /healthz HTTP/1.0\r\nHost:\r\n\r\n") as connection:
        assert_rejected(connection.read_response(), 400, "malformed_request")


def test_http_1_0_needs_no_host_and_closes_the_connection(running: RunningService) -> None:
    with Connection(running).send(b"GET /healthz HTTP/1.0\r\n\r\n") as connection:
        assert connection.read_response().headers["connection"] == "close"
        assert connection.is_closed()


@pytest.mark.parametrize(
    ("target", "status"), [(b"http://localhost/healthz", 200), (b"http://localhost", 200), (b"/healthz?a=b", 200)]
)
def test_a_request_target_may_have_any_form(running: RunningService, target: bytes, status: int) -> None:
    with Connection(running).send(b"GET " + target + b" HTTP/1.1\r\n" + HEAD + b"\r\n") as connection:
        assert connection.read_response().status == status


class HostEcho:
    async def serve(self, exchange: Any) -> None:
        body = b" ".join(value for name, value in exchange.headers if name == b"host")
        await exchange.respond(200, b"content-length: %d\r\n" % len(body), body)


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    with RunningService(tmp_path_factory.mktemp("echo")) as service:
        service.replace_application(HostEcho())
        yield service


@pytest.mark.parametrize(
    ("line", "host"),
    [
        (b"GET http://other/a HTTP/1.1", b"other"),
        (b"GET http://other HTTP/1.1", b"other"),
        (b"GET HTTP://[::1]:80?a=http://third HTTP/1.1", b"[::1]:80"),
        (b"GET http://other/ HTTP/1.0", b"other"),
        (b"GET /a?b=http://other#c HTTP/1.1", b"localhost"),
        (b"GET //other/ HTTP/1.1", b"localhost"),
        (b"GET //other/#a HTTP/1.1", b"localhost"),
    ],
)
def test_the_host_in_the_target_replaces_the_host_header(echo: RunningService, line: bytes, host: bytes) -> None:
    with Connection(echo).send(line + b"\r\n" + HEAD + b"\r\n") as connection:
        assert connection.read_response().body == host


def test_the_host_in_the_target_of_http_1_0_needs_no_host_header(echo: RunningService) -> None:
    with Connection(echo).send(b"GET http://other/ HTTP/1.0\r\n\r\n") as connection:
        assert connection.read_response().body == b"other"


def test_the_target_of_options_may_be_an_asterisk(running: RunningService) -> None:
    with Connection(running).send(b"OPTIONS * HTTP/1.1\r\n" + HEAD + b"\r\n") as connection:
        assert connection.read_response().status == 404


def test_a_request_may_arrive_byte_by_byte(running: RunningService, cast: Cast) -> None:
    message = request("POST", LISTINGS, cast.alice.key, body=b'{"title": "Slow", "content": "but complete"}')
    with Connection(running).send(*(message[index : index + 1] for index in range(len(message)))) as connection:
        assert connection.read_response().status == 201


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_after_an_h2c_upgrade_is_read(running: RunningService, alice: Client, *, chunked: bool) -> None:
    body = b'{"title": "From Java", "content": "with an h2c upgrade"}'
    upgrade = [
        b"Connection: Upgrade, HTTP2-Settings",
        b"Upgrade: h2c",
        b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    ]
    if chunked:
        upgrade.append(b"Transfer-Encoding: chunked")
        message = request("POST", LISTINGS, alice.person.key, *upgrade) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    else:
        message = request("POST", LISTINGS, alice.person.key, *upgrade, body=body)
    with Connection(running).send(message) as connection:
        response = connection.read_response()
        assert response.status == 201
        connection.send(request("GET", f"{LISTINGS}/{response.json()['id']}", alice.person.key, *upgrade[:3]))
        assert connection.read_response().json()["title"] == "From Java"


def test_a_websocket_upgrade_is_ignored(running: RunningService) -> None:
    upgrade = (b"Connection: keep-alive, Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13")
    with Connection(running).send(request("GET", "/healthz", None, *upgrade)) as connection:
        assert connection.read_response().status == 200
        assert connection.send(request("GET", "/healthz")).read_response().status == 200


def test_an_upgrade_of_http_1_0_is_ignored(running: RunningService) -> None:
    with Connection(running).send(
        b"GET /healthz HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    ) as connection:
        response = connection.read_response()
        assert (response.status, response.headers["connection"]) == (200, "close")
        assert connection.is_closed()


def test_a_missing_host_is_reported_despite_an_upgrade(running: RunningService) -> None:
    upgrade = b"GET /healthz HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    with Connection(running).send(upgrade) as connection:
        assert connection.read_response().json() == {"error": "Exactly one Host header is required"}


def test_many_consecutive_upgrades_are_ignored(running: RunningService) -> None:
    upgrades = request("GET", "/healthz", None, b"Connection: Upgrade", b"Upgrade: h2c") * 2000
    with Connection(running).send(upgrades) as connection:
        assert [connection.read_response().status for _ in range(2000)] == [200] * 2000


TRAILER = b"X-A: b\r\nHost: other\r\nExpect: 100-continue\r\nIf-Match: x\r\nX-Request-Id: trailed\r\n"


@pytest.mark.parametrize("together", [True, False])
def test_trailers_are_not_headers(running: RunningService, alice: Client, *, together: bool) -> None:
    body = b'{"title": "Chunked", "content": "with a trailer"}'
    chunks = b"%x\r\n%s\r\n" % (len(body), body)
    for key, status in ((alice.person.key, 201), (None, 401)):
        head = request("POST", LISTINGS, key, b"Transfer-Encoding: chunked")
        end = b"0\r\n" + TRAILER + b"X-API-Key: " + alice.person.key.encode() + b"\r\n\r\n"
        with Connection(running) as connection:
            if together:
                connection.send(head + chunks + end)
            else:
                connection.send(head + chunks[:5])
                connection.send(chunks[5:], end)
            response = connection.read_response()
            assert response.status == status
            assert response.headers["x-request-id"] != "trailed"
            assert connection.send(request("GET", "/healthz")).read_response().status == 200


@pytest.mark.parametrize("prefix", [b"2;", b"0\r\nX-A: ", b"0\r\n"])
@pytest.mark.parametrize("path", ["/healthz", LISTINGS])
def test_chunk_framing_is_limited(running: RunningService, prefix: bytes, path: str) -> None:
    filler = b"X-A: b\r\n" * 10_000 if prefix == b"0\r\n" else b"a" * 80_000
    with Connection(running).send(request("POST", path, None, b"Transfer-Encoding: chunked")) as connection:
        if path == LISTINGS:
            assert connection.read_response().status == 401  # the rest of the body is discarded
        try:
            connection.send(b"1\r\na\r\n", prefix, *[filler] * 50)
        except (BrokenPipeError, ConnectionResetError):
            return
        if path != LISTINGS:
            response = connection.read_response()
            assert response.status in {400, 405, 431}
        assert connection.is_closed()


def read_continue(connection: Connection) -> None:
    assert connection.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"


CHUNKED = (b"Transfer-Encoding: chunked", b"Expect: 100-continue")


@pytest.mark.parametrize(
    "chunk", [b"1;a=%b\r\nx\r\n" % (b"a" * 1000), b"0" * 15 + b"1\r\nx\r\n" + b"00001\r\nx\r\n" * 300]
)
def test_chunk_extensions_and_leading_zeros_count_over_the_whole_body(
    running: RunningService, alice: Client, chunk: bytes
) -> None:
    chunks = chunk * 40
    with Connection(running).send(request("POST", LISTINGS, alice.person.key, *CHUNKED)) as connection:
        read_continue(connection)
        assert_rejected(connection.send(chunks).read_response(), 400, "malformed_request")
        assert connection.is_closed()
    assert alice.get().json() == {"listings": []}


def test_a_body_of_small_chunks_may_have_16_kib_of_extensions(running: RunningService, alice: Client) -> None:
    body = b'{"title": "t", "content": "%b"}' % (b"c" * 10_000)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body).replace(b"1\r", b"1;%b\r" % (b"a" * 16_000), 1)
    with Connection(running) as connection:
        for _ in range(2):
            connection.send(request("POST", LISTINGS, alice.person.key, *CHUNKED))
            read_continue(connection)
            assert connection.send(chunks, b"0\r\n\r\n").read_response().status == 201


@pytest.mark.parametrize(
    "host",
    [
        b"localhost:",
        b"a_b.example:80",
        b"example.",
        b"192.0.2.1:65535",
        b"[2001:db8::1]:80",
        b"[::ffff:192.0.2.1]",
        b"xn--tone-qqa.example",
    ],
)
def test_any_valid_host_is_accepted(running: RunningService, host: bytes) -> None:
    message = b"GET /healthz HTTP/1.1\r\nHost:  " + host + b" \r\n\r\n"
    with Connection(running).send(message * 2) as connection:
        assert [connection.read_response().status for _ in range(2)] == [200, 200]


def test_an_invalid_host_after_a_valid_one_is_400(running: RunningService) -> None:
    with Connection(running).send(request("GET", "/healthz"), MALFORMED["Host: b'a/b'"]) as connection:
        assert connection.read_response().status == 200
        assert_rejected(connection.read_response(), 400, "malformed_request")


def test_garbage_after_a_head_request_is_rejected_with_a_body(running: RunningService) -> None:
    with Connection(running).send(request("HEAD", "/healthz") + b"\x00\r\n\r\n") as connection:
        received = b"".join(iter(lambda: connection.socket.recv(65_536), b""))
    assert received.endswith(b'{"error":"The request is not valid HTTP"}')


def test_100_continue_is_not_sent_to_a_client_of_http_1_0(running: RunningService, alice: Client) -> None:
    message = request(
        "POST", LISTINGS, alice.person.key, b"Expect: 100-continue", body=b'{"title": "t", "content": "c"}'
    )
    with Connection(running).send(message.replace(b"HTTP/1.1", b"HTTP/1.0", 1)) as connection:
        assert connection.read_response().status == 201


def test_a_client_of_http_1_0_gets_a_page_without_chunks(running: RunningService) -> None:
    with Connection(running).send(b"GET /sitemaps/1.xml HTTP/1.0\r\n\r\n") as connection:
        received = b"".join(iter(lambda: connection.socket.recv(65_536), b""))
    head, body = received.split(b"\r\n\r\n", 1)
    assert b"transfer-encoding" not in head
    assert body.startswith(b"<?xml")


class Idler:
    """An application that responds to POST once it is released. It records how much of the body has arrived then."""

    def __init__(self) -> None:
        self.received, self.started, self.released = 0, threading.Event(), threading.Event()

    async def serve(self, exchange: Any) -> None:
        if exchange.method == "POST":
            self.started.set()
            await asyncio.to_thread(self.released.wait, TIMEOUT)
            self.received = len(exchange.body)
        await exchange.respond(200, b"content-length: 0\r\n", b"")


def test_of_a_body_one_part_is_read_before_the_application_asks_for_it(tmp_path: Path) -> None:
    application = Idler()
    with RunningService(tmp_path) as service:
        service.replace_application(application)
        with Connection(service) as connection, Connection(service) as other:
            connection.send(request("POST", "/", None, b"Content-Length: 30000") + b"x" * 1000)
            assert application.started.wait(TIMEOUT)
            connection.send(b"x" * 29_000)
            for _ in range(2):  # until these bytes have been received
                assert other.send(request("GET", "/")).read_response().status == 200
            application.released.set()
            assert connection.read_response().status == 200
    assert application.received == 1000


def test_a_client_that_shuts_down_its_side_gets_its_responses(running: RunningService, alice: Client) -> None:
    message = request("POST", LISTINGS, alice.person.key, body=b'{"title": "t", "content": "c"}')
    with Connection(running).send(message * 3) as connection:
        connection.socket.shutdown(1)
        assert [connection.read_response().status for _ in range(3)] == [201] * 3
        assert connection.is_closed()


@pytest.mark.parametrize("rest", [b"GET /\0 HTTP/1.1\r\n\r\n", b"GET / HT"])
def test_a_response_precedes_a_rejection_after_a_shut_down(running: RunningService, alice: Client, rest: bytes) -> None:
    waiting = request("GET", "/api/v1/changes?after=0&timeout=1", alice.person.key)
    with Connection(running).send(waiting + rest) as connection:
        connection.socket.shutdown(1)
        assert connection.read_response().status == 200
        assert rest.endswith(b"HT") or connection.read_response().status == 400
        assert connection.is_closed()


class ReleasedApplication:
    """An application that receives a body, and responds once it is released."""

    def __init__(self) -> None:
        self.has_received, self.released = threading.Event(), threading.Event()
        self.count = 0

    async def serve(self, exchange: Any) -> None:
        message = await exchange.receive()
        while message.get("more_body"):
            message = await exchange.receive()
        if message["type"] == "http.disconnect":
            return
        self.count += 1
        self.has_received.set()
        await asyncio.to_thread(self.released.wait, TIMEOUT)
        await exchange.respond(200, b"content-length: 0\r\n", b"")


def test_a_response_arrives_although_a_later_body_ends_early(tmp_path: Path) -> None:
    application = ReleasedApplication()
    with RunningService(tmp_path) as service:
        service.replace_application(application)
        with Connection(service) as connection:
            connection.send(request("POST", "/", body=b"1") + request("POST", "/", body=b"12")[:-1])
            assert application.has_received.wait(TIMEOUT)
            connection.socket.shutdown(socket.SHUT_WR)
            with Connection(service).send(b"?\r\n\r\n") as other:  # meanwhile the service notices
                assert other.read_response().status == 400
            application.released.set()
            assert connection.read_response().status == 200
            assert connection.is_closed()
    assert application.count == 1


def test_100_continue_is_not_sent_after_the_body(running: RunningService, alice: Client) -> None:
    body = b'{"title": "t", "content": "c"}'
    message = request("POST", LISTINGS, alice.person.key, b"Expect: 100-continue", body=body)
    with Connection(running).send(message * 2) as connection:
        assert [connection.read_response().status for _ in range(2)] == [201, 201]


def test_a_rejection_before_100_continue_closes_the_connection(running: RunningService) -> None:
    head = request("POST", LISTINGS, None, b"Expect: 100-continue", b"Content-Length: 30")
    with Connection(running).send(head) as connection:
        response = connection.read_response()
        assert (response.status, response.headers["connection"]) == (401, "close")
        assert connection.is_closed()


def test_a_rejected_body_is_discarded_and_the_connection_stays_open(running: RunningService, cast: Cast) -> None:
    with Connection(running).send(
        request("POST", LISTINGS, "no-such-key-at-all", b"Content-Length: 1000000")
    ) as connection:
        assert connection.read_response().status == 401
        connection.send(b"x" * 1_000_000)
        assert connection.send(request("GET", LISTINGS, cast.alice.key)).read_response().status == 200


def test_an_ignored_body_is_awaited_up_to_the_limit_of_bodies(running: RunningService, cast: Cast) -> None:
    head = request("GET", LISTINGS, cast.alice.key, b"Transfer-Encoding: chunked")
    with Connection(running) as connection:
        unfinished = b"%x\r\n%b" % (4 * 1024 * 1024, bytes(3 * 1024 * 1024))
        assert connection.send(head, unfinished).read_response().status == 200
        rest = b"%b\r\n0\r\n\r\n" % bytes(1024 * 1024)
        assert connection.send(rest, request("GET", LISTINGS, cast.alice.key)).read_response().status == 200


def test_a_clients_own_request_id_is_repeated(running: RunningService) -> None:
    with Connection(running).send(request("GET", "/healthz", None, b"X-Request-Id: order-66/b")) as connection:
        assert connection.read_response().headers["x-request-id"] == "order-66/b"


@pytest.mark.parametrize("value", [b"", b"has space", b"x" * 129, b"\xff\xfe", b"tab\there"])
def test_an_invalid_request_id_is_replaced(running: RunningService, value: bytes) -> None:
    with Connection(running).send(request("GET", "/healthz", None, b"X-Request-Id: " + value)) as connection:
        assert connection.read_response().headers["x-request-id"].isalnum()


def test_a_request_id_may_have_128_characters(running: RunningService) -> None:
    with Connection(running).send(request("GET", "/healthz", None, b"X-Request-Id: " + b"x" * 128)) as connection:
        assert connection.read_response().headers["x-request-id"] == "x" * 128
