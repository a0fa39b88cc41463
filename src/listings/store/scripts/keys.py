"""The methods of the store for API keys."""

from collections.abc import Mapping

from msgspec.structs import astuple

from listings.domain.accounts import DecideRotation, NewKey
from listings.domain.history import Actor
from listings.domain.mail import NewMail
from listings.domain.model import Account, ApiKey, bucket_of
from listings.store import mail_queue, sql
from listings.store.scripts.accounts import lock_not_erased
from listings.store.scripts.audit import record_event
from listings.store.scripts.script import ScriptedStore, Transaction, caller_transaction, transaction


class ScriptedKeyStore(ScriptedStore):
    """Stores API keys.

    When a method that changes a key or its account returns, `find_caller` returns the new state in every process.
    """

    @transaction
    async def add_key(
        self, tx: Transaction, new: NewKey, actor: Actor | None = None, mail: NewMail | None = None
    ) -> ApiKey | None:
        """Store a key of an existing account, and queue the mail.

        Return None and store nothing if the digest is taken. Raises Problem("account_disabled") if the account is
        erased.
        """
        await lock_not_erased(tx, new.account_id)
        key = await tx.find(ApiKey, sql.ADD_KEY, astuple(new))
        if key is None:
            return None
        if actor is not None:
            await record_event(tx, key.account_id, actor, "key_added", key.id)
        await mail_queue.add(tx, mail)
        return key

    async def get_key(self, key_id: int) -> ApiKey | None:
        return await self._find(ApiKey, sql.GET_KEY, key_id)

    async def list_keys(self, account_id: int) -> list[ApiKey]:
        """Return the account's keys in order of their ids, including revoked and expired ones."""
        return await self._list(ApiKey, sql.LIST_KEYS, account_id)

    async def list_successors(self, account_id: int) -> dict[int, int]:
        """Map the id of each rotated key to that of its successor, as far as audit events are retained."""
        rows = await self._fetch(sql.LIST_SUCCESSORS, bucket_of(account_id), account_id)
        return {int(old): new for old, new in rows}

    @caller_transaction
    async def rotate_key(
        self, tx: Transaction, key_id: int, decide: DecideRotation, actor: Actor | None = None
    ) -> ApiKey | None:
        """Store a new key and set the expiry of the old one, as the pure function `decide` returns them.

        Return the new key, or None if the old one does not exist. The new digest must not be taken. The successor that
        `decide` receives is read from the audit event of the earlier rotation. It is None if that rotation had no
        `actor`, or if its event is no longer retained. Raises Problem("account_disabled") if the account is erased.
        """
        found = await tx.find(ApiKey, sql.GET_KEY, (key_id,))
        if found is None:
            return None
        await lock_not_erased(tx, found.account_id)
        old = await tx.get(ApiKey, sql.GET_KEY, (key_id,), locks=True)
        account = await tx.get(Account, sql.GET_ACCOUNT, (old.account_id,))
        successor = None
        if old.expires_at is not None:  # otherwise it was never rotated, so its account's activity is not searched
            partition = (bucket_of(old.account_id), old.account_id)
            successor = await tx.find(int, sql.FIND_SUCCESSOR, (*partition, str(old.id)))
        rotation = decide(old, account, successor)
        await tx.fetch(sql.SET_KEY_EXPIRY, (rotation.old_expires_at, key_id))
        key = await tx.get(ApiKey, sql.ADD_KEY, astuple(rotation.new))
        if actor is not None:
            await record_event(tx, key.account_id, actor, "key_rotated", key.id, key_id)
        await mail_queue.add(tx, rotation.mail)
        return key

    @transaction
    async def record_key_uses(self, tx: Transaction, uses: Mapping[int, int]) -> None:
        """Record when keys (by id) were last used. A time before the stored one changes nothing."""
        # In sorted order, because several processes record the same keys.
        await tx.fetch_many(sql.RECORD_KEY_USE, [(moment, key_id) for key_id, moment in sorted(uses.items())])

    @caller_transaction
    async def revoke_key(
        self, tx: Transaction, key_id: int, revoked_at: int, actor: Actor | None = None
    ) -> ApiKey | None:
        """Revoke a key permanently and return it, or None if it does not exist.

        A key that is already revoked keeps its first `revoked_at`.
        """
        before = await tx.find(ApiKey, sql.GET_KEY, (key_id,), locks=True)
        if before is None:
            return None
        if actor is not None and before.revoked_at is None:
            await record_event(tx, before.account_id, actor, "key_revoked", key_id)
        return await tx.get(ApiKey, sql.REVOKE_KEY, (revoked_at, key_id))
