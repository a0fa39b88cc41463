"""A revert of some edits leaves the fields as if only the other edits had been made."""

from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from listings.domain.accounts import NewKey
from listings.domain.changes import Change, ChangePosition
from listings.domain.errors import Problem
from listings.domain.history import CONSOLE, OPERATOR, Actor, ChangeGroup
from listings.domain.listings import AddStep, Batch, BatchOutcome, ChangeStep, Step
from listings.domain.model import Listing
from listings.domain.reverts import MAX_STEP_LISTINGS, Revert, RevertCounts, RevertRequest
from listings.service.history import reverts as use_cases
from listings.store.reverts import plans
from tests.contract.conftest import ENGINES, Run, open_store
from tests.contract.helpers import CREATED, set_values
from tests.contract.revert_model import NAMES, InScope, Model, State
from tests.contract.revert_writes import NOW, Reverts
from tests.contract.test_changes import NEW

BOT, OWNER = Actor(OPERATOR, 1_500), Actor(CONSOLE, 1_600)


GROUPS = (None, None, "night", "day")


class Write(NamedTuple):
    """An edit of the listing with a number, or of a new one, by one of three actors, which may have a named group."""

    actor: int
    kind: str
    number: int
    value: int
    group: str | None = None


class Undo(NamedTuple):
    """A revert of an actor's changes, of a group, of the change set with a number, or of the revert with a number."""

    kind: str
    number: int
    overwrite: bool
    step_size: int
    author: int
    writes: list[Write]  # after the first step


def build_writes(actors: int, count: int) -> st.SearchStrategy[list[Write]]:
    kinds = ["create", "title", "price_cents", "is_active", "external_id", "exchange", "delete", "restore", "batch"]
    numbers = (st.integers(0, 3), st.integers(0, 2))
    write = st.builds(Write, st.integers(0, actors - 1), st.sampled_from(kinds), *numbers, st.sampled_from(GROUPS))
    return st.lists(write, max_size=count)


UNDOS = st.builds(
    Undo,
    st.sampled_from(["key", "key", "change", "revert", "group"]),
    st.integers(0, 8),
    st.booleans(),
    st.sampled_from([1, 2, MAX_STEP_LISTINGS]),
    st.integers(0, 2),
    build_writes(3, 2),
)
PARTS = st.lists(st.tuples(build_writes(3, 8), UNDOS), min_size=1, max_size=4)


class SmallSteps:
    """A store with another size of the steps. It remembers what it has scanned, and calls `after_first` once."""

    def __init__(self, store: Any, step_size: int, after_first: Any) -> None:
        self._store = store
        self.choose_revert_step_size = lambda: step_size
        self.scanned: dict[int, Any] = {}
        self.after_first = after_first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def scan_revert(self, *arguments: Any) -> Any:
        scan = await self._store.scan_revert(*arguments)
        self.scanned |= {one.listing_id: one for one in scan.candidates}
        return scan

    async def begin_revert(self, *arguments: Any) -> Any:
        revert = await self._store.begin_revert(*arguments)
        await self.after_first(self, revert)
        return revert


