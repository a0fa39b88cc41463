"""The texts of emails."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from listings.contract.mail import MailKind
from listings.domain.accounts import PLAN_ENDED
from listings.domain.model import Account
from listings.domain.timestamps import format_date


class Text(NamedTuple):
    """The subject and the text of an email."""

    subject: str
    text: str


class Context(NamedTuple):
    """The values that a text may contain. `base_url` is the public URL, `link` a URL with a token."""

    account: Account
    detail: Mapping[str, str]
    base_url: str
    now: int
    contact: str  # such as " at help@market.example", or empty
    link: str = ""

    @property
    def console(self) -> str:
        """The URL of the console."""
        return f"{self.base_url}/console"


def write_text(kind: MailKind, context: Context) -> Text:
    """Return the text of an email."""
    return _TEXTS[kind](context)


def _write_buyer_message(context: Context) -> Text:
    """Return the mail with the buyer's text as a quotation, which can't be mistaken for ours."""
    detail = context.detail
    title, quoted = detail["title"], "\n".join(f"> {line}".rstrip() for line in detail["text"].split("\n"))
    return Text(
        f"Message about: {title}",
        f"""{detail["name"]} ({detail["email"]}) wrote to you about your listing "{title}":

{quoted}

Reply to this email to answer {detail["email"]}. This message did not show your address to the sender; a reply
does. We have not checked who the sender is.

Your listing: {context.base_url}/listings/{detail["listing"]}
To stop messages from buyers, change your settings: {context.console}/account
""",
    )


def _write_confirm_email(context: Context) -> Text:
    """Return the email. It omits the account's name, because a stranger can sign up with this address and any name."""
    return Text(
        "Confirm your email address",
        f"""Confirm within a day that this is the email address of your account:
{context.link}

If you have no such account, ignore this email.
""",
    )


def _write_email_changed(context: Context) -> Text:
    """Return the email. It omits the account's name, because the recipient may never have confirmed the address."""
    return Text(
        "Your email address was changed",
        f"""The email address of your account is now {context.detail["email"]}.

If this was not you, contact us immediately{context.contact}.
""",
    )


def _write_password_reset(context: Context) -> Text:
    return Text(
        "Set a new password",
        f"""Someone, probably you, forgot the password of {context.account.email}.

Set a new password within an hour:
{context.link}

The link works once. If you did not ask for it, ignore this email: your password has not changed.
""",
    )


def _write_key_created(context: Context) -> Text:
    kind = "read-only API key" if context.detail.get("access") == "read" else "API key"
    return Text(
        "A new API key was created",
        f"""The {kind} "{context.detail["name"]}" ({context.detail["hint"]}) was created for your account.

If this was not you, revoke it and change your password:
{context.console}/keys
""",
    )


def _write_new_sign_in(context: Context) -> Text:
    return Text(
        "A new device signed in to your account",
        f"""Someone signed in to {context.account.email} with your password, on a device that we do not know.

If this was not you, change your password, which signs out all other devices:
{context.console}/account
""",
    )


def _write_password_changed(context: Context) -> Text:
    return Text(
        "Your password was changed",
        f"""The password of {context.account.email} was changed. All other devices were signed out.

If this was not you, set a new password immediately:
{context.base_url}/reset-password

If you need help, contact us{context.contact}.
""",
    )


def _write_plan_reminder(context: Context) -> Text:
    end = context.account.plan_expires_at or 0
    day = format_date(end)
    if end <= context.now:
        return Text(
            "Your Business plan has ended",
            f"""{PLAN_ENDED.format(day)}.

Renew your plan:
{context.console}/plan
""",
        )
    return Text(
        f"Your Business plan ends on {day}",
        f"""Your Business plan ends on {day}. After that, active listings stay visible, but your API keys stop working.

Renew your plan:
{context.console}/plan
""",
    )


def _write_plan_request(context: Context) -> Text:
    account = context.account
    return Text(
        f"{account.name} requests the Business plan",
        f"""{account.name} ({account.email}, account {account.id}) requests the Business plan.

Agree on the payment with the seller, then start the plan:
listings account plan {account.id} --months 1
""",
    )


_TEXTS: Mapping[MailKind, Callable[[Context], Text]] = {
    "buyer_message": _write_buyer_message,
    "confirm_email": _write_confirm_email,
    "email_changed": _write_email_changed,
    "key_created": _write_key_created,
    "new_sign_in": _write_new_sign_in,
    "password_changed": _write_password_changed,
    "password_reset": _write_password_reset,
    "plan_reminder": _write_plan_reminder,
    "plan_request": _write_plan_request,
}
