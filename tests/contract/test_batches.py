"""Batches and idempotent writes: guarantees of every store (`listings.store.store.Store`)."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

import msgspec
import pytest

from listings.domain.errors import Problem
from listings.domain.history import Actor
from listings.domain.listings import (
    MAX_PREVIEW_CHARACTERS,
    AddStep,
    Batch,
    BatchOutcome,
    ChangeStep,
    Decide,
    IdempotencyRecord,
    Preview,
    PutStep,
    Step,
)
from listings.domain.model import Account, Listing, ListingChange, ListingQuery, NewListing, bucket_of
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.helpers import find_all, set_values

CREATED = "2026-11-21 10:00:00"
ADD = AddStep(NewListing(title="Lamp", content="Brass."), CREATED)
REJECTED = Problem("invalid_request", "no")
ACTOR = Actor(1, 1_000)


class AccountListings:
    def __init__(self, store: Store, run: Run, account: Account) -> None:
        self._store = store
        self._await = run
        self.partition = bucket_of(account.id), account.id

    def run(
        self, *steps: Step, atomic: bool = False, dry_run: bool = False, claim: IdempotencyRecord | None = None
    ) -> Any:
        batch = Batch(steps, atomic=atomic, dry_run=dry_run, encode=describe)
        outcome = self._await(self._store.run_batch(*self.partition, batch, claim))
        return outcome if isinstance(outcome, str) else outcome.results

    async def run_if(
        self,
        require_state: Callable[[int], None],
        *steps: Step,
        claim: IdempotencyRecord | None = None,
        dry_run: bool = False,
    ) -> Any:
        """Run an atomic batch that depends on the state of the account, and return its edit revision after it."""
        batch = Batch(steps, atomic=True, dry_run=dry_run, encode=str, require_state=require_state)
        outcome = await self._store.run_batch(*self.partition, batch, claim, ACTOR)
        return outcome if isinstance(outcome, str) else outcome.edit_revision

    def run_now(self, edit_revision: int, *steps: Step, **more: Any) -> Any:
        return self._await(self.run_if(require(edit_revision), *steps, **more))

    def add(self, claim: IdempotencyRecord | None = None) -> Any:
        return self._await(self._store.add_listing(*self.partition, AddStep(ADD.new, CREATED), claim))

    @property
    def titles(self) -> list[str]:
        query = ListingQuery(status="all", descending=False)
        return [listing.title for listing in self._await(find_all(self._store, self.partition[1], query))]

    def run_alone(self, step: Step) -> Any:
        try:
            if isinstance(step, AddStep):
                return self._await(self._store.add_listing(*self.partition, step))
            if isinstance(step, ChangeStep):
                return self._await(self._store.change_listing(*step))
        except Problem as problem:
            return problem
        return self.run(step)[0]

    @property
    def ids(self) -> list[int]:
        return [listing.id for listing in self.all]

    @property
    def all(self) -> list[Listing]:
        return list(self._await(self._store.page_listings(*self.partition, 0, 1000)))

    @property
    def revision(self) -> int:
        return int(self._await(self._store.get_revisions(*self.partition)).revision)


@pytest.fixture
def listings(store: Store, run: Run, account: Account) -> AccountListings:
    return AccountListings(store, run, account)


def describe(outcome: BatchOutcome) -> str:
    return ",".join(type(result).__name__ for result in outcome.results)


def require(*edit_revisions: int) -> Callable[[int], None]:
    """Return a condition on the state of an account."""

    def require_state(edit_revision: int) -> None:
        if edit_revision not in edit_revisions:
            raise Problem("precondition_failed", f"state {edit_revision}")

    return require_state


def append_to_title(listing_id: int, title: str) -> ChangeStep:
    def decide(listing: Listing | None) -> ListingChange:
        if listing is None:
            raise Problem("listing_not_found", "Listing not found")
        return {"title": listing.title + title}

    return ChangeStep(listing_id, decide)


def build_idempotency_record(
    key: str = "k", digest: bytes = b"d" * 32, moment: int = 1_000, oldest: int = 900
) -> IdempotencyRecord:
    return IdempotencyRecord(key, digest, moment, oldest)


def test_each_step_has_the_result_it_would_have_alone(listings: AccountListings) -> None:
    first = listings.add().listing_id
    created_id, changed, missing, rejected = listings.run(
        ADD, append_to_title(first, "!"), append_to_title(first + 10**6, "?"), REJECTED
    )
    assert created_id == first + 1024
    assert (changed.id, changed.title, changed.version) == (first, "Lamp!", 2)
    assert (missing.code, rejected) == ("listing_not_found", REJECTED)
    assert listings.titles == ["Lamp!", "Lamp"]


def test_a_step_sees_what_earlier_steps_wrote(listings: AccountListings) -> None:
    first = listings.add().listing_id
    listings.run(append_to_title(first, "a"), ADD, append_to_title(first, "b"), append_to_title(first + 1024, "c"))
    assert listings.titles == ["Lampab", "Lampc"]


def test_the_steps_of_a_batch_may_change_long_listings_again(listings: AccountListings) -> None:
    long = msgspec.structs.replace(ADD.new, content="x" * 400_000)
    first, second, third = listings.run(*[ADD._replace(new=long)] * 3)
    edits = [append_to_title(listing_id, "!") for listing_id in (first, second, third, first)]
    results = listings.run(*edits)
    assert [(result.title, result.content) for result in results] == [*[("Lamp!", "")] * 3, ("Lamp!!", "")]
    assert listings.titles == ["Lamp!!", "Lamp!", "Lamp!"]


def test_a_batch_with_edits_raises_the_revision_once(listings: AccountListings) -> None:
    first, *_ = listings.run(ADD, REJECTED, ADD)
    assert listings.revision == 1
    listings.run(REJECTED, ChangeStep(first, lambda _: {}))
    assert listings.revision == 1


@pytest.mark.parametrize("seed", range(12))
def test_a_batch_does_what_its_steps_do_one_by_one(
    listings: AccountListings, store: Store, run: Run, seed: int
) -> None:
    bob = run(store.add_account("Bob", "bob@example.com", 2_000_000_000, 1_000))
    others = AccountListings(store, run, bob)
    random = Random(seed)
    for account in (listings, others):
        run(store.set_account_limits(*account.partition, (7, 900, None)))
        account.run(*(build_create(name) for name in ("a", "b", None)))
    for _ in range(8):
        actions = [choose_action(random, len(listings.all)) for _ in range(15)]
        ids, other_ids = listings.ids, others.ids
        together = listings.run(*(action(ids) for action in actions))
        alone = [run_and_check_external_id(others, action(other_ids)) for action in actions]
        assert [outline(result) for result in together] == [outline(result) for result in alone]
        assert [outline(listing) for listing in listings.all] == [outline(listing) for listing in others.all]


def run_and_check_external_id(account: AccountListings, step: Step) -> Any:
    """Run a step alone. It fails if another listing that is not deleted has its external id, which the error names."""
    holder = find_holder(account.all, step)
    result = account.run_alone(step)
    if isinstance(result, Problem) and result.code == "external_id_taken":
        assert holder is not None
        assert f"belongs to listing {holder}:" in result.message
    else:
        assert holder is None or isinstance(result, Problem)
    return result


def find_holder(listings: list[Listing], step: Step) -> int | None:
    """Return the id of the listing that has the external id which a step would give to another one."""
    wanted, own = None, None
    if isinstance(step, AddStep):
        wanted = step.new.external_id
    elif isinstance(step, ChangeStep):
        (before,) = (one for one in listings if one.id == step.listing_id)
        after = msgspec.structs.replace(before, **step.decide(before))
        wanted, own = after.external_id if after.deleted_at is None else None, before.id
    held = (one.id for one in listings if one.deleted_at is None and one.external_id == wanted and one.id != own)
    return next(held, None) if wanted is not None else None


Action: TypeAlias = Callable[[list[int]], Step]
"""Builds a step, given the ids of an account's listings."""


