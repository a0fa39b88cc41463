"""Authentication: keys in two headers, their expiry, revocation, access and plans (decisions G22-G27, G44)."""

import json as jsons
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from listings.api.routes import ROUTES
from listings.domain import api_keys
from listings.domain.errors import Problem
from tests.api.helpers import LISTINGS
from tests.conftest import Client
from tests.harness import MONTH, START, Cast, Harness, Reply, RunningService, fetch

KEY_REQUIRED = (401, {"error": "API key is required"}, "api_key_required", 'Bearer realm="listings"')
INVALID_KEY = (401, {"error": "Invalid API key"}, "invalid_api_key", 'Bearer realm="listings", error="invalid_token"')
UNKNOWN = "lst_5xw8Wb0bJ3vVYkTzq1Qn7RmCdL2hGfUs3uq1Gu"  # has a valid checksum, but belongs to no account


def send(harness: Harness, *headers: tuple[str, str], path: str = LISTINGS) -> Reply:
    """Send exactly these headers, in this order; they may be empty and repeated."""
    sent = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    return harness.run(fetch(harness.application, "GET", path, sent, [b""]))


def get_rejection(reply: Reply) -> tuple[int, object, str, str]:
    """Return the parts of a 401 that depend on its cause."""
    return reply.status, reply.json(), reply.headers["x-error-code"], reply.headers["www-authenticate"]


def get_http_rejection(response: httpx2.Response) -> tuple[int, object, str, str]:
    headers = response.headers
    return response.status_code, response.json(), headers["X-Error-Code"], headers["WWW-Authenticate"]


def cut_hint(rejection: tuple[int, Any, str, str]) -> tuple[int, object, str, str]:
    """Return the rejection without the part of its text that depends on how the key was sent."""
    status, body, *rest = rejection
    return status, {"error": re.split(r"[:,]| in X-API-Key", body["error"])[0]}, rest[0], rest[1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("Authorization", value) for value in ("bearer {}", "BEARER {}", "bEaReR {}", "Bearer  {}", "Bearer \t{}")),
        *((name, f" {value}") for name, value in (("Authorization", "Bearer {}\t"), ("X-API-Key", "\t{} \t"))),
    ],
)
def test_the_case_of_the_scheme_and_space_do_not_matter(harness: Harness, name: str, value: str) -> None:
    assert send(harness, (name, value.format(harness.person("alice").key))).status == 200


@pytest.mark.parametrize("secret", ["k" * 16, "".join(map(chr, range(0x21, 0x7F))), "older/system+key==" * 11 + "ab"])
def test_a_key_of_another_system_is_accepted_in_either_header(
    http: httpx2.Client, running: RunningService, secret: str
) -> None:
    account = running.cast().alice.account
    running.run(lambda services: services.keys.add(account, "older", secret))
    assert http.get(LISTINGS, headers={"X-API-Key": secret}).status_code == 200
    assert http.get(LISTINGS, headers={"Authorization": f"Bearer {secret}"}).status_code == 200


# Missing keys

HOW_TO_SEND = "send it in X-API-Key, or in Authorization after Bearer"


@pytest.mark.decision("G23")
@pytest.mark.parametrize(
    ("headers", "query", "message"),
    [
        ({"Authorization": UNKNOWN}, "", f"API key is required: {HOW_TO_SEND}"),
        ({"Authorization": "Basic YWxpY2U6"}, "", f"API key is required: {HOW_TO_SEND}"),
        ({"Authorization": f"Token {UNKNOWN}"}, "", f"API key is required: {HOW_TO_SEND}"),
        ({}, f"?api_key={UNKNOWN}", f"API key is required, but not in the URL: {HOW_TO_SEND}"),
        ({}, f"?limit=5&X-API-Key={UNKNOWN}", f"API key is required, but not in the URL: {HOW_TO_SEND}"),
        ({}, f"?access_token={UNKNOWN}", f"API key is required, but not in the URL: {HOW_TO_SEND}"),
        ({"X-API-Key": f'"{UNKNOWN}"'}, "", "Invalid API key: it is in quotes; send only the key"),
        ({"Authorization": f"Bearer '{UNKNOWN}'"}, "", "Invalid API key: it is in quotes; send only the key"),
        (
            {"X-API-Key": UNKNOWN, "Authorization": f"Bearer {UNKNOWN}"},
            "",
            "Invalid API key in X-API-Key, which counts before Authorization",
        ),
    ],
)
def test_a_key_that_was_sent_wrongly_gets_a_hint(
    http: httpx2.Client, headers: dict[str, str], query: str, message: str
) -> None:
    response = http.get(LISTINGS + query, headers=headers)
    assert (response.status_code, response.json()) == (401, {"error": message})


