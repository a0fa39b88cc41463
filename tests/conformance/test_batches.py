"""Batches, and writes under a claim: what every store guarantees of them (`listings.contract.store.Store`)."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from listings.contract.listings import AddStep, Batch, ChangeStep, IdempotencyRecord, Step, StepResult
from listings.contract.store import Store
from listings.domain.errors import Problem
from listings.domain.model import Account, Listing, ListingChange, ListingQuery, NewListing, bucket_of
from tests.conformance.conftest import Run

CREATED = "2026-11-21 10:00:00"
ADD = AddStep(NewListing(title="Lamp", content="Brass."), CREATED)
REFUSED = Problem("invalid_request", "no")


@pytest.fixture
def account(store: Store, run: Run) -> Account:
    """alice's."""
    account = run(store.add_account("Alice", "alice@example.com", 2_000_000_000, 1_000))
    assert isinstance(account, Account)
    return account


class Shelf:
    """An account's listings in a store."""

    def __init__(self, store: Store, run: Run, account: Account) -> None:
        self._store = store
        self._run = run
        self.place = bucket_of(account.id), account.id

    def do(
        self, *steps: Step, atomic: bool = False, dry_run: bool = False, claim: IdempotencyRecord | None = None
    ) -> Any:
        batch = Batch(steps, atomic=atomic, dry_run=dry_run, record=recorded)
        return self._run(self._store.run_batch(*self.place, batch, claim))

    def add(self, claim: IdempotencyRecord | None = None) -> Any:
        return self._run(self._store.add_listing(*self.place, ADD.new, CREATED, claim))

    @property
    def titles(self) -> list[str]:
        found = self._run(self._store.find_listings(*self.place, ListingQuery(status="all", descending=False)))
        return [listing.title for listing in found]

    @property
    def revision(self) -> int:
        return int(self._run(self._store.get_revision(*self.place)))


@pytest.fixture
def shelf(store: Store, run: Run, account: Account) -> Shelf:
    return Shelf(store, run, account)


def recorded(results: Sequence[StepResult]) -> str:
    return ",".join(type(result).__name__ for result in results)


def renaming(listing_id: int, title: str) -> ChangeStep:
    """Adds to the title of a listing that must be there."""

    def decide(listing: Listing | None) -> ListingChange:
        if listing is None:
            raise Problem("listing_not_found", "Listing not found")
        return {"title": listing.title + title}

    return ChangeStep(listing_id, decide)


def claim(key: str = "k", digest: bytes = b"d" * 32, moment: int = 1_000, oldest: int = 900) -> IdempotencyRecord:
    return IdempotencyRecord(key, digest, moment, oldest)


# Batches


def test_each_step_comes_to_what_it_would_alone(shelf: Shelf) -> None:
    first = shelf.add().listing_id
    made, changed, missing, refused = shelf.do(ADD, renaming(first, "!"), renaming(first + 10**6, "?"), REFUSED)
    assert made == first + 1024
    assert (changed.id, changed.title, changed.version) == (first, "Lamp!", 2)
    assert (missing.code, refused) == ("listing_not_found", REFUSED)
    assert shelf.titles == ["Lamp!", "Lamp"]


def test_a_step_sees_what_the_steps_before_it_wrote(shelf: Shelf) -> None:
    first = shelf.add().listing_id
    shelf.do(renaming(first, "a"), ADD, renaming(first, "b"), renaming(first + 1024, "c"))
    assert shelf.titles == ["Lampab", "Lampc"]


def test_each_edit_raises_the_revision_and_a_refusal_does_not(shelf: Shelf) -> None:
    shelf.do(ADD, REFUSED, ADD, ChangeStep(2049, lambda _: {}))
    assert shelf.revision == 2


@pytest.mark.parametrize("place", range(3))
def test_one_refusal_undoes_an_atomic_batch_and_is_told_with_the_others(shelf: Shelf, place: int) -> None:
    first = shelf.add().listing_id
    steps: list[Step] = [ADD, renaming(first, "!")]
    steps.insert(place, REFUSED)
    results = shelf.do(*steps, atomic=True)
    assert [isinstance(result, Problem) for result in results] == [at == place for at in range(3)]
    assert (shelf.titles, shelf.revision) == (["Lamp"], 1)


def test_an_atomic_batch_without_a_refusal_is_done(shelf: Shelf) -> None:
    assert recorded(shelf.do(ADD, ADD, atomic=True)) == "int,int"
    assert shelf.titles == ["Lamp", "Lamp"]