def choose_action(random: Random, count: int) -> Action:
    """Return a random action. Many reject each other, or take and give up external ids."""
    name, index = random.choice(["a", "b", "c", None]), random.randrange(count)
    title = random.choice(["Lamp", "Chair" * random.randrange(1, 40)])
    new = random.choice([None, None, "d"])
    if random.random() < 0.2:
        return lambda _: build_create(new, title)
    if random.random() < 0.1:
        return lambda _: PutStep("d", build_create("d"), set_values(title=title))
    values: ListingChange = random.choice(
        [{"title": title}, {"external_id": name}, {"deleted_at": 5}, {"deleted_at": None}]
    )
    return lambda ids: ChangeStep(ids[index], change_to(values))


def build_create(external_id: str | None, title: str = "Lamp") -> AddStep:
    return AddStep(msgspec.structs.replace(ADD.new, external_id=external_id, title=title), CREATED)


def change_to(values: ListingChange) -> Decide:
    """Return a decision that changes only what differs, as services do."""

    def decide(listing: Listing | None) -> ListingChange:
        return {name: value for name, value in values.items() if getattr(listing, name) != value}

    return decide


def outline(result: Listing | Problem | int) -> object:
    if isinstance(result, Listing):
        return result.title, result.external_id, result.version, result.deleted_at
    return (result.code, result.message.count("belongs to")) if isinstance(result, Problem) else "created"


