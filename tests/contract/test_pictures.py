"""Uploaded pictures: guarantees of every store (`listings.store.store.Store`)."""

import json

import msgspec
import pytest

from listings.domain.errors import Problem
from listings.domain.history import CONSOLE, Actor
from listings.domain.listings import AddStep
from listings.domain.model import Account, bucket_of
from listings.domain.pictures import Picture, Sweep, build_path, create_name
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.helpers import CREATED, MINIMAL, erase

DAY = 86_400
LIMIT = 10_000
NAME = "0123456789abcdef0123456789abcdef"
EVERYTHING = (2**62, "")


def picture(account: Account, number: int = 1, size: int = 1_000, file_name: str = "") -> Picture:
    return Picture(f"{number:032x}", account.id, 1600, 1200, size, 1_000 + number, None, file_name)


def digest(number: int = 1) -> bytes:
    return number.to_bytes(32, "big")


def upload(store: Store, run: Run, account: Account, number: int = 1, **values: object) -> Picture:
    new = msgspec.structs.replace(picture(account, number), **values)
    stored = run(store.add_picture(new, digest(number), LIMIT))
    assert isinstance(stored, Picture)
    return stored


def show(store: Store, run: Run, account: Account, *urls: str) -> int:
    new = msgspec.structs.replace(MINIMAL, images=json.dumps(list(urls)))
    step = AddStep(new, CREATED)
    added = run(store.add_listing(bucket_of(account.id), account.id, step, actor=Actor(CONSOLE, 1_000)))
    return int(added.listing_id)


def sweep(store: Store, run: Run, account: Account, now: int, room: int = 0, room_before: int = 0) -> list[str] | None:
    partition = (bucket_of(account.id), account.id)
    revision, used = run(store.find_used_pictures(*partition))
    found = Sweep(used.keys(), revision, now, now - 97 * DAY, room, room_before)
    deleted: list[str] | None = run(store.sweep_pictures(*partition, found))
    return deleted


def names(store: Store, run: Run, account: Account) -> set[str]:
    return set(run(store.list_picture_names(account.id)))


def test_a_stored_picture_is_found_in_each_way(store: Store, run: Run, account: Account) -> None:
    added = upload(store, run, account, file_name="Tisch.JPG")
    assert added == picture(account, file_name="Tisch.JPG")
    assert run(store.get_picture(added.name)) == added
    assert run(store.find_picture_by_digest(account.id, digest())) == added
    assert run(store.find_newest_picture(account.id, "tisch.jpg")) == added
    assert run(store.page_pictures(account.id, EVERYTHING, 10)) == [added]
    assert run(store.is_picture_visible(added.name))
    assert run(store.get_picture_usage(account.id)) == (1_000, None)


def test_another_account_finds_nothing_of_it(store: Store, run: Run, account: Account) -> None:
    bob = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    upload(store, run, account, file_name="a.jpg")
    assert run(store.find_picture_by_digest(bob.id, digest())) is None
    assert run(store.find_newest_picture(bob.id, "a.jpg")) is None
    assert run(store.page_pictures(bob.id, EVERYTHING, 10)) == []
    own = run(store.add_picture(msgspec.structs.replace(picture(bob), name=NAME), digest(), LIMIT))
    assert own.name == NAME


def test_the_same_bytes_again_renew_the_first_picture(store: Store, run: Run, account: Account) -> None:
    first = upload(store, run, account)
    again = msgspec.structs.replace(picture(account), name=NAME, created_at=2_000, file_name="b.jpg")
    renewed = run(store.add_picture(again, digest(), LIMIT))
    assert renewed == msgspec.structs.replace(first, created_at=2_000, file_name="b.jpg")
    assert names(store, run, account) == {first.name}
    assert run(store.get_picture_usage(account.id)) == (1_000, None)


def test_renewing_clears_the_mark_as_unused(store: Store, run: Run, account: Account) -> None:
    added = upload(store, run, account, file_name="a.jpg")
    assert sweep(store, run, account, now=5_000) == []
    assert run(store.get_picture(added.name)).unused_since == 5_000
    renewed = run(store.renew_picture(added.name, 6_000, ""))
    assert renewed == msgspec.structs.replace(added, created_at=6_000)
    assert run(store.renew_picture(NAME, 6_000, "")) is None


def test_pictures_beyond_the_limit_are_rejected(store: Store, run: Run, account: Account) -> None:
    upload(store, run, account, 1, size=LIMIT)
    with pytest.raises(Problem, match="at most 10,000 bytes") as caught:
        upload(store, run, account, 2, size=1)
    assert caught.value.code == "account_full"
    run(store.set_picture_limit(account.id, LIMIT + 1))
    upload(store, run, account, 2, size=1)
    assert run(store.get_picture_usage(account.id)) == (LIMIT + 1, LIMIT + 1)


def test_the_newest_of_two_files_with_one_name_is_found(store: Store, run: Run, account: Account) -> None:
    for number in (1, 3, 2):
        upload(store, run, account, number, file_name="a.jpg")
    assert run(store.find_newest_picture(account.id, "A.jpg")).name == f"{3:032x}"
    run(store.renew_picture(f"{1:032x}", 9_000, ""))
    assert run(store.find_newest_picture(account.id, "A.jpg")).name == f"{1:032x}"


