"""Every kind of failure, and the one shape in which a client hears of it (decisions G21, G27, G31, G32)."""

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from listings.api import codec
from listings.api.app import Application
from listings.domain import api_keys
from listings.domain.errors import Code
from listings.domain.model import Caller
from listings.ratelimit.memory import MemoryLimiter
from listings.service import Service
from listings.store.sqlite.store import SqliteStore
from tests.harness import Cast, Harness, Reply, RunningService, fetch
from tests.http.raw import Connection

LISTINGS = "/api/v1/listings"
TOO_LARGE = b" " * (2 * 1024 * 1024 + 1)
SOUND = {"title": "Bicycle", "content": "Two wheels."}
KEYED = {"Idempotency-Key": "first"}
SECRET_DETAIL = "disk sda1 at /var/lib/listings is on fire"

Provoke: TypeAlias = Callable[[Harness, Cast], Reply]


class BrokenStore(SqliteStore):
    """Has a bug."""

    async def find_caller(self, digest: bytes) -> Caller | None:  # noqa: ARG002 - the contract names it
        raise RuntimeError(SECRET_DETAIL)


def create(harness: Harness, key: str) -> str:
    """The path of a new listing."""
    return harness.fetch("POST", LISTINGS, key=key, json=SOUND).headers["location"]


def deleted(harness: Harness, key: str) -> str:
    """The path of a listing that was deleted."""
    path = create(harness, key)
    harness.fetch("DELETE", path, key=key)
    return path


def revoked(harness: Harness, cast: Cast) -> str:
    harness.run(harness.service.revoke_key(cast.alice.key_id))
    return cast.alice.key


def get_from(harness: Harness, service: Service, key: str, times: int = 1) -> Reply:
    """The last of some answers of an application over another service."""
    application = Application(service)
    headers = [(b"x-api-key", key.encode())]
    return [harness.run(fetch(application, "GET", LISTINGS, headers, [b""])) for _ in range(times)][-1]


def beyond_the_limit(harness: Harness, cast: Cast) -> Reply:
    return get_from(
        harness, Service(harness.service.store, MemoryLimiter(2, 60), harness.clock), cast.alice.key, times=3
    )


def disabled(harness: Harness, cast: Cast) -> str:
    harness.run(harness.service.disable_account(cast.bob.account.email))
    return cast.bob.key


def with_a_bug(harness: Harness, cast: Cast) -> Reply:
    return get_from(harness, Service(BrokenStore(harness.settings.file), None), cast.alice.key)


def with_a_closed_store(harness: Harness, key: str, method: str = "GET") -> Reply:
    harness.run(harness.service.store.close())
    return harness.fetch(method, LISTINGS, key=key, json=SOUND)


def with_a_key_of_another_body(harness: Harness, key: str) -> Reply:
    harness.fetch("POST", LISTINGS, key=key, json=SOUND, headers=KEYED)
    return harness.fetch("POST", LISTINGS, key=key, json={**SOUND, "price": 5}, headers=KEYED)


