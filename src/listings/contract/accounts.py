"""Types for the store's methods on accounts and keys."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from listings.domain.model import (
    Account,
    ApiKey,
)

AccountChange: TypeAlias = Mapping[str, str | int | None]
"""New values for `name`, `plan_expires_at` and `disabled_at`. Contains only the fields to change."""


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key to be stored, without its secret. Times are Unix times in seconds."""

    account_id: int
    name: str
    digest: bytes
    hint: str
    created_at: int
    expires_at: int | None = None


class Rotation(NamedTuple):
    """The key that replaces another one, and the Unix time at which the old key expires."""

    new: NewKey
    old_expires_at: int


DecideRotation: TypeAlias = Callable[[ApiKey, Account, int | None], Rotation]
"""Receives a key, its account, and the id of the key that already replaced it (None if none is known)."""
