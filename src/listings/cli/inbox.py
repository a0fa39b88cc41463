"""`listings inbox`: requests, reports and emails that need the operator."""

import click

from listings.cli.output import Data, json_option, show_rows
from listings.cli.service import with_service
from listings.domain.timestamps import format_timestamp
from listings.service import Services


@click.command(short_help="List requests, reports and emails that need you.")
@click.option("--close", "closed", metavar="ID", help="Close a report of a listing.")
@json_option
def inbox(closed: str | None) -> None:
    """List requests for the Business plan, reports of listings, and emails of 30 days that could not be sent.

    Answer a request with `listings account plan`: --months or --until grants it, --decline declines it. Close a
    report with the id that its subject begins with. The log says why an email could not be sent. It can't be sent
    again, because its text is deleted: fix the cause, then ask the recipient to request a new link, or to sign in.

    \b
    Example: listings inbox
    """
    if closed is not None:
        with_service(lambda services: services.listing_reports.close(closed))
    else:
        show_rows(("kind", "since", "account", "email", "subject"), with_service(_list))


async def _list(services: Services) -> list[Data]:
    rows = [
        _build_row("plan request", one.requested_at, one.account.id, one.account.email, "")
        for one in await services.plan_requests.list_open()
    ]
    rows += [
        _build_row("unsent mail", one.created_at, one.account_id, one.recipient, one.kind.replace("_", " "))
        for one in await services.mailer.list_given_up()
    ]
    for one in await services.listing_reports.list_open():
        email = (await services.accounts.find(str(one.account_id))).email
        text = f"{one.id} listing {one.listing_id}: {one.reason}{one.text and f' ({one.text})'}"
        rows.append(_build_row("report", one.created_at, one.account_id, email, text))
    return rows


def _build_row(kind: str, since: int, account_id: int | None, email: str, subject: str) -> Data:
    account = str(account_id or "")
    return {"kind": kind, "since": format_timestamp(since), "account": account, "email": email, "subject": subject}
