"""Accounts and their plans: create, find, change, disable and erase them."""

import logging
import re
import unicodedata
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import asdict

from listings.domain import timestamps
from listings.domain.accounts import (
    AccountChange,
    PlanTerms,
    build_erased_email,
    is_erased,
    is_erased_email,
    is_test_email,
    require_enabled,
    require_not_erased,
)
from listings.domain.errors import Problem
from listings.domain.history import CONSOLE, OPERATOR, Actor
from listings.domain.listings import Batch, ChangeStep
from listings.domain.mail import ComposeMail
from listings.domain.model import Account, Listing, ListingChange, NewListing, bucket_of, is_plan_active
from listings.service.listings.steps import build_deletion, find_changes
from listings.service.mail.composer import MailComposer
from listings.service.pictures import Pictures
from listings.store.store import Store

_log = logging.getLogger(__name__)

_MAX_NAME_LENGTH = 200
MAX_REASON_LENGTH = 500
MAX_ABOUT_LENGTH = 500
MAX_EMAIL_LENGTH = 254  # RFC 5321, 4.5.3.1.3
_PAGE_SIZE = 500
_MAX_ID_DIGITS = 18  # below 2**63
_DELETE_BATCH_SIZE = 100
_ERASE_BATCH_SIZE = 1_000
_ERASED_VALUES = {**asdict(NewListing(title="", content="")), "is_active": False}
_BIDI_CONTROLS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # UAX 9, 2
_PUBLIC_CONTACT = re.compile(
    r"[^@\s/<>]{1,64}@[^@\s/<>]{1,189}|\+?\(?[0-9][0-9 ()-]{5,24}|https?://[^\s/<>\"][^\s<>\"]{0,245}"
)


