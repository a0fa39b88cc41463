"""The texts of emails."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from listings.domain.accounts import PLAN_ENDED
from listings.domain.mail import MailKind
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
    market: str
    name: str = ""  # of the owner, if the address is confirmed: anybody can sign up with any address and name
    link: str = ""

    @property
    def console(self) -> str:
        """The URL of the console."""
        return f"{self.base_url}/console"


def write_text(kind: MailKind, context: Context) -> Text:
    """Return the text of an email, with a greeting and the market's name."""
    subject, text = _TEXTS[kind](context)
    return Text(
        subject, f"Hello{context.name and f' {context.name}'},\n\n{text}\n{context.market}\n{context.base_url}\n"
    )


def _write_buyer_message(context: Context) -> Text:
    """Return the mail with the buyer's text as a quotation, which can't be mistaken for ours."""
    detail = context.detail
    title, quoted = detail["title"], "\n".join(f"> {line}".rstrip() for line in detail["text"].split("\n"))
    return Text(
        f"Message about: {title}",
        f"""{detail["name"]} ({detail["email"]}) wrote to you about {_describe_subject(detail, "your")}:

{quoted}

Reply to this email to answer {detail["email"]}. This message did not show your address to the sender; a reply
does. We have not checked who the sender is.

Open the page: {context.base_url}{_find_path(detail)}
To stop messages from buyers, change your settings: {context.console}/account
""",
    )


def _describe_subject(detail: Mapping[str, str], article: str) -> str:
    """Return what a message is about: a listing or, without one, the shop."""
    return f'{article} {"listing" if detail["listing"] != "0" else "shop"} "{detail["title"]}"'


def _find_path(detail: Mapping[str, str]) -> str:
    return detail.get("path") or f"/listings/{detail['listing']}"  # a mail of an earlier version has no path


def _write_message_copy(context: Context) -> Text:
    """Return the confirmation, which has nothing that the sender typed: anybody can enter any address."""
    detail = context.detail
    return Text(
        f"Your message about: {detail['title']}",
        f"""Your message about {_describe_subject(detail, "the")} was sent to the seller, who can reply to this address.

Open the page: {context.base_url}{_find_path(detail)}

If you did not send a message, ignore this email. Somebody may have mistyped an address.
""",
    )


def _write_listing_report(context: Context) -> Text:
    detail, account = context.detail, context.account
    lines = [f"> {line}".rstrip() for line in detail["text"].split("\n")] if detail["text"] else []
    quoted = "\n".join([*lines, "", ""]) if lines else ""
    return Text(
        f"Report of listing {detail['listing']}: {detail['reason']}",
        f"""A visitor reported a listing of {account.name} ({account.email}, account {account.id}): {detail["reason"]}.

{quoted}The listing: {context.base_url}/listings/{detail["listing"]}

To take it down: listings takedown add {detail["listing"]} --reason "REASON"
To close the report: listings inbox --close {detail["id"]}
""",
    )


def _write_listing_taken_down(context: Context) -> Text:
    detail = context.detail
    return Text(
        f"Your listing was taken down: {detail['title']}",
        f"""We took down your listing "{detail["title"]}". Buyers no longer see it or its pictures.

The reason: {detail["reason"]}

If you have changed the listing, or if you disagree, contact us{context.contact}.

Your listing: {context.console}/listings/{detail["listing"]}
""",
    )


def _write_listing_lifted(context: Context) -> Text:
    detail = context.detail
    return Text(
        f"Your listing is no longer taken down: {detail['title']}",
        f"""Buyers can see your listing "{detail["title"]}" again, unless you have paused or deleted it.

Your listing: {context.console}/listings/{detail["listing"]}
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


def _write_plan_declined(context: Context) -> Text:
    reason = f"\n{context.detail['reason']}\n" if context.detail["reason"] else ""
    return Text(
        "We can't start your Business plan",
        f"""We declined your request for the Business plan.
{reason}
If you have a question, contact us{context.contact}. You can send a new request at any time:
{context.console}/plan
""",
    )


def _write_plan_started(context: Context) -> Text:
    day, amount = format_date(context.account.plan_expires_at or 0), context.detail["amount"]
    drafts = context.detail["drafts"]
    offer = f"Publish {drafts}:\n{context.console}/listings?show=drafts\n\n" if drafts else ""
    return Text(
        f"Your Business plan is active until {day}",
        f"""Your Business plan is active until {day}.{f" {amount}." if amount else ""}

{offer}Create a listing:
{context.console}/listings/new

Your plan:
{context.console}/plan
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

Or decline the request, which tells the seller why:
listings account plan {account.id} --decline "REASON"
""",
    )


_TEXTS: Mapping[MailKind, Callable[[Context], Text]] = {
    "buyer_message": _write_buyer_message,
    "confirm_email": _write_confirm_email,
    "email_changed": _write_email_changed,
    "key_created": _write_key_created,
    "listing_lifted": _write_listing_lifted,
    "listing_report": _write_listing_report,
    "listing_taken_down": _write_listing_taken_down,
    "message_copy": _write_message_copy,
    "new_sign_in": _write_new_sign_in,
    "password_changed": _write_password_changed,
    "password_reset": _write_password_reset,
    "plan_declined": _write_plan_declined,
    "plan_reminder": _write_plan_reminder,
    "plan_request": _write_plan_request,
    "plan_started": _write_plan_started,
}
