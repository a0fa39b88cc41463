"""The texts of emails, as format strings."""

from collections.abc import Mapping
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


def write_text(kind: MailKind, context: Context) -> Text:
    """Return the text of an email, with a greeting and the market's name."""
    has_ended = kind == "plan_reminder" and (context.account.plan_expires_at or 0) <= context.now
    detail = context.detail
    reason, amount, drafts, quoted = (detail.get(name, "") for name in ("reason", "amount", "drafts", "text"))
    console = f"{context.base_url}/console"
    values = {
        **detail,
        "account": context.account,
        "base_url": context.base_url,
        "console": console,
        "contact": context.contact,
        "link": context.link,
        "day": format_date(context.account.plan_expires_at or 0),
        "subject": "shop" if detail.get("listing") == "0" else "listing",
        "path": detail.get("path") or f"/listings/{detail.get('listing')}",  # mail of earlier versions has no path
        # A quotation can't be mistaken for our own text.
        "quoted": "\n".join(f"> {line}".rstrip() for line in quoted.split("\n")) + "\n\n" if quoted else "",
        "key": "read-only API key" if detail.get("access") == "read" else "API key",
        "declined": f"\n{reason}\n" if reason else "",
        "paid": f" {amount}." if amount else "",
        "offer": f"Publish {drafts}:\n{console}/listings?show=drafts\n\n" if drafts else "",
    }
    subject, text = (it.format_map(values) for it in (_PLAN_ENDED_TEXT if has_ended else _TEXTS[kind]))
    return Text(
        subject, f"Hello{context.name and f' {context.name}'},\n\n{text}\n{context.market}\n{context.base_url}\n"
    )


_TEXTS: Mapping[MailKind, Text] = {
    "buyer_message": Text(
        "Message about: {title}",
        """{name} ({email}) wrote to you about your {subject} "{title}":

{quoted}Reply to this email to answer {email}. This message did not show your address to the sender; a reply
does. We have not checked who the sender is.

Open the page: {base_url}{path}
To stop messages from buyers, change your settings: {console}/account
""",
    ),
    "confirm_email": Text(  # without the account's name: a stranger can sign up with this address and any name
        "Confirm your email address",
        """Confirm within a day that this is the email address of your account:
{link}

If you have no such account, ignore this email.
""",
    ),
    "email_changed": Text(  # without the account's name: the recipient may never have confirmed the address
        "Your email address was changed",
        """The email address of your account is now {email}.

If this was not you, contact us immediately{contact}.
""",
    ),
    "key_created": Text(
        "A new API key was created",
        """The {key} "{name}" ({hint}) was created for your account.

If this was not you, revoke it and change your password:
{console}/keys
""",
    ),
    "listing_lifted": Text(
        "Your listing is no longer taken down: {title}",
        """Buyers can see your listing "{title}" again, unless you have paused or deleted it.

Your listing: {console}/listings/{listing}
""",
    ),
    "listing_report": Text(
        "Report of listing {listing}: {reason}",
        """A visitor reported a listing of {account.name} ({account.email}, account {account.id}): {reason}.

{quoted}The listing: {base_url}/listings/{listing}

To take it down: listings takedown add {listing} --reason "REASON"
To close the report: listings inbox --close {id}
""",
    ),
    "listing_taken_down": Text(
        "Your listing was taken down: {title}",
        """We took down your listing "{title}". Buyers no longer see it or its pictures.

The reason: {reason}

If you have changed the listing, or if you disagree, contact us{contact}.

Your listing: {console}/listings/{listing}
""",
    ),
    "message_copy": Text(  # without anything that the sender typed: anybody can enter any address
        "Your message about: {title}",
        """Your message about the {subject} "{title}" was sent to the seller, who can reply to this address.

Open the page: {base_url}{path}

If you did not send a message, ignore this email. Somebody may have mistyped an address.
""",
    ),
    "new_sign_in": Text(
        "A new device signed in to your account",
        """Someone signed in to {account.email} with your password, on a device that we do not know.

If this was not you, change your password, which signs out all other devices:
{console}/account
""",
    ),
    "password_changed": Text(
        "Your password was changed",
        """The password of {account.email} was changed. All other devices were signed out.

If this was not you, set a new password immediately:
{base_url}/reset-password

If you need help, contact us{contact}.
""",
    ),
    "password_reset": Text(
        "Set a new password",
        """Someone, probably you, forgot the password of {account.email}.

Set a new password within an hour:
{link}

The link works once. If you did not ask for it, ignore this email: your password has not changed.
""",
    ),
    "plan_declined": Text(
        "We can't start your Business plan",
        """We declined your request for the Business plan.
{declined}
If you have a question, contact us{contact}. You can send a new request at any time:
{console}/plan
""",
    ),
    "plan_reminder": Text(
        "Your Business plan ends on {day}",
        """Your Business plan ends on {day}. After that, active listings stay visible, but your API keys stop working.

Renew your plan:
{console}/plan
""",
    ),
    "plan_request": Text(
        "{account.name} requests the Business plan",
        """{account.name} ({account.email}, account {account.id}) requests the Business plan.

Agree on the payment with the seller, then start the plan:
listings account plan {account.id} --months 1

Or decline the request, which tells the seller why:
listings account plan {account.id} --decline "REASON"
""",
    ),
    "plan_started": Text(
        "Your Business plan is active until {day}",
        """Your Business plan is active until {day}.{paid}

{offer}Create a listing:
{console}/listings/new

Your plan:
{console}/plan
""",
    ),
}
_PLAN_ENDED_TEXT = Text(
    "Your Business plan has ended",
    f"{PLAN_ENDED.format('{day}')}.\n\nRenew your plan:\n{{console}}/plan\n",
)
