"""How much an account may store: a number of listings, the size of their text, and all that is stored for it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from listings.domain.errors import Problem
from listings.domain.model import ImportedListing, Listing, NewListing

UNLIMITED = 2**63 - 1
CHANGE_BYTES: Final = 100
"""Bytes that are counted for a stored change, or a conflict of a revert, in addition to its values."""
DELETED_BYTES: Final = 600
"""Bytes that are counted for a deleted listing in addition to its texts."""
_MIN_BUDGET: Final = 256 * 1024 * 1024
_BUDGET_RATIO: Final = 4
_TEXT_FIELDS = frozenset({"title", "content", "images"})


class AccountSize(NamedTuple):
    """A number of listings that are not deleted, and the bytes of their titles, contents and image URLs.

    `history_bytes` are those of deleted listings and, unless it is the growth by an edit, of changes.
    """

    listings: int
    text_bytes: int
    history_bytes: int = 0

    def add(self, other: "AccountSize") -> "AccountSize":
        return AccountSize(
            self.listings + other.listings,
            self.text_bytes + other.text_bytes,
            self.history_bytes + other.history_bytes,
        )

    def subtract(self, other: "AccountSize") -> "AccountSize":
        return self.add(AccountSize(-other.listings, -other.text_bytes, -other.history_bytes))


class AccountLimits(NamedTuple):
    """The maximum size of an account. `require_room` has an exception for accounts that are already larger.

    `stored_bytes` includes the history of the account, of which the oldest part is deleted beyond it. 0: four times the
    texts that the account has, at least 256 MiB, and at most four times `text_bytes`.
    """

    listings: int = UNLIMITED
    text_bytes: int = UNLIMITED
    stored_bytes: int = 0

    def override(self, own: Sequence[int | None]) -> "AccountLimits":
        """Return the limits of an account that has its own ones, of which None are not set."""
        return AccountLimits(*(default if limit is None else limit for limit, default in zip(own, self, strict=False)))

    def compute_budget(self, text_bytes: int) -> int:
        """Return the bytes that may be stored for an account with texts of this size."""
        return self.stored_bytes or min(max(_BUDGET_RATIO * text_bytes, _MIN_BUDGET), _BUDGET_RATIO * self.text_bytes)

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

    `decision` is a new listing, or the changes of `listing`.
    """
    if isinstance(decision, ImportedListing):
        new = measure_new(decision.new)
        return new if decision.deleted_at is None else AccountSize(0, 0, DELETED_BYTES + new.text_bytes)
    return NO_GROWTH if listing is None else measure_growth(listing, decision)


def measure_growth(listing: Listing, changes: Mapping[str, Any]) -> AccountSize:
    """Return by how much changes of a listing enlarge its account; negative if they shrink it."""
    if "deleted_at" not in changes and _TEXT_FIELDS.isdisjoint(changes):
        return NO_GROWTH
    return _measure(replace(listing, **changes)).subtract(_measure(listing))


def _measure(listing: Listing) -> AccountSize:
    if listing.deleted_at is not None:
        return AccountSize(0, 0, DELETED_BYTES + count_text_bytes(listing))
    return AccountSize(1, count_text_bytes(listing))


def count_text_bytes(one: Listing | NewListing) -> int:
    """Return the bytes of a listing's texts in UTF-8: title, content and image URLs."""
    return count_bytes(one.title) + count_bytes(one.content) + count_bytes(one.images)


def count_bytes(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
