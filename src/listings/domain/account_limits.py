"""How much an account may store: a number of listings, and the size of their text."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from listings.domain.errors import Problem
from listings.domain.model import ImportedListing, Listing, NewListing

UNLIMITED = 2**63 - 1
_TEXT_FIELDS = frozenset({"title", "content", "images"})


class AccountSize(NamedTuple):
    """A number of listings that are not deleted, and the bytes of their titles, contents and image URLs."""

    listings: int
    text_bytes: int

    def add(self, other: "AccountSize") -> "AccountSize":
        return AccountSize(self.listings + other.listings, self.text_bytes + other.text_bytes)


class AccountLimits(NamedTuple):
    """The maximum size of an account. `require_room` has an exception for accounts that are already larger."""

    listings: int = UNLIMITED
    text_bytes: int = UNLIMITED

    def require_room(self, size: AccountSize, growth: AccountSize) -> None:
        """Raise Problem("account_full") if an account of this size may not grow by `growth`.

        An account that is too large already, because a limit was lowered, can still lengthen the texts that it has.
        """
        if growth.listings > 0 and size.listings + growth.listings > self.listings:
            raise Problem("account_full", f"An account can have at most {self.listings:,} listings: delete some first")
        grown = size.text_bytes + growth.text_bytes
        may_lengthen = growth.listings <= 0 and size.text_bytes > self.text_bytes
        if growth.text_bytes > 0 and grown > self.text_bytes and not may_lengthen:
            raise Problem(
                "account_full",
                f"The listings of an account can have at most {self.text_bytes:,} bytes of text, and would have "
                f"{grown:,}: shorten or delete some first",
            )


NO_LIMITS = AccountLimits()


def none_if_unlimited(limit: int) -> int | None:
    """Return a limit, or None if it is turned off."""
    return None if limit == UNLIMITED else limit


NO_GROWTH = AccountSize(0, 0)


def measure_new(new: NewListing) -> AccountSize:
    """Return the size of a new listing."""
    return AccountSize(1, count_text_bytes(new))


def measure_imported(listing: Listing | None, decision: ImportedListing | Mapping[str, Any]) -> AccountSize:
    """Return by how much an imported row enlarges its account.

    `decision` is what the row becomes: a new listing, or changes of `listing`.
    """
    if isinstance(decision, ImportedListing):
        return measure_new(decision.new) if decision.deleted_at is None else NO_GROWTH
    return NO_GROWTH if listing is None else measure_growth(listing, decision)


def measure_growth(listing: Listing, changes: Mapping[str, Any]) -> AccountSize:
    """Return how much changes of a listing make its account larger; negative if smaller."""
    if "deleted_at" not in changes and _TEXT_FIELDS.isdisjoint(changes):
        return NO_GROWTH
    before, after = _measure(listing), _measure(replace(listing, **changes))
    return after.add(AccountSize(-before.listings, -before.text_bytes))


def _measure(listing: Listing) -> AccountSize:
    if listing.deleted_at is not None:
        return NO_GROWTH
    return AccountSize(1, count_text_bytes(listing))


def count_text_bytes(one: Listing | NewListing) -> int:
    """Return the bytes of a listing's texts in UTF-8: title, content and image URLs."""
    return count_bytes(one.title) + count_bytes(one.content) + count_bytes(one.images)


def count_bytes(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
