"""Words of a text, as a search finds them: case and accents don't matter. Pure."""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+")
_ACCENTS = re.compile("[\u0300-\u036f]")
_LONGEST = 64  # characters of a word that count


def tokenize(text: str) -> list[str]:
    """The words in their order: runs of letters and digits, folded."""
    return [word[:_LONGEST] for word in _WORD.findall(_folded(text))]


def matches(texts: Iterable[str], sought: Iterable[str]) -> bool:
    """Whether each sought word is a word of one of the texts; the same as to take the words apart, in less time."""
    folded = [_folded(text) for text in texts]
    return all(any(_has(text, word) for text in folded) for word in sought)


def _folded(text: str) -> str:
    return text.lower() if text.isascii() else _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold()))


def _has(folded: str, word: str) -> bool:
    at = folded.find(word)
    return at >= 0 and _as_word(word).search(folded, at) is not None


@lru_cache(maxsize=256)
def _as_word(word: str) -> re.Pattern[str]:
    """One pass over a text, however often it has the letters inside other words."""
    end = "" if len(word) == _LONGEST else r"(?![^\W_])"
    return re.compile(rf"(?<![^\W_]){re.escape(word)}{end}")
