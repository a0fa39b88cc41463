"""Build listings from database rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from listings.domain.account_limits import AccountSize
from listings.domain.model import KeyAccess, Listing

ListingRow: TypeAlias = tuple[Any, ...]
"""Values of `sql.LISTING_COLUMNS`, from which `build_listing` makes a listing."""

AccountRow: TypeAlias = tuple[int, str, str, int | None, int, int | None, str, int | None, int | None, str]
"""Values of `sql.ACCOUNT_COLUMNS`."""

KeyRow: TypeAlias = tuple[int, int, str, str, int, int | None, int | None, int | None, KeyAccess]
"""Values of `sql.KEY_COLUMNS`."""

Partition: TypeAlias = tuple[int, int]
"""Bucket and account id."""


class AccountState(NamedTuple):
    """A row of `sql.GET_ACCOUNT_SIZE`. `max_listings` and `max_text_bytes` are the account's own limits."""

    listings: int
    text_bytes: int
    edit_revision: int
    edited_at: int
    max_listings: int | None
    max_text_bytes: int | None

    @property
    def size(self) -> AccountSize:
        return AccountSize(self.listings, self.text_bytes)


class ChangeState(NamedTuple):
    """A row of `change_sql.GET_EDIT_STATE`: the last change sets that were written, deleted and lost, or 0.

    `purged_serial` and `purged_at` are the last serial and the time of the last one that was deleted.
    """

    edit_revision: int
    purged_revision: int
    lost_revision: int
    purged_serial: int
    purged_at: int


_IS_ACTIVE = Listing.__struct_fields__.index("is_active")


def build_listing(row: Sequence[Any]) -> Listing:
    """Return the listing in a row. SQLite has no booleans, so its is_active is 0 or 1."""
    values = list(row)
    values[_IS_ACTIVE] = row[_IS_ACTIVE] == 1
    return Listing(*values)
