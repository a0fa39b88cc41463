"""The use cases, and every rule that is not about a single field.

The HTTP interface, the pages and the command line all come through here; nothing here knows of any of them, or
of an engine.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

import msgspec

from listings import dates, keys
from listings.contract import (
    AccountChange,
    Added,
    AddStep,
    Batch,
    ChangeStep,
    Claim,
    Decide,
    NewKey,
    RateLimiter,
    Rotation,
    Step,
    StepResult,
    Store,
    Verdict,
)
from listings.errors import Problem, Unavailable
from listings.model import (
    Account,
    ApiKey,
    Caller,
    Listing,
    ListingChange,
    ListingCounts,
    ListingQuery,
    NewListing,
    bucket_of,
    is_current,
)

_log = logging.getLogger(__name__)

_LONGEST_NAME = 200
_LONGEST_EMAIL = 254  # RFC 5321, 4.5.3.1.3
_LARGEST_ID = 2**63 - 1
_PAGE = 500
_UPKEEP_SECONDS = 60
_CLAIM_SECONDS = 24 * 3600


class IssuedKey(msgspec.Struct, frozen=True):
    """A new key with its secret, which is told this once."""

    secret: str
    key: ApiKey


class Page(NamedTuple):
    """Some listings, and the place behind which there are more."""

    listings: list[Listing]
    next_place: tuple[str | int, int] | None = None


class Terms(NamedTuple):
    """On what terms a write is asked for."""

    versions: frozenset[int] | None = None  # the listing must be one of these; None: any
    dry_run: bool = False  # check everything, store nothing
    idempotency_key: str | None = None
    digest: bytes = b""  # SHA-256 of the request that the key stands for


ANY_TERMS = Terms()
Record: TypeAlias = Callable[[Sequence[StepResult]], str]


class Service:
    """All use cases over one store, one limiter (None: no limit) and one clock (seconds since 1970)."""

    def __init__(self, store: Store, limiter: RateLimiter | None, clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self.limiter = limiter
        self.clock = clock
        self.stopping = False
        self._key_uses: dict[int, int] = {}

    async def require_ready(self) -> None:
        """Raises Unavailable unless the service can do its work and is not about to stop."""
        if self.stopping:
            raise Unavailable("The service is stopping")
        try:
            await self.store.check()
            if self.limiter is not None:
                await self.limiter.check()
        except Problem as problem:
            raise Unavailable(problem.message) from problem

    # A caller

    async def authenticate(self, key: str | None) -> Caller:
        """The caller behind a key.

        Raises Problem: api_key_required (no key), invalid_api_key (unknown, malformed, revoked or expired).
        """
        if not key:
            raise Problem("api_key_required", "API key is required")
        if keys.is_well_formed(key):
            caller = await self.store.find_caller(keys.digest(key))
            now = self.clock()
            if caller is not None and not _has_ended(caller.key_revoked_at, caller.key_expires_at, now):
                self._key_uses[caller.key_id] = int(now)
                return caller
            if caller is not None:
                _log.warning("Key %d is revoked or has expired", caller.key_id)
        raise Problem("invalid_api_key", "Invalid API key")

    async def count_request(self, caller: Caller) -> Verdict | None:
        """Count a request on the caller's key; None when there is no limit. The caller of this refuses (429)."""
        return await self.limiter.hit(caller.key_id) if self.limiter is not None else None

    async def look_at_limit(self, caller: Caller) -> Verdict | None:
        """What is left of the key's requests, without counting one; None when there is no limit."""
        return await self.limiter.look(caller.key_id) if self.limiter is not None else None

    def require_plan(self, caller: Caller) -> None:
        """Raises Problem: plan_expired (the account has no current Business plan), account_disabled."""
        if not is_current(caller.plan_expires_at, self.clock()):
            raise Problem("plan_expired", "Business plan expired")
        if caller.account_disabled_at is not None:
            raise Problem("account_disabled", "This account is disabled")

    async def keep_up(self) -> None:
        """Store once a minute when keys were last used, until cancelled; forget claims that are too old."""
        while True:
            await asyncio.sleep(_UPKEEP_SECONDS)
            await self.write_key_uses()
            await self.forget_claims()

    async def forget_claims(self) -> None:
        """Remove what was kept of writes with an Idempotency-Key a day ago (decision G36)."""
        with suppress(Unavailable):
            await self.store.forget_claims(int(self.clock()) - _CLAIM_SECONDS + 1)

    async def write_key_uses(self) -> None:
        """Store when keys were last used; while the store can't take it, it is kept for the next time."""
        uses, self._key_uses = self._key_uses, {}
        try:
            if uses:
                await self.store.note_key_uses(uses)
        except Unavailable:
            self._key_uses = uses | self._key_uses

    # Listings

    async def list_listings(self, caller: Caller) -> list[Listing]:
        """The caller's active listings, newest first."""
        return await self.store.list_listings(caller.bucket, caller.account_id)

    async def find_listings(self, caller: Caller, query: ListingQuery) -> Page:
        """Those of the caller's listings that a query asks for (decision G17)."""
        if query.limit is None:
            return Page(await self.store.find_listings(caller.bucket, caller.account_id, query))
        one_more = msgspec.structs.replace(query, limit=query.limit + 1)
        found = await self.store.find_listings(caller.bucket, caller.account_id, one_more)
        place = query.place_of(found[query.limit - 1]) if len(found) > query.limit else None
        return Page(found[: query.limit], place)

    async def get_revision(self, caller: Caller) -> int:
        """How often the caller's listings were edited. Read it before the listings that it is to stand for."""
        return await self.store.get_revision(caller.bucket, caller.account_id)

    async def get_listing(self, caller: Caller, listing_id: int) -> Listing:
        """The caller's listing. Raises Problem: listing_not_found (missing or deleted), not_owner."""
        return _own(await self.store.get_listing(listing_id), caller)

    async def create_listing(self, caller: Caller, new: NewListing, terms: Terms = ANY_TERMS) -> Added:
        """Store a listing for the caller. Raises Problem("idempotency_key_reused")."""
        claim = self._claim(terms)
        if not terms.dry_run:
            return await self.store.add_listing(caller.bucket, caller.account_id, new, self._today(), claim)
        batch = Batch([AddStep(new, self._today())], atomic=True, dry_run=True, record=str)
        earlier = await self.store.run_batch(caller.bucket, caller.account_id, batch, claim)
        return Added(0, replayed=isinstance(earlier, str))

    async def update_listing(
        self, caller: Caller, listing_id: int, change: ListingChange | Problem, terms: Terms = ANY_TERMS
    ) -> Listing:
        """Change the given fields of the caller's listing; returns it as it is then.

        A `change` that is a Problem (the body was at fault) is raised after the listing was found to be the
        caller's (decision G21). Raises Problem as `get_listing` does, and precondition_failed.
        """
        decide = self.update_step(caller, listing_id, change, terms).decide
        if isinstance(change, Problem):
            decide(await self.store.get_listing(listing_id))
        return await self._edit(listing_id, decide, terms)

    async def close_listing(self, caller: Caller, listing_id: int, terms: Terms = ANY_TERMS) -> None:
        """Delete the caller's listing softly (decision G11). Raises Problem as `update_listing` does."""
        await self._edit(listing_id, self.close_step(caller, listing_id, terms).decide, terms)

    async def restore_listing(self, caller: Caller, listing_id: int, terms: Terms = ANY_TERMS) -> Listing:
        """Undo the deletion of the caller's listing, which comes back inactive (decision G12).

        One that is not deleted stays as it is. Raises Problem: listing_not_found, not_owner, precondition_failed.
        """
        now = self._today()

        def decide(listing: Listing | None) -> ListingChange:
            owned = _require_version(_owned(listing, caller), terms)
            return difference(owned, {"deleted_at": None}, now)

        return await self._edit(listing_id, decide, terms)

    async def run_batch(
        self, caller: Caller, steps: Sequence[Step], record: Record, terms: Terms, *, atomic: bool
    ) -> Sequence[StepResult] | str:
        """Do several writes as one transaction, as `Store.run_batch` does them."""
        batch = Batch(steps, atomic=atomic, dry_run=terms.dry_run, record=record)
        return await self.store.run_batch(caller.bucket, caller.account_id, batch, self._claim(terms))

    def create_step(self, new: NewListing) -> Step:
        """A listing to be created in a batch."""
        return AddStep(new, self._today())

    def update_step(
        self, caller: Caller, listing_id: int, change: ListingChange | Problem, terms: Terms = ANY_TERMS
    ) -> ChangeStep:
        """A listing of the caller's to be changed."""
        now = self._today()

        def decide(listing: Listing | None) -> ListingChange:
            own = _own(listing, caller)
            if isinstance(change, Problem):
                raise change
            return difference(_require_version(own, terms), change, now)

        return ChangeStep(listing_id, decide)

    def close_step(self, caller: Caller, listing_id: int, terms: Terms = ANY_TERMS) -> ChangeStep:
        """A listing of the caller's to be deleted."""
        moment = self.clock()

        def decide(listing: Listing | None) -> ListingChange:
            deletion: ListingChange = {"is_active": False, "deleted_at": int(moment)}
            own = _require_version(_own(listing, caller), terms)
            return difference(own, deletion, dates.text_of(moment))

        return ChangeStep(listing_id, decide)

    async def _edit(self, listing_id: int, decide: Decide, terms: Terms) -> Listing:
        if not terms.dry_run:
            return await self.store.change_listing(listing_id, decide)
        listing = await self.store.get_listing(listing_id)
        decide(listing)
        return _present(listing, listing_id)

    def _claim(self, terms: Terms) -> Claim | None:
        if terms.idempotency_key is None:
            return None
        now = int(self.clock())
        return Claim(terms.idempotency_key, terms.digest, now, now - _CLAIM_SECONDS + 1)

    def _today(self) -> str:
        return dates.text_of(self.clock())

    # The operator's work on listings of any account

    async def latest_listings(self, reference: str, count: int) -> list[Listing]:
        """An account's newest listings, at most `count`, whatever their state. Raises Problem("account_not_found")."""
        account = await self.find_account(reference)
        return await self.store.find_listings(
            bucket_of(account.id), account.id, ListingQuery(status="all", limit=count)
        )

    async def count_listings(self, account: Account) -> ListingCounts:
        """How many listings the account has, by their state."""
        return await self.store.count_listings(bucket_of(account.id), account.id)

    async def find_listing(self, listing_id: int) -> Listing:
        """The listing of any account, deleted ones included. Raises Problem("listing_not_found")."""
        return _present(await self.store.get_listing(listing_id), listing_id)

    async def close_for_owner(self, listing_id: int) -> Listing:
        """Delete a listing as its owner would; one that is deleted stays as it is."""
        moment = int(self.clock())

        def decide(listing: Listing | None) -> ListingChange:
            present = _present(listing, listing_id)
            if present.deleted_at is not None:
                return {}
            return difference(present, {"is_active": False, "deleted_at": moment}, dates.text_of(moment))

        closed = await self.store.change_listing(listing_id, decide)
        _log.info("Listing %d of account %d is closed for its owner", closed.id, closed.account_id)
        return closed

    async def reopen_for_owner(self, listing_id: int, *, active: bool) -> Listing:
        """Undo a deletion. The listing comes back inactive (decision G12), or active where that is asked for."""
        now = self._today()

        def decide(listing: Listing | None) -> ListingChange:
            present = _present(listing, listing_id)
            change: ListingChange = {"deleted_at": None, "is_active": active or present.is_active}
            return difference(present, change, now)

        opened = await self.store.change_listing(listing_id, decide)
        _log.info("Listing %d of account %d is reopened for its owner", opened.id, opened.account_id)
        return opened

    # Accounts and plans

    async def add_account(self, name: str, email: str, plan_expires_at: int | None) -> Account:
        """Open an account; e-mail addresses are kept in lower case. Raises Problem: invalid_request, email_taken."""
        email = checked_email(email)
        account = await self.store.add_account(checked_name(name), email, plan_expires_at, int(self.clock()))
        if account is None:
            raise Problem("email_taken", f"An account with the e-mail address {email} exists already")
        return account

    async def find_account(self, reference: str) -> Account:
        """The account of an id or an e-mail address. Raises Problem("account_not_found")."""
        account = None
        if "@" in reference and reference.isprintable():
            account = await self.store.find_account(reference.strip().lower())
        elif reference.isascii() and reference.isdigit() and len(reference) <= 18:  # noqa: PLR2004 - below 2**63
            account = await self.store.get_account(int(reference))
        return _known(account, reference)

    async def list_accounts(self) -> AsyncIterator[Account]:
        """All accounts in the order of their ids, read in pages."""
        page = await self.store.page_accounts(0, _PAGE)
        while page:
            for account in page:
                yield account
            page = await self.store.page_accounts(page[-1].id, _PAGE)

    async def disable_account(self, reference: str) -> Account:
        """Refuse all of an account's keys until it is enabled; one that is disabled keeps its first time."""
        now = int(self.clock())
        account = await self._change_account(
            reference, lambda found: {} if found.disabled_at is not None else {"disabled_at": now}
        )
        _log.info("Account %d is disabled", account.id)
        return account

    async def enable_account(self, reference: str) -> Account:
        """Let an account's keys work again."""
        account = await self._change_account(reference, lambda _: {"disabled_at": None})
        _log.info("Account %d is enabled", account.id)
        return account

    async def set_plan(self, reference: str, plan_expires_at: int | None) -> Account:
        """Let the Business plan end at a moment, past ones included; None takes the plan away."""
        return await self._change_account(reference, lambda _: {"plan_expires_at": plan_expires_at})

    async def extend_plan(self, reference: str, months: int) -> Account:
        """Add calendar months to the later of now and the plan's present end."""
        now = self.clock()

        def decide(account: Account) -> AccountChange:
            return {"plan_expires_at": _months_later(max(now, account.plan_expires_at or 0), months)}

        return await self._change_account(reference, decide)

    async def expire_plan(self, reference: str) -> Account:
        """End the plan now; one that has ended, or was never there, stays as it is."""
        now = int(self.clock())

        def decide(account: Account) -> AccountChange:
            return {"plan_expires_at": now} if is_current(account.plan_expires_at, now) else {}

        return await self._change_account(reference, decide)

    async def rename_account(self, reference: str, name: str) -> Account:
        """Give an account another name."""
        name = checked_name(name)
        return await self._change_account(reference, lambda _: {"name": name})

    async def _change_account(self, reference: str, decide: Callable[[Account], AccountChange]) -> Account:
        account = await self.find_account(reference)
        return _known(await self.store.change_account(account.id, decide), reference)

    # Keys

    async def issue_key(self, reference: str, name: str, expires_at: int | None = None) -> IssuedKey:
        """Make a key. Raises Problem: account_not_found, plan_expired, account_disabled, invalid_request."""
        return await self.register_key(reference, name, keys.make(), expires_at)

    async def register_key(self, reference: str, name: str, secret: str, expires_at: int | None = None) -> IssuedKey:
        """Take over a key of an older system. Raises Problem as `issue_key` does, and key_taken."""
        account = await self.find_account(reference)
        _require_key_right(account, self.clock())
        return await self.adopt_key(account, name, secret, expires_at)

    async def adopt_key(self, account: Account, name: str, secret: str, expires_at: int | None = None) -> IssuedKey:
        """Take over a key whatever the plan is, to set a service up. Raises Problem: invalid_request, key_taken."""
        if not keys.is_well_formed(secret):
            raise Problem("invalid_request", WRONG_KEY)
        new = _new_key(account, checked_name(name), secret, int(self.clock()), expires_at)
        key = await self.store.add_key(new)
        if key is None:
            raise Problem("key_taken", f"The key {new.hint} is known already")
        _log.info("Key %d of account %d is issued", key.id, key.account_id)
        return IssuedKey(secret, key)

    async def find_key(self, secret: str) -> Caller | None:
        """The key of this secret with its account, revoked and expired ones included."""
        return await self.store.find_caller(keys.digest(secret))

    async def list_keys(self, account: Account) -> list[ApiKey]:
        """All keys that the account ever had."""
        return await self.store.list_keys(account.id)

    def has_ended(self, key: ApiKey) -> bool:
        """Whether a key is revoked or has expired."""
        return _has_ended(key.revoked_at, key.expires_at, self.clock())

    async def rotate_key(self, key_id: int, grace: int) -> IssuedKey:
        """Make a key of the same name and expiry; the old one ends `grace` seconds from now, or sooner by itself.

        Raises Problem: key_not_found, key_ended (revoked or expired already), plan_expired, account_disabled.
        """
        now = int(self.clock())
        secret = keys.make()

        def decide(old: ApiKey, account: Account) -> Rotation:
            if _has_ended(old.revoked_at, old.expires_at, now):
                again = f"make a new one with `listings key add {account.id} --name NAME`"
                raise Problem("key_ended", f"Key {key_id} is revoked or has expired: {again}")
            _require_key_right(account, now)
            new = _new_key(account, old.name, secret, now, old.expires_at)
            return Rotation(new, min(now + grace, old.expires_at or _LARGEST_ID))

        key = await self.store.rotate_key(key_id, decide)
        if key is None:
            raise _no_key(key_id)
        _log.info("Key %d of account %d is issued in place of key %d", key.id, key.account_id, key_id)
        return IssuedKey(secret, key)

    async def revoke_key(self, key_id: int) -> ApiKey:
        """End a key at once and for good; a revoked one stays as it is. Raises Problem("key_not_found")."""
        key = await self.store.revoke_key(key_id, int(self.clock()))
        if key is None:
            raise _no_key(key_id)
        _log.info("Key %d of account %d is revoked", key.id, key.account_id)
        return key


