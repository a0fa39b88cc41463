"""Words of the market's search: plurals, apostrophes, beginnings of words, and words with a similar spelling.

The index and the searches contain terms. A term is a word, or the beginning of a word, in the form that `fold` returns.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain

from listings.domain import tokenizer

_MIN_BEGINNING, _MAX_BEGINNING = 2, 20  # letters
_MIN_SPELLING, _MAX_SPELLING = 4, 20  # letters of a word that is suggested or corrected
_LONGEST_INVARIABLE = 3  # words of up to 3 letters are not folded: they lose too much without their last letter
_APOSTROPHE = re.compile(r"(?<=\w)['`\u2018\u2019\u02bb\u02bc](?=\w)")
_SIBILANT_PLURAL = re.compile("(?:x|ss|sh|ch|zz)es$")
_CONSONANT_Y = re.compile("[^aeiou]y$")
_VOWELS = re.compile("[aeiouy]")
_REPEATED = re.compile(r"(.)\1+")
_CONSONANTS = "bcdfghjklmnpqrstvwxz"
_CACHE_SIZE = 2_048  # words: 2.4 MiB for all caches; eight times as many are no faster
_FUNCTION_WORDS = frozenset(
    ["a", "an", "and", "at", "by", "for", "from", "in", "my", "near", "of", "on", "or", "the", "to", "with"]
)


def split(text: str) -> list[str]:
    """Return the words of a text in lower case, without accents and apostrophes: "Hawke's Bay" is "hawkes", "bay"."""
    return tokenizer.tokenize(_APOSTROPHE.sub("", text))


@lru_cache(_CACHE_SIZE)
def fold(word: str) -> str:
    """Return the form that the singular and the plural of most English words share."""
    if len(word) <= _LONGEST_INVARIABLE:
        return word
    if _SIBILANT_PLURAL.search(word):
        return word[:-2]
    if word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word[:-1] + "ie" if _CONSONANT_Y.search(word) else word


@lru_cache(_CACHE_SIZE)
def fold_category(name: str) -> str:
    """Return the form that spellings of one category share, such as "Bikes" and "bike"."""
    return " ".join(list_terms(name)) or name


def list_terms(text: str) -> Iterator[str]:
    """Return the terms that find a text by its whole words."""
    return map(fold, split(text))


def split_query(text: str) -> list[str]:
    """Return the words of a search. Words such as "the" and "near" count only if there are no others."""
    words = split(text)
    return [word for word in words if word not in _FUNCTION_WORDS] or words


def list_query_terms(text: str) -> Iterator[str]:
    """Return the terms of a search."""
    return map(fold, split_query(text))


def list_title_terms(text: str) -> Iterator[str]:
    """Return the terms that find a short text by its words and their beginnings."""
    return chain.from_iterable(map(_list_beginnings, split(text)))


def list_spellings(texts: Iterable[str]) -> set[str]:
    """Return the words of short texts that can be suggested for a misspelt one."""
    return {word for word in split("\n".join(texts)) if is_correctable(word)}


def is_correctable(word: str) -> bool:
    """Return whether a word is long enough, and of letters only, to be suggested or corrected."""
    return _MIN_SPELLING <= len(word) <= _MAX_SPELLING and word.isalpha()


@lru_cache(_CACHE_SIZE)
def build_skeleton(word: str) -> str:
    """Return a word without the vowels after its first letter, and then with repeated letters once.

    Misspelt vowels and double letters don't change it.
    """
    return _REPEATED.sub(r"\1", word[:1] + _VOWELS.sub("", word[1:]))


def list_similar_skeletons(word: str) -> list[str]:
    """Return the skeleton of a word, and those that one mistake leads to.

    A mistake is a consonant more, a letter less, a consonant instead of a letter, or two swapped letters.
    """
    skeleton = build_skeleton(word)
    halves = [(skeleton[:position], skeleton[position:]) for position in range(len(skeleton) + 1)]
    found = {skeleton}
    for start, end in halves:
        found.update(start + letter + end for letter in _CONSONANTS)
        found.update(start + letter + end[1:] for letter in ("", *_CONSONANTS))
        found.add(start + end[1:2] + end[:1] + end[2:])
    return sorted(found)


def list_halves(word: str) -> list[tuple[str, str]]:
    """Return the pairs of words that a word may consist of, such as "lawn" and "mower"."""
    return [
        (word[:position], word[position:])
        for position in range(_MIN_SPELLING, min(len(word), _MAX_SPELLING) - _MIN_SPELLING + 1)
    ]


@lru_cache(_CACHE_SIZE)
def _list_beginnings(word: str) -> tuple[str, ...]:
    """Return the terms of a word and of its beginnings, each folded like a search word."""
    ends = range(_MIN_BEGINNING, min(len(word), _MAX_BEGINNING) + 1)
    return tuple(dict.fromkeys([fold(word), *(fold(word[:end]) for end in ends)]))
