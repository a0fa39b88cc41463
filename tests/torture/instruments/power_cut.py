"""Power cuts: record every write and sync of the store, cut at random moments, and drop or tear unsynced writes."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

import apsw

from listings.domain.errors import Problem, Unavailable
from listings.domain.listings import AddStep
from listings.domain.model import Listing, ListingChange, NewListing
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.store import SqliteStore
from tests.torture import faults, interrupted_revert
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.parallel import count_cores, run_in_parallel
from tests.torture.recorder import Acknowledged, Disk, Event, Recorder, Requested, Suffix

STATES = 10_000
_STATES_PER_SESSION = 500
_CLIENTS, _WRITES = 8, 240  # per session
_CHECKPOINT_PAGES = (40, 200, 1000)  # pages of the WAL before a checkpoint; the last is the product's setting
_DATE = "2026-01-02 03:04:05"
_MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - for states under inspection; nothing is stored


class Job(NamedTuple):
    folder: Path
    states: int
    seconds: float
    seed: int
    fault: Callable[[], None] | None = None


class Recording(NamedTuple):
    """The initial file, the events after it, and the listings of the revert."""

    before: bytes
    events: list[Event]
    edited: list[int]


class Result(NamedTuple):
    states: int
    events: int
    failures: list[str]
    damaged: int


def work(job: Job) -> Result:
    """Run in a separate process, whose SQLite is recorded."""
    if job.fault is not None:
        job.fault()
    job.folder.mkdir()
    scale = Scale(job.folder, 1.0, job.seconds)
    total = Result(0, 0, [], 0)
    session = 0
    with tempfile.TemporaryDirectory(dir=_MEMORY_FOLDER if _MEMORY_FOLDER.is_dir() else job.folder) as name:
        while total.states < job.states and not scale.is_time_up:
            session += 1
            random = Random(f"{job.seed}-{session}")
            recording = _record(job.folder / f"{session}.db", _CHECKPOINT_PAGES[session % len(_CHECKPOINT_PAGES)])
            states = min(_STATES_PER_SESSION, job.states - total.states)
            found = asyncio.run(_replay(Path(name), recording, random, states, scale))
            total = Result(
                total.states + found.states,
                total.events + len(recording.events),
                [*total.failures, *found.failures],
                total.damaged + found.damaged,
            )
    return total


def _record(database: Path, pages: int) -> Recording:
    migrate.migrate(database)
    edited = asyncio.run(_prepare(database))
    before = database.read_bytes()
    recorder = Recorder(database)
    asyncio.run(_write(database, recorder.events, pages))
    recorder.unregister()
    return Recording(before, recorder.events, edited)


async def _prepare(database: Path) -> list[int]:
    store = SqliteStore(database)
    await store.open()
    await store.add_account("alice", "alice@example.com", None, 0)
    edited = await interrupted_revert.prepare(store)
    await store.close()
    return edited


async def _write(database: Path, events: list[Event], pages: int) -> None:
    store = SqliteStore(database)
    await store.open()
    writer = store._database.writer  # noqa: SLF001 - the number of pages is not a setting
    await writer.run(lambda connection: connection.pragma("wal_autocheckpoint", pages))
    await asyncio.gather(interrupted_revert.revert(store, events), *(_client(store, events) for _ in range(_CLIENTS)))
    await store.close()


async def _client(store: SqliteStore, events: list[Event]) -> None:
    """Create listings and update them; the price of each is its version."""
    listing_id = version = 0
    for number in range(_WRITES // _CLIENTS):
        if number % 5 == 0:
            new = NewListing(title="Lamp", content="Bright. " * 20, price_cents=1)
            listing_id = (await store.add_listing(1, 1, AddStep(new, _DATE))).listing_id
            version = 1
        else:
            version += 1
            events.append(Requested(listing_id, version))
            await store.change_listing(listing_id, _raise_price)
        events.append(Acknowledged(listing_id, version))


def _raise_price(listing: Listing | None) -> ListingChange:
    assert listing is not None
    return {"price_cents": listing.version + 1}


async def _replay(folder: Path, recording: Recording, random: Random, count: int, scale: Scale) -> Result:
    before, events, edited = recording
    moments = sorted(random.randrange(len(events)) for _ in range(count))
    disk, done = Disk(before), 0
    interrupted_revert.expect(disk, edited)
    failures: list[str] = []
    damaged = states = 0
    for moment in moments:
        if scale.is_time_up:
            break
        for event in events[done : moment + 1]:
            disk.advance(event)
        done = moment + 1
        database = folder / "listings.db"
        _write_files(database, disk.cut(random))
        found = await _check_state(database, disk, edited)
        states += 1
        damaged += any("damaged" in failure for failure in found)
        if found:
            failures.append(f"cut after event {moment}: {found[0]}")
    return Result(states, len(events), failures, damaged)


def _write_files(database: Path, files: dict[Suffix, bytearray]) -> None:
    for path in database.parent.iterdir():
        path.unlink()
    for suffix, content in files.items():
        Path(f"{database}{suffix}").write_bytes(content)


async def _check_state(database: Path, disk: Disk, edited: list[int]) -> list[str]:
    """Return what the store and SQLite report, differences from the acknowledged writes, and from a whole revert."""
    store = SqliteStore(database)
    try:
        await store.open()
    except (Problem, Unavailable) as problem:
        return [f"damaged: {problem.message}"]
    try:
        listings = await _read_listings(store)
        failures = _differences(listings, disk) or await interrupted_revert.resume(store, listings, edited)
    except Unavailable as problem:
        failures = [f"damaged: {problem.message}"]
    await store.close()
    with suppress(apsw.Error), closing(apsw.Connection(str(database))) as connection:
        if connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]:
            return failures
    return [*failures, "damaged: integrity_check reports errors"]


async def _read_listings(store: SqliteStore) -> dict[int, Listing]:
    """Read all listings in pages, which may take long: on a busy machine, a whole list could be refused."""
    listings: dict[int, Listing] = {}
    while page := await store.page_listings(1, 1, max(listings, default=0), 1000):
        listings |= {listing.id: listing for listing in page}
    return listings


def _differences(listings: dict[int, Listing], disk: Disk) -> list[str]:
    failures = [
        f"listing {listing_id} is gone, but version {acknowledged} was acknowledged"
        for listing_id, acknowledged in disk.acknowledged_versions.items()
        if listing_id not in listings
    ]
    for listing_id, listing in listings.items():
        acknowledged = disk.acknowledged_versions.get(listing_id, 1)
        requested = max(acknowledged, disk.requested_versions.get(listing_id, 1))
        if not acknowledged <= listing.version <= requested or listing.price_cents != listing.version:
            actual = f"version {listing.version} and price {listing.price_cents}"
            failures.append(
                f"listing {listing_id} has {actual}, but {acknowledged} was acknowledged, {requested} requested"
            )
    return failures


def _total(results: list[Result]) -> Result:
    return Result(
        sum(one.states for one in results),
        sum(one.events for one in results),
        [failure for one in results for failure in one.failures],
        sum(one.damaged for one in results),
    )


def run(scale: Scale) -> Outcome:
    states, processes = scale.amount(STATES, 300), count_cores()
    jobs = [
        Job(scale.folder / str(number), states // processes + (number < states % processes), scale.seconds_left, number)
        for number in range(processes)
    ]
    total = _total(run_in_parallel(work, jobs))
    summary = f"{total.states:,} states from {total.events:,} writes, syncs and responses"
    summary += f": {len(total.failures)} with lost writes or an incomplete revert, {total.damaged} damaged"
    return Outcome(summary, total.failures, total.states >= STATES)


def control(scale: Scale) -> Outcome:
    """Commit without fsync, and store the progress of a revert before its changes."""
    lost = _run_with_fault(scale, faults.commit_without_sync)
    unfinished = _run_with_fault(scale, faults.store_progress_before_changes)
    found = [*lost.failures, *unfinished.failures] if lost.failures and unfinished.failures else []
    summary = f"synchronous=NORMAL: {len(lost.failures)} of {lost.states} states lost acknowledged writes"
    summary += f", {lost.damaged} are damaged; progress before changes: {len(unfinished.failures)} incomplete reverts"
    return Outcome(summary, found)


def _run_with_fault(scale: Scale, fault: Callable[[], None]) -> Result:
    job = Job(scale.folder / "control", 150, scale.seconds_left, 1, fault)
    total = _total(run_in_parallel(work, [job]))
    shutil.rmtree(job.folder)
    return total


INSTRUMENT = Instrument(
    2,
    "power cut: writes and syncs recorded, cut anywhere, unsynced writes dropped or torn",
    "10,000 states: 0 acknowledged writes lost, 0 damaged, every revert continued",
    1.5,
    run,
    control,
    short_fraction=0.03,
)
