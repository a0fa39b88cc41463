"""The index follows the database, and recovers from everything that happens to its files."""

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from listings.cli.shared_checks import check_search_index
from listings.domain.errors import Unavailable
from listings.domain.model import MarketQuery
from listings.search import comparison, folders, indexer, writer
from listings.search.comparison import compare
from listings.search.folders import Folder, find_root
from listings.search.indexer import Indexer
from listings.search.writer import OpenIndex
from tests.harness import TIMEOUT, Harness, Person
from tests.site.market import create

BIKE = MarketQuery(text="bicycle", sort="best", limit=100)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with Harness(tmp_path, rate_limit="0") as harness:
        yield harness


@pytest.fixture
def alice(harness: Harness) -> Person:
    return harness.person("alice")


def root_of(harness: Harness) -> Path:
    return find_root(harness.settings.file)


def find(harness: Harness) -> set[int]:
    return {entry.id for entry in harness.run(harness.services.market.find(BIKE)).page.entries}


async def finds(harness: Harness, count: int) -> bool:
    """Return whether the best matches are this many."""
    try:
        return len((await harness.services.market.find(BIKE)).page.entries) == count
    except Unavailable:
        return False


def choose(harness: Harness) -> Folder:
    folder = folders.choose_folder(root_of(harness))
    assert folder is not None
    return folder


def list_names(harness: Harness) -> list[str]:
    return [folder.path.name for folder in folders.list_folders(root_of(harness))]


def flip(file: Path) -> Path:
    """Change a byte, which tantivy may not notice."""
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(content)
    return file


def step_until(harness: Harness, is_done: Callable[[], Awaitable[bool]]) -> None:
    """Run an indexer like its process does, until something holds."""

    async def run() -> None:
        one = Indexer(harness.store, root_of(harness), harness.clock)
        task, end = asyncio.create_task(one.run()), time.monotonic() + TIMEOUT
        try:
            while not await is_done():
                assert not task.done()
                assert time.monotonic() < end
                await asyncio.sleep(0.02)
        finally:
            task.cancel()
            await asyncio.wait([task])
            one.close()

    harness.run(run())


def test_an_index_is_followed_by_one_process_only(harness: Harness, alice: Person) -> None:
    create(harness, alice)
    first, second = (Indexer(harness.store, root_of(harness)) for _ in range(2))
    harness.run(first.update())
    assert harness.run(second.step()) is False
    names = list_names(harness)
    first.close()
    create(harness, alice)
    harness.run(second.update())
    second.close()
    assert list_names(harness) == names
    assert len(find(harness)) == 2


def test_a_large_market_is_built_in_steps_and_can_be_searched_meanwhile(
    harness: Harness, alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "_READ", 2)
    monkeypatch.setattr(indexer, "_MAX_BUILD_COMMIT", 4)
    monkeypatch.setattr(indexer, "_MAX_COMMIT", 2)
    ids = [create_only(harness, alice) for _ in range(9)]
    harness.run(harness.services.market.stamp())
    one = Indexer(harness.store, root_of(harness))
    assert harness.run(one.step(is_patient=False)) is True
    assert find(harness) == set(ids[-4:])
    assert harness.run(harness.services.market.find(BIKE)).counts is None
    harness.fetch("PATCH", f"/api/v1/listings/{ids[0]}", key=alice.key, json={"title": "Bicycle, red"})
    harness.fetch("DELETE", f"/api/v1/listings/{ids[1]}", key=alice.key)
    harness.run(harness.services.market.stamp())
    harness.run(one.update())
    one.close()
    found = harness.run(harness.services.market.find(BIKE))
    assert {entry.id for entry in found.page.entries} == {*ids} - {ids[1]}
    assert found.counts is not None
    assert found.counts.total == 8


def create_only(harness: Harness, person: Person, **fields: Any) -> int:
    body = {"title": "Bicycle", "content": "Two wheels.", **fields}
    listing_id: int = harness.fetch("POST", "/api/v1/listings", key=person.key, json=body).json()["id"]
    return listing_id