@pytest.mark.decision("G23")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-API-Key": ""},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"X-API-Key": "", "Authorization": "Bearer"},
        {"API-Key": UNKNOWN},
        {"X-API-Token": UNKNOWN},
        {"Proxy-Authorization": f"Bearer {UNKNOWN}"},
    ],
)
def test_a_request_without_a_key_is_rejected(http: httpx2.Client, headers: dict[str, str]) -> None:
    assert get_http_rejection(http.get(LISTINGS, headers=headers)) == KEY_REQUIRED


@pytest.mark.decision("G22")
@pytest.mark.parametrize("blank", [" ", "\t", "  \t  "])
def test_white_space_alone_counts_as_not_sent(harness: Harness, blank: str) -> None:
    assert get_rejection(send(harness, ("X-API-Key", blank))) == KEY_REQUIRED
    assert get_rejection(send(harness, ("Authorization", blank))) == KEY_REQUIRED
    assert get_rejection(send(harness, ("Authorization", f"Bearer {blank}"))) == KEY_REQUIRED
    assert get_rejection(send(harness, ("X-API-Key", blank), ("Authorization", f"Bearer{blank}"))) == KEY_REQUIRED


@pytest.mark.parametrize("value", ["Basic {}", "Token {}", "ApiKey {}", "Bearer:{}", "{}", "Bearerx {}", "Digest a={}"])
def test_another_authorization_scheme_is_not_a_key(http: httpx2.Client, cast: Cast, value: str) -> None:
    headers = {"Authorization": value.format(cast.alice.key)}
    assert cut_hint(get_http_rejection(http.get(LISTINGS, headers=headers))) == KEY_REQUIRED


@pytest.mark.decision("G22")
@pytest.mark.parametrize("parameter", ["api_key", "key", "X-API-Key", "x-api-key", "access_token", "authorization"])
def test_a_key_in_the_query_is_never_read(http: httpx2.Client, cast: Cast, parameter: str) -> None:
    assert cut_hint(get_http_rejection(http.get(LISTINGS, params={parameter: cast.alice.key}))) == KEY_REQUIRED


@pytest.mark.parametrize("name", ["api_key", "key", "X-API-Key", "Authorization", "session", "access_token"])
def test_a_key_in_a_cookie_is_never_read(http: httpx2.Client, cast: Cast, name: str) -> None:
    assert get_http_rejection(http.get(LISTINGS, headers={"Cookie": f"{name}={cast.alice.key}"})) == KEY_REQUIRED


@pytest.mark.parametrize("name", ["api_key", "key", "X-API-Key", "access_token"])
def test_a_key_in_the_body_is_never_read(http: httpx2.Client, cast: Cast, name: str) -> None:
    body = {"title": "a", "content": "b", name: cast.alice.key}
    assert get_http_rejection(http.post(LISTINGS, json=body)) == KEY_REQUIRED
    assert get_http_rejection(http.post(LISTINGS, data=body)) == KEY_REQUIRED


def test_every_endpoint_needs_a_key_and_a_plan(harness: Harness) -> None:
    charlie = harness.cast().charlie.key
    protected = [
        (method, pattern.replace("{id}", "1025"))
        for pattern, methods in ROUTES.items()
        for method, endpoint in methods.items()
        if endpoint.needs_key
    ]
    assert len(protected) >= 18
    for method, path in protected:
        assert get_rejection(harness.fetch(method, path)) == KEY_REQUIRED, path
        assert get_rejection(harness.fetch(method, path, key=UNKNOWN)) == INVALID_KEY, path
        assert harness.fetch(method, path, key=charlie).headers["x-error-code"] == "plan_expired", path


