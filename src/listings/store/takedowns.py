"""Listings that an operator has taken down: statements, scripts and methods."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from listings.domain.audience import Takedown
from listings.domain.history import Actor, EventKind
from listings.domain.mail import NewMail
from listings.domain.model import Account, bucket_of
from listings.store import mail_queue, sql
from listings.store.mapping import AccountRow
from listings.store.market import stamps
from listings.store.query import Command, Query
from listings.store.scripts.audit import record_event
from listings.store.scripts.script import ScriptedStore, Transaction, transaction

_COLUMNS = ", ".join(Takedown._fields)
_TakedownRow: TypeAlias = tuple[int, int, str, str, int]
_UNMARKED = -1  # the version of no listing

ADD_TAKEDOWN = Query[tuple[int]](f"""
INSERT INTO takedowns ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (listing_id) DO NOTHING RETURNING listing_id
""")
DELETE_TAKEDOWN = Query[tuple[int]]("DELETE FROM takedowns WHERE listing_id = $1 RETURNING listing_id")
GET_TAKEDOWN = Query[_TakedownRow](f"SELECT {_COLUMNS} FROM takedowns WHERE listing_id = $1")
LIST_TAKEDOWNS = Query[_TakedownRow](
    f"SELECT {_COLUMNS} FROM takedowns ORDER BY created_at DESC, listing_id DESC LIMIT $1"
)
LIST_TAKEDOWNS_OF_ACCOUNT = Query[_TakedownRow](f"SELECT {_COLUMNS} FROM takedowns WHERE account_id = $1")
GET_PUBLIC_ACCOUNT = Query[AccountRow](
    f"{sql.GET_ACCOUNT} AND NOT EXISTS (SELECT 1 FROM takedowns WHERE listing_id = $2)"
)
HIDE_PICTURE = Command("UPDATE pictures SET hidden_by = $3 WHERE account_id = $1 AND name = $2 AND hidden_by IS NULL")
KEEP_HIDDEN = Command("UPDATE pictures SET hidden_by = $3 WHERE account_id = $1 AND name = $2 AND hidden_by = $4")
SHOW_PICTURES = Command("UPDATE pictures SET hidden_by = NULL WHERE account_id = $1 AND hidden_by = $2")


class ScriptedTakedownStore(ScriptedStore):
    """Stores takedowns. They change no listing, so neither writes of its owner nor a revert lift them."""

    @transaction
    async def take_down(
        self, tx: Transaction, takedown: Takedown, pictures: Sequence[str], actor: Actor, mail: NewMail | None
    ) -> bool:
        """Store a takedown, hide the pictures with these names, and queue the mail.

        Return False and store nothing if the listing is taken down already.
        """
        await tx.fetch(stamps.LOCK_SEQUENCE, (0,))  # before the account, as an index step locks them
        if not await tx.fetch(ADD_TAKEDOWN, takedown):
            return False
        for name in pictures:
            await tx.fetch(HIDE_PICTURE, (takedown.account_id, name, takedown.listing_id))
        await _record(tx, takedown, actor, mail, "listing_taken_down", {"reason": takedown.reason})
        return True

    @transaction
    async def lift_takedown(
        self, tx: Transaction, takedown: Takedown, kept: Mapping[str, int], actor: Actor, mail: NewMail | None
    ) -> bool:
        """Delete a takedown, show the pictures that it hides again, and queue the mail.

        `kept` has another listing that is taken down by the name of each picture that stays hidden with it. Return
        False and write nothing if there is no such takedown.
        """
        await tx.fetch(stamps.LOCK_SEQUENCE, (0,))
        if not await tx.fetch(DELETE_TAKEDOWN, (takedown.listing_id,)):
            return False
        for name, other in kept.items():
            await tx.fetch(KEEP_HIDDEN, (takedown.account_id, name, other, takedown.listing_id))
        await tx.fetch(SHOW_PICTURES, (takedown.account_id, takedown.listing_id))
        await _record(tx, takedown, actor, mail, "listing_lifted", None)
        return True

    async def get_takedown(self, listing_id: int) -> Takedown | None:
        return await self._find(Takedown, GET_TAKEDOWN, listing_id)

    async def get_public_account(self, account_id: int, listing_id: int) -> Account | None:
        """Return the account with this id, or None if it does not exist or its listing is taken down."""
        return await self._find(Account, GET_PUBLIC_ACCOUNT, account_id, listing_id)

    async def list_takedowns(self, count: int) -> list[Takedown]:
        """Return at most `count` takedowns, newest first."""
        return await self._list(Takedown, LIST_TAKEDOWNS, count)

    async def list_takedowns_of(self, account_id: int) -> list[Takedown]:
        return await self._list(Takedown, LIST_TAKEDOWNS_OF_ACCOUNT, account_id)


async def _record(
    tx: Transaction, takedown: Takedown, actor: Actor, mail: NewMail | None, kind: EventKind, detail: object
) -> None:
    # The listing is marked as changed for the market, but for nothing else.
    await record_event(tx, takedown.account_id, actor, kind, takedown.listing_id, detail)
    await tx.fetch(stamps.MARK, (bucket_of(takedown.listing_id), takedown.listing_id, _UNMARKED))
    await mail_queue.add(tx, mail)
