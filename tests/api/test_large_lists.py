"""Lists that are too large for memory: they are sent from a file, and look like any other list."""

import asyncio
import json
import os
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from listings.api import codec, lists
from listings.api.app import Application, Options
from listings.domain.listings import LargeListError
from listings.domain.model import Caller, Listing, NewListing, bucket_of
from listings.http import body_files
from listings.http.body_files import LISTS, BodyFolder, Usage
from listings.store.sqlite import database, store
from tests.api.helpers import LISTINGS
from tests.harness import Harness, Person, Reply, fetch
from tests.processes import list_open_files
from tests.waiting import until_async

LONG = "Brass. " * 10_000 + "\x01💡"  # 70 kB
CHANGES = "/api/v1/changes"
ENGINES = pytest.mark.every_engine


def create_lamps(harness: Harness, person: Person, count: int = 12) -> list[int]:
    """Store listings, two of three with a long text; return their ids, newest first."""

    async def work() -> list[int]:
        caller = await harness.services.access.authenticate(person.key)
        news = [NewListing(title=f"Lamp {n % 5}", content=LONG if n % 3 else "Short.") for n in range(count)]
        return [(await harness.services.listings.create(caller, new)).listing_id for new in news]

    return harness.run(work())[::-1]


def request(harness: Harness, person: Person, query: str = "", method: str = "GET") -> Coroutine[Any, Any, Reply]:
    headers = [(b"x-api-key", person.key.encode())]
    return fetch(harness.application, method, LISTINGS + query, headers, [b""])


def list_listings(harness: Harness, person: Person) -> list[Listing]:
    return harness.run(harness.store.list_listings(bucket_of(person.account.id), person.account.id)).listings


def count_files(folder: Path) -> int:
    files = list_open_files(os.getpid()).values()
    return sum(file.startswith(f"{folder}/") and file.endswith("(deleted)") for file in files)


@ENGINES
@pytest.mark.decision("G16")
def test_a_large_list_has_the_bytes_of_its_records(harness: Harness, tmp_path: Path) -> None:
    alice = harness.person("alice")
    ids = create_lamps(harness, alice)
    records = [harness.fetch("GET", f"{LISTINGS}/{listing_id}", key=alice.key).body for listing_id in ids]
    reply = harness.fetch("GET", LISTINGS, key=alice.key)
    assert reply.body == b'{"listings":[%b]}' % b",".join(records)
    assert reply.headers["content-length"] == str(len(reply.body))
    assert count_files(tmp_path) == 1
    head = harness.fetch("HEAD", LISTINGS, key=alice.key)
    assert (head.body, head.headers["content-length"]) == (b"", str(len(reply.body)))
    same = harness.fetch("GET", LISTINGS, key=alice.key, headers={"If-None-Match": reply.headers["etag"]})
    assert (same.status, same.headers["etag"]) == (304, reply.headers["etag"])


@ENGINES
@pytest.mark.parametrize(
    "query", ["sort=title", "status=all&sort=-price", "q=lamp", "q=brass", "q=rimu", "include=all"]
)
def test_pages_of_long_listings_join_up(harness: Harness, query: str) -> None:
    alice = harness.person("alice")
    create_lamps(harness, alice)
    whole = harness.fetch("GET", f"{LISTINGS}?{query}", key=alice.key).json()["listings"]
    assert len(whole) == {"q=brass": 8, "q=rimu": 0}.get(query, 12)
    found, url = [], f"{LISTINGS}?{query}&limit=5"
    while url:
        page = harness.fetch("GET", url, key=alice.key)
        found += page.json()["listings"]
        url = (re.findall("<(.*)>", page.headers.get("link", "")) or [""])[0]
        assert len(page.json()["listings"]) == (5 if url else len(whole) % 5)
    assert found == whole