@dataclass(eq=False)
class Accounts:
    """Creates, changes, disables and erases accounts."""

    _store: Store
    _pictures: Pictures
    _clock: Callable[[], float]
    _composer: MailComposer
    _plan: PlanTerms

    async def add(self, name: str, email: str, plan_expires_at: int | None) -> Account:
        """Create an account. Its email is stored in lower case. Raises Problem: invalid_request, email_taken."""
        email = validate_email(email)
        account = await self._store.add_account(validate_name(name), email, plan_expires_at, int(self._clock()))
        if account is None:
            raise Problem("email_taken", f"An account with the email {email} already exists")
        return account

    async def find(self, reference: str) -> Account:
        """Return the account whose id or email is `reference`. Raises Problem("account_not_found")."""
        account = None
        if "@" in reference and reference.isprintable():
            account = await self._store.find_account(reference.strip().lower())
        elif reference.isascii() and reference.isdigit() and len(reference) <= _MAX_ID_DIGITS:
            account = await self._store.get_account(int(reference))
        return _require_account(account, reference)

    async def iterate(self) -> AsyncIterator[Account]:
        """Yield all accounts by ascending id."""
        page = await self._store.page_accounts(0, _PAGE_SIZE)
        while page:
            for account in page:
                yield account
            page = await self._store.page_accounts(page[-1].id, _PAGE_SIZE)

    async def disable(self, reference: str) -> Account:
        """Disable an account: reject its keys until it is enabled, and end its sessions permanently.

        Disabling it again does not change `disabled_at`.
        """
        now = int(self._clock())
        # Sessions end before and after the change: if the process stops after the change, without the second call, the
        # sessions must not be valid again when the account is enabled.
        await self._store.end_sessions((await self.find(reference)).id)
        account = await self._change(
            reference, lambda found: {} if found.disabled_at is not None else {"disabled_at": now}
        )
        await self._store.end_sessions(account.id)
        _log.info("Disabled account %d", account.id)
        return account

    async def enable(self, reference: str) -> Account:
        """Enable an account, so that its keys work and its owner can sign in. An enabled one does not change."""
        account = await self._change(
            reference, lambda found: {} if found.disabled_at is None else {"disabled_at": None}
        )
        _log.info("Enabled account %d", account.id)
        return account

    async def set_plan(self, reference: str, plan_expires_at: int | None) -> Account:
        """Set the end of the Business plan, which may be in the past. None removes the plan.

        A seller whose plan is started or extended gets an email.
        """
        compose = partial(self._composer.compose_plan_started, amount="")
        return await self._change(reference, lambda _: {"plan_expires_at": plan_expires_at}, compose)

    async def extend_plan(self, reference: str, months: int, seen: Account | None = None) -> Account:
        """Extend the plan by calendar months, from its end or from now, whichever is later, and tell the seller.

        Raises Problem("invalid_request") if the plan has another end than that of `seen`, the account as it was read.
        """
        now = self._clock()

        def decide(account: Account) -> AccountChange:
            if seen is not None and seen.plan_expires_at != account.plan_expires_at:
                raise Problem("invalid_request", "The plan was changed meanwhile")
            return {"plan_expires_at": compute_plan_end(account, months, now)}

        compose = partial(self._composer.compose_plan_started, amount=self._plan.describe(months))
        return await self._change(reference, decide, compose)

    async def expire_plan(self, reference: str) -> Account:
        """End an active plan now. An expired or missing plan does not change."""
        now = int(self._clock())

        def decide(account: Account) -> AccountChange:
            return {"plan_expires_at": now} if is_plan_active(account.plan_expires_at, now) else {}

        return await self._change(reference, decide)

    async def set_limits(self, account: Account, limits: Sequence[int | None]) -> None:
        """Set the account's own limits, in the order of `AccountLimits`. None: the limit of all accounts."""
        await self._store.set_account_limits(bucket_of(account.id), account.id, limits)
        _log.info("Set the limits of account %d", account.id)

    async def rename(self, reference: str, name: str) -> Account:
        name = validate_name(name)
        return await self._change(reference, lambda _: {"name": name})

    async def set_public_contact(self, account: Account, contact: str) -> None:
        """Set the email address, phone number or URL that buyers see; "" shows none.

        Raises Problem: invalid_request, account_disabled.
        """
        contact = contact.strip()
        if contact and not (contact.isprintable() and _PUBLIC_CONTACT.fullmatch(contact)):
            message = "Enter an email address, a phone number, or a URL like https://shop.example"
            raise Problem("invalid_request", message)
        await self.change_own(account, {"public_contact": contact})

    async def set_about(self, account: Account, text: str) -> None:
        """Set what buyers read about the seller; "" shows nothing. Raises Problem like the contact."""
        text = remove_controls("\n".join(text.splitlines())).strip()
        if len(text) > MAX_ABOUT_LENGTH:
            message = f"The text can have at most {MAX_ABOUT_LENGTH} characters, got {len(text):,}"
            raise Problem("invalid_request", message)
        await self.change_own(account, {"about": text})

    async def set_messages(self, account: Account, *, is_on: bool) -> None:
        """Set whether buyers can send messages to the seller. Raises Problem("account_disabled")."""
        await self.change_own(account, {"messages_off_at": None if is_on else int(self._clock())})

    async def change_own(self, account: Account, changes: AccountChange) -> None:
        """Change an account on behalf of its owner. Raises Problem("account_disabled")."""

        def decide(found: Account) -> AccountChange:
            require_enabled(found)
            return changes

        await self._store.change_account(account.id, decide, Actor(CONSOLE, int(self._clock())))

    async def erase(self, reference: str) -> Account:
        """Delete all listings of an account, and erase its personal data permanently.

        `listings account erase --help` lists the remaining data. A listing whose creation was in progress during the
        erasure may remain: erasing the account again deletes it.

        Raises Problem("account_not_found"), or Problem("invalid_request") if the account is enabled meanwhile.
        """
        account = await self.find(reference)
        return await self.erase_disabled(account if is_erased(account) else await self.disable(str(account.id)))

    async def erase_disabled(self, account: Account) -> Account:
        """Erase a disabled account, and its test account. Raises Problem like `erase`."""
        test = await self._store.find_test_account(account.id)
        if test is not None and not is_erased(test):
            await self.erase(str(test.id))
        was_erased = is_erased(account)
        if not await self.delete_listings(account) and was_erased:
            return account
        disabled_at = account.disabled_at or 0
        await self._store.erase_rows(account.id, _ERASE_BATCH_SIZE, disabled_at)
        name = f"Erased account {account.id}"
        email = account.email if was_erased else build_erased_email(account.id)
        pictures = await self._store.list_picture_names(account.id)
        if pictures:
            await self._pictures.require_files()
        if not await self._store.erase_account(account.id, name, email, int(self._clock()), disabled_at):
            _log.warning("Account %d was enabled during its erasure", account.id)
            raise Problem(
                "invalid_request",
                f"Account {account.id} was enabled during its erasure, so it is not erased. Some of its listings,"
                " their texts and external ids, and its history may have been deleted permanently",
            )
        await self._pictures.delete_files(pictures)
        await self.delete_listings(account)  # those that a running import created meanwhile
        _log.info("Erased account %d", account.id)
        return await self.find(str(account.id))

    async def delete_listings(self, account: Account) -> bool:
        """Delete the listings and the values of their fields in batches. Return whether there were any to delete.

        Stop early if the account is disabled or enabled meanwhile.

        No actor is passed, because the caller deletes the audit events or the changes anyway.
        """
        partition = (bucket_of(account.id), account.id)
        now = int(self._clock())
        timestamp = timestamps.format_timestamp(now)

        def decide(listing: Listing | None) -> ListingChange:
            if listing is None:  # it was removed meanwhile
                raise Problem("listing_not_found", "Listing not found")
            return {**build_deletion(listing, now), **find_changes(listing, _ERASED_VALUES, timestamp)}

        after, found = 0, False
        while page := await self._store.page_listings(*partition, after, _DELETE_BATCH_SIZE):
            current = (await self.find(str(account.id))).disabled_at
            if current != account.disabled_at or (current is None and account.test_of is None):
                break
            after = page[-1].id
            steps = [ChangeStep(listing.id, decide) for listing in page if decide(listing)]
            if steps:
                found = True
                await self._store.run_batch(*partition, Batch(steps, atomic=False, dry_run=False, encode=str))
        return found

    async def _change(
        self, reference: str, decide: Callable[[Account], AccountChange], on_plan: ComposeMail | None = None
    ) -> Account:
        account = await self.find(reference)

        def decide_unless_erased(found: Account) -> AccountChange:
            require_not_erased(found)
            return decide(found)

        actor = Actor(OPERATOR, int(self._clock()))
        changed = await self._store.change_account(account.id, decide_unless_erased, actor, on_plan)
        return _require_account(changed, reference)


