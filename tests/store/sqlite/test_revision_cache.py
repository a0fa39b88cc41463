"""What a process knows of revisions without reading them, and that it is always so."""

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
from listings.domain.model import Listing, NewListing
from listings.store.sqlite import listing_writes
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.revision_cache import RevisionCache
from listings.store.sqlite.store import SqliteStore
from listings.store.sqlite.write_lock import WriteLock

T = TypeVar("T")

STAMP = "2026-11-22 10:00:00"
BIKE = NewListing(title="Bike", content="Two wheels.")
ALICE, BOB = (1, 1), (2, 2)
TIMEOUT = 60  # seconds, on a busy machine


class Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Known:
    """A process's knowledge, its turn, and another process's turn."""

    def __init__(self, path: Path) -> None:
        self.seconds = Seconds()
        self.turn, self.other = WriteLock(path), WriteLock(path)
        self.revisions = RevisionCache(self.turn, self.seconds)

    def read(self, account_id: int, revision: int) -> None:
        if self.revisions.holds():
            self.revisions.note(account_id, revision)

    def of(self, account_id: int) -> tuple[int | None, int | None]:
        return self.revisions.present(account_id), self.revisions.settled(account_id)

    def create(self, *revisions: int) -> None:
        """A turn of this process that has raised account 1 to these, one after the other."""
        with self.turn.taken():
            began_at = self.turn.own_from
        for revision in revisions:
            self.revisions.follow(1, revision)
        self.revisions.end_turn(began_at, 0, known=True)

    def let_other_write(self) -> None:
        with self.other.taken():
            pass


@pytest.fixture
def known(tmp_path: Path) -> Iterator[Known]:
    known = Known(tmp_path / "listings.db")
    with closing(known.turn), closing(known.other):
        yield known


def test_what_was_read_is_known_while_nobody_writes(known: Known) -> None:
    assert known.of(1) == (None, None)
    known.read(1, 5)
    assert (known.of(1), known.of(2)) == ((5, 5), (None, None))


def test_new_listings_of_this_process_raise_what_is_known_and_leave_what_has_settled(known: Known) -> None:
    known.read(1, 5)
    known.read(2, 9)
    known.create(6, 7)
    assert (known.of(1), known.of(2)) == ((7, 5), (9, 9))


def test_in_a_turn_of_this_process_what_has_settled_is_known_and_the_present_revision_is_not(known: Known) -> None:
    known.read(1, 5)
    with known.turn.taken():
        assert known.of(1) == (None, 5)
        known.read(2, 9)
        began_at = known.turn.own_from
    assert known.of(1) == (None, 5)  # its end has not been told yet
    known.revisions.follow(1, 6)
    known.revisions.end_turn(began_at, 0, known=True)
    assert (known.of(1), known.of(2)) == ((6, 5), (9, 9))


def test_what_was_read_in_the_turn_that_raised_it_is_not_raised_again(known: Known) -> None:
    with known.turn.taken():
        began_at = known.turn.own_from
        known.read(1, 7)
    for revision in (6, 7):
        known.revisions.follow(1, revision)
    known.revisions.end_turn(began_at, 0, known=True)
    assert known.of(1) == (7, 7)


@pytest.mark.parametrize("when", ["during", "after", "before the end of this process's turn is told"])
def test_a_turn_of_another_process_leaves_nothing_known(known: Known, when: str) -> None:
    known.read(1, 5)
    if when == "during":
        with known.other.taken():
            assert known.of(1) == (None, None)
            known.read(1, 5)
            assert known.of(1) == (None, None)
    elif when == "after":
        known.let_other_write()
    else:
        with known.turn.taken():
            began_at = known.turn.own_from
        known.let_other_write()
        known.revisions.end_turn(began_at, 0, known=True)
    assert known.of(1) == (None, None)


def test_a_turn_of_this_process_behind_anothers_leaves_nothing_known(known: Known) -> None:
    known.read(1, 5)
    known.let_other_write()
    known.create(6)
    assert known.of(1) == (None, None)


def test_a_revision_that_is_as_it_was_expected_has_settled_since_long(known: Known) -> None:
    known.read(1, 5)
    known.create(6)
    known.let_other_write()
    known.read(1, 6)
    assert known.of(1) == (6, 5)


def test_a_revision_that_another_process_has_raised_has_settled_just_now(known: Known) -> None:
    known.read(1, 5)
    known.let_other_write()
    known.create(7)  # 6 was the other's
    known.read(1, 7)
    assert known.of(1) == (7, 7)