@pytest.mark.parametrize(
    "key",
    [
        UNKNOWN,
        "x",
        "u" * 15,
        "u" * 16,
        "u" * 200,
        "u" * 201,
        "u" * 4000,
        "lst_" + "0" * 38,
        UNKNOWN + "0",
        UNKNOWN.swapcase(),
        "null",
        "undefined",
        "' OR 1=1 --",
        "two words of a key",
        "<API_KEY>",
        '"' + UNKNOWN + '"',
    ],
)
def test_an_unknown_or_malformed_key_is_invalid(http: httpx2.Client, key: str) -> None:
    assert cut_hint(get_http_rejection(http.get(LISTINGS, headers={"X-API-Key": key}))) == INVALID_KEY
    assert cut_hint(get_http_rejection(http.get(LISTINGS, headers={"Authorization": f"Bearer {key}"}))) == INVALID_KEY


@pytest.mark.decision("G23")
@pytest.mark.parametrize("length", [4, 5, 41])
def test_a_truncated_key_is_reported_as_such(http: httpx2.Client, cast: Cast, length: int) -> None:
    truncated = "Invalid API key: it is truncated; a key that begins with lst_ has 42 characters"
    key = cast.alice.key[:length]
    for headers in ({"X-API-Key": key}, {"Authorization": f"Bearer {key}"}):
        assert get_http_rejection(http.get(LISTINGS, headers=headers)) == (401, {"error": truncated}, *INVALID_KEY[2:])


@pytest.mark.decision("G23")
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
def test_a_key_with_its_scheme_is_reported_as_such(http: httpx2.Client, cast: Cast, scheme: str) -> None:
    for key in (cast.alice.key, UNKNOWN, cast.alice.key[:9]):
        for headers in ({"X-API-Key": f"{scheme} {key}"}, {"Authorization": f"Bearer {scheme} {key}"}):
            response = http.get(LISTINGS, headers=headers)
            assert get_http_rejection(response) == (401, response.json(), *INVALID_KEY[2:])
            assert response.json()["error"].startswith('Invalid API key: it contains "Bearer"; send only the key')


@pytest.mark.parametrize("key", ["clé" * 10, "\xff" * 20, "k" * 16 + "\x80", "\xa0" * 16])
def test_a_key_that_is_not_ascii_is_invalid(harness: Harness, key: str) -> None:
    assert get_rejection(send(harness, ("X-API-Key", key))) == INVALID_KEY
    assert get_rejection(send(harness, ("Authorization", f"Bearer {key}"))) == INVALID_KEY


def test_the_hint_and_the_digest_of_a_key_are_invalid(http: httpx2.Client, cast: Cast) -> None:
    key = cast.alice.key
    for text in (f"{key[:4]}...{key[-4:]}", api_keys.digest(key).hex(), str(cast.alice.key_id)):
        assert get_http_rejection(http.get(LISTINGS, headers={"X-API-Key": text})) == INVALID_KEY


@pytest.mark.decision("G22")
def test_x_api_key_takes_precedence_over_authorization(http: httpx2.Client, cast: Cast) -> None:
    client = Client(http, cast.alice)
    listing = client.create()
    both = {"X-API-Key": cast.alice.key, "Authorization": f"Bearer {cast.bob.key}"}
    assert http.get(f"{LISTINGS}/{listing}", headers=both).status_code == 200
    both = {"X-API-Key": cast.bob.key, "Authorization": f"Bearer {cast.alice.key}"}
    assert http.get(f"{LISTINGS}/{listing}", headers=both).status_code == 403


@pytest.mark.decision("G22")
@pytest.mark.parametrize("wrong", [UNKNOWN, "x", "lst-", "Bearer"])
def test_an_invalid_x_api_key_does_not_fall_back_to_authorization(http: httpx2.Client, cast: Cast, wrong: str) -> None:
    both = {"X-API-Key": wrong, "Authorization": f"Bearer {cast.alice.key}"}
    assert cut_hint(get_http_rejection(http.get(LISTINGS, headers=both))) == INVALID_KEY


