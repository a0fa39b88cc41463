"""Writes to listings, and the results of writes and reads, as the store takes and returns them."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple, TypeAlias

from listings.domain.account_limits import AccountSize
from listings.domain.errors import Problem
from listings.domain.model import Listing, ListingChange, NewListing, Revisions

Decide: TypeAlias = Callable[[Listing | None], ListingChange]
"""Receives a listing, or None, inside the transaction. Returns the changes to write, or raises a Problem.

It must be pure, because a store may call it again when it repeats a transaction."""


class IdempotencyRecord(NamedTuple):
    """The idempotency key of a request (decision G36). The first three fields are stored with the result."""

    key: str
    digest: bytes  # SHA-256 of the request
    moment: int  # Unix time in seconds
    oldest: int  # Unix time in seconds; records with an earlier moment are ignored


class AddResult(NamedTuple):
    """The id of the new listing, or of the original one if the idempotency key was already used."""

    listing_id: int
    replayed: bool = False


class AddStep(NamedTuple):
    """Create a listing.

    `require_room` is pure. For a single create, it receives the size that the account has inside the transaction, and
    raises a Problem unless it accepts a further listing.
    """

    new: NewListing
    created_at: str
    require_room: Callable[[AccountSize], None] | None = None


class ChangeStep(NamedTuple):
    """Change a listing."""

    listing_id: int
    decide: Decide


class PutStep(NamedTuple):
    """Change the account's listing with an external id, or create it if there is none."""

    external_id: str
    create: AddStep | Problem  # a Problem if the fields are invalid for a new listing
    decide: Decide


Step: TypeAlias = AddStep | ChangeStep | PutStep | Problem
"""A step of a batch. A Problem is a step that was rejected before the batch; it is also the result of the step."""


class Preview(NamedTuple):
    """The result of a step of a dry run, with the changed attributes before and after it.

    If the step creates a listing, `before` is None, and `after` has all attributes that can be set.
    """

    result: int | Listing
    before: ListingChange | None
    after: ListingChange


StepResult: TypeAlias = int | Listing | Preview | Problem
"""The id of the new listing, the changed listing without its content, or the reason why the step was rejected.

A dry run returns previews while their text has at most `MAX_PREVIEW_CHARACTERS`; later results are not previews."""

MAX_PREVIEW_CHARACTERS = 256 * 1024  # because the whole response is in memory


class BatchOutcome(NamedTuple):
    """The results of the steps, and, with `Batch.require_state`, the id of the account's last change set after them."""

    results: Sequence[StepResult]
    edit_revision: int | None = None


class Batch(NamedTuple):
    """Steps to run in one transaction, in order."""

    steps: Sequence[Step]
    atomic: bool  # roll back everything if a step is rejected
    dry_run: bool  # always roll back
    encode: Callable[[BatchOutcome], str]  # pure; returns the string to store with the idempotency key
    require_state: Callable[[int], None] | None = None  # pure; raises a Problem unless it accepts the edit revision


MAX_LIST_BYTES = 256 * 1024
"""Size up to which `list_listings` and `find_listings` read a list."""

ROW_BYTES = 512
"""Bytes that are counted for a listing in addition to its title, content and image URLs."""


class LargeListError(Exception):
    """A list is too large, or takes too long to find, to be read in one call: use `Store.read_listings`."""


MAX_COUNTED = 1000
"""Number of listings up to which a count is exact. A higher number is reported as `MAX_COUNTED + 1`."""


class ListResult(NamedTuple):
    """The listings that a query finds, and how many match its filters, if it counts them.

    `revisions` are those of the account in the same snapshot. None: those read before are at most a moment older.
    """

    listings: list[Listing]
    total: int | None = None
    revisions: Revisions | None = None


Pieces: TypeAlias = AsyncIterator[list[Listing]]
"""A list in pieces of limited size. A piece can exceed it by up to the size of its first listing."""


class ListStream(NamedTuple):
    """Like `ListResult`, with the listings as a stream of pieces."""

    pieces: Pieces
    total: int | None = None
    revisions: Revisions | None = None


def measure_listings(listings: Sequence[Listing]) -> int:
    """Return the approximate size of a list in bytes. Content that is not ASCII counts 4 bytes per character."""
    return sum(
        [
            ROW_BYTES
            + len(one.title)
            + (len(one.content) if one.content.isascii() else 4 * len(one.content))
            + len(one.images)
            for one in listings
        ]
    )