def test_while_a_write_waits_that_may_change_any_listing_nothing_is_known(known: Known) -> None:
    known.read(1, 5)
    known.revisions.begin_unfollowed()
    known.read(2, 9)
    assert (known.of(1), known.of(2)) == ((None, None), (None, None))
    with known.turn.taken():
        began_at = known.turn.own_from
        known.read(1, 6)
        assert known.of(1) == (None, None)
    known.revisions.end_turn(began_at, 1, known=True)
    assert known.of(1) == (None, None)
    known.read(1, 6)
    assert known.of(1) == (6, 6)


def test_a_turn_of_which_nobody_knows_what_it_came_to_leaves_nothing_known(known: Known) -> None:
    known.read(1, 5)
    with known.turn.taken():
        began_at = known.turn.own_from
    known.revisions.end_turn(began_at, 0, known=False)
    assert known.of(1) == (None, None)


def test_a_turn_behind_one_in_which_somebody_was_killed_leaves_nothing_known(known: Known, tmp_path: Path) -> None:
    lock = tmp_path / "listings.db.lock"
    known.read(1, 5)
    lock.write_bytes((1).to_bytes(8, "little") + bytes(8))
    known.create(6)
    assert known.of(1) == (None, None)


def test_what_a_foreign_program_writes_is_read_within_a_second(known: Known) -> None:
    known.read(1, 5)
    known.seconds.now += 1.0
    assert known.of(1) == (5, 5)
    known.seconds.now += 0.01
    assert known.of(1) == (None, None)


def test_accounts_that_are_known_are_bounded(known: Known) -> None:
    for number in range(4097):
        known.read(number, 1)
    assert [known.of(number) for number in (0, 4096)] == [(None, None), (1, 1)]


# Over stores


class Shop:
    """Two processes' stores over one file, and what is true of it."""

    def __init__(self, run: Callable[[Awaitable[Any]], Any], path: Path) -> None:
        self.run = run
        self.stores = [SqliteStore(path), SqliteStore(path)]
        self.reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        for store in self.stores:
            run(store.open())

    def revision(self, place: tuple[int, int]) -> int:
        return int(str(self.reader.execute("SELECT revision FROM account_state WHERE account_id = ?", place[1:]).get))

    def close(self) -> None:
        self.reader.close()
        for store in self.stores:
            self.run(store.close())


@contextmanager
def opened(path: Path) -> Iterator[Shop]:
    migrate.migrate(path)
    with asyncio.Runner() as runner:

        async def wait(work: Awaitable[T]) -> T:
            return await work

        shop = Shop(lambda work: runner.run(wait(work)), path)
        for name in ("alice", "bob"):
            shop.run(shop.stores[0].add_account(name, f"{name}@example.com", None, 1_000))
        yield shop
        shop.close()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with opened(tmp_path / "listings.db") as shop:
        yield shop


def change(title: str) -> Callable[[Listing | None], Any]:
    return lambda _: {"title": title}


def test_creates_of_this_process_leave_its_account_known(shop: Shop) -> None:
    (store, other), run = shop.stores, shop.run
    listing_id = run(store.add_listing(*ALICE, BIKE, STAMP)).listing_id
    run(store.get_listing_and_revision(listing_id))
    run(store.add_listing(*ALICE, BIKE, STAMP))
    assert (store.get_cached_settled_revision(*ALICE), run(store.get_revision(*ALICE))) == (1, 2)
    run(store.index_market(10, b"i" * 16, 1_000.0))
    assert store.get_cached_settled_revision(*ALICE) == 1
    run(other.add_listing(*ALICE, BIKE, STAMP))
    assert store.get_cached_settled_revision(*ALICE) is None
    assert (run(store.get_settled_revision(*ALICE)), run(store.get_revision(*ALICE))) == (3, 3)


def test_an_edit_of_this_process_leaves_other_accounts_settled(shop: Shop) -> None:
    store, run = shop.stores[0], shop.run
    ids = [run(store.add_listing(*place, BIKE, STAMP)).listing_id for place in (ALICE, BOB)]
    for listing_id in ids:
        run(store.get_listing_and_revision(listing_id))
        run(store.add_listing(*BOB, BIKE, STAMP))
    run(store.change_listing(ids[0], change("Tandem")))
    assert [run(store.get_settled_revision(*place)) for place in (ALICE, BOB)] == [2, 2]
    assert [run(store.get_revision(*place)) for place in (ALICE, BOB)] == [2, 3]


def test_a_create_whose_caller_has_gone_is_known_of_all_the_same(shop: Shop) -> None:
    store, run = shop.stores[0], shop.run

    async def leave() -> None:
        await store.get_revision(*ALICE)
        going = asyncio.ensure_future(store.add_listing(*ALICE, BIKE, STAMP))
        await asyncio.sleep(0)
        going.cancel()
        with suppress(asyncio.CancelledError):
            await going
        async with asyncio.timeout(TIMEOUT):
            while shop.revision(ALICE) == 0:  # noqa: ASYNC110 - the file tells of no event
                await asyncio.sleep(0)
        await store.add_listing(*BOB, BIKE, STAMP)

    run(leave())
    assert run(store.get_revision(*ALICE)) == 1


