"""What a connection takes, and how what is no HTTP is refused (hardening of RFC 9112's framing)."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Client
from tests.harness import Cast, RunningService
from tests.http.raw import Connection, RawAnswer, request

LISTINGS = "/api/v1/listings"
HEAD = b"Host: localhost\r\n"


def assert_refused(answer: RawAnswer, status: int, code: str) -> None:
    assert answer.status == status
    assert list(answer.json()) == ["error"]
    assert answer.json()["error"]
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert answer.headers["x-error-code"] == code
    assert answer.headers["x-request-id"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["connection"] == "close"


MALFORMED = {
    "binary": b"\x00\x01\x02\x03\r\n\r\n",
    "a TLS greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(60),
    "an unknown method": b"BREW / HTTP/1.1\r\n" + HEAD + b"\r\n",
    "CONNECT": b"CONNECT localhost:1 HTTP/1.1\r\n" + HEAD + b"\r\n",
    "two lengths": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "two same lengths": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a length and chunks": b"POST / HTTP/1.1\r\n"
    + HEAD
    + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "an odd coding": b"POST / HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: xchunked\r\n\r\nabc",
    "chunks inside another coding": b"POST / HTTP/1.1\r\n"
    + HEAD
    + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    **{
        f"the coding {name}": b"POST /healthz HTTP/1.1\r\n" + HEAD + field + b"\r\n0\r\n\r\n"
        for name, field in {
            "of chunks inside chunks": b"Transfer-Encoding: chunked, chunked\r\n",
            "of chunks around gzip": b"Transfer-Encoding: gzip, chunked\r\n",
            "of chunks around anything": b"Transfer-Encoding: foo,chunked\r\n",
            "of chunks around nothing": b"Transfer-Encoding: ,chunked\r\n",
            "in two fields": b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
            "given twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        }.items()
    },
    "a negative length": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: -1\r\n\r\n",
    "a length that is no number": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 1x\r\n\r\n",
    "a length beyond 64 bits": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\n" + HEAD + b"X-A: b\r\n  c\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "a NUL in a header": b"GET / HTTP/1.1\r\n" + HEAD + b"X-A: a\x00b\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\n" + HEAD + b"nonsense\r\n\r\n",
    "a bare carriage return": b"GET / HTTP/1.1\r\n" + HEAD + b"X-A: a\rb\r\n\r\n",
    "a bad chunk size": b"POST /healthz HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET / HTTP/1.1\r\n" + HEAD + b"Host: other\r\n\r\n",
    "a space in the path": b"GET /a b HTTP/1.1\r\n" + HEAD + b"\r\n",
    "raw UTF-8 in the path": "GET /é HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
}


@pytest.mark.decision("G31")
@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_http_is_400_and_the_end_of_the_connection(running: RunningService, name: str) -> None:
    with Connection(running).send(MALFORMED[name]) as connection:
        assert_refused(connection.answer(), 400, "malformed_request")
        assert connection.is_closed()


@pytest.mark.parametrize("line", [b"GET / HTTP/2.0", b"PRI * HTTP/2.0", b"GET / HTTP/3.0", b"GET /"])
def test_another_version_of_http_is_refused(running: RunningService, line: bytes) -> None:
    with Connection(running).send(line + b"\r\n" + HEAD + b"\r\n") as connection:
        answer = connection.answer()
        assert answer.status in {400, 505}
        assert_refused(answer, answer.status, answer.headers["x-error-code"])
        assert connection.is_closed()


@pytest.mark.parametrize("version", [b"2.0", b"1.2", b"3.0", b"0.9"])
def test_another_version_in_a_request_line_is_505(running: RunningService, version: bytes) -> None:
    with Connection(running).send(b"GET / HTTP/" + version + b"\r\n" + HEAD + b"\r\n") as connection:
        assert_refused(connection.answer(), 505, "version_not_supported")


def test_an_address_that_is_not_ascii_is_told_what_to_do(running: RunningService) -> None:
    line = f"GET {LISTINGS}?region=Manawatū HTTP/1.1\r\n".encode()
    with Connection(running).send(line + HEAD + b"\r\n") as connection:
        answer = connection.answer()
        assert_refused(answer, 400, "malformed_request")
        assert "what is not ASCII has to be percent-encoded" in answer.json()["error"]


@pytest.mark.parametrize(
    ("line", "fields", "status"),
    [
        (b"HEAD / HTTP/1.1", b"", 400),
        (b"HEAD / HTTP/2.0", HEAD, 505),
        (b"HEAD /" + b"a" * 9000 + b" HTTP/1.1", HEAD, 414),
        (b"HEAD / HTTP/1.1", HEAD + b"X-A: " + b"a" * 17_000 + b"\r\n", 431),
    ],
)
def test_a_refused_head_request_gets_no_body(running: RunningService, line: bytes, fields: bytes, status: int) -> None:
    with Connection(running).send(line + b"\r\n" + fields + b"\r\n") as connection:
        received = b"".join(iter(lambda: connection.socket.recv(65_536), b""))
    assert received.startswith(b"HTTP/1.1 %d " % status)
    assert received.endswith(b"\r\n\r\n")
    assert b"content-length: 0" not in received


@pytest.mark.decision("G31")
def test_an_address_over_8_kib_is_414(running: RunningService, cast: Cast) -> None:
    longest = LISTINGS + "?" + "a" * (8192 - len(LISTINGS) - 1)
    with Connection(running).send(request("GET", longest, cast.alice.key)) as connection:
        assert connection.answer().status == 200
    with Connection(running).send(request("GET", longest + "a", cast.alice.key)) as connection:
        assert_refused(connection.answer(), 414, "uri_too_long")
        assert connection.is_closed()


def test_a_megabyte_of_address_is_414_and_readable(running: RunningService) -> None:
    with Connection(running).send(b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n" + HEAD + b"\r\n") as connection:
        assert_refused(connection.answer(), 414, "uri_too_long")


@pytest.mark.decision("G31")
def test_more_than_100_fields_are_431(running: RunningService, cast: Cast) -> None:
    fields = [b"X-%d: y" % number for number in range(98)]
    with Connection(running).send(request("GET", LISTINGS, cast.alice.key, *fields)) as connection:
        assert connection.answer().status == 200
    with Connection(running).send(request("GET", LISTINGS, cast.alice.key, *fields, b"X-More: y")) as connection:
        assert_refused(connection.answer(), 431, "header_too_large")


@pytest.mark.parametrize("size", [16_384, 100_000, 1_000_000])
def test_more_than_16_kib_of_headers_are_431(running: RunningService, size: int) -> None:
    with Connection(running).send(request("GET", LISTINGS, None, b"X-A: " + b"y" * size)) as connection:
        assert_refused(connection.answer(), 431, "header_too_large")


@pytest.mark.parametrize("begins_with", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nX-A:"])
def test_space_that_the_parser_passes_over_counts_too(running: RunningService, begins_with: bytes) -> None:
    head = b"GET / HTTP/1.1\r\nHost: x\r\nX-A:" + b" " * 40_000 + b"a\r\n\r\n"
    with Connection(running) as connection:
        if begins_with:
            connection.send(begins_with)
            with Connection(running) as other:  # meanwhile the first bytes are read
                assert other.send(request("GET", "/healthz")).answer().status == 200
        assert_refused(connection.send(head.removeprefix(begins_with)).answer(), 431, "header_too_large")


def test_a_body_that_comes_with_the_end_of_its_head_is_no_part_of_it(running: RunningService, cast: Cast) -> None:
    body = b'{"title": "t", "content": "' + b"c" * 60_000 + b'"}'
    head = request("POST", LISTINGS, cast.alice.key, b"Content-Length: %d" % len(body))
    for cut in range(len(head) - 5, len(head) + 1):
        with Connection(running).send(head[:cut]) as connection:
            with Connection(running) as other:
                assert other.send(request("GET", "/healthz")).answer().status == 200
            assert connection.send(head[cut:] + body).answer().status == 201


def test_a_header_that_never_ends_is_431(running: RunningService) -> None:
    with Connection(running).send(b"GET / HTTP/1.1\r\n" + HEAD + b"X-A: ") as connection:
        for _ in range(30):
            connection.send(b"y" * 1000)
        assert_refused(connection.answer(), 431, "header_too_large")


def test_headers_just_under_the_bound_are_read(running: RunningService, cast: Cast) -> None:
    with Connection(running).send(request("GET", LISTINGS, cast.alice.key, b"X-A: " + b"y" * 16_000)) as connection:
        assert connection.answer().status == 200


def test_http_1_0_needs_no_host_and_ends_the_connection(running: RunningService) -> None:
    with Connection(running).send(b"GET /healthz HTTP/1.0\r\n\r\n") as connection:
        assert connection.answer().headers["connection"] == "close"
        assert connection.is_closed()


@pytest.mark.parametrize(
    ("target", "status"), [(b"http://localhost/healthz", 200), (b"http://localhost", 200), (b"/healthz?a=b", 200)]
)
def test_a_target_may_have_any_form(running: RunningService, target: bytes, status: int) -> None:
    with Connection(running).send(b"GET " + target + b" HTTP/1.1\r\n" + HEAD + b"\r\n") as connection:
        assert connection.answer().status == status


def test_the_target_of_options_may_be_a_star(running: RunningService) -> None:
    with Connection(running).send(b"OPTIONS * HTTP/1.1\r\n" + HEAD + b"\r\n") as connection:
        assert connection.answer().status == 404


def test_bytes_may_come_one_by_one(running: RunningService, cast: Cast) -> None:
    message = request("POST", LISTINGS, cast.alice.key, body=b'{"title": "Slow", "content": "but whole"}')
    with Connection(running).send(*(message[place : place + 1] for place in range(len(message)))) as connection:
        assert connection.answer().status == 201


# Upgrades


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_behind_an_offer_of_h2c_is_kept(running: RunningService, alice: Client, *, chunked: bool) -> None:
    body = b'{"title": "From Java", "content": "with an offer of h2c"}'
    offer = [
        b"Connection: Upgrade, HTTP2-Settings",
        b"Upgrade: h2c",
        b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    ]
    if chunked:
        offer.append(b"Transfer-Encoding: chunked")
        message = request("POST", LISTINGS, alice.person.key, *offer) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    else:
        message = request("POST", LISTINGS, alice.person.key, *offer, body=body)
    with Connection(running).send(message) as connection:
        answer = connection.answer()
        assert answer.status == 201
        connection.send(request("GET", f"{LISTINGS}/{answer.json()['id']}", alice.person.key, *offer[:3]))
        assert connection.answer().json()["title"] == "From Java"


def test_an_offer_of_websockets_is_passed_over(running: RunningService) -> None:
    offer = (b"Connection: keep-alive, Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13")
    with Connection(running).send(request("GET", "/healthz", None, *offer)) as connection:
        assert connection.answer().status == 200
        assert connection.send(request("GET", "/healthz")).answer().status == 200


def test_http_1_0_can_offer_an_upgrade_and_stays_what_it_is(running: RunningService) -> None:
    with Connection(running).send(
        b"GET /healthz HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    ) as connection:
        answer = connection.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert connection.is_closed()


def test_what_is_wrong_beside_an_offer_is_told(running: RunningService) -> None:
    offer = b"GET /healthz HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    with Connection(running).send(offer) as connection:
        assert connection.answer().json() == {"error": "Exactly one Host header is needed"}


def test_very_many_offers_in_a_row_are_all_passed_over(running: RunningService) -> None:
    offers = request("GET", "/healthz", None, b"Connection: Upgrade", b"Upgrade: h2c") * 2000
    with Connection(running).send(offers) as connection:
        assert [connection.answer().status for _ in range(2000)] == [200] * 2000


# Trailers and chunks


TRAILER = b"X-A: b\r\nHost: other\r\nExpect: 100-continue\r\nIf-Match: x\r\nX-Request-Id: trailed\r\n"


@pytest.mark.parametrize("together", [True, False])
def test_a_trailer_is_no_header(running: RunningService, alice: Client, *, together: bool) -> None:
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
            answer = connection.answer()
            assert answer.status == status
            assert answer.headers["x-request-id"] != "trailed"
            assert connection.send(request("GET", "/healthz")).answer().status == 200


@pytest.mark.parametrize("begins_with", [b"2;", b"0\r\nX-A: ", b"0\r\n"])
@pytest.mark.parametrize("path", ["/healthz", LISTINGS])
def test_what_stands_around_the_data_of_a_body_is_bounded(
    running: RunningService, begins_with: bytes, path: str
) -> None:
    filler = b"X-A: b\r\n" * 10_000 if begins_with == b"0\r\n" else b"a" * 80_000
    with Connection(running).send(request("POST", path, None, b"Transfer-Encoding: chunked")) as connection:
        if path == LISTINGS:
            assert connection.answer().status == 401  # and what follows is read to be dropped
        try:
            connection.send(b"1\r\na\r\n", begins_with, *[filler] * 50)
        except (BrokenPipeError, ConnectionResetError):
            return
        if path != LISTINGS:
            answer = connection.answer()
            assert answer.status in {400, 405, 431}
        assert connection.is_closed()


# Pipelines


def test_pipelined_requests_are_answered_in_order(running: RunningService, alice: Client) -> None:
    ids = [alice.create(title=f"Number {number}") for number in range(20)]
    messages = [request("GET", f"{LISTINGS}/{listing}", alice.person.key) for listing in ids]
    with Connection(running).send(b"".join(messages)) as connection:
        assert [connection.answer().json()["id"] for _ in ids] == ids


def test_very_many_pipelined_requests_are_answered_in_order(running: RunningService, alice: Client) -> None:
    # Some of them wait for the disk and some for nothing; in one row they would nest beyond Python's stack.
    listing, titles = alice.create(title="0"), [str(number) for number in range(1, 301)]
    messages = []
    for title in titles:
        change = b'{"title": "%b"}' % title.encode()
        messages.append(request("PATCH", f"{LISTINGS}/{listing}", alice.person.key, body=change))
        messages += [request("GET", f"{LISTINGS}/{listing}", alice.person.key), request("GET", "/healthz")]
    with Connection(running).send(b"".join(messages)) as connection:
        answers = [connection.answer().json() for _ in messages]
    assert [answer["title"] for answer in answers[1::3]] == titles
    assert all(answer == {"status": "ok"} for answer in answers[2::3])


def test_garbage_behind_good_requests_is_answered_last(running: RunningService, alice: Client) -> None:
    body = b'{"title": "Pipelined", "content": "before the garbage"}'
    good = [request("POST", LISTINGS, alice.person.key, body=body) for _ in range(5)]
    with Connection(running).send(b"".join(good) + b"\x00garbage\r\n\r\n") as connection:
        assert [connection.answer().status for _ in good] == [201] * 5
        assert_refused(connection.answer(), 400, "malformed_request")
        assert connection.is_closed()


def test_a_broken_body_behind_a_good_request_is_answered_in_its_turn(running: RunningService, alice: Client) -> None:
    good = request("POST", LISTINGS, alice.person.key, body=b'{"title": "Good", "content": "c"}')
    broken = request("POST", LISTINGS, alice.person.key, b"Transfer-Encoding: chunked")
    broken += b'21\r\n{"title": "Broken", "content": "c"}\r\nnonsense\r\n\r\n'
    with Connection(running).send(good + broken) as connection:
        assert connection.answer().status == 201
        assert_refused(connection.answer(), 400, "malformed_request")
    assert [listing["title"] for listing in alice.get().json()["listings"]] == ["Good"]


def test_a_request_behind_the_last_one_is_not_answered(running: RunningService) -> None:
    last = request("GET", "/healthz", None, b"Connection: close")
    with Connection(running).send(last + request("GET", "/healthz")) as connection:
        assert connection.answer().headers["connection"] == "close"
        assert connection.is_closed()


class Counting:
    """Answers everything with nothing, and knows how many requests waited behind one."""

    def __init__(self) -> None:
        self.most_waiting = 0

    async def serve(self, exchange: Any) -> None:
        self.most_waiting = max(self.most_waiting, len(exchange._protocol.pipeline))  # noqa: SLF001 - what is tested
        await exchange.answer(200, b"content-length: 0\r\n", b"")


def test_a_client_that_sends_without_pause_is_read_as_fast_as_it_is_answered(tmp_path: Path) -> None:
    message, count, read_at_once = request("GET", "/", None, b"X-A: " + b"a" * 4000), 4000, 256_000
    counting = Counting()
    with RunningService(tmp_path) as service:
        service.replace_application(counting)
        with Connection(service) as connection, ThreadPoolExecutor(1) as sender:
            sending = sender.submit(connection.socket.sendall, message * count)
            assert all(connection.answer().status == 200 for _ in range(count))
            sending.result()
    assert 8 < counting.most_waiting <= 2 * read_at_once / len(message)


# Bodies that end early, and clients that leave


@pytest.mark.parametrize("framing", [b"Content-Length: 100", b"Transfer-Encoding: chunked"])
def test_a_body_that_ends_early_writes_nothing(running: RunningService, alice: Client, framing: bytes) -> None:
    body = b'{"title": "Cut", "content": "c"}'
    piece = body if framing.startswith(b"Content") else b"%x\r\n%s\r\n" % (len(body), body)
    with Connection(running).send(request("POST", LISTINGS, alice.person.key, framing) + piece) as connection:
        connection.socket.shutdown(1)
        assert connection.is_closed()
    assert alice.get().json() == {"listings": []}


def test_a_client_that_has_said_all_and_listens_gets_its_answers(running: RunningService, alice: Client) -> None:
    message = request("POST", LISTINGS, alice.person.key, body=b'{"title": "t", "content": "c"}')
    with Connection(running).send(message * 3) as connection:
        connection.socket.shutdown(1)
        assert [connection.answer().status for _ in range(3)] == [201] * 3
        assert connection.is_closed()


def test_100_continue_is_sent_to_who_waits_for_it(running: RunningService, alice: Client) -> None:
    head = request("POST", LISTINGS, alice.person.key, b"Expect: 100-continue", b"Content-Length: 30")
    with Connection(running).send(head) as connection:
        assert connection.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert connection.send(b'{"title": "t", "content": "c"}').answer().status == 201


def test_who_waits_for_100_continue_and_is_refused_is_told_to_go(running: RunningService) -> None:
    head = request("POST", LISTINGS, None, b"Expect: 100-continue", b"Content-Length: 30")
    with Connection(running).send(head) as connection:
        answer = connection.answer()
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        assert connection.is_closed()


def test_a_refused_body_is_read_to_its_end_and_the_connection_goes_on(running: RunningService, cast: Cast) -> None:
    with Connection(running).send(
        request("POST", LISTINGS, "no-such-key-at-all", b"Content-Length: 1000000")
    ) as connection:
        assert connection.answer().status == 401
        connection.send(b"x" * 1_000_000)
        assert connection.send(request("GET", LISTINGS, cast.alice.key)).answer().status == 200


# Names of requests


def test_a_clients_own_request_id_is_kept(running: RunningService) -> None:
    with Connection(running).send(request("GET", "/healthz", None, b"X-Request-Id: order-66/b")) as connection:
        assert connection.answer().headers["x-request-id"] == "order-66/b"


@pytest.mark.parametrize("value", [b"", b"has space", b"x" * 129, b"\xff\xfe", b"tab\there"])
def test_a_request_id_that_is_not_visible_or_too_long_is_replaced(running: RunningService, value: bytes) -> None:
    with Connection(running).send(request("GET", "/healthz", None, b"X-Request-Id: " + value)) as connection:
        assert connection.answer().headers["x-request-id"].isalnum()


def test_a_request_id_of_128_characters_is_kept(running: RunningService) -> None:
    with Connection(running).send(request("GET", "/healthz", None, b"X-Request-Id: " + b"x" * 128)) as connection:
        assert connection.answer().headers["x-request-id"] == "x" * 128


# An application that fails


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[RunningService]:
    class Failing:
        async def serve(self, exchange: Any) -> None:
            if exchange.path == "/half":
                headers = [(b"content-length", b"9")]
                await exchange.send({"type": "http.response.start", "status": 200, "headers": headers})
            raise RuntimeError("beyond the application's own care")

    with RunningService(tmp_path) as service:
        service.replace_application(Failing())
        yield service


def test_a_failure_beyond_the_applications_care_is_500_logged_and_the_end_of_the_connection(
    failing: RunningService, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        with Connection(failing).send(request("GET", "/healthz")) as connection:
            assert_refused(connection.answer(), 500, "internal_error")
            assert connection.is_closed()
    assert caplog.text.count("The application failed") == 3


def test_a_failure_in_the_middle_of_an_answer_ends_the_connection(failing: RunningService) -> None:
    with Connection(failing).send(request("GET", "/half")) as connection, pytest.raises(ConnectionError):
        connection.answer()


def turns_until(running: RunningService, connections: int) -> int:
    """How many turns of its loop the service takes to let so many clients in, who came while it was busy."""
    with ExitStack() as clients:

        async def let_in(_: Any) -> int:
            for _ in range(connections):
                clients.enter_context(Connection(running))  # the loop stands still meanwhile
            turns = 0
            while running.open_connections < connections:
                await asyncio.sleep(0)
                turns += 1
            return turns

        return running.run(let_in)


def test_clients_who_wait_together_are_let_in_together(running: RunningService) -> None:
    assert turns_until(running, 60) < 30


class Standstill:
    """Stands in for a connection: behind the first look at it the service stands still; at the second, it is gone."""

    def __init__(self, connections: set[Any]) -> None:
        self._connections = connections
        self.stood_until = 0.0
        self.looked_again = 0.0

    def end_quiet(self, *_: float) -> None:
        if not self.stood_until:
            asyncio.get_running_loop().call_soon(self._stand_still)
        else:
            self.looked_again = time.monotonic()
            self._connections.discard(self)

    def _stand_still(self) -> None:
        time.sleep(0.3)
        self.stood_until = time.monotonic()

    def nothing(self, *_: float) -> None:
        """What it is asked for otherwise."""

    stop = drop = sweep = nothing


def test_a_stop_that_stood_still_reads_before_it_looks_who_is_quiet(tmp_path: Path) -> None:
    with RunningService(tmp_path) as service:
        connections: set[Any] = service._server.server_state.connections  # noqa: SLF001 - as if it had come
        connection = Standstill(connections)
        connections.add(connection)
    assert connection.looked_again - connection.stood_until > 0.03  # 20 ms, and 20 more for the look that came late
