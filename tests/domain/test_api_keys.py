"""Keys: make, check, digest and mask (decision G24)."""

import hashlib
import re
import string
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listings.domain import api_keys

BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
MADE = "lst_Zc4HnP9tXo6eArMq8LbWy2KvSj0dRiUg2u3Uiw"
VISIBLE = "".join(map(chr, range(0x21, 0x7F)))


@pytest.mark.decision("G24")
def test_a_made_key_is_its_prefix_and_38_base62_characters() -> None:
    assert all(re.fullmatch("lst_[0-9A-Za-z]{38}", api_keys.make()) for _ in range(100))


def test_a_made_key_ends_with_the_crc32_of_what_precedes_in_base62() -> None:
    for key in (api_keys.make() for _ in range(100)):
        number = 0
        for character in key[-6:]:
            number = number * 62 + BASE62.index(character)
        assert number == zlib.crc32(key[:-6].encode())


def test_a_made_key_is_well_formed() -> None:
    assert all(api_keys.is_well_formed(api_keys.make()) for _ in range(100))


def test_no_two_made_keys_are_the_same() -> None:
    assert len({api_keys.make() for _ in range(1000)}) == 1000


def test_every_base62_character_is_drawn() -> None:
    assert set("".join(api_keys.make()[4:-6] for _ in range(1000))) == set(BASE62)


@pytest.mark.decision("G24")
@given(st.integers(4, 41), st.sampled_from(BASE62))
def test_one_mistyped_character_is_noticed(place: int, character: str) -> None:
    typed = MADE[:place] + character + MADE[place + 1 :]
    assert api_keys.is_well_formed(typed) == (typed == MADE)


@given(st.integers(4, 40))
def test_two_swapped_characters_are_noticed(place: int) -> None:
    typed = MADE[:place] + MADE[place + 1] + MADE[place] + MADE[place + 2 :]
    assert api_keys.is_well_formed(typed) == (typed == MADE)


@pytest.mark.parametrize(
    "key",
    [
        "lst_",
        MADE[:-1],
        MADE + "0",
        MADE + "\n",
        " " + MADE,
        "lst_" + "!" * 38,
        "lst_" + "0" * 38,
        "lst_" + "a" * 20,
        "lst_" + "a" * 100,
    ],
)
def test_what_begins_as_a_made_key_but_is_none_is_refused(key: str) -> None:
    assert not api_keys.is_well_formed(key)


@pytest.mark.decision("G24")
@pytest.mark.parametrize("length", [16, 17, 199, 200])
def test_a_key_brought_along_has_16_to_200_characters(length: int) -> None:
    assert api_keys.is_well_formed("k" * length)


@pytest.mark.parametrize("length", [0, 1, 15, 201, 10_000])
def test_a_shorter_or_longer_one_is_refused(length: int) -> None:
    assert not api_keys.is_well_formed("k" * length)


def test_a_key_brought_along_may_have_every_visible_ascii_character() -> None:
    assert api_keys.is_well_formed(VISIBLE)


@pytest.mark.parametrize("character", [" ", "\t", "\n", "\0", "\x1f", "\x7f", "\x80", "é", "٣", "…", "😀"])
@pytest.mark.parametrize("place", [0, 8, 16])
def test_any_other_character_is_refused(character: str, place: int) -> None:
    assert not api_keys.is_well_formed("k" * place + character + "k" * (16 - place))


@pytest.mark.parametrize("prefix", ["LST_", "Lst_", "lst-", "lst", "xlst_"])
def test_only_the_exact_prefix_asks_for_a_checksum(prefix: str) -> None:
    assert api_keys.is_well_formed(prefix + "a" * 20)


def test_what_is_stored_of_a_key_is_its_sha256() -> None:
    assert api_keys.digest(MADE) == hashlib.sha256(MADE.encode()).digest()


def test_different_keys_have_different_digests() -> None:
    assert len({api_keys.digest(api_keys.make()) for _ in range(100)}) == 100


def test_a_mask_shows_the_first_four_and_the_last_four_characters() -> None:
    assert api_keys.mask(MADE) == f"lst_…{MADE[-4:]}"
    assert api_keys.mask("older-system-key-0042") == "olde…0042"


def test_a_key_within_a_text_is_masked_and_the_rest_of_the_text_stays() -> None:
    assert api_keys.masked(f"/api/{MADE}/x?{MADE}") == f"/api/{api_keys.mask(MADE)}/x?{api_keys.mask(MADE)}"
    assert api_keys.masked("older-system-key-0042") == "older-system-key-0042"
