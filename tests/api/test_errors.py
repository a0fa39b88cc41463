"""Every kind of failure, and the one shape of its response (decisions G21, G27, G31, G32)."""

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import TypeAlias, cast

import pytest

from listings.api.app import Application
from listings.api.docs.texts import ERROR_DOCS
from listings.api.images import IMAGES_PATH
from listings.domain import api_keys
from listings.domain.account_limits import AccountLimits
from listings.domain.errors import STATUS, Code
from listings.domain.model import Caller
from listings.domain.pictures import find_name
from listings.http.limits import ConnectionLimits
from listings.ratelimit.memory import MemoryLimiter
from listings.service import Services
from listings.service.history.change_waits import MAX_WAITS, Poll
from listings.store.sqlite.store import SqliteStore
from tests.api.helpers import LISTINGS
from tests.harness import Cast, Harness, Reply, RunningService, fetch
from tests.http.raw import Connection
from tests.pictures import photo

TOO_LARGE = b" " * (2 * 1024 * 1024 + 1)
VALID = {"title": "Bicycle", "content": "Two wheels."}
KEYED = {"Idempotency-Key": "first"}
SECRET_DETAIL = "disk sda1 at /var/lib/listings is on fire"

Provoke: TypeAlias = Callable[[Harness, Cast], Reply]


class BrokenStore(SqliteStore):
    """Raises an unexpected exception."""

    async def find_caller(self, digest: bytes) -> Caller | None:  # noqa: ARG002 - named by the contract
        raise RuntimeError(SECRET_DETAIL)


def create(harness: Harness, key: str) -> str:
    """Return the path of a new listing."""
    return harness.fetch("POST", LISTINGS, key=key, json=VALID).headers["location"]


def create_deleted(harness: Harness, key: str) -> str:
    path = create(harness, key)
    harness.fetch("DELETE", path, key=key)
    return path


def revoke_key(harness: Harness, cast: Cast) -> str:
    harness.run(harness.services.keys.revoke(cast.alice.key_id))
    return cast.alice.key


def get_from(harness: Harness, services: Services, key: str, times: int = 1) -> Reply:
    """Request the list from an application over another service; return the last response."""
    application = Application(services)
    headers = [(b"x-api-key", key.encode())]
    return [harness.run(fetch(application, "GET", LISTINGS, headers, [b""])) for _ in range(times)][-1]


def exceed_rate_limit(harness: Harness, cast: Cast) -> Reply:
    return get_from(harness, Services(harness.store, MemoryLimiter(2, 60), harness.clock), cast.alice.key, times=3)


def disable_account(harness: Harness, cast: Cast) -> str:
    harness.run(harness.services.accounts.disable(cast.bob.account.email))
    return cast.bob.key


def exceed_waits(harness: Harness, cast: Cast) -> Reply:
    key = cast.alice.key.encode()

    async def wait() -> Reply:
        caller = await harness.store.find_caller(api_keys.digest(cast.alice.key))
        assert caller is not None
        poll = Poll(after=0, limit=1, timeout=30, gather=0)
        waits = [
            asyncio.ensure_future(harness.services.change_waits.wait(caller, poll, asyncio.Event().wait))
            for _ in range(MAX_WAITS)
        ]
        await asyncio.sleep(0)
        reply = await fetch(harness.application, "GET", "/api/v1/changes?timeout=1", [(b"x-api-key", key)], [b""])
        for one in waits:
            one.cancel()
        return reply

    return harness.run(wait())


def raise_unexpected_exception(harness: Harness, cast: Cast) -> Reply:
    return get_from(harness, Services(BrokenStore(harness.settings.file), None), cast.alice.key)


def use_closed_store(harness: Harness, key: str, method: str = "GET") -> Reply:
    harness.run(harness.store.close())
    return harness.fetch(method, LISTINGS, key=key, json=VALID)


def reuse_idempotency_key(harness: Harness, key: str) -> Reply:
    harness.fetch("POST", LISTINGS, key=key, json=VALID, headers=KEYED)
    return harness.fetch("POST", LISTINGS, key=key, json={**VALID, "price": 5}, headers=KEYED)


def delete_used(harness: Harness, key: str) -> Reply:
    url = harness.fetch("POST", IMAGES_PATH, key=key, body=photo()).json()["url"]
    harness.fetch("POST", LISTINGS, key=key, json={**VALID, "images": [url]})
    return harness.fetch("DELETE", f"{IMAGES_PATH}/{find_name(url)}", key=key)


def take_external_id(harness: Harness, key: str) -> Reply:
    body = {**VALID, "external_id": "sku-17"}
    harness.fetch("POST", LISTINGS, key=key, json=body)
    return harness.fetch("POST", LISTINGS, key=key, json=body)