@pytest.mark.parametrize("other", [f"Bearer {UNKNOWN}", "Bearer", "Basic YWxpY2U6d29yZA==", "", "x"])
def test_a_valid_x_api_key_is_accepted_with_any_authorization(http: httpx2.Client, cast: Cast, other: str) -> None:
    both = {"X-API-Key": cast.alice.key, "Authorization": other}
    assert http.get(LISTINGS, headers=both).status_code == 200


@pytest.mark.parametrize("blank", ["", " ", "\t "])
def test_a_blank_x_api_key_leaves_authorization_to_decide(harness: Harness, blank: str) -> None:
    key = harness.cast().alice.key
    assert send(harness, ("X-API-Key", blank), ("Authorization", f"Bearer {key}")).status == 200
    assert get_rejection(send(harness, ("X-API-Key", blank), ("Authorization", f"Bearer {UNKNOWN}"))) == INVALID_KEY


@pytest.mark.decision("G22")
def test_a_header_with_two_values_is_invalid(http: httpx2.Client, cast: Cast) -> None:
    alice, bob = cast.alice.key, cast.bob.key
    for one, other in ((alice, bob), (alice, UNKNOWN), (UNKNOWN, alice)):
        assert get_http_rejection(http.get(LISTINGS, headers=[("X-API-Key", one), ("x-api-key", other)])) == INVALID_KEY
        twice = [("Authorization", f"Bearer {one}"), ("Authorization", f"Bearer {other}")]
        assert get_http_rejection(http.get(LISTINGS, headers=twice)) == INVALID_KEY


def test_two_authorization_schemes_are_invalid(http: httpx2.Client, cast: Cast) -> None:
    bearer, basic = ("Authorization", f"Bearer {cast.alice.key}"), ("Authorization", "Basic YWxpY2U6d29yZA==")
    for twice in ([bearer, basic], [basic, bearer]):
        assert get_http_rejection(http.get(LISTINGS, headers=twice)) == INVALID_KEY


def test_a_repeated_header_with_one_value_is_accepted(http: httpx2.Client, cast: Cast) -> None:
    key = cast.alice.key
    assert http.get(LISTINGS, headers=[("X-API-Key", key), ("X-API-Key", key)]).status_code == 200
    twice = [("Authorization", f"Bearer {key}"), ("Authorization", f"Bearer {key}")]
    assert http.get(LISTINGS, headers=twice).status_code == 200


def test_a_repeated_header_with_a_blank_value_is_accepted(harness: Harness) -> None:
    key = harness.cast().alice.key
    assert send(harness, ("X-API-Key", ""), ("X-API-Key", key)).status == 200
    assert send(harness, ("X-API-Key", key), ("X-API-Key", " ")).status == 200
    assert get_rejection(send(harness, ("X-API-Key", ""), ("X-API-Key", " "))) == KEY_REQUIRED


@pytest.mark.decision("G25")
@pytest.mark.every_engine
def test_a_key_is_valid_until_just_before_it_expires(harness: Harness) -> None:
    account = harness.cast().alice.account
    issued = harness.run(harness.services.keys.create(str(account.id), "short", START + 60))
    harness.clock.advance(59.999)
    assert send(harness, ("X-API-Key", issued.secret)).status == 200
    harness.clock.advance(0.001)
    assert get_rejection(send(harness, ("X-API-Key", issued.secret))) == INVALID_KEY
    harness.clock.advance(MONTH)
    assert get_rejection(send(harness, ("X-API-Key", issued.secret))) == INVALID_KEY


@pytest.mark.decision("G23")
def test_all_invalid_keys_get_the_same_response(harness: Harness) -> None:
    cast = harness.cast()
    expired = harness.run(harness.services.keys.add(cast.alice.account, "short", api_keys.generate(), START - 1)).secret
    harness.run(harness.services.keys.revoke(cast.bob.key_id))
    replies = [send(harness, ("X-API-Key", key)) for key in (UNKNOWN, "malformed", cast.bob.key, expired)]
    for reply in replies:
        reply.headers.pop("x-request-id")
    assert [reply.status for reply in replies] == [401] * 4
    assert all(reply == replies[0] for reply in replies)


