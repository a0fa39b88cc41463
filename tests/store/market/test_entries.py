"""Terms of the market's entries."""

from listings.domain.model import MarketQuery
from listings.store.market.entries import FIRST_FOLDED_CATEGORIES, INDEX_VERSION, build_query_terms, build_terms
from tests.examples import build_listing


def test_an_entry_is_found_at_its_own_version_and_at_the_current_one() -> None:
    listing = build_listing(title="Hawke's bikes", category="Bikes")
    for version in range(1, INDEX_VERSION + 1):
        terms = set(build_terms(listing, version))
        for asked in (version, INDEX_VERSION):
            assert terms >= set(build_query_terms(MarketQuery(text="Hawke's bikes", category="Bikes"), asked))
    terms = set(build_terms(listing, INDEX_VERSION))
    assert terms >= set(build_query_terms(MarketQuery(category="bike"), INDEX_VERSION))
    assert len(terms) < len(build_terms(listing, FIRST_FOLDED_CATEGORIES - 1))