def test_a_rebuild_replaces_the_index_while_the_old_one_serves(
    harness: Harness, alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "_READ", 1)
    monkeypatch.setattr(indexer, "_MAX_BUILD_COMMIT", 1)
    ids = {create(harness, alice) for _ in range(3)}
    old = choose(harness)
    folders.request_rebuild(root_of(harness))
    one = Indexer(harness.store, root_of(harness))
    assert harness.run(one.step(is_patient=False)) is True
    assert (choose(harness), find(harness), len(list_names(harness))) == (old, ids, 2)
    ids.add(create_only(harness, alice))
    harness.run(harness.services.market.stamp())
    harness.run(one.step(is_patient=False))
    assert (choose(harness), find(harness)) == (old, ids)  # it follows as well
    harness.run(one.update())
    assert choose(harness) != old
    assert find(harness) == ids
    harness.run(one.step())
    one.close()
    assert not old.path.exists()


def test_a_folder_in_use_is_not_removed(harness: Harness, alice: Person) -> None:
    create(harness, alice)
    old = choose(harness)
    lock = old.lock()
    folders.request_rebuild(root_of(harness))
    create(harness, alice)
    assert old.path.exists()
    assert choose(harness) != old
    os.close(lock)
    assert len(find(harness)) == 2
    create(harness, alice)
    assert not old.path.exists()


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: shutil.rmtree(folder.path.parent),
        lambda folder: shutil.rmtree(folder.path),
        lambda folder: [it.unlink() for it in folder.path.glob("*.idx")],
        lambda folder: [it.write_bytes(it.read_bytes()[:9]) for it in folder.path.glob("*.term")],
        lambda folder: [flip(it) for it in folder.path.glob("*.idx")],
        lambda folder: (folder.path / "meta.json").write_text("{"),
        lambda folder: folder.mark_damaged(),
    ],
    ids=[
        "removed root",
        "removed folder",
        "missing files",
        "short files",
        "changed bytes",
        "damaged metadata",
        "reported damage",
    ],
)
def test_a_damaged_index_is_built_again(harness: Harness, alice: Person, harm: Callable[[Folder], object]) -> None:
    ids = {create(harness, alice) for _ in range(3)}
    damaged = choose(harness)
    harm(damaged)
    assert harness.fetch("GET", "/", headers={"accept": "text/html"}).status == 200
    ids.add(create_only(harness, alice))
    harness.run(harness.services.market.stamp())

    async def is_done() -> bool:
        folder = folders.choose_folder(root_of(harness))
        return folder is not None and folder != damaged and folder.is_complete

    step_until(harness, is_done)
    assert find(harness) == ids


