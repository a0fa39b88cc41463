"""Splitting text into search words."""

import re
import timeit
import unicodedata
from collections.abc import Callable
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listings.domain import tokenizer


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Road bike, 56 cm.", ["road", "bike", "56", "cm"]),
        ("Café CRÈME", ["cafe", "creme"]),
        ("Straße", ["strasse"]),
        ("snake_case and O'Neill", ["snake", "case", "and", "o", "neill"]),
        ("自転車 à vendre", ["自転車", "a", "vendre"]),
        ("Bike™ \N{KELVIN SIGN}2 №5", ["biketm", "k2", "no5"]),
        ("𝗕𝗶𝗸𝗲 ㏀", ["bike", "kω"]),
        ("İzmir ŉ ᾳ", ["izmir", "ʼn", "αι"]),
        ("½ price", ["1", "2", "price"]),
        ("🙂 ... \n\t—", []),
        ("", []),
        ("x" * 100, ["x" * 64]),
    ],
)
def test_words_are_runs_of_letters_and_digits_without_case_or_accents(text: str, words: list[str]) -> None:
    assert tokenizer.tokenize(text) == words


@pytest.mark.parametrize(
    ("words", "is_match"),
    [(["road"], True), (["bike", "cm"], True), (["ro"], False), (["road", "boat"], False), ([], True)],
)
def test_a_match_contains_every_word(words: list[str], is_match: bool) -> None:  # noqa: FBT001 - the expected result
    assert tokenizer.matches(["Road bike", "56 cm"], words) is is_match


def test_no_case_or_accent_of_a_letter_is_left() -> None:
    for number in {*range(0x110000)} - {*range(0xD800, 0xE000)}:
        words = tokenizer.tokenize(chr(number))
        assert [found for word in words for found in tokenizer.tokenize(word)] == words, hex(number)
        assert [word.casefold() for word in words] == words, hex(number)


TEXTS = (
    st.text(alphabet="ab1 _-éÉßΣ²ﬁ™𝗕\u0301", max_size=20) | st.text(max_size=20) | st.just("a" * 70 + " " + "b" * 64)
)


@given(texts=st.lists(TEXTS, max_size=2), other=TEXTS)
def test_a_text_matches_exactly_its_tokens(texts: list[str], other: str) -> None:
    found = {word for text in texts for word in tokenizer.tokenize(text)}
    for word in {*tokenizer.tokenize(other), *tokenizer.tokenize(other[:1]), *found}:
        assert tokenizer.matches(texts, [word]) is (word in found)


@given(st.text(alphabet="aB _", max_size=200), st.text(alphabet="ab", min_size=1, max_size=3))
def test_a_word_is_found_among_longer_words_that_contain_it(text: str, word: str) -> None:
    assert tokenizer.matches([text], [word]) is (word in tokenizer.tokenize(text))


@pytest.mark.timing
@pytest.mark.parametrize(
    "text",
    ["a" * 100_000, "xa " * 33_333, "ax_" * 33_333],
    ids=["one word", "suffix of many words", "prefix of many words"],
)
def test_a_search_for_a_part_of_words_is_as_fast_as_one_for_all_words(text: str) -> None:
    assert measure_seconds(lambda: tokenizer.matches([text], ["a"])) < 5 * measure_seconds(
        lambda: re.findall(r"[^\W_]+", text.lower())
    )


def measure_seconds(call: Callable[[], object]) -> float:
    return min(timeit.repeat(call, timer=process_time, number=1, repeat=5))


@given(st.text(st.characters(categories=["Mn", "Mc", "Lo", "Ll"], max_codepoint=0x1FFF), min_size=190, max_size=420))
def test_long_texts_are_folded_like_short_ones(text: str) -> None:
    whole = tokenizer._ACCENTS.sub("", unicodedata.normalize("NFKD", text).casefold())  # noqa: SLF001
    assert tokenizer.tokenize(text) == [word[:64] for word in tokenizer._WORD.findall(whole)]  # noqa: SLF001


def test_runs_of_combining_marks_take_linear_time() -> None:
    text = "\N{COMBINING ACUTE ACCENT}" * 50_000 + "\N{COMBINING DOT BELOW}" * 50_000
    started = process_time()
    assert tokenizer.tokenize(text) == []
    assert process_time() - started < 2  # seconds; quadratic, it takes 11


def test_ascii_is_split_like_any_text() -> None:
    for char in map(chr, range(128)):
        text = f"ab{char}CD{char}{'x' * 70}"
        assert [*tokenizer.tokenize(text), "e"] == tokenizer.tokenize(f"{text} é")
