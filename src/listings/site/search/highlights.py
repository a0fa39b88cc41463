"""Mark the searched words in titles, and find the part of a description that has them."""

from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup, escape

from listings.search.analysis import Word, find_positions

_BEFORE, _LENGTH = 40, 160  # characters of an excerpt
_MAX_READ = 5_000  # from the start of a long description


class Highlighter:
    """Marks the words of one search."""

    def __init__(self, words: Sequence[Word]) -> None:
        self._words = words

    def mark(self, text: str) -> Markup:
        """Return a string as HTML with the searched words marked."""
        return self._mark(text, find_positions(text, self._words) if self._words else [])

    def excerpt(self, title: str, content: str) -> Markup | None:
        """Return the part of a description with the first word of the search, unless the title has one."""
        if not self._words or find_positions(title, self._words):
            return None
        content = content[:_MAX_READ]
        found = find_positions(content, self._words)
        if not found:
            return None
        start = content.rfind(" ", 0, max(found[0][0] - _BEFORE, 0)) + 1
        end = max(start + _LENGTH, found[0][1])
        part = content[start:end] if end >= len(content) else content[start:end].rpartition(" ")[0]
        positions = [(first - start, last - start) for first, last in found if last - start <= len(part)]
        marked = self._mark(part, positions)
        return Markup("…" if start else "") + marked + Markup("…" if start + len(part) < len(content) else "")  # noqa: S704 - no text of a user

    def _mark(self, text: str, positions: Sequence[tuple[int, int]]) -> Markup:
        pieces: list[Markup] = []
        for (_, before), (first, last) in pairwise([(0, 0), *positions]):
            pieces += [escape(text[before:first]), Markup("<mark>"), escape(text[first:last]), Markup("</mark>")]
        end = positions[-1][1] if positions else 0
        return Markup("").join([*pieces, escape(text[end:])])