@pytest.mark.parametrize("ending", ["idx", "term", "fast", "fieldnorm", "store", "pos"])
def test_bytes_that_change_in_any_file_are_found_in_time(
    harness: Harness, alice: Person, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = {create(harness, alice) for _ in range(3)}
    one = Indexer(harness.store, root_of(harness))
    harness.run(one.update())
    damaged = choose(harness)
    for file in damaged.path.glob("*.idx"):
        file.with_suffix(".999.del").write_bytes(b"another process writes it for the next commit")
    assert damaged.find_damaged_file() is None
    names = [flip(file).name for file in damaged.path.glob(f"*.{ending}")]
    assert damaged.find_damaged_file() in names
    assert "have changed" in check_search_index(harness.settings).found
    harness.run(one.step())
    assert choose(harness) == damaged
    one.close()
    monkeypatch.setattr(indexer, "_CHECK_SECONDS", 0.0)

    async def is_done() -> bool:
        folder = folders.choose_folder(root_of(harness))
        return folder not in {None, damaged} and await finds(harness, 3)

    step_until(harness, is_done)
    assert find(harness) == ids


def test_a_position_that_is_ahead_behind_or_foreign_leads_to_a_new_index(harness: Harness, alice: Person) -> None:
    ids = {create(harness, alice) for _ in range(3)}
    folder = choose(harness)
    for changes in ({"sequence": 10**6}, {"origin": 5}):
        index = OpenIndex(choose(harness))
        index.commit(index.position._replace(**changes))
        index.close()
        ids.add(create(harness, alice))
        assert choose(harness) != folder
        assert find(harness) == ids
        folder = choose(harness)


def test_an_index_with_other_terms_serves_until_the_next_one_is_complete(
    harness: Harness, alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "_READ", 1)
    monkeypatch.setattr(indexer, "_MAX_BUILD_COMMIT", 1)
    ids = {create(harness, alice) for _ in range(3)}
    folder = choose(harness)
    version, _, created = folder.path.name.partition("~")
    older = Folder(folder.path.with_name(f"{version.replace('.', '.0', 1)}~{created}"))
    folder.path.rename(older.path)
    ids.add(create_only(harness, alice))
    harness.run(harness.services.market.stamp())
    one = Indexer(harness.store, root_of(harness))
    assert harness.run(one.step(is_patient=False)) is True
    assert (choose(harness), find(harness)) == (older, ids)
    built = list_names(harness)
    one.close()
    one = Indexer(harness.store, root_of(harness))  # continues to build
    assert harness.run(one.step(is_patient=False)) is True
    assert list_names(harness) == built
    harness.run(one.update())
    assert choose(harness).is_current
    assert find(harness) == ids
    harness.run(one.update())
    one.close()
    assert list_names(harness) == [choose(harness).path.name]


def test_the_doctor_finds_an_index_that_does_not_follow(
    harness: Harness, alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "_WAIT_SECONDS", 0.05)
    create(harness, alice)
    create_only(harness, alice)
    harness.run(harness.services.market.stamp())
    assert check_search_index(harness.settings).verdict == "ok"  # nothing follows, as the service is not running
    one = Indexer(harness.store, root_of(harness))
    lock = folders.lock_writer(root_of(harness))
    assert lock is not None
    assert "does not follow" in check_search_index(harness.settings).found
    os.close(lock)
    harness.run(one.update())
    assert check_search_index(harness.settings).verdict == "ok"
    one.close()


def test_an_index_in_another_format_is_not_opened(harness: Harness, alice: Person) -> None:
    ids = {create(harness, alice)}
    folder = choose(harness)
    version, _, created = folder.path.name.partition("~")
    for other in (f"9{version}", f"{version}9"):
        foreign = folder.path.with_name(f"{other}~{created}")
        shutil.copytree(folder.path, foreign)
        assert choose(harness) == folder
    shutil.rmtree(folder.path)
    assert folders.choose_folder(root_of(harness)) is None
    harness.index_market()
    assert find(harness) == ids


def test_many_dead_documents_and_age_lead_to_a_new_index(
    harness: Harness, alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing_id = create(harness, alice)
    monkeypatch.setattr(writer, "_MIN_DEAD", 3)
    first = choose(harness)
    for number in range(8):
        harness.fetch("PATCH", f"/api/v1/listings/{listing_id}", key=alice.key, json={"price": number + 1})
        harness.index_market()
    second = choose(harness)
    harness.clock.now = time.time() + 30 * 86_400
    harness.index_market()
    third = choose(harness)
    assert third != first
    assert third not in {first, second}
    assert find(harness) == {listing_id}


def test_a_full_disk_stops_the_index_until_there_is_space(
    harness: Harness, alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = {create(harness, alice)}
    before = choose(harness)
    monkeypatch.setattr(indexer, "_RETRY_SECONDS", 0.01)
    failures: list[int] = []
    commit = OpenIndex.commit

    def fail(index: OpenIndex, position: Any) -> None:
        if len(failures) < 2:
            failures.append(1)
            raise OSError(28, "No space left on device")
        commit(index, position)

    monkeypatch.setattr(OpenIndex, "commit", fail)
    ids.add(create_only(harness, alice))
    harness.run(harness.services.market.stamp())
    step_until(harness, lambda: finds(harness, 2))
    assert (find(harness), len(failures), choose(harness)) == (ids, 2, before)


def test_damage_that_a_search_finds_makes_it_unavailable(harness: Harness, alice: Person) -> None:
    create(harness, alice)
    for file in choose(harness).path.glob("*.term"):
        file.write_bytes(b"\xff" * 99 + file.read_bytes()[99:])
    harness.services.market.close()
    harness.replace_services()
    with pytest.raises(Unavailable, match="Search is"):
        find(harness)
    assert harness.fetch("GET", "/", headers={"accept": "text/html"}).status == 200


def test_a_sample_is_compared(harness: Harness, alice: Person) -> None:
    assert harness.run(compare(harness.store, root_of(harness))) is None
    ids = [create(harness, alice, title=f"Bicycle {number}") for number in range(5)]
    assert harness.run(compare(harness.store, root_of(harness))) == (5, 0, False)
    index = OpenIndex(choose(harness))
    changed = harness.run(harness.store.list_market_changes(0, 2))
    index.apply([changed[0]._replace(title="Lamp"), changed[1]._replace(is_shown=0)])
    index.commit(index.position)
    index.close()
    assert harness.run(compare(harness.store, root_of(harness))) == (5, 2, False)
    assert ids
