"""The contract between the service and its stores. `tests/conformance` runs against every engine."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from listings.contract.accounts import AccountChange, DecideRotation, NewKey
from listings.contract.history import Actor, HistoryStore
from listings.contract.imports import ImportBatch, ImportKey, ImportProgress, RowOutcome
from listings.contract.listings import AddResult, Batch, Decide, IdempotencyRecord, IndexStep, StepResult
from listings.contract.members import MemberStore
from listings.domain.model import (
    Account,
    ApiKey,
    Caller,
    Listing,
    ListingCounts,
    ListingQuery,
    MarketEntry,
    MarketFacets,
    MarketQuery,
    NewListing,
    SitemapEntry,
)


class Store(MemberStore, HistoryStore, Protocol):
    """Stores listings, accounts and keys.

    Every method guarantees the following:

    - It runs in one transaction. When a write returns, it is durable.
    - It may raise Unavailable. Errors of the database driver are never raised. The outcome of a write that raises
      Unavailable is unknown: it may or may not be stored.
    - Cancelling the caller does not roll back its write.
    - Every edit of an account's listings raises the account's revision by one, in the same transaction. All edits of
      one import batch together count as one.
    - A write with an `actor` stores an audit event in the same transaction, and one without an `actor` stores none.
      A batch is one event, and so is an import.
    """

    on_server_replaced: Callable[[], None]
    """Hook to invalidate caches. Called before the first read from a server whose data may be older."""

    async def open(self) -> None:
        """Connect. Raises Problem("database_missing") or Problem("schema_mismatch")."""

    async def close(self) -> None:
        """Finish the queued writes, then disconnect. Later writes raise Unavailable."""

    async def check(self) -> None:
        """Raise Problem if the database doesn't respond, has another schema, or has no room for writes."""

    async def get_database_id(self) -> str:
        """Return the database's id: 32 random hexadecimal digits. Rate limits and exports refer to it."""

    async def find_caller(self, digest: bytes) -> Caller | None:
        """Return the key with this digest and its account, or None if the key is unknown.

        Revoked and expired keys are included.
        """

    async def list_listings(self, bucket: int, account_id: int) -> list[Listing]:
        """Return the account's active listings, newest (highest id) first."""

    async def get_listing(self, listing_id: int) -> Listing | None:
        """Return the listing of any account, including deleted ones, or None if it does not exist."""

    async def get_listing_and_revision(self, listing_id: int) -> tuple[Listing, int] | None:
        """Return the listing like `get_listing`, with the account's revision from the same snapshot."""

    async def count_listings(self, bucket: int, account_id: int) -> ListingCounts:
        """Return the number of the account's listings by status."""

    async def find_listings(self, bucket: int, account_id: int, query: ListingQuery) -> list[Listing]:
        """Return the account's listings that match a query, in the order of the query and then by id."""

    async def add_listing(  # noqa: PLR0913, PLR0917 - what to store, where, and on whose behalf
        self,
        bucket: int,
        account_id: int,
        new: NewListing,
        created_at: str,
        idempotency: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> AddResult:
        """Store a listing of an existing account. Its id is higher than all earlier ids of the account.

        An id is `serial * 1024 + bucket` and is never reused. If the idempotency key was already used, store nothing
        and return the original listing.

        Raises Problem("idempotency_key_reused") if the key was used for a different request.
        """

    async def run_batch(
        self,
        bucket: int,
        account_id: int,
        batch: Batch,
        idempotency: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> Sequence[StepResult] | str:
        """Run the steps of a batch and return the result of each, which is the same as if it had run on its own.

        If the idempotency key was already used, do nothing and return the string that `batch.record` returned then.
        If the batch is rolled back, no idempotency record is stored.

        Raises Problem("idempotency_key_reused") if the key was used for a different request.
        """

    async def purge_idempotency_records(self, oldest: int) -> None:
        """Delete the idempotency records from before `oldest`, a Unix time in seconds."""

    async def change_listing(self, listing_id: int, decide: Decide, actor: Actor | None = None) -> Listing:
        """Read a listing, pass it to `decide`, write exactly the columns it returns, and return the new listing.

        An empty change writes nothing, and any other change raises the version by one. If `decide` raises, nothing is
        written and the exception is raised. `decide` must raise if the listing does not exist.
        """

    async def page_listings(self, bucket: int, account_id: int, after_id: int, count: int) -> list[Listing]:
        """Return at most `count` listings of the account with ids above `after_id`, lowest first.

        Deleted listings are included.
        """

    async def find_import(self, key: ImportKey) -> ImportProgress | None:
        """Return the progress of an import, or None if it was never started."""

    async def begin_import(
        self, key: ImportKey, found: ImportProgress | None, started_at: int, last_id: int
    ) -> ImportProgress | None:
        """Start an import of an existing account from the beginning and return its progress.

        Ids up to `last_id`, which is 0 or an id in the account's bucket, are not given to new listings from now on.
        Return None and write nothing if the progress is not `found`, because another process started the import.
        """

    async def import_listings(
        self, key: ImportKey, batch: ImportBatch, actor: Actor | None = None
    ) -> list[RowOutcome] | None:
        """Call `decide` of each row in order, write its decisions, and store the progress.

        If a new listing's row has an id, the listing gets that id, and no id up to it is given to another listing. If
        `decide` raises a Problem, it is the outcome of that row only. Return None and write nothing if the import is
        not at the start of the batch, because another process continued or finished it.
        """

    async def search_market(self, query: MarketQuery) -> list[MarketEntry]:
        """Return the publicly visible listings of all accounts that match a query, as far as they are indexed.

        A listing is visible if it is active and its account is not disabled. Disabling an account hides its listings
        immediately. Terms match the title, content, category, location, region and district. Listings are sorted
        newest first, or by price. Equal prices are sorted oldest first if prices ascend, newest first if they descend.
        """

    async def index_market(self, count: int, indexer: bytes, now: float) -> IndexStep:
        """Index at most `count` created or changed listings for the market.

        `indexer` identifies the calling process, and `now` is a Unix time in seconds. Only the indexer that holds a
        lease does the work. The lease expires a few seconds after its last call. Until then, others find no work.
        """

    async def index_accounts(self, count: int) -> IndexStep:
        """Index at most `count` listings of accounts that have become large.

        The index changes only the speed of searches, not their results. An engine that indexes listings as they are
        written does nothing here.
        """

    async def list_market_facets(self, count: int) -> MarketFacets:
        """Return the regions and the categories with the most listings, at most `count` of each."""

    async def page_sitemap(self, after: int, count: int) -> list[SitemapEntry]:
        """Return at most `count` visible listings with market serials above `after`, lowest first."""

    async def get_view_salt(self, day: int) -> bytes:
        """Return the salt of a day (days since 1970): 32 random bytes, the same in all processes."""

    async def record_views(self, day: int, views: Mapping[int, Collection[bytes]]) -> None:
        """Raise the view_count of each listing by the number of its visitors (16 bytes each) who are new on that day.

        Listings that are missing, inactive or deleted are ignored. version and updated_at don't change. An account's
        revision is raised by one if any of its counts changes.
        """

    async def purge_views(self, oldest: int, count: int) -> int:
        """Delete at most `count` visitors of days before `oldest`, and the salts of those days.

        Return the number of deleted visitors.
        """

    async def get_revision(self, bucket: int, account_id: int) -> int:
        """Return the account's revision: 0 at first, and higher after every edit of its listings."""

    async def get_settled_revision(self, bucket: int, account_id: int) -> int:
        """Return the last revision that changed an existing listing, or a later one, but at most the current revision.

        The creation of a listing does not count as a change.
        """

    def get_cached_settled_revision(self, bucket: int, account_id: int) -> int | None:
        """Like `get_settled_revision`, but from memory only. Return None if a read would be needed."""

    async def add_account(self, name: str, email: str, plan_expires_at: int | None, created_at: int) -> Account | None:
        """Store an account. Return None and store nothing if the email address is taken."""

    async def get_account(self, account_id: int) -> Account | None:
        """Return the account with this id, or None if it does not exist."""

    async def find_account(self, email: str) -> Account | None:
        """Return the account with exactly this email address, or None if there is none."""

    async def page_accounts(self, after: int, count: int) -> list[Account]:
        """Return at most `count` accounts with ids above `after`, lowest first."""

    async def change_account(
        self, account_id: int, decide: Callable[[Account], AccountChange], actor: Actor | None = None
    ) -> Account | None:
        """Write the changes that the pure function `decide` returns for an account.

        Return the updated account, or None if it does not exist.
        """

    async def add_key(self, new: NewKey, actor: Actor | None = None) -> ApiKey | None:
        """Store a key of an existing account. Return None and store nothing if the digest is taken."""

    async def list_keys(self, account_id: int) -> list[ApiKey]:
        """Return the account's keys in order of their ids, including revoked and expired ones."""

    async def rotate_key(self, key_id: int, decide: DecideRotation, actor: Actor | None = None) -> ApiKey | None:
        """Store a new key and set the expiry of the old one, as the pure function `decide` returns them.

        Return the new key, or None if the old one does not exist. The new digest must not be taken. The successor that
        `decide` receives is read from the audit event of the earlier rotation. It is None if that rotation had no
        `actor`, or if its event is no longer retained.
        """

    async def record_key_uses(self, uses: Mapping[int, int]) -> None:
        """Record when keys (by id) were last used. A time before the stored one changes nothing."""

    async def revoke_key(self, key_id: int, revoked_at: int, actor: Actor | None = None) -> ApiKey | None:
        """Revoke a key permanently and return it, or None if it does not exist.

        A key that is already revoked keeps its first `revoked_at`.
        """
