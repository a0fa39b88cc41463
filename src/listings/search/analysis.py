"""Turn the texts of listings and of searches into the terms of the index.

The index separates terms by spaces only, so this package alone decides which words are equal. A term is a stem, the
class of a synonym ("=bike"), or in the title's own field a word as it is ("bikes"), a stem ("~bike"), a stem of the
category ("%bike") or the place (",otago"), or a beginning ("^bi"). Raise `ANALYSIS_VERSION` with a change of the terms.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from listings.search import words
from listings.search.synonyms import IN_LISTINGS, IN_SEARCHES
from listings.search.words import find_singular, find_stem

ANALYSIS_VERSION: Final = 3
MAX_WORDS: Final = 20  # maximum number of words that are searched for; further ones are ignored

_CACHED_WORDS, _CACHED_TITLE_WORDS, _CACHED_NAMES = 50_000, 4_096, 4_096
_MIN_START, _MAX_START = 2, 15  # letters of a beginning
_MIN_HALF = 3  # letters of each half of a word that is split
_FUNCTION_WORDS_TEXT = (
    "a am an and any at by for from i im in is it looking me my near of on or some that the this to want with"
)
_FUNCTION_WORDS = frozenset(_FUNCTION_WORDS_TEXT.split())
_SHOWN_WORD = re.compile(r"[^\W_]+(?:['\u2018\u2019\u02bb\u02bc-]\w+)*")


class Word(NamedTuple):
    """A word of a search.

    `classes` and `joined` are those of the synonyms and compounds that it forms, alone or with its neighbours. `parts`
    are the words of a hyphenated one, and `halves` of a compound, which together match as well.
    """

    text: str
    stem: str
    classes: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    parts: tuple["Word", ...] = ()
    halves: tuple[str, ...] = ()


def list_terms(text: str) -> set[str]:
    """Return the terms that find a text by its words. Some strings are several terms, separated by spaces."""
    return _list_terms(text, _TERMS)


def list_title_terms(title: str) -> set[str]:
    """Return the terms of the title's own field, like `list_terms`."""
    return _list_terms(title, _TITLE_TERMS)


@lru_cache(_CACHED_NAMES)
def mark_name(mark: str, name: str) -> str:
    """Return the terms of the name of a category or a place, which many listings have, with a mark."""
    return " ".join({mark + term for terms in list_terms(name) for term in terms.split()})


def read_words(text: str) -> list[Word]:
    """Return the words to search for. Words such as "the" and "near" count only if there are no others."""
    chunks = words.split_chunks(words.normalize(text))
    found = list(dict.fromkeys(word for chunk in chunks for word in _read_chunk(chunk)))
    found = ([word for word in found if word.text not in _FUNCTION_WORDS] or found)[:MAX_WORDS]
    classes = [set(word.classes) for word in found]
    joined: list[set[str]] = [set() for _ in found]
    for first, length, name in IN_SEARCHES.find_phrases([word.text for word in found]):
        for number in range(first, first + length):
            classes[number].add(name)
    for number, (one, other) in enumerate(pairwise(found)):
        compound = build_word(one.text + other.text)
        for position in (number, number + 1):
            joined[position].add(compound.text)
            classes[position].update(compound.classes)
    return [
        word._replace(classes=tuple(sorted(of_word)), joined=tuple(sorted(compounds)))
        for word, of_word, compounds in zip(found, classes, joined, strict=True)
    ]


def build_word(text: str) -> Word:
    """Return a word of a search, without its neighbours."""
    return Word(text, find_stem(text), IN_SEARCHES.words.get(find_singular(text), ()))


def list_halves(word: str) -> list[tuple[str, str]]:
    """Return the pairs of words that a word may consist of, such as "lawn" and "mower"."""
    ends = range(_MIN_HALF, len(word) - _MIN_HALF + 1) if word.isalpha() and word.isascii() else ()
    return [(word[:end], word[end:]) for end in ends]


@lru_cache(2_048)
def fold_category(name: str) -> str:
    """Return the form that the spellings of one category share, such as "Bikes", "bike" and "Bicycles"."""
    parts = words.split(name)
    if len(parts) == 1:
        return IN_SEARCHES.words.get(find_singular(parts[0]), (find_stem(parts[0]),))[0]
    found = IN_SEARCHES.find_phrases(parts)
    whole = [it for first, length, it in found if (first, length) == (0, len(parts))]
    return whole[0] if whole else " ".join(map(find_stem, parts)) or name


def find_positions(text: str, searched: Sequence[Word]) -> list[tuple[int, int]]:
    """Return the positions of the searched words: the start and the end of each, in their order."""
    wanted = {term for word in searched for term in (word.stem, *word.classes, *(it.stem for it in word.parts))}
    wanted.update(find_stem(it) for word in searched for it in word.joined)
    starts = tuple(word.text for word in searched if len(word.text) >= _MIN_START)
    found = []
    for match in _SHOWN_WORD.finditer(text):
        normalized = words.normalize(match[0])
        parts = [words.join(normalized), *words.split_normalized(normalized)]
        terms = {term for part in parts for term in _TERMS[part].split()}
        if not terms.isdisjoint(wanted) or any(it.startswith(starts) for it in parts):
            found.append(match.span())
    return found


def _read_chunk(chunk: str) -> Iterator[Word]:
    parts = words.split_normalized(chunk)
    if words.is_dense(chunk):
        yield from (Word(it, it) for it in [*filter(words.is_pair, parts)] or parts)
    elif len(parts) == 1:
        yield build_word(parts[0])
    elif parts:
        joined = build_word(words.join(chunk))
        phrases = IN_SEARCHES.find_phrases(parts)
        whole = (name for _, length, name in phrases if length == len(parts))
        is_hyphenated = joined.text != chunk  # "PS5" does not match "PS4, 5 games"
        yield joined._replace(
            classes=(*joined.classes, *whole), parts=tuple(map(build_word, parts)) if is_hyphenated else ()
        )


def _list_terms(text: str, terms_of: "_Terms") -> set[str]:
    normalized = words.normalize(text)
    found = words.split_normalized(normalized)
    terms = set(map(terms_of.__getitem__, found))
    terms.update(map(terms_of.__getitem__, words.list_joined(normalized)))
    if not terms_of.starts.isdisjoint(found):
        starts = [number for number, word in enumerate(found) if word in terms_of.starts]
        terms.update(name for _, _, name in IN_LISTINGS.find_phrases(found, starts))
    return terms


class _Terms(dict[str, str]):
    # The terms of words. A common word is looked up without a call of Python code.
    def __init__(self, build: Callable[[str], Iterable[str]], max_words: int) -> None:
        self.starts: set[str] = set()  # words with which phrases begin
        self._build = build
        self._max_words = max_words

    def __missing__(self, word: str) -> str:
        terms = sys.intern(" ".join(self._build(word)))
        if find_singular(word) in IN_LISTINGS.phrases:
            self.starts.add(word)
        if len(self) < self._max_words:
            self[word] = terms
        return terms


def _build_terms(word: str) -> tuple[str, ...]:
    return find_stem(word), *IN_LISTINGS.words.get(find_singular(word), ())


def _build_title_terms(word: str) -> Iterator[str]:
    stem, *classes = _build_terms(word)
    yield from (word, f"~{stem}", *classes)
    yield from (f"^{word[:end]}" for end in range(_MIN_START, min(len(word), _MAX_START + 1)))


_TERMS = _Terms(_build_terms, _CACHED_WORDS)
_TITLE_TERMS = _Terms(_build_title_terms, _CACHED_TITLE_WORDS)
