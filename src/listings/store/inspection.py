"""Statements about all accounts, for the operator's commands and reports, and the facts that they return."""

from typing import NamedTuple

from listings.store.mapping import AccountRow
from listings.store.member_sql import QUALIFIED_ACCOUNT_COLUMNS
from listings.store.query import Query

LIST_PLAN_REQUESTS = Query[tuple[int, *AccountRow]](f"""
SELECT r.requested_at, {QUALIFIED_ACCOUNT_COLUMNS}
FROM plan_requests r JOIN accounts a ON a.id = r.account_id
WHERE r.declined_at IS NULL
ORDER BY r.requested_at, r.account_id
""")
_COUNT_PLAN_REQUESTS = "SELECT count(*), min(requested_at) FROM plan_requests WHERE declined_at IS NULL"
_COUNT_MAILS = """
SELECT count(next_at), min(CASE WHEN next_at IS NOT NULL THEN created_at END), count(*) - count(next_at) FROM mails
"""
COUNT_PENDING = Query[tuple[int, int | None, int, int | None, int]](
    f"SELECT * FROM ({_COUNT_PLAN_REQUESTS}) AS requests, ({_COUNT_MAILS}) AS mail"
)


class Pending(NamedTuple):
    """The numbers of open plan requests, of queued and of given-up emails, and the Unix times of the oldest.

    `oldest_mail` is that of the oldest queued email.
    """

    plan_requests: int
    oldest_plan_request: int | None
    mails: int
    oldest_mail: int | None
    given_up_mails: int
