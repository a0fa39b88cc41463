"""Messages from buyers to sellers, which are sent by mail and stored only until then."""

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple, Protocol

from listings.contract.accounts import AccountStore
from listings.contract.mail import MailStore
from listings.contract.members import AttemptStore
from listings.domain.errors import Problem
from listings.domain.model import Account, Listing
from listings.service.accounts import MAX_EMAIL_LENGTH, validate_name
from listings.service.mail.composer import MailComposer
from listings.service.market import Market
from listings.service.members.attempts import MAX_SECONDS, Attempts, build_limit, find_network

MAX_LENGTH = 2_000  # characters of a message
_MAX_SUBJECT_LENGTH = 100
_MAX_PER_NETWORK, _MAX_PER_LISTING, _MAX_PER_SELLER = 5, 20, 50  # messages in an hour
_ATOM = r"[\w!#$%&'*+/=?^`{|}~-]+"  # RFC 5322, 3.2.3
_EMAIL = re.compile(rf"{_ATOM}(?:\.{_ATOM})*@[a-z0-9-]+(?:\.[a-z0-9-]+)+", re.ASCII | re.IGNORECASE)


class BuyerMessage(NamedTuple):
    """A message, with the name and the email address of its sender."""

    name: str
    email: str
    text: str


class _Store(AccountStore, MailStore, AttemptStore, Protocol):
    pass


class Messages:
    """Sends messages from buyers to sellers."""

    def __init__(self, store: _Store, market: Market, composer: MailComposer, clock: Callable[[], float]) -> None:
        self._store = store
        self._market = market
        self._composer = composer
        self._attempts = Attempts(store, clock)

    @property
    def is_on(self) -> bool:
        """Whether buyers can send messages, which needs mail."""
        return self._composer.is_on

    def reaches(self, seller: Account) -> bool:
        """Return whether buyers can send messages to a seller."""
        return self.is_on and seller.messages_off_at is None

    async def find_recipient(self, listing_id: int) -> tuple[Listing, Account]:
        """Return a listing of the public market and its seller.

        Raises Problem: listing_deleted, listing_not_found, path_not_found (mail or the seller's messages are off).
        """
        listing = await self._market.get_listing(listing_id)
        seller = await self._store.get_account(listing.account_id)
        if seller is None or not self.reaches(seller):
            raise Problem("path_not_found", "This seller doesn't accept messages")
        return listing, seller

    async def send(self, listing_id: int, message: BuyerMessage, address: str) -> None:
        """Queue a message to the seller of a listing. `address` is the sender's IP address.

        Raises Problem: invalid_request, too_many_attempts, and those of `find_recipient`.
        """
        listing, seller = await self.find_recipient(listing_id)
        message = _validate(message)
        await self._attempts.count(
            [
                build_limit(_MAX_PER_NETWORK, "message network", find_network(address), MAX_SECONDS),
                build_limit(_MAX_PER_LISTING, "message listing", str(listing.id), MAX_SECONDS),
                build_limit(_MAX_PER_SELLER, "message seller", str(seller.id), MAX_SECONDS),
            ],
            "messages in the last hour",
        )
        title = " ".join(_remove_controls(listing.title).split())[:_MAX_SUBJECT_LENGTH]
        detail = {"listing": str(listing.id), "title": title, **message._asdict()}
        if (mail := self._composer.compose("buyer_message", seller, **detail)) is not None:
            await self._store.add_mail(mail)


def _validate(message: BuyerMessage) -> BuyerMessage:
    """Return a message that headers and text of an email can contain. Raises Problem("invalid_request")."""
    if not message.name.strip():
        raise Problem("invalid_request", "Enter your name")
    name, email = validate_name(message.name.strip()), message.email.strip()
    if len(email) > MAX_EMAIL_LENGTH or not _EMAIL.fullmatch(email):
        raise Problem("invalid_request", "Enter your email address, such as ana@example.com")
    text = _remove_controls("\n".join(message.text.splitlines())).strip()
    if not text:
        raise Problem("invalid_request", "Enter a message")
    if len(text) > MAX_LENGTH:
        raise Problem("invalid_request", f"A message must have at most {MAX_LENGTH:,} characters, got {len(text):,}")
    return BuyerMessage(name, email, text)


def _remove_controls(text: str) -> str:
    """Remove unpaired surrogates, which UTF-8 can't encode, and control characters except line breaks and tabs."""
    return "".join(one for one in text if one in "\n\t" or unicodedata.category(one) not in {"Cc", "Cs"})