def fill_account(harness: Harness, key: str, query: str = "") -> Reply:
    engine = cast("SqliteStore", harness.store).engine
    limits, engine.limits = engine.limits, AccountLimits(listings=0)
    try:
        return harness.fetch("POST", LISTINGS + query, key=key, json=VALID)
    finally:
        engine.limits = limits


def revert_twice(harness: Harness, key: str) -> Reply:
    """Send a second revert while one that needs several transactions is unfinished."""
    create = {"op": "create", "listing": VALID}
    for _ in range(3):
        harness.fetch("POST", f"{LISTINGS}/batch", key=key, json={"operations": [create] * 100})
    last = harness.fetch("GET", "/api/v1/changes?after=0", key=key).json()["change_sets"][-1]
    body = {"key": last["actor"]["id"], "since": last["time"]}
    harness.fetch("POST", "/api/v1/changes/revert", key=key, json=body)
    return harness.fetch("POST", "/api/v1/changes/revert", key=key, json=body)


def add_read_key(harness: Harness, cast: Cast) -> str:
    issued = harness.run(harness.services.keys.add(cast.alice.account, "reader", api_keys.generate(), access="read"))
    return issued.secret


FAILURES: dict[str, tuple[Code, Provoke]] = {
    "missing key": ("api_key_required", lambda harness, _: harness.fetch("GET", LISTINGS)),
    "unknown key": ("invalid_api_key", lambda harness, _: harness.fetch("GET", LISTINGS, key=api_keys.generate())),
    "malformed key": ("invalid_api_key", lambda harness, _: harness.fetch("DELETE", LISTINGS + "/1", key="x")),
    "revoked key": (
        "invalid_api_key",
        lambda harness, cast: harness.fetch("GET", LISTINGS, key=revoke_key(harness, cast)),
    ),
    "expired plan": ("plan_expired", lambda harness, cast: harness.fetch("GET", LISTINGS, key=cast.charlie.key)),
    "disabled account": (
        "account_disabled",
        lambda harness, cast: harness.fetch("GET", LISTINGS, key=disable_account(harness, cast)),
    ),
    "write with a read-only key": (
        "key_not_allowed",
        lambda harness, cast: harness.fetch("POST", LISTINGS, key=add_read_key(harness, cast), json=VALID),
    ),
    "read of another account's listing": (
        "not_owner",
        lambda harness, cast: harness.fetch("GET", create(harness, cast.alice.key), key=cast.bob.key),
    ),
    "update of another account's listing": (
        "not_owner",
        lambda harness, cast: harness.fetch("PUT", create(harness, cast.alice.key), key=cast.bob.key, json=VALID),
    ),
    "delete of another account's listing": (
        "not_owner",
        lambda harness, cast: harness.fetch("DELETE", create_deleted(harness, cast.alice.key), key=cast.bob.key),
    ),
    "unknown listing": (
        "listing_not_found",
        lambda harness, cast: harness.fetch("GET", f"{LISTINGS}/1025", key=cast.alice.key),
    ),
    "invalid id": (
        "listing_not_found",
        lambda harness, cast: harness.fetch("PATCH", f"{LISTINGS}/abc", key=cast.alice.key, json=VALID),
    ),
    "deleted listing": (
        "listing_not_found",
        lambda harness, cast: harness.fetch("DELETE", create_deleted(harness, cast.alice.key), key=cast.alice.key),
    ),
    "unknown path": ("path_not_found", lambda harness, _: harness.fetch("GET", "/api/v2/listings")),
    "another method": ("method_not_allowed", lambda harness, _: harness.fetch("DELETE", LISTINGS)),
    "missing field": (
        "invalid_request",
        lambda harness, cast: harness.fetch("POST", LISTINGS, key=cast.alice.key, json={"title": "a"}),
    ),
    "bad field": (
        "invalid_request",
        lambda harness, cast: harness.fetch(
            "PATCH", create(harness, cast.alice.key), key=cast.alice.key, json={"price": "5", "type": "car"}
        ),
    ),
    "bad parameter": (
        "invalid_request",
        lambda harness, cast: harness.fetch("GET", f"{LISTINGS}?limit=0&sort=colour", key=cast.alice.key),
    ),
    "full account": ("account_full", lambda harness, cast: fill_account(harness, cast.alice.key)),
    "a change set of the future": (
        "changes_gone",
        lambda harness, cast: harness.fetch("GET", "/api/v1/changes?after=9", key=cast.alice.key),
    ),
    "revert of a change set of the future": (
        "change_not_found",
        lambda harness, cast: harness.fetch("POST", "/api/v1/changes/revert", key=cast.alice.key, json={"change": 9}),
    ),
    "full account in a dry run": (
        "account_full",
        lambda harness, cast: fill_account(harness, cast.alice.key, "?dry_run=true"),
    ),
    "upload of a PDF": (
        "invalid_image",
        lambda harness, cast: harness.fetch("POST", IMAGES_PATH, key=cast.alice.key, body=b"%PDF-1.7"),
    ),
    "unknown picture": (
        "image_not_found",
        lambda harness, cast: harness.fetch("DELETE", f"{IMAGES_PATH}/unknown", key=cast.alice.key),
    ),
    "deletion of a picture in use": ("image_in_use", lambda harness, cast: delete_used(harness, cast.alice.key)),
    "external id of another listing": (
        "external_id_taken",
        lambda harness, cast: take_external_id(harness, cast.alice.key),
    ),
    "revert during another one": ("revert_running", lambda harness, cast: revert_twice(harness, cast.alice.key)),
    "stale update": (
        "precondition_failed",
        lambda harness, cast: harness.fetch(
            "PUT", create(harness, cast.alice.key), key=cast.alice.key, json=VALID, headers={"If-Match": '"v7.0"'}
        ),
    ),
    "reused idempotency key": (
        "idempotency_key_reused",
        lambda harness, cast: reuse_idempotency_key(harness, cast.alice.key),
    ),
    "empty batch": (
        "invalid_request",
        lambda harness, cast: harness.fetch("POST", f"{LISTINGS}/batch", key=cast.alice.key, json={"operations": []}),
    ),
    "restore of another account's listing": (
        "not_owner",
        lambda harness, cast: harness.fetch(
            "POST", create_deleted(harness, cast.alice.key) + "/restore", key=cast.bob.key
        ),
    ),
    "malformed JSON": (
        "malformed_json",
        lambda harness, cast: harness.fetch("POST", LISTINGS, key=cast.alice.key, body=b"{not json"),
    ),
    "invalid UTF-8": (
        "malformed_json",
        lambda harness, cast: harness.fetch("POST", LISTINGS, key=cast.alice.key, body=b'{"title": "\xff"}'),
    ),
    "empty body": (
        "malformed_json",
        lambda harness, cast: harness.fetch("PUT", create(harness, cast.alice.key), key=cast.alice.key),
    ),
    "body too large": (
        "body_too_large",
        lambda harness, cast: harness.fetch("POST", LISTINGS, key=cast.alice.key, body=TOO_LARGE),
    ),
    "compressed body": (
        "unsupported_encoding",
        lambda harness, cast: harness.fetch(
            "POST", LISTINGS, key=cast.alice.key, body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"}
        ),
    ),
    "too many requests": ("rate_limited", exceed_rate_limit),
    "too many waiting requests": ("too_many_waits", exceed_waits),
    "store unavailable": ("unavailable", lambda harness, cast: use_closed_store(harness, cast.alice.key)),
    "unexpected exception": ("internal_error", raise_unexpected_exception),
}


