"""Keys, as they are stored, rotated and revoked: one script a transaction."""

from msgspec.structs import astuple

from listings.contract.accounts import DecideRotation, NewKey
from listings.contract.history import Actor
from listings.domain.model import Account, ApiKey, bucket_of
from listings.store import sql
from listings.store.scripts.audit import note
from listings.store.scripts.script import Query, Script


def add(new: NewKey, actor: Actor | None) -> Script[ApiKey | None]:
    """None when the digest is taken."""
    rows = yield Query(sql.ADD_KEY, astuple(new))
    if not rows:
        return None
    key = ApiKey(*rows[0])
    if actor is not None:
        yield from note(key.account_id, actor, "key_added", key.id)
    return key


def rotate(key_id: int, decide: DecideRotation, actor: Actor | None) -> Script[ApiKey | None]:
    """The new key, with the old one's end."""
    rows = yield Query(sql.GET_KEY, (key_id,), locks=True)
    if not rows:
        return None
    old = ApiKey(*rows[0])
    rows = yield Query(sql.GET_ACCOUNT, (old.account_id,))
    rotation = decide(old, Account(*rows[0]), (yield from _successor(old)))
    yield Query(sql.SET_KEY_EXPIRY, (rotation.old_expires_at, key_id))
    rows = yield Query(sql.ADD_KEY, astuple(rotation.new))
    key = ApiKey(*rows[0])
    if actor is not None:
        yield from note(key.account_id, actor, "key_rotated", key.id, key_id)
    return key


def _successor(old: ApiKey) -> Script[int | None]:
    """The key that was made in its place; one without an end has none, so that no activity is looked through."""
    if old.expires_at is None:
        return None
    rows = yield Query(sql.FIND_SUCCESSOR, (bucket_of(old.account_id), old.account_id, str(old.id)))
    return int(rows[0][0]) if rows else None


def revoke(key_id: int, revoked_at: int, actor: Actor | None) -> Script[ApiKey | None]:
    """One that is revoked keeps its first time, and leaves no event."""
    rows = yield Query(sql.GET_KEY, (key_id,), locks=True)
    if not rows:
        return None
    was = ApiKey(*rows[0])
    rows = yield Query(sql.REVOKE_KEY, (revoked_at, key_id))
    if actor is not None and was.revoked_at is None:
        yield from note(was.account_id, actor, "key_revoked", key_id)
    return ApiKey(*rows[0])
