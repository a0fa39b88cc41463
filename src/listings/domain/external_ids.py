"""External ids: sellers' own identifiers, unique among an account's listings that are not deleted (decision G43)."""

from listings.domain.errors import Problem
from listings.domain.faults import preview
from listings.domain.model import ImportedListing, Listing, ListingChange


def find_claimed(listing: Listing | None, decision: ImportedListing | ListingChange) -> str | None:
    """Return the external id that a listing has after a create, a restore or a change of its external id.

    Return None if it then has none or is deleted, or if the write is of another kind.
    """
    if isinstance(decision, ImportedListing):
        return decision.new.external_id if decision.deleted_at is None else None
    if listing is None or decision.keys().isdisjoint({"external_id", "deleted_at"}):
        return None
    is_deleted = decision.get("deleted_at", listing.deleted_at) is not None
    claimed = None if is_deleted else decision.get("external_id", listing.external_id)
    return None if claimed is None else str(claimed)


def build_taken_problem(external_id: str, holder: int) -> Problem:
    """Return the error of a write that takes the external id of the listing `holder`."""
    return Problem(
        "external_id_taken",
        f"external_id {preview(external_id)} belongs to listing {holder}: use another one, or change listing {holder} "
        "first",
    )
