"""An example of a listing, for tests of functions that take one."""

import msgspec

from listings.domain.model import Listing, NewListing


def build_listing(**fields: object) -> Listing:
    """Return a stored listing whose fields have their defaults, except for those given."""
    new = msgspec.structs.asdict(NewListing(title="Bicycle", content="Two wheels."))
    state = {"id": 1025, "account_id": 1, "version": 1, "view_count": 0, "deleted_at": None}
    times = dict.fromkeys(("created_at", "updated_at"), "2026-11-21 06:54:32")
    return msgspec.convert({**new, **state, **times, **fields}, Listing)
