"""The interface of the stores to the services, with the methods that all engines share."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager

from listings.domain.history import Actor
from listings.domain.listings import AddResult, AddStep, IdempotencyRecord, ListResult, ListStream
from listings.domain.market import IndexResult
from listings.domain.model import Caller, Listing, ListingQuery, Revisions
from listings.store.audience import ScriptedAudienceStore
from listings.store.mail_queue import ScriptedMailStore
from listings.store.market.store import ScriptedMarketStore
from listings.store.operators import ScriptedOperatorStore
from listings.store.own_account import ScriptedOwnAccountStore
from listings.store.pictures import ScriptedPictureStore
from listings.store.report import ScriptedReportStore
from listings.store.reverts.store import ScriptedRevertStore
from listings.store.scripts.accounts import ScriptedAccountStore
from listings.store.scripts.history import ScriptedHistoryStore
from listings.store.scripts.imports import ScriptedImportStore
from listings.store.scripts.keys import ScriptedKeyStore
from listings.store.scripts.members import ScriptedMemberStore
from listings.store.scripts.store import ScriptedChangeStore, ScriptedListingStore
from listings.store.scripts.views import ScriptedViewStore
from listings.store.takedowns import ScriptedTakedownStore
from listings.store.tasks import ScriptedTaskStore


class Store(
    ScriptedListingStore,
    ScriptedViewStore,
    ScriptedImportStore,
    ScriptedChangeStore,
    ScriptedRevertStore,
    ScriptedAccountStore,
    ScriptedKeyStore,
    ScriptedMemberStore,
    ScriptedHistoryStore,
    ScriptedMailStore,
    ScriptedAudienceStore,
    ScriptedOwnAccountStore,
    ScriptedPictureStore,
    ScriptedTakedownStore,
    ScriptedOperatorStore,
    ScriptedTaskStore,
    ScriptedReportStore,
    ScriptedMarketStore,
):
    """All stores of one database.

    Every method guarantees the following:

    - All its writes are one transaction, unless its docstring says otherwise. When it returns, they are durable. It may
      read more than one snapshot, unless its docstring promises one.
    - It may raise Unavailable. Errors of the database driver are never raised. The outcome of a write that raises
      Unavailable is unknown: it may or may not be stored.
    - Cancelling the caller does not roll back its write.
    - Each edit of a listing raises the account's revision by one, in the same transaction. All edits in a transaction
      of a batch, an import or a revert raise it once. Erasing an account removes external ids without raising it.
    - A write with an `actor` stores an audit event in the same transaction: one for a batch, and one for a whole import
      or revert. If it changes listings, it also stores a change set: one for a batch, and one for each transaction of
      an import or a revert. Without an actor, only a sign-up, a sign-in, an accepted invitation, a confirmed new
      email address and a payment store an event.
    """

    restore_id: str
    """The random id of the last restore, "" if there was none. Numbers may repeat ones from before it.

    It is part of every tag and cursor. When it changes, the callback of `on_reset` is called.
    """

    @abstractmethod
    async def find_caller(self, digest: bytes) -> Caller | None:
        """Return the key with this digest and its account, or None if the key is unknown.

        Revoked and expired keys are included.
        """

    @abstractmethod
    async def stamp_market(self, count: int, holder: bytes, now: float) -> IndexResult:
        """Number about `count` changes of listings, so that indexes of the market can follow them.

        The order of the numbers is the order in which they become visible. Listings of newly disabled or enabled
        accounts come first; the accounts of created and changed ones take turns. `holder` identifies the process, and
        `now` is a Unix time in seconds. A process holds a lease until a few seconds after its last call. Meanwhile, the
        calls of other processes do nothing.
        """

    @abstractmethod
    async def index_accounts(self, count: int) -> IndexResult:
        """Index at most `count` listings of accounts that have become large.

        The index changes only the speed of searches, not their results. An engine that indexes listings as they are
        written does nothing here.
        """

    @abstractmethod
    async def get_revisions(self, bucket: int, account_id: int) -> Revisions:
        """Return both revisions of the account, from one snapshot. Both are 0 at first.

        `revision` is higher after every edit, and `edit_revision` after every change set.
        """

    @abstractmethod
    async def get_last_change_revision(self, bucket: int, account_id: int) -> int:
        """Return the `revision` that the account had after the last change of one of its listings, or a higher one.

        A cached response with a single listing is current if it was read at this revision or later. The creation of a
        listing does not count as a change.
        """

    @abstractmethod
    def get_cached_last_change_revision(self, bucket: int, account_id: int) -> int | None:
        """Like `get_last_change_revision`, but from memory only. Return None if a read would be needed."""

    @abstractmethod
    def on_reset(self, callback: Callable[[], None]) -> None:
        """Register the callback that empties caches. It replaces an earlier callback.

        It is called before the first read from another server, or from a restarted one: its data may be older, because
        it is a standby or a restored backup.
        """

    @abstractmethod
    async def list_listings(self, bucket: int, account_id: int) -> ListResult:
        """Return the account's active listings, newest (highest id) first. Raises LargeListError."""

    @abstractmethod
    async def get_listing(self, listing_id: int) -> Listing | None:
        """Return the listing with this id, of any account and even if deleted, or None if it does not exist."""

    @abstractmethod
    async def get_listing_and_revision(self, listing_id: int) -> tuple[Listing, int] | None:
        """Return the listing like `get_listing`, with the account's revision from the same snapshot."""

    @abstractmethod
    async def find_listings(self, bucket: int, account_id: int, query: ListingQuery) -> ListResult:
        """Return the account's listings that match a query, in the order of the query and then by id.

        A count is from the same snapshot, and ignores the query's page. Raises LargeListError.
        """

    @abstractmethod
    def read_listings(
        self, bucket: int, account_id: int, query: ListingQuery
    ) -> AbstractAsyncContextManager[ListStream]:
        """Read a list of any size like `find_listings`, in pieces, from a snapshot that the context keeps open.

        Other work can run between two pieces. With `query.words`, it may yield more listings than the query's limit.
        """

    @abstractmethod
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

    @abstractmethod
    async def list_edit_revisions(self, account_ids: Collection[int]) -> Mapping[int, int]:
        """Return the id of the last change set of each account, 0 for none. Ids without an account are ignored."""

    @abstractmethod
    async def open(self) -> None:
        """Connect. Raises Problem("database_missing") or Problem("schema_mismatch")."""

    @abstractmethod
    async def close(self) -> None:
        """Finish the queued writes, then disconnect. Later writes raise Unavailable."""

    @abstractmethod
    async def check(self) -> None:
        """Raise Problem if the database doesn't respond, has another version of the schema, or would reject writes."""

    @abstractmethod
    async def list_unavailable_nodes(self) -> list[str]:
        """Return the addresses of unavailable nodes of the database, whose part of the data is unavailable too."""
