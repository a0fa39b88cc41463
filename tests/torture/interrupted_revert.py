"""A revert in many transactions, and a check that it continues after an interruption at any moment."""

from collections import Counter

from listings.domain.changes import ChangePosition
from listings.domain.history import Actor
from listings.domain.listings import AddStep
from listings.domain.model import Listing, NewListing
from listings.domain.reverts import Revert, RevertPosition, RevertRequest, RevertScope, RevertStep
from listings.service.history.reverts import Reverts
from listings.store.sqlite.store import SqliteStore
from tests.torture.recorder import Acknowledged, Disk, Event

_PARTITION = (1, 1)
_LISTINGS, _STEP = 40, 4
_KEY, _OWNER = Actor(7, 1_000), Actor(8, 2_000)
_EDITED, _REVERTED = 2, 3  # versions
_DATE = "2026-01-02 03:04:05"


async def prepare(store: SqliteStore) -> list[int]:
    """Create listings, and change their prices with a key. The price of a listing is its version, also when reverted.

    Return their ids.
    """
    ids = []
    for _ in range(_LISTINGS):
        new = NewListing(title="Chair", content="Oak. " * 20, price_cents=_REVERTED)
        ids.append((await store.add_listing(*_PARTITION, AddStep(new, _DATE))).listing_id)
    for listing_id in ids:
        await store.change_listing(listing_id, lambda _: {"price_cents": _EDITED}, _KEY)
    return ids


def expect(disk: Disk, ids: list[int]) -> None:
    """Tell the simulated disk the versions of the listings before the revert, and those after it."""
    disk.acknowledged_versions |= dict.fromkeys(ids, _EDITED)
    disk.requested_versions |= dict.fromkeys(ids, _REVERTED)


async def revert(store: SqliteStore, events: list[Event]) -> None:
    """Revert what the key wrote, in small steps."""
    scope, _ = await store.find_revert_scope(*_PARTITION, RevertRequest("key", _KEY.key_id))
    start = RevertPosition(scope.last)
    scan = await store.scan_revert(*_PARTITION, scope, start)
    current: Revert | None = None
    for step in _divide(scope, scan):
        if current is None:
            begun = await store.begin_revert(*_PARTITION, scope, step, _OWNER)
            assert isinstance(begun, Revert)
            current = begun
        else:
            current = await store.advance_revert(current.key, step, b"a" * 16, _OWNER.moment)
            assert current is not None
        events += [Acknowledged(one.listing_id, _REVERTED) for one in step.candidates]


def _divide(scope: RevertScope, scan: RevertStep) -> list[RevertStep]:
    steps, position = [], RevertPosition(scope.last)
    for first in range(0, len(scan.candidates), _STEP):
        part = scan.candidates[first : first + _STEP]
        is_last = first + _STEP >= len(scan.candidates)
        end = scan.end if is_last else part[-1].position
        steps.append(RevertStep(position, part, end, is_last))
        position = end
    return steps


async def resume(store: SqliteStore, listings: dict[int, Listing], ids: list[int]) -> list[str]:
    """Continue the revert after an interruption, if it had begun, and return what is wrong with its result."""
    if all(listings[listing_id].version == _EDITED for listing_id in ids):
        return []
    await Reverts(store, lambda: _OWNER.moment + 60, days=90).run()
    state = await store.get_edit_state(*_PARTITION)
    page = await store.page_changes(*_PARTITION, ChangePosition(_LISTINGS), state.edit_revision)
    times = Counter(change.listing_id for change in page.changes if change.kind == "reverted")
    failures = [f"listing {it} was reverted {times[it]} times" for it in ids if times[it] != 1]
    if await store.list_running_reverts(b"b" * 16, _OWNER.moment + 600):
        failures.append("the revert is not finished")
    return failures
