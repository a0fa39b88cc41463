"""Reports of listings by visitors, for the operator."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from listings.domain.audience import ListingReport
from listings.domain.errors import Problem
from listings.service.accounts import remove_controls
from listings.service.mail.composer import MailComposer
from listings.service.market import Market
from listings.service.members.attempts import MAX_SECONDS, Attempts, build_limit, find_network
from listings.store.store import Store

MAX_LENGTH = 500  # characters
REASONS: Mapping[str, str] = {
    "fraud": "It looks like fraud",
    "forbidden": "It must not be sold",
    "offensive": "It is offensive",
    "wrong": "Its category or its description is wrong",
    "other": "Something else",
}
"""The labels of the reasons."""
_MAX_PER_NETWORK = 5  # in an hour
_MAX_LISTED = 1_000


@dataclass(eq=False)
class ListingReports:
    """Stores reports until the operator closes them, and for 90 days at most."""

    _store: Store
    _attempts: Attempts
    _market: Market
    _clock: Callable[[], float]
    _composer: MailComposer

    @property
    def is_on(self) -> bool:
        """Whether visitors can report listings, which needs mail to the operator."""
        return self._composer.has_operator

    async def add(self, listing_id: int, reason: str, text: str, address: str) -> None:
        """Store a report of a listing on the market, and tell the operator. `address`: the visitor's IP address.

        Raises Problem: invalid_request, too_many_attempts, path_not_found, and those of `Market.get_listing`.
        """
        if not self.is_on:
            raise Problem("path_not_found", "Listings can't be reported here")
        listing = await self._market.get_listing(listing_id)
        if reason not in REASONS:
            raise Problem("invalid_request", "Choose a reason")
        text = remove_controls("\n".join(text.splitlines())).strip()
        if len(text) > MAX_LENGTH:
            raise Problem("invalid_request", f"A text must have at most {MAX_LENGTH} characters, got {len(text):,}")
        limit = build_limit(_MAX_PER_NETWORK, "report network", find_network(address), MAX_SECONDS)
        await self._attempts.count([limit], "reports in the last hour")
        now = int(self._clock())
        report = ListingReport(secrets.token_hex(4), listing.account_id, listing.id, reason, text, now)
        mail = self._composer.compose_listing_report(report, REASONS[reason])
        await self._store.add_listing_report(report, mail)

    async def list_open(self) -> list[ListingReport]:
        """Return the oldest open reports."""
        return await self._store.list_listing_reports(_MAX_LISTED)

    async def close(self, report_id: str) -> None:
        """Delete a report. Raises Problem("invalid_request") if there is none with this id."""
        if not await self._store.delete_listing_report(report_id):
            raise Problem("invalid_request", f"There is no report {report_id}")
