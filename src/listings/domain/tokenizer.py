"""Split text into search words. Case and accents are ignored."""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+")
_ACCENTS = re.compile("[\u0300-\u036f]")
_MAX_WORD_LENGTH = 64  # further characters of a word are ignored


def tokenize(text: str) -> list[str]:
    """Return the words of a text in their order: case-folded runs of letters and digits."""
    return [word[:_MAX_WORD_LENGTH] for word in _WORD.findall(_fold(text))]


def matches(texts: Iterable[str], words: Iterable[str]) -> bool:
    """Return whether each word occurs in one of the texts. Faster than searching the results of `tokenize`."""
    missing = list(words)
    for text in texts:
        folded = _fold(text)
        missing = [word for word in missing if not _contains(folded, word)]
        if not missing:
            break  # a title is short, but folding a long content takes milliseconds
    return not missing


def _fold(text: str) -> str:
    # Normalizing comes first, because it may produce capitals: "™" becomes "TM".
    return text.lower() if text.isascii() else _ACCENTS.sub("", unicodedata.normalize("NFKD", text).casefold())


def _contains(folded: str, word: str) -> bool:
    start = folded.find(word)
    return start >= 0 and _compile_word(word).search(folded, start) is not None


@lru_cache(maxsize=256)
def _compile_word(word: str) -> re.Pattern[str]:
    """Compile a pattern that finds a whole word in one pass, even if the text has it many times within other words."""
    end = "" if len(word) == _MAX_WORD_LENGTH else r"(?![^\W_])"
    return re.compile(rf"(?<![^\W_]){re.escape(word)}{end}")
