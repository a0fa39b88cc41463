"""Idempotency-Key: a repeated create or batch is carried out once (decision G36)."""

from typing import Any

import httpx2
import pytest

from tests.api.helpers import LISTINGS, assert_error, get_ids, with_key
from tests.conftest import Client
from tests.harness import Harness, Reply

pytestmark = [pytest.mark.uncovered, pytest.mark.decision("G36")]

LAMP = {"title": "Lamp", "content": "Brass."}
DAY = 24 * 3600


KEY = with_key("k1")


def create(client: Client, key: str, body: dict[str, Any] | None = None, **more: Any) -> httpx2.Response:
    return client.post(json=body or LAMP, headers=with_key(key), **more)


def count(client: Client) -> int:
    return len(get_ids(client.get("?status=all")))


@pytest.mark.every_engine
def test_a_repeated_request_gets_the_first_response_again(alice: Client) -> None:
    first, *again = [create(alice, "k1") for _ in range(3)]
    assert first.status_code == 201
    assert "Idempotent-Replayed" not in first.headers
    for response in again:
        assert (response.status_code, response.content) == (201, first.content)
        assert response.headers["Location"] == first.headers["Location"]
        assert response.headers["Idempotent-Replayed"] == "true"
    assert count(alice) == 1


def test_a_replay_names_the_ignored_fields_again(alice: Client) -> None:
    responses = [create(alice, "k1", {**LAMP, "colour": "red"}) for _ in range(2)]
    assert [response.headers["X-Ignored-Fields"] for response in responses] == ["colour", "colour"]


@pytest.mark.parametrize("change", [{"price": 0}, {"title": "lamp"}, {"colour": "red"}])
def test_another_body_with_the_same_key_is_rejected(alice: Client, change: dict[str, Any]) -> None:
    create(alice, "k1")
    response = create(alice, "k1", {**LAMP, **change})
    message = "This Idempotency-Key was sent with another request before"
    assert_error(response, 422, "idempotency_key_reused", message)
    assert count(alice) == 1
    assert create(alice, "k1").status_code == 201


def test_other_keys_and_no_key_create_other_listings(alice: Client) -> None:
    responses = [create(alice, key) for key in ("k1", "K1", "k1 ;", "k")] + [alice.post(json=LAMP) for _ in range(2)]
    assert len({response.json()["id"] for response in responses}) == 6


def test_all_api_keys_of_an_account_share_its_idempotency_keys(harness: Harness) -> None:
    alice = harness.person("alice")
    second = harness.run(harness.services.keys.add(alice.account, "second", "another-system-0123456789")).secret
    replies = [harness.fetch("POST", LISTINGS, key=key, json=LAMP, headers=KEY) for key in (alice.key, second)]
    assert replies[0].body == replies[1].body


@pytest.mark.parametrize(
    ("bare", "quoted"),
    [("k1", '"k1"'), ("a b", '"a b"'), ("x" * 255, '"' + "x" * 255 + '"'), ("8e03978e-40d5", '"8e03978e-40d5"')],
)
def test_a_quoted_key_equals_the_bare_one(alice: Client, bare: str, quoted: str) -> None:
    responses = [create(alice, bare), create(alice, quoted)]
    assert responses[0].content == responses[1].content
    assert responses[1].headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize("key", ["x" * 256, '"' + "x" * 256 + '"', '""', '"', "clé", "a\tb"])
def test_an_invalid_key_is_rejected(harness: Harness, key: str) -> None:
    alice = harness.person("alice")
    reply = harness.fetch("POST", LISTINGS, key=alice.key, json=LAMP, headers=with_key(key))
    assert (reply.status, reply.headers["x-error-code"]) == (400, "invalid_request")
    assert reply.json() == {"error": "Idempotency-Key must be sent once, with 1 to 255 printable ASCII characters"}
    assert harness.fetch("GET", LISTINGS, key=alice.key).json() == {"listings": []}


