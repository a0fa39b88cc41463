"""The conditions of a seller's writes, and the steps of their transactions."""

from collections.abc import Callable
from typing import NamedTuple

from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.domain.history import ChangeGroup
from listings.domain.listings import AddStep, ChangeStep, IdempotencyRecord, PutStep, Step
from listings.domain.model import Caller, Listing, ListingChange, NewListing
from listings.store.store import Store

IDEMPOTENCY_SECONDS = timestamps.DAY_SECONDS


class StateCondition(NamedTuple):
    """The edit revisions of the account at which a batch is accepted (If-Match)."""

    edit_revisions: frozenset[int] | None  # None: any

    def require(self, edit_revision: int) -> None:
        """Raise Problem("precondition_failed") unless the batch is accepted at `edit_revision`."""
        if self.edit_revisions is not None and edit_revision not in self.edit_revisions:
            raise Problem(
                "precondition_failed",
                "Your listings do not match If-Match: read the list again and send its current ETag, including the"
                " quotes",
            )


class Version(NamedTuple):
    """A version of a listing since a restore, because the numbers of lost versions are used again."""

    restore_id: str
    number: int


class WriteOptions(NamedTuple):
    """Conditions and modes of a write."""

    versions: frozenset[Version] | None = None  # acceptable versions of the listing; None: any
    dry_run: bool = False  # validate, but store nothing
    idempotency_key: str | None = None
    digest: bytes = b""  # SHA-256 of the request with this idempotency key
    state: StateCondition | None = None  # of a batch
    excluded: frozenset[Version] | None = (
        frozenset()
    )  # versions at which the write is rejected (If-None-Match); None: all
    group: ChangeGroup | None = None  # of the change set

    def require_version(self, version: Version) -> None:
        """Raise Problem("precondition_failed") unless the conditions accept this version of the listing."""
        if self.versions is not None and version not in self.versions:
            raise Problem(
                "precondition_failed",
                "The listing does not match If-Match: read it again and send its current ETag, including the quotes",
            )
        if self.excluded is None or version in self.excluded:
            raise Problem(
                "precondition_failed",
                "The listing matches If-None-Match: remove the header, or send If-Match with the version to change",
            )


DEFAULT_WRITE_OPTIONS = WriteOptions()


class Steps:
    """Builds the steps of batches. Each step checks ownership and versions inside the transaction."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    def create(self, new: NewListing) -> Step:
        return AddStep(new, timestamps.format_timestamp(self._clock()))

    def update(
        self,
        caller: Caller,
        listing_id: int,
        change: ListingChange | Problem,
        options: WriteOptions = DEFAULT_WRITE_OPTIONS,
    ) -> ChangeStep:
        now = timestamps.format_timestamp(self._clock())

        def decide(listing: Listing | None) -> ListingChange:
            own = require_own_undeleted(listing, caller)
            if isinstance(change, Problem):
                raise change
            return find_changes(self._require_version(own, options), change, now)

        return ChangeStep(listing_id, decide)

    def put(
        self,
        caller: Caller,
        external_id: str,
        new: NewListing | Problem,
        change: ListingChange | Problem,
        options: WriteOptions = DEFAULT_WRITE_OPTIONS,
    ) -> PutStep:
        """Return the batch step that updates the caller's listing with an external id, or else creates it."""
        create = new if isinstance(new, Problem) else AddStep(new, timestamps.format_timestamp(self._clock()))
        return PutStep(external_id, create, self.update(caller, 0, change, options).decide)

    def delete(self, caller: Caller, listing_id: int, options: WriteOptions = DEFAULT_WRITE_OPTIONS) -> ChangeStep:
        now = self._clock()

        def decide(listing: Listing | None) -> ListingChange:
            return build_deletion(self._require_version(require_own_undeleted(listing, caller), options), now)

        return ChangeStep(listing_id, decide)

    def restore(self, caller: Caller, listing_id: int, options: WriteOptions = DEFAULT_WRITE_OPTIONS) -> ChangeStep:
        now = timestamps.format_timestamp(self._clock())

        def decide(listing: Listing | None) -> ListingChange:
            own = self._require_version(require_own(listing, caller), options)
            return find_changes(own, {"deleted_at": None}, now)

        return ChangeStep(listing_id, decide)

    def _require_version(self, listing: Listing, options: WriteOptions) -> Listing:
        options.require_version(Version(self._store.restore_id, listing.version))
        return listing


def build_idempotency_record(options: WriteOptions, now: int) -> IdempotencyRecord | None:
    """Return the record of an idempotency key, which is valid for a day. Return None without a key."""
    if options.idempotency_key is None:
        return None
    return IdempotencyRecord(options.idempotency_key, options.digest, now, now - IDEMPOTENCY_SECONDS + 1)


def find_changes(listing: Listing, change: ListingChange, now: str) -> ListingChange:
    """Return the values of `change` that differ from the listing and, if there are any, its new updated_at.

    updated_at never decreases (decision G7).
    """
    changed = {name: value for name, value in change.items() if getattr(listing, name) != value}
    if changed:
        changed["updated_at"] = max(now, listing.updated_at)
    return changed


def build_deletion(listing: Listing, now: float) -> ListingChange:
    """Return the changes that soft-delete a listing, or none if it is already deleted."""
    if listing.deleted_at is not None:
        return {}
    return find_changes(listing, {"is_active": False, "deleted_at": int(now)}, timestamps.format_timestamp(now))


def require_own_undeleted(listing: Listing | None, caller: Caller) -> Listing:
    """Return a listing if it exists, is the caller's, and is not deleted, checked in this order (G11 and G21)."""
    own = require_own(listing, caller)
    if own.deleted_at is not None:
        raise Problem("listing_not_found", "Listing not found")
    return own


def require_own(listing: Listing | None, caller: Caller) -> Listing:
    """Return a listing if it exists and is the caller's, deleted or not."""
    if listing is None:
        raise Problem("listing_not_found", "Listing not found")
    if listing.account_id != caller.account_id:
        raise Problem("not_owner", "This listing belongs to another account")
    return listing
