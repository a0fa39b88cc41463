"""Checks of DELETE: its response, and that the listing is closed."""

from listings.conform.context import Context
from listings.conform.reading import collect_ids
from listings.conform.suite import Check, require_message, require_success
from listings.conform.verdicts import Blocked, Failed

_STATES = "States and transitions"
_ROW = "DELETE | /api/v1/listings/{id} | none | JSON object with message (string)"
_CLOSED = (
    "any | DELETE on the listing | caller owns the listing | closed by soft delete | "
    "the record is not physically removed"
)


def _check_response(context: Context) -> None:
    require_message(context.session.send("DELETE", f"/{context.create_listing()}"))


def _check_deleted_is_not_listed(context: Context) -> None:
    listing_id = context.create_listing()
    deleted = context.send_setup("DELETE", f"/{listing_id}")
    if not deleted.succeeded:
        raise Blocked(f"no listing could be deleted: {deleted.summary}")
    if listing_id in collect_ids(context.get_list()):
        raise Failed(f"{deleted.summary}, and the list still has the listing")


def _check_delete_of_inactive(context: Context) -> None:
    listing_id = context.create_listing()
    paused = context.send_setup("PATCH", f"/{listing_id}", {"is_active": False})
    if not paused.succeeded:
        raise Blocked(f"no listing could be paused: {paused.summary}")
    require_success(context.session.send("DELETE", f"/{listing_id}"), "an inactive listing to be deleted")


CHECKS = (
    Check("delete-1", "Endpoints", _ROW, _check_response),
    Check("delete-2", _STATES, _CLOSED, _check_deleted_is_not_listed),
    Check("delete-3", _STATES, _CLOSED, _check_delete_of_inactive),
)
