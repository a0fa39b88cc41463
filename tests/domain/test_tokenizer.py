"""Words of a text, as a search finds them."""

import timeit
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listings.domain import tokenizer


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Road bike, 56 cm.", ["road", "bike", "56", "cm"]),
        ("Café CRÈME", ["cafe", "creme"]),
        ("Straße", ["strasse"]),
        ("snake_case and O'Neill", ["snake", "case", "and", "o", "neill"]),
        ("自転車 à vendre", ["自転車", "a", "vendre"]),
        ("½ price", ["1", "2", "price"]),
        ("🙂 ... \n\t—", []),
        ("", []),
        ("x" * 100, ["x" * 64]),
    ],
)
def test_words_are_runs_of_letters_and_digits_without_case_and_accents(text: str, found: list[str]) -> None:
    assert tokenizer.tokenize(text) == found


@pytest.mark.parametrize(
    ("sought", "is_there"),
    [(["road"], True), (["bike", "cm"], True), (["ro"], False), (["road", "boat"], False), ([], True)],
)
def test_each_sought_word_must_be_there(sought: list[str], is_there: bool) -> None:  # noqa: FBT001 - what is expected
    assert tokenizer.matches(["Road bike", "56 cm"], sought) is is_there


TEXTS = st.text(alphabet="ab1 _-éÉßΣ²ﬁ\u0301", max_size=20) | st.text(max_size=20) | st.just("a" * 70 + " " + "b" * 64)


@given(texts=st.lists(TEXTS, max_size=2), sought=TEXTS)
def test_a_text_contains_just_the_words_that_it_can_be_taken_apart_into(texts: list[str], sought: str) -> None:
    found = {word for text in texts for word in tokenizer.tokenize(text)}
    for word in {*tokenizer.tokenize(sought), *tokenizer.tokenize(sought[:1]), *found}:
        assert tokenizer.matches(texts, [word]) is (word in found)


@given(st.text(alphabet="aB _", max_size=200), st.text(alphabet="ab", min_size=1, max_size=3))
def test_a_word_among_many_that_begin_or_end_with_it_is_found_all_the_same(text: str, word: str) -> None:
    assert tokenizer.matches([text], [word]) is (word in tokenizer.tokenize(text))


@pytest.mark.timing
@pytest.mark.parametrize("text", ["a" * 100_000, "xa " * 33_333, "ax_" * 33_333], ids=["one", "many", "other ends"])
def test_letters_that_are_in_other_words_alone_take_no_longer_than_to_take_the_words_apart(text: str) -> None:
    assert least_seconds(lambda: tokenizer.matches([text], ["a"])) < 5 * least_seconds(lambda: tokenizer.tokenize(text))


def least_seconds(call: Callable[[], object]) -> float:
    return min(timeit.repeat(call, number=1, repeat=5))