FAILURES: dict[str, tuple[Code, Provoke]] = {
    "no key": ("api_key_required", lambda harness, _: harness.fetch("GET", LISTINGS)),
    "an unknown key": ("invalid_api_key", lambda harness, _: harness.fetch("GET", LISTINGS, key=api_keys.generate())),
    "a malformed key": ("invalid_api_key", lambda harness, _: harness.fetch("DELETE", LISTINGS + "/1", key="x")),
    "a revoked key": (
        "invalid_api_key",
        lambda harness, cast: harness.fetch("GET", LISTINGS, key=revoked(harness, cast)),
    ),
    "an expired plan": ("plan_expired", lambda harness, cast: harness.fetch("GET", LISTINGS, key=cast.charlie.key)),
    "a disabled account": (
        "account_disabled",
        lambda harness, cast: harness.fetch("GET", LISTINGS, key=disabled(harness, cast)),
    ),
    "reading a foreign listing": (
        "not_owner",
        lambda harness, cast: harness.fetch("GET", create(harness, cast.alice.key), key=cast.bob.key),
    ),
    "editing a foreign listing": (
        "not_owner",
        lambda harness, cast: harness.fetch("PUT", create(harness, cast.alice.key), key=cast.bob.key, json=SOUND),
    ),
    "deleting a foreign listing": (
        "not_owner",
        lambda harness, cast: harness.fetch("DELETE", deleted(harness, cast.alice.key), key=cast.bob.key),
    ),
    "a missing listing": (
        "listing_not_found",
        lambda harness, cast: harness.fetch("GET", f"{LISTINGS}/1025", key=cast.alice.key),
    ),
    "what is no id": (
        "listing_not_found",
        lambda harness, cast: harness.fetch("PATCH", f"{LISTINGS}/abc", key=cast.alice.key, json=SOUND),
    ),
    "a deleted listing": (
        "listing_not_found",
        lambda harness, cast: harness.fetch("DELETE", deleted(harness, cast.alice.key), key=cast.alice.key),
    ),
    "an unknown path": ("path_not_found", lambda harness, _: harness.fetch("GET", "/api/v2/listings")),
    "another method": ("method_not_allowed", lambda harness, _: harness.fetch("DELETE", LISTINGS)),
    "a missing field": (
        "invalid_request",
        lambda harness, cast: harness.fetch("POST", LISTINGS, key=cast.alice.key, json={"title": "a"}),
    ),
    "a bad field": (
        "invalid_request",
        lambda harness, cast: harness.fetch(
            "PATCH", create(harness, cast.alice.key), key=cast.alice.key, json={"price": "5", "type": "car"}
        ),
    ),
    "a bad parameter": (
        "invalid_request",
        lambda harness, cast: harness.fetch("GET", f"{LISTINGS}?limit=0&sort=colour", key=cast.alice.key),
    ),
    "an update of an older version": (
        "precondition_failed",
        lambda harness, cast: harness.fetch(
            "PUT", create(harness, cast.alice.key), key=cast.alice.key, json=SOUND, headers={"If-Match": '"v7.0"'}
        ),
    ),
    "a key of another body": (
        "idempotency_key_reused",
        lambda harness, cast: with_a_key_of_another_body(harness, cast.alice.key),
    ),
    "a batch without operations": (
        "invalid_request",
        lambda harness, cast: harness.fetch("POST", f"{LISTINGS}/batch", key=cast.alice.key, json={"operations": []}),
    ),
    "restoring a foreign listing": (
        "not_owner",
        lambda harness, cast: harness.fetch("POST", deleted(harness, cast.alice.key) + "/restore", key=cast.bob.key),
    ),
    "malformed JSON": (
        "malformed_json",
        lambda harness, cast: harness.fetch("POST", LISTINGS, key=cast.alice.key, body=b"{not json"),
    ),
    "invalid UTF-8": (
        "malformed_json",
        lambda harness, cast: harness.fetch("POST", LISTINGS, key=cast.alice.key, body=b'{"title": "\xff"}'),
    ),
    "an empty body": (
        "malformed_json",
        lambda harness, cast: harness.fetch("PUT", create(harness, cast.alice.key), key=cast.alice.key),
    ),
    "a body that is too large": (
        "body_too_large",
        lambda harness, cast: harness.fetch("POST", LISTINGS, key=cast.alice.key, body=TOO_LARGE),
    ),
    "a compressed body": (
        "unsupported_encoding",
        lambda harness, cast: harness.fetch(
            "POST", LISTINGS, key=cast.alice.key, body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"}
        ),
    ),
    "too many requests": ("rate_limited", beyond_the_limit),
    "a store that can't be read": ("unavailable", lambda harness, cast: with_a_closed_store(harness, cast.alice.key)),
    "a store that can't be written": (
        "unavailable",
        lambda harness, cast: with_a_closed_store(harness, cast.alice.key, "POST"),
    ),
    "a bug": ("internal_error", with_a_bug),
}


