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
    rows: list[Data] = [
        {
            "kind": "plan request",
            "since": format_timestamp(request.requested_at),
            "account": str(request.account.id),
            "email": request.account.email,
            "subject": "",
        }
        for request in await services.plan_requests.list_open()
    ]
    rows += [
        {
            "kind": "unsent mail",
            "since": format_timestamp(mail.created_at),
            "account": str(mail.account_id or ""),
            "email": mail.recipient,
            "subject": mail.kind.replace("_", " "),
        }
        for mail in await services.mailer.list_given_up()
    ]
    rows += [
        {
            "kind": "report",
            "since": format_timestamp(report.created_at),
            "account": str(report.account_id),
            "email": (await services.accounts.find(str(report.account_id))).email,
            "subject": f"{report.id} listing {report.listing_id}: {report.reason}{report.text and f' ({report.text})'}",
        }
        for report in await services.listing_reports.list_open()
    ]
    return rows
