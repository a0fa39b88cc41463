"""Statements about all accounts, for the operator's commands and reports, and the facts that they return."""

from typing import NamedTuple

from listings.store.member_sql import QUALIFIED_ACCOUNT_COLUMNS

LIST_PLAN_REQUESTS = f"""
SELECT r.requested_at, {QUALIFIED_ACCOUNT_COLUMNS}
FROM plan_requests r JOIN accounts a ON a.id = r.account_id
ORDER BY r.requested_at, r.account_id
"""

COUNT_PLAN_REQUESTS = "SELECT count(*), min(requested_at) FROM plan_requests"


class PlanRequests(NamedTuple):
    """The number of open requests for the plan, and the Unix time of the oldest one."""

    open: int
    oldest: int | None
