"""`KeyStore`, implemented with scripts that every engine can run."""

from collections.abc import Mapping

from msgspec.structs import astuple

from listings.contract.accounts import DecideRotation, NewKey
from listings.contract.history import Actor
from listings.contract.mail import NewMail
from listings.domain.model import Account, ApiKey, bucket_of
from listings.store import mail_queue, sql
from listings.store.scripts.accounts import lock_not_erased
from listings.store.scripts.audit import record_event
from listings.store.scripts.script import Query, QueryMany, Script, ScriptedStore, caller_transaction, transaction


class ScriptedKeyStore(ScriptedStore):
    """Implements `KeyStore`, except `find_caller`."""

    @transaction
    def add_key(self, new: NewKey, actor: Actor | None = None, mail: NewMail | None = None) -> Script[ApiKey | None]:
        yield from lock_not_erased(new.account_id)
        rows = yield Query(sql.ADD_KEY, astuple(new))
        if not rows:
            return None
        key = ApiKey(*rows[0])
        if actor is not None:
            yield from record_event(key.account_id, actor, "key_added", key.id)
        yield from mail_queue.add(mail)
        return key

    async def list_keys(self, account_id: int) -> list[ApiKey]:
        return [ApiKey(*row) for row in await self._fetch(sql.LIST_KEYS, account_id)]

    async def list_successors(self, account_id: int) -> dict[int, int]:
        rows = await self._fetch(sql.LIST_SUCCESSORS, bucket_of(account_id), account_id)
        return {int(old): int(new) for old, new in rows}

    @caller_transaction
    def rotate_key(self, key_id: int, decide: DecideRotation, actor: Actor | None = None) -> Script[ApiKey | None]:
        rows = yield Query(sql.GET_KEY, (key_id,))
        if not rows:
            return None
        yield from lock_not_erased(ApiKey(*rows[0]).account_id)
        rows = yield Query(sql.GET_KEY, (key_id,), locks=True)
        old = ApiKey(*rows[0])
        rows = yield Query(sql.GET_ACCOUNT, (old.account_id,))
        rotation = decide(old, Account(*rows[0]), (yield from _find_successor(old)))
        yield Query(sql.SET_KEY_EXPIRY, (rotation.old_expires_at, key_id))
        rows = yield Query(sql.ADD_KEY, astuple(rotation.new))
        key = ApiKey(*rows[0])
        if actor is not None:
            yield from record_event(key.account_id, actor, "key_rotated", key.id, key_id)
        yield from mail_queue.add(rotation.mail)
        return key

    @transaction
    def record_key_uses(self, uses: Mapping[int, int]) -> Script[None]:
        # In sorted order, because several processes record the same keys.
        yield QueryMany(sql.RECORD_KEY_USE, [(moment, key_id) for key_id, moment in sorted(uses.items())])

    @caller_transaction
    def revoke_key(self, key_id: int, revoked_at: int, actor: Actor | None = None) -> Script[ApiKey | None]:
        rows = yield Query(sql.GET_KEY, (key_id,), locks=True)
        if not rows:
            return None
        before = ApiKey(*rows[0])
        rows = yield Query(sql.REVOKE_KEY, (revoked_at, key_id))
        if actor is not None and before.revoked_at is None:
            yield from record_event(before.account_id, actor, "key_revoked", key_id)
        return ApiKey(*rows[0])


def _find_successor(old: ApiKey) -> Script[int | None]:
    """Return the id of the key that already replaced this one, or None.

    A key without an expiry was never rotated, so its account's activity is not searched.
    """
    if old.expires_at is None:
        return None
    rows = yield Query(sql.FIND_SUCCESSOR, (bucket_of(old.account_id), old.account_id, str(old.id)))
    return int(rows[0][0]) if rows else None
