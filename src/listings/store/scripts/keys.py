"""Keys, as they are stored, rotated and revoked: one script a transaction."""

from msgspec.structs import astuple

from listings.contract.accounts import DecideRotation, NewKey
from listings.contract.history import Author
from listings.domain.model import Account, ApiKey, bucket_of
from listings.store import sql
from listings.store.scripts.audit import note
from listings.store.scripts.script import Ask, Script


def add(new: NewKey, author: Author | None) -> Script[ApiKey | None]:
    """None when the digest is taken."""
    rows = yield Ask(sql.ADD_KEY, astuple(new))
    if not rows:
        return None
    key = ApiKey(*rows[0])
    if author is not None:
        yield from note(key.account_id, author, "key_added", key.id)
    return key


def rotate(key_id: int, decide: DecideRotation, author: Author | None) -> Script[ApiKey | None]:
    """The new key, with the old one's end."""
    rows = yield Ask(sql.GET_KEY, (key_id,), locks=True)
    if not rows:
        return None
    old = ApiKey(*rows[0])
    rows = yield Ask(sql.GET_ACCOUNT, (old.account_id,))
    rotation = decide(old, Account(*rows[0]), (yield from _successor(old)))
    yield Ask(sql.SET_KEY_EXPIRY, (rotation.old_expires_at, key_id))
    rows = yield Ask(sql.ADD_KEY, astuple(rotation.new))
    key = ApiKey(*rows[0])
    if author is not None:
        yield from note(key.account_id, author, "key_rotated", key.id, key_id)
    return key


def _successor(old: ApiKey) -> Script[int | None]:
    """The key that was made in its place; one without an end has none, so that no activity is looked through."""
    if old.expires_at is None:
        return None
    rows = yield Ask(sql.FIND_SUCCESSOR, (bucket_of(old.account_id), old.account_id, str(old.id)))
    return int(rows[0][0]) if rows else None


def revoke(key_id: int, revoked_at: int, author: Author | None) -> Script[ApiKey | None]:
    """One that is revoked keeps its first time, and leaves no event."""
    rows = yield Ask(sql.GET_KEY, (key_id,), locks=True)
    if not rows:
        return None
    was = ApiKey(*rows[0])
    rows = yield Ask(sql.REVOKE_KEY, (revoked_at, key_id))
    if author is not None and was.revoked_at is None:
        yield from note(was.account_id, author, "key_revoked", key_id)
    return ApiKey(*rows[0])
