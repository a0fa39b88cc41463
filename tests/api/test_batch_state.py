"""POST /api/v1/listings/batch with If-Match: a batch that is bound to a state of the account."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.api.batches import create, delete, get_statuses, update
from tests.api.helpers import get_etag, get_invalid_request, get_outcome
from tests.conftest import Client

pytestmark = pytest.mark.decision("G48")

STALE = {
    "error": "Your listings do not match If-Match: read the list again and send its current ETag, including the quotes"
}


def get_state_tag(client: Client, edits: int) -> str:
    return f'"s{edits}.{client.person.account.id}"'


def send_if(client: Client, tag: str, *operations: Any, query: str = "", **more: Any) -> httpx2.Response:
    body = {"operations": list(operations), **more}
    return client.post(f"/batch{query}", json=body, headers={"If-Match": tag})


@pytest.mark.every_engine
def test_a_batch_with_the_etag_of_a_list_applies_to_that_state_alone(alice: Client) -> None:
    own = alice.create()
    tags = [get_etag(alice, query) for query in ("", "?status=all&limit=1", "?q=lamp&include=etag")]
    assert len(set(tags)) == 3
    response = send_if(alice, tags[0], update(own, price=5))
    assert (get_statuses(response.json()["results"]), response.headers["ETag"]) == ([200], get_state_tag(alice, 2))
    for tag in tags:
        stale = send_if(alice, tag, update(own, price=6))
        assert (get_outcome(stale), stale.json()) == ((412, "precondition_failed"), STALE)
    again = send_if(alice, response.headers["ETag"], update(own, price=7), create())
    assert again.headers["ETag"] == get_state_tag(alice, 3)
    assert get_etag(alice).startswith(f"{again.headers['ETag'][:-1]}-r")
    assert alice.read(own)["price"] == 7


@pytest.mark.parametrize(
    ("tag", "status"),
    [
        ('"s1.{}"', 200),
        ('W/"s1.{}-r1-gzip"', 200),
        ('"s9.1", "s1.{}-r5"', 200),
        ("*", 200),
        ('"s1.9{}"', 412),
        ('"s10.{}"', 412),
        ('"v1.0"', 412),
        ("s1.1", 400),
    ],
)
def test_a_batch_accepts_the_tags_of_its_account(alice: Client, tag: str, status: int) -> None:
    alice.create()
    assert send_if(alice, tag.format(alice.person.account.id), create()).status_code == status


def test_a_batch_with_if_match_is_atomic(alice: Client) -> None:
    response = send_if(alice, "*", create(), delete(1))
    assert (get_statuses(response.json()["results"]), response.headers["ETag"]) == ([424, 404], get_state_tag(alice, 0))
    assert (
        get_invalid_request(send_if(alice, "*", create(), atomic=False))
        == "atomic must be true or absent with If-Match"
    )
    assert send_if(alice, response.headers["ETag"], create(), atomic=True).headers["ETag"] == get_state_tag(alice, 1)


def test_a_dry_run_returns_the_state_that_it_shows(alice: Client) -> None:
    tag = send_if(alice, "*", create(), query="?dry_run=true").headers["ETag"]
    assert tag == get_state_tag(alice, 0)
    assert send_if(alice, tag, create()).status_code == 200
    assert send_if(alice, tag, create(), query="?dry_run=true").status_code == 412


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.parametrize("query", ["", "?status=all", "?count=true&sort=price"])
def test_the_etag_of_a_list_is_that_of_its_rows_beside_a_busy_writer(alice: Client, query: str) -> None:
    own = alice.create()

    def write() -> None:
        for edits in range(2, 102):
            alice.patch(f"/{own}", json={"price": edits})

    with ThreadPoolExecutor(1) as pool:
        writes = pool.submit(write)
        found = [alice.get(query)]
        while not writes.done():
            found.append(alice.get(query))
        writes.result()
    for response in found[1:]:
        edits = round(response.json()["listings"][0]["price"])
        assert response.headers["ETag"].startswith(f"{get_state_tag(alice, max(edits, 1))[:-1]}-")
