"""The store of the operator's report: numbers about all accounts."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class ReportTimes(NamedTuple):
    """The times of a report, in seconds since 1970: the start of its period, the end, and when "soon" ends."""

    since: int
    now: int
    soon: int


class Report(NamedTuple):
    """Numbers about all accounts. New, requests and rejections are those of the period of the report.

    - `accounts` and plans do not include disabled accounts. `plans_ending_soon` are active ones.
    - `requests` are those with a valid key. `rejected_requests` are the ones with a status of 400 or more.
    - `rejections` are the stored rejected requests by error code, the most common one first.
    - `new_listings` and `market_listings` are those of the market. They are None if it is closed.
    - `plan_requests` are open requests for the Business plan. Mails that were given up are stored for 30 days.
    - `database_bytes` is the size of the database. On Citus, it is that of the coordinator.
    """

    accounts: int
    new_accounts: int
    disabled_accounts: int
    active_plans: int
    plans_ending_soon: int
    expired_plans: int
    requests: int
    rejected_requests: int
    rejections: Mapping[str, int]
    new_listings: int | None
    market_listings: int | None
    plan_requests: int
    queued_mails: int
    given_up_mails: int
    database_bytes: int


class ReportStore(Protocol):
    """Reads the report, with the guarantees of `contract.store`."""

    async def read_report(self, times: ReportTimes) -> Report:
        """Return the numbers of a period. Usage is stored by the hour, so `since` must begin one."""