def test_clients_that_request_the_same_list_share_a_file(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "_KEEP_SECONDS", 0.0)
    alice = harness.person("alice")
    create_lamps(harness, alice)

    async def read() -> tuple[list[Reply], int]:
        replies = [asyncio.ensure_future(request(harness, alice)) for _ in range(5)]
        most = 0
        while not all(reply.done() for reply in replies):
            await asyncio.sleep(0)
            most = max(most, count_files(tmp_path))
        await until_async(lambda: count_files(tmp_path) == 0)
        return [reply.result() for reply in replies], most

    replies, most = harness.run(read())
    assert {reply.status for reply in replies} == {200}
    assert len({reply.body for reply in replies}) == 1
    assert most == 1


@pytest.mark.as_written
def test_the_timer_of_a_list_does_not_forget_the_next_one(harness: Harness) -> None:
    alice = harness.person("alice")
    create_lamps(harness, alice)
    lists_ = harness.application._lists  # noqa: SLF001 - instead of waiting
    harness.run(request(harness, alice))
    ((key, first),) = lists_._shared.items()  # noqa: SLF001
    lists_.clear()
    harness.run(request(harness, alice))
    lists_._evict(key, first)  # noqa: SLF001
    assert lists_._shared[key] is not first  # noqa: SLF001


@pytest.mark.as_written
def test_a_list_forgotten_while_it_is_written_uses_no_room_afterwards(harness: Harness) -> None:
    alice = harness.person("alice")
    create_lamps(harness, alice)
    lists_ = harness.application._lists  # noqa: SLF001 - instead of waiting
    folder = lists_._folder  # noqa: SLF001

    async def forget() -> None:
        reading = asyncio.create_task(request(harness, alice))
        while not folder.total.files:  # noqa: ASYNC110 - the thread sends no event
            await asyncio.sleep(0)
        ((_, large),) = lists_._shared.items()  # noqa: SLF001
        reading.cancel()
        lists_.clear()
        await large.task
        await asyncio.sleep(0)

    harness.run(forget())
    assert folder.total == (0, 0)


