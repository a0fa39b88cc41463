"""Lists that are kept as they were answered."""

from listings.api.kept import KeptLists


def test_a_list_is_found_under_its_revision_alone() -> None:
    lists = KeptLists(100)
    lists.keep(1, 7, b"seven")
    assert lists.find(1, 7) == b"seven"
    assert lists.find(1, 8) is None
    assert lists.find(2, 7) is None


def test_a_newer_list_takes_the_place_of_the_older() -> None:
    lists = KeptLists(100)
    lists.keep(1, 7, b"seven")
    lists.keep(1, 8, b"eight!")
    assert lists.find(1, 7) is None
    assert lists.find(1, 8) == b"eight!"
    assert lists.bytes == 6


def test_the_one_asked_for_least_recently_goes_first() -> None:
    lists = KeptLists(100)
    for account in range(4):
        lists.keep(account, 1, bytes(25))
    assert lists.find(0, 1) is not None
    lists.keep(4, 1, bytes(25))
    assert lists.find(1, 1) is None
    assert lists.find(0, 1) is not None
    assert lists.bytes == 100


def test_a_list_that_would_drive_out_the_others_is_not_kept() -> None:
    lists = KeptLists(100)
    lists.keep(1, 1, bytes(25))
    lists.keep(2, 1, bytes(26))
    assert lists.find(1, 1) is not None
    assert lists.find(2, 1) is None
    lists.keep(1, 2, bytes(26))
    assert (lists.find(1, 1), lists.bytes) == (None, 0)


def test_without_memory_nothing_is_kept() -> None:
    lists = KeptLists(0)
    lists.keep(1, 1, b"a")
    assert (lists.find(1, 1), lists.bytes) == (None, 0)
