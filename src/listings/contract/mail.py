"""The store's contract for the queue of mail."""

from typing import Literal, NamedTuple, Protocol, TypeAlias

from listings.domain.model import Account

MailKind: TypeAlias = Literal[
    "buyer_message",
    "confirm_email",
    "email_changed",
    "key_created",
    "new_sign_in",
    "password_changed",
    "password_reset",
    "plan_reminder",
    "plan_request",
]


class NewMail(NamedTuple):
    """Mail to be queued. Its text is written when it is sent, so that the database contains no links with tokens.

    `account_id` is None if the account is found by the recipient's address when the email is sent. `detail` is JSON;
    the message of a buyer is in it. `created_at` is a Unix time in seconds.
    """

    id: str
    kind: MailKind
    recipient: str
    account_id: int | None
    detail: str
    created_at: int


class QueuedMail(NamedTuple):
    """A queued email and the number of attempts to send it, including the current one."""

    mail: NewMail
    attempts: int


class MailStore(Protocol):
    """Stores the queue of mail, with the guarantees of `contract.store.Store`.

    Other stores queue the `mail` that a write receives, in the same transaction.
    """

    async def add_mail(self, mail: NewMail) -> None:
        """Queue an email, which is due immediately."""

    async def claim_mail(self, now: int, retry_at: int) -> QueuedMail | None:
        """Return the email that has been due the longest, or None. It is due again at `retry_at`, unless it is deleted.

        Concurrent callers never receive the same email: some may receive None.
        """

    async def delete_mail(self, mail_id: str) -> None:
        """Delete an email that was sent or is no longer needed."""

    async def postpone_mail(self, mail_id: str, next_at: int | None) -> None:
        """Set when an email is due again. If `next_at` is None, mark it as given up and delete its detail."""

    async def list_accounts_to_remind(self, days: int, after: int, until: int, count: int) -> list[Account]:
        """Return at most `count` accounts whose plan ends after `after` and not after `until`.

        `days` identifies the reminder: 7 is the one for seven days before the end. Disabled accounts are left out,
        and those with a stored reminder of as many or fewer days for the same end of the plan.
        """

    async def add_plan_reminder(
        self, account_id: int, plan_expires_at: int, days: int, mail: NewMail | None = None
    ) -> bool:
        """Store a reminder of the end of a plan, and queue the mail.

        Return False and store nothing if this or a later reminder of the same end is stored.
        """

    async def purge_mails(self, oldest: int) -> None:
        """Delete the emails that were queued before `oldest`."""
