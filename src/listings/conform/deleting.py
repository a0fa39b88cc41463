"""Checks of DELETE: its response, and that the listing is closed."""

from listings.conform.context import Context
from listings.conform.reading import collect_ids
from listings.conform.suite import Suite
from listings.conform.verdicts import Blocked, Failed

SUITE = Suite()
_STATES = "States and transitions"
_CLOSED = (
    "any | DELETE on the listing | caller owns the listing | closed by soft delete | "
    "the record is not physically removed"
)


@SUITE.add("delete-1", "Endpoints", "DELETE | /api/v1/listings/{id} | none | JSON object with message (string)")
def check_delete_response(context: Context) -> None:
    """Require success and a message."""
    deleted = context.session.send("DELETE", f"/{context.create_listing()}")
    if not deleted.succeeded or not isinstance(deleted.members.get("message"), str):
        raise Failed(f"expected success and a JSON object with a string as message; {deleted.summary}")


@SUITE.add("delete-2", _STATES, _CLOSED)
def check_deleted_is_not_listed(context: Context) -> None:
    """Require that the list no longer has the listing."""
    listing_id = context.create_listing()
    deleted = context.send_setup("DELETE", f"/{listing_id}")
    if not deleted.succeeded:
        raise Blocked(f"no listing could be deleted: {deleted.summary}")
    if listing_id in collect_ids(context.get_list()):
        raise Failed(f"{deleted.summary}, and the list still has the listing")


@SUITE.add("delete-3", _STATES, _CLOSED)
def check_delete_of_inactive(context: Context) -> None:
    """Require that an inactive listing can be deleted."""
    listing_id = context.create_listing()
    paused = context.send_setup("PATCH", f"/{listing_id}", {"is_active": False})
    if not paused.succeeded:
        raise Blocked(f"no listing could be paused: {paused.summary}")
    deleted = context.session.send("DELETE", f"/{listing_id}")
    if not deleted.succeeded:
        raise Failed(f"expected an inactive listing to be deleted; {deleted.summary}")