@pytest.mark.parametrize("position", range(3))
def test_one_rejected_step_rolls_an_atomic_batch_back(listings: AccountListings, position: int) -> None:
    first = listings.add().listing_id
    steps: list[Step] = [ADD, append_to_title(first, "!")]
    steps.insert(position, REJECTED)
    results = listings.run(*steps, atomic=True)
    assert [isinstance(result, Problem) for result in results] == [index == position for index in range(3)]
    assert (listings.titles, listings.revision) == (["Lamp"], 1)


def test_an_atomic_batch_without_a_rejected_step_is_written(listings: AccountListings) -> None:
    assert [type(result) for result in listings.run(ADD, ADD, atomic=True)] == [int, int]
    assert listings.titles == ["Lamp", "Lamp"]


@pytest.mark.parametrize("atomic", [False, True])
def test_a_dry_run_returns_the_results_and_stores_nothing(listings: AccountListings, *, atomic: bool) -> None:
    first = listings.add().listing_id
    results = listings.run(
        ADD, append_to_title(first, "!"), REJECTED, atomic=atomic, dry_run=True, claim=build_idempotency_record()
    )
    assert [type(result) for result in results] == [Preview, Preview, Problem]
    assert [type(result.result) for result in results[:2]] == [int, Listing]
    assert (listings.titles, listings.revision) == (["Lamp"], 1)
    assert listings.add(build_idempotency_record())[:2] == (first + 1024, False)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_write_of_another_account_waits_for_few_batches(store: Store, run: Run, *, dry_run: bool) -> None:
    accounts = [run(store.add_account(name, f"{name}@example.com", None, 1_000)) for name in ("alice", "bob")]
    alice, bob = [AccountListings(store, run, account) for account in accounts]
    finished: list[str] = []

    async def write(listings: AccountListings, name: str, count: int, *, dry_run: bool) -> None:
        batch = Batch([ADD] * count, atomic=True, dry_run=dry_run, encode=str)
        await store.run_batch(*listings.partition, batch)
        finished.append(name)

    async def write_together() -> None:
        # A batch takes longer than the time for which a busy machine may stop bob's session.
        batches = [write(alice, "alice", 40, dry_run=dry_run) for _ in range(10)]
        await asyncio.gather(*batches, write(bob, "bob", 1, dry_run=False))

    run(write_together())  # opens the sessions
    finished.clear()
    run(write_together())
    assert finished.count("alice") == 10
    assert finished.index("bob") < 5


def test_a_batch_that_is_rolled_back_uses_no_ids(listings: AccountListings) -> None:
    first = listings.add().listing_id
    listings.run(*[ADD] * 5, dry_run=True)
    listings.run(*[ADD] * 5, REJECTED, atomic=True)
    assert listings.add().listing_id == first + 1024


def test_an_unexpected_exception_rolls_the_batch_back(listings: AccountListings) -> None:
    def decide(_: Listing | None) -> ListingChange:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        listings.run(ADD, ChangeStep(1025, decide), claim=build_idempotency_record())
    assert (listings.titles, listings.revision) == ([], 0)
    assert not listings.add(build_idempotency_record()).replayed


def test_a_dry_run_shows_the_values_before_and_after_each_step(listings: AccountListings) -> None:
    first = listings.add().listing_id
    numbered = msgspec.structs.replace(ADD.new, external_id="A")
    put = PutStep("A", ADD._replace(new=numbered), lambda _: {"price_cents": 5, "updated_at": CREATED})
    steps: list[Step] = [
        append_to_title(first, "a"),
        append_to_title(first, "b"),
        ChangeStep(first, lambda _: {}),
        put,
        put,
    ]
    previews = [(preview.before, preview.after) for preview in listings.run(*steps, dry_run=True)]
    assert previews == [
        ({"title": "Lamp"}, {"title": "Lampa"}),
        ({"title": "Lampa"}, {"title": "Lampab"}),
        ({}, {}),
        (None, msgspec.structs.asdict(numbered)),
        ({"price_cents": 0}, {"price_cents": 5}),
    ]


