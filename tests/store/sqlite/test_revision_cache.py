"""The cache of revisions: when its entries are valid, and that no read is outdated."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest

from listings.domain.errors import Problem, Unavailable
from listings.domain.history import Actor
from listings.domain.listings import AddStep, IdempotencyRecord
from listings.domain.model import Listing, NewListing, Revisions
from listings.store.scripts import listings
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.revision_cache import RevisionCache
from listings.store.sqlite.store import SqliteStore
from listings.store.sqlite.write_lock import WriteLock
from tests.harness import Clock

T = TypeVar("T")

STAMP = "2026-11-22 10:00:00"
BIKE = NewListing(title="Bike", content="Two wheels.")
ALICE, BOB = (1, 1), (2, 2)
TIMEOUT = 60  # seconds; long enough for a busy machine


class CacheHarness:
    """A process's cache and write lock, and the lock of another process."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        self.lock, self.other_lock = WriteLock(path), WriteLock(path)
        self.revisions = RevisionCache(self.lock, self.clock)

    def read(self, account_id: int, revision: int) -> None:
        if self.revisions.can_record():
            self.revisions.record(account_id, Revisions(revision, revision))

    def find(self, account_id: int) -> tuple[int | None, int | None]:
        found = self.revisions.find_revisions(account_id)
        return found and found.revision, self.revisions.find_last_change_revision(account_id)

    def create(self, *revisions: int) -> None:
        """Let this process write a batch that raises the revision of account 1 to each of these."""
        with self.lock.acquire():
            began_at = self.lock.sequence_at_acquire
        for revision in revisions:
            self.revisions.record_create(1, Revisions(revision, revision))
        self.revisions.end_batch(began_at, 0, outcomes_known=True)

    def write_in_other_process(self) -> None:
        with self.other_lock.acquire():
            pass


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[CacheHarness]:
    cache = CacheHarness(tmp_path / "listings.db")
    with closing(cache.lock), closing(cache.other_lock):
        yield cache


def test_a_recorded_revision_is_valid_while_no_process_writes(cache: CacheHarness) -> None:
    assert cache.find(1) == (None, None)
    cache.read(1, 5)
    assert (cache.find(1), cache.find(2)) == ((5, 5), (None, None))


def test_creates_raise_the_revision_and_keep_the_last_change_revision(cache: CacheHarness) -> None:
    cache.read(1, 5)
    cache.read(2, 9)
    cache.create(6, 7)
    assert (cache.find(1), cache.find(2)) == ((7, 5), (9, 9))


def test_only_the_last_change_revision_is_valid_during_a_batch(cache: CacheHarness) -> None:
    cache.read(1, 5)
    with cache.lock.acquire():
        assert cache.find(1) == (None, 5)
        cache.read(2, 9)
        began_at = cache.lock.sequence_at_acquire
    assert cache.find(1) == (None, 5)  # the end of the batch is not recorded yet
    cache.revisions.record_create(1, Revisions(6, 6))
    cache.revisions.end_batch(began_at, 0, outcomes_known=True)
    assert (cache.find(1), cache.find(2)) == ((6, 5), (9, 9))


def test_a_revision_read_during_a_batch_is_not_raised_again(cache: CacheHarness) -> None:
    with cache.lock.acquire():
        began_at = cache.lock.sequence_at_acquire
        cache.read(1, 7)
    for revision in (6, 7):
        cache.revisions.record_create(1, Revisions(revision, revision))
    cache.revisions.end_batch(began_at, 0, outcomes_known=True)
    assert cache.find(1) == (7, 7)


@pytest.mark.parametrize("when", ["during", "after", "before the end of the own batch"])
def test_a_write_by_another_process_invalidates_the_cache(cache: CacheHarness, when: str) -> None:
    cache.read(1, 5)
    if when == "during":
        with cache.other_lock.acquire():
            assert cache.find(1) == (None, None)
            cache.read(1, 5)
            assert cache.find(1) == (None, None)
    elif when == "after":
        cache.write_in_other_process()
    else:
        with cache.lock.acquire():
            began_at = cache.lock.sequence_at_acquire
        cache.write_in_other_process()
        cache.revisions.end_batch(began_at, 0, outcomes_known=True)
    assert cache.find(1) == (None, None)