def test_a_small_list_that_takes_long_to_find_is_cached(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = harness.person("alice")
    create_lamps(harness, alice, 2)
    quick = harness.fetch("GET", f"{LISTINGS}?status=active", key=alice.key)
    monkeypatch.setattr(database, "_MAX_READ_SECONDS", -1.0)
    monkeypatch.setattr(database, "_MAX_WAIT_SECONDS", -1.0)
    slow = harness.fetch("GET", LISTINGS, key=alice.key)
    monkeypatch.setattr(store, "_LIST_LISTINGS", "not read again")
    again = harness.fetch("GET", LISTINGS, key=alice.key)
    assert again.body == slow.body == quick.body


def test_after_a_slow_list_an_account_has_less_time_on_the_event_loop(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = harness.person("alice"), harness.person("bob")
    for person, seconds in ((alice, 3600.0), (bob, 0.0)):
        for _ in range(30):  # the time is checked after some rows
            create_lamps(harness, person, 1)
        with monkeypatch.context() as patch:
            patch.setattr(database, "_MAX_READ_SECONDS", -1.0)
            patch.setattr(database, "_MAX_WAIT_SECONDS", -1.0)
            patch.setattr(database, "_SLOW_SECONDS", seconds)
            with pytest.raises(LargeListError):
                list_listings(harness, person)
    with monkeypatch.context() as patch:
        patch.setattr(database, "_MAX_READ_SECONDS", 60.0)
        patch.setattr(database, "_SHORT_READ_SECONDS", -1.0)
        with pytest.raises(LargeListError):
            list_listings(harness, alice)
        assert len(list_listings(harness, bob)) == 30
        patch.setattr(database, "_SHORT_READ_SECONDS", 60.0)
        assert len(list_listings(harness, alice)) == 30
    assert len(harness.fetch("GET", LISTINGS, key=alice.key).json()["listings"]) == 30


@ENGINES
def test_an_edit_is_seen_by_the_next_request(harness: Harness) -> None:
    alice = harness.person("alice")
    ids = create_lamps(harness, alice)
    for title in ("one", "two"):
        harness.fetch("PATCH", f"{LISTINGS}/{ids[3]}", key=alice.key, json={"title": title})
        assert harness.fetch("GET", LISTINGS, key=alice.key).json()["listings"][3]["title"] == title


def use_folder(harness: Harness, path: Path, size: int = LISTS.owner.size, files: int = LISTS.owner.files) -> None:
    folder = BodyFolder(path, LISTS._replace(owner=Usage(size, files)))
    harness.application = Application(harness.services, Options(list_folder=folder))


def test_without_room_on_the_disk_a_large_list_is_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Harness(tmp_path) as harness:
        use_folder(harness, tmp_path, size=1 << 20)
        alice, bob = harness.person("alice"), harness.person("bob")
        create_lamps(harness, alice, 30)  # 1.4 MB
        create_lamps(harness, bob)
        refused = harness.fetch("GET", LISTINGS, key=alice.key)
        assert (refused.status, refused.headers["retry-after"]) == (503, "10")
        assert harness.fetch("GET", LISTINGS, key=bob.key).status == 200
        assert harness.fetch("GET", f"{LISTINGS}?limit=3", key=alice.key).status == 200
        monkeypatch.setattr(body_files, "MIN_FREE_BYTES", 1 << 60)
        assert harness.fetch("GET", f"{LISTINGS}?limit=20", key=alice.key).status == 503
        monkeypatch.undo()
        assert harness.fetch("GET", f"{LISTINGS}?limit=20", key=alice.key).status == 200


def test_another_account_has_room_while_one_reads_slowly(harness: Harness, tmp_path: Path) -> None:
    use_folder(harness, tmp_path, size=2 << 20)
    alice, bob = harness.person("alice"), harness.person("bob")
    create_lamps(harness, alice, 30)  # 1.4 MB
    create_lamps(harness, bob)
    reply = harness.run(request(harness, alice))
    (large,) = harness.application._lists._shared.values()  # noqa: SLF001 - instead of a slow client
    large.file.acquire()
    refused = harness.run(request(harness, alice, "?sort=title"))
    assert (reply.status, refused.status, refused.headers["retry-after"]) == (200, 503, "10")
    assert harness.run(request(harness, bob)).status == 200
    large.file.release()
    assert harness.run(request(harness, alice, "?sort=title")).status == 200


def test_many_different_lists_leave_few_files_open(harness: Harness, tmp_path: Path) -> None:
    alice = harness.person("alice")
    create_lamps(harness, alice)

    async def request_many() -> int:
        most = 0
        for price in range(40):
            assert (await request(harness, alice, f"?price_max={price}", "HEAD")).status == 200
            await asyncio.to_thread(lambda: None)
            most = max(most, count_files(tmp_path))
        return most

    assert 10 < harness.run(request_many()) <= 20


def create_large_change_set(harness: Harness, person: Person) -> None:
    """Create listings of 700 kB in one write."""
    operations = [{"op": "create", "listing": {"title": "Lamp", "content": LONG}} for _ in range(10)]
    assert harness.fetch("POST", f"{LISTINGS}/batch", key=person.key, json={"operations": operations}).status == 200


@pytest.mark.parametrize("is_gzip", [False, True])
def test_change_sets_count_towards_the_files_of_their_account(
    harness: Harness, tmp_path: Path, *, is_gzip: bool
) -> None:
    use_folder(harness, tmp_path, files=2)
    alice, bob = harness.person("alice"), harness.person("bob")
    for person in (alice, bob):
        create_large_change_set(harness, person)
    caller = harness.run(harness.services.access.authenticate(alice.key))
    get_changes = harness.application._lists.get_changes  # noqa: SLF001 - instead of a slow client
    files = [harness.run(get_changes(caller, 0, 100, is_gzip=is_gzip)).file for _ in range(2)]
    replies = [harness.fetch("GET", CHANGES, key=person.key) for person in (alice, bob)]
    assert [reply.status for reply in replies] == [503, 200]
    assert replies[0].headers["retry-after"] == "10"
    for file in files:
        assert file is not None
        file.release()
    assert harness.fetch("GET", CHANGES, key=alice.key).status == 200


def test_complete_lists_make_room_for_change_sets(harness: Harness, tmp_path: Path) -> None:
    use_folder(harness, tmp_path, files=1)
    alice = harness.person("alice")
    create_large_change_set(harness, alice)
    assert harness.run(request(harness, alice)).status == 200
    assert harness.fetch("GET", CHANGES, key=alice.key).status == 200


def test_an_account_can_request_only_a_few_large_lists_at_once(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "_MAX_PENDING_PER_ACCOUNT", 2)
    alice, bob = harness.person("alice"), harness.person("bob")
    create_lamps(harness, alice)
    create_lamps(harness, bob)

    async def read() -> list[Reply]:
        tasks = [request(harness, alice, f"?limit={number}") for number in range(9, 12)]
        return await asyncio.gather(*tasks, request(harness, bob))

    *replies, other = harness.run(read())
    assert sorted(reply.status for reply in replies) == [200, 200, 503]
    assert [reply.headers["retry-after"] for reply in replies if reply.status == 503] == ["1"]
    assert other.status == 200


def test_clients_share_a_list_that_is_not_being_read_yet(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "_MAX_PENDING_PER_ACCOUNT", 4)
    alice = harness.person("alice")
    create_lamps(harness, alice)

    async def read_between_creates() -> list[Reply]:
        caller = await harness.services.access.authenticate(alice.key)
        reads = []
        for number in range(16):
            reads.append(asyncio.create_task(request(harness, alice)))
            await asyncio.sleep(0)
            await harness.services.listings.create(caller, NewListing(title=f"Stand {number}", content="Brass."))
        return await asyncio.gather(*reads)

    replies = harness.run(read_between_creates())
    assert [reply.status for reply in replies] == [200] * 16
    for number, reply in enumerate(replies):
        titles = {listing["title"] for listing in reply.json()["listings"]}
        assert {f"Stand {earlier}" for earlier in range(number)} <= titles


def test_a_shared_list_is_cached_only_for_its_own_revision(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_MAX_READ_SECONDS", -1.0)
    monkeypatch.setattr(database, "_MAX_WAIT_SECONDS", -1.0)
    alice = harness.person("alice")
    create_lamps(harness, alice, 2)
    lists_ = harness.application._lists  # noqa: SLF001 - instead of another large list of the account

    async def share_a_list() -> None:
        caller = await harness.services.access.authenticate(alice.key)
        async with lists_._queue.acquire(alice.account.id):  # noqa: SLF001
            first = asyncio.create_task(request(harness, alice))
            while not any(shared.is_waiting for shared in lists_._shared.values()):  # noqa: ASYNC110, SLF001 - it sends no event
                await asyncio.sleep(0)
            await harness.services.listings.create(caller, NewListing(title="Stand", content="Brass."))
            second = asyncio.create_task(request(harness, alice))
            for _ in range(50):
                await asyncio.sleep(0)
        await asyncio.gather(first, second)

    harness.run(share_a_list())
    tag = harness.fetch("GET", LISTINGS, key=alice.key).headers["etag"]
    assert harness.fetch("GET", LISTINGS, key=alice.key, headers={"If-None-Match": tag}).status == 304


def test_a_request_without_enough_memory_is_503(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_caller: Caller) -> None:
        raise MemoryError

    monkeypatch.setattr(harness.services.listings, "list_active", fail)
    reply = harness.fetch("GET", LISTINGS, key=harness.person("alice").key)
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")


def test_a_list_in_pieces_is_encoded_like_one(harness: Harness) -> None:
    alice = harness.person("alice")
    ids = create_lamps(harness, alice, 3)
    listings = [harness.run(harness.store.get_listing(listing_id)) for listing_id in ids]
    records = [listing for listing in listings if listing is not None]
    pieces = (codec.encode_records(part, "", frozenset()) for part in (records[:1], records[1:]))
    assert codec.LIST_BEGIN + b",".join(pieces) + codec.LIST_END == codec.encode_list(records, "")
    assert json.loads(codec.encode_list(records, ""))["listings"][0]["id"] == ids[0]
