"""Power cuts: every write and sync of the store is recorded, and cut at every moment with whatever was not synced."""

import asyncio
import shutil
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

import apsw

from listings.domain.errors import Problem, Unavailable
from listings.domain.model import Listing, ListingChange, NewListing
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.store import SqliteStore
from tests.torture import faults
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.recorder import Acknowledged, Ask, Disk, Event, Recorder, Suffix
from tests.torture.signals import beside, cores

STATES = 10_000
_EACH = 500  # states of a session
_CLIENTS, _WRITES = 8, 240  # of a session
_PLACES = (40, 200, 1000)  # pages after which a checkpoint is made; the last is the product's own
_DATE = "2026-01-02 03:04:05"
_MEMORY = Path("/dev/shm")  # noqa: S108 - where states are looked at; nothing is kept there


class Share(NamedTuple):
    """What one process does."""

    folder: Path
    states: int
    seconds: float
    seed: int
    breaks: bool = False  # by `synchronous = NORMAL`


class Result(NamedTuple):
    """What it came to."""

    states: int
    events: int
    faults: list[str]
    damaged: int


def work(share: Share) -> Result:
    """In a process of its own, whose SQLite is recorded."""
    if share.breaks:
        faults.commit_without_sync()
    share.folder.mkdir()
    scale = Scale(share.folder, 1.0, share.seconds)
    total = Result(0, 0, [], 0)
    session = 0
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else share.folder) as name:
        while total.states < share.states and not scale.is_over:
            session += 1
            random = Random(f"{share.seed}-{session}")
            before, events = _record(share.folder / f"{session}.db", _PLACES[session % len(_PLACES)])
            asked = min(_EACH, share.states - total.states)
            found = asyncio.run(_replay(Path(name), before, events, random, asked, scale))
            total = Result(
                total.states + found.states,
                total.events + len(events),
                [*total.faults, *found.faults],
                total.damaged + found.damaged,
            )
    return total


# The recording


def _record(database: Path, pages: int) -> tuple[bytes, list[Event]]:
    """The file before, and all that happened to it since."""
    migrate.migrate(database)
    asyncio.run(_add_account(database))
    before = database.read_bytes()
    recorder = Recorder(database)
    asyncio.run(_write(database, recorder.events, pages))
    recorder.unregister()
    return before, recorder.events


async def _add_account(database: Path) -> None:
    store = SqliteStore(database)
    await store.open()
    await store.add_account("alice", "alice@example.com", None, 0)
    await store.close()


async def _write(database: Path, events: list[Event], pages: int) -> None:
    store = SqliteStore(database)
    await store.open()
    await store._run(lambda connection: connection.pragma("wal_autocheckpoint", pages))  # noqa: SLF001 - no other way
    await asyncio.gather(*(_client(store, events) for _ in range(_CLIENTS)))
    await store.close()


async def _client(store: SqliteStore, events: list[Event]) -> None:
    """Makes listings and changes them; the price of each is its version."""
    listing_id = version = 0
    for number in range(_WRITES // _CLIENTS):
        if number % 5 == 0:
            new = NewListing(title="Lamp", content="Bright. " * 20, price_cents=1)
            listing_id = (await store.add_listing(1, 1, new, _DATE)).listing_id
            version = 1
        else:
            version += 1
            events.append(Ask(listing_id, version))
            await store.change_listing(listing_id, _raise_price)
        events.append(Acknowledged(listing_id, version))


def _raise_price(listing: Listing | None) -> ListingChange:
    assert listing is not None
    return {"price_cents": listing.version + 1}


# The states


async def _replay(folder: Path, before: bytes, events: list[Event], random: Random, count: int, scale: Scale) -> Result:
    """So many states, spread over all moments."""
    moments = sorted(random.randrange(len(events)) for _ in range(count))
    disk, done = Disk(before), 0
    faults: list[str] = []
    damaged = states = 0
    for moment in moments:
        if scale.is_over:
            break
        for event in events[done : moment + 1]:
            disk.advance(event)
        done = moment + 1
        database = folder / "listings.db"
        _lay(database, disk.cut(random))
        found = await _look(database, disk)
        states += 1
        damaged += any("damaged" in fault for fault in found)
        if found:
            faults.append(f"cut after event {moment}: {found[0]}")
    return Result(states, len(events), faults, damaged)


def _lay(database: Path, files: dict[Suffix, bytearray]) -> None:
    """In an empty folder."""
    for path in database.parent.iterdir():
        path.unlink()
    for suffix, content in files.items():
        Path(f"{database}{suffix}").write_bytes(content)


async def _look(database: Path, disk: Disk) -> list[str]:
    """What the product's own store finds, and what of it may not be."""
    store = SqliteStore(database)
    try:
        await store.open()
    except (Problem, Unavailable) as problem:
        return [f"damaged: {problem.message}"]
    try:
        listings = {one.id: one for one in await store.list_listings(1, 1)}
        faults = _differences(listings, disk)
    except Unavailable as problem:
        faults = [f"damaged: {problem.message}"]
    await store.close()
    with suppress(apsw.Error), closing(apsw.Connection(str(database))) as connection:
        if connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]:
            return faults
    return [*faults, "damaged: integrity_check finds faults"]


def _differences(listings: dict[int, Listing], disk: Disk) -> list[str]:
    faults = [
        f"listing {listing_id} is gone, version {least} was acknowledged"
        for listing_id, least in disk.least.items()
        if listing_id not in listings
    ]
    for listing_id, listing in listings.items():
        least = disk.least.get(listing_id, 1)
        most = max(least, disk.most.get(listing_id, 1))
        if not least <= listing.version <= most or listing.price_cents != listing.version:
            said = f"version {listing.version} and price {listing.price_cents}"
            faults.append(f"listing {listing_id} has {said}, {least} was acknowledged and {most} asked for")
    return faults


def _total(results: list[Result]) -> Result:
    return Result(
        sum(one.states for one in results),
        sum(one.events for one in results),
        [fault for one in results for fault in one.faults],
        sum(one.damaged for one in results),
    )


def run(scale: Scale) -> Outcome:
    """In as many processes as there are cores."""
    states, arms = scale.amount(STATES, 300), cores()
    shares = [
        Share(scale.folder / str(arm), states // arms + (arm < states % arms), scale.left, arm) for arm in range(arms)
    ]
    total = _total(beside(work, shares))
    told = f"{total.states:,} states from {total.events:,} writes, syncs and responses"
    told += f": {len(total.faults)} with lost writes, {total.damaged} damaged"
    return Outcome(told, total.faults, states >= STATES)


def control(scale: Scale) -> Outcome:
    """Commits that are not synced."""
    share = Share(scale.folder / "control", 150, scale.left, 1, breaks=True)
    total = _total(beside(work, [share]))
    lost = f"{len(total.faults)} of {total.states} states have lost acknowledged writes, {total.damaged} are damaged"
    shutil.rmtree(share.folder)
    return Outcome(f"synchronous=NORMAL: {lost}", total.faults)


INSTRUMENT = Instrument(
    2,
    "power cut: writes and syncs recorded, cut anywhere, unsynced writes dropped or torn",
    "10,000 states: 0 acknowledged writes lost, 0 damaged",
    3,
    run,
    control,
    short=0.03,
)
