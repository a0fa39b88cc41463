"""Uploaded pictures: statements, scripts and methods."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from listings.domain.errors import Problem
from listings.domain.pictures import Picture, Sweep
from listings.store import sql
from listings.store.mapping import Partition
from listings.store.query import Command, Query
from listings.store.scripts.accounts import lock_not_erased
from listings.store.scripts.script import ScriptedStore, Transaction, transaction

_COLUMNS = ", ".join(Picture.__struct_fields__)
_MAX_NAMES = 64  # in one statement
_PAGE_SIZE = 1_000
_NAME = re.compile(r"/media/([0-9a-f]{32})\.jpg")
_PictureRow: TypeAlias = tuple[str, int, int, int, int, int, int | None, str]

ADD_PICTURE = Command(f"""
INSERT INTO pictures ({_COLUMNS}, file_key, digest) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
""")
ADD_BYTES = Command("""
INSERT INTO picture_usage (account_id, bytes) VALUES ($1, $2)
ON CONFLICT (account_id) DO UPDATE SET bytes = picture_usage.bytes + excluded.bytes
""")
SET_LIMIT = Command("""
INSERT INTO picture_usage (account_id, bytes, max_bytes) VALUES ($1, 0, $2)
ON CONFLICT (account_id) DO UPDATE SET max_bytes = excluded.max_bytes
""")
GET_USAGE = Query[tuple[int, int | None]]("SELECT bytes, max_bytes FROM picture_usage WHERE account_id = $1")
PAGE_ACCOUNTS = Query[tuple[int]](
    "SELECT account_id FROM picture_usage WHERE account_id > $1 AND bytes > 0 ORDER BY account_id LIMIT $2"
)
GET_PICTURE = Query[_PictureRow](f"SELECT {_COLUMNS} FROM pictures WHERE name = $1")
FIND_VISIBLE = Query[tuple[str]]("""
SELECT p.name FROM pictures p JOIN accounts a ON a.id = p.account_id
WHERE p.name = $1 AND p.hidden_by IS NULL AND a.disabled_at IS NULL
""")
FIND_BY_DIGEST = Query[_PictureRow](f"SELECT {_COLUMNS} FROM pictures WHERE account_id = $1 AND digest = $2")
FIND_NEWEST = Query[_PictureRow](f"""
SELECT {_COLUMNS} FROM pictures WHERE account_id = $1 AND file_key = $2 ORDER BY created_at DESC, name DESC LIMIT 1
""")
RENEW = Command("""
UPDATE pictures SET created_at = $2, unused_since = NULL, file_name = $3, file_key = $4 WHERE name = $1
""")
PAGE_PICTURES = Query[_PictureRow](f"""
SELECT {_COLUMNS} FROM pictures WHERE account_id = $1 AND (created_at, name) < ($2, $3)
ORDER BY created_at DESC, name DESC LIMIT $4
""")
PAGE_NAMES = Query[tuple[str]]("SELECT name FROM pictures WHERE name > $1 ORDER BY name LIMIT $2")
LIST_OF_ACCOUNT = Query[tuple[str, int, int | None]](
    "SELECT name, size, unused_since FROM pictures WHERE account_id = $1"
)
LOCK_STATE = Query[tuple[int]]("SELECT edit_revision FROM account_state WHERE bucket = $1 AND account_id = $2")
SET_UNUSED = Command("UPDATE pictures SET unused_since = $2 WHERE name = $1")
DELETE_PICTURE = Query[tuple[int, int, bytes]](
    "DELETE FROM pictures WHERE name = $1 RETURNING account_id, size, digest"
)
BLOCK = Command("INSERT INTO blocked_pictures (digest, blocked_at) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING")
IS_BLOCKED = Query[tuple[int]]("SELECT blocked_at FROM blocked_pictures WHERE digest = $1")
PAGE_IMAGES = Query[tuple[int, str, bool, bool]](sql.build_page("id, images, deleted_at IS NOT NULL, is_active"))


class ScriptedPictureStore(ScriptedStore):
    """Stores uploaded pictures, except for their files. The account's other limits do not count their bytes."""

    @transaction
    async def add_picture(self, tx: Transaction, picture: Picture, digest: bytes, max_bytes: int) -> Picture:
        """Store a picture, and return it. If the account has one with this digest, renew and return that one instead.

        `max_bytes` is the limit of accounts without one of their own. Raises Problem: account_full, account_disabled
        (the account is erased).
        """
        await lock_not_erased(tx, picture.account_id)
        same = await tx.find(Picture, FIND_BY_DIGEST, (picture.account_id, digest))
        if same is not None:
            return await _renew(tx, same, picture.created_at, picture.file_name)
        used, own = await tx.find(_build_usage, GET_USAGE, (picture.account_id,)) or (0, None)
        limit = max_bytes if own is None else own
        if used + picture.size > limit:
            raise Problem(
                "account_full",
                f"The pictures of an account can have at most {limit:,} bytes: delete some that no listing shows",
            )
        values = [getattr(picture, name) for name in Picture.__struct_fields__]
        await tx.fetch(ADD_PICTURE, (*values, picture.file_name.casefold(), digest))
        await tx.fetch(ADD_BYTES, (picture.account_id, picture.size))
        return picture

    @transaction
    async def renew_picture(self, tx: Transaction, name: str, now: int, file_name: str) -> Picture | None:
        """Set the time of a picture's last upload, and its file name unless it is empty. Clear the mark as unused.

        Return None if there is no such picture.
        """
        picture = await tx.find(Picture, GET_PICTURE, (name,), locks=True)
        return None if picture is None else await _renew(tx, picture, now, file_name)

    async def get_picture(self, name: str) -> Picture | None:
        return await self._find(Picture, GET_PICTURE, name)

    async def is_picture_visible(self, name: str) -> bool:
        """Return whether there is such a picture, no takedown hides it, and its account is enabled."""
        return bool(await self._fetch(FIND_VISIBLE, name))

    async def find_picture_by_digest(self, account_id: int, digest: bytes) -> Picture | None:
        return await self._find(Picture, FIND_BY_DIGEST, account_id, digest)

    async def find_newest_picture(self, account_id: int, file_name: str) -> Picture | None:
        """Return the account's picture that was uploaded last with this file name, ignoring case, or None."""
        return await self._find(Picture, FIND_NEWEST, account_id, file_name.casefold())

    async def page_pictures(self, account_id: int, before: tuple[int, str], count: int) -> list[Picture]:
        """Return at most `count` pictures of an account before a time and name, the last upload first."""
        return await self._list(Picture, PAGE_PICTURES, account_id, *before, count)

    async def get_picture_sizes(
        self, names: Sequence[str], *, is_public: bool = False
    ) -> Mapping[str, tuple[int, int] | None]:
        """Return width and height of the pictures that exist, by name. `is_public`: None if a takedown hides it."""
        found: dict[str, tuple[int, int] | None] = {}
        for part in _split(names):
            places = ", ".join(f"${number}" for number, _ in enumerate(part, 1))
            statement = Query[tuple[str, int, int, int | None]](
                f"SELECT name, width, height, hidden_by FROM pictures WHERE name IN ({places})"
            )
            for name, width, height, hidden_by in await self._fetch(statement, *part):
                found[name] = None if is_public and hidden_by is not None else (width, height)
        return found

    async def page_picture_names(self, after: str, count: int) -> list[str]:
        """Return at most `count` names of pictures after `after`, in order."""
        return await self._list(str, PAGE_NAMES, after, count)

    async def list_picture_names(self, account_id: int) -> list[str]:
        return [name for name, *_ in await self._fetch(LIST_OF_ACCOUNT, account_id)]

    async def get_picture_usage(self, account_id: int) -> tuple[int, int | None]:
        """Return the bytes of an account's pictures, and its own limit, or None."""
        return await self._find(_build_usage, GET_USAGE, account_id) or (0, None)

    async def set_picture_limit(self, account_id: int, max_bytes: int | None) -> None:
        """Set an existing account's own limit. None: the limit of all accounts."""
        await self._write(SET_LIMIT, account_id, max_bytes)

    async def page_picture_accounts(self, after: int, count: int) -> list[int]:
        """Return at most `count` ids of accounts with pictures, above `after`, in ascending order."""
        return await self._list(int, PAGE_ACCOUNTS, after, count)

    async def find_used_pictures(
        self, bucket: int, account_id: int, *, only_active: bool = False
    ) -> tuple[int, Mapping[str, list[int]]]:
        """Return the account's edit revision, and the ids of listings by the name of each picture that they show.

        The ids of deleted listings are negative. `only_active`: without deleted and paused listings.
        """
        partition = (bucket, account_id)
        return await self._run_reads(lambda tx: _find_used(tx, partition, only_active=only_active))

    @transaction
    async def sweep_pictures(self, tx: Transaction, bucket: int, account_id: int, sweep: Sweep) -> list[str] | None:
        """Mark unused pictures of an account, clear the marks of used ones, and delete some. Return their names.

        Return None and write nothing if the account's listings have changed since they were read.
        """
        if await tx.find(int, LOCK_STATE, (bucket, account_id), locks=True) != sweep.edit_revision:
            return None
        pictures = sorted(await tx.fetch(LIST_OF_ACCOUNT, (account_id,)), key=lambda row: row[2] or sweep.now)
        deleted, freed = [], 0
        for name, size, since in pictures:
            is_due = since is not None and since < sweep.unused_before
            makes_room = since is not None and since < sweep.room_before and freed < sweep.room
            if name in sweep.used:
                if since is not None:
                    await tx.fetch(SET_UNUSED, (name, None))
            elif is_due or makes_room:
                await _delete(tx, name)
                deleted.append(name)
                freed += size
            elif since is None or since > sweep.now:
                await tx.fetch(SET_UNUSED, (name, sweep.now))
        return deleted

    @transaction
    async def delete_picture(self, tx: Transaction, name: str, blocked_at: int | None = None) -> bool:
        """Delete a picture. Return False if there is none. `blocked_at`: block further uploads of it since then."""
        digest = await _delete(tx, name)
        if digest is not None and blocked_at is not None:
            await tx.fetch(BLOCK, (digest, blocked_at))
        return digest is not None

    async def is_picture_blocked(self, digest: bytes) -> bool:
        """Return whether the operator has blocked uploads with this digest."""
        return bool(await self._fetch(IS_BLOCKED, digest))


