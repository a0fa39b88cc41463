"""ETag, If-None-Match and If-Match (decision G35)."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier
from typing import Any

import httpx
import pytest

from listings.domain import api_keys
from listings.service import Service
from tests.api.test_update_listing import EVERYTHING
from tests.conftest import Client
from tests.harness import TIMEOUT, Person, RunningService
from tests.http.raw import Connection
from tests.http.raw import request as raw_request

LISTINGS = "/api/v1/listings"
STALE = 412, "precondition_failed"


def tag_of(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200, response.text
    tag = str(response.headers["ETag"])
    assert re.fullmatch(r'"[\x21\x23-\x7e]+"', tag)  # strong (RFC 9110, 8.8.3)
    return tag


def outcome(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.headers.get("X-Error-Code", "")


# The tag of a list


def test_lists_of_two_accounts_have_different_tags(alice: Client, bob: Client) -> None:
    for query in ("", "?status=all"):
        assert tag_of(alice, query) != tag_of(bob, query)
        known = {"If-None-Match": tag_of(alice, query)}
        assert (alice.get(query, headers=known).status_code, bob.get(query, headers=known).status_code) == (304, 200)


# The tag of a listing


@pytest.mark.decision("G35")
@pytest.mark.parametrize("field", EVERYTHING)
def test_every_edit_of_a_listing_changes_its_tag(alice: Client, field: str) -> None:
    path = f"/{alice.create()}"
    before = tag_of(alice, path)
    assert alice.patch(path, json={field: EVERYTHING[field]}).status_code == 200
    assert tag_of(alice, path) != before


def test_a_tag_is_never_had_twice(alice: Client) -> None:
    path = f"/{alice.create()}"
    tags = [tag_of(alice, path)]
    for price in (5, 6, 5, 0):
        alice.patch(path, json={"price": price})
        tags.append(tag_of(alice, path))
    alice.delete(path)
    alice.post(f"{path}/restore")
    assert len({*tags, tag_of(alice, path)}) == len(tags) + 1


NO_EDITS: dict[str, Callable[[Client, str, str], Any]] = {
    "reading": lambda alice, own, _: alice.get(own),
    "listing": lambda alice, _own, _other: alice.get("?status=all&q=bicycle"),
    "the same again": lambda alice, own, _: alice.patch(own, json={"price": 0, "title": "Bicycle"}),
    "nothing": lambda alice, own, _: alice.put(own, json={}),
    "what can't be set": lambda alice, own, _: alice.put(own, json={"id": 5, "view_count": 7}),
    "a refused update": lambda alice, own, _: alice.patch(own, json={"price": -1}),
    "a stale update": lambda alice, own, _: alice.patch(own, json={"price": 9}, headers={"If-Match": '"v9.0"'}),
    "a rehearsal": lambda alice, own, _: alice.patch(f"{own}?dry_run=true", json={"price": 9}),
    "a rehearsed delete": lambda alice, own, _: alice.delete(f"{own}?dry_run=true"),
    "an edit of another listing": lambda alice, _, other: alice.patch(other, json={"price": 9}),
    "a restore of what is not deleted": lambda alice, own, _: alice.post(f"{own}/restore"),
}


@pytest.mark.decision("G35")
@pytest.mark.parametrize("kind", NO_EDITS)
def test_nothing_else_changes_it(alice: Client, kind: str) -> None:
    own, other = f"/{alice.create()}", f"/{alice.create()}"
    before = tag_of(alice, own)
    NO_EDITS[kind](alice, own, other)
    assert tag_of(alice, own) == before


def test_what_is_included_is_in_the_tag(alice: Client) -> None:
    path = f"/{alice.create()}"
    queries = ["", "?include=district", "?include=latitude", "?include=all", "?include=deleted_at"]
    assert len({tag_of(alice, path + query) for query in queries}) == len(queries)
    assert tag_of(alice, f"{path}?include=latitude,district") == tag_of(alice, f"{path}?include=district,latitude")
    assert tag_of(alice, f"{path}?colour=red") == tag_of(alice, path)


# The tag of a list


@pytest.mark.decision("G35")
def test_the_tag_of_a_list_changes_with_every_edit_of_the_account(alice: Client) -> None:
    tags = [tag_of(alice, "")]
    path = f"/{alice.create()}"
    edits: list[Callable[[], httpx.Response]] = [
        lambda: alice.patch(path, json={"price": 5}),
        lambda: alice.delete(path),
        lambda: alice.post(f"{path}/restore"),
        lambda: alice.post("/batch", json={"operations": [{"op": "delete", "id": int(path[1:])}]}),
    ]
    tags.append(tag_of(alice, ""))
    for edit in edits:
        assert edit().status_code == 200
        tags.append(tag_of(alice, ""))
    assert len(set(tags)) == len(tags)


@pytest.mark.parametrize("kind", [kind for kind in NO_EDITS if kind != "an edit of another listing"])
def test_what_is_no_edit_changes_no_list_either(alice: Client, kind: str) -> None:
    own, other = f"/{alice.create()}", f"/{alice.create()}"
    before = tag_of(alice, ""), tag_of(alice, "?status=all&limit=1")
    NO_EDITS[kind](alice, own, other)
    assert (tag_of(alice, ""), tag_of(alice, "?status=all&limit=1")) == before


def test_an_edit_of_another_account_changes_no_list(alice: Client, bob: Client) -> None:
    alice.create()
    before = tag_of(alice, "")
    bob.patch(f"/{bob.create()}", json={"price": 5})
    assert tag_of(alice, "") == before


def test_every_query_has_a_tag_of_its_own(alice: Client) -> None:
    for _ in range(3):
        alice.create()
    link = alice.get("?limit=1").headers["Link"].partition("?")[2].partition(">")[0]
    queries = ["", "?status=all", "?limit=1", "?limit=2", f"?{link}", "?sort=id", "?q=bicycle", "?price_min=0"]
    queries += ["?include=all", "?include=district", "?category=", "?region=", "?updated_since=2020-01-01"]
    assert len({tag_of(alice, query) for query in queries}) == len(queries)
    assert tag_of(alice, "?limit=1&sort=price") == tag_of(alice, "?sort=price&limit=1")


# 304


@pytest.mark.decision("G35")
@pytest.mark.parametrize("path", ["", "?limit=1&sort=price&include=all", "/{own}", "/{own}?include=all"])
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ("{}", 304),
        ("W/{}", 304),
        ("*", 304),
        ('"a" , {}', 304),
        ('{},"b"', 304),
        ('"a", W/"b",W/{}', 304),
        ('"a"', 200),
        ('W/"a", "b"', 200),
        ("{}x", 200),
        ("x", 200),
        ('"', 200),
        (",,", 200),
    ],
)
def test_if_none_match_is_304_where_a_tag_is_the_present_one(alice: Client, path: str, sent: str, status: int) -> None:
    path = path.format(own=alice.create())
    tag = tag_of(alice, path)
    response = alice.get(path, headers={"If-None-Match": sent.format(tag)})
    assert response.status_code == status
    assert response.headers["ETag"] == tag
    assert (response.content == b"") == (status == 304)


@pytest.mark.parametrize("path", ["", "?limit=1", "/{own}", "/{own}/"])
def test_a_304_tells_nothing_of_a_body_and_everything_else(alice: Client, running: RunningService, path: str) -> None:
    path = path.format(own=alice.create())
    plain, tag = alice.get(path), tag_of(alice, path)
    sent = raw_request("GET", LISTINGS + path, alice.person.key, b"If-None-Match: " + tag.encode())
    with Connection(running).send(sent, sent.replace(b"GET", b"HEAD"), sent.replace(b"None-Match", b"Nothing")) as it:
        answers = [it.read_response(), it.read_response()]
        again = it.read_response()
    for answer in answers:
        assert (answer.status, answer.body) == (304, b"")
        assert answer.headers.keys() == plain.headers.keys() - {"content-length", "content-type"}
        assert (answer.headers["etag"], answer.headers["cache-control"]) == (tag, "private, no-cache")
    assert (again.status, again.body) == (200, plain.content)


def test_a_tag_holds_until_the_next_edit(alice: Client) -> None:
    path = f"/{alice.create()}"
    tags = {place: tag_of(alice, place) for place in ("", path)}
    alice.patch(path, json={"price": 5})
    for place, tag in tags.items():
        assert alice.get(place, headers={"If-None-Match": tag}).status_code == 200


def test_a_304_counts_towards_the_limit_as_any_other_answer(alice: Client) -> None:
    before = alice.get()
    after = alice.get(headers={"If-None-Match": before.headers["ETag"]})
    left = [int(response.headers["X-RateLimit-Remaining"]) for response in (before, after)]
    assert (after.status_code, left[0] - left[1]) == (304, 1)


def test_whose_it_is_comes_before_what_is_known_of_it(alice: Client, bob: Client, charlie: Client) -> None:
    path, gone = f"/{alice.create()}", f"/{alice.create()}"
    alice.delete(gone)
    known = {"If-None-Match": f"*, {tag_of(alice, path)}"}
    assert outcome(bob.get(path, headers=known)) == (403, "not_owner")
    assert outcome(alice.get(gone, headers=known)) == (404, "listing_not_found")
    assert outcome(charlie.get(headers=known)) == (403, "plan_expired")
    assert outcome(alice.get("?limit=0", headers=known)) == (400, "invalid_request")


@pytest.mark.decision("G35")
def test_what_has_no_tag_is_not_to_be_stored(alice: Client) -> None:
    made = alice.post(json={"title": "t", "content": "c"})
    path = f"/{made.json()['id']}"
    responses = [made, alice.get("/1"), alice.delete(path), alice.post("/batch", json={"operations": [{}]})]
    responses.append(alice.patch(f"{path}?dry_run=true", json={}))
    assert {response.headers["Cache-Control"] for response in responses} == {"no-store"}
    assert not [response for response in responses if "ETag" in response.headers]


# If-Match


WRITES: dict[str, Callable[[Client, str, dict[str, str]], httpx.Response]] = {
    "PUT": lambda client, path, headers: client.put(path, json={"price": 7}, headers=headers),
    "PATCH": lambda client, path, headers: client.patch(path, json={"price": 7}, headers=headers),
    "DELETE": lambda client, path, headers: client.delete(path, headers=headers),
    "restore": lambda client, path, headers: client.post(f"{path}/restore", headers=headers),
}
GOOD = ["{}", "W/{}", "*", '"a", {}', '{},"b"', '"v2.17"', '"v2.0-district"', '"v1.0", "v2.0"', ""]
BAD = ['"v1.0"', '"v3.0"', '"a"', "v2.0", "2", '"2"', '"v2"', '"v2.0', 'v2.0"', '"v2.0"x', ",", '"v02x"', '"r2"', "x*"]


def twice_edited(client: Client, write: str) -> str:
    """A listing of version 2 that can be written so."""
    path = f"/{client.create()}"
    response = client.delete(path) if write == "restore" else client.patch(path, json={"title": "Second"})
    assert response.status_code == 200
    return path


@pytest.mark.decision("G35")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("sent", GOOD)
def test_a_write_is_done_where_if_match_names_the_version(alice: Client, write: str, sent: str) -> None:
    path = twice_edited(alice, write)
    response = WRITES[write](alice, path, {"If-Match": sent.format('"v2.0"')})
    assert response.status_code == 200, response.text


@pytest.mark.decision("G35")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("sent", BAD)
def test_a_write_is_refused_where_it_does_not(alice: Client, write: str, sent: str) -> None:
    path = twice_edited(alice, write)
    before = alice.get("?status=all&include=all,deleted_at")
    response = WRITES[write](alice, path, {"If-Match": sent})
    assert outcome(response) == STALE
    assert response.json() == {
        "error": "The listing does not match If-Match: read it again and send its current ETag, including the quotes"
    }
    after = alice.get("?status=all&include=all,deleted_at")
    assert (after.content, after.headers["ETag"]) == (before.content, before.headers["ETag"])


def test_the_tag_that_was_read_is_the_one_that_a_write_accepts(alice: Client) -> None:
    path = f"/{alice.create()}"
    for write in ("PUT", "PATCH", "DELETE"):
        tag = tag_of(alice, f"{path}?include=all")
        alice.patch(path, json={"title": write})
        assert outcome(WRITES[write](alice, path, {"If-Match": tag})) == STALE
        assert WRITES[write](alice, path, {"If-Match": tag_of(alice, path)}).status_code == 200


@pytest.mark.decision("G35")
def test_the_tag_that_a_write_answers_is_the_one_that_the_next_accepts(alice: Client) -> None:
    path = f"/{alice.create()}"
    tag = tag_of(alice, path)
    for price in (1, 2, 2, 3):
        response = alice.patch(path, json={"price": price}, headers={"If-Match": tag})
        assert (response.status_code, response.headers["Cache-Control"]) == (200, "private, no-cache")
        tag = response.headers["ETag"]
        assert tag == tag_of(alice, path)
    alice.delete(path)
    tag = alice.post(f"{path}/restore").headers["ETag"]
    assert tag == tag_of(alice, path)
    assert alice.delete(path, headers={"If-Match": tag}).status_code == 200


def test_a_precondition_is_judged_last(alice: Client, bob: Client) -> None:
    path, gone = f"/{alice.create()}", f"/{alice.create()}"
    alice.delete(gone)
    stale = {"If-Match": '"v9.0"'}
    assert outcome(alice.put("/1", json={}, headers=stale)) == (404, "listing_not_found")
    assert outcome(bob.put(path, json={}, headers=stale)) == (403, "not_owner")
    assert outcome(alice.put(gone, json={}, headers=stale)) == (404, "listing_not_found")
    assert outcome(alice.put(path, content=b"{", headers=stale)) == (400, "malformed_json")
    assert outcome(alice.put(path, json={"price": -1}, headers=stale)) == (400, "invalid_request")
    assert outcome(alice.put(path, json={}, headers=stale)) == STALE
    assert outcome(bob.post(f"{gone}/restore", headers=stale)) == (403, "not_owner")
    assert outcome(alice.post(f"{gone}/restore", headers=stale)) == STALE


def test_without_if_match_the_last_write_wins(alice: Client) -> None:
    path = f"/{alice.create()}"
    assert [alice.patch(path, json={"price": price}).status_code for price in (1, 2, 3)] == [200] * 3
    assert alice.get(path).json()["price"] == 3


def test_if_match_on_a_create_and_if_none_match_on_a_write_mean_nothing(alice: Client) -> None:
    response = alice.post(json={"title": "t", "content": "c"}, headers={"If-Match": '"v9.0"', "If-None-Match": "*"})
    assert response.status_code == 201
    path = response.headers["Location"].removeprefix(LISTINGS)
    assert alice.patch(path, json={"price": 5}, headers={"If-None-Match": "*"}).status_code == 200


# Lost updates


@pytest.fixture
def unlimited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    with RunningService(tmp_path_factory.mktemp("unlimited"), rate_limit="0") as service:
        yield service


def add_one(client: Client, path: str, times: int) -> int:
    """Read, add 1 to the price, write, again where another was quicker; returns how often another was."""
    beaten = 0
    for _ in range(times):
        while True:
            read = client.get(path)
            headers = {"If-Match": read.headers["ETag"]}
            response = client.patch(path, json={"price": read.json()["price"] + 1}, headers=headers)
            if response.status_code == 200:
                break
            assert outcome(response) == STALE
            beaten += 1
    return beaten


@pytest.mark.decision("G35")
def test_eight_clients_that_read_change_and_write_lose_nothing(unlimited: RunningService) -> None:
    person = unlimited.cast().alice
    start = Barrier(8)

    def work(_: int) -> int:
        with closing(httpx.Client(base_url=unlimited.base_url, timeout=TIMEOUT)) as http:
            client = Client(http, with_a_key_of_its_own(unlimited, person))
            start.wait(TIMEOUT)
            return add_one(client, path, 25)

    with httpx.Client(base_url=unlimited.base_url, timeout=TIMEOUT) as http:
        alice = Client(http, person)
        path = f"/{alice.create()}"
        with ThreadPoolExecutor(8) as pool:
            beaten = sum(pool.map(work, range(8)))
        response = alice.get(path)
    assert (response.json()["price"], response.headers["ETag"]) == (200, '"v201.0"')
    assert beaten > 0


def with_a_key_of_its_own(running: RunningService, person: Person) -> Person:
    async def adopt(service: Service) -> Person:
        issued = await service.add_key(person.account, "another", api_keys.generate())
        return Person(person.account, issued.secret, issued.key.id)

    return running.run(adopt)