class Shop(Reverts):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        digest = self.partition[1].to_bytes(32, "big")
        key = self.run(
            self.store.add_key(
                NewKey(account_id=self.partition[1], name="third", digest=digest, hint="lst", created_at=1_000)
            )
        )
        self.actors = [BOT, OWNER, Actor(key.id, 1_700)]
        self.model = Model(NOW)
        self.sets: list[int] = []
        self.changes: list[Change] = []
        self.reverts: list[int] = []
        self.ids = [self.add(OWNER, title=f"Listing {number}", external_id=f"own {number}") for number in range(2)]
        self.follow()

    async def read_new(self) -> list[Change]:
        """Return the changes that the model does not have yet."""
        page = await self.store.page_changes(*self.partition, ChangePosition(self.sets[-1] if self.sets else 0), 10**9)
        found = list(page.changes)
        assert page.edit_revision == len(self.sets) + len({one.edit_revision for one in found})
        self.sets += dict.fromkeys(one.edit_revision for one in found)
        self.changes += found
        return found

    def follow(self) -> None:
        self.model.write(self.run(self.read_new()))

    async def write(self, write: Write) -> None:
        actor = self.actors[write.actor]._replace(group=None if write.group is None else ChangeGroup(write.group))
        if write.kind == "create":
            self.ids.append(
                (await self.store.add_listing(*self.partition, AddStep(NEW, CREATED), None, actor)).listing_id
            )
            return
        listing_id = self.ids[write.number % len(self.ids)]
        if write.kind not in {"batch", "exchange"}:
            with suppress(Problem):  # another listing has the external id
                await self.store.change_listing(listing_id, decider(write), actor)
            return
        steps: list[Step] = [
            ChangeStep(listing_id, decider(write._replace(kind="title"))),
            AddStep(NEW, CREATED),
            ChangeStep(listing_id, decider(write._replace(kind="price_cents"))),
        ]
        if write.kind == "exchange":
            steps = await self.build_exchange(write.value + 1)
        self.ids += [one for one in await self.send_batch(actor, steps) if isinstance(one, int)]

    async def build_exchange(self, shift: int) -> list[Step]:
        """Return the steps that pass on the external ids of all listings in a cycle."""
        listings = [await self.store.get_listing(one) for one in self.ids]
        current = [one for one in listings if one and one.deleted_at is None and one.external_id is not None]
        names = [one.external_id for one in current]
        cleared = [ChangeStep(one.id, set_values(external_id=None)) for one in current]
        shifted = zip(current, names[shift:] + names[:shift], strict=True)
        return [*cleared, *(ChangeStep(one.id, set_values(external_id=name)) for one, name in shifted)]

    async def send_batch(self, actor: Actor, steps: list[Step]) -> list[Any]:
        batch = Batch(steps, atomic=False, dry_run=False, encode=str)
        outcome = await self.store.run_batch(*self.partition, batch, None, actor)
        assert isinstance(outcome, BatchOutcome)
        return list(outcome.results)

    def choose(self, undo: Undo) -> tuple[RevertRequest, InScope] | None:
        last = self.sets[-1]
        if undo.kind == "key":
            actor = self.actors[undo.number % 3].key_id
            return RevertRequest(
                "key", actor, overwrite=undo.overwrite
            ), lambda one: one.actor == actor and one.edit_revision <= last
        if undo.kind == "group":
            name = GROUPS[2 + undo.number % 2]
            if not any(one.group == name for one in self.changes):
                return None
            return RevertRequest(
                "group", str(name), overwrite=undo.overwrite
            ), lambda one: one.group == name and one.edit_revision <= last
        numbers = self.sets if undo.kind == "change" else self.reverts
        if not numbers:
            return None
        number = numbers[-1 - undo.number % len(numbers)]
        if undo.kind == "change":
            return RevertRequest("change", number, overwrite=undo.overwrite), lambda one: one.edit_revision == number
        return RevertRequest(
            "revert", number, overwrite=undo.overwrite
        ), lambda one: one.kind == "reverted" and one.group_id == number

    def undo(self, undo: Undo) -> None:
        chosen = self.choose(undo)
        if chosen is None:
            return
        request, in_scope = chosen
        counts = RevertCounts()
        conflicts: set[int] = set()
        handled: set[int] = set()

        async def check_part(only: Any, part: list[Change]) -> None:
            nonlocal counts, conflicts
            state, outcome, undid = self.model.plan(in_scope, overwrite=undo.overwrite, only=only)
            self.model.write(part, undid)
            assert list_differences(self.model.state, state) == []
            counts = RevertCounts(counts.reverted + len(outcome.reverted), counts.unchanged + len(outcome.unchanged))
            conflicts |= outcome.conflicts

        async def write_between(store: SmallSteps, revert: Revert) -> None:
            part = await self.read_new()
            handled.update(one.listing_id for one in part)
            handled.update(key for key, one in store.scanned.items() if one.position >= revert.position)
            found = await self.store.page_revert_conflicts(revert.key, 0, 1000)
            handled.update(one.listing_id for one in found)
            if revert.finished_at is None:
                await check_part(handled.__contains__, part)
                for write in undo.writes:
                    await self.write(write)
                self.model.write(await self.read_new())
            else:
                handled.clear()
                await check_part(lambda _: True, part)

        preview = None
        store: Any = SmallSteps(self.store, undo.step_size, write_between)
        service = use_cases.Reverts(store, lambda: NOW, days=100_000)
        if not undo.writes:
            preview = self.run(service.preview(self.partition[1], request))
        begun, done = self.revert(service, request, undo)
        if begun.finished_at is None:
            self.run(check_part(lambda one: one not in handled, self.run(self.read_new())))
        assert list_differences(self.read_state(), self.model.state) == []
        assert (done.counts.reverted, done.counts.unchanged) == (counts.reverted, counts.unchanged)
        assert {one.listing_id for one in self.conflicts(done)} == conflicts
        assert preview is None or preview.counts == done.counts
        self.reverts.append(done.key.id)

    def revert(self, service: use_cases.Reverts, request: RevertRequest, undo: Undo) -> tuple[Revert, Revert]:
        """Return the revert after its first step and at its end."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(use_cases, "MAX_FIRST_LISTINGS", undo.step_size)
            begun, _ = self.run(service.start(self.partition[1], request, self.actors[undo.author].key_id))
        return begun, self.run(service.finish(begun))

    def read_state(self) -> dict[int, dict[str, Any]]:
        listings = self.run(self.store.page_listings(*self.partition, 0, 1000))
        return {it.id: {name: getattr(it, name) for name in NAMES} for it in listings}


def list_differences(found: State, expected: State) -> list[tuple[int, str, Any, Any]]:
    assert found.keys() == expected.keys()
    return [
        (listing_id, name, value, expected[listing_id][name])
        for listing_id, values in found.items()
        for name, value in values.items()
        if value != expected[listing_id][name]
    ]


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


def open_shop(store: Any, run: Run) -> Shop:
    number = len(run(store.page_accounts(0, 10_000)))
    return Shop(store, run, run(store.add_account("Alice", f"alice{number}@example.com", None, 1_000)))


@pytest.mark.decision("G46")
@pytest.mark.parametrize("engine", ENGINES)
def test_reverts_in_any_order_do_what_the_model_does(
    request: pytest.FixtureRequest, engine: str, tmp_path: Path, run: Run
) -> None:
    with open_store(request, engine, tmp_path, run) as store:

        @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
        @given(PARTS)
        def check(parts: list[tuple[list[Write], Undo]]) -> None:
            note(parts)
            shop = open_shop(store, run)
            for writes, undo in parts:
                for write in writes:
                    run(shop.write(write))
                shop.follow()
                shop.undo(undo)

        check()


@pytest.mark.decision("G46")
@pytest.mark.parametrize("engine", ENGINES)
def test_cycles_of_external_ids_that_are_longer_than_a_step_are_undone(
    request: pytest.FixtureRequest, engine: str, tmp_path: Path, run: Run
) -> None:
    """Between two steps, only the last listing of a chain is without its external id."""
    with open_store(request, engine, tmp_path, run) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "MAX_STEP_LISTINGS", 4)

        @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.permutations(range(11)), st.sampled_from([1, 3, 4]))
        def check(order: list[int], step_size: int) -> None:
            shop = open_shop(store, run)
            names = [f"sku {number}" for number in range(11)]
            ids = [shop.add(OWNER, external_id=name) for name in names]
            cleared: list[Step] = [ChangeStep(one, set_values(external_id=None)) for one in ids]
            moved = [ChangeStep(one, set_values(external_id=names[k])) for one, k in zip(ids, order, strict=True)]
            run(shop.send_batch(BOT, [*cleared, *moved]))
            missing: list[int] = []

            async def count_missing(*_: Any) -> None:
                found = await shop.store.page_listings(*shop.partition, 0, 1000)
                missing.append(sum(one.external_id is None for one in found))

            watched: Any = SmallSteps(store, step_size, count_missing)
            service = use_cases.Reverts(watched, lambda: NOW, days=100_000)
            request = RevertRequest("key", BOT.key_id)
            planned = run(service.preview(shop.partition[1], request)).counts
            patch.setattr(use_cases, "MAX_FIRST_LISTINGS", step_size)
            done = run(service.finish(run(service.start(shop.partition[1], request, OWNER.key_id))[0]))
            found = {one.id: one.external_id for one in run(store.page_listings(*shop.partition, 0, 1000))}
            assert [found[one] for one in ids] == names
            assert done.counts == planned
            assert (done.counts.reverted + done.counts.unchanged, done.counts.conflicts) == (11, 0)
            assert max(missing) <= 1
            redo = RevertRequest("revert", done.key.id)
            run(service.finish(run(service.start(shop.partition[1], redo, 0))[0]))
            found = {one.id: one.external_id for one in run(store.page_listings(*shop.partition, 0, 1000))}
            assert [found[one] for one in ids] == [names[k] for k in order]

        check()
