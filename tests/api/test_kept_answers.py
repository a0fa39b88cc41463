"""Answers that are kept for as long as nothing in them has changed."""

import pytest

from listings.api.kept import WHOLE_LIST, KeptAnswers
from listings.api.wire import Answer
from tests.houses import House

OVERHEAD = 1024
ROOM = 4 * (OVERHEAD + 100)


def answer(size: int = 100) -> Answer:
    return Answer(200, bytes(size))


def test_an_answer_is_found_under_its_account_revision_and_name_alone() -> None:
    kept, seven = KeptAnswers(ROOM), answer()
    kept.keep(1, 7, WHOLE_LIST, seven)
    assert kept.find(1, 7, WHOLE_LIST) is seven
    assert kept.find(1, 8, WHOLE_LIST) is None
    assert kept.find(2, 7, WHOLE_LIST) is None
    assert kept.find(1, 7, "1025") is None


def test_a_newer_revision_takes_the_place_of_all_that_was_older() -> None:
    kept, newer = KeptAnswers(2 * ROOM), answer()
    kept.keep(1, 7, WHOLE_LIST, answer())
    kept.keep(1, 7, "1025", answer())
    kept.keep(1, 8, "1025", newer)
    assert kept.find(1, 8, "1025") is newer
    assert [kept.find(1, 7, name) for name in (WHOLE_LIST, "1025")] == [None, None]
    assert kept.find(1, 8, WHOLE_LIST) is None
    assert kept.bytes == OVERHEAD + 100


def test_the_account_that_asked_least_recently_goes_first() -> None:
    kept = KeptAnswers(ROOM)
    for account in range(4):
        kept.keep(account, 1, WHOLE_LIST, answer())
    assert kept.find(0, 1, WHOLE_LIST) is not None
    kept.keep(4, 1, WHOLE_LIST, answer())
    assert kept.find(1, 1, WHOLE_LIST) is None
    assert kept.find(0, 1, WHOLE_LIST) is not None
    assert kept.bytes == ROOM


def test_an_answer_that_would_drive_out_the_others_is_not_kept() -> None:
    kept = KeptAnswers(ROOM)
    kept.keep(1, 1, WHOLE_LIST, answer(100))
    kept.keep(2, 1, WHOLE_LIST, answer(101))
    assert kept.find(1, 1, WHOLE_LIST) is not None
    assert kept.find(2, 1, WHOLE_LIST) is None
    kept.keep(1, 2, WHOLE_LIST, answer(101))
    assert (kept.find(1, 1, WHOLE_LIST), kept.bytes) == (None, 0)


def test_an_account_that_has_asked_for_its_share_begins_anew() -> None:
    kept = KeptAnswers(3 * ROOM)
    for number in range(4):
        kept.keep(1, 1, str(number), answer())
    assert [kept.find(1, 1, str(number)) is not None for number in range(4)] == [False, False, False, True]
    assert kept.bytes == OVERHEAD + 100


def test_the_same_answer_again_takes_no_more_room() -> None:
    kept = KeptAnswers(2 * ROOM)
    for _ in range(2):
        kept.keep(1, 1, "1025", answer())
    assert kept.bytes == OVERHEAD + 100


@pytest.mark.parametrize("size", [0, 1])
def test_without_memory_nothing_is_kept(size: int) -> None:
    kept = KeptAnswers(0)
    kept.keep(1, 1, WHOLE_LIST, answer(size))
    assert (kept.find(1, 1, WHOLE_LIST), kept.bytes) == (None, 0)


def test_a_listing_that_was_read_is_kept_as_it_was_answered(house: House) -> None:
    alice = house.person("alice")
    created = house.ask("POST", "/api/v1/listings", key=alice.key, json={"title": "Lamp", "content": "Brass."}).json()
    first = house.ask("GET", f"/api/v1/listings/{created['id']}", key=alice.key)
    kept = house.application._kept.find(alice.account.id, 1, str(created["id"]))  # noqa: SLF001 - no answer tells it
    assert kept is not None
    assert kept.body == first.body == house.ask("GET", f"/api/v1/listings/{created['id']}", key=alice.key).body
