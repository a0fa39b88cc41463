"""Types of the store's methods on accounts and keys."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from listings.domain.model import (
    Account,
    ApiKey,
)

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


DecideRotation: TypeAlias = Callable[[ApiKey, Account, int | None], Rotation]
"""Of a key, its account, and the id of the key that was made in its place before, as far as that is known."""
