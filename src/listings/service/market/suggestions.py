"""Suggestions for searches without results: words that find something, and a category."""

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import NamedTuple

import msgspec

from listings.contract.market import MarketStore
from listings.domain.market import words as market_words
from listings.domain.model import MarketQuery, MarketTraits

_MAX_WORDS = 6  # of a search; further ones are left out of the suggestion
_MAX_SAMPLED = 100  # listings with a word; the category of more than half of them is suggested
_MAX_SPELLINGS = 300  # words of the listings that are compared with a misspelt one
_MAX_CLOSE_SPELLINGS = 5  # to choose from, by similarity, and among equals by frequency
_MIN_SIMILARITY = 0.7  # "bycicle" and "bicycle" have 0.71


class Suggestion(NamedTuple):
    """What to try after a search without results. Each is None if there is none."""

    text: str | None  # the search words that occur, with misspelt ones corrected
    category: str | None


async def suggest(store: MarketStore, query: MarketQuery) -> Suggestion:
    """Return a text that finds something with the query's filters, and the category of the rarest word.

    Words that occur in no listing are left out. If words were corrected, but together find nothing, the text is the
    rarest word.
    """
    typed = market_words.split_query(query.text)
    words = typed[:_MAX_WORDS]
    corrected = market_words.split(" ".join([await _correct(store, word) for word in words]))
    matches = {word: await store.list_market_traits(MarketQuery(text=word), _MAX_SAMPLED) for word in corrected}
    known = [word for word in dict.fromkeys(corrected) if matches[word]]
    if not known:
        return Suggestion(None, None)
    rarest = min(known, key=lambda word: len(matches[word]))
    texts = [" ".join(known), rarest] if corrected != words else [" ".join(known)]
    return Suggestion(
        await _choose_text(store, query, [it for it in texts if it != " ".join(typed)]),
        _find_category(matches[rarest]),
    )


def _find_category(listings: Sequence[MarketTraits]) -> str | None:
    """Return the category of most of the listings, or None if they only share a common word, such as "red"."""
    category, count = Counter(it.category for it in listings).most_common(1)[0]
    return category if category and count > len(listings) / 2 else None


async def _choose_text(store: MarketStore, query: MarketQuery, texts: Sequence[str]) -> str | None:
    """Return the first of the texts that finds something with the query's filters."""
    for text in texts:
        if await store.search_market(msgspec.structs.replace(query, text=text, limit=1)):
            return text
    return None


async def _correct(store: MarketStore, word: str) -> str:
    """Return the most similar word of the listings, or two of their words that form `word`, or else `word` itself."""
    if not market_words.is_correctable(word):
        return word
    # The store finds words by their skeleton: without vowels, except at the start, and without repeated letters.
    counts = dict(await store.find_spellings(market_words.list_similar_skeletons(word), _MAX_SPELLINGS))
    if market_words.fold(word) in map(market_words.fold, counts):
        return word
    candidates = [it for it in counts if it[0] == word[0]]  # otherwise, "ring" would be "touring"
    similar = get_close_matches(word, candidates, _MAX_CLOSE_SPELLINGS, _MIN_SIMILARITY)
    ratios = {it: SequenceMatcher(None, it, word).ratio() for it in similar}
    return max(similar, key=lambda it: (ratios[it], counts[it])) if similar else await _split(store, word)


async def _split(store: MarketStore, word: str) -> str:
    """Return two words of the listings that form `word`, or else `word` itself."""
    halves = market_words.list_halves(word)
    skeletons = {market_words.build_skeleton(half) for pair in halves for half in pair}
    counts = dict(await store.find_spellings(sorted(skeletons), _MAX_SPELLINGS))
    known = [pair for pair in halves if counts.keys() >= set(pair)]
    return " ".join(max(known, key=lambda pair: min(counts[it] for it in pair))) if known else word