async def _renew(tx: Transaction, picture: Picture, now: int, file_name: str) -> Picture:
    file_name = file_name or picture.file_name
    await tx.fetch(RENEW, (picture.name, now, file_name, file_name.casefold()))
    return await tx.get(Picture, GET_PICTURE, (picture.name,))


def _build_usage(used: int, max_bytes: int | None) -> tuple[int, int | None]:
    return used, max_bytes


async def _delete(tx: Transaction, name: str) -> bytes | None:
    rows = await tx.fetch(DELETE_PICTURE, (name,))
    if not rows:
        return None
    ((account_id, size, digest),) = rows
    await tx.fetch(ADD_BYTES, (account_id, -size))
    return bytes(digest)


async def _find_used(
    tx: Transaction, partition: Partition, *, only_active: bool
) -> tuple[int, Mapping[str, list[int]]]:
    revision = await tx.get(int, LOCK_STATE, partition)
    own = {name for name, *_ in await tx.fetch(LIST_OF_ACCOUNT, partition[1:])}
    used: dict[str, list[int]] = {}
    after = 0
    while rows := await tx.fetch(PAGE_IMAGES, (*partition, after, _PAGE_SIZE)):
        for listing_id, images, is_deleted, is_active in rows:
            if only_active and (is_deleted or not is_active):
                continue
            for name in own.intersection(_NAME.findall(images)):
                used.setdefault(name, []).append(-listing_id if is_deleted else listing_id)
        after, *_ = rows[-1]
    return revision, used


def _split(names: Sequence[str]) -> Iterator[list[str]]:
    # In parts of a few sizes, since each size is a statement of its own.
    for start in range(0, len(names), _MAX_NAMES):
        part = list(names[start : start + _MAX_NAMES])
        size = next(size for size in (1, 8, _MAX_NAMES) if size >= len(part))
        yield part + [""] * (size - len(part))
