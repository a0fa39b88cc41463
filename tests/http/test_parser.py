"""The parser of requests, without a connection."""

import pytest

from listings.domain.errors import Problem
from listings.http.connection.parser import RequestParser
from listings.http.limits import ConnectionLimits


class Receiver:
    def begin_head(self) -> None:
        pass

    def receive_head(self) -> None:
        pass

    def receive_body(self, part: bytes) -> None:
        pass

    def end_request(self) -> None:
        pass


def test_empty_lines_after_a_request_count_towards_the_next_head() -> None:
    parser = RequestParser(Receiver(), ConnectionLimits())
    parser.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    for _ in range(12):
        parser.feed(b"\r\n" * 1_000)
    with pytest.raises(Problem, match="headers"):
        parser.feed(b"\r\n" * 1_000)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"!!bad request\r\n\r\n", "malformed_request"),
        (b"GET /%s HTTP/1.1\r\n" % (b"a" * 9_000), "uri_too_long"),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", "malformed_request"),
        (b"GET / HTTP/1.1\r\nX: %s\r\n\r\n" % (b"a" * 17_000), "header_too_large"),
        (b"GET / HTTP/1.1\r\n\r\n", "malformed_request"),
    ],
)
def test_an_error_is_reported_even_while_another_one_is_handled(data: bytes, code: str) -> None:
    parser = RequestParser(Receiver(), ConnectionLimits())
    try:
        raise Problem("cross_site", "This form was sent from another site")  # noqa: TRY301 - as a page does
    except Problem:
        with pytest.raises(Problem) as raised:
            parser.feed(data)
    assert raised.value.code == code
