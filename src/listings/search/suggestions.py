"""What to try when a search finds nothing: fewer words, words with a similar spelling, a category. Runs in a thread."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from tantivy import Query

from listings.domain.model import MarketQuery
from listings.search import words
from listings.search.analysis import Word
from listings.search.queries import Tier, all_of, build_tier, numbers, term
from listings.search.reader import View
from listings.search.results import BY_RANK, Hit, Search
from listings.search.schema import SCHEMA

MIN_LISTINGS = 3  # with a word or a category that is suggested, and at least two sellers of the word
_MAX_WORDS = 6  # that are searched for; further ones are left out
_MAX_SAMPLED = 100  # listings with a similar word
_SHORT = 5  # letters; in longer words, two may be wrong
_MIN_CORRECTABLE = 3
_MIN_FREQUENT = 4
_MAX_FREQUENT = 60


def find_partial(search: Search) -> list[str] | None:
    """Return the words of the best search for some of the words, or None if none of them finds anything."""
    found = [word for word in search.words[:_MAX_WORDS] if _has_hits(search, [word], Tier.SELLER)]
    if len(found) < len(search.words) and found and _has_hits(search, found, Tier.SELLER):
        return [word.text for word in found]
    for size in range(len(found) - 1, 0, -1):
        ranked = [(_rank_words(search, it), it) for it in combinations(found, size)]
        usable = [it for it in ranked if it[0] is not None]
        if usable:
            return [word.text for word in min(usable, key=lambda it: it[0] or 0)[1]]
    return None


def list_unknown(search: Search) -> list[Word]:
    """Return the words of letters that find nothing in the whole market."""
    everywhere = Search(search.view, MarketQuery(text=search.query.text), search.excluded)
    return [
        word
        for word in everywhere.words[:_MAX_WORDS]
        if word.text.isalpha() and len(word.text) >= _MIN_CORRECTABLE and not _has_hits(everywhere, [word], Tier.SELLER)
    ]


def find_similar(search: Search, word: Word) -> list[Hit]:
    """Return listings whose titles have a word with a similar spelling."""
    everywhere = Search(search.view, MarketQuery(), search.excluded)
    fuzzy = Query.fuzzy_term_query(SCHEMA, "title", word.text, _max_distance(word.text))
    return everywhere.find([fuzzy], BY_RANK, _MAX_SAMPLED)


def choose_spelling(search: Search, word: Word, titles: Iterable[str]) -> str | None:
    """Return the most frequent similar word of titles that enough listings have."""
    limit = _max_distance(word.text)
    near = Counter(
        it
        for title in titles
        for it in set(words.split(title))
        if it.isalpha() and it != word.text and measure_distance(it, word.text, limit) <= limit
    )
    return next((it for it, _ in near.most_common() if is_common(search.view, it, search.excluded)), None)


def is_common(view: View, word: str, excluded: Sequence[int]) -> bool:
    """Return whether three listings of two sellers have a word in the title."""
    search = Search(view, MarketQuery(), excluded)
    hits = search.find_many([term("title", word)], BY_RANK, MIN_LISTINGS)
    if len(hits) < MIN_LISTINGS:
        return False
    accounts = {hit.account_id for hit in hits}
    others = all_of([term("title", word)], numbers("account", accounts))
    return len(accounts) > 1 or bool(search.find([others], BY_RANK, 1))


def list_categories(search: Search) -> Mapping[str, int]:
    """Return the categories of the listings with the rarest word in the title or the category."""
    counted: list[Mapping[str, int]] = []
    for word in search.words[:_MAX_WORDS]:
        one = Search(search.view, MarketQuery(text=word.text), search.excluded)
        found = one.count_tier(Tier.CATEGORY)
        counted += [found] if found else []
    return min(counted, key=lambda it: sum(it.values())) if counted else {}


def list_frequent_words(view: View, excluded: Sequence[int]) -> list[str]:
    """Return the most frequent words of titles."""
    counts = dict[str, int]()
    for letter in "abcdefghijklmnopqrstuvwxyz":
        counts |= dict(view.searcher.terms_with_prefix("title", letter, limit=_MAX_FREQUENT))
    frequent = sorted((it for it in counts if len(it) >= _MIN_FREQUENT and it.isalpha()), key=lambda it: -counts[it])
    return [it for it in frequent[: 2 * _MAX_FREQUENT] if is_common(view, it, excluded)][:_MAX_FREQUENT]


def measure_distance(one: str, other: str, limit: int) -> int:
    """Return how many letters differ, are missing or swapped with the next one, or a number above the limit."""
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    before, row = list[int](), list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        earlier, before, row = before, row, [number]
        for at, it in enumerate(other, 1):
            cost = min(before[at] + 1, row[-1] + 1, before[at - 1] + (letter != it))
            if number > 1 < at and letter == other[at - 2] and one[number - 2] == it:
                cost = min(cost, earlier[at - 2] + 1)
            row.append(cost)
    return row[-1]


def _max_distance(word: str) -> int:
    return 1 if len(word) <= _SHORT else 2


def _has_hits(search: Search, found: Sequence[Word], tier: Tier) -> bool:
    return bool(search.find_many([build_tier(found, tier)], BY_RANK, 1))


def _rank_words(search: Search, found: Sequence[Word]) -> int | None:
    return next((int(tier) for tier in Tier if _has_hits(search, found, tier)), None)