WRONG_KEY = (
    "A key has 16 to 200 visible ASCII characters, and one that begins with lst_ "
    "has 42 letters and digits with a right checksum"
)


def _own(listing: Listing | None, caller: Caller) -> Listing:
    """Decisions G11 and G21: missing, then foreign, then deleted."""
    owned = _owned(listing, caller)
    if owned.deleted_at is not None:
        raise Problem("listing_not_found", "Listing not found")
    return owned


def _owned(listing: Listing | None, caller: Caller) -> Listing:
    """The caller's, even deleted."""
    if listing is None:
        raise Problem("listing_not_found", "Listing not found")
    if listing.account_id != caller.account_id:
        raise Problem("not_owner", "This listing belongs to another account")
    return listing


def _require_version(listing: Listing, terms: Terms) -> Listing:
    if terms.versions is not None and listing.version not in terms.versions:
        raise Problem("precondition_failed", "The listing has changed: read it again, and send its new ETag")
    return listing


def difference(listing: Listing, change: ListingChange, now: str) -> ListingChange:
    """What of the change differs from the listing, with a new updated_at that never goes back (decision G7)."""
    changed = {name: value for name, value in change.items() if getattr(listing, name) != value}
    if changed:
        changed["updated_at"] = max(now, listing.updated_at)
    return changed


