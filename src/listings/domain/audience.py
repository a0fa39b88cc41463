"""Buyers of an account's listings: their messages, and how many viewed or wrote on each day."""

from typing import NamedTuple


class Message(NamedTuple):
    """A message from a buyer. `id` is random, and `created_at` a Unix time in seconds."""

    created_at: int
    id: str
    listing_id: int
    name: str
    email: str
    text: str


class AccountDay(NamedTuple):
    """The views of an account's listings, and the messages about them, on a day (days since 1970)."""

    day: int
    views: int = 0
    messages: int = 0


class ListingReport(NamedTuple):
    """A visitor's report of a listing of an account. `id` is random, `created_at` a Unix time in seconds."""

    id: str
    account_id: int
    listing_id: int
    reason: str
    text: str
    created_at: int


class Takedown(NamedTuple):
    """Why an operator has taken down a listing, and since when (a Unix time in seconds).

    `operator` is the name of the operator in the log, which the seller does not see.
    """

    listing_id: int
    account_id: int
    reason: str
    operator: str
    created_at: int
