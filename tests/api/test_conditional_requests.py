"""ETag, If-None-Match and If-Match (decisions G35, G54)."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import httpx2
import pytest

from tests.api.helpers import (
    ALL_FIELDS,
    LISTINGS,
    REQUIRED,
    assert_error,
    get_etag,
    get_invalid_request,
    get_outcome,
    get_state,
)
from tests.conftest import Client
from tests.harness import RunningService
from tests.http.raw import Connection
from tests.http.raw import request as raw_request

pytestmark = pytest.mark.uncovered

STALE = 412, "precondition_failed"


@pytest.mark.decision("G35")
@pytest.mark.parametrize("field", ALL_FIELDS)
def test_every_edit_of_a_listing_changes_its_etag(alice: Client, field: str) -> None:
    path = f"/{alice.create()}"
    before = get_etag(alice, path)
    assert alice.patch(path, json={field: ALL_FIELDS[field]}).status_code == 200
    assert get_etag(alice, path) != before


@pytest.mark.decision("G35")
def test_a_create_returns_the_etag_of_the_listing(alice: Client) -> None:
    headers = {"Idempotency-Key": "k"}
    created, replayed = (alice.post(json=REQUIRED, headers=headers) for _ in range(2))
    path = f"/{created.json()['id']}"
    assert created.headers["ETag"] == replayed.headers["ETag"] == get_etag(alice, path)
    assert created.headers["Cache-Control"] == "private, no-cache"
    write = {"If-Match": created.headers["ETag"]}
    assert [alice.patch(path, json={"price": price}, headers=write).status_code for price in (5, 6)] == [200, 412]


@pytest.mark.every_engine
def test_an_etag_is_never_used_twice(alice: Client) -> None:
    path = f"/{alice.create()}"
    etags = [get_etag(alice, path)]
    for price in (5, 6, 5, 0):
        alice.patch(path, json={"price": price})
        etags.append(get_etag(alice, path))
    alice.delete(path)
    alice.post(f"{path}/restore")
    assert len({*etags, get_etag(alice, path)}) == len(etags) + 1


NOT_EDITS: dict[str, Callable[[Client, str], Any]] = {
    "read": lambda alice, path: alice.get(path),
    "list": lambda alice, _: alice.get("?status=all&q=bicycle"),
    "same values": lambda alice, path: alice.patch(path, json={"price": 0, "title": "Bicycle"}),
    "no fields": lambda alice, path: alice.put(path, json={}),
    "read-only fields": lambda alice, path: alice.put(path, json={"id": 5, "view_count": 7}),
    "rejected update": lambda alice, path: alice.patch(path, json={"price": -1}),
    "stale update": lambda alice, path: alice.patch(path, json={"price": 9}, headers={"If-Match": '"v9.0"'}),
    "dry run of an update": lambda alice, path: alice.patch(f"{path}?dry_run=true", json={"price": 9}),
    "dry run of a delete": lambda alice, path: alice.delete(f"{path}?dry_run=true"),
    "restore of a listing that is not deleted": lambda alice, path: alice.post(f"{path}/restore"),
}


@pytest.mark.decision("G35")
@pytest.mark.parametrize("kind", NOT_EDITS)
def test_an_etag_changes_only_with_an_edit(alice: Client, kind: str) -> None:
    path = f"/{alice.create()}"
    paths = (path, "", "?status=all&limit=1")
    before = [get_etag(alice, each) for each in paths]
    NOT_EDITS[kind](alice, path)
    assert [get_etag(alice, each) for each in paths] == before


def test_an_etag_depends_on_the_included_fields(alice: Client) -> None:
    path = f"/{alice.create()}"
    queries = ["", "?include=district", "?include=latitude", "?include=all", "?include=deleted_at"]
    assert len({get_etag(alice, path + query) for query in queries}) == len(queries)
    assert get_etag(alice, f"{path}?include=latitude,district") == get_etag(alice, f"{path}?include=district,latitude")
    assert get_etag(alice, f"{path}?colour=red") == get_etag(alice, path)


@pytest.mark.decision("G35")
def test_every_edit_of_the_account_changes_the_etag_of_its_list(alice: Client) -> None:
    etags = [get_etag(alice)]
    path = f"/{alice.create()}"
    edits: list[Callable[[], httpx2.Response]] = [
        lambda: alice.patch(path, json={"price": 5}),
        lambda: alice.delete(path),
        lambda: alice.post(f"{path}/restore"),
        lambda: alice.post("/batch", json={"operations": [{"op": "delete", "id": int(path[1:])}]}),
    ]
    etags.append(get_etag(alice))
    for edit in edits:
        assert edit().status_code == 200
        etags.append(get_etag(alice))
    assert len(set(etags)) == len(etags)


def test_lists_of_two_accounts_have_different_etags(alice: Client, bob: Client) -> None:
    for query in ("", "?status=all"):
        assert get_etag(alice, query) != get_etag(bob, query)
        headers = {"If-None-Match": get_etag(alice, query)}
        responses = [client.get(query, headers=headers).status_code for client in (alice, bob)]
        assert responses == [304, 200]


def test_every_query_has_an_etag_of_its_own(alice: Client) -> None:
    for _ in range(3):
        alice.create()
    link = alice.get("?limit=1").headers["Link"].partition("?")[2].partition(">")[0]
    queries = ["", "?status=all", "?limit=1", "?limit=2", f"?{link}", "?sort=id", "?q=bicycle", "?price_min=0"]
    queries += ["?include=all", "?include=district", "?category=", "?region=", "?updated_since=2020-01-01"]
    assert len({get_etag(alice, query) for query in queries}) == len(queries)
    assert get_etag(alice, "?limit=1&sort=price") == get_etag(alice, "?sort=price&limit=1")


def assert_if_none_match(client: Client, path: str, sent: str, status: int) -> None:
    path = path.format(own=client.create())
    etag = get_etag(client, path)
    response = client.get(path, headers={"If-None-Match": sent.format(etag)})
    assert response.status_code == status
    assert response.headers["ETag"] == etag
    assert (response.content == b"") == (status == 304)


@pytest.mark.decision("G35")
@pytest.mark.parametrize("path", ["", "?limit=1&sort=price&include=all", "/{own}", "/{own}?include=all"])
@pytest.mark.parametrize(("sent", "status"), [("{}", 304), ('"a"', 200)])
def test_a_current_etag_returns_304(alice: Client, path: str, sent: str, status: int) -> None:
    assert_if_none_match(alice, path, sent, status)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ("W/{}", 304),
        ("*", 304),
        ('"a" , {}', 304),
        ('{},"b"', 304),
        ('"a", W/"b",W/{}', 304),
        ('W/"a", "b"', 200),
        ("{}x", 200),
        ("x", 200),
        ('"', 200),
        (",,", 200),
    ],
)
def test_if_none_match_may_have_several_weak_or_invalid_etags(alice: Client, sent: str, status: int) -> None:
    for path in ("", "/{own}"):
        assert_if_none_match(alice, path, sent, status)


@pytest.mark.parametrize("path", ["", "?limit=1", "/{own}", "/{own}/"])
def test_a_304_has_all_headers_but_those_of_a_body(alice: Client, running: RunningService, path: str) -> None:
    path = path.format(own=alice.create())
    plain, etag = alice.get(path), get_etag(alice, path)
    condition = b"If-None-Match: " + etag.encode()
    requests = (("GET", condition), ("HEAD", condition), ("GET", b"Accept: */*"))
    with Connection(running) as connection:
        connection.send(*(raw_request(method, LISTINGS + path, alice.person.key, line) for method, line in requests))
        unchanged = [connection.read_response(), connection.read_response()]
        full = connection.read_response()
    for response in unchanged:
        assert (response.status, response.body) == (304, b"")
        assert response.headers.keys() == plain.headers.keys() - {"content-length", "content-type"}
        assert (response.headers["etag"], response.headers["cache-control"]) == (etag, "private, no-cache")
    assert (full.status, full.body) == (200, plain.content)


def test_if_none_match_is_checked_last(alice: Client, bob: Client, charlie: Client) -> None:
    path, deleted = f"/{alice.create()}", f"/{alice.create()}"
    alice.delete(deleted)
    headers = {"If-None-Match": f'"x", {get_etag(alice, path)}'}
    assert get_outcome(bob.get(path, headers=headers)) == (403, "not_owner")
    assert get_outcome(alice.get(deleted, headers=headers)) == (404, "listing_not_found")
    assert get_outcome(charlie.get(headers=headers)) == (403, "plan_expired")
    assert get_outcome(alice.get("?limit=0", headers=headers)) == (400, "invalid_request")


@pytest.mark.decision("G35")
def test_a_response_without_an_etag_must_not_be_stored(alice: Client) -> None:
    created = alice.post(json={"title": "t", "content": "c"})
    path = f"/{created.json()['id']}"
    responses = [alice.get("/1"), alice.delete(path), alice.post("/batch", json={"operations": [{}]})]
    responses.append(alice.patch(f"{path}?dry_run=true", json={}))
    assert {response.headers["Cache-Control"] for response in responses} == {"no-store"}
    assert not [response for response in responses if "ETag" in response.headers]


WRITES: dict[str, Callable[[Client, str, dict[str, str]], httpx2.Response]] = {
    "PUT": lambda client, path, headers: client.put(path, json={"price": 7}, headers=headers),
    "PATCH": lambda client, path, headers: client.patch(path, json={"price": 7}, headers=headers),
    "DELETE": lambda client, path, headers: client.delete(path, headers=headers),
    "restore": lambda client, path, headers: client.post(f"{path}/restore", headers=headers),
}


def create_second_version(client: Client, write: str) -> str:
    """Return the path of a listing of version 2 that allows the write."""
    path = f"/{client.create()}"
    response = client.delete(path) if write == "restore" else client.patch(path, json={"title": "Second"})
    assert response.status_code == 200
    return path


def assert_accepted(client: Client, write: str, sent: str) -> None:
    path = create_second_version(client, write)
    response = WRITES[write](client, path, {"If-Match": sent})
    assert response.status_code == 200, response.text


def assert_stale(client: Client, write: str, sent: str) -> None:
    path = create_second_version(client, write)
    before = client.get("?status=all&include=all,deleted_at")
    response = WRITES[write](client, path, {"If-Match": sent})
    assert get_outcome(response) == STALE
    assert response.json() == {
        "error": "The listing does not match If-Match: read it again and send its current ETag, including the quotes"
    }
    after = client.get("?status=all&include=all,deleted_at")
    assert (after.content, after.headers["ETag"]) == (before.content, before.headers["ETag"])


@pytest.mark.decision("G54")
@pytest.mark.every_engine
@pytest.mark.parametrize("write", WRITES)
def test_a_write_of_the_current_version_succeeds(alice: Client, write: str) -> None:
    assert_accepted(alice, write, '"v2.0"')


@pytest.mark.decision("G54")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("sent", ['"v1.0"', '"v3.0"'])
def test_a_write_of_another_version_is_rejected(alice: Client, write: str, sent: str) -> None:
    assert_stale(alice, write, sent)


@pytest.mark.parametrize(
    "sent",
    ['W/"v2.0"', "*", '"a", "v2.0"', '"v2.0","b"', '"v2.17"', '"v2.0-district"', '"v1.0", "v2.0"', ""],
)
def test_if_match_may_have_several_or_weak_etags(alice: Client, sent: str) -> None:
    assert_accepted(alice, "PATCH", sent)


@pytest.mark.parametrize(
    "sent", ['"a"', '"2"', '"v2"', '"v02x"', '"r2"', 'W/"a"', '"v2,0"', '"v1.0",', ', "v1.0" , ,"a b"']
)
def test_if_match_with_only_other_etags_is_rejected(alice: Client, sent: str) -> None:
    assert_stale(alice, "PATCH", sent)


_MALFORMED = ("2", '"v2.0', 'v2.0"', '"v2.0"x', ",", "x*", "W/*", 'w/"v2.0"', '"v2.0" "a"', '"v2.0", v2.0')


@pytest.mark.decision("G54")
@pytest.mark.parametrize(
    ("write", "sent"),
    [*((write, "v2.0") for write in WRITES), *(("PATCH", sent) for sent in _MALFORMED)],
)
def test_if_match_without_its_quotes_is_invalid(alice: Client, write: str, sent: str) -> None:
    response = WRITES[write](alice, f"/{alice.create()}", {"If-Match": sent})
    message = 'If-Match must be one or more ETags, each in double quotes as in "v2.0", or *'
    assert get_invalid_request(response) == message


def test_a_long_invalid_if_match_is_rejected_quickly(alice: Client) -> None:
    sent = '"a" , ,' * 2000 + "x"
    started = perf_counter()
    assert alice.patch("/1025", json={}, headers={"If-Match": sent}).status_code == 400
    assert perf_counter() - started < 1


@pytest.mark.decision("G54")
def test_a_write_accepts_the_etag_of_the_last_write(alice: Client) -> None:
    path = f"/{alice.create()}"
    etag = get_etag(alice, path)
    for price in (1, 2, 2, 3):
        response = alice.patch(path, json={"price": price}, headers={"If-Match": etag})
        assert (response.status_code, response.headers["Cache-Control"]) == (200, "private, no-cache")
        etag = response.headers["ETag"]
        assert etag == get_etag(alice, path)
    alice.delete(path)
    etag = alice.post(f"{path}/restore").headers["ETag"]
    assert etag == get_etag(alice, path)
    assert alice.delete(path, headers={"If-Match": etag}).status_code == 200


def test_if_match_of_a_restore_is_checked_last(alice: Client, bob: Client) -> None:
    deleted = f"/{alice.create()}"
    alice.delete(deleted)
    stale = {"If-Match": '"v9.0"'}
    assert get_outcome(bob.post(f"{deleted}/restore", headers=stale)) == (403, "not_owner")
    assert get_outcome(alice.post(f"{deleted}/restore", headers=stale)) == STALE


def test_a_create_ignores_conditions(alice: Client) -> None:
    response = alice.post(json={"title": "t", "content": "c"}, headers={"If-Match": '"v9.0"', "If-None-Match": "*"})
    assert response.status_code == 201


@pytest.mark.decision("G54")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("sent", ["*", '"v2.0"', '"a", W/"v2.7-gzip"'])
def test_a_write_is_rejected_if_if_none_match_matches(alice: Client, write: str, sent: str) -> None:
    path = create_second_version(alice, write)
    before = get_state(alice)
    response = WRITES[write](alice, path, {"If-None-Match": sent})
    message = "The listing matches If-None-Match: remove the header, or send If-Match with the version to change"
    assert_error(response, *STALE, message)
    assert get_state(alice) == before


@pytest.mark.decision("G54")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("sent", ['"v1.0"', '"a"', ""])
def test_a_write_succeeds_if_if_none_match_does_not_match(alice: Client, write: str, sent: str) -> None:
    path = create_second_version(alice, write)
    assert WRITES[write](alice, path, {"If-None-Match": sent, "If-Match": "*"}).status_code == 200


@pytest.mark.parametrize("write", WRITES)
def test_if_none_match_of_a_write_needs_quotes(alice: Client, write: str) -> None:
    response = WRITES[write](alice, f"/{alice.create()}", {"If-None-Match": "v2.0"})
    message = 'If-None-Match must be one or more ETags, each in double quotes as in "v2.0", or *'
    assert get_invalid_request(response) == message


def test_if_none_match_of_a_write_is_checked_last(alice: Client, bob: Client) -> None:
    path = f"/{alice.create()}"
    anything = {"If-None-Match": "*"}
    assert get_outcome(alice.put("/1", json={}, headers=anything)) == (404, "listing_not_found")
    assert get_outcome(bob.put(path, json={}, headers=anything)) == (403, "not_owner")
    assert get_outcome(alice.put(path, json={"price": -1}, headers=anything)) == (400, "invalid_request")
    assert get_outcome(alice.put(f"{path}?dry_run=true", json={}, headers=anything)) == STALE


@pytest.mark.decision("G54")
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("query", ["", "?include=all"])
def test_a_read_of_another_version_is_rejected(alice: Client, method: str, query: str) -> None:
    path = f"/{alice.create()}{query}"
    tag = get_etag(alice, path)
    replies = [alice.request(method, path, headers={"If-Match": sent}) for sent in (tag, "*", "", '"v99.0"', "v1.0")]
    assert [reply.status_code for reply in replies] == [200, 200, 200, 412, 400]
    both = alice.request(method, path, headers={"If-Match": '"v99.0"', "If-None-Match": tag})
    assert get_outcome(both) == STALE


def test_if_match_of_a_read_is_checked_last(alice: Client, bob: Client) -> None:
    path = f"/{alice.create()}"
    stale = {"If-Match": '"v9.0"'}
    assert get_outcome(alice.get("/1", headers=stale)) == (404, "listing_not_found")
    assert get_outcome(bob.get(path, headers=stale)) == (403, "not_owner")
    assert get_outcome(alice.get(f"{path}?include=x", headers=stale)) == (400, "invalid_request")


@pytest.mark.decision("G54")
@pytest.mark.parametrize("tags", ['*, "a"', '"a", *', "*,*", '*, "v1.0"'])
def test_a_star_in_a_list_of_tags_is_invalid(alice: Client, tags: str) -> None:
    path = f"/{alice.create()}"
    before = alice.get(path).content
    for header in ("If-Match", "If-None-Match"):
        headers = {header: tags}
        responses = [
            alice.get(path, headers=headers),
            alice.patch(path, json={"price": 5}, headers=headers),
            alice.delete(path, headers=headers),
            alice.post(f"{path}/restore", headers=headers),
        ]
        assert {get_outcome(response) for response in responses} == {(400, "invalid_request")}
    batch = {"operations": [{"op": "delete", "id": int(path[1:]), "if_match": tags}]}
    assert alice.post("/batch", json=batch).json()["results"][0]["status"] == 400
    assert alice.post("/batch", json=batch, headers={"If-Match": tags}).status_code == 400
    assert alice.get(path).content == before
