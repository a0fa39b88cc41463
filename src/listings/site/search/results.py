"""The results page of the market: the listings that match a search, and links that change the search."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from listings.contract.listings import MAX_COUNTED
from listings.domain.market.regions import REGIONS, fold_region
from listings.domain.market.words import fold_category
from listings.domain.model import MarketFacets, MarketQuery
from listings.service import Services
from listings.service.market.results import FacetCounts, MarketPage
from listings.site import pages, presentation
from listings.site.context import site_of
from listings.site.presentation import GROUPS
from listings.site.search import Search

_FACETS = (
    ("type", "Type", "All types"),
    ("category", "Category", "All categories"),
    ("region", "Region", "All regions"),
)
_MAX_VALUES = 20  # of a facet
_COUNT_LIMIT = 100  # beyond it, a value's count is "100+"


class Option(NamedTuple):
    """A link that changes the search: the value of a filter, or a chip that removes one. `number` may be empty."""

    label: str
    url: str
    value: str = ""
    number: str = ""


class Facet(NamedTuple):
    """A filter and its values. The first value removes the filter."""

    name: str
    label: str
    selected: str
    options: list[Option]


async def show_results(request: Request, search: Search) -> Response:
    """Show the results of a search."""
    services = site_of(request).services
    facets = await services.market.list_facets()
    category = _map_spellings(facets).get(fold_category(search.category), search.category)
    search = search._replace(category=category, region=fold_region(search.region))
    query, errors = search.query()
    found = await services.market.find(query, is_backwards=search.before is not None)
    shown = [_build_facet(search, facet, found.facets[facet[0]], facets) for facet in _FACETS]
    context: dict[str, Any] = {
        "search": search,
        "errors": errors,
        "chips": list(_list_chips(search, query)),
        "entries": found.page.entries,
        **(await _suggest(services, search, query) if not found.page.entries and search.after is None else {}),
        "now": services.clock(),
        "total": presentation.format_bounded_count(found.total, "result", MAX_COUNTED),
        "facets": [facet for facet in shown if len(facet.options) > 1],
    }
    return pages.page(request, "results.html", **context, **_link_pages(search, found.page))


async def _suggest(services: Services, search: Search, query: MarketQuery) -> dict[str, Search | None]:
    """Return the searches to suggest: with corrected words, and in the nearest category."""
    text, category = await services.market.suggest(query)
    return {
        "suggested": search.replace(q=text) if text is not None else None,
        "nearest": Search(category=category) if category is not None else None,
    }


def _link_pages(search: Search, page: MarketPage) -> dict[str, Any]:
    first, after, before = search.first_page(), page.next_cursor, page.previous_cursor
    return {
        "next_url": first._replace(after=after).url() if after is not None else None,
        "previous_url": first._replace(before=before).url() if before is not None else None,
    }


def format_facet_count(count: int, *, is_complete: bool) -> str:
    """Return a count such as "7" or "100+". A count that is not complete is a minimum, such as "7+"."""
    if count > _COUNT_LIMIT:
        return f"{_COUNT_LIMIT}+"
    return str(count) if is_complete else f"{count}+"


def _list_chips(search: Search, query: MarketQuery) -> Iterator[Option]:
    """Return a link for each part of the search. It leads to the search without that part."""
    for name, label in (
        ("q", f"“{search.q}”"),
        ("type", GROUPS.get(search.type, "")),
        ("category", search.category),
        ("region", search.region),
    ):
        if getattr(search, name):
            yield Option(label, search.replace(**{name: ""}).url())
    if query.price_min is not None or query.price_max is not None:
        url = search.replace(price_min="", price_max="").url()
        yield Option(presentation.format_price_range(query.price_min, query.price_max), url)


def _build_facet(search: Search, facet: tuple[str, str, str], counts: FacetCounts, facets: MarketFacets) -> Facet:
    """Return a facet with the values that occur most often, and the selected one."""
    name, label, no_filter = facet
    listings = _use_common_spellings(name, counts, facets)
    selected: str = getattr(search, name)
    values = _list_values(search, name, counts._replace(listings=listings), facets) | ({selected} - {""})
    options = [Option(no_filter, search.replace(**{name: ""}).url())]
    for value in _sort(name, values):
        count = listings.get(value, 0)
        options.append(
            Option(
                GROUPS[value] if name == "type" else value,
                search.replace(**{name: value}).url(),
                value,
                format_facet_count(count, is_complete=counts.is_complete) if count else "",
            )
        )
    return Facet(name, label, selected, options)


def _use_common_spellings(name: str, counts: FacetCounts, facets: MarketFacets) -> dict[str, int]:
    """Return the counts with the spellings of the market's categories."""
    if name != "category":
        return dict(counts.listings)
    known = _map_spellings(facets)
    return {known.get(fold_category(value), value): number for value, number in counts.listings.items()}


def _map_spellings(facets: MarketFacets) -> dict[str, str]:
    """Return the most frequent spelling of each category of the market by its folded name."""
    return {fold_category(it): it for it in facets.categories}


def _list_values(search: Search, name: str, counts: FacetCounts, facets: MarketFacets) -> set[str]:
    """Return the values of a facet: those that occur most often, and others that may occur.

    A category or region of a single listing is left out, unless it is one of the sixteen regions. Others may occur if
    the counts are incomplete. They are added if the market has only a few.
    """
    on_market = {"type": dict.fromkeys(GROUPS, 2), "category": facets.categories, "region": facets.regions}[name]
    frequent = sorted(counts.listings, key=lambda value: -counts.listings[value])[:_MAX_VALUES]
    values = {it for it in frequent if it in REGIONS or max(counts.listings[it], on_market.get(it, 0)) > 1}
    others = {it for it, number in on_market.items() if it in REGIONS or number > 1}
    if name == "category" and search.type:
        others = set()  # most categories belong to one type
    if not counts.is_complete and len(others) <= _MAX_VALUES:
        values |= others
    return values


def _sort(name: str, values: set[str]) -> list[str]:
    return [it for it in GROUPS if it in values] if name == "type" else presentation.sort_names(list(values))
