"""The results page of the market: the listings that match a search, and links that change the search."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from listings.domain.market.regions import REGIONS, fold_region
from listings.domain.model import MarketFacets, MarketQuery
from listings.domain.number_text import format_count
from listings.search.analysis import fold_category
from listings.search.results import Counts
from listings.search.schema import FILTERS
from listings.service.market.results import merge_spellings
from listings.site import pages, presentation
from listings.site.context import site_of
from listings.site.pictures.sources import find_sizes
from listings.site.presentation import GROUPS
from listings.site.search import Search
from listings.site.search.highlights import Highlighter
from listings.site.visitor import searching

_FACETS = (
    ("type", "Type", "All types"),
    ("category", "Category", "All categories"),
    ("region", "Region", "All regions"),
)
_MAX_VALUES = 20  # in a facet


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


async def show_results(request: Request, search: Search, template: str = "results.html", **more: object) -> Response:
    """Show the results of a search, with further values for the template."""
    services = site_of(request).services
    async with searching(request):
        facets = await services.market.list_facets()
        category = _map_spellings(facets).get(fold_category(search.category), search.category)
        search = search._replace(category=category, region=fold_region(search.region))
        query, errors = search.query()
        found = await services.market.find(query, is_backwards=search.before is not None)
        words = await services.market.list_frequent_words()
    text, nearest = found.suggestion
    shown = [_build_facet(search, facet, found.counts, facets) for facet in _FACETS]
    chips = list(_list_chips(search, query))
    context: dict[str, Any] = {
        "search": search,
        "errors": errors,
        "chips": chips,
        "filter_count": len(chips) - bool(search.q),
        "entries": found.page.entries,
        "sizes": await find_sizes(request, (entry.image for entry in found.page.entries)),
        "suggested": search.replace(q=text) if text is not None else None,
        "nearest": Search(category=nearest) if nearest is not None and not search.seller else None,
        "now": services.clock(),
        "total": format_total(found.counts, found.left_out),
        "left_out": found.left_out,
        "highlight": Highlighter(found.words),
        "frequent_words": words,
        "facets": [facet for facet in shown if len(facet.options) > 1] if found.counts or not search.seller else [],
    }
    first, after, before = search.first_page(), found.page.next_cursor, found.page.previous_cursor
    context |= {
        "next_url": first._replace(after=(*after, services.restore_id)).url() if after is not None else None,
        "previous_url": first._replace(before=(*before, services.restore_id)).url() if before is not None else None,
    } | more
    return pages.page(request, template, **context)


def format_total(counts: Counts | None, left_out: Sequence[str]) -> str:
    """Return the number of results, or a notice instead of it."""
    if counts is None:
        return "Search is being prepared"
    if left_out:
        return "No listing has all words"
    return format_count(counts.total, "result") if counts.total else "No results"


def _list_chips(search: Search, query: MarketQuery) -> Iterator[Option]:
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


def _build_facet(search: Search, facet: tuple[str, str, str], counts: Counts | None, facets: MarketFacets) -> Facet:
    name, label, no_filter = facet
    known = _map_spellings(facets) if name == "category" else {}
    counted = merge_spellings(counts.values[name] if counts is not None else {}, FILTERS[name])
    listings = {known.get(FILTERS[name](it), it): n for it, n in counted.items()}
    selected: str = getattr(search, name)
    values = _list_values(search, name, listings, facets) | ({selected} - {""})
    options = [Option(no_filter, search.replace(**{name: ""}).url())]
    for value in [it for it in GROUPS if it in values] if name == "type" else presentation.sort_names(list(values)):
        count = listings.get(value, 0)
        text = GROUPS[value] if name == "type" else value
        options.append(Option(text, search.replace(**{name: value}).url(), value, f"{count:,}" if count else ""))
    return Facet(name, label, selected, options)


def _map_spellings(facets: MarketFacets) -> dict[str, str]:  # of the categories on the market, by folded names
    return {fold_category(it): it for it in facets.categories}


def _list_values(search: Search, name: str, listings: Mapping[str, int], facets: MarketFacets) -> set[str]:
    # A category or region that only one listing has is left out, unless it is one of the sixteen regions.
    on_market = {"type": dict.fromkeys(GROUPS, 2), "category": facets.categories, "region": facets.regions}[name]
    counts = listings or ({} if search.q else on_market)
    frequent = sorted(counts, key=lambda value: -counts[value])[:_MAX_VALUES]
    return {it for it in frequent if it in REGIONS or max(counts[it], on_market.get(it, 0)) > 1}