def compute_plan_end(account: Account, months: int, now: float) -> int:
    """Return the end of a plan that is extended by calendar months, from its end or from now, whichever is later."""
    return timestamps.add_months(max(now, account.plan_expires_at or 0), months)


def _require_account(account: Account | None, reference: str) -> Account:
    if account is None:
        raise Problem("account_not_found", f"There is no account {reference}")
    return account


def validate_name(name: str) -> str:
    """Return the name of an account or a key unchanged. Raises Problem("invalid_request") if it is invalid."""
    if not 0 < len(name) <= _MAX_NAME_LENGTH or name.isspace() or not name.isprintable():
        raise Problem(
            "invalid_request",
            f"A name must have 1 to {_MAX_NAME_LENGTH} printable characters, not only spaces, got {name[:40]!r}",
        )
    return name


def validate_reason(reason: str) -> str:
    """Return an operator's reason on one line. Raises Problem("invalid_request") if it is too long."""
    reason = " ".join(reason.split())
    if len(reason) > MAX_REASON_LENGTH or not reason.isprintable():
        raise Problem("invalid_request", f"A reason has at most {MAX_REASON_LENGTH} printable characters")
    return reason


def validate_email(email: str) -> str:
    """Return an email address in lower case. Raises Problem("invalid_request") if it is invalid."""
    email = email.strip().lower()
    local, _, domain = email.rpartition("@")
    is_encoded = "=?" in email  # as an encoded word (RFC 2047), it would be decoded in the header of a mail
    if not (local and domain) or len(email) > MAX_EMAIL_LENGTH or not email.isprintable() or " " in email or is_encoded:
        raise Problem("invalid_request", f"{email[:40]!r} is not an email address")
    if is_erased_email(email) or is_test_email(email):
        kind = "an erased" if is_erased_email(email) else "a test"
        raise Problem("invalid_request", f"{email[:40]!r} is reserved for {kind} account: use another address")
    return email


def remove_controls(text: str) -> str:
    """Remove unpaired surrogates, which UTF-8 can't encode, and control characters except line breaks and tabs.

    Bidirectional controls are removed, too: they can reverse our own text on the same line.
    """
    text = _BIDI_CONTROLS.sub("", text)
    return "".join(one for one in text if one in "\n\t" or unicodedata.category(one) not in {"Cc", "Cs"})