def test_a_batch_after_another_processs_write_does_not_revalidate(cache: CacheHarness) -> None:
    cache.read(1, 5)
    cache.write_in_other_process()
    cache.create(6)
    assert cache.find(1) == (None, None)


def test_an_expected_revision_keeps_the_last_change_revision(cache: CacheHarness) -> None:
    cache.read(1, 5)
    cache.create(6)
    cache.write_in_other_process()
    cache.read(1, 6)
    assert cache.find(1) == (6, 5)


def test_an_unexpected_revision_becomes_the_last_change_revision(cache: CacheHarness) -> None:
    cache.read(1, 5)
    cache.write_in_other_process()
    cache.create(7)  # 6 was the other process's
    cache.read(1, 7)
    assert cache.find(1) == (7, 7)


def test_a_queued_untracked_write_disables_the_cache(cache: CacheHarness) -> None:
    cache.read(1, 5)
    cache.revisions.begin_untracked_write()
    cache.read(2, 9)
    assert (cache.find(1), cache.find(2)) == ((None, None), (None, None))
    with cache.lock.acquire():
        began_at = cache.lock.sequence_at_acquire
        cache.read(1, 6)
        assert cache.find(1) == (None, None)
    cache.revisions.end_batch(began_at, 1, outcomes_known=True)
    assert cache.find(1) == (None, None)
    cache.read(1, 6)
    assert cache.find(1) == (6, 6)


def test_a_batch_with_an_unknown_outcome_invalidates_the_cache(cache: CacheHarness) -> None:
    cache.read(1, 5)
    with cache.lock.acquire():
        began_at = cache.lock.sequence_at_acquire
    cache.revisions.end_batch(began_at, 0, outcomes_known=False)
    assert cache.find(1) == (None, None)


def test_a_batch_after_a_killed_write_invalidates_the_cache(cache: CacheHarness, tmp_path: Path) -> None:
    lock_file = tmp_path / "listings.db.lock"
    cache.read(1, 5)
    lock_file.write_bytes((1).to_bytes(8, "little") + bytes(8))
    cache.create(6)
    assert cache.find(1) == (None, None)


def test_a_write_by_a_foreign_program_is_seen_within_a_second(cache: CacheHarness) -> None:
    cache.read(1, 5)
    cache.clock.now += 1.0
    assert cache.find(1) == (5, 5)
    cache.clock.now += 0.01
    assert cache.find(1) == (None, None)


def test_the_number_of_cached_accounts_is_limited(cache: CacheHarness) -> None:
    for number in range(4097):
        cache.read(number, 1)
    assert [cache.find(number) for number in (0, 4096)] == [(None, None), (1, 1)]


class TwoStores:
    """The stores of two processes on one file, and a reader of the stored revisions."""

    def __init__(self, run: Callable[[Awaitable[Any]], Any], path: Path) -> None:
        self.run = run
        self.stores = [SqliteStore(path), SqliteStore(path)]
        self.reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        for store in self.stores:
            run(store.open())

    def read_revision(self, partition: tuple[int, int]) -> int:
        return int(
            str(self.reader.execute("SELECT revision FROM account_state WHERE account_id = ?", partition[1:]).get)
        )

    def close(self) -> None:
        self.reader.close()
        for store in self.stores:
            self.run(store.close())


@contextmanager
def open_two_stores(path: Path) -> Iterator[TwoStores]:
    migrate.migrate(path)
    with asyncio.Runner() as runner:

        async def wait_for(work: Awaitable[T]) -> T:
            return await work

        two = TwoStores(lambda work: runner.run(wait_for(work)), path)
        for name in ("alice", "bob"):
            two.run(two.stores[0].add_account(name, f"{name}@example.com", None, 1_000))
        yield two
        two.close()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoStores]:
    with open_two_stores(tmp_path / "listings.db") as two:
        yield two


def set_title(title: str) -> Callable[[Listing | None], Any]:
    return lambda _: {"title": title}