def test_previews_end_before_they_are_too_large(listings: AccountListings) -> None:
    large = ADD._replace(new=msgspec.structs.replace(ADD.new, content="x" * (MAX_PREVIEW_CHARACTERS // 2 - 100)))
    results = listings.run(large, large, large, ADD, dry_run=True)
    assert [type(result) for result in results] == [Preview, Preview, int, int]


def test_previews_may_have_exactly_the_maximum(listings: AccountListings) -> None:
    others = sum(len(value) for value in msgspec.structs.asdict(ADD.new).values() if isinstance(value, str))
    content = ADD.new.content + "x" * (MAX_PREVIEW_CHARACTERS - others)
    largest = ADD._replace(new=msgspec.structs.replace(ADD.new, content=content))
    assert [type(result) for result in listings.run(largest, ADD, dry_run=True)] == [Preview, int]


def test_a_batch_applies_only_to_a_state_that_it_accepts(listings: AccountListings) -> None:
    assert listings.run_now(0, ADD, ADD) == 1
    assert listings.run_now(1, append_to_title(1025, "!")) == 2
    for condition in (0, 1, 3):
        with pytest.raises(Problem, match="state 2"):
            listings.run_now(condition, ADD, append_to_title(1025, "?"))
    assert listings.titles == ["Lamp!", "Lamp"]


def test_a_batch_that_changes_nothing_leaves_the_state(listings: AccountListings) -> None:
    listings.run_now(0, ADD)
    assert listings.run_now(1, ChangeStep(1025, lambda _: {})) == 1
    assert listings.run_now(1, ADD, REJECTED) == 1
    assert listings.run_now(1, ADD, dry_run=True) == 1
    assert listings.titles == ["Lamp"]


def test_views_leave_the_state(listings: AccountListings, store: Store, run: Run) -> None:
    listings.run_now(0, ADD)
    run(store.record_views(1, {1025: [b"v" * 16]}))
    assert run(store.get_revisions(*listings.partition)) == (2, 1)
    assert listings.run_now(1, ADD) == 2


def test_a_repeated_batch_needs_no_state(listings: AccountListings) -> None:
    record = build_idempotency_record()
    with pytest.raises(Problem, match="state 0"):
        listings.run_now(7, ADD, claim=record)
    assert listings.run_now(0, ADD, claim=record) == 1
    assert listings.run_now(0, ADD, claim=record) == str(BatchOutcome([1025], 1))
    assert listings.titles == ["Lamp"]


@pytest.mark.parametrize("others", [0, 1], ids=["batches only", "and a single update"])
def test_one_of_many_concurrent_batches_for_one_state_is_written(
    listings: AccountListings, store: Store, run: Run, others: int
) -> None:
    """The batches and the update lock different rows first."""
    listings.run_now(0, ADD, ADD)
    update = append_to_title(2049, "s")
    kinds = ([ADD], [append_to_title(1025, "b")], [append_to_title(2049, "b"), append_to_title(1025, "b")])

    async def race(state: int) -> tuple[int, int]:
        """Return the number of batches that were written, and the edit revision after them."""
        writes = [store.change_listing(update.listing_id, update.decide, ACTOR) for _ in range(others)]
        batches = [listings.run_if(require(state), *kinds[(state + number) % 3]) for number in range(12)]
        outcomes = await asyncio.gather(*batches[:6], *writes, *batches[6:], return_exceptions=True)
        assert all(isinstance(one, int | Listing | Problem) for one in outcomes), outcomes
        revisions = await store.get_revisions(*listings.partition)
        return sum(isinstance(one, int) for one in outcomes), revisions.edit_revision

    state = 1
    for _ in range(5):
        before, (won, state) = state, run(race(state))
        assert won == state - before - others
        assert won <= 1
        assert won or others


def test_a_repeated_create_returns_the_original_listing(listings: AccountListings) -> None:
    first = listings.add(build_idempotency_record())
    assert not first.replayed
    assert listings.add(build_idempotency_record(moment=1_001)) == (first.listing_id, True)
    assert (listings.titles, listings.revision) == (["Lamp"], 1)


def test_a_repeated_batch_returns_the_recorded_results(listings: AccountListings) -> None:
    assert listings.run(ADD, REJECTED, claim=build_idempotency_record())[1] == REJECTED
    assert listings.run(ADD, REJECTED, claim=build_idempotency_record()) == "int,Problem"
    assert listings.titles == ["Lamp"]


@pytest.mark.parametrize("write", ["add", "run"])
def test_an_idempotency_key_of_another_request_is_rejected(listings: AccountListings, write: str) -> None:
    listings.add(build_idempotency_record())
    other = build_idempotency_record(digest=b"e" * 32)
    with pytest.raises(Problem, match="was sent with another request before") as raised:
        listings.add(other) if write == "add" else listings.run(ADD, claim=other)
    assert raised.value.code == "idempotency_key_reused"
    assert listings.titles == ["Lamp"]


def test_an_idempotency_key_is_valid_from_its_oldest_moment_on(listings: AccountListings) -> None:
    listings.add(build_idempotency_record(moment=1_000))
    assert listings.add(build_idempotency_record(moment=2_000, oldest=1_000)).replayed
    assert not listings.add(build_idempotency_record(digest=b"e" * 32, moment=2_000, oldest=1_001)).replayed
    assert listings.add(build_idempotency_record(digest=b"e" * 32, moment=2_001, oldest=2_000)).replayed
    assert listings.titles == ["Lamp", "Lamp"]


def test_a_purged_idempotency_key_can_be_used_again(listings: AccountListings, store: Store, run: Run) -> None:
    listings.add(build_idempotency_record("old", moment=1_000))
    listings.add(build_idempotency_record("new", moment=1_001))
    assert run(store.purge_idempotency_records(1_001, 10)) == 1
    assert [listings.add(build_idempotency_record(key)).replayed for key in ("old", "new")] == [False, True]


def test_a_purge_deletes_a_limited_number_of_idempotency_keys(
    listings: AccountListings, store: Store, run: Run
) -> None:
    for number in range(4):
        listings.add(build_idempotency_record(f"k{number}", moment=1_003 - number))
    assert [run(store.purge_idempotency_records(1_003, 2)) for _ in range(3)] == [2, 1, 0]
    records = [build_idempotency_record(f"k{number}", moment=1_003) for number in range(4)]
    assert [listings.add(record).replayed for record in records] == [True, False, False, False]


def test_a_batch_that_is_rolled_back_stores_no_idempotency_key(listings: AccountListings) -> None:
    listings.run(ADD, REJECTED, atomic=True, claim=build_idempotency_record())
    assert listings.run(ADD, atomic=True, claim=build_idempotency_record(digest=b"e" * 32)) == [1025]


def test_accounts_in_one_bucket_have_separate_keys_and_external_ids(
    listings: AccountListings, store: Store, run: Run
) -> None:
    async def add_accounts() -> list[Account | None]:
        writes = [store.add_account("Bob", f"bob{number}@example.com", None, 1_000) for number in range(1024)]
        halves = [await asyncio.gather(*writes[:512]), await asyncio.gather(*writes[512:])]
        return [*halves[0], *halves[1]]

    neighbour = next(
        one for one in run(add_accounts()) if one is not None and bucket_of(one.id) == listings.partition[0]
    )
    other = AccountListings(store, run, neighbour)
    assert [
        listings.add(build_idempotency_record()).replayed,
        other.add(build_idempotency_record(digest=b"e" * 32)).replayed,
    ] == [
        False,
        False,
    ]
    assert (len(listings.titles), len(other.titles)) == (1, 1)
    add = AddStep(msgspec.structs.replace(ADD.new, external_id="a"), CREATED)
    (theirs,) = other.run(add)
    _, own = listings.run(ChangeStep(theirs, lambda _: {}), PutStep("a", add, lambda _: {}))
    assert own in listings.ids


def test_one_of_many_concurrent_writes_with_the_same_key_is_stored(
    listings: AccountListings, store: Store, run: Run
) -> None:
    async def add_concurrently() -> list[Any]:
        writes = [
            store.add_listing(*listings.partition, AddStep(ADD.new, CREATED), build_idempotency_record())
            for _ in range(50)
        ]
        return list(await asyncio.gather(*writes))

    added = run(add_concurrently())
    assert sorted(one.replayed for one in added) == [False] + [True] * 49
    assert len({one.listing_id for one in added}) == 1
    assert listings.titles == ["Lamp"]
