"""The queue of mail: its statements, scripts and methods."""

from typing import TypeAlias

from listings.domain.mail import MailKind, NewMail, QueuedMail
from listings.domain.model import Account
from listings.store.mapping import AccountRow
from listings.store.member_sql import QUALIFIED_ACCOUNT_COLUMNS
from listings.store.query import Command, Query
from listings.store.scripts.script import ScriptedStore, Transaction, transaction

MAIL_COLUMNS = ", ".join(NewMail._fields)
_MailRow: TypeAlias = tuple[str, MailKind, str, int | None, str, int]

ADD_MAIL = Command(f"""
INSERT INTO mails ({MAIL_COLUMNS}, next_at, attempts) VALUES ($1, $2, $3, $4, $5, $6, $6, 0)
""")

# A new email is due immediately, and later attempts follow within four hours: other times are those of a wrong clock.
_IS_DUE = "(next_at <= $1 OR next_at > $1 + 60 AND (attempts = 0 OR next_at > $1 + 4 * 3600 + 60))"

IS_MAIL_DUE = Query[tuple[int]](f"SELECT 1 FROM mails WHERE {_IS_DUE} LIMIT 1")
CLAIM_MAIL = Query[tuple[*_MailRow, int]](f"""
UPDATE mails
SET next_at = $2, attempts = attempts + 1, created_at = CASE WHEN created_at > $1 THEN $1 ELSE created_at END
WHERE {_IS_DUE} AND id = (SELECT id FROM mails WHERE {_IS_DUE} ORDER BY next_at LIMIT 1)
RETURNING {MAIL_COLUMNS}, attempts
""")
FIND_MAIL = Query[tuple[str]]("SELECT id FROM mails WHERE id = $1")
DELETE_MAIL = Command("DELETE FROM mails WHERE id = $1")
POSTPONE_MAIL = Command("UPDATE mails SET next_at = $2 WHERE id = $1")
GIVE_UP_MAIL = Command("UPDATE mails SET next_at = NULL, detail = '{}' WHERE id = $1")
LIST_GIVEN_UP_MAILS = Query[_MailRow](f"SELECT {MAIL_COLUMNS} FROM mails WHERE next_at IS NULL ORDER BY created_at, id")
PURGE_MAILS = Command("DELETE FROM mails WHERE created_at < $1")
LIST_ACCOUNTS_TO_REMIND = Query[AccountRow](f"""
SELECT {QUALIFIED_ACCOUNT_COLUMNS}
FROM accounts a LEFT JOIN plan_reminders r ON r.account_id = a.id AND r.plan_expires_at = a.plan_expires_at
WHERE a.plan_expires_at > $2 AND a.plan_expires_at <= $3 AND a.disabled_at IS NULL AND a.test_of IS NULL
    AND (r.days IS NULL OR r.days > $1)
ORDER BY a.plan_expires_at LIMIT $4
""")
ADD_PLAN_REMINDER = Query[tuple[int]]("""
INSERT INTO plan_reminders (account_id, plan_expires_at, days) VALUES ($1, $2, $3)
ON CONFLICT (account_id) DO UPDATE SET plan_expires_at = excluded.plan_expires_at, days = excluded.days
WHERE plan_reminders.plan_expires_at <> excluded.plan_expires_at OR plan_reminders.days > excluded.days
RETURNING account_id
""")
DELETE_CONFIRMATIONS = Command("DELETE FROM mails WHERE account_id = $1 AND kind = 'confirm_email'")
ERASE_MAILS = Command("""
DELETE FROM mails WHERE account_id = $1 OR recipient = (SELECT email FROM accounts WHERE id = $1)
""")


async def add(tx: Transaction, mail: NewMail | None) -> None:
    """Queue an email. Do nothing if it is None, for example because mail is off."""
    if mail is not None:
        await tx.fetch(ADD_MAIL, mail)


class ScriptedMailStore(ScriptedStore):
    """Stores the queue of mail. Other stores queue the `mail` that a write receives, in the same transaction."""

    @transaction
    async def add_mail(self, tx: Transaction, mail: NewMail) -> None:
        """Queue an email, which is due immediately."""
        return await add(tx, mail)

    async def claim_mail(self, now: int, retry_at: int) -> QueuedMail | None:
        """Return the email that has been due the longest, or None. It is due again at `retry_at`, unless it is deleted.

        Concurrent callers never receive the same email: some may receive None.
        """
        if not await self._fetch(IS_MAIL_DUE, now):  # a read, which does not wait for the write lock
            return None
        rows = await self._write(CLAIM_MAIL, now, retry_at)
        return next((QueuedMail(NewMail(*row[:-1]), row[-1]) for row in rows), None)

    async def delete_mail(self, mail_id: str) -> None:
        await self._write(DELETE_MAIL, mail_id)

    async def postpone_mail(self, mail_id: str, next_at: int | None) -> None:
        """Set when an email is due again. If `next_at` is None, mark it as given up and delete its detail."""
        if next_at is None:
            await self._write(GIVE_UP_MAIL, mail_id)
        else:
            await self._write(POSTPONE_MAIL, mail_id, next_at)

    async def list_given_up_mails(self) -> list[NewMail]:
        """Return the emails that were given up, oldest first, without their detail."""
        return await self._list(NewMail, LIST_GIVEN_UP_MAILS)

    async def list_accounts_to_remind(self, days: int, after: int, until: int, count: int) -> list[Account]:
        """Return at most `count` accounts whose plan ends after `after` and not after `until`.

        `days` identifies the reminder: 7 is the one for seven days before the end. Disabled accounts are left out,
        and those with a stored reminder of as many or fewer days for the same end of the plan.
        """
        return await self._list(Account, LIST_ACCOUNTS_TO_REMIND, days, after, until, count)

    @transaction
    async def add_plan_reminder(
        self, tx: Transaction, account_id: int, plan_expires_at: int, days: int, mail: NewMail | None = None
    ) -> bool:
        """Store a reminder of the end of a plan, and queue the mail.

        Return False and store nothing if this or a later reminder of the same end is stored.
        """
        if not await tx.fetch(ADD_PLAN_REMINDER, (account_id, plan_expires_at, days)):
            return False
        await add(tx, mail)
        return True

    async def purge_mails(self, oldest: int) -> None:
        """Delete the emails that were queued before `oldest`."""
        await self._write(PURGE_MAILS, oldest)