def test_pages_of_pictures_neither_skip_nor_repeat_one(store: Store, run: Run, account: Account) -> None:
    added = [upload(store, run, account, number, created_at=1_000 + number // 2) for number in range(1, 8)]
    found: list[Picture] = []
    while page := run(
        store.page_pictures(account.id, (found[-1].created_at, found[-1].name) if found else EVERYTHING, 2)
    ):
        found += page
    assert found == sorted(added, key=lambda one: (one.created_at, one.name), reverse=True)


@pytest.mark.parametrize("count", [1, 2, 9, 64, 130])
def test_sizes_of_any_number_of_pictures_are_read(store: Store, run: Run, account: Account, count: int) -> None:
    added = [upload(store, run, account, number, width=number, size=1) for number in range(1, count + 1)]
    sizes = run(store.get_picture_sizes([*(one.name for one in added), NAME]))
    assert sizes == {one.name: (one.width, 1200) for one in added}


def test_all_names_are_paged_in_order(store: Store, run: Run, account: Account) -> None:
    expected = [upload(store, run, account, number).name for number in range(1, 5)]
    assert run(store.page_picture_names("", 3)) == expected[:3]
    assert run(store.page_picture_names(expected[2], 3)) == expected[3:]


def test_only_accounts_with_pictures_are_listed(store: Store, run: Run, account: Account) -> None:
    bob = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    run(store.set_picture_limit(bob.id, 5))
    assert run(store.page_picture_accounts(0, 10)) == []
    upload(store, run, account)
    assert run(store.page_picture_accounts(0, 10)) == [account.id]
    assert run(store.page_picture_accounts(account.id, 10)) == []


def test_listings_that_show_a_picture_are_found(store: Store, run: Run, account: Account) -> None:
    first, second, third = (upload(store, run, account, number).name for number in (1, 2, 3))
    one = show(store, run, account, "https://a.example/1.jpg", build_path(first), build_path(second))
    two = show(store, run, account, f"https://old.example/shop{build_path(first)}", build_path(NAME))
    run(store.change_listing(two, lambda _: {"is_active": False, "deleted_at": 5}, Actor(CONSOLE, 1_000)))
    revision, used = run(store.find_used_pictures(bucket_of(account.id), account.id))
    assert revision == 3
    assert used == {first: [one, -two], second: [one]}
    assert third not in used


def test_a_sweep_marks_and_clears_and_finally_deletes(store: Store, run: Run, account: Account) -> None:
    shown, unused = upload(store, run, account, 1).name, upload(store, run, account, 2).name
    assert sweep(store, run, account, now=DAY) == []
    show(store, run, account, build_path(shown))
    assert sweep(store, run, account, now=97 * DAY) == []
    assert run(store.get_picture(shown)).unused_since is None
    assert run(store.get_picture(unused)).unused_since == DAY
    assert sweep(store, run, account, now=98 * DAY) == []
    assert sweep(store, run, account, now=98 * DAY + 1) == [unused]
    assert names(store, run, account) == {shown}
    assert run(store.get_picture_usage(account.id)) == (1_000, None)


def test_a_sweep_does_nothing_if_listings_have_changed(store: Store, run: Run, account: Account) -> None:
    unused = upload(store, run, account).name
    sweep(store, run, account, now=DAY)
    partition = (bucket_of(account.id), account.id)
    revision, used = run(store.find_used_pictures(*partition))
    show(store, run, account, build_path(unused))
    assert run(store.sweep_pictures(*partition, Sweep(used.keys(), revision, 200 * DAY, 103 * DAY))) is None
    assert names(store, run, account) == {unused}


def test_a_sweep_makes_room_with_the_longest_unused(store: Store, run: Run, account: Account) -> None:
    oldest = upload(store, run, account, 1).name
    sweep(store, run, account, now=DAY)
    upload(store, run, account, 2)
    upload(store, run, account, 3)
    sweep(store, run, account, now=2 * DAY)
    upload(store, run, account, 4)
    assert sweep(store, run, account, now=3 * DAY, room=1_000, room_before=2 * DAY) == [oldest]
    second = sweep(store, run, account, now=4 * DAY, room=9_000, room_before=2 * DAY + 1)
    assert sorted(second or []) == [f"{number:032x}" for number in (2, 3)]


def test_a_mark_from_a_wrong_clock_is_set_back(store: Store, run: Run, account: Account) -> None:
    name = upload(store, run, account).name
    sweep(store, run, account, now=500 * DAY)
    sweep(store, run, account, now=DAY)
    assert run(store.get_picture(name)).unused_since == DAY


def test_a_deleted_picture_frees_its_bytes(store: Store, run: Run, account: Account) -> None:
    name = upload(store, run, account).name
    assert run(store.delete_picture(name))
    assert not run(store.delete_picture(name))
    assert run(store.get_picture(name)) is None
    assert run(store.get_picture_usage(account.id)) == (0, None)
    assert not run(store.is_picture_blocked(digest()))


def test_a_blocked_picture_is_known_by_its_digest(store: Store, run: Run, account: Account) -> None:
    name = upload(store, run, account).name
    assert run(store.delete_picture(name, blocked_at=2_000))
    assert run(store.is_picture_blocked(digest()))
    assert not run(store.is_picture_blocked(digest(2)))


def test_pictures_of_a_disabled_account_are_not_visible(store: Store, run: Run, account: Account) -> None:
    name = upload(store, run, account).name
    run(store.change_account(account.id, lambda _: {"disabled_at": 5}))
    assert not run(store.is_picture_visible(name))
    run(store.change_account(account.id, lambda _: {"disabled_at": None}))
    assert run(store.is_picture_visible(name))
    assert not run(store.is_picture_visible(create_name()))


def test_erasing_an_account_erases_its_pictures(store: Store, run: Run, account: Account) -> None:
    name = upload(store, run, account).name
    run(erase(store, account.id, "erased-1@0123456789abcdef.invalid", 2_000))
    assert run(store.get_picture(name)) is None
    assert run(store.page_picture_names("", 10)) == []
    with pytest.raises(Problem, match="erased"):
        upload(store, run, account, 2)
