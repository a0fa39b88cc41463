"""The store of listings, and its types."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol, TypeAlias

from listings.contract.history import Actor
from listings.domain.account_limits import AccountLimits
from listings.domain.errors import Problem
from listings.domain.model import Listing, ListingChange, ListingCounts, ListingQuery, NewListing

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
    """Create a listing."""

    new: NewListing
    created_at: str


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
    """A list is too large, or takes too long to find, to be read in one call: use `ListingStore.read_listings`."""


MAX_COUNTED = 1000
"""Number of listings up to which a count is exact. A higher number is reported as `MAX_COUNTED + 1`."""


class Found(NamedTuple):
    """The listings that a query finds, and how many match its filters, if it counts them."""

    listings: list[Listing]
    total: int | None = None


Pieces: TypeAlias = AsyncIterator[list[Listing]]
"""A list in pieces of limited size. A piece can exceed it by up to the size of its first listing."""


class FoundPieces(NamedTuple):
    """Like `Found`, with the listings in pieces."""

    pieces: Pieces
    total: int | None = None


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


class ListingStore(Protocol):
    """Stores listings, with the guarantees of `contract.store.Store`.

    A create or restore that would leave its account larger than `account_limits` is rejected with
    Problem("account_full"). So is an update that brings the text of the account over the limit; if it is over already,
    updates are accepted. Two listings of an account that are not deleted can't have the same external id: the write is
    rejected with Problem("external_id_taken"). In a batch or an import, the Problem is the result of the step or row.
    """

    @property
    def account_limits(self) -> AccountLimits:
        """The limits of each account."""

    async def list_listings(self, bucket: int, account_id: int) -> list[Listing]:
        """Return the account's active listings, newest (highest id) first. Raises LargeListError."""

    async def get_listing(self, listing_id: int) -> Listing | None:
        """Return the listing with this id, of any account and even if deleted, or None if it does not exist."""

    async def get_listing_and_revision(self, listing_id: int) -> tuple[Listing, int] | None:
        """Return the listing like `get_listing`, with the account's revision from the same snapshot."""

    async def count_listings(self, bucket: int, account_id: int) -> ListingCounts:
        """Return the number of the account's listings by status, and the size of their text."""

    async def find_listings(self, bucket: int, account_id: int, query: ListingQuery) -> Found:
        """Return the account's listings that match a query, in the order of the query and then by id.

        A count is from the same snapshot, and ignores the query's page. Raises LargeListError.
        """

    async def find_by_external_id(self, bucket: int, account_id: int, external_id: str) -> Listing | None:
        """Return the account's listing with an external id, or None. Deleted listings are not found."""

    def read_listings(
        self, bucket: int, account_id: int, query: ListingQuery
    ) -> AbstractAsyncContextManager[FoundPieces]:
        """Read a list of any size like `find_listings`, in pieces, from a snapshot that the context keeps open.

        Other work can run between two pieces. With `query.words`, it may yield more listings than the query's limit.
        """

    async def page_listings(self, bucket: int, account_id: int, after_id: int, count: int) -> list[Listing]:
        """Return at most `count` listings of the account with ids above `after_id`, lowest first.

        Deleted listings are included. There are fewer if they would be too large together, but at least one, if any.
        """

    async def add_listing(
        self,
        bucket: int,
        account_id: int,
        step: AddStep,
        idempotency: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> AddResult:
        """Store a listing of an existing account. Its id is higher than all earlier ids of the account.

        An id is `serial * 1024 + bucket` and is never reused. If the idempotency key was already used, store nothing
        and return the original listing.

        Raises Problem("idempotency_key_reused") if the key was used for a different request.
        """

    async def change_listing(self, listing_id: int, decide: Decide, actor: Actor | None = None) -> Listing:
        """Read a listing, pass it to `decide`, write exactly the columns it returns, and return the updated listing.

        An empty change writes nothing, and any other change increments the version. If `decide` raises, nothing is
        written and the exception is raised. `decide` must raise if the listing does not exist.
        """

    async def run_batch(
        self,
        bucket: int,
        account_id: int,
        batch: Batch,
        idempotency: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> BatchOutcome | str:
        """Run the steps of a batch. Return the result of each, as for a single write made after the steps before it.

        If the idempotency key was already used, do nothing and return the string that `batch.encode` returned then.
        If the batch is rolled back, no idempotency record is stored.

        Before the first step, `batch.require_state` receives the id of the account's last change set, or 0. If it
        raises, nothing is written and the exception is raised. Until the batch ends, no other write adds a change set.

        Raises Problem("idempotency_key_reused") if the key was used for a different request.
        """

    async def purge_idempotency_records(self, oldest: int, count: int) -> int:
        """Delete at most `count` idempotency records from before `oldest`, a Unix time in seconds.

        Return the number of deleted records.
        """
