"""A revert of some edits leaves the fields as if only the other edits had been made."""

from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from listings.contract.history import CONSOLE, OPERATOR, Actor
from listings.contract.listings import AddStep, Batch, ChangeStep, Step
from listings.contract.reverts import MAX_STEP_LISTINGS, Revert, RevertRequest
from listings.domain.changes import Change
from listings.domain.errors import Problem
from listings.domain.fields import FIELDS
from listings.domain.model import Listing
from listings.service.history import reverts as use_cases
from tests.contract.conftest import ENGINES, Run, open_store
from tests.contract.helpers import CREATED
from tests.contract.revert_writes import NOW, Reverts
from tests.contract.test_changes import NEW

BOT, OWNER = Actor(OPERATOR, 1_500), Actor(CONSOLE, 1_600)
REVERTER = 9

NAMES = (*(field.attribute for field in FIELDS.values()), "deleted_at")


class Write(NamedTuple):
    """An edit of the listing with a number, or of a new one."""

    actor: Actor
    kind: str
    number: int
    value: int


WRITES = st.lists(
    st.builds(
        Write,
        st.sampled_from([BOT, OWNER]),
        st.sampled_from(["create", "title", "price_cents", "is_active", "external_id", "delete", "restore", "batch"]),
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    max_size=14,
)


class SmallSteps:
    """A store with another size of the steps."""

    def __init__(self, store: Any, step_size: int) -> None:
        self._store = store
        self.choose_revert_step_size = lambda: step_size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Shop(Reverts):
    """An account, and the state of its listings."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.ids = [self.add(OWNER, title=f"Listing {number}") for number in range(2)]
        self.start = self.read_state()
        self.first = self.last

    def write(self, write: Write) -> None:
        if write.kind == "create":
            self.ids.append(self.add(write.actor))
            return
        listing_id = self.ids[write.number % len(self.ids)]
        if write.kind != "batch":
            with suppress(Problem):  # another listing has the external id
                self.run(self.store.change_listing(listing_id, decider(write), write.actor))
            return
        steps: list[Step] = [
            ChangeStep(listing_id, decider(write._replace(kind="title"))),
            AddStep(NEW, CREATED),
            ChangeStep(listing_id, decider(write._replace(kind="price_cents"))),
        ]
        self.ids += [one for one in self.run_batch_as(write.actor, steps) if isinstance(one, int)]

    def run_batch_as(self, actor: Actor, steps: list[Step]) -> list[Any]:
        batch = Batch(steps, atomic=False, dry_run=False, encode=str)
        results: list[Any] = self.run(self.store.run_batch(*self.partition, batch, None, actor))
        return results

    def revert(self, request: RevertRequest, step_size: int) -> Revert:
        """Revert in steps of a size, except where listings may exchange external ids."""
        service = use_cases.Reverts(SmallSteps(self.store, step_size), lambda: NOW, days=100_000)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(use_cases, "MAX_FIRST_LISTINGS", step_size)
            begun = self.run(service.start(self.partition[1], request, REVERTER)).revert
        finished: Revert = self.run(service.finish(begun))
        return finished

    def read_state(self) -> dict[int, dict[str, Any]]:
        listings = self.run(self.store.page_listings(*self.partition, 0, 1000))
        return {it.id: {name: getattr(it, name) for name in NAMES} for it in listings}


def decider(write: Write) -> Any:
    """Return the decision of a write, which does nothing if the listing is not in the right state."""

    def decide(listing: Listing | None) -> dict[str, Any]:
        assert listing is not None
        is_deleted = listing.deleted_at is not None
        choices: dict[str, dict[str, Any]] = {
            "title": {"title": f"Title {write.value}"},
            "price_cents": {"price_cents": write.value},
            "is_active": {"is_active": write.value > 0},
            "external_id": {"external_id": f"sku {write.value}" if write.value else None},
            "delete": {"is_active": False, "deleted_at": 1_000 + write.value},
            "restore": {"deleted_at": None},
        }
        if is_deleted != (write.kind == "restore"):
            return {}
        return {name: value for name, value in choices[write.kind].items() if getattr(listing, name) != value}

    return decide


def replay(state: dict[int, dict[str, Any]], changes: list[Change], actor: Actor) -> dict[int, dict[str, Any]]:
    """Return the state after only the changes of an actor. A listing that it did not create is None."""
    found = {listing_id: dict(values) for listing_id, values in state.items()}
    for change in changes:
        if change.actor == actor.key_id and change.before is not None:
            found.setdefault(change.listing_id, {}).update(change.after)
    return found


@pytest.mark.decision("G46")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_revert_leaves_what_the_other_edits_alone_would_have_produced(
    request: pytest.FixtureRequest, engine: str, tmp_path: Path, run: Run
) -> None:
    with open_store(request, engine, tmp_path, run) as store:

        @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
        @given(WRITES, st.sampled_from([1, 2, MAX_STEP_LISTINGS]))
        def check(writes: list[Write], step_size: int) -> None:
            number = len(run(store.page_accounts(0, 10_000)))
            account = run(store.add_account("Alice", f"alice{number}@example.com", None, 1_000))
            shop = Shop(store, run, account)
            for write in writes:
                shop.write(write)
            edited, changes = shop.read_state(), shop.read(shop.first)
            scope_end = shop.last
            revert = shop.revert(RevertRequest("key", BOT.key_id), step_size)
            reverted = shop.read_state()
            kept = {(it.listing_id, name) for it in shop.conflicts(revert) for name in it.fields}
            check_result(shop, changes, reverted, edited, kept)
            assert revert.key.id == scope_end + 1
            shop.revert(RevertRequest("revert", revert.key.id), step_size)
            assert shop.read_state() == edited

        check()


def check_result(
    shop: Shop,
    changes: list[Change],
    reverted: dict[int, dict[str, Any]],
    edited: dict[int, dict[str, Any]],
    kept: set[tuple[int, str]],
) -> None:
    """Compare each field with what the owner's edits alone have produced, or with the value that it keeps."""
    expected = replay(shop.start, changes, OWNER)
    created = {it.listing_id: it.actor for it in changes if it.before is None}
    changed = {it.listing_id for it in changes if it.before is not None and it.actor == OWNER.key_id}
    for listing_id, values in reverted.items():
        if (listing_id, "deleted_at") in kept:
            assert values == edited[listing_id] or created.get(listing_id) != BOT.key_id
            continue
        if created.get(listing_id) == BOT.key_id:
            by_owner = expected.get(listing_id, {})
            if "deleted_at" in by_owner and by_owner["deleted_at"] is None:  # the owner restored it
                assert values["deleted_at"] is None
                continue
            assert values["deleted_at"] is not None
            assert not values["is_active"]
            was_deleted = edited[listing_id]["deleted_at"] is not None
            assert listing_id not in changed or was_deleted or "deleted_at" in by_owner
            continue
        alone = msgspec.structs.asdict(NEW) | {"deleted_at": None} | expected.get(listing_id, {})
        for name, value in values.items():
            if name == "is_active" and values["deleted_at"] is not None:
                assert not value
            elif (listing_id, name) not in kept:
                assert value == alone[name], (listing_id, name)
            else:
                assert value == edited[listing_id][name]
