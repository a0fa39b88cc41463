"""Checks of the list and of get-one."""

from http import HTTPStatus

from listings.conform.context import Context, is_inactive
from listings.conform.session import LISTINGS, parse_id
from listings.conform.suite import Check, require_success
from listings.conform.verdicts import Blocked, Failed

_SECTION = "Endpoints"
_GET_ONE = "GET | /api/v1/listings/{id} | none; {id} is the integer listing id | JSON listing record"
_LIST = "200-class JSON object with key listings: array of listing records (the caller's active listings)"


def _check_path(context: Context) -> None:
    """Require any status but 404 for the list."""
    response = context.session.send("GET")
    if response.status == HTTPStatus.NOT_FOUND:
        raise Failed(f"there is no {LISTINGS} below the base URL; {response.summary}")


def _check_list_shape(context: Context) -> None:
    response = context.session.send("GET")
    require_success(response, "a 2xx status")
    records = response.members.get("listings")
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise Failed(f"expected a JSON object with an array of records as listings; {response.summary}")


def _check_new_listing_is_listed(context: Context) -> None:
    listing_id = context.active_listing
    records = context.get_list()
    if listing_id in collect_ids(records):
        return
    if [record for record in records if not _is_of_this_run(context, record)]:
        raise Blocked(
            "the new listing is not in the list, but the list has others and may be one page of several: "
            "use the key of an account without listings"
        )
    raise Failed(f"listing {listing_id} is active, but the list has only other listings of this run, or none")


def _check_inactive_is_not_listed(context: Context) -> None:
    listing_id = context.create_listing()
    paused = context.send_setup("PATCH", f"/{listing_id}", {"is_active": False})
    if not paused.succeeded or not is_inactive(context.get_record(listing_id)):
        raise Blocked(f"no listing could be paused: {paused.summary}")
    records = context.get_list()
    if listing_id in collect_ids(records):
        raise Failed(f"the list has listing {listing_id}, whose is_active is false")
    if any(isinstance(record, dict) and is_inactive(record) for record in records):
        raise Failed("the list has records whose is_active is false")


def _check_list_of_other_account(context: Context) -> None:
    other = context.other
    listing_id = context.shared_listing
    if listing_id in collect_ids(context.get_list(by=other)):
        raise Failed(f"listing {listing_id} of --key is in the list of --other-key")


def _check_get_one(context: Context) -> None:
    listing_id = context.shared_listing
    response = context.session.send("GET", f"/{listing_id}")
    require_success(response)
    if response.id != listing_id:
        raise Failed(f"expected the record of listing {listing_id}; {response.summary}")


def collect_ids(records: list[object]) -> set[str | None]:
    """Return the ids of the records of a list."""
    return {parse_id(record.get("id")) for record in records if isinstance(record, dict)}


def _is_of_this_run(context: Context, record: object) -> bool:
    return isinstance(record, dict) and str(record.get("title")).startswith(context.session.title_prefix)


CHECKS = (
    Check("version-1", "Versioning", "The version is carried in the path prefix /api/v1.", _check_path),
    Check("list-1", _SECTION, _LIST, _check_list_shape),
    Check("list-2", _SECTION, _LIST, _check_new_listing_is_listed),
    Check("list-3", _SECTION, _LIST, _check_inactive_is_not_listed),
    Check("list-4", _SECTION, _LIST, _check_list_of_other_account),
    Check("read-1", _SECTION, _GET_ONE, _check_get_one),
)
