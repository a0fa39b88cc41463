"""Checks of the list and of get-one."""

from listings.conform.context import Context, is_inactive
from listings.conform.session import LISTINGS, parse_id
from listings.conform.suite import Suite, require
from listings.conform.verdicts import Blocked, Failed

SUITE = Suite()
_SECTION = "Endpoints"
_LIST = "200-class JSON object with key listings: array of listing records (the caller's active listings)"


@SUITE.add("version-1", "Versioning", "The version is carried in the path prefix /api/v1.")
def check_path(context: Context) -> None:
    """Require any status but 404 for the list."""
    response = context.session.send("GET")
    if response.status == 404:  # noqa: PLR2004 - not found
        raise Failed(f"there is no {LISTINGS} below the base URL; {response.summary}")


@SUITE.add("list-1", _SECTION, _LIST)
def check_list_shape(context: Context) -> None:
    """Require an object with an array of objects."""
    response = context.session.send("GET")
    require([response], lambda response: response.succeeded, "a 2xx status")
    records = response.members.get("listings")
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise Failed(f"expected a JSON object with an array of records as listings; {response.summary}")


@SUITE.add("list-2", _SECTION, _LIST)
def check_new_listing_is_listed(context: Context) -> None:
    """Require that the list has an active listing."""
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


@SUITE.add("list-3", _SECTION, _LIST)
def check_inactive_is_not_listed(context: Context) -> None:
    """Require that the list has no inactive listings."""
    listing_id = context.create_listing()
    paused = context.send_setup("PATCH", f"/{listing_id}", {"is_active": False})
    if not paused.succeeded or not is_inactive(context.get_record(listing_id)):
        raise Blocked(f"no listing could be paused: {paused.summary}")
    records = context.get_list()
    if listing_id in collect_ids(records):
        raise Failed(f"the list has listing {listing_id}, whose is_active is false")
    if any(isinstance(record, dict) and is_inactive(record) for record in records):
        raise Failed("the list has records whose is_active is false")


@SUITE.add("list-4", _SECTION, _LIST)
def check_list_of_other_account(context: Context) -> None:
    """Require that a listing is not in the other account's list."""
    other = context.other
    listing_id = context.shared_listing
    if listing_id in collect_ids(context.get_list(by=other)):
        raise Failed(f"listing {listing_id} of --key is in the list of --other-key")


@SUITE.add(
    "read-1", _SECTION, "GET | /api/v1/listings/{id} | none; {id} is the integer listing id | JSON listing record"
)
def check_get_one(context: Context) -> None:
    """Require the record with the requested id."""
    listing_id = context.shared_listing
    response = context.session.send("GET", f"/{listing_id}")
    require([response], lambda response: response.succeeded, "success")
    if parse_id(response.members.get("id")) != listing_id:
        raise Failed(f"expected the record of listing {listing_id}; {response.summary}")


def collect_ids(records: list[object]) -> set[str | None]:
    """Return the ids of the records of a list."""
    return {parse_id(record.get("id")) for record in records if isinstance(record, dict)}


def _is_of_this_run(context: Context, record: object) -> bool:
    return isinstance(record, dict) and str(record.get("title")).startswith(context.session.title_prefix)
