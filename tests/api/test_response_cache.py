"""The response cache, which returns a response until its account is edited."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from listings.api.codec import Response
from listings.api.response_cache import WHOLE_LIST, ResponseCache
from tests.api.helpers import LISTINGS
from tests.harness import Harness, Person
from tests.postgres_server import PostgresServer

OVERHEAD = 1024
CAPACITY = 4 * (OVERHEAD + 100)


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database() as url:
        yield url


def fetch_titles(harness: Harness, person: Person, listing_id: int) -> list[Any]:
    (listed,) = harness.fetch("GET", LISTINGS, key=person.key).json()["listings"]
    return [harness.fetch("GET", f"{LISTINGS}/{listing_id}", key=person.key).json()["title"], listed["title"]]


def build_cache(max_bytes: int) -> ResponseCache:
    services: Any = SimpleNamespace(revisions=None)  # `find` and `store` do not use them
    return ResponseCache(services, max_bytes)


def build_response(size: int = 100) -> Response:
    return Response(200, bytes(size))


def test_a_response_is_found_until_a_later_revision() -> None:
    cache = build_cache(CAPACITY)
    seven = cache.store(1, 7, WHOLE_LIST, build_response())
    assert cache.find(1, 7, WHOLE_LIST) is seven
    assert cache.find(1, 6, WHOLE_LIST) is seven
    assert cache.find(1, 8, WHOLE_LIST) is None
    assert cache.find(2, 7, WHOLE_LIST) is None
    assert cache.find(1, 7, "1025") is None


def test_a_newer_response_replaces_the_older_one_of_its_name() -> None:
    cache = build_cache(2 * CAPACITY)
    cache.store(1, 7, "1025", build_response())
    other = cache.store(1, 7, "2049", build_response())
    newer = cache.store(1, 8, "1025", build_response(50))
    assert [cache.find(1, 7, name) for name in ("1025", "2049")] == [newer, other]
    assert [cache.find(1, 8, name) for name in ("1025", "2049")] == [newer, None]
    assert cache.bytes == 2 * OVERHEAD + 150


def test_the_least_recently_used_account_is_evicted_first() -> None:
    cache = build_cache(CAPACITY)
    for account in range(4):
        cache.store(account, 1, WHOLE_LIST, build_response())
    assert cache.find(0, 1, WHOLE_LIST) is not None
    cache.store(4, 1, WHOLE_LIST, build_response())
    assert cache.find(1, 1, WHOLE_LIST) is None
    assert cache.find(0, 1, WHOLE_LIST) is not None
    assert cache.bytes == CAPACITY


def test_an_account_whose_responses_are_only_stored_is_in_use() -> None:
    cache = build_cache(CAPACITY)
    for account in (0, 1, 2, 3, 0):
        cache.store(account, 1, WHOLE_LIST, build_response())
    cache.store(4, 1, WHOLE_LIST, build_response())
    assert cache.find(1, 1, WHOLE_LIST) is None
    assert cache.find(0, 1, WHOLE_LIST) is not None


def test_a_response_that_would_evict_all_others_is_not_cached() -> None:
    cache = build_cache(CAPACITY)
    cache.store(1, 1, WHOLE_LIST, build_response(100))
    cache.store(2, 1, WHOLE_LIST, build_response(101))
    assert cache.find(1, 1, WHOLE_LIST) is not None
    assert cache.find(2, 1, WHOLE_LIST) is None
    cache.store(1, 2, WHOLE_LIST, build_response(101))
    assert (cache.find(1, 1, WHOLE_LIST), cache.bytes) == (None, 0)
    cache.store(1, 3, WHOLE_LIST, build_response(100))
    assert (cache.find(1, 3, WHOLE_LIST) is not None, cache.bytes) == (True, OVERHEAD + 100)


def test_an_account_that_fills_its_share_starts_again() -> None:
    cache = build_cache(3 * CAPACITY)
    for number in range(4):
        cache.store(1, 1, str(number), build_response())
    assert [cache.find(1, 1, str(number)) is not None for number in range(4)] == [False, False, False, True]
    assert cache.bytes == OVERHEAD + 100


def test_the_same_response_again_takes_no_more_memory() -> None:
    cache = build_cache(2 * CAPACITY)
    for _ in range(2):
        cache.store(1, 1, "1025", build_response())
    assert cache.bytes == OVERHEAD + 100


@pytest.mark.parametrize("size", [0, 1])
def test_without_memory_nothing_is_cached(size: int) -> None:
    cache = build_cache(0)
    cache.store(1, 1, WHOLE_LIST, build_response(size))
    assert (cache.find(1, 1, WHOLE_LIST), cache.bytes) == (None, 0)


def test_a_closed_cache_stays_empty() -> None:
    cache = build_cache(CAPACITY)
    cache.store(1, 1, "1025", build_response())
    cache.close()
    cache.store(1, 1, "2049", build_response())
    assert [cache.find(1, 1, name) for name in ("1025", "2049")] == [None, None]
    assert cache.bytes == 0


def test_a_response_of_a_listing_is_cached(harness: Harness) -> None:
    alice = harness.person("alice")
    created = harness.fetch("POST", LISTINGS, key=alice.key, json={"title": "Lamp", "content": "Brass."}).json()
    first = harness.fetch("GET", f"{LISTINGS}/{created['id']}", key=alice.key)
    cached = harness.application._response_cache.find(alice.account.id, 1, str(created["id"]))  # noqa: SLF001 - no response shows it
    assert cached is not None
    assert cached.body == first.body == harness.fetch("GET", f"{LISTINGS}/{created['id']}", key=alice.key).body


def test_the_cached_response_is_returned_while_the_revision_is_the_same(url: str, tmp_path: Path) -> None:
    async def retitle(title: str) -> None:
        connection = await asyncpg.connect(url)
        await connection.execute("UPDATE listings SET title = $1", title)
        await connection.close()

    with Harness(tmp_path, database=url) as harness:
        alice = harness.person("alice")
        listing_id = harness.fetch("POST", LISTINGS, key=alice.key, json={"title": "Lamp", "content": "Brass."}).json()[
            "id"
        ]
        assert fetch_titles(harness, alice, listing_id) == ["Lamp", "Lamp"]
        harness.run(retitle("Stand"))  # does not increment the revision, as every edit of the service would
        assert fetch_titles(harness, alice, listing_id) == ["Lamp", "Lamp"]


def test_an_edit_by_another_process_is_returned_at_the_next_request(url: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        one, two = [stack.enter_context(Harness(tmp_path / name, database=url)) for name in ("one", "two")]
        alice = one.person("alice")
        fields = {"title": "Lamp 0", "content": "Brass."}
        listing_id = one.fetch("POST", LISTINGS, key=alice.key, json=fields).json()["id"]
        for number in range(1, 6):
            assert fetch_titles(one, alice, listing_id) == [f"Lamp {number - 1}"] * 2
            assert fetch_titles(one, alice, listing_id) == [f"Lamp {number - 1}"] * 2
            two.fetch("PATCH", f"{LISTINGS}/{listing_id}", key=alice.key, json={"title": f"Lamp {number}"})
        two.fetch("DELETE", f"{LISTINGS}/{listing_id}", key=alice.key)
        assert one.fetch("GET", f"{LISTINGS}/{listing_id}", key=alice.key).status == 404


def test_a_restarted_database_server_clears_the_cache(tmp_path: Path) -> None:
    with PostgresServer() as server, server.database() as url, Harness(tmp_path, database=url) as harness:
        alice = harness.person("alice")
        fields = {"title": "Lamp", "content": "Brass."}
        listing_id = harness.fetch("POST", LISTINGS, key=alice.key, json=fields).json()["id"]
        assert fetch_titles(harness, alice, listing_id) == ["Lamp", "Lamp"]
        server.restart()
        # A standby that lagged behind may reach the same revision by another edit.
        server.execute(
            "UPDATE listings SET title = 'Stand' WHERE title = 'Lamp'", url.rpartition("/")[2].partition("?")[0]
        )
        assert fetch_titles(harness, alice, listing_id) == ["Stand", "Stand"]
