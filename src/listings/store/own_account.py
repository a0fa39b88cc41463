"""Changes that the owner of an account makes to it: statements and scripts, and `OwnAccountStore`."""

from listings.contract.history import CONSOLE, Actor
from listings.contract.mail import NewMail
from listings.domain.accounts import require_enabled
from listings.domain.errors import Problem
from listings.domain.model import Account
from listings.store import mail_queue, member_sql, sql
from listings.store.scripts.audit import record_event
from listings.store.scripts.script import Query, Script, ScriptedStore, caller_transaction, transaction

ADD_TOKEN = "INSERT INTO email_tokens (account_id, digest, email, expires_at) VALUES ($1, $2, $3, $4)"  # noqa: S105 - SQL

LOCK_TOKEN = "SELECT account_id FROM email_tokens WHERE digest = $1"  # noqa: S105 - SQL

FIND_TOKEN = f"""
SELECT t.email, {member_sql.QUALIFIED_ACCOUNT_COLUMNS}
FROM email_tokens t JOIN accounts a ON a.id = t.account_id
WHERE t.digest = $1 AND t.expires_at > $2
"""

DELETE_EXPIRED_TOKENS = "DELETE FROM email_tokens WHERE account_id = $1 AND expires_at <= $2"

DELETE_TOKENS = "DELETE FROM email_tokens WHERE account_id = $1"

SET_CONFIRMED_EMAIL = """
INSERT INTO confirmed_emails (account_id, email, confirmed_at) VALUES ($1, $2, $3)
ON CONFLICT (account_id) DO UPDATE SET email = excluded.email, confirmed_at = excluded.confirmed_at
"""

GET_CONFIRMED_EMAIL = "SELECT email FROM confirmed_emails WHERE account_id = $1"

DELETE_CONFIRMED_EMAIL = "DELETE FROM confirmed_emails WHERE account_id = $1"

ADD_CLOSED_ACCOUNT = """
INSERT INTO closed_accounts (account_id, closed_at) VALUES ($1, $2) ON CONFLICT (account_id) DO NOTHING
"""

DISABLE_ACCOUNT = "UPDATE accounts SET disabled_at = COALESCE(disabled_at, $2) WHERE id = $1"

LIST_CLOSED_ACCOUNTS = "SELECT account_id FROM closed_accounts ORDER BY account_id"

DELETE_CLOSED_ACCOUNT = "DELETE FROM closed_accounts WHERE account_id = $1"

ERASE = (DELETE_TOKENS, DELETE_CONFIRMED_EMAIL, DELETE_CLOSED_ACCOUNT)
"""The statements that erase what an account has in these tables."""


class ScriptedOwnAccountStore(ScriptedStore):
    """Implements `OwnAccountStore`."""

    @transaction
    def add_email_token(self, account_id: int, mail: NewMail, digest: bytes, now: int, expires_at: int) -> Script[bool]:
        # Every transaction that deletes all tokens of an account deletes its mail first.
        if not (yield Query(mail_queue.FIND_MAIL, (mail.id,), locks=True)):
            return False
        yield Query(DELETE_EXPIRED_TOKENS, (account_id, now))
        yield Query(ADD_TOKEN, (account_id, digest, mail.recipient, expires_at))
        return True

    async def find_email_token(self, digest: bytes, now: int) -> tuple[Account, str] | None:
        rows = await self._fetch(FIND_TOKEN, digest, now)
        return (Account(*tuple(rows[0])[1:]), rows[0][0]) if rows else None

    @transaction
    def confirm_email(self, digest: bytes, now: int, notice: NewMail | None = None) -> Script[Account | None]:
        yield Query(LOCK_TOKEN, (digest,), locks=True)  # setting a new password deletes the token
        rows = yield Query(FIND_TOKEN, (digest, now))
        if not rows:
            return None
        email, account = rows[0][0], Account(*tuple(rows[0])[1:])
        if email != account.email:
            changed = yield from _change(account.id, email, Actor(CONSOLE, now))
            if changed is None:
                return None
            account = changed
            yield from mail_queue.add(notice)
        yield Query(mail_queue.DELETE_CONFIRMATIONS, (account.id,))
        yield Query(DELETE_TOKENS, (account.id,))
        yield Query(SET_CONFIRMED_EMAIL, (account.id, email, now))
        return account

    @transaction
    def change_email(
        self, account_id: int, email: str, actor: Actor, password_hash: str | None = None
    ) -> Script[Account | None]:
        # Like all transactions that lock both, lock the account before the password.
        yield Query(sql.GET_ACCOUNT, (account_id,), locks=True)
        yield from _require_password(account_id, password_hash)
        return (yield from _change(account_id, email, actor))

    @transaction
    def queue_confirmation(self, account_id: int, mail: NewMail, password_hash: str) -> Script[None]:
        yield from _require_password(account_id, password_hash)
        yield from mail_queue.add(mail)

    async def get_confirmed_email(self, account_id: int) -> str | None:
        return await self._find(str, GET_CONFIRMED_EMAIL, account_id)

    @caller_transaction
    def close_account(self, account_id: int, now: int, password_hash: str | None = None) -> Script[None]:
        yield Query(sql.GET_ACCOUNT, (account_id,), locks=True)
        yield from _require_password(account_id, password_hash)
        yield Query(DISABLE_ACCOUNT, (account_id, now))
        yield Query(member_sql.DELETE_SESSIONS, (account_id, ""))
        yield Query(ADD_CLOSED_ACCOUNT, (account_id, now))

    async def list_closed_accounts(self) -> list[int]:
        return [int(row[0]) for row in await self._fetch(LIST_CLOSED_ACCOUNTS)]


def _change(account_id: int, email: str, actor: Actor) -> Script[Account | None]:
    """Change the address. Return None if another account has it. Raises Problem("account_disabled")."""
    rows = yield Query(sql.GET_ACCOUNT, (account_id,), locks=True)
    require_enabled(Account(*rows[0]))
    if (yield Query(sql.FIND_ACCOUNT, (email,))):
        return None
    rows = yield Query(sql.build_account_update(("email",)), (account_id, email))
    yield Query(member_sql.DELETE_INVITATIONS, (account_id,))
    yield from record_event(account_id, actor, "account_changed", detail={"email": email})
    return Account(*rows[0])


def _require_password(account_id: int, password_hash: str | None) -> Script[None]:
    """Lock the password. Raise Problem("wrong_credentials") if this is not its hash any more. None: do nothing."""
    if password_hash is not None and not (yield from is_password(account_id, password_hash)):
        raise Problem("wrong_credentials", "The password was changed in the meantime")


def is_password(account_id: int, password_hash: str) -> Script[bool]:
    """Return whether this is the stored hash, and lock it until the transaction ends."""
    rows = yield Query(member_sql.GET_PASSWORD, (account_id,), locks=True)
    return bool(rows) and rows[0][0] == password_hash
