"""Generating, validating, hashing and masking API keys (decision G24)."""

import hashlib
import re
import string
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listings.domain import api_keys

BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
KEY = "lst_Zc4HnP9tXo6eArMq8LbWy2KvSj0dRiUg2u3Uiw"
VISIBLE_ASCII = "".join(map(chr, range(0x21, 0x7F)))


@pytest.mark.decision("G24")
def test_a_generated_key_is_the_prefix_and_38_base62_characters() -> None:
    assert all(re.fullmatch("lst_[0-9A-Za-z]{38}", api_keys.generate()) for _ in range(100))


def test_a_generated_key_ends_with_its_crc32_in_base62() -> None:
    for key in (api_keys.generate() for _ in range(100)):
        number = 0
        for character in key[-6:]:
            number = number * 62 + BASE62.index(character)
        assert number == zlib.crc32(key[:-6].encode())


def test_a_generated_key_is_well_formed() -> None:
    assert all(api_keys.is_well_formed(api_keys.generate()) for _ in range(100))


def test_generated_keys_are_unique() -> None:
    assert len({api_keys.generate() for _ in range(1000)}) == 1000


def test_generated_keys_use_every_base62_character() -> None:
    assert set("".join(api_keys.generate()[4:-6] for _ in range(1000))) == set(BASE62)


@pytest.mark.decision("G24")
@given(st.integers(4, 41), st.sampled_from(BASE62))
def test_one_mistyped_character_is_detected(position: int, character: str) -> None:
    typed = KEY[:position] + character + KEY[position + 1 :]
    assert api_keys.is_well_formed(typed) == (typed == KEY)


@given(st.integers(4, 40))
def test_two_swapped_characters_are_detected(position: int) -> None:
    typed = KEY[:position] + KEY[position + 1] + KEY[position] + KEY[position + 2 :]
    assert api_keys.is_well_formed(typed) == (typed == KEY)


@pytest.mark.parametrize(
    "key",
    [
        "lst_",
        KEY[:-1],
        KEY + "0",
        KEY + "\n",
        " " + KEY,
        "lst_" + "!" * 38,
        "lst_" + "0" * 38,
        "lst_" + "a" * 20,
        "lst_" + "a" * 100,
    ],
)
def test_a_key_with_the_prefix_and_no_valid_checksum_is_rejected(key: str) -> None:
    assert not api_keys.is_well_formed(key)


@pytest.mark.decision("G24")
@pytest.mark.parametrize("length", [16, 17, 199, 200])
def test_an_imported_key_has_16_to_200_characters(length: int) -> None:
    assert api_keys.is_well_formed("k" * length)


@pytest.mark.parametrize("length", [0, 1, 15, 201, 10_000])
def test_a_shorter_or_longer_imported_key_is_rejected(length: int) -> None:
    assert not api_keys.is_well_formed("k" * length)


def test_an_imported_key_may_have_every_visible_ascii_character() -> None:
    assert api_keys.is_well_formed(VISIBLE_ASCII)


@pytest.mark.parametrize("position", [0, 8, 16])
def test_any_other_character_in_an_imported_key_is_rejected(position: int) -> None:
    others = [" ", "\t", "\n", "\0", "\x1f", "\x7f", "\x80", "é", "٣", "…", "😀"]
    keys = ["k" * position + character + "k" * (16 - position) for character in others]
    assert [key for key in keys if api_keys.is_well_formed(key)] == []


@pytest.mark.parametrize("prefix", ["LST_", "Lst_", "lst-", "lst", "xlst_"])
def test_only_the_exact_prefix_requires_a_checksum(prefix: str) -> None:
    assert api_keys.is_well_formed(prefix + "a" * 20)


def test_no_well_formed_key_has_a_defect() -> None:
    for key in (api_keys.generate(), "Bearer_0123456789abcdef", "bearer" + "x" * 20, "lst-0123456789abcdef"):
        assert api_keys.is_well_formed(key)
        assert not api_keys.describe_defect(key)


@pytest.mark.parametrize("key", ["lst_" + "x" * 38, "lst_" + "x" * 39, "lst_short!", "lst", "Bearer", "short"])
def test_a_key_that_is_wrong_in_another_way_has_no_described_defect(key: str) -> None:
    assert not api_keys.is_well_formed(key)
    assert api_keys.describe_defect(key) == ""


def test_the_digest_of_a_key_is_its_sha256() -> None:
    assert api_keys.digest(KEY) == hashlib.sha256(KEY.encode()).digest()


def test_different_keys_have_different_digests() -> None:
    assert len({api_keys.digest(api_keys.generate()) for _ in range(100)}) == 100


def test_a_mask_shows_the_first_four_and_the_last_four_characters() -> None:
    assert api_keys.mask(KEY) == f"lst_…{KEY[-4:]}"
    assert api_keys.mask("older-system-key-0042") == "olde…0042"


def test_only_the_keys_in_a_text_are_masked() -> None:
    assert api_keys.mask_keys(f"/api/{KEY}/x?{KEY}") == f"/api/{api_keys.mask(KEY)}/x?{api_keys.mask(KEY)}"
    assert api_keys.mask_keys("older-system-key-0042") == "older-system-key-0042"
