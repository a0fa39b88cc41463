"""Servers that can't be reached, or don't answer as a server should: a sentence or rows, never a traceback."""

import pytest

from listings.conform import runner
from listings.conform.client import Address, address_of
from listings.conform.session import Keys
from listings.conform.verdicts import Result, Verdict
from listings.domain.errors import Problem
from tests.conform import strange_servers
from tests.conform.strange_servers import Behaviour, StopsAnsweringAfter, server_that
from tests.harness import unused_port


def checked(base_url: str, timeout: float = 60) -> list[Result]:
    return runner.run(address_of(base_url), Keys("alice-key"), lambda _: None, timeout=timeout)


def sentence_about(base_url: str, timeout: float = 60) -> str:
    with pytest.raises(Problem) as refused:
        checked(base_url, timeout)
    assert refused.value.message.startswith("Nothing could be checked: GET /api/v1/listings")
    return refused.value.message


@pytest.mark.parametrize(
    "behaviour",
    [
        strange_servers.never_answers,
        strange_servers.answers_a_byte_at_a_time,
        strange_servers.sends_its_body_a_byte_at_a_time,
    ],
)
def test_a_server_that_does_not_answer_in_time_is_one_sentence(behaviour: Behaviour) -> None:
    with server_that(behaviour) as base_url:
        assert sentence_about(base_url, timeout=0.3).endswith("the server did not answer within 0.3 seconds")


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (strange_servers.closes, "closed the connection without an answer"),
        (strange_servers.speaks_something_else, "answered what is no HTTP/1.1"),
        (strange_servers.ends_its_answer_early, "ended its answer early"),
    ],
)
def test_a_server_that_does_not_answer_is_one_sentence(behaviour: Behaviour, said: str) -> None:
    with server_that(behaviour) as base_url:
        assert sentence_about(base_url).endswith(f"the server {said}")


def test_a_port_on_which_nothing_listens_is_one_sentence() -> None:
    with unused_port() as port:
        assert "refuses connections" in sentence_about(f"http://127.0.0.1:{port}")


def test_a_name_without_an_address_is_one_sentence() -> None:
    assert "no address is known" in sentence_about("http://no-such-host.invalid")


@pytest.mark.parametrize("host", [f"{'x' * 64}.example", "a..b"])
def test_a_name_that_can_be_none_is_one_sentence(host: str) -> None:
    assert "there can be no address" in sentence_about(f"http://{host}")


def test_tls_with_a_server_that_does_not_speak_it_is_one_sentence() -> None:
    with server_that(strange_servers.answers_html) as base_url:
        assert "does not speak TLS" in sentence_about(base_url.replace("http:", "https:"))


def test_a_connection_that_is_not_kept_is_no_fault() -> None:
    with server_that(strange_servers.closes_after_each_answer) as base_url:
        results = checked(base_url)
    assert {result.id for result in results if result.verdict is Verdict.KEPT} >= {"list-1", "json-1"}
    assert not any("closed the connection" in result.happened for result in results)


def test_what_a_terminal_would_obey_is_not_shown() -> None:
    with server_that(strange_servers.refuses_with_control_characters) as base_url, pytest.raises(Problem) as refused:
        checked(base_url)
    assert refused.value.message.isprintable()
    assert "]0;title" in refused.value.message


def test_a_server_of_web_pages_breaks_rows() -> None:
    with server_that(strange_servers.answers_html) as base_url:
        results = checked(base_url)
    found = {result.id: result for result in results}
    assert found["list-1"].verdict is found["json-1"].verdict is found["auth-3"].verdict is Verdict.BROKEN
    assert "Welcome" in found["json-1"].happened
    assert found["record-1"].prevented


def test_a_server_that_stops_answering_is_not_waited_for_again_and_again() -> None:
    behaviour = StopsAnsweringAfter(5)
    with server_that(behaviour) as base_url:
        results = checked(base_url, timeout=1)
    assert behaviour.connections < 10
    assert [result.happened for result in results].count("the server has stopped answering") > 40


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://127.0.0.1:8000", Address(secure=False, host="127.0.0.1", port=8000, prefix="")),
        ("https://Shop.example/", Address(secure=True, host="shop.example", port=None, prefix="")),
        ("https://[::1]:8443/shop/api/", Address(secure=True, host="::1", port=8443, prefix="/shop/api")),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", "127.0.0.1:8000", "ftp://shop.example", "http://", "http://:80", "http://shop.example:port"),
        *("http://shop.example:70000", "http://user:secret@shop.example", "http://shop.example?a=1"),
        *("http://shop.example#a", "http://shop example", "http://shop.example/\r\nX: y", "http://[::1"),
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be like https?://"):
        address_of(text)
