"""The queue of mail: its statements and scripts, and `MailStore`."""

from listings.contract.mail import NewMail, QueuedMail
from listings.domain.model import Account
from listings.store.member_sql import QUALIFIED_ACCOUNT_COLUMNS
from listings.store.scripts.script import Query, Script, ScriptedStore, transaction

MAIL_COLUMNS = ", ".join(NewMail._fields)

ADD_MAIL = f"""
INSERT INTO mails ({MAIL_COLUMNS}, next_at, attempts) VALUES ($1, $2, $3, $4, $5, $6, $6, 0)
"""

IS_MAIL_DUE = "SELECT 1 FROM mails WHERE next_at <= $1 LIMIT 1"

CLAIM_MAIL = f"""
UPDATE mails SET next_at = $2, attempts = attempts + 1
WHERE next_at <= $1 AND id = (SELECT id FROM mails WHERE next_at <= $1 ORDER BY next_at LIMIT 1)
RETURNING {MAIL_COLUMNS}, attempts
"""

FIND_MAIL = "SELECT id FROM mails WHERE id = $1"

DELETE_MAIL = "DELETE FROM mails WHERE id = $1"

POSTPONE_MAIL = "UPDATE mails SET next_at = $2 WHERE id = $1"

GIVE_UP_MAIL = "UPDATE mails SET next_at = NULL, detail = '{}' WHERE id = $1"

PURGE_MAILS = "DELETE FROM mails WHERE created_at < $1"

LIST_ACCOUNTS_TO_REMIND = f"""
SELECT {QUALIFIED_ACCOUNT_COLUMNS}
FROM accounts a LEFT JOIN plan_reminders r ON r.account_id = a.id AND r.plan_expires_at = a.plan_expires_at
WHERE a.plan_expires_at > $2 AND a.plan_expires_at <= $3 AND a.disabled_at IS NULL AND (r.days IS NULL OR r.days > $1)
ORDER BY a.plan_expires_at LIMIT $4
"""

ADD_PLAN_REMINDER = """
INSERT INTO plan_reminders (account_id, plan_expires_at, days) VALUES ($1, $2, $3)
ON CONFLICT (account_id) DO UPDATE SET plan_expires_at = excluded.plan_expires_at, days = excluded.days
WHERE plan_reminders.plan_expires_at <> excluded.plan_expires_at OR plan_reminders.days > excluded.days
RETURNING account_id
"""

DELETE_PLAN_REMINDER = "DELETE FROM plan_reminders WHERE account_id = $1"

DELETE_CONFIRMATIONS = "DELETE FROM mails WHERE account_id = $1 AND kind = 'confirm_email'"

ERASE_MAILS = """
DELETE FROM mails WHERE account_id = $1 OR recipient = (SELECT email FROM accounts WHERE id = $1)
"""


def add(mail: NewMail | None) -> Script[None]:
    """Queue an email. Do nothing if it is None, for example because mail is off."""
    if mail is not None:
        yield Query(ADD_MAIL, mail)


class ScriptedMailStore(ScriptedStore):
    """Implements `MailStore`."""

    @transaction
    def add_mail(self, mail: NewMail) -> Script[None]:
        return add(mail)

    async def claim_mail(self, now: int, retry_at: int) -> QueuedMail | None:
        if not await self._fetch(IS_MAIL_DUE, now):  # a read, which does not wait for the write lock
            return None
        rows = await self._write(CLAIM_MAIL, now, retry_at)
        return QueuedMail(NewMail(*rows[0][:-1]), rows[0][-1]) if rows else None

    async def delete_mail(self, mail_id: str) -> None:
        await self._write(DELETE_MAIL, mail_id)

    async def postpone_mail(self, mail_id: str, next_at: int | None) -> None:
        if next_at is None:
            await self._write(GIVE_UP_MAIL, mail_id)
        else:
            await self._write(POSTPONE_MAIL, mail_id, next_at)

    async def list_accounts_to_remind(self, days: int, after: int, until: int, count: int) -> list[Account]:
        return [Account(*row) for row in await self._fetch(LIST_ACCOUNTS_TO_REMIND, days, after, until, count)]

    @transaction
    def add_plan_reminder(
        self, account_id: int, plan_expires_at: int, days: int, mail: NewMail | None = None
    ) -> Script[bool]:
        if not (yield Query(ADD_PLAN_REMINDER, (account_id, plan_expires_at, days))):
            return False
        yield from add(mail)
        return True

    async def purge_mails(self, oldest: int) -> None:
        await self._write(PURGE_MAILS, oldest)
