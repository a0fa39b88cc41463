"""Suggestions for searches without results: a similar spelling that finds something."""

from difflib import SequenceMatcher, get_close_matches

import msgspec

from listings.contract.market import MarketStore
from listings.domain.market import words as market_words
from listings.domain.model import MarketQuery

_MAX_CORRECTED_WORDS = 5
_MAX_SPELLINGS = 300  # words of the listings that are compared with a misspelt one
_MAX_CLOSE_SPELLINGS = 5  # of these, the most frequent one if several are equally similar
_MIN_SIMILARITY = 0.7  # "bycicle" and "bicycle" have 0.71


async def suggest(store: MarketStore, query: MarketQuery) -> str | None:
    """Return the query's text with misspelt words corrected, or None if that finds no listing either."""
    words = market_words.split(query.text)
    corrected = [await _correct(store, it) for it in words[:_MAX_CORRECTED_WORDS]] + words[_MAX_CORRECTED_WORDS:]
    text = " ".join(corrected)
    if corrected == words:
        return None
    return text if await store.search_market(msgspec.structs.replace(query, text=text, limit=1)) else None


async def _correct(store: MarketStore, word: str) -> str:
    """Return the most similar word of the listings, or two that it consists of, or else the word itself."""
    if not market_words.is_correctable(word):
        return word
    counts = dict(await store.find_spellings(market_words.list_similar_skeletons(word), _MAX_SPELLINGS))
    if market_words.fold(word) in map(market_words.fold, counts):
        return word
    similar = get_close_matches(word, counts, _MAX_CLOSE_SPELLINGS, _MIN_SIMILARITY)
    ratios = {it: SequenceMatcher(None, it, word).ratio() for it in similar}
    return max(similar, key=lambda it: (ratios[it], counts[it])) if similar else await _split(store, word)


async def _split(store: MarketStore, word: str) -> str:
    """Return the two words of the listings that a word consists of, or else the word itself."""
    halves = market_words.list_halves(word)
    skeletons = {market_words.build_skeleton(half) for pair in halves for half in pair}
    counts = dict(await store.find_spellings(sorted(skeletons), _MAX_SPELLINGS))
    known = [pair for pair in halves if counts.keys() >= set(pair)]
    return " ".join(max(known, key=lambda pair: min(counts[it] for it in pair))) if known else word
