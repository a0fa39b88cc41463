"""Listings that an operator has taken down: guarantees of every store."""

import json

import msgspec

from listings.domain.audience import Takedown
from listings.domain.history import OPERATOR, Actor
from listings.domain.mail import NewMail
from listings.domain.model import Account, bucket_of
from listings.domain.pictures import build_path
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.helpers import CREATED, MINIMAL, add, erase, set_values
from tests.contract.test_market import list_changes, list_newest, stamp_all
from tests.contract.test_pictures import upload

MAIL = NewMail("m", "listing_taken_down", "alice@example.com", 1, "{}", 1_000)
BY_OPERATOR = Actor(OPERATOR, 1_000)


def take_down(store: Store, run: Run, account: Account, listing_id: int, *pictures: str) -> Takedown:
    takedown = Takedown(listing_id, account.id, "A copy", "ops", 1_000)
    assert run(store.take_down(takedown, pictures, BY_OPERATOR, None))
    return takedown


def test_a_takedown_is_stored_once_and_its_mail_queued(store: Store, run: Run, account: Account) -> None:
    takedown = Takedown(add(run, store, account), account.id, "A copy", "ops", 1_000)
    assert run(store.take_down(takedown, [], BY_OPERATOR, MAIL))
    assert not run(store.take_down(takedown._replace(reason="Other"), [], BY_OPERATOR, MAIL))
    assert run(store.get_takedown(takedown.listing_id)) == takedown
    assert run(store.get_public_account(account.id, takedown.listing_id)) is None
    assert run(store.get_public_account(account.id, takedown.listing_id + 1024)) == account
    assert run(store.list_takedowns(10)) == run(store.list_takedowns_of(account.id)) == [takedown]
    assert run(store.list_takedowns_of(account.id + 1)) == []
    queued = run(store.claim_mail(1_000, 1_060))
    assert queued is not None
    assert queued.mail == MAIL


def test_a_takedown_is_lifted_once(store: Store, run: Run, account: Account) -> None:
    takedown = take_down(store, run, account, add(run, store, account))
    assert run(store.lift_takedown(takedown, {}, BY_OPERATOR, None))
    assert not run(store.lift_takedown(takedown, {}, BY_OPERATOR, None))
    assert run(store.get_takedown(takedown.listing_id)) is None


def test_a_listing_that_is_taken_down_leaves_the_market(store: Store, run: Run, account: Account) -> None:
    listing_id, other = add(run, store, account), add(run, store, account)
    stamp_all(store, run)
    takedown = take_down(store, run, account, listing_id)
    assert list_newest(store, run) == [other]
    assert run(store.get_market_entries([listing_id])) == []
    assert [entry.updated_at for entry in run(store.page_sitemap(0, 10))] == ["", CREATED]
    assert stamp_all(store, run) == 1
    assert list_changes(store, run)[-1] == (listing_id, False)
    assert run(store.count_seller_listings(account.id, 10)) == 1
    assert run(store.lift_takedown(takedown, {}, BY_OPERATOR, None))
    assert stamp_all(store, run) == 1
    assert list_newest(store, run) == [other, listing_id]
    assert run(store.count_seller_listings(account.id, 10)) == 2


def test_a_listing_that_was_never_shown_stays_hidden(store: Store, run: Run, account: Account) -> None:
    take_down(store, run, account, add(run, store, account))
    assert stamp_all(store, run) == 1
    assert list_changes(store, run) == []


def test_a_takedown_changes_nothing_for_the_owner(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account)

    def read() -> object:
        listing = run(store.get_listing_and_revision(listing_id))
        return listing, run(store.get_revisions(bucket_of(account.id), account.id))

    before = read()
    take_down(store, run, account, listing_id)
    stamp_all(store, run)
    assert read() == before


def test_no_write_of_the_owner_lifts_a_takedown(store: Store, run: Run, account: Account) -> None:
    listing_id = add(run, store, account)
    takedown = take_down(store, run, account, listing_id)
    deleted, restored = {"deleted_at": 1_500}, {"deleted_at": None, "is_active": True}
    for change in ({"title": "New"}, {"is_active": False}, {"is_active": True}, deleted, restored):
        run(store.change_listing(listing_id, set_values(**change), Actor(1, 1_500)))
        stamp_all(store, run)
    assert list_newest(store, run) == []
    assert run(store.get_takedown(listing_id)) == takedown


def test_the_pictures_of_a_takedown_are_hidden(store: Store, run: Run, account: Account) -> None:
    first, second, third = (upload(store, run, account, number).name for number in (1, 2, 3))
    images = json.dumps([build_path(first), build_path(third)])
    listing_id = add(run, store, account, msgspec.structs.replace(MINIMAL, images=images))
    takedown = take_down(store, run, account, listing_id, first)
    assert [run(store.is_picture_visible(name)) for name in (first, second, third)] == [False, True, True]
    assert run(store.get_picture(first)) is not None
    assert run(store.lift_takedown(takedown, {}, BY_OPERATOR, None))
    assert run(store.is_picture_visible(first))


def test_a_picture_stays_hidden_until_its_last_takedown_is_lifted(store: Store, run: Run, account: Account) -> None:
    own, shared = (upload(store, run, account, number).name for number in (1, 2))
    first = take_down(store, run, account, add(run, store, account), own, shared)
    second = take_down(store, run, account, add(run, store, account), shared)
    kept = {shared: second.listing_id}
    assert run(store.lift_takedown(first, kept, BY_OPERATOR, None))
    assert [run(store.is_picture_visible(name)) for name in (own, shared)] == [True, False]
    assert run(store.lift_takedown(second, {own: first.listing_id}, BY_OPERATOR, None))
    assert [run(store.is_picture_visible(name)) for name in (own, shared)] == [True, True]


def test_sizes_of_hidden_pictures_are_not_public(store: Store, run: Run, account: Account) -> None:
    names = [upload(store, run, account, number, width=number, size=1).name for number in (1, 2)]
    take_down(store, run, account, add(run, store, account), names[0])
    sizes = dict(zip(names, [(1, 1200), (2, 1200)], strict=True))
    assert run(store.get_picture_sizes(names)) == sizes
    assert run(store.get_picture_sizes(names, is_public=True)) == {**sizes, names[0]: None}


def test_an_erased_account_has_no_takedowns(store: Store, run: Run, account: Account) -> None:
    take_down(store, run, account, add(run, store, account))
    run(erase(store, account.id, "erased@example.com", 2_000))
    assert run(store.list_takedowns(10)) == []
