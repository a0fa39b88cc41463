"""Emails in the queue."""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from listings.domain.model import Account

MailKind: TypeAlias = Literal[
    "buyer_message",
    "confirm_email",
    "email_changed",
    "key_created",
    "listing_lifted",
    "listing_report",
    "listing_taken_down",
    "message_copy",
    "new_sign_in",
    "password_changed",
    "password_reset",
    "plan_declined",
    "plan_reminder",
    "plan_request",
    "plan_started",
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


ComposeMail: TypeAlias = Callable[[Account], NewMail | None]
"""Composes an email about an account as it is after a write, which may be repeated. None: mail is off."""


class QueuedMail(NamedTuple):
    """A queued email and the number of attempts to send it, including the current one."""

    mail: NewMail
    attempts: int
