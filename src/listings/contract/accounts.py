"""The stores of accounts and keys, and their types."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from listings.contract.history import Actor
from listings.contract.mail import NewMail
from listings.domain.model import Account, ApiKey, Caller, KeyAccess

AccountChange: TypeAlias = Mapping[str, str | int | None]
"""New values for fields of an account, such as `name`. Contains only the fields to change."""


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key to be stored, without its secret. Times are Unix times in seconds."""

    account_id: int
    name: str
    digest: bytes
    hint: str
    created_at: int
    expires_at: int | None = None
    access: KeyAccess = "write"


class Rotation(NamedTuple):
    """The key that replaces another one, the Unix time at which the old key expires, and an email about it."""

    new: NewKey
    old_expires_at: int
    mail: NewMail | None = None


class PlanRequest(NamedTuple):
    """A seller's request for the Business plan. `requested_at` is a Unix time in seconds."""

    account: Account
    requested_at: int


DecideRotation: TypeAlias = Callable[[ApiKey, Account, int | None], Rotation]
"""Receives a key, its account, and the id of the key that already replaced it (None if none is known)."""


class AccountStore(Protocol):
    """Stores accounts, with the guarantees of `contract.store.Store`."""

    async def add_account(self, name: str, email: str, plan_expires_at: int | None, created_at: int) -> Account | None:
        """Store an account. Return None and store nothing if the email address is taken."""

    async def get_account(self, account_id: int) -> Account | None:
        """Return the account with this id, or None if it does not exist."""

    async def find_account(self, email: str) -> Account | None:
        """Return the account with exactly this email address, or None if there is none."""

    async def page_accounts(self, after: int, count: int) -> list[Account]:
        """Return at most `count` accounts with ids above `after`, lowest first."""

    async def change_account(
        self, account_id: int, decide: Callable[[Account], AccountChange], actor: Actor | None = None
    ) -> Account | None:
        """Write the changes that the pure function `decide` returns for an account.

        Return the updated account, or None if it does not exist. If an actor is given, and the plan now ends later than
        before and in the future, the account's request for the plan is deleted. Enabling a closed account cancels its
        erasure.
        """

    async def add_plan_request(self, account_id: int, requested_at: int, mail: NewMail | None = None) -> bool:
        """Store that an existing account requests the plan, and queue the mail.

        Return False and store nothing if the account already has an open request.
        """

    async def get_plan_request(self, account_id: int) -> int | None:
        """Return the Unix time at which the account requested the plan, or None if no request is open."""

    async def delete_plan_request(self, account_id: int) -> None:
        """Delete the account's request for the plan, if there is one."""

    async def list_plan_requests(self) -> list[PlanRequest]:
        """Return the open requests for the plan, oldest first."""


class KeyStore(Protocol):
    """Stores API keys, with the guarantees of `contract.store.Store`.

    When a method that changes a key or its account returns, `find_caller` returns the new state in every process.
    """

    async def find_caller(self, digest: bytes) -> Caller | None:
        """Return the key with this digest and its account, or None if the key is unknown.

        Revoked and expired keys are included.
        """

    async def add_key(self, new: NewKey, actor: Actor | None = None, mail: NewMail | None = None) -> ApiKey | None:
        """Store a key of an existing account, and queue the mail.

        Return None and store nothing if the digest is taken. Raises Problem("account_disabled") if the account is
        erased.
        """

    async def list_keys(self, account_id: int) -> list[ApiKey]:
        """Return the account's keys in order of their ids, including revoked and expired ones."""

    async def list_successors(self, account_id: int) -> dict[int, int]:
        """Map the id of each rotated key to that of its successor, as far as audit events are retained."""

    async def rotate_key(self, key_id: int, decide: DecideRotation, actor: Actor | None = None) -> ApiKey | None:
        """Store a new key and set the expiry of the old one, as the pure function `decide` returns them.

        Return the new key, or None if the old one does not exist. The new digest must not be taken. The successor that
        `decide` receives is read from the audit event of the earlier rotation. It is None if that rotation had no
        `actor`, or if its event is no longer retained. Raises Problem("account_disabled") if the account is erased.
        """

    async def record_key_uses(self, uses: Mapping[int, int]) -> None:
        """Record when keys (by id) were last used. A time before the stored one changes nothing."""

    async def revoke_key(self, key_id: int, revoked_at: int, actor: Actor | None = None) -> ApiKey | None:
        """Revoke a key permanently and return it, or None if it does not exist.

        A key that is already revoked keeps its first `revoked_at`.
        """
