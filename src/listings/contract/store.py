"""What the service asks of a store and of a rate limiter. `tests/conformance` holds every engine to it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from listings.contract.accounts import AccountChange, DecideRotation, NewKey
from listings.contract.history import Actor, HistoryStore
from listings.contract.imports import ImportBatch, ImportKey, ImportProgress, RowOutcome
from listings.contract.listings import Added, Batch, Decide, IdempotencyRecord, IndexStep, StepResult
from listings.contract.members import MemberStore
from listings.domain.model import (
    Account,
    ApiKey,
    Caller,
    Listing,
    ListingCounts,
    ListingQuery,
    MarketEntry,
    MarketPlaces,
    MarketQuery,
    NewListing,
    SitemapEntry,
)


class Store(MemberStore, HistoryStore, Protocol):
    """Where listings, accounts and keys are kept.

    Each method is one transaction. An answer to a write means: durable. Every method may raise Unavailable and
    lets no driver's error escape; a write that ends with Unavailable is unknown, not undone. Cancelling a caller
    does not undo its write. Every edit of an account's listings raises the account's revision by one in the same
    transaction; all edits of one batch of an import are one. A write that is given an author leaves an event of it in
    the account's activity, in the same transaction; without one it leaves none. A batch and an import are one event.
    """

    on_server_replaced: Callable[[], None]
    """To be set by who keeps what was read: is called before the first read from a server that may hold less."""

    async def open(self) -> None:
        """Connect. Raises Problem("database_missing") or Problem("schema_mismatch")."""

    async def close(self) -> None:
        """Finish the writes that wait, then disconnect. A write after this raises Unavailable."""

    async def check(self) -> None:
        """Raises Problem unless the store answers, has this program's schema, and has room to write."""

    async def get_id(self) -> str:
        """32 hexadecimal digits, drawn when the database was made: what is kept beside it is known by them."""

    async def find_caller(self, digest: bytes) -> Caller | None:
        """The key of this digest with its account, revoked and expired ones included; None when unknown."""

    async def list_listings(self, bucket: int, account_id: int) -> list[Listing]:
        """The account's active listings, newest (highest id) first."""

    async def get_listing(self, listing_id: int) -> Listing | None:
        """The listing of any account, deleted ones included; None when no such row was ever made."""

    async def get_listing_and_revision(self, listing_id: int) -> tuple[Listing, int] | None:
        """The same, and the revision of its account at the same moment."""

    async def count_listings(self, bucket: int, account_id: int) -> ListingCounts:
        """How many listings the account has, deleted ones apart."""

    async def find_listings(self, bucket: int, account_id: int, query: ListingQuery) -> list[Listing]:
        """The account's listings that a query asks for, in its order, equal ones in the order of their ids."""

    async def add_listing(  # noqa: PLR0913, PLR0917 - what is to be stored, where, and on whose behalf
        self,
        bucket: int,
        account_id: int,
        new: NewListing,
        created_at: str,
        claim: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> Added:
        """Store a listing of an existing account; its id is higher than every earlier one of the account.

        Ids are `serial * 1024 + bucket`, given once and never again. Under a claim that the account has made
        before, nothing is stored, and the listing of then is returned. Raises Problem("idempotency_key_reused")
        when that was for another request.
        """

    async def run_batch(
        self,
        bucket: int,
        account_id: int,
        batch: Batch,
        claim: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> Sequence[StepResult] | str:
        """Do the steps of a batch; returns what each came to, as it would have alone.

        Under a claim that the account has made before, nothing is done, and what was recorded then is returned.
        Where all is undone, no claim is kept. Raises Problem("idempotency_key_reused").
        """

    async def purge_idempotency_records(self, oldest: int) -> None:
        """Remove the claims from before a moment."""

    async def change_listing(self, listing_id: int, decide: Decide, actor: Actor | None = None) -> Listing:
        """Read the row, ask `decide`, write exactly the columns that it returned; returns the listing as it is now.

        An empty change writes nothing; any other raises the version by one. What `decide` raises is raised, and
        nothing is written. `decide` returns no change for a missing row (it raises).
        """

    async def page_listings(self, bucket: int, account_id: int, after_id: int, count: int) -> list[Listing]:
        """The account's next listings behind an id, `count` at most, ids ascending; deleted ones included."""

    async def find_import(self, key: ImportKey) -> ImportProgress | None:
        """How far an import is; None when it was never begun."""

    async def begin_import(
        self, key: ImportKey, found: ImportProgress | None, started_at: int, last_id: int
    ) -> ImportProgress | None:
        """Set an import of an existing account to its beginning; returns its progress.

        From now on no id up to `last_id`, which is of the account's bucket or 0, is given to a new listing. None,
        and nothing written, when the import is no more as it was `found`: somebody else has begun it.
        """

    async def import_listings(
        self, key: ImportKey, batch: ImportBatch, actor: Actor | None = None
    ) -> list[RowOutcome] | None:
        """Judge the rows of a batch one after the other and write what their judges return, with the progress.

        A row that is made with an id of its own is made with it, and no id up to it is ever given to another. What
        a judge raises is the outcome of its row and of no other. None, and nothing written, when the import is not
        where the batch starts: somebody else has gone on with it, or it was finished.
        """

    async def search_market(self, query: MarketQuery) -> list[MarketEntry]:
        """What a query asks for of all accounts' listings that anybody may see, as far as they are indexed.

        Those are the active ones of accounts that aren't disabled, which counts at once. A word is looked for in title,
        content, category and place. The newest come first, or the cheapest or dearest, and among equal prices the
        oldest or the newest.
        """

    async def index_market(self, count: int, indexer: bytes, now: float) -> IndexStep:
        """Make the market show at most `count` more of the listings that were written since it took them in.

        Of several indexers one goes on until it hasn't asked for a few seconds; the others are told that nothing is
        left. `now` is in seconds since 1970.
        """

    async def index_accounts(self, count: int) -> IndexStep:
        """Bring at most `count` more listings of accounts that have become large into the indexes of their searches.

        Searches find the same before and afterwards. An engine that indexes them as they are written has nothing to do.
        """

    async def list_market_places(self, count: int) -> MarketPlaces:
        """The regions and categories with the most listings, at most `count` of each."""

    async def page_sitemap(self, after: int, count: int) -> list[SitemapEntry]:
        """The next listings that the market shows behind a serial, `count` at most, in the order of their serials."""

    async def get_view_salt(self, day: int) -> bytes:
        """32 random bytes, drawn once for each day (days since 1970), the same for all processes."""

    async def record_views(self, day: int, views: Mapping[int, Collection[bytes]]) -> None:
        """Count the visitors of listings, 16 bytes each, who are new on that day, into each listing's view_count.

        A listing that is missing, inactive or deleted counts nothing. Neither version nor updated_at changes; the
        revision of an account is raised by one where any of its counts has changed.
        """

    async def purge_views(self, oldest: int, count: int) -> int:
        """Remove visitors of days before one, at most `count`, and their salts; returns how many visitors."""

    async def get_revision(self, bucket: int, account_id: int) -> int:
        """How often the account's listings were edited; 0 at first."""

    async def get_settled_revision(self, bucket: int, account_id: int) -> int:
        """One since which none of the account's listings has changed, new ones aside; at most the present one."""

    def known_settled_revision(self, bucket: int, account_id: int) -> int | None:
        """The same where the store need not read for it; None otherwise."""

    async def add_account(self, name: str, email: str, plan_expires_at: int | None, created_at: int) -> Account | None:
        """Store an account; None, and nothing stored, when the e-mail address is taken."""

    async def get_account(self, account_id: int) -> Account | None:
        """The account of this id."""

    async def find_account(self, email: str) -> Account | None:
        """The account of exactly this e-mail address."""

    async def page_accounts(self, after: int, count: int) -> list[Account]:
        """The next accounts behind an id, at most `count`, in the order of their ids."""

    async def change_account(
        self, account_id: int, decide: Callable[[Account], AccountChange], actor: Actor | None = None
    ) -> Account | None:
        """Change an account by a pure function of what it is; None when there is none."""

    async def add_key(self, new: NewKey, actor: Actor | None = None) -> ApiKey | None:
        """Store a key of an existing account; None, and nothing stored, when the digest is taken."""

    async def list_keys(self, account_id: int) -> list[ApiKey]:
        """The account's keys in the order of their ids, revoked and expired ones included."""

    async def rotate_key(self, key_id: int, decide: DecideRotation, actor: Actor | None = None) -> ApiKey | None:
        """Store a new key and set when the old one expires, as a pure function of what is known of it decides.

        Returns the new key; None when there is no such key. The new digest must not be taken. That a key was rotated
        before is known for as long as the account's activity is kept, where an author was given.
        """

    async def record_key_uses(self, uses: Mapping[int, int]) -> None:
        """Keep when keys were last used, by their ids; an earlier time than the one that is kept changes nothing."""

    async def revoke_key(self, key_id: int, revoked_at: int, actor: Actor | None = None) -> ApiKey | None:
        """Revoke a key for good; one that is revoked keeps its first time. None when there is no such key."""
