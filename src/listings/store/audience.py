"""Buyers' messages, and the views and messages of each day: statements, scripts and methods."""

from listings.domain.audience import AccountDay, ListingReport, Message
from listings.domain.mail import NewMail
from listings.domain.timestamps import DAY_SECONDS
from listings.store import mail_queue
from listings.store.mapping import Partition
from listings.store.query import Command, Query
from listings.store.scripts.script import ScriptedStore, Transaction, transaction

MAX_MESSAGES = 1_000  # of an account

_COLUMNS = ", ".join(Message._fields)

ADD_MESSAGE = Command(f"""
INSERT INTO messages (bucket, account_id, {_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
""")
TRIM_MESSAGES = Command(f"""
DELETE FROM messages WHERE bucket = $1 AND account_id = $2 AND (created_at, id) <= (
    SELECT created_at, id FROM messages WHERE bucket = $1 AND account_id = $2
    ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET {MAX_MESSAGES})
""")
PAGE_MESSAGES = Query[tuple[int, str, int, str, str, str]](f"""
SELECT {_COLUMNS} FROM messages WHERE bucket = $1 AND account_id = $2 AND (created_at, id) < ($3, $4)
ORDER BY created_at DESC, id DESC LIMIT $5
""")
PURGE_MESSAGES = Command("DELETE FROM messages WHERE created_at < $1")
COUNT_ON_DAY = Command("""
INSERT INTO account_days (bucket, account_id, day, views, messages) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (bucket, account_id, day) DO UPDATE
SET views = account_days.views + excluded.views, messages = account_days.messages + excluded.messages
""")
LIST_DAYS = Query[tuple[int, int, int]]("""
SELECT day, views, messages FROM account_days WHERE bucket = $1 AND account_id = $2 AND day >= $3 ORDER BY day
""")
PURGE_DAYS = Command("DELETE FROM account_days WHERE day < $1")

_REPORT_COLUMNS = ", ".join(ListingReport._fields)

ADD_LISTING_REPORT = Command(f"INSERT INTO listing_reports ({_REPORT_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6)")
LIST_LISTING_REPORTS = Query[tuple[str, int, int, str, str, int]](
    f"SELECT {_REPORT_COLUMNS} FROM listing_reports ORDER BY created_at, id LIMIT $1"
)
DELETE_LISTING_REPORT = Query[tuple[str]]("DELETE FROM listing_reports WHERE id = $1 RETURNING id")
PURGE_LISTING_REPORTS = Command("DELETE FROM listing_reports WHERE created_at < $1")


class ScriptedAudienceStore(ScriptedStore):
    """Stores buyers' messages and daily counts."""

    @transaction
    async def add_message(
        self, tx: Transaction, partition: Partition, message: Message, mail: NewMail | None, *, stored: bool
    ) -> None:
        """Count a message to an account on its day, queue the mail and, if `stored`, store the message.

        An account keeps its newest `MAX_MESSAGES`.
        """
        if stored:
            await tx.fetch(ADD_MESSAGE, (*partition, *message))
            await tx.fetch(TRIM_MESSAGES, partition)
        await tx.fetch(COUNT_ON_DAY, (*partition, message.created_at // DAY_SECONDS, 0, 1))
        await mail_queue.add(tx, mail)

    async def page_messages(self, partition: Partition, before: tuple[int, str], count: int) -> list[Message]:
        """Return at most `count` messages to an account, newest first, before the time and id in `before`."""
        return await self._list(Message, PAGE_MESSAGES, *partition, *before, count)

    async def list_account_days(self, partition: Partition, since: int) -> list[AccountDay]:
        """Return the days of an account from `since` on that have views or messages, oldest first."""
        return await self._list(AccountDay, LIST_DAYS, *partition, since)

    @transaction
    async def add_listing_report(self, tx: Transaction, report: ListingReport, mail: NewMail | None) -> None:
        """Store a report of a listing, and queue the mail."""
        await tx.fetch(ADD_LISTING_REPORT, report)
        await mail_queue.add(tx, mail)

    async def list_listing_reports(self, count: int) -> list[ListingReport]:
        """Return at most `count` reports, oldest first."""
        return await self._list(ListingReport, LIST_LISTING_REPORTS, count)

    async def delete_listing_report(self, report_id: str) -> bool:
        """Delete a report. Return False if there is none with this id."""
        return bool(await self._write(DELETE_LISTING_REPORT, report_id))

    async def purge_audience(self, oldest_message: int, oldest_day: int) -> None:
        """Delete messages from before a Unix time, and counts and listing reports of days before `oldest_day`."""
        await self._write(PURGE_MESSAGES, oldest_message)
        await self._write(PURGE_DAYS, oldest_day)
        await self._write(PURGE_LISTING_REPORTS, oldest_day * DAY_SECONDS)