def test_creates_by_this_process_keep_its_account_cached(two: TwoStores) -> None:
    (store, other), run = two.stores, two.run
    listing_id = run(store.add_listing(*ALICE, AddStep(BIKE, STAMP))).listing_id
    run(store.get_listing_and_revision(listing_id))
    run(store.add_listing(*ALICE, AddStep(BIKE, STAMP)))
    assert (store.get_cached_last_change_revision(*ALICE), run(store.get_revisions(*ALICE)).revision) == (1, 2)
    run(store.stamp_market(10, b"i" * 16, 1_000.0))
    assert store.get_cached_last_change_revision(*ALICE) == 1
    run(other.add_listing(*ALICE, AddStep(BIKE, STAMP)))
    assert store.get_cached_last_change_revision(*ALICE) is None
    assert (run(store.get_last_change_revision(*ALICE)), run(store.get_revisions(*ALICE)).revision) == (3, 3)


@pytest.mark.parametrize("claim", [None, IdempotencyRecord("k", b"d" * 32, 1_000, 900)], ids=["no key", "key"])
def test_a_create_raises_both_cached_revisions(two: TwoStores, claim: IdempotencyRecord | None) -> None:
    store, run = two.stores[0], two.run
    listing_id = run(store.add_listing(*ALICE, AddStep(BIKE, STAMP))).listing_id
    run(store.get_listing_and_revision(listing_id))
    assert run(store.get_revisions(*ALICE)) == (1, 0)
    run(store.add_listing(*ALICE, AddStep(BIKE, STAMP), claim, Actor(1, 1_000)))
    assert (store.get_cached_last_change_revision(*ALICE), run(store.get_revisions(*ALICE))) == (1, (2, 1))


def test_an_edit_keeps_the_last_change_revision_of_other_accounts(two: TwoStores) -> None:
    store, run = two.stores[0], two.run
    ids = [run(store.add_listing(*partition, AddStep(BIKE, STAMP))).listing_id for partition in (ALICE, BOB)]
    for listing_id in ids:
        run(store.get_listing_and_revision(listing_id))
        run(store.add_listing(*BOB, AddStep(BIKE, STAMP)))
    run(store.change_listing(ids[0], set_title("Tandem")))
    assert [run(store.get_last_change_revision(*partition)) for partition in (ALICE, BOB)] == [2, 2]
    assert [run(store.get_revisions(*partition)).revision for partition in (ALICE, BOB)] == [2, 3]


def test_a_create_whose_caller_was_cancelled_is_tracked(two: TwoStores) -> None:
    store, run = two.stores[0], two.run

    async def cancel_create() -> None:
        await store.get_revisions(*ALICE)
        create = asyncio.ensure_future(store.add_listing(*ALICE, AddStep(BIKE, STAMP)))
        await asyncio.sleep(0)
        create.cancel()
        with suppress(asyncio.CancelledError):
            await create
        async with asyncio.timeout(TIMEOUT):
            while two.read_revision(ALICE) == 0:  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0)
        await store.add_listing(*BOB, AddStep(BIKE, STAMP))

    run(cancel_create())
    assert run(store.get_revisions(*ALICE)).revision == 1


