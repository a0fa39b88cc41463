"""The limits of an account: guarantees of every store (`listings.store.store.Store`)."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from listings.domain.account_limits import AccountLimits, AccountSize
from listings.domain.errors import Problem
from listings.domain.imports import ImportBatch, ImportKey, ImportRow, Position
from listings.domain.listings import AddStep, Batch, ChangeStep, IdempotencyRecord, StepResult
from listings.domain.model import Account, ImportedListing, ListingCounts, NewListing, bucket_of
from listings.store.store import Store
from tests.contract.conftest import ENGINES, Run, open_store
from tests.contract.helpers import CREATED, FULL, MINIMAL, set_values

pytestmark = pytest.mark.decision("G39")
LONG = msgspec.structs.replace(FULL, external_id=None)
DELETED, RESTORED = set_values(is_active=False, deleted_at=5), set_values(deleted_at=None)


class Seller:
    def __init__(self, store: Store, run: Run) -> None:
        self.store, self.run = store, run
        self.account: Account = run(store.add_account("Alice", "alice@example.com", None, 1_000))
        self.partition = bucket_of(self.account.id), self.account.id

    def add(self, new: NewListing = MINIMAL) -> int:
        return int(self.run(self.store.add_listing(*self.partition, AddStep(new, CREATED))).listing_id)

    def change(self, listing_id: int, decide: Any) -> None:
        self.run(self.store.change_listing(listing_id, decide))

    def run_batch(self, *steps: AddStep | ChangeStep, atomic: bool = False) -> list[str]:
        batch = Batch(steps, atomic=atomic, dry_run=False, encode=str)
        results: list[StepResult] = self.run(self.store.run_batch(*self.partition, batch)).results
        return [result.code if isinstance(result, Problem) else "done" for result in results]

    def import_rows(self, *rows: ImportRow) -> list[str]:
        key = ImportKey(*self.partition, b"d" * 32, "csv", new_ids=False)
        self.run(self.store.begin_import(key, None, 1_000, 0))
        outcomes = self.run(self.store.import_listings(key, ImportBatch(Position(), Position(1, 1), rows)))
        return [outcome.code if isinstance(outcome, Problem) else outcome for outcome in outcomes]

    @property
    def counts(self) -> ListingCounts:
        counts: ListingCounts = self.run(self.store.count_listings(*self.partition))
        return counts

    @property
    def states(self) -> tuple[int, int, int]:
        """The numbers of active, inactive and deleted listings."""
        return self.counts.active, self.counts.inactive, self.counts.deleted

    @property
    def text(self) -> int:
        """The bytes of text of the listings that are not deleted."""
        listings = self.run(self.store.page_listings(*self.partition, 0, 1_000))
        texts = [(each.title, each.content, each.images) for each in listings if each.deleted_at is None]
        return sum(len(text.encode()) for row in texts for text in row)


def build_row(listing: ImportedListing) -> ImportRow:
    return ImportRow(None, lambda _: listing)


@pytest.fixture(params=ENGINES)
def make_seller(request: pytest.FixtureRequest, tmp_path: Path, run: Run) -> Iterator[Callable[..., Seller]]:
    with ExitStack() as stack:
        yield lambda **limits: Seller(
            stack.enter_context(open_store(request, request.param, tmp_path, run, AccountLimits(**limits))), run
        )


def test_a_create_beyond_the_number_is_rejected(make_seller: Callable[..., Seller]) -> None:
    seller = make_seller(listings=2)
    first, _ = seller.add(), seller.add()
    revision = seller.run(seller.store.get_revisions(*seller.partition)).revision
    with pytest.raises(Problem, match="An account can have at most 2 listings: delete some first") as raised:
        seller.add()
    assert raised.value.code == "account_full"
    assert seller.run(seller.store.get_revisions(*seller.partition)).revision == revision
    seller.change(first, DELETED)
    seller.add()
    assert seller.states == (2, 0, 1)


@pytest.mark.decision("G62")
def test_concurrent_creates_do_not_pass_their_own_limit_together(make_seller: Callable[..., Seller]) -> None:
    seller = make_seller()

    def require_room(size: AccountSize) -> None:
        if size.listings >= 20:
            raise Problem("plan_expired", "That is enough")

    async def create(number: int) -> str:
        record = IdempotencyRecord(str(number), b"d" * 32, 1_000, 0) if number % 2 else None
        try:
            await seller.store.add_listing(*seller.partition, AddStep(MINIMAL, CREATED, require_room), record)
        except Problem as problem:
            return problem.code
        return "done"

    async def create_concurrently() -> list[str]:
        return sorted(await asyncio.gather(*map(create, range(60))))

    first = seller.add()
    assert seller.run(create_concurrently()) == ["done"] * 19 + ["plan_expired"] * 41
    seller.change(first, DELETED)
    seller.run(create_concurrently())
    assert seller.states == (20, 0, 1)


def test_a_restore_beyond_the_number_is_rejected(make_seller: Callable[..., Seller]) -> None:
    seller = make_seller(listings=1)
    deleted = seller.add()
    seller.change(deleted, DELETED)
    other = seller.add()
    with pytest.raises(Problem, match="at most 1 listings"):
        seller.change(deleted, RESTORED)
    seller.change(other, DELETED)
    seller.change(deleted, RESTORED)


def test_only_the_steps_beyond_the_number_fail(make_seller: Callable[..., Seller]) -> None:
    seller = make_seller(listings=2)
    add = AddStep(MINIMAL, CREATED)
    assert seller.run_batch(add, add, add, atomic=True) == ["done", "done", "account_full"]
    assert seller.states == (0, 0, 0)
    assert seller.run_batch(add, add, add) == ["done", "done", "account_full"]
    (first, _) = seller.run(seller.store.page_listings(*seller.partition, 0, 10))
    assert seller.run_batch(ChangeStep(first.id, DELETED), add, add) == ["done", "done", "account_full"]


def test_only_the_rows_beyond_the_number_are_rejected(make_seller: Callable[..., Seller]) -> None:
    seller = make_seller(listings=2)
    listing_id = seller.add()
    new, deleted = (ImportedListing(MINIMAL, 0, CREATED, CREATED, moment) for moment in (None, 5))
    rows = [build_row(it) for it in (new, deleted, new)]
    change = ImportRow(listing_id, set_values(title="longer"))
    assert seller.import_rows(*rows, change) == ["created", "created", "account_full", "updated"]
    assert seller.states == (2, 0, 1)


def test_text_beyond_the_bytes_is_rejected(make_seller: Callable[..., Seller]) -> None:
    seller = make_seller(text_bytes=20)
    listing_id = seller.add(NewListing(title="é" * 5, content="c"))  # 13 bytes with the images
    with pytest.raises(Problem, match="at most 20 bytes of text, and would have 21: shorten or delete some first"):
        seller.add(NewListing(title="12345", content="c"))
    seller.add(NewListing(title="1234", content="c"))
    with pytest.raises(Problem, match="would have 21"):
        seller.change(listing_id, set_values(content="cc"))
    seller.change(listing_id, set_values(title="e" * 9, price_cents=5))


def test_an_account_beyond_the_bytes_can_lengthen_a_text(make_seller: Callable[..., Seller]) -> None:
    larger = make_seller()
    listing_id = larger.add(LONG)
    larger.store.engine.limits = AccountLimits(listings=0, text_bytes=10)
    larger.change(listing_id, set_values(title=f"{LONG.title} with more"))
    assert larger.run_batch(AddStep(MINIMAL, CREATED)) == ["account_full"]
    larger.change(listing_id, DELETED)


def test_the_size_is_that_of_the_stored_text(make_seller: Callable[..., Seller]) -> None:
    seller = make_seller()
    first, second, third = (seller.add(new) for new in (LONG, MINIMAL, msgspec.structs.replace(LONG, title="Ü")))
    seller.change(first, set_values(title="ü", price_cents=1))
    seller.change(second, DELETED)
    seller.run_batch(AddStep(LONG, CREATED), ChangeStep(third, set_values(content="long" * 1_000, images="[]")))
    seller.change(second, RESTORED)
    row = build_row(ImportedListing(LONG, 0, CREATED, CREATED, None))
    seller.import_rows(row, ImportRow(second, set_values(content="", title="t")))
    seller.run(seller.store.record_views(1, {first: [b"v" * 16]}))
    assert seller.counts.text_bytes == seller.text > 4_000