@pytest.mark.decision("G44", "G21")
def test_a_read_only_key_gets_one_response_for_every_write(harness: Harness) -> None:
    alice = harness.person("alice")
    reader = harness.run(harness.services.keys.create(str(alice.account.id), "reader", access="read")).secret
    path = harness.fetch("POST", LISTINGS, key=alice.key, json={"title": "a", "content": "b"}).headers["location"]
    before = harness.fetch("GET", path, key=alice.key).body
    writes = [
        (method, pattern.replace(f"{LISTINGS}/{{id}}", one) + query)
        for pattern, methods in ROUTES.items()
        for method, endpoint in methods.items()
        for one in ((path, f"{LISTINGS}/1") if "{id}" in pattern else (path,))
        for query in ("", "?dry_run=true", "?dry_run=invalid")
        if endpoint.needs_key and method != "GET"
    ]
    faults = {"Content-Encoding": "gzip", "If-Match": "invalid"}
    replies = [harness.fetch(method, path, key=reader, body=b"{", headers=faults) for method, path in writes]
    assert len(writes) >= 30
    assert {(reply.status, reply.headers["x-error-code"]) for reply in replies} == {(403, "key_not_allowed")}
    assert len({reply.body for reply in replies}) == 1
    assert harness.fetch("GET", path, key=reader).body == before


def test_the_successor_of_a_read_only_key_is_read_only(harness: Harness) -> None:
    keys = harness.services.keys
    reader = harness.run(keys.create(str(harness.person("alice").account.id), "reader", access="read"))
    successor = harness.run(keys.rotate(reader.key.id, 0)).secret
    replies = [harness.fetch(method, LISTINGS, key=successor) for method in ("GET", "HEAD", "POST")]
    assert [reply.status for reply in replies] == [200, 200, 403]


@pytest.mark.decision("G26")
@pytest.mark.every_engine
def test_a_key_of_a_disabled_account_is_valid_again_once_it_is_enabled(harness: Harness) -> None:
    alice = harness.person("alice")
    for change, status in ((harness.services.accounts.disable, 403), (harness.services.accounts.enable, 200)):
        harness.run(change(alice.account.email))
        assert harness.fetch("GET", LISTINGS, key=alice.key).status == status


def test_an_account_that_never_had_a_plan_needs_one(harness: Harness) -> None:
    account = harness.run(harness.services.accounts.add("dora", "dora-without-a-plan@example.com", None))
    issued = harness.run(harness.services.keys.add(account, "key", api_keys.generate()))
    reply = send(harness, ("X-API-Key", issued.secret))
    assert (reply.status, reply.json()) == (403, {"error": "A current Business plan is required"})
    assert reply.headers["x-error-code"] == "plan_expired"


@pytest.mark.decision("G26")
@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        ({}, "; renew at /console/plan"),
        ({"base_url": "https://market.example"}, "; renew at https://market.example/console/plan"),
        ({"site": "off", "base_url": "https://market.example"}, ""),
    ],
)
def test_an_expired_plan_is_renewed_in_the_console(tmp_path: Path, flags: dict[str, str], advice: str) -> None:
    with Harness(tmp_path, **flags) as harness:
        reply = send(harness, ("X-API-Key", harness.person("charlie", plan_ends_in=-1).key))
    assert reply.json() == {"error": f"Business plan expired on 2026-09-22{advice}"}  # New Zealand's date


@pytest.mark.decision("G26")
@pytest.mark.parametrize("reason", ["revoked", "expired"])
def test_an_invalid_key_is_reported_before_an_expired_plan(harness: Harness, reason: str) -> None:
    charlie = harness.cast().charlie
    secret = charlie.key
    if reason == "revoked":
        harness.run(harness.services.keys.revoke(charlie.key_id))
    else:
        secret = harness.run(harness.services.keys.add(charlie.account, "short", api_keys.generate(), START)).secret
    assert get_rejection(send(harness, ("X-API-Key", secret))) == INVALID_KEY