ON_THE_WIRE: dict[str, tuple[Code, bytes]] = {
    "what is no HTTP": ("malformed_request", b"\x16\x03\x01\x02\r\n\r\n"),
    "an unknown method": ("malformed_request", b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "a slow head": ("request_timeout", b"GET / HTTP/1.1\r\nHost: localhost\r\n"),
    "a long address": ("uri_too_long", b"GET /%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"x" * 9000)),
    "a large head": ("header_too_large", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: %b\r\n\r\n" % (b"x" * 20_000)),
    "another version of HTTP": ("version_not_supported", b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n"),
}


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service that gives a head one second to arrive."""
    with RunningService(tmp_path_factory.mktemp("impatient"), header_timeout="1") as service:
        yield service


@pytest.fixture(
    scope="module",
    params=[*FAILURES.values(), *ON_THE_WIRE.values()],
    ids=[kind.replace(" ", "_") for kind in (*FAILURES, *ON_THE_WIRE)],
)
def failure(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, impatient: RunningService
) -> tuple[Code, Reply]:
    """The code that is expected, and the answer that came."""
    code, provoke = request.param
    if isinstance(provoke, bytes):
        with Connection(impatient).send(provoke) as connection:
            return code, Reply(*connection.read_response())
    with Harness(tmp_path_factory.mktemp("house")) as harness:
        return code, provoke(harness, harness.cast())


@pytest.mark.decision("G31")
def test_every_failure_is_an_object_with_one_sentence_under_error(failure: tuple[Code, Reply]) -> None:
    content = failure[1].json()
    assert list(content) == ["error"]
    assert isinstance(content["error"], str)
    assert re.fullmatch(r"[A-Za-z][^\n]+[^\n.]", content["error"])


@pytest.mark.decision("G27")
def test_every_failure_has_the_status_of_its_code(failure: tuple[Code, Reply]) -> None:
    code, reply = failure
    assert (reply.headers["x-error-code"], reply.status) == (code, codec.STATUS[code])


def test_every_failure_has_the_headers_of_every_answer(failure: tuple[Code, Reply]) -> None:
    headers = failure[1].headers
    assert headers["content-type"] == "application/json; charset=utf-8"
    assert headers["content-length"] == str(len(failure[1].body))
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["x-request-id"]


@pytest.mark.decision("G31")
def test_only_the_failures_that_call_for_it_have_a_header_more(failure: tuple[Code, Reply]) -> None:
    code, reply = failure
    assert ("www-authenticate" in reply.headers) == (code in {"api_key_required", "invalid_api_key"})
    assert ("retry-after" in reply.headers) == (code in {"rate_limited", "unavailable"})
    assert ("allow" in reply.headers) == (code == "method_not_allowed")


def test_no_failure_tells_of_the_programs_inside(failure: tuple[Code, Reply]) -> None:
    text = failure[1].body.decode()
    assert not re.search(r"Traceback|Error\b|apsw|sqlite|SQL|msgspec|`|\.py|/var/|None|0x", text)


@pytest.mark.decision("G31")
def test_every_code_that_a_client_can_meet_is_provoked_here() -> None:
    # An answer as a whole is never dependency_failed, only that to an operation of a batch (test_batch.py).
    provoked = {code for code, _ in (*FAILURES.values(), *ON_THE_WIRE.values())}
    assert provoked == codec.STATUS.keys() - {"dependency_failed"}


def test_the_statuses_are_those_of_the_specification_and_of_the_decisions() -> None:
    assert (
        codec.STATUS.items()
        >= {
            "invalid_request": 400,
            "malformed_json": 400,
            "api_key_required": 401,
            "invalid_api_key": 401,
            "not_owner": 403,
            "plan_expired": 403,
            "account_disabled": 403,
            "listing_not_found": 404,
            "path_not_found": 404,
            "method_not_allowed": 405,
            "precondition_failed": 412,
            "body_too_large": 413,
            "unsupported_encoding": 415,
            "idempotency_key_reused": 422,
            "dependency_failed": 424,
            "rate_limited": 429,
            "internal_error": 500,
            "unavailable": 503,
            "malformed_request": 400,
            "request_timeout": 408,
            "uri_too_long": 414,
            "header_too_large": 431,
        }.items()
    )


def test_a_bug_is_logged_with_the_id_of_its_request_and_told_to_nobody(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    reply = with_a_bug(harness, harness.cast())
    assert reply.json() == {"error": "Something went wrong on our side"}
    assert SECRET_DETAIL not in str(reply.headers)
    assert reply.headers["x-request-id"] in caplog.text
    assert SECRET_DETAIL in caplog.text


def test_a_failure_that_is_the_clients_own_is_not_logged_as_ours(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    for code, provoke in FAILURES.values():
        if code not in {"internal_error", "unavailable"}:
            provoke(harness, harness.cast())
    assert not [record for record in caplog.records if record.levelname in {"ERROR", "CRITICAL"}]


def test_a_store_that_is_away_says_when_to_come_again(harness: Harness) -> None:
    reply = with_a_closed_store(harness, harness.cast().alice.key)
    assert int(reply.headers["retry-after"]) >= 1


def test_the_answer_to_head_has_the_headers_of_a_failure_and_no_body(harness: Harness) -> None:
    head, get = harness.fetch("HEAD", LISTINGS), harness.fetch("GET", LISTINGS)
    assert (head.status, head.body) == (401, b"")
    assert head.headers | {"x-request-id": ""} == get.headers | {"x-request-id": ""}


@pytest.mark.decision("G32")
def test_several_faults_of_one_body_are_joined_with_semicolons(harness: Harness) -> None:
    reply = harness.fetch("POST", LISTINGS, key=harness.cast().alice.key, json={"price": -1, "is_active": "no"})
    assert reply.json()["error"].split("; ") == [
        "price must be from 0 to 999999999.99, got -1",
        'is_active must be true or false, got "no"',
        "title is required",
        "content is required",
    ]


@pytest.mark.decision("G21")
def test_all_checks_come_in_one_order(harness: Harness) -> None:
    # A request with every fault at once is healed of one after the other.
    alice, bob, charlie = harness.cast()
    limited = Application(Service(harness.service.store, MemoryLimiter(1, 60), harness.clock))
    harness.run(fetch(limited, "GET", LISTINGS, [(b"x-api-key", charlie.key.encode())], [b""]))
    own, foreign, gone = create(harness, alice.key), create(harness, bob.key), deleted(harness, alice.key)
    gzip, stale = {"Content-Encoding": "gzip"}, {"If-Match": '"v7.0"'}

    def send(method: str, path: str, key: str | None, body: bytes, headers: dict[str, str]) -> str:
        return harness.fetch(method, path, key=key, body=body, headers=headers).headers["x-error-code"]

    encoded = [(b"x-api-key", charlie.key.encode()), (b"content-encoding", b"gzip")]
    over = harness.run(fetch(limited, "PUT", foreign, encoded, [TOO_LARGE]))
    assert [
        send("BREW", foreign + "/x", None, TOO_LARGE, gzip),
        send("BREW", foreign, None, TOO_LARGE, gzip),
        send("PUT", foreign, None, TOO_LARGE, gzip),
        send("PUT", foreign, "wrong", TOO_LARGE, gzip),
        over.headers["x-error-code"],
        send("PUT", foreign, charlie.key, TOO_LARGE, gzip),
        send("PUT", foreign, alice.key, TOO_LARGE, gzip),
        send("PUT", foreign, alice.key, TOO_LARGE, {}),
        send("PUT", f"{LISTINGS}/1", alice.key, b"{not json", stale),
        send("PUT", foreign, alice.key, b"{not json", stale),
        send("PUT", gone, alice.key, b"{not json", stale),
        send("PUT", own, alice.key, b"{not json", stale),
        send("PUT", own, alice.key, b'{"price": -1}', stale),
        send("PUT", own, alice.key, b'{"price": 1}', stale),
    ] == [
        "path_not_found",
        "method_not_allowed",
        "api_key_required",
        "invalid_api_key",
        "rate_limited",
        "plan_expired",
        "unsupported_encoding",
        "body_too_large",
        "listing_not_found",
        "not_owner",
        "listing_not_found",
        "malformed_json",
        "invalid_request",
        "precondition_failed",
    ]