def test_a_rejected_create_does_not_raise_the_revision(two: TwoStores, monkeypatch: pytest.MonkeyPatch) -> None:
    store, run = two.stores[0], two.run
    run(store.add_listing(*ALICE, AddStep(BIKE, STAMP)))
    assert run(store.get_revisions(*ALICE)).revision == 1
    for error in (Problem("not_owner", "no"), apsw.FullError("full")):

        def fail(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        with monkeypatch.context() as broken:
            broken.setattr(listings, "build_row", fail)
            with pytest.raises((Problem, Unavailable)):
                run(store.add_listing(*ALICE, AddStep(BIKE, STAMP)))
        assert run(store.get_revisions(*ALICE)).revision == 1


class Minimums:
    """The lowest values that a read may return: acknowledged ones, and those that any process has read."""

    def __init__(self) -> None:
        self.revisions = Counter[tuple[int, int]]()  # edits of accounts
        self.edits = Counter[int]()  # of listings; the title of each is its number of edits
        self.seen: dict[object, int] = {}

    def begin_read(self, subject: object, acknowledged: int) -> Callable[[int], None]:
        """Call this before a read, and the returned function with its result."""
        minimum = max(acknowledged, self.seen.get(subject, 0))

        def end_read(number: int) -> None:
            assert number >= minimum, (subject, number, minimum)
            self.seen[subject] = max(number, self.seen.get(subject, 0))

        return end_read


class Process:
    """A store, and a cache of listings that is validated by revisions, as the API caches its responses."""

    def __init__(self, store: SqliteStore, minimums: Minimums) -> None:
        self.store = store
        self._minimums = minimums
        self._cache: dict[int, tuple[int, str]] = {}

    async def create(self, partition: tuple[int, int]) -> None:
        listing_id = (
            await self.store.add_listing(*partition, AddStep(NewListing(title="0", content="-"), STAMP))
        ).listing_id
        self._minimums.revisions[partition] += 1
        self._minimums.edits[listing_id] += 0

    async def edit(self, partition: tuple[int, int], listing_id: int) -> None:
        await self.store.change_listing(listing_id, lambda found: {"title": str(int(found.title) + 1)} if found else {})
        self._minimums.revisions[partition] += 1
        self._minimums.edits[listing_id] += 1

    async def read_revision(self, partition: tuple[int, int]) -> None:
        end_read = self._minimums.begin_read(partition, self._minimums.revisions[partition])
        end_read((await self.store.get_revisions(*partition)).revision)

    async def read_listing(self, partition: tuple[int, int], listing_id: int) -> bool:
        """Read a listing and return whether it came from the cache."""
        end_read = self._minimums.begin_read(listing_id, self._minimums.edits[listing_id])
        last_change = self.store.get_cached_last_change_revision(*partition)
        cached = self._cache.get(listing_id)
        if last_change is None and cached is not None:
            last_change = await self.store.get_last_change_revision(*partition)
        if cached is not None and last_change is not None and cached[0] >= last_change:
            end_read(int(cached[1]))
            return True
        found = await self.store.get_listing_and_revision(listing_id)
        assert found is not None
        self._cache[listing_id] = (found[1], found[0].title)
        end_read(int(found[0].title))
        return False


async def run_random_operations(draw: random.Random, processes: list[Process], minimums: Minimums) -> int:
    """Run random concurrent operations in both processes; return how many listings were read from the cache."""
    hits = 0

    async def run(process: Process, kind: str, partition: tuple[int, int]) -> None:
        nonlocal hits
        own = [listing_id for listing_id in minimums.edits if listing_id & 1023 == partition[0]]
        if kind == "create" or not own:
            await process.create(partition)
        elif kind == "edit":
            await process.edit(partition, draw.choice(own))
        elif kind == "revision":
            await process.read_revision(partition)
        else:
            hits += await process.read_listing(partition, draw.choice(own[:5]))

    tasks: set[asyncio.Task[None]] = set()
    writers = processes
    for number in range(900):
        if number % 150 == 0:  # sometimes one process writes alone, sometimes both
            writers = draw.choice([processes, processes[:1]])
        kind = draw.choices(["create", "edit", "revision", "read"], [4, 1, 3, 12])[0]
        process = draw.choice(writers if kind in {"create", "edit"} else processes)
        tasks.add(asyncio.create_task(run(process, kind, draw.choice((ALICE, BOB)))))
        if draw.random() < 0.2:  # usually several operations are running
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*done)
        else:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    return hits


@pytest.mark.parametrize("seed", range(6))
def test_no_process_reads_older_data_than_was_acknowledged_or_read(two: TwoStores, seed: int) -> None:
    minimums = Minimums()
    processes = [Process(store, minimums) for store in two.stores]
    hits = two.run(run_random_operations(random.Random(seed), processes, minimums))
    assert hits > 50
    for store in two.stores:
        for partition in (ALICE, BOB):
            assert two.run(store.get_revisions(*partition)).revision == two.read_revision(partition)
