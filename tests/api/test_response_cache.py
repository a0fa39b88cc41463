"""Answers that are kept for as long as nothing in them has changed."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from listings.api.codec import Response
from listings.api.response_cache import WHOLE_LIST, ResponseCache
from tests.harness import Harness, Person
from tests.postgres_server import PostgresServer

PATH = "/api/v1/listings"
OVERHEAD = 1024
ROOM = 4 * (OVERHEAD + 100)


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database() as url:
        yield url


def titles(harness: Harness, person: Person, listing_id: int) -> list[Any]:
    """Of the listing, by its own address and in the list."""
    (listed,) = harness.fetch("GET", PATH, key=person.key).json()["listings"]
    return [harness.fetch("GET", f"{PATH}/{listing_id}", key=person.key).json()["title"], listed["title"]]


def answer(size: int = 100) -> Response:
    return Response(200, bytes(size))


def test_an_answer_is_found_by_its_account_and_name_unless_something_has_changed_since() -> None:
    kept, seven = ResponseCache(ROOM), answer()
    kept.store(1, 7, WHOLE_LIST, seven)
    assert kept.find(1, 7, WHOLE_LIST) is seven
    assert kept.find(1, 6, WHOLE_LIST) is seven
    assert kept.find(1, 8, WHOLE_LIST) is None
    assert kept.find(2, 7, WHOLE_LIST) is None
    assert kept.find(1, 7, "1025") is None


def test_a_newer_answer_takes_the_place_of_the_older_one_of_its_name_alone() -> None:
    kept, other, newer = ResponseCache(2 * ROOM), answer(), answer(50)
    kept.store(1, 7, "1025", answer())
    kept.store(1, 7, "2049", other)
    kept.store(1, 8, "1025", newer)
    assert [kept.find(1, 7, name) for name in ("1025", "2049")] == [newer, other]
    assert [kept.find(1, 8, name) for name in ("1025", "2049")] == [newer, None]
    assert kept.bytes == 2 * OVERHEAD + 150


def test_the_account_that_asked_least_recently_goes_first() -> None:
    kept = ResponseCache(ROOM)
    for account in range(4):
        kept.store(account, 1, WHOLE_LIST, answer())
    assert kept.find(0, 1, WHOLE_LIST) is not None
    kept.store(4, 1, WHOLE_LIST, answer())
    assert kept.find(1, 1, WHOLE_LIST) is None
    assert kept.find(0, 1, WHOLE_LIST) is not None
    assert kept.bytes == ROOM


def test_an_answer_that_would_drive_out_the_others_is_not_kept() -> None:
    kept = ResponseCache(ROOM)
    kept.store(1, 1, WHOLE_LIST, answer(100))
    kept.store(2, 1, WHOLE_LIST, answer(101))
    assert kept.find(1, 1, WHOLE_LIST) is not None
    assert kept.find(2, 1, WHOLE_LIST) is None
    kept.store(1, 2, WHOLE_LIST, answer(101))
    assert (kept.find(1, 1, WHOLE_LIST), kept.bytes) == (None, 0)
    kept.store(1, 3, WHOLE_LIST, answer(100))
    assert (kept.find(1, 3, WHOLE_LIST) is not None, kept.bytes) == (True, OVERHEAD + 100)


def test_an_account_that_has_asked_for_its_share_begins_anew() -> None:
    kept = ResponseCache(3 * ROOM)
    for number in range(4):
        kept.store(1, 1, str(number), answer())
    assert [kept.find(1, 1, str(number)) is not None for number in range(4)] == [False, False, False, True]
    assert kept.bytes == OVERHEAD + 100


def test_the_same_answer_again_takes_no_more_room() -> None:
    kept = ResponseCache(2 * ROOM)
    for _ in range(2):
        kept.store(1, 1, "1025", answer())
    assert kept.bytes == OVERHEAD + 100


@pytest.mark.parametrize("size", [0, 1])
def test_without_memory_nothing_is_kept(size: int) -> None:
    kept = ResponseCache(0)
    kept.store(1, 1, WHOLE_LIST, answer(size))
    assert (kept.find(1, 1, WHOLE_LIST), kept.bytes) == (None, 0)


def test_when_it_is_closed_all_is_forgotten_and_nothing_more_is_kept() -> None:
    kept = ResponseCache(ROOM)
    kept.store(1, 1, "1025", answer())
    kept.close()
    kept.store(1, 1, "2049", answer())
    assert [kept.find(1, 1, name) for name in ("1025", "2049")] == [None, None]
    assert kept.bytes == 0


def test_whether_there_is_one_of_a_name_is_told_of_any_revision() -> None:
    kept = ResponseCache(ROOM)
    kept.store(1, 1, "1025", answer())
    assert [kept.has(*of) for of in ((1, "1025"), (1, "2049"), (2, "1025"))] == [True, False, False]


def test_a_listing_that_was_read_is_kept_as_it_was_answered(harness: Harness) -> None:
    alice = harness.person("alice")
    created = harness.fetch(
        "POST", "/api/v1/listings", key=alice.key, json={"title": "Lamp", "content": "Brass."}
    ).json()
    first = harness.fetch("GET", f"/api/v1/listings/{created['id']}", key=alice.key)
    kept = harness.application._response_cache.find(alice.account.id, 1, str(created["id"]))  # noqa: SLF001 - no answer tells it
    assert kept is not None
    assert kept.body == first.body == harness.fetch("GET", f"/api/v1/listings/{created['id']}", key=alice.key).body


# On PostgreSQL the revision is read at each request


def test_what_was_answered_before_is_answered_again_while_the_revision_is_the_same(url: str, tmp_path: Path) -> None:
    async def retitle(title: str) -> None:
        connection = await asyncpg.connect(url)
        await connection.execute("UPDATE listings SET title = $1", title)
        await connection.close()

    with Harness(tmp_path, database=url) as harness:
        alice = harness.person("alice")
        listing_id = harness.fetch("POST", PATH, key=alice.key, json={"title": "Lamp", "content": "Brass."}).json()[
            "id"
        ]
        assert titles(harness, alice, listing_id) == ["Lamp", "Lamp"]
        harness.run(retitle("Stand"))  # which raises no revision, as nothing of ours would do
        assert titles(harness, alice, listing_id) == ["Lamp", "Lamp"]


def test_what_another_process_edits_is_seen_at_the_next_request(url: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        one, two = [stack.enter_context(Harness(tmp_path / name, database=url)) for name in ("one", "two")]
        alice = one.person("alice")
        listing_id = one.fetch("POST", PATH, key=alice.key, json={"title": "Lamp 0", "content": "Brass."}).json()["id"]
        for number in range(1, 6):
            assert titles(one, alice, listing_id) == [f"Lamp {number - 1}"] * 2
            assert titles(one, alice, listing_id) == [f"Lamp {number - 1}"] * 2
            two.fetch("PATCH", f"{PATH}/{listing_id}", key=alice.key, json={"title": f"Lamp {number}"})
        two.fetch("DELETE", f"{PATH}/{listing_id}", key=alice.key)
        assert one.fetch("GET", f"{PATH}/{listing_id}", key=alice.key).status == 404


def test_nothing_is_answered_again_that_another_server_has_told(tmp_path: Path) -> None:
    with PostgresServer() as server:
        name = server.url("postgres")
        with Harness(tmp_path, database=name) as harness:
            alice = harness.person("alice")
            asked = {"title": "Lamp", "content": "Brass."}
            listing_id = harness.fetch("POST", PATH, key=alice.key, json=asked).json()["id"]
            assert titles(harness, alice, listing_id) == ["Lamp", "Lamp"]
            server.restart()
            # As on a standby that was behind, and has come to the same revision by another edit since.
            server.execute("UPDATE listings SET title = 'Stand' WHERE title = 'Lamp'")
            assert titles(harness, alice, listing_id) == ["Stand", "Stand"]
