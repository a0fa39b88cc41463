"""What the service asks of a store and of a rate limiter. `tests/conformance` holds every engine to it."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from listings.model import Account, ApiKey, Caller, Listing, ListingChange, ListingCounts, NewListing

Decide: TypeAlias = Callable[[Listing | None], ListingChange]
"""Judges a row inside the transaction that may change it: returns what to write, or raises a Problem.

Pure, since it may be called again."""

AccountChange: TypeAlias = Mapping[str, str | int | None]
"""New values of `name`, `plan_expires_at` and `disabled_at`, only of what changes."""


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key to be stored: everything of it but the key itself. Times are seconds since 1970."""

    account_id: int
    name: str
    digest: bytes
    hint: str
    created_at: int
    expires_at: int | None = None


class Rotation(NamedTuple):
    """A key to be stored in the place of another, and the moment at which that one ends."""

    new: NewKey
    old_expires_at: int


class Store(Protocol):
    """Where listings, accounts and keys are kept.

    Each method is one transaction. An answer to a write means: durable. Every method may raise Unavailable and
    lets no driver's error escape; a write that ends with Unavailable is unknown, not undone. Cancelling a caller
    does not undo its write. Every edit of an account's listings raises the account's revision by one in the same
    transaction.
    """

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

    async def count_listings(self, bucket: int, account_id: int) -> ListingCounts:
        """How many listings the account has, deleted ones apart."""

    async def latest_listings(self, bucket: int, account_id: int, count: int) -> list[Listing]:
        """The account's newest listings, at most `count`, whatever their state, newest first."""

    async def add_listing(self, bucket: int, account_id: int, new: NewListing, created_at: str) -> int:
        """Store a listing of an existing account; returns its id, higher than every earlier one of the account.

        Ids are `serial * 1024 + bucket`, given once and never again.
        """

    async def change_listing(self, listing_id: int, decide: Decide) -> Listing:
        """Read the row, ask `decide`, write exactly the columns that it returned; returns the listing as it is now.

        An empty change writes nothing; any other raises the version by one. What `decide` raises is raised, and
        nothing is written. `decide` returns no change for a missing row (it raises).
        """

    async def get_revision(self, bucket: int, account_id: int) -> int:
        """How often the account's listings were edited; 0 at first."""

    async def add_account(self, name: str, email: str, plan_expires_at: int | None, created_at: int) -> Account | None:
        """Store an account; None, and nothing stored, when the e-mail address is taken."""

    async def get_account(self, account_id: int) -> Account | None:
        """The account of this id."""

    async def find_account(self, email: str) -> Account | None:
        """The account of exactly this e-mail address."""

    async def page_accounts(self, after: int, count: int) -> list[Account]:
        """The next accounts behind an id, at most `count`, in the order of their ids."""

    async def change_account(self, account_id: int, decide: Callable[[Account], AccountChange]) -> Account | None:
        """Change an account by a pure function of what it is; None when there is none."""

    async def add_key(self, new: NewKey) -> ApiKey | None:
        """Store a key of an existing account; None, and nothing stored, when the digest is taken."""

    async def list_keys(self, account_id: int) -> list[ApiKey]:
        """The account's keys in the order of their ids, revoked and expired ones included."""

    async def rotate_key(self, key_id: int, decide: Callable[[ApiKey, Account], Rotation]) -> ApiKey | None:
        """Store a new key and set when the old one expires, as a pure function of it and its account decides.

        Returns the new key; None when there is no such key. The new digest must not be taken.
        """

    async def note_key_uses(self, uses: Mapping[int, int]) -> None:
        """Keep when keys were last used, by their ids; an earlier time than the one that is kept changes nothing."""

    async def revoke_key(self, key_id: int, revoked_at: int) -> ApiKey | None:
        """Revoke a key for good; one that is revoked keeps its first time. None when there is no such key."""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """A limiter's answer.

    `left`: how many more requests would be accepted at once. `reset`: seconds until the oldest request that
    counts leaves the window; for a refused request, until one is accepted again.
    """

    accepted: bool
    left: int
    reset: float


class RateLimiter(Protocol):
    """An exact sliding log (decision G28).

    A request is refused if, and only if, `limit` requests of its key were accepted in the `window` seconds before
    it; one accepted exactly `window` seconds ago counts no more. Each limiter reads its own clock, since one that
    is shared must read it under its lock.
    """

    @property
    def limit(self) -> int:
        """Requests per window and key, at least 1."""

    @property
    def window(self) -> int:
        """Seconds."""

    async def hit(self, key_id: int) -> Verdict:
        """Count one request in one atomic step; a refused one does not count. May raise Unavailable."""

    async def check(self) -> None:
        """Raises Unavailable unless requests can be counted."""

    async def close(self) -> None:
        """Give back what is held."""