@pytest.mark.parametrize("atomic", [False, True])
def test_a_rehearsal_tells_what_would_be_and_stores_nothing(shelf: Shelf, *, atomic: bool) -> None:
    first = shelf.add().listing_id
    results = shelf.do(ADD, renaming(first, "!"), REFUSED, atomic=atomic, dry_run=True, claim=claim())
    assert recorded(results) == "int,Listing,Problem"
    assert (shelf.titles, shelf.revision) == (["Lamp"], 1)
    assert shelf.add(claim())[:2] == (first + 1024, False)


def test_what_is_undone_uses_up_no_id(shelf: Shelf) -> None:
    first = shelf.add().listing_id
    shelf.do(*[ADD] * 5, dry_run=True)
    shelf.do(*[ADD] * 5, REFUSED, atomic=True)
    assert shelf.add().listing_id == first + 1024


def test_an_exception_of_another_kind_undoes_the_batch(shelf: Shelf) -> None:
    def decide(_: Listing | None) -> ListingChange:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        shelf.do(ADD, ChangeStep(1025, decide), claim=claim())
    assert (shelf.titles, shelf.revision) == ([], 0)
    assert not shelf.add(claim()).replayed


# Claims


def test_under_a_claim_that_was_made_before_the_listing_of_then_is_told(shelf: Shelf) -> None:
    first = shelf.add(claim())
    assert not first.replayed
    assert shelf.add(claim(moment=1_001)) == (first.listing_id, True, None)
    assert (shelf.titles, shelf.revision) == (["Lamp"], 1)


def test_under_a_claim_that_was_made_before_what_was_recorded_is_told(shelf: Shelf) -> None:
    assert recorded(shelf.do(ADD, REFUSED, claim=claim())) == "int,Problem"
    assert shelf.do(ADD, REFUSED, claim=claim()) == "int,Problem"
    assert shelf.titles == ["Lamp"]


@pytest.mark.parametrize("again", ["add", "do"])
def test_a_claim_for_another_request_is_refused(shelf: Shelf, again: str) -> None:
    shelf.add(claim())
    other = claim(digest=b"e" * 32)
    with pytest.raises(Problem, match="was sent with another request before") as refusal:
        shelf.add(other) if again == "add" else shelf.do(ADD, claim=other)
    assert refusal.value.code == "idempotency_key_reused"
    assert shelf.titles == ["Lamp"]


def test_a_claim_counts_from_its_oldest_moment_on(shelf: Shelf) -> None:
    shelf.add(claim(moment=1_000))
    assert shelf.add(claim(moment=2_000, oldest=1_000)).replayed
    assert not shelf.add(claim(digest=b"e" * 32, moment=2_000, oldest=1_001)).replayed
    assert shelf.add(claim(digest=b"e" * 32, moment=2_001, oldest=2_000)).replayed
    assert shelf.titles == ["Lamp", "Lamp"]


def test_forgotten_claims_are_free(shelf: Shelf, store: Store, run: Run) -> None:
    shelf.add(claim("old", moment=1_000))
    shelf.add(claim("new", moment=1_001))
    run(store.purge_idempotency_records(1_001))
    assert [shelf.add(claim(key)).replayed for key in ("old", "new")] == [False, True]


def test_an_atomic_batch_that_is_undone_keeps_no_claim(shelf: Shelf) -> None:
    shelf.do(ADD, REFUSED, atomic=True, claim=claim())
    assert recorded(shelf.do(ADD, atomic=True, claim=claim(digest=b"e" * 32))) == "int"


def test_accounts_of_one_bucket_make_claims_of_their_own(shelf: Shelf, store: Store, run: Run) -> None:
    async def more() -> list[Account | None]:
        adding = [store.add_account("Bob", f"bob{number}@example.com", None, 1_000) for number in range(1024)]
        halves = [await asyncio.gather(*adding[:512]), await asyncio.gather(*adding[512:])]
        return [*halves[0], *halves[1]]

    neighbour = next(one for one in run(more()) if one is not None and bucket_of(one.id) == shelf.place[0])
    other = Shelf(store, run, neighbour)
    assert [shelf.add(claim()).replayed, other.add(claim(digest=b"e" * 32)).replayed] == [False, False]
    assert (len(shelf.titles), len(other.titles)) == (1, 1)


def test_of_many_at_once_under_one_claim_one_is_done(shelf: Shelf, store: Store, run: Run) -> None:
    async def crowd() -> list[Any]:
        adding = [store.add_listing(*shelf.place, ADD.new, CREATED, claim()) for _ in range(50)]
        return list(await asyncio.gather(*adding))

    added = run(crowd())
    assert sorted(one.replayed for one in added) == [False] + [True] * 49
    assert len({one.listing_id for one in added}) == 1
    assert shelf.titles == ["Lamp"]
