"""Messages from buyers to sellers: sent by mail, and listed in the console for some days."""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, NamedTuple, TypeAlias, cast

import msgspec

from listings.domain import pictures
from listings.domain.audience import AccountDay, Message
from listings.domain.errors import Problem
from listings.domain.mail import NewMail
from listings.domain.model import Account, Listing, bucket_of
from listings.domain.timestamps import DAY_SECONDS
from listings.service.accounts import MAX_EMAIL_LENGTH, remove_controls, validate_name
from listings.service.mail.composer import MailComposer
from listings.service.market import Market
from listings.service.members.attempts import MAX_SECONDS, Attempts, build_limit, find_network
from listings.store.store import Store

LATEST: Final = (2**62, "")

MAX_LENGTH = 2_000  # characters of a message
_MAX_SUBJECT_LENGTH = 100
_MAX_PER_BROWSER, _MAX_PER_NETWORK, _MAX_PER_LISTING, _MAX_PER_SELLER = 10, 60, 20, 50  # messages in an hour
_COUNTED_DAYS = 90
_MIN_SIMILARITY = 0.85  # between domains, from 0 to 1
_COMMON_DOMAINS = (
    *("gmail.com", "hotmail.com", "outlook.com", "yahoo.com", "icloud.com", "live.com", "msn.com"),
    *("xtra.co.nz", "yahoo.co.nz", "hotmail.co.nz", "slingshot.co.nz", "gmx.net", "proton.me"),
)
_ATOM = r"[\w!#$%&'*+/=?^`{|}~-]+"  # RFC 5322, 3.2.3
_EMAIL = re.compile(rf"{_ATOM}(?:\.{_ATOM})*@[a-z0-9-]+(?:\.[a-z0-9-]+)+", re.ASCII | re.IGNORECASE)


Recipient: TypeAlias = tuple[Listing | None, Account]
"""The listing that a message is about, if it is about one, and its seller."""


class BuyerMessage(NamedTuple):
    """A message, with the name and the email address of its sender."""

    name: str
    email: str
    text: str


@dataclass(eq=False)
class Messages:
    """Sends messages from buyers to sellers."""

    _store: Store
    _attempts: Attempts
    _market: Market
    _clock: Callable[[], float]
    _composer: MailComposer
    days: int  # for which messages are stored; 0: they are only counted

    @property
    def is_on(self) -> bool:
        """Whether buyers can send messages, which needs mail."""
        return self._composer.is_on

    def reaches(self, seller: Account) -> bool:
        return self.is_on and seller.messages_off_at is None

    async def find_recipient(self, listing_id: int) -> Recipient:
        """Return a listing of the public market and its seller.

        Raises Problem: listing_deleted, listing_not_found, path_not_found (mail or the seller's messages are off).
        """
        listing = await self._market.get_listing(listing_id)
        seller = await self._store.get_account(listing.account_id)
        if seller is None or not self.reaches(seller):
            raise Problem("path_not_found", "This seller doesn't accept messages")
        return listing, seller

    async def find_seller(self, account_id: int) -> Recipient:
        """Return a seller with listings on the market, without a listing. Raises Problem("path_not_found")."""
        seller = await self._market.get_seller(account_id, count=0)
        if not seller.listing_count or not self.reaches(seller.account):
            raise Problem("path_not_found", "This seller doesn't accept messages")
        return None, seller.account

    async def send(
        self, recipient: Recipient, message: BuyerMessage, address: str, browser: str, *, copy: bool = False
    ) -> None:
        """Queue a message to a seller about a listing, or about none, and store it for the console.

        `address` is the sender's IP address, and `browser` the secret of a cookie. With `copy`, the sender gets a mail
        that confirms the message, without its text.

        Raises Problem: invalid_request, too_many_attempts.
        """
        listing, seller = recipient
        message = _validate(message)
        limits = [
            build_limit(_MAX_PER_BROWSER, "message browser", browser, MAX_SECONDS),
            build_limit(_MAX_PER_NETWORK, "message network", find_network(address), MAX_SECONDS),
            build_limit(_MAX_PER_SELLER, "message seller", str(seller.id), MAX_SECONDS),
        ]
        if listing is not None:
            limits.append(build_limit(_MAX_PER_LISTING, "message listing", str(listing.id), MAX_SECONDS))
        await self._attempts.count(limits, "messages in the last hour")
        listing_id, title = (listing.id, listing.title) if listing is not None else (0, seller.name)
        subject = {
            "listing": str(listing_id),
            "title": shorten_title(title),
            "path": f"/listings/{listing_id}" if listing is not None else f"/sellers/{seller.id}",
        }
        images = listing.images if listing is not None else "[]"
        first = next(iter(msgspec.json.decode(images, type=list[str])), "")
        picture = pictures.build_path(name) if (name := pictures.find_name(first)) is not None else ""
        mail = self._composer.compose("buyer_message", seller, **subject, **message._asdict(), picture=picture)
        stored = Message(int(self._clock()), secrets.token_hex(8), listing_id, *message)
        await self._store.add_message((bucket_of(seller.id), seller.id), stored, mail, stored=self.days > 0)
        if copy:
            confirmation = self._composer.compose("message_copy", seller, message.email, **subject)
            await self._store.add_mail(cast("NewMail", confirmation))

    async def list_page(self, account: Account, before: tuple[int, str] = LATEST, count: int = 25) -> list[Message]:
        """Return at most `count` stored messages to a seller, newest first, before a time and an id."""
        return await self._store.page_messages((bucket_of(account.id), account.id), before, count)

    async def list_days(self, account: Account, count: int) -> list[AccountDay]:
        """Return the views and messages of the last `count` days without gaps, oldest first. Today is the last."""
        today = int(self._clock()) // DAY_SECONDS
        found = await self._store.list_account_days((bucket_of(account.id), account.id), today - count + 1)
        by_day = {one.day: one for one in found}
        return [by_day.get(day, AccountDay(day)) for day in range(today - count + 1, today + 1)]

    async def purge(self) -> None:
        """Delete messages that are too old, and the counts of days more than 90 days ago."""
        now = int(self._clock())
        await self._store.purge_audience(now - self.days * DAY_SECONDS, now // DAY_SECONDS - _COUNTED_DAYS)


def suggest_email(email: str) -> str:
    """Return the address that was probably meant, if its domain is almost a common one, or ""."""
    name, _, domain = email.strip().rpartition("@")
    domain = domain.lower()
    if not name or domain in _COMMON_DOMAINS:
        return ""
    close = get_close_matches(domain, _COMMON_DOMAINS, 1, _MIN_SIMILARITY)
    return f"{name}@{close[0]}" if close else ""


def _validate(message: BuyerMessage) -> BuyerMessage:
    if not message.name.strip():
        raise Problem("invalid_request", "Enter your name")
    name, email = validate_name(message.name.strip()), message.email.strip()
    if len(email) > MAX_EMAIL_LENGTH or not _EMAIL.fullmatch(email):
        raise Problem("invalid_request", "Enter your email address, such as ana@example.com")
    text = remove_controls("\n".join(message.text.splitlines())).strip()
    if not text:
        raise Problem("invalid_request", "Enter a message")
    if len(text) > MAX_LENGTH:
        raise Problem("invalid_request", f"A message must have at most {MAX_LENGTH:,} characters, got {len(text):,}")
    return BuyerMessage(name, email, text)


def shorten_title(title: str) -> str:
    """Return a listing's title for a subject."""
    return " ".join(remove_controls(title).split())[:_MAX_SUBJECT_LENGTH]