BELOW_HTTP: dict[str, tuple[Code, bytes]] = {
    "not HTTP": ("malformed_request", b"\x16\x03\x01\x02\r\n\r\n"),
    "unknown method": ("malformed_request", b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "slow header": ("request_timeout", b"GET / HTTP/1.1\r\nHost: localhost\r\n"),
    "long URL": ("uri_too_long", b"GET /%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"x" * 9000)),
    "large header": ("header_too_large", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: %b\r\n\r\n" % (b"x" * 20_000)),
    "another HTTP version": ("version_not_supported", b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n"),
}


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service that waits one second for the headers of a request."""
    with RunningService(tmp_path_factory.mktemp("impatient"), limits=ConnectionLimits(header_seconds=1)) as service:
        yield service


@pytest.mark.decision("G27", "G31")
@pytest.mark.parametrize(("code", "provoke"), FAILURES.values(), ids=FAILURES)
def test_a_failure_has_the_one_shape(harness: Harness, code: Code, provoke: Provoke) -> None:
    assert_error_shape(provoke(harness, harness.cast()), code)


@pytest.mark.decision("G31")
@pytest.mark.parametrize(("code", "sent"), BELOW_HTTP.values(), ids=BELOW_HTTP)
def test_a_failure_below_http_has_the_one_shape(impatient: RunningService, code: Code, sent: bytes) -> None:
    with Connection(impatient).send(sent) as connection:
        assert_error_shape(Reply(*connection.read_response()), code)


def assert_error_shape(reply: Reply, code: Code) -> None:
    assert (reply.headers["x-error-code"], reply.status) == (code, STATUS[code])
    assert_one_sentence(reply)
    assert_error_headers(reply.headers, code, len(reply.body))


def assert_one_sentence(reply: Reply) -> None:
    """Check that the body is an object with one sentence, which does not expose the implementation."""
    content = reply.json()
    assert list(content) == ["error"]
    assert isinstance(content["error"], str)
    assert re.fullmatch(r"[A-Za-z][^\n]+[^\n.]", content["error"])
    assert not re.search(r"Traceback|Error\b|apsw|sqlite|SQL|msgspec|`|\.py|/var/|None|0x", reply.body.decode())


def assert_error_headers(headers: dict[str, str], code: Code, length: int) -> None:
    assert headers["content-type"] == "application/json; charset=utf-8"
    assert headers["content-length"] == str(length)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["x-request-id"]
    assert ("www-authenticate" in headers) == (code in {"api_key_required", "invalid_api_key"})
    assert ("retry-after" in headers) == (code in {"rate_limited", "too_many_waits", "unavailable"})
    assert ("allow" in headers) == (code == "method_not_allowed")


@pytest.mark.decision("G31")
def test_every_error_code_of_a_response_is_provoked() -> None:
    # dependency_failed occurs only as the result of an operation in a batch: see test_batch.py.
    provoked = {code for code, _ in (*FAILURES.values(), *BELOW_HTTP.values())}
    assert provoked == ERROR_DOCS.keys() - {"dependency_failed"}


def test_each_code_has_its_specified_status() -> None:
    assert (
        STATUS.items()
        >= {
            "account_full": 400,
            "invalid_request": 400,
            "malformed_json": 400,
            "api_key_required": 401,
            "invalid_api_key": 401,
            "not_owner": 403,
            "plan_expired": 403,
            "account_disabled": 403,
            "key_not_allowed": 403,
            "listing_not_found": 404,
            "path_not_found": 404,
            "method_not_allowed": 405,
            "precondition_failed": 412,
            "body_too_large": 413,
            "unsupported_encoding": 415,
            "idempotency_key_reused": 422,
            "dependency_failed": 424,
            "rate_limited": 429,
            "too_many_waits": 429,
            "internal_error": 500,
            "unavailable": 503,
            "malformed_request": 400,
            "request_timeout": 408,
            "uri_too_long": 414,
            "header_too_large": 431,
        }.items()
    )


def test_an_unexpected_exception_is_logged_and_not_returned(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    reply = raise_unexpected_exception(harness, harness.cast())
    assert reply.json() == {"error": "Something went wrong on our side"}
    assert SECRET_DETAIL not in str(reply.headers)
    assert reply.headers["x-request-id"] in caplog.text
    assert SECRET_DETAIL in caplog.text


def test_client_errors_are_not_logged_as_errors(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    for code, provoke in FAILURES.values():
        if code not in {"internal_error", "unavailable"}:
            provoke(harness, harness.cast())
    assert not [record for record in caplog.records if record.levelname in {"ERROR", "CRITICAL"}]


@pytest.mark.every_engine
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unavailable_store_returns_retry_after(harness: Harness, method: str) -> None:
    reply = use_closed_store(harness, harness.cast().alice.key, method)
    assert_error_shape(reply, "unavailable")
    assert int(reply.headers["retry-after"]) >= 1


def test_an_error_of_head_has_headers_and_no_body(harness: Harness) -> None:
    head, get = harness.fetch("HEAD", LISTINGS), harness.fetch("GET", LISTINGS)
    assert (head.status, head.body) == (401, b"")
    assert head.headers | {"x-request-id": ""} == get.headers | {"x-request-id": ""}


@pytest.mark.decision("G32")
def test_several_field_errors_are_joined_with_semicolons(harness: Harness) -> None:
    reply = harness.fetch("POST", LISTINGS, key=harness.cast().alice.key, json={"price": -1, "is_active": "no"})
    assert reply.json()["error"].split("; ") == [
        "title is required",
        "content is required",
        "price must be from 0 to 999999999.99, got -1",
        'is_active must be true or false, got "no"',
    ]


@pytest.mark.decision("G21")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", f"{LISTINGS}/none"),
        ("DELETE", f"{LISTINGS}/none"),
        ("POST", LISTINGS),
        ("POST", f"{LISTINGS}/batch"),
        ("POST", "/api/v1/changes/revert"),
    ],
)
def test_parameters_are_checked_before_listing_and_body(harness: Harness, method: str, path: str) -> None:
    alice = harness.person("alice")
    reply = harness.fetch(method, f"{path}?dry_run=maybe", key=alice.key, body=b"{")
    assert (reply.status, reply.headers["x-error-code"]) == (400, "invalid_request")
    assert "dry_run" in reply.json()["error"]


@pytest.mark.decision("G21")
def test_checks_are_in_a_fixed_order(harness: Harness) -> None:
    # The first request fails every check; each of the next ones fails one check less.
    alice, bob, charlie = harness.cast()
    limited = Application(Services(harness.store, MemoryLimiter(1, 60), harness.clock))
    harness.run(fetch(limited, "GET", LISTINGS, [(b"x-api-key", charlie.key.encode())], [b""]))
    own, foreign = create(harness, alice.key), create(harness, bob.key)
    deleted = create_deleted(harness, alice.key)
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
        send("PUT", deleted, alice.key, b"{not json", stale),
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