def test_a_create_that_is_refused_raises_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    store, run = shop.stores[0], shop.run
    run(store.add_listing(*ALICE, BIKE, STAMP))
    assert run(store.get_revision(*ALICE)) == 1
    for error in (Problem("not_owner", "no"), apsw.FullError("full")):

        def refuse(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        with monkeypatch.context() as broken:
            broken.setattr(listing_writes, "insert", refuse)
            with pytest.raises((Problem, Unavailable)):
                run(store.add_listing(*ALICE, BIKE, STAMP))
        assert run(store.get_revision(*ALICE)) == 1


class Floors:
    """What reads are not to fall short of: what was acknowledged, and what somebody has read before."""

    def __init__(self) -> None:
        self.revisions = Counter[tuple[int, int]]()  # edits of accounts
        self.edits = Counter[int]()  # of listings, whose titles count them
        self.seen: dict[object, int] = {}

    def look(self, subject: object, acknowledged: int) -> Callable[[int], None]:
        """To be asked before a read, and given what it has found."""
        least = max(acknowledged, self.seen.get(subject, 0))

        def found(number: int) -> None:
            assert number >= least, (subject, number, least)
            self.seen[subject] = max(number, self.seen.get(subject, 0))

        return found


class Process:
    """A store, and the listings that are kept under what it knows, as the interface keeps its answers."""

    def __init__(self, store: SqliteStore, floors: Floors) -> None:
        self.store = store
        self._floors = floors
        self._kept: dict[int, tuple[int, str]] = {}

    async def create(self, place: tuple[int, int]) -> None:
        listing_id = (await self.store.add_listing(*place, NewListing(title="0", content="-"), STAMP)).listing_id
        self._floors.revisions[place] += 1
        self._floors.edits[listing_id] += 0

    async def edit(self, place: tuple[int, int], listing_id: int) -> None:
        await self.store.change_listing(listing_id, lambda found: {"title": str(int(found.title) + 1)} if found else {})
        self._floors.revisions[place] += 1
        self._floors.edits[listing_id] += 1

    async def look_at_revision(self, place: tuple[int, int]) -> None:
        found = self._floors.look(place, self._floors.revisions[place])
        found(await self.store.get_revision(*place))

    async def look(self, place: tuple[int, int], listing_id: int) -> bool:
        """Whether it was kept."""
        found = self._floors.look(listing_id, self._floors.edits[listing_id])
        settled = self.store.get_cached_settled_revision(*place)
        kept = self._kept.get(listing_id)
        if settled is None and kept is not None:
            settled = await self.store.get_settled_revision(*place)
        if kept is not None and settled is not None and kept[0] >= settled:
            found(int(kept[1]))
            return True
        read = await self.store.get_listing_and_revision(listing_id)
        assert read is not None
        self._kept[listing_id] = (read[1], read[0].title)
        found(int(read[0].title))
        return False


async def trade(draw: random.Random, processes: list[Process], floors: Floors) -> int:
    """Let the processes do all kinds of things at once; returns how many listings were found as they were kept."""
    kept = 0

    async def act(process: Process, kind: str, place: tuple[int, int]) -> None:
        nonlocal kept
        own = [listing_id for listing_id in floors.edits if listing_id & 1023 == place[0]]
        if kind == "create" or not own:
            await process.create(place)
        elif kind == "edit":
            await process.edit(place, draw.choice(own))
        elif kind == "revision":
            await process.look_at_revision(place)
        else:
            kept += await process.look(place, draw.choice(own[:5]))

    tasks: set[asyncio.Task[None]] = set()
    writers = processes
    for number in range(900):
        if number % 150 == 0:  # now one process writes alone, now both
            writers = draw.choice([processes, processes[:1]])
        kind = draw.choices(["create", "edit", "revision", "look"], [4, 1, 3, 12])[0]
        process = draw.choice(writers if kind in {"create", "edit"} else processes)
        tasks.add(asyncio.create_task(act(process, kind, draw.choice((ALICE, BOB)))))
        if draw.random() < 0.2:  # mostly several are under way
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*done)
        else:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    return kept


@pytest.mark.parametrize("seed", range(6))
def test_whatever_two_processes_do_at_once_nobody_reads_less_than_was_acknowledged_or_read(
    shop: Shop, seed: int
) -> None:
    floors = Floors()
    processes = [Process(store, floors) for store in shop.stores]
    kept = shop.run(trade(random.Random(seed), processes, floors))
    assert kept > 50
    for store in shop.stores:
        for place in (ALICE, BOB):
            assert shop.run(store.get_revision(*place)) == shop.revision(place)