def _present(listing: Listing | None, listing_id: int) -> Listing:
    if listing is None:
        raise Problem("listing_not_found", f"There is no listing with the id {listing_id}")
    return listing


def _has_ended(revoked_at: int | None, expires_at: int | None, now: float) -> bool:
    """Whether a key is revoked or has expired; it is good until just before its expiry."""
    return revoked_at is not None or (expires_at is not None and expires_at <= now)


def _require_key_right(account: Account, now: float) -> None:
    """Raises Problem unless the account may get a key (decision G25)."""
    if not is_current(account.plan_expires_at, now):
        raise Problem(
            "plan_expired",
            f"{account.email} has no current Business plan, which a key needs: "
            f"extend it with `listings account plan {account.id} --months N`",
        )
    if account.disabled_at is not None:
        again = f"enable it with `listings account enable {account.id}`"
        raise Problem("account_disabled", f"{account.email} is disabled and gets no key: {again}")


def _new_key(account: Account, name: str, secret: str, now: int, expires_at: int | None) -> NewKey:
    return NewKey(
        account_id=account.id,
        name=name,
        digest=keys.digest(secret),
        hint=keys.mask(secret),
        created_at=now,
        expires_at=expires_at,
    )


def _no_key(key_id: int) -> Problem:
    return Problem("key_not_found", f"There is no key with the id {key_id}")


def _known(account: Account | None, reference: str) -> Account:
    if account is None:
        raise Problem("account_not_found", f"There is no account {reference}")
    return account


def _months_later(moment: float, months: int) -> int:
    try:
        return dates.add_months(moment, months)
    except ValueError as error:
        raise Problem("invalid_request", str(error)) from None


def checked_name(name: str) -> str:
    """A name of an account or a key, as it is. Raises Problem("invalid_request") for what can't be one."""
    if not 0 < len(name) <= _LONGEST_NAME or name.isspace() or not name.isprintable():
        raise Problem("invalid_request", f"A name has 1 to {_LONGEST_NAME} printable characters, got {name[:40]!r}")
    return name


def checked_email(email: str) -> str:
    """An e-mail address in lower case. Raises Problem("invalid_request") for what can't be one."""
    email = email.strip().lower()
    local, _, domain = email.rpartition("@")
    if not (local and domain) or len(email) > _LONGEST_EMAIL or not email.isprintable() or " " in email:
        raise Problem("invalid_request", f"{email[:40]!r} is not an e-mail address")
    return email
