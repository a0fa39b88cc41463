"""External ids: guarantees of every store (`listings.store.store.Store`)."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from listings.domain.errors import Problem
from listings.domain.history import ActivityCursor, Actor
from listings.domain.imports import ImportBatch, ImportKey, ImportRow, Position
from listings.domain.listings import AddStep, Batch, ChangeStep, IdempotencyRecord, LargeListError, PutStep, Step
from listings.domain.model import Account, ImportedListing, Listing, ListingChange, ListingQuery, Status, bucket_of
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.helpers import CREATED, MINIMAL, find_all, set_values

pytestmark = pytest.mark.decision("G43")
WRITERS = 8
DELETED: dict[str, Any] = {"is_active": False, "deleted_at": 5}
RESTORED: dict[str, Any] = {"deleted_at": None}


class Shop:
    def __init__(self, store: Store, account: Account) -> None:
        self.store = store
        self.partition = bucket_of(account.id), account.id

    async def add(self, external_id: str | None, claim: IdempotencyRecord | None = None) -> int:
        new = replace(MINIMAL, external_id=external_id)
        return (await self.store.add_listing(*self.partition, AddStep(new, CREATED), claim, Actor(1, 1_000))).listing_id

    async def change(self, listing_id: int, **values: Any) -> Listing:
        return await self.store.change_listing(listing_id, set_values(**values))

    async def run_batch(self, *steps: Step, atomic: bool = False) -> Sequence[Any]:
        batch = Batch(steps, atomic=atomic, dry_run=False, encode=str)
        outcome = await self.store.run_batch(*self.partition, batch, None, Actor(1, 1_000))
        return [outcome] if isinstance(outcome, str) else outcome.results

    async def import_rows(self, *rows: ImportRow, digest: bytes = b"d" * 32) -> list[str]:
        key = ImportKey(*self.partition, digest, "csv", new_ids=False)
        await self.store.begin_import(key, None, 1_000, 0)
        outcomes = await self.store.import_listings(key, ImportBatch(Position(), Position(1, 1), rows))
        assert outcomes is not None
        return [outcome.message if isinstance(outcome, Problem) else outcome for outcome in outcomes]

    async def find(self, *external_ids: str, status: Status = "all", **filters: Any) -> list[int]:
        query = ListingQuery(external_ids=external_ids, status=status, descending=False, **filters)
        found = await find_all(self.store, self.partition[1], query)
        with suppress(LargeListError):  # on a busy machine
            counted = await self.store.find_listings(*self.partition, replace(query, count=True))
            assert counted.listings == found
            unpaged = replace(query, limit=None, after=None)
            assert counted.total == len(await find_all(self.store, self.partition[1], unpaged))
        return [listing.id for listing in found]

    async def get_last_detail(self) -> str:
        latest = ActivityCursor(2**60, 2**60, 0)
        return (await self.store.page_events(*self.partition, latest, 1))[0].detail

    async def holders(self) -> dict[str, int]:
        listings = await find_all(self.store, self.partition[1], ListingQuery(status="all"))
        held = [(each.external_id, each.id) for each in listings if each.external_id and each.deleted_at is None]
        assert len(dict(held)) == len(held)
        return dict(held)


@pytest.fixture
def shop(store: Store, account: Account) -> Shop:
    return Shop(store, account)


def put(external_id: str, **changes: Any) -> PutStep:
    new = replace(MINIMAL, external_id=external_id, **changes)

    def decide(listing: Listing | None) -> ListingChange:
        return {name: value for name, value in changes.items() if getattr(listing, name) != value}

    return PutStep(external_id, AddStep(new, CREATED), decide)


def build_row(external_id: str | None = None, listing_id: int | None = None, **values: Any) -> ImportRow:
    past = {"view_count": 0, "created_at": CREATED, "updated_at": CREATED, "deleted_at": values.pop("deleted_at", None)}

    def decide(listing: Listing | None) -> ImportedListing | ListingChange:
        given = values if external_id is None else {"external_id": external_id, **values}
        if listing is None:
            return ImportedListing(replace(MINIMAL, **given), **past)
        return {name: value for name, value in given.items() if getattr(listing, name) != value}

    return ImportRow(listing_id, decide, external_id if past["deleted_at"] is None else None)


def message(external_id: str, holder: int) -> str:
    return f'external_id "{external_id}" belongs to listing {holder}: use another one, or change listing {holder} first'


async def get_error(write: Any) -> str:
    """Return the message of the external_id_taken that a write raises."""
    with pytest.raises(Problem) as caught:
        await write
    assert caught.value.code == "external_id_taken"
    return caught.value.message


def test_an_external_id_is_stored_and_can_be_cleared(shop: Shop, run: Run) -> None:
    async def check() -> None:
        text = "Ünï/17 \u2028🚲' " + "x" * 240
        listing_id = await shop.add(text)
        assert await shop.find(text) == [listing_id]
        found = await shop.store.find_by_external_id(*shop.partition, text)
        assert found is not None
        assert (found.id, found.external_id) == (listing_id, text)
        assert (await shop.change(listing_id, external_id=None)).external_id is None
        assert await shop.find(text) == []
        assert await shop.add(text) > listing_id

    run(check())


def test_a_second_listing_with_an_external_id_is_not_written(shop: Shop, run: Run) -> None:
    async def check() -> None:
        first, other = await shop.add("A"), await shop.add(None)
        revision = (await shop.store.get_revisions(*shop.partition)).revision
        claim = IdempotencyRecord("k", b"d" * 32, 1_000, 900)
        expected = message("A", first)
        assert await get_error(shop.add("A")) == expected
        assert await get_error(shop.add("A", claim)) == expected
        assert await get_error(shop.change(other, title="new", external_id="A")) == expected
        row, again = build_row(listing_id=other, external_id="A"), build_row("A", title="updated")
        assert await shop.import_rows(row) == [expected]
        assert (await shop.store.get_revisions(*shop.partition)).revision == revision
        assert await shop.import_rows(again, digest=b"e" * 32) == ["updated"]
        last = await shop.add("B")
        assert last == other + 1024
        counts = await shop.store.count_listings(*shop.partition)
        assert (counts.active, counts.deleted) == (3, 0)

    run(check())


def test_external_ids_differ_by_every_character_and_by_account(shop: Shop, store: Store, run: Run) -> None:
    async def check() -> None:
        ids = [await shop.add(text) for text in ("A", "a", "A ", "Á", "A\u0301")]
        assert await shop.find("A", "a", "A ", "Á", "A\u0301") == ids
        bob = await store.add_account("Bob", "bob@example.com", None, 1_000)
        assert bob is not None
        assert await Shop(store, bob).add("A") not in ids
        assert await shop.find("A") == ids[:1]

    run(check())


def test_deleting_frees_an_external_id_and_restoring_needs_it(shop: Shop, run: Run) -> None:
    async def check() -> None:
        first = await shop.add("A")
        await shop.change(first, **DELETED)
        second = await shop.add("A")
        assert await get_error(shop.change(first, **RESTORED)) == message("A", second)
        assert (await shop.run_batch(ChangeStep(first, set_values(**RESTORED))))[0].message == message("A", second)
        row = ImportRow(first, lambda _: {"deleted_at": None})
        assert await shop.import_rows(row) == [message("A", second)]
        assert [await shop.find("A", status=status) for status in ("active", "inactive", "deleted", "all")] == [
            *([second], [], [first]),
            [first, second],
        ]
        await shop.change(second, external_id="B", is_active=False)
        assert (await shop.change(first, **RESTORED)).external_id == "A"
        assert await shop.find("A", "B", status="inactive") == [first, second]

    run(check())


def test_the_filter_combines_with_the_others(shop: Shop, run: Run) -> None:
    async def check() -> None:
        ids = [await shop.add(f"sku-{number}") for number in range(5)]
        await shop.change(ids[1], type="job", title="Rare bike")
        await shop.change(ids[2], type="job")
        every = [f"sku-{number}" for number in (4, 3, 2, 1, 1, 9)]
        assert await shop.find(*every) == ids[1:]
        assert await shop.find(*every, type="job") == ids[1:3]
        assert await shop.find(*every, words=("bike",)) == ids[1:2]
        assert await shop.find(*every, limit=2, after=(ids[1], ids[1])) == ids[2:4]
        assert await shop.find(*every, sort="title", limit=1) == ids[1:2]
        assert await shop.find(*every, ids=tuple(ids[:3])) == ids[1:3]

    run(check())


def test_external_ids_are_found_in_a_large_account(shop: Shop, store: Store, run: Run) -> None:
    async def check() -> None:
        rows = [build_row(f"sku-{number}", title=f"Bike {number % 7}") for number in range(1_500)]
        assert Counter(await shop.import_rows(*rows)) == {"created": 1_500}
        while (await store.index_accounts(1_000)).has_more:
            pass
        extra = [await shop.add("sku-x"), await shop.add(None)]
        assert await shop.find("sku-x") == extra[:1]
        found = await shop.find("sku-3", "sku-700", "sku-1499")
        assert found == sorted(found)
        assert len(found) == 3
        assert await shop.find("sku-3", "sku-4", words=("3",)) == found[:1]
        assert await get_error(shop.add("sku-3")) == message("sku-3", found[0])
        assert Counter(await shop.import_rows(*rows, digest=b"e" * 32)) == {"unchanged": 1_500}

    run(check())


def test_a_put_creates_once_and_then_updates(shop: Shop, run: Run) -> None:
    async def check() -> None:
        created, updated, unchanged = await shop.run_batch(put("A", price_cents=1), put("A", price_cents=2), put("A"))
        assert (updated.id, updated.version, updated.price_cents) == (created, 2, 2)
        assert (unchanged.id, unchanged.version) == (created, 2)
        assert await shop.get_last_detail() == f'{{"created":[{created}],"updated":[{created}]}}'

    run(check())


def test_a_batch_sees_which_external_ids_it_took_and_freed(shop: Shop, run: Run) -> None:
    async def check() -> None:
        first, second = await shop.add("A"), await shop.add("B")
        results = await shop.run_batch(
            ChangeStep(second, set_values(external_id="A")),
            ChangeStep(first, set_values(external_id="C")),
            ChangeStep(second, set_values(external_id="A")),
            put("A", price_cents=7),
            put("B", price_cents=8),
            AddStep(replace(MINIMAL, external_id="B"), CREATED),
            ChangeStep(first, set_values(**DELETED)),
            put("C", price_cents=9),
        )
        assert results[0].message == message("A", first)
        assert [result.id for result in results[1:4]] == [first, second, second]
        assert results[5].message == message("B", results[4])
        assert await shop.holders() == {"A": second, "B": results[4], "C": results[7]}
        assert await shop.get_last_detail() == (
            f'{{"created":[{results[4]},{results[7]}],"updated":[{first},{second},{second}],"deleted":[{first}]}}'
        )
        undone = await shop.run_batch(put("D"), AddStep(replace(MINIMAL, external_id="A"), CREATED), atomic=True)
        assert undone[1].message == message("A", second)
        assert "D" not in await shop.holders()

    run(check())


def test_a_put_that_cannot_create_is_rejected_only_without_a_listing(shop: Shop, run: Run) -> None:
    async def check() -> None:
        step = put("A", price_cents=5)._replace(create=Problem("invalid_request", "no"))
        assert (await shop.run_batch(step))[0].message == "no"
        listing_id = await shop.add("A")
        assert (await shop.run_batch(step))[0].id == listing_id

    run(check())


def test_an_import_finds_listings_by_id_and_else_by_external_id(shop: Shop, run: Run) -> None:
    async def check() -> None:
        first, second = await shop.add("A"), await shop.add("B")
        outcomes = await shop.import_rows(
            build_row("A", title="by external id"),
            build_row("A", second),
            build_row("C", second, title="the id wins"),
            build_row("B", title="new"),
            build_row("B", title="new, again"),
            build_row("A", deleted_at=5, is_active=False),
            build_row("A"),
        )
        taken = message("A", first)
        assert outcomes == ["updated", taken, "updated", "created", "updated", "created", "unchanged"]
        holders = await shop.holders()
        assert (holders["A"], holders["C"]) == (first, second)
        stored = {each: await shop.store.get_listing(each) for each in holders.values()}
        assert {listing.title for listing in stored.values() if listing} == {
            *("by external id", "the id wins", "new, again")
        }

    run(check())


def test_one_of_eight_simultaneous_writers_gets_an_external_id(shop: Shop, run: Run) -> None:
    """Creates, updates, restores, puts and imports compete."""

    async def attempt(kind: int, external_id: str, ids: Sequence[int]) -> Any:
        try:
            if kind < 3:
                return await shop.add(external_id)
            if kind < 5:
                return (await shop.change(ids[kind - 3], external_id=external_id)).id
            if kind == 5:
                return (await shop.change(ids[2], **RESTORED)).id
            result = (await shop.run_batch(AddStep(replace(MINIMAL, external_id=external_id), CREATED)))[0]
            if isinstance(result, Problem):
                raise result
        except Problem as problem:
            return problem.message
        return result

    async def check() -> None:
        for number in range(5):
            external_id = f"sku-{number}"
            ids = [await shop.add(external_id if spare == 2 and not number % 2 else None) for spare in range(3)]
            await shop.change(ids[2], external_id=external_id, **DELETED)
            kinds = random.Random(number).sample(range(WRITERS), WRITERS)
            results = await asyncio.gather(*(attempt(kind, external_id, ids) for kind in kinds))
            winners = [result for result in results if isinstance(result, int)]
            assert len(winners) == 1
            assert set(results) == {winners[0], message(external_id, winners[0])}
            assert (await shop.holders())[external_id] == winners[0]

    run(check())


def test_simultaneous_puts_and_imports_make_one_listing(shop: Shop, run: Run) -> None:
    async def check() -> None:
        external_ids = [f"sku-{number}" for number in range(4)]
        batches = [random.Random(seed).sample(external_ids, 4) for seed in range(WRITERS)]
        results = await asyncio.gather(
            *(shop.run_batch(*(put(each, price_cents=price) for each in batch)) for price, batch in enumerate(batches)),
            shop.import_rows(*(build_row(each, region="Otago") for each in external_ids)),
        )
        holders = await shop.holders()
        assert list(holders) == sorted(external_ids, key=list(holders).index)
        counts = await shop.store.count_listings(*shop.partition)
        assert (len(holders), counts.active, counts.deleted) == (4, 4, 0)
        outcomes = Counter(type(result).__name__ for batch in results[:-1] for result in batch)
        outcomes.update(results[-1])
        assert outcomes["int"] + outcomes["created"] == 4
        assert not outcomes["Problem"]

    run(check())


def test_a_put_and_an_update_to_its_external_id_do_not_both_win(shop: Shop, run: Run) -> None:
    async def check() -> None:
        ids = [await shop.add(None) for _ in range(WRITERS)]
        edits = [shop.run_batch(ChangeStep(each, set_values(external_id="A"))) for each in ids]
        puts = [shop.run_batch(put("A", price_cents=number)) for number in range(WRITERS)]
        both = await asyncio.gather(*(write for pair in zip(puts, edits, strict=True) for write in pair))
        assert not [result for (result,) in both[::2] if isinstance(result, Problem)]
        assert sum(not isinstance(result, Problem) for (result,) in both[1::2]) <= 1
        assert len(await shop.holders()) == 1

    run(check())


def test_a_listing_without_external_id_is_not_in_a_search_for_them(shop: Shop, run: Run) -> None:
    async def check() -> None:
        await shop.add(None)
        assert await shop.find("") == []
        assert await shop.find() == []

    run(check())