def test_two_keys_in_one_request_are_rejected_unless_equal(alice: Client) -> None:
    headers = [("X-API-Key", alice.person.key), ("Idempotency-Key", "k1"), ("Idempotency-Key", "k2")]
    assert alice._http.post(LISTINGS, json=LAMP, headers=headers).status_code == 400  # noqa: SLF001 - sends a list of headers
    headers[2] = ("Idempotency-Key", "k1")
    assert alice._http.post(LISTINGS, json=LAMP, headers=headers).status_code == 201  # noqa: SLF001 - sends a list of headers


def test_an_empty_key_counts_as_not_sent(alice: Client) -> None:
    assert len({create(alice, "").json()["id"] for _ in range(2)}) == 2


@pytest.mark.parametrize("key", ["k1", "x" * 300, '""'])
def test_idempotent_writes_ignore_the_key(alice: Client, key: str) -> None:
    path = f"/{alice.create()}"
    for price in (5, 6):
        assert alice.patch(path, json={"price": price}, headers=with_key(key)).status_code == 200
        assert alice.read(int(path[1:]))["price"] == price
    assert alice.delete(path, headers=with_key(key)).status_code == 200
    assert alice.delete(path, headers=with_key(key)).status_code == 404
    assert [alice.post(f"{path}/restore", headers=with_key(key)).status_code for _ in range(2)] == [200, 200]


@pytest.mark.every_engine
def test_a_key_is_stored_for_24_hours(harness: Harness) -> None:
    alice = harness.person("alice")

    def send() -> Reply:
        return harness.fetch("POST", LISTINGS, key=alice.key, json=LAMP, headers=KEY)

    first = send()
    harness.clock.advance(DAY - 1)
    harness.run(harness.services.listings.purge_idempotency_records())
    assert (send().body, send().headers["idempotent-replayed"]) == (first.body, "true")
    harness.clock.advance(1)
    later = send()
    assert (later.status, later.json()["id"] > first.json()["id"]) == (201, True)
    assert "idempotent-replayed" not in later.headers
    assert send().body == later.body


@pytest.mark.parametrize(
    ("request_options", "status"),
    [
        ({"json": {"title": "Lamp"}}, 400),
        ({"body": b"{"}, 400),
        ({"json": LAMP, "key": "0123456789abcdef"}, 401),
        ({"json": LAMP, "headers": {**KEY, "Content-Encoding": "gzip"}}, 415),
        ({"body": b" " * (2 * 1024 * 1024 + 1)}, 413),
    ],
)
def test_a_rejected_request_stores_no_key(harness: Harness, request_options: dict[str, Any], status: int) -> None:
    alice = harness.person("alice")
    sent = {"key": alice.key, "headers": KEY, **request_options}
    assert harness.fetch("POST", LISTINGS, **sent).status == status
    valid = harness.fetch("POST", LISTINGS, key=alice.key, json=LAMP, headers=KEY)
    assert (valid.status, "idempotent-replayed" in valid.headers) == (201, False)


def test_a_key_without_an_effect_is_named_like_an_ignored_parameter(alice: Client) -> None:
    path, headers = f"/{alice.create()}", with_key("k")
    responses = [
        alice.patch(path, json={"price": 5}, headers=headers),
        alice.get(path, headers=headers),
        alice.get(headers=headers),
        alice.delete(path, headers=headers),
        alice.post(f"{path}/restore", headers=headers),
    ]
    assert {response.headers.get("X-Ignored-Parameters") for response in responses} == {"Idempotency-Key"}
    assert alice.get("?colour=red", headers=headers).headers["X-Ignored-Parameters"] == "colour, Idempotency-Key"
    for accepted in (alice.post(json={"title": "t", "content": "c"}, headers=headers), alice.get(headers=with_key(""))):
        assert "X-Ignored-Parameters" not in accepted.headers
