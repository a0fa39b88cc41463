"""Unreachable and misbehaving servers: `conform` prints an error or failed checks, never a traceback."""

import pytest

from listings.conform import runner
from listings.conform.client import Address, parse_address
from listings.conform.session import Keys
from listings.conform.verdicts import Result, Verdict
from listings.domain.errors import Problem
from tests.conform import strange_servers
from tests.conform.strange_servers import Behaviour, StopsRespondingAfter, serve
from tests.harness import unused_port


def run_checks(base_url: str, timeout: float = 60) -> list[Result]:
    return runner.run(parse_address(base_url), Keys("alice-key"), lambda _: None, timeout=timeout)


def read_error(base_url: str, timeout: float = 60) -> str:
    with pytest.raises(Problem) as raised:
        run_checks(base_url, timeout)
    assert raised.value.message.startswith("No check could run: GET /api/v1/listings")
    return raised.value.message


@pytest.mark.parametrize(
    "behaviour",
    [
        strange_servers.never_responds,
        strange_servers.sends_headers_byte_by_byte,
        strange_servers.sends_body_byte_by_byte,
    ],
)
def test_a_timeout_is_a_one_line_error(behaviour: Behaviour) -> None:
    with serve(behaviour) as base_url:
        assert read_error(base_url, timeout=0.3).endswith("the server did not respond within 0.3 seconds")


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        (strange_servers.closes, "closed the connection without a response"),
        (strange_servers.speaks_another_protocol, "sent something that is not HTTP/1.1"),
        (strange_servers.ends_response_early, "ended its response early"),
    ],
)
def test_an_incomplete_response_is_a_one_line_error(behaviour: Behaviour, message: str) -> None:
    with serve(behaviour) as base_url:
        assert read_error(base_url).endswith(f"the server {message}")


def test_a_closed_port_is_a_one_line_error() -> None:
    with unused_port() as port:
        assert "refuses connections" in read_error(f"http://127.0.0.1:{port}")


def test_an_unknown_host_is_a_one_line_error() -> None:
    assert "can't be resolved" in read_error("http://no-such-host.invalid")


@pytest.mark.parametrize("host", [f"{'x' * 64}.example", "a..b"])
def test_an_invalid_host_is_a_one_line_error(host: str) -> None:
    assert "invalid host name" in read_error(f"http://{host}")


def test_https_to_a_plain_http_server_is_a_one_line_error() -> None:
    with serve(strange_servers.sends_html) as base_url:
        assert "does not speak TLS" in read_error(base_url.replace("http:", "https:"))


def test_closing_idle_connections_is_not_a_failure() -> None:
    with serve(strange_servers.closes_after_each_response) as base_url:
        results = run_checks(base_url)
    assert {result.id for result in results if result.verdict is Verdict.PASSED} >= {"list-1", "json-1"}
    assert not any("closed the connection" in result.happened for result in results)


def test_control_characters_are_not_shown() -> None:
    with serve(strange_servers.sends_control_characters) as base_url, pytest.raises(Problem) as raised:
        run_checks(base_url)
    assert raised.value.message.isprintable()
    assert "]0;title" in raised.value.message


def test_html_responses_fail_checks() -> None:
    with serve(strange_servers.sends_html) as base_url:
        results = run_checks(base_url)
    by_id = {result.id: result for result in results}
    assert by_id["list-1"].verdict is by_id["json-1"].verdict is by_id["auth-3"].verdict is Verdict.FAILED
    assert "Welcome" in by_id["json-1"].happened
    assert by_id["record-1"].verdict is Verdict.BLOCKED


def test_a_run_stops_waiting_after_several_timeouts() -> None:
    behaviour = StopsRespondingAfter(5)
    with serve(behaviour) as base_url:
        results = run_checks(base_url, timeout=1)
    assert behaviour.connections < 10
    assert [result.happened for result in results].count("the server no longer responds") > 40


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://127.0.0.1:8000", Address(secure=False, host="127.0.0.1", port=8000, prefix="")),
        ("https://Shop.example/", Address(secure=True, host="shop.example", port=443, prefix="")),
        ("http://[fe80::abcd]", Address(secure=False, host="fe80::abcd", port=80, prefix="")),
        ("https://[::1]:8443/shop/api/", Address(secure=True, host="::1", port=8443, prefix="/shop/api")),
    ],
)
def test_base_urls_are_parsed(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", "127.0.0.1:8000", "ftp://shop.example", "http://", "http://:80", "http://shop.example:port"),
        *("http://shop.example:70000", "http://user:secret@shop.example", "http://shop.example?a=1"),
        *("http://shop.example#a", "http://shop example", "http://shop.example/\r\nX: y", "http://[::1"),
    ],
)
def test_invalid_base_urls_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be like https?://"):
        parse_address(text)
