"""The check of `listings doctor` for this machine's search index."""

import asyncio

from listings import wiring
from listings.cli.check_result import Finding, fault, ok
from listings.domain.errors import Problem
from listings.domain.number_text import format_count
from listings.settings import Settings


def check_search_index(settings: Settings) -> Finding:
    """Compare a sample of listings with the index."""
    rebuild = "Run `listings market rebuild`"
    try:
        found = asyncio.run(wiring.compare_index(settings))
    except Problem:
        return ok("Not checked, because the database can't be read")
    except Exception as error:  # noqa: BLE001 - whatever tantivy raises
        return fault(f"The index can't be read: {error}", rebuild)
    if found is None:
        return ok("There is none yet: a running service builds it")
    if found.different:
        return fault(f"{found.different} of {found.compared} listings differ from the database", rebuild)
    return ok(f"{format_count(found.compared, 'listing')} compared, as in the database")
