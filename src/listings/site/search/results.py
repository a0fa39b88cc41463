"""The results page of the market: the listings that match a search, and links that change the search."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from listings.domain.model import MarketFacets, MarketQuery
from listings.service import Services
from listings.service.market.results import MAX_COUNTED, FacetCounts, MarketPage
from listings.site import pages, presentation
from listings.site.context import site_of
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
    query, errors = search.query()
    found = await services.market.find(query, is_backwards=search.before is not None)
    places = await services.market.list_facets()
    context: dict[str, Any] = {
        "search": search,
        "errors": errors,
        "chips": list(_list_chips(search, query)),
        "entries": found.page.entries,
        "suggested": await _suggest(services, search, query) if not found.page.entries else None,
        "now": services.clock(),
        "total": format_total(found.total),
        "facets": [_build_facet(search, facet, found.facets[facet[0]], places) for facet in _FACETS],
    }
    return pages.page(request, "results.html", **context, **_link_pages(search, found.page))


async def _suggest(services: Services, search: Search, query: MarketQuery) -> Search | None:
    """Return the search with misspelt words corrected, or None if that finds nothing either."""
    text = await services.market.suggest(query)
    return search.replace(q=text) if text is not None else None


def _link_pages(search: Search, page: MarketPage) -> dict[str, Any]:
    first, after, before = search.first_page(), page.next_cursor, page.previous_cursor
    return {
        "next_url": first._replace(after=after).url() if after is not None else None,
        "previous_url": first._replace(before=before).url() if before is not None else None,
    }


def format_total(total: int) -> str:
    """Return the number of results, such as "1 result" or "Over 1,000 results"."""
    if total > MAX_COUNTED:
        return f"Over {MAX_COUNTED:,} results"
    return presentation.format_count(total, "result")


def format_facet_count(count: int, *, is_complete: bool) -> str:
    """Return a count such as "7" or "100+". A count that is not complete is a minimum, such as "7+"."""
    if count > _COUNT_LIMIT:
        return f"{_COUNT_LIMIT}+"
    return str(count) if is_complete else f"{count}+"


def _list_chips(search: Search, query: MarketQuery) -> Iterator[Option]:
    """Return a link for each part of the search. It leads to the search without that part."""
    for name, label in (
        ("q", f"“{search.q}”"),
        ("type", presentation.GROUPS.get(search.type, "")),
        ("category", search.category),
        ("region", search.region),
    ):
        if getattr(search, name):
            yield Option(label, search.replace(**{name: ""}).url())
    if query.price_min is not None or query.price_max is not None:
        url = search.replace(price_min="", price_max="").url()
        yield Option(presentation.format_price_range(query.price_min, query.price_max), url)


def _build_facet(search: Search, facet: tuple[str, str, str], counts: FacetCounts, places: MarketFacets) -> Facet:
    """Return a facet with the values that occur most often, in alphabetical order, and the selected one."""
    name, label, no_filter = facet
    selected: str = getattr(search, name)
    values = _list_values(search, name, counts, places)
    options = [Option(no_filter, search.replace(**{name: ""}).url())]
    for value in values:
        count = counts.listings.get(value, 0)
        options.append(
            Option(
                presentation.GROUPS[value] if name == "type" else value,
                search.replace(**{name: value}).url(),
                value,
                format_facet_count(count, is_complete=counts.is_complete) if count else "",
            )
        )
    return Facet(name, label, selected, options)


def _list_values(search: Search, name: str, counts: FacetCounts, places: MarketFacets) -> list[str]:
    """Return the values of a facet: those that occur most often, the selected one, and others that may occur.

    Others may occur if the counts are incomplete. They are added if the market has only a few.
    """
    values = set(sorted(counts.listings, key=lambda value: -counts.listings[value])[:_MAX_VALUES])
    others = {
        "type": list(presentation.GROUPS),
        "category": [] if search.type else list(places.categories),  # most categories belong to one type
        "region": list(places.regions),
    }[name]
    if not counts.is_complete and len(others) <= _MAX_VALUES:
        values.update(others)
    if getattr(search, name):
        values.add(getattr(search, name))
    order = list(presentation.GROUPS) if name == "type" else presentation.sort_names(list(values))
    return [value for value in order if value in values]
