"""Split text into search words. Case and accents are ignored."""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+")
_ACCENTS = re.compile("[\u0300-\u036f]")
_SLICE = 200  # characters
_MAX_WORD_LENGTH = 64  # further characters of a word are ignored
_ASCII = str.maketrans({char: char.lower() if char.isalnum() else " " for char in map(chr, range(128))})


def tokenize(text: str) -> list[str]:
    """Return the words of a text in their order: case-folded runs of letters and digits."""
    if text.isascii():  # three times as fast
        return [word[:_MAX_WORD_LENGTH] for word in text.translate(_ASCII).split()]
    return [word[:_MAX_WORD_LENGTH] for word in _WORD.findall(fold(text))]


def matches(texts: Iterable[str], words: Iterable[str]) -> bool:
    """Return whether each word occurs in one of the texts. Faster than searching the results of `tokenize`."""
    missing = list(words)
    for text in texts:
        folded = fold(text)
        missing = [word for word in missing if not _contains(folded, word)]
        if not missing:
            break  # a title is short, but folding a long content takes milliseconds
    return not missing


def fold(text: str) -> str:
    """Return a text without capitals and accents."""
    if text.isascii():
        return text.lower()
    # Normalizing sorts runs of combining marks in quadratic time. In slices, only the order of marks may differ. That
    # does not matter: accents are removed, and other marks end a word. Case is folded last, because normalizing may
    # produce capitals: "™" becomes "TM".
    slices = (text[start : start + _SLICE] for start in range(0, len(text), _SLICE))
    return _ACCENTS.sub("", "".join(unicodedata.normalize("NFKD", part) for part in slices).casefold())


def _contains(folded: str, word: str) -> bool:
    start = folded.find(word)
    return start >= 0 and _compile_word(word).search(folded, start) is not None


@lru_cache(maxsize=256)
def _compile_word(word: str) -> re.Pattern[str]:
    # One pass, even if the text has it many times within other words.
    end = "" if len(word) == _MAX_WORD_LENGTH else r"(?![^\W_])"
    return re.compile(rf"(?<![^\W_]){re.escape(word)}{end}")
