"""Run `listings.conform` against this service, and against a server with one fault at a time."""

import re
import ssl
import threading
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from listings.conform import limits, runner
from listings.conform.client import Client, parse_address
from listings.conform.session import Keys, Session
from listings.conform.verdicts import Failed, Result, Verdict
from listings.domain.errors import Problem
from tests.certificates import create_certificate
from tests.conform.faulty_server import ALLOWED_VARIATIONS, FAULTS, KEYS, LIMIT_FAULTS, FaultyServer, Row
from tests.harness import TIMEOUT, Cast, RunningService

ALL_KEYS = Keys(KEYS["alice"], KEYS["bob"], KEYS["charlie"])
NEED_OTHER_KEY = {"list-4", "owner-1", "owner-2"}
NEED_EXPIRED_KEY = {"auth-6"}
NEED_RATE_LIMIT = {"limit-1", "limit-2", "limit-3"}


SPECIFICATION = Path(__file__).parent.parent.parent / "docs/specification.md"


class Report:
    """Collects the messages of a run about its listings."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def __call__(self, message: str) -> None:
        self.messages.append(message)

    @property
    def remaining(self) -> set[int]:
        """The ids of the listings that, according to the last message, could not be deleted."""
        _, _, remaining = self.messages[-1].partition("could not be deleted: ")
        return {int(number) for number in re.findall(r"\d+", remaining)}


def run_checks(
    base_url: str, keys: Keys = ALL_KEYS, report: Report | None = None, *, rate_limit: bool = False
) -> list[Result]:
    return runner.run(parse_address(base_url), keys, report or Report(), rate_limit=rate_limit, timeout=60)


def with_verdict(results: Iterable[Result], verdict: Verdict) -> dict[str, str]:
    return {result.id: result.happened for result in results if result.verdict is verdict}


def failed(results: Iterable[Result]) -> dict[str, str]:
    return with_verdict(results, Verdict.FAILED)


def blocked(results: Iterable[Result]) -> dict[str, str]:
    return with_verdict(results, Verdict.BLOCKED)


def skipped(results: Iterable[Result]) -> set[str]:
    return set(with_verdict(results, Verdict.SKIPPED))


def not_passed(results: Iterable[Result]) -> dict[str, str]:
    return {result.id: result.happened for result in results if result.verdict is not Verdict.PASSED}


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (1, "The run created 1 listing and deleted it again."),
        (2, "The run created 2 listings and deleted them again."),
    ],
)
def test_the_sentence_about_the_listings_has_the_right_number(count: int, sentence: str) -> None:
    with FaultyServer() as server, closing(Client(parse_address(server.base_url), 60)) as client:
        session = Session(client, ALL_KEYS)
        for _ in range(count):
            session.send("POST", body={"title": session.title_prefix, "content": "Lamp"})
        assert session.clean_up() == sentence


def test_a_create_without_a_response_in_time_is_deleted() -> None:
    methods: list[str] = []
    may_respond = threading.Event()

    def delay_the_first(method: str) -> None:
        methods.append(method)
        if len(methods) == 1:
            may_respond.wait(TIMEOUT)

    server = FaultyServer(before_response=delay_the_first)
    with server, closing(Client(parse_address(server.base_url), 0.5)) as client:
        session = Session(client, ALL_KEYS)
        body: dict[str, object] = {"title": session.title_prefix, "content": "Lamp"}
        with pytest.raises(Failed, match="did not respond"):
            session.send("POST", body=body)
        may_respond.set()
        session.send("POST", body=body)
        assert session.clean_up() == "The run created 2 listings and deleted them again."
    assert server.remaining == set()


def test_a_list_that_repeats_records_ends_no_run() -> None:
    with FaultyServer("list repeats records") as server:
        assert len(run_checks(server.base_url)) > 60


# This service


def test_this_service_passes_every_check(running: RunningService, cast: Cast) -> None:
    keys = Keys(cast.alice.key, cast.bob.key, cast.charlie.key)
    results = run_checks(running.base_url, keys, rate_limit=True)
    assert not_passed(results) == {}
    assert len({result.id for result in results}) == len(results) > 60
    assert next(result.happened for result in results if result.id == "limit-1").startswith("rejected after 1000 ")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((), NEED_OTHER_KEY | NEED_EXPIRED_KEY | NEED_RATE_LIMIT),
        (("bob",), NEED_EXPIRED_KEY | NEED_RATE_LIMIT),
        (("charlie",), NEED_OTHER_KEY | NEED_RATE_LIMIT),
        (("bob", "charlie"), NEED_RATE_LIMIT),
    ],
)
def test_checks_without_their_key_are_skipped(
    running: RunningService, cast: Cast, given: tuple[str, ...], expected: set[str]
) -> None:
    keys = Keys(
        cast.alice.key,
        cast.bob.key if "bob" in given else None,
        cast.charlie.key if "charlie" in given else None,
    )
    results = run_checks(running.base_url, keys)
    assert skipped(results) == expected
    assert failed(results) == blocked(results) == {}


# Another implementation, with one fault at a time


def test_a_correct_server_passes_every_check() -> None:
    with FaultyServer() as server:
        results = run_checks(server.base_url, rate_limit=True)
    assert not_passed(results) == {}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_only_the_checks_about_it(fault: str) -> None:
    report = Report()
    with FaultyServer(fault) as server:
        results = run_checks(server.base_url, report=report)
        assert report.remaining == server.remaining
    assert failed(results).keys() == FAULTS[fault], failed(results)


@pytest.mark.parametrize("fault", LIMIT_FAULTS)
def test_a_fault_of_the_rate_limit_fails_only_the_check_about_it(fault: str) -> None:
    report = Report()
    with FaultyServer(fault) as server:
        results = run_checks(server.base_url, report=report, rate_limit=True)
        assert report.remaining == server.remaining
    assert failed(results).keys() == LIMIT_FAULTS[fault], failed(results)


def test_every_check_detects_at_least_one_fault() -> None:
    with FaultyServer() as server:
        ids = {result.id for result in run_checks(server.base_url)}
    assert set().union(*FAULTS.values(), *LIMIT_FAULTS.values()) == ids


def test_the_same_id_for_several_listings_is_detected() -> None:
    with FaultyServer("one id for all") as server:
        assert "two listings have the same id" in failed(run_checks(server.base_url))["create-2"]


# Behaviour that the specification leaves open


@pytest.mark.parametrize("variation", ALLOWED_VARIATIONS)
def test_an_allowed_variation_fails_no_check(variation: str) -> None:
    with FaultyServer(variation) as server:
        results = run_checks(server.base_url)
        assert server.remaining == set()
    assert failed(results) == blocked(results) == {}
    assert skipped(results) == NEED_RATE_LIMIT | ALLOWED_VARIATIONS[variation]


@pytest.mark.parametrize("fault", ["limit of 500", "limit of 1500"])
def test_a_limit_that_one_run_cannot_prove_wrong_does_not_fail(fault: str) -> None:
    with FaultyServer(fault) as server:
        results = run_checks(server.base_url, rate_limit=True)
    assert failed(results) == {}
    assert blocked(results).keys() == {"limit-1"}
    assert "run it again" in blocked(results)["limit-1"]


def test_reaching_the_rate_limit_blocks_the_remaining_checks() -> None:
    report = Report()
    with FaultyServer() as server:
        server.market.rate_limit_status = 429
        server.market.counts["alice-key"] = 950
        results = run_checks(server.base_url, report=report)
        assert report.remaining == server.remaining != set()
    assert failed(results) == {}
    assert all("limits requests" in happened for happened in blocked(results).values())
    assert len(blocked(results)) > 10


def test_a_listing_that_may_be_on_another_page_is_not_missing() -> None:
    with FaultyServer("list shows a page of one") as server:
        server.market.rows[1] = Row("alice", {"title": "Hers", "is_active": True})
        results = run_checks(server.base_url)
    assert failed(results) == {}
    assert "page" in blocked(results)["list-2"]


# Requests, keys and addresses


def test_a_run_sends_about_150_requests() -> None:
    with FaultyServer() as server:
        run_checks(server.base_url)
        assert 100 < len(server.requests) < 160


def test_the_base_url_may_have_a_path() -> None:
    with FaultyServer(prefix="/shop/api") as server:
        results = run_checks(f"{server.base_url}/")
    assert failed(results) == blocked(results) == {}


def test_https_requires_a_trusted_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = create_certificate(tmp_path, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = FaultyServer()
    server.enable_tls(context)
    with server:
        with pytest.raises(Problem, match="certificate that is not trusted"):
            run_checks(server.base_url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        results = run_checks(server.base_url)
    assert failed(results) == blocked(results) == {}


def test_each_check_quotes_its_section_of_the_specification() -> None:
    sections = re.split(r"^##+ (.*)$", SPECIFICATION.read_text("utf-8"), flags=re.MULTILINE)
    texts = dict(zip(sections[1::2], sections[2::2], strict=True))
    checks = [check for subject in (*runner.SUBJECTS, limits) for check in subject.CHECKS]
    assert [check.id for check in checks if check.sentence not in texts[check.section]] == []


def test_a_key_repeated_by_the_server_is_not_shown() -> None:
    with FaultyServer("keys are repeated") as server:
        results = run_checks(server.base_url)
    happened = " ".join(failed(results).values())
    assert "[a key] may not do that" in happened
    assert not any(key in happened for key in KEYS.values())


def test_a_rejected_key_ends_the_run() -> None:
    with FaultyServer() as server, pytest.raises(Problem, match="rejects --key in both headers") as raised:
        run_checks(server.base_url, Keys("unknown-key"))
    assert "unknown-key" not in raised.value.message
    assert server.requests == ["GET", "GET"]


def test_a_rejected_other_key_blocks_its_checks() -> None:
    with FaultyServer() as server:
        results = run_checks(server.base_url, Keys(KEYS["alice"], "unknown-key"))
    assert blocked(results).keys() == NEED_OTHER_KEY
    assert all("--other-key can't read" in happened for happened in blocked(results).values())
