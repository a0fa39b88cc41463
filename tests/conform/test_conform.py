"""`listings.conform` on our own service, and on a server with one fault at a time."""

import re
import ssl
from collections.abc import Iterable
from pathlib import Path

import pytest

from listings.conform import runner
from listings.conform.client import address_of
from listings.conform.session import Keys
from listings.conform.verdicts import Result, Verdict
from listings.domain.errors import Problem
from tests.certificates import create_certificate
from tests.conform.faulty_server import FAULTS, KEYS, LIBERTIES, LIMIT_FAULTS, FaultyServer, Row
from tests.harness import Cast, RunningService

ALL_KEYS = Keys(KEYS["alice"], KEYS["bob"], KEYS["charlie"])
OF_OTHER = {"list-4", "owner-1", "owner-2"}
OF_EXPIRED = {"auth-6"}
OF_LIMIT = {"limit-1", "limit-2", "limit-3"}


class Told:
    """What a run says about its listings."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def __call__(self, sentence: str) -> None:
        self.sentences.append(sentence)

    @property
    def left(self) -> set[int]:
        """The listings that could not be deleted, as the last sentence tells them."""
        _, _, left = self.sentences[-1].partition("could not be deleted: ")
        return {int(number) for number in re.findall(r"\d+", left)}


def checked(
    base_url: str, keys: Keys = ALL_KEYS, told: Told | None = None, *, rate_limit: bool = False
) -> list[Result]:
    return runner.run(address_of(base_url), keys, told or Told(), rate_limit=rate_limit, timeout=60)


def with_verdict(results: Iterable[Result], verdict: Verdict) -> set[str]:
    return {result.id for result in results if result.verdict is verdict}


def broken(results: Iterable[Result]) -> dict[str, str]:
    return {result.id: result.happened for result in results if result.verdict is Verdict.BROKEN}


def prevented(results: Iterable[Result]) -> dict[str, str]:
    return {result.id: result.happened for result in results if result.prevented}


# Our own service


def test_our_service_keeps_every_sentence(running: RunningService, cast: Cast) -> None:
    keys = Keys(cast.alice.key, cast.bob.key, cast.charlie.key)
    results = checked(running.base_url, keys, rate_limit=True)
    assert {result.id: result.happened for result in results if result.verdict is not Verdict.KEPT} == {}
    assert len({result.id for result in results}) == len(results) > 60
    assert next(result.happened for result in results if result.id == "limit-1").startswith("refused after 1000 ")


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ((), OF_OTHER | OF_EXPIRED | OF_LIMIT),
        (("bob",), OF_EXPIRED | OF_LIMIT),
        (("charlie",), OF_OTHER | OF_LIMIT),
        (("bob", "charlie"), OF_LIMIT),
    ],
)
def test_without_a_key_what_needs_it_is_not_checked(
    running: RunningService, cast: Cast, given: tuple[str, ...], missing: set[str]
) -> None:
    keys = Keys(
        cast.alice.key,
        cast.bob.key if "bob" in given else None,
        cast.charlie.key if "charlie" in given else None,
    )
    results = checked(running.base_url, keys)
    assert with_verdict(results, Verdict.NOT_CHECKED) == missing
    assert broken(results) == prevented(results) == {}


# Another implementation, and one fault at a time


def test_an_implementation_without_a_fault_keeps_every_sentence() -> None:
    with FaultyServer() as server:
        results = checked(server.base_url, rate_limit=True)
    assert {result.id: result.happened for result in results if result.verdict is not Verdict.KEPT} == {}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_breaks_the_checks_that_concern_it_and_no_others(fault: str) -> None:
    told = Told()
    with FaultyServer(fault) as server:
        results = checked(server.base_url, told=told)
        assert told.left == server.remaining
    assert broken(results).keys() == FAULTS[fault], broken(results)


@pytest.mark.parametrize("fault", LIMIT_FAULTS)
def test_a_fault_of_the_limit_breaks_the_check_that_concerns_it_and_no_others(fault: str) -> None:
    told = Told()
    with FaultyServer(fault) as server:
        results = checked(server.base_url, told=told, rate_limit=True)
        assert told.left == server.remaining
    assert broken(results).keys() == LIMIT_FAULTS[fault], broken(results)


def test_every_check_finds_some_fault() -> None:
    with FaultyServer() as server:
        ids = {result.id for result in checked(server.base_url)}
    assert set().union(*FAULTS.values(), *LIMIT_FAULTS.values()) == ids


def test_one_id_for_several_listings_is_found() -> None:
    with FaultyServer("one id for all") as server:
        assert "two listings have one id" in broken(checked(server.base_url))["create-2"]


# What nothing is said about


@pytest.mark.parametrize("liberty", LIBERTIES)
def test_a_liberty_that_the_specification_gives_breaks_nothing(liberty: str) -> None:
    with FaultyServer(liberty) as server:
        results = checked(server.base_url)
        assert server.remaining == set()
    assert broken(results) == prevented(results) == {}
    assert with_verdict(results, Verdict.NOT_CHECKED) == OF_LIMIT | LIBERTIES[liberty]


@pytest.mark.parametrize("fault", ["limit of 500", "limit of 1500"])
def test_a_limit_that_the_run_alone_does_not_show_to_be_wrong_is_not_called_broken(fault: str) -> None:
    with FaultyServer(fault) as server:
        results = checked(server.base_url, rate_limit=True)
    assert broken(results) == {}
    assert prevented(results).keys() == {"limit-1"}
    assert "run it again" in prevented(results)["limit-1"]


def test_a_limit_that_is_met_on_the_way_prevents_what_comes_after_it() -> None:
    told = Told()
    with FaultyServer() as server:
        server.market.refusal_of_limit = 429
        server.market.served["alice-key"] = 950
        results = checked(server.base_url, told=told)
        assert told.left == server.remaining != set()
    assert broken(results) == {}
    assert all("limits requests" in happened for happened in prevented(results).values())
    assert len(prevented(results)) > 10


def test_a_new_listing_that_may_be_on_another_page_is_not_called_missing() -> None:
    with FaultyServer("list shows a page of one") as server:
        server.market.rows[1] = Row("alice", {"title": "Hers", "is_active": True})
        results = checked(server.base_url)
    assert broken(results) == {}
    assert "page" in prevented(results)["list-2"]


# How a run behaves


def test_a_run_is_some_150_requests() -> None:
    with FaultyServer() as server:
        checked(server.base_url)
        assert 100 < len(server.requests) < 160


def test_a_base_address_may_have_a_path() -> None:
    with FaultyServer(prefix="/shop/api") as server:
        results = checked(f"{server.base_url}/")
    assert broken(results) == prevented(results) == {}


def test_it_speaks_https_to_whoever_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = create_certificate(tmp_path, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = FaultyServer()
    server.speak_tls(context)
    with server:
        with pytest.raises(Problem, match="certificate that is not trusted"):
            checked(server.base_url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        results = checked(server.base_url)
    assert broken(results) == prevented(results) == {}


def test_a_key_that_the_server_repeats_is_not_shown() -> None:
    with FaultyServer("keys are repeated") as server:
        results = checked(server.base_url)
    happened = " ".join(broken(results).values())
    assert "[a key] may not do that" in happened
    assert not any(key in happened for key in KEYS.values())


def test_a_key_that_is_refused_is_told_at_once() -> None:
    with FaultyServer() as server, pytest.raises(Problem, match="refused in both headers") as refused:
        checked(server.base_url, Keys("nobodys-key"))
    assert "nobodys-key" not in refused.value.message
    assert server.requests == ["GET", "GET"]


def test_an_other_key_that_opens_nothing_is_told() -> None:
    with FaultyServer() as server:
        results = checked(server.base_url, Keys(KEYS["alice"], "nobodys-key"))
    assert prevented(results).keys() == OF_OTHER
    assert all("--other-key does not open" in happened for happened in prevented(results).values())
