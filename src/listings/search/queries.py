"""Queries of the index: the tiers of a search, its filters and its page.

Each word of a search has to match. A tier has the ways in which it may, and each tier includes those before it.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum

from tantivy import FieldType, Occur, Query, Searcher

from listings.domain.model import MarketQuery
from listings.search.analysis import Word, list_halves
from listings.search.schema import EVERY, FILTERS, MAX_KEY, SCHEMA, SERIAL_BITS, filter_term
from listings.search.words import find_stem

_LAST = 2**SERIAL_BITS - 1


class Tier(IntEnum):
    """Where a listing has the searched words, the best first."""

    TITLE = 1  # as typed, or a synonym
    STEM = 2  # in the title
    CATEGORY = 3
    BEGINNING = 4  # which begins a word in the title
    TEXT = 5
    SELLER = 6  # its name


def build_tier(searched: Sequence[Word], tier: Tier) -> Query:
    """Return the query of a tier. Up to `BEGINNING`, words may be in the place if another one is not."""
    each = [_build_word(word, tier) for word in searched]
    if tier > Tier.BEGINNING or len(each) == 1:
        return all_of(each)
    placed = [any_of([it, term("title", f",{word.stem}")]) for it, word in zip(each, searched, strict=True)]
    return all_of([*placed, any_of(each)])


def build_match(searched: Sequence[Word]) -> Query:
    """Return the query of everything that a search finds."""
    if not searched:
        return term("all", EVERY)
    ways = build_tier(searched, Tier.SELLER)
    number = searched[0].text if len(searched) == 1 else ""
    return any_of([ways, term("all", f"#{number}")]) if number.isdigit() else ways


def build_filters(query: MarketQuery, *, without: str = "") -> list[Query]:
    """Return the conditions of a query's filters, except for one of them."""
    values = {name: getattr(query, name) for name in FILTERS if name != without}
    found = [term("all", filter_term(name, value)) for name, value in values.items() if value is not None]
    if query.account_id is not None:
        found.append(term_of_account(query.account_id))
    if query.price_min is not None or query.price_max is not None:
        lowest, highest = max(query.price_min or 0, 0), MAX_KEY if query.price_max is None else query.price_max
        found.append(
            between("price", min(lowest << SERIAL_BITS, MAX_KEY), min(highest << SERIAL_BITS | _LAST, MAX_KEY))
        )
    return found


def find_halves(searcher: Searcher, searched: Sequence[Word]) -> list[Word]:
    """Return the words with the halves that they consist of, if both occur in titles."""
    found = []
    for word in searched:
        counts = {
            pair: min(searcher.doc_freq("title", f"~{find_stem(half)}") for half in pair)
            for pair in list_halves(word.text)
        }
        best = max(counts, key=counts.__getitem__, default=())
        found.append(word._replace(halves=best) if best and counts[best] else word)
    return found


def term(field: str, value: str) -> Query:
    """Return the query of a term."""
    return Query.term_query(SCHEMA, field, value, index_option="basic")


def between(field: str, lowest: int, highest: int) -> Query:
    """Return the query of a range of numbers, both included."""
    if lowest > highest or highest < 0:
        return Query.empty_query()
    return Query.range_query(SCHEMA, field, FieldType.Unsigned, lowest, highest)


def all_of(queries: Sequence[Query], without: Query | None = None) -> Query:
    """Return the query of what all queries find, and `without` does not."""
    if len(queries) == 1 and without is None:
        return queries[0]
    excluded = [(Occur.MustNot, without)] if without is not None else []
    return Query.boolean_query([*((Occur.Must, query) for query in queries), *excluded])


def any_of(queries: Sequence[Query]) -> Query:
    """Return the query of what any query finds."""
    return queries[0] if len(queries) == 1 else Query.boolean_query([(Occur.Should, query) for query in queries])


def numbers(field: str, values: Iterable[int]) -> Query | None:
    """Return the query of some values of a field, or None if there are none."""
    found = list(values)
    return Query.term_set_query(SCHEMA, field, found) if found else None


def term_of_account(account_id: int) -> Query:
    """Return the query of the listings of an account."""
    return Query.term_query(SCHEMA, "account", account_id)


def _build_word(word: Word, tier: Tier) -> Query:
    if tier >= Tier.TEXT:
        stems = {word.stem, *word.classes, *map(find_stem, word.joined)}
        ways = [*(term("all", it) for it in stems), term("title", f"^{word.text}")]
    else:
        ways = [term("title", it) for it in _list_title_terms(word, tier)]
    if tier == Tier.SELLER:
        ways.append(term("all", f"@{word.text}"))
    if word.halves and tier >= Tier.STEM:
        ways.append(all_of([term("title", f"~{find_stem(half)}") for half in word.halves]))
    if word.parts:
        ways.append(all_of([_build_word(part, tier) for part in word.parts]))
    return any_of(ways)


def _list_title_terms(word: Word, tier: Tier) -> set[str]:
    found = {word.text, *word.classes, *word.joined}
    if tier >= Tier.STEM:
        found.update(f"~{stem}" for stem in (word.stem, *map(find_stem, word.joined)))
    if tier >= Tier.CATEGORY:
        found.update(f"%{it}" for it in (word.stem, *word.classes))
    if tier >= Tier.BEGINNING:
        found.add(f"^{word.text}")
    return found
