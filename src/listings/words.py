"""Words of a text, as a search finds them: case and accents don't matter. Pure."""

import re
import unicodedata
from collections.abc import Iterable

_WORD = re.compile(r"[^\W_]+")
_ACCENTS = re.compile("[\u0300-\u036f]")
_LONGEST = 64  # characters of a word that count


def words_of(text: str) -> list[str]:
    """The words in their order: runs of letters and digits, folded."""
    folded = text.lower() if text.isascii() else _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold()))
    return [word[:_LONGEST] for word in _WORD.findall(folded)]


def contain(texts: Iterable[str], sought: Iterable[str]) -> bool:
    """Whether each sought word is a word of one of the texts."""
    return {word for text in texts for word in words_of(text)}.issuperset(sought)
