"""DELETE: what it answers, and that the listing is closed."""

from listings.conform.context import Trial
from listings.conform.reading import ids_of
from listings.conform.suite import Sheet
from listings.conform.verdicts import Broken, Prevented

SHEET = Sheet()
_STATES = "States and transitions"
_CLOSED = (
    "any | DELETE on the listing | caller owns the listing | closed by soft delete | "
    "the record is not physically removed"
)


@SHEET.add("delete-1", "Endpoints", "DELETE | /api/v1/listings/{id} | none | JSON object with message (string)")
def answer_to_a_delete(trial: Trial) -> None:
    """Success with a message."""
    deleted = trial.session.ask("DELETE", f"/{trial.listing()}")
    if not deleted.succeeded or not isinstance(deleted.members.get("message"), str):
        raise Broken(f"wanted success and a JSON object with a string as message; {deleted.told}")


@SHEET.add("delete-2", _STATES, _CLOSED)
def deleted_listing_is_not_listed(trial: Trial) -> None:
    """What is closed is not among the active listings."""
    listing_id = trial.listing()
    deleted = trial.attempt("DELETE", f"/{listing_id}")
    if not deleted.succeeded:
        raise Prevented(f"no listing could be deleted: {deleted.told}")
    if listing_id in ids_of(trial.listed()):
        raise Broken(f"{deleted.told}, and the list still has it")


@SHEET.add("delete-3", _STATES, _CLOSED)
def inactive_listing_is_deleted(trial: Trial) -> None:
    """Deleting works in any state."""
    listing_id = trial.listing()
    paused = trial.attempt("PATCH", f"/{listing_id}", {"is_active": False})
    if not paused.succeeded:
        raise Prevented(f"no listing could be made inactive: {paused.told}")
    deleted = trial.session.ask("DELETE", f"/{listing_id}")
    if not deleted.succeeded:
        raise Broken(f"wanted an inactive listing to be deleted; {deleted.told}")