def test_no_response_contains_a_key(harness: Harness) -> None:
    cast = harness.cast()
    secrets = [person.key for person in cast]
    replies = [send(harness, ("X-API-Key", key)) for key in (*secrets, secrets[0] + "x", "x" + secrets[0])]
    texts = [jsons.dumps(reply.headers) + reply.body.decode() for reply in replies]
    assert not [text for text in texts for secret in secrets if secret in text or secret[4:] in text]


@pytest.mark.decision("G27")
def test_every_response_has_a_request_id_of_its_own(harness: Harness) -> None:
    key = harness.cast().alice.key
    headers: list[tuple[str, str]] = [("X-API-Key", key), ("X-API-Key", UNKNOWN), ("Accept", "a/b")]
    ids = [send(harness, header, path=path).headers["x-request-id"] for header in headers for path in (LISTINGS, "/x")]
    assert len(set(ids)) == len(ids)


@pytest.mark.every_engine
def test_a_malformed_key_is_rejected_without_a_query(harness: Harness) -> None:
    harness.run(harness.store.close())
    assert send(harness, ("X-API-Key", "lst_malformed")).status == 401
    assert send(harness, ("X-API-Key", UNKNOWN)).status == 503


def test_at_most_4096_well_formed_keys_are_cached(harness: Harness) -> None:
    async def authenticate(count: int) -> list[int]:
        sizes = []
        for number in range(count):
            with suppress(Problem):
                await harness.services.access.authenticate(f"older-system-key-{number}")
            sizes.append(len(harness.services.access._well_formed))  # noqa: SLF001 - the cache whose size is limited
        return sizes

    assert harness.run(authenticate(4098)) == [*range(1, 4097), 1, 2]


@pytest.mark.decision("G25")
@pytest.mark.every_engine
def test_the_last_use_of_a_key_is_buffered_until_it_is_written(harness: Harness) -> None:
    alice = harness.person("alice")
    assert send(harness, ("X-API-Key", alice.key)).status == 200
    harness.clock.advance(30)
    assert send(harness, ("X-API-Key", alice.key)).status == 200
    (key,) = harness.run(harness.services.keys.list_of(alice.account))
    assert key.last_used_at is None
    harness.run(harness.services.access.write_key_uses())
    (key,) = harness.run(harness.services.keys.list_of(alice.account))
    assert key.last_used_at == START + 30


def test_a_rejected_key_has_no_last_use(harness: Harness) -> None:
    alice = harness.person("alice")
    harness.run(harness.services.keys.revoke(alice.key_id))
    assert send(harness, ("X-API-Key", alice.key)).status == 401
    harness.run(harness.services.access.write_key_uses())
    (key,) = harness.run(harness.services.keys.list_of(alice.account))
    assert key.last_used_at is None


@pytest.mark.every_engine
def test_a_use_that_could_not_be_written_is_written_later(harness: Harness) -> None:
    alice = harness.person("alice")
    assert send(harness, ("X-API-Key", alice.key)).status == 200
    harness.run(harness.store.close())
    harness.run(harness.services.access.write_key_uses())
    harness.run(harness.store.open())
    harness.run(harness.services.access.write_key_uses())
    (key,) = harness.run(harness.services.keys.list_of(alice.account))
    assert key.last_used_at == START


@pytest.mark.parametrize("end", ["revoke", "expire plan"])
def test_a_key_that_ends_while_the_body_arrives_changes_nothing(tmp_path: Path, end: str) -> None:
    with Harness(tmp_path) as harness:
        alice = harness.person("alice")
        services = harness.services
        [key] = harness.run(services.keys.list_of(alice.account))

        async def end_key() -> None:
            if end == "revoke":
                await services.keys.revoke(key.id)
            else:
                await services.accounts.expire_plan(alice.account.email)

        body, headers = b'{"title": "t", "content": "c"}', [(b"x-api-key", alice.key.encode())]
        chunks = [body[:9], body[9:]]
        reply = harness.run(fetch(harness.application, "POST", "/api/v1/listings", headers, chunks, meanwhile=end_key))
        assert reply.status == (401 if end == "revoke" else 403)
        assert harness.run(services.listings.count(alice.account)).active == 0
