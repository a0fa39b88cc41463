"""List and get-one."""

from listings.conform.context import Trial, is_off
from listings.conform.session import LISTINGS, id_of
from listings.conform.suite import Sheet, require
from listings.conform.verdicts import Broken, Prevented

SHEET = Sheet()
_SECTION = "Endpoints"
_LIST = "200-class JSON object with key listings: array of listing records (the caller's active listings)"


@SHEET.add("version-1", "Versioning", "The version is carried in the path prefix /api/v1.")
def there_is_the_path(trial: Trial) -> None:
    """The list's path is known to the server."""
    shown = trial.session.ask("GET")
    if shown.status == 404:  # noqa: PLR2004 - not found
        raise Broken(f"nothing is at {LISTINGS} below the base address; {shown.told}")


@SHEET.add("list-1", _SECTION, _LIST)
def shape_of_the_list(trial: Trial) -> None:
    """An object with an array of objects."""
    shown = trial.session.ask("GET")
    require([shown], lambda answer: answer.succeeded, "a status of the 200 class")
    records = shown.members.get("listings")
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise Broken(f"wanted a JSON object with an array of records as listings; {shown.told}")


@SHEET.add("list-2", _SECTION, _LIST)
def new_listing_is_listed(trial: Trial) -> None:
    """An active listing is there."""
    listing_id = trial.listable
    records = trial.listed()
    if listing_id in ids_of(records):
        return
    if [record for record in records if not _is_of_this_run(trial, record)]:
        raise Prevented(
            "the new listing is not in the list, which holds others and may be one page of more: "
            "give the key of an account that has none"
        )
    raise Broken(
        f"listing {listing_id} is not inactive and not in the list; nothing else is that this run did not make"
    )


@SHEET.add("list-3", _SECTION, _LIST)
def inactive_listing_is_not_listed(trial: Trial) -> None:
    """Neither one that was made inactive nor any other."""
    listing_id = trial.listing()
    paused = trial.attempt("PATCH", f"/{listing_id}", {"is_active": False})
    if not paused.succeeded or not is_off(trial.record(listing_id)):
        raise Prevented(f"no listing could be made inactive: {paused.told}")
    records = trial.listed()
    if listing_id in ids_of(records):
        raise Broken(f"the list has listing {listing_id}, whose is_active is false")
    if any(isinstance(record, dict) and is_off(record) for record in records):
        raise Broken("the list has records whose is_active is false")


@SHEET.add("list-4", _SECTION, _LIST)
def others_do_not_see_it(trial: Trial) -> None:
    """A listing is not in another account's list."""
    other = trial.other
    listing_id = trial.lasting
    if listing_id in ids_of(trial.listed(by=other)):
        raise Broken(f"listing {listing_id} of --key is in the list of --other-key")


@SHEET.add(
    "read-1", _SECTION, "GET | /api/v1/listings/{id} | none; {id} is the integer listing id | JSON listing record"
)
def record_of_the_id(trial: Trial) -> None:
    """Get-one answers with the record that has the id."""
    listing_id = trial.lasting
    read = trial.session.ask("GET", f"/{listing_id}")
    require([read], lambda answer: answer.succeeded, "success")
    if id_of(read.members.get("id")) != listing_id:
        raise Broken(f"wanted the record of listing {listing_id}; {read.told}")


def ids_of(records: list[object]) -> set[str | None]:
    """The ids that a list has."""
    return {id_of(record.get("id")) for record in records if isinstance(record, dict)}


def _is_of_this_run(trial: Trial, record: object) -> bool:
    return isinstance(record, dict) and str(record.get("title")).startswith(trial.session.marker)
