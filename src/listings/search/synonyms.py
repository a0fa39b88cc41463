"""The classes of synonyms in `synonyms.txt`, by the singulars of their words."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from importlib.resources import files
from typing import NamedTuple, TypeAlias

from listings.search.words import find_singular, split

Phrases: TypeAlias = Mapping[str, Sequence[tuple[tuple[str, ...], str]]]


class Classes(NamedTuple):
    """The classes of single words, and of phrases by the singular of their first word."""

    words: Mapping[str, tuple[str, ...]]
    phrases: Phrases

    def find_phrases(self, words: Sequence[str], starts: Iterable[int] | None = None) -> Iterator[tuple[int, int, str]]:
        """Yield position, length and class of each phrase in these words that begins at one of the positions."""
        for start in range(len(words)) if starts is None else starts:
            for phrase, name in self.phrases.get(find_singular(words[start]), ()):
                if tuple(map(find_singular, words[start : start + len(phrase)])) == phrase:
                    yield start, len(phrase), name


def _load(text: str) -> tuple[Classes, Classes]:  # in listings, and in searches
    in_listings: dict[tuple[str, ...], list[str]] = defaultdict(list)
    in_searches: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for line in text.splitlines():
        head, arrow, members = line.partition(">")
        if line and line[0] != "#":
            phrases = [tuple(map(find_singular, split(it))) for it in f"{head},{members}".split(",") if it]
            name = "=" + "_".join(phrases[0]) + ("+" if arrow else "")
            for phrase in phrases:
                in_listings[phrase].append(name)
            for phrase in phrases[:1] if arrow else phrases:
                in_searches[phrase].append(name)
    return _build(in_listings), _build(in_searches)


def _build(named: Mapping[tuple[str, ...], Sequence[str]]) -> Classes:
    phrases: dict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
    for singulars, names in named.items():
        if len(singulars) > 1:
            phrases[singulars[0]] += [(singulars, name) for name in dict.fromkeys(names)]
    single = {words[0]: tuple(dict.fromkeys(names)) for words, names in named.items() if len(words) == 1}
    return Classes(single, phrases)


_TEXT = files("listings.search").joinpath("synonyms.txt").read_text("utf-8")
IN_LISTINGS, IN_SEARCHES = _load(_TEXT)
DIGEST = blake2b(_TEXT.encode(), digest_size=4).hexdigest()
"""Identifies the classes: terms with other ones need another index."""
