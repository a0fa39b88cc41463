"""The use cases of Listings and their rules. The rules of single fields are in `listings.domain.fields`.

The HTTP API, the pages and the command line all call this package. It depends on none of them, nor on a database
engine.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from listings.domain.accounts import DEFAULT_PLAN, PlanTerms
from listings.domain.errors import Problem, Unavailable
from listings.domain.rate_limiter import RateLimiter
from listings.domain.timestamps import format_timestamp
from listings.queues import FairQueue
from listings.service import background_tasks
from listings.service.access import Access
from listings.service.accounts import Accounts
from listings.service.background_tasks import Task, run_tasks
from listings.service.history.activity import ACTIVITY_DAYS, Activity, Changes
from listings.service.history.change_waits import ChangeWaits
from listings.service.history.report import Reports
from listings.service.history.reverts import Reverts
from listings.service.history.usage import RequestUsage
from listings.service.indexing import Pause
from listings.service.keys import Keys
from listings.service.listings import Listings
from listings.service.listings.moderation import Moderation
from listings.service.mail import Mailer, MailOutcome
from listings.service.mail.composer import MailComposer
from listings.service.mail.listing_reports import ListingReports
from listings.service.mail.messages import Messages
from listings.service.mail.reminders import PlanReminders
from listings.service.mail.smtp_types import SmtpServer
from listings.service.market import Market
from listings.service.members.attempts import Attempts
from listings.service.members.invitations import Invitations
from listings.service.members.member_keys import MemberKeys
from listings.service.members.operators import Operators
from listings.service.members.own_account import OwnAccount
from listings.service.members.passwords import Passwords
from listings.service.members.sessions import Sessions
from listings.service.payments import Payments
from listings.service.payments.provider import ManualPayments, PaymentProvider
from listings.service.payments.requests import PlanRequests
from listings.service.pictures import NO_PICTURES, PictureOptions, Pictures
from listings.service.test_mode import TestMode
from listings.service.transfer import Transfer
from listings.store.store import Store

_MAX_SEARCHES = 2  # at the same time
_LATE_SECONDS = 60  # a search index that is further behind is reported


class ServiceInfo(NamedTuple):
    """Public information about the service."""

    base_url: str = ""  # public URL without a trailing slash; empty: the host of each request
    contact: str = ""  # an email address or a URL
    plan: PlanTerms = DEFAULT_PLAN
    market_name: str = "Listings"
    logo: str = ""  # path of the market's logo; empty if the website is off
    links: tuple[tuple[str, str], ...] = ()  # labels and URLs at the foot of each page
    sign_up_open: bool = False  # whether anyone may create an account

    @property
    def contact_email(self) -> str:
        """The contact if it is an email address, otherwise ""."""
        return "" if "://" in self.contact else self.contact

    @property
    def contact_url(self) -> str:
        """The URL of the contact, or ""."""
        return f"mailto:{self.contact}" if self.contact_email else self.contact

    @property
    def path_prefix(self) -> str:
        """The path of the public URL, such as /shop, or ""."""
        return urlsplit(self.base_url).path


NO_INFO = ServiceInfo()


class Options(NamedTuple):
    """Settings of the operator, and replacements for tests."""

    about: ServiceInfo = NO_INFO
    market_open: bool = True  # whether listings are numbered for the public market
    index_folder: Path | None = None  # with the search indexes of this machine
    payments: PaymentProvider = ManualPayments()
    passwords: Passwords | None = None
    pause: Pause = asyncio.sleep  # sleeps between the runs of a background task
    change_days: int = ACTIVITY_DAYS  # how long change sets are stored
    trial_days: int = 14  # of test mode, after the confirmation of an email address; 0: there is no trial
    deleted_days: int = 0  # how long deleted listings are stored; 0: within the account's budget
    message_days: int = 90  # how long buyers' messages are stored; 0: they are only counted
    pictures: PictureOptions = NO_PICTURES
    mail_server: SmtpServer | None = None  # None: no mail is sent
    on_mail: Callable[[MailOutcome], None] = lambda _: None  # called after each attempt to send an email
    # Called regularly with why the service is not ready (or ""), the Unix time of the oldest queued email (0: there is
    # none), and the bytes that accounts store.
    on_state: Callable[[str, int, int, int], None] | None = None


DEFAULTS = Options()


class Services:
    """All use cases, by subject, over one store, one rate limiter and one clock.

    `limiter` is None if there is no rate limit, and `clock` returns seconds since 1970.
    """

    def __init__(
        self,
        store: Store,
        limiter: RateLimiter | None,
        clock: Callable[[], float] = time.time,
        options: Options = DEFAULTS,
    ) -> None:
        about, change_days = options.about, options.change_days
        passwords = options.passwords or Passwords()
        composer = MailComposer(clock, is_on=options.mail_server is not None, operator=about.contact_email)
        self.limiter = limiter
        self.clock = clock
        self.about = about
        self.plan = about.plan
        self.revisions: Store = store
        self.access = Access(store, limiter, clock, about.plan)
        self.listings = Listings(store, clock)
        self.moderation = Moderation(store, clock, composer)
        self.usage = RequestUsage(store, limiter, clock)
        self.market = Market(store, clock, options.pause, lambda: self.usage.requests, options.index_folder)
        self.searches = FairQueue(slots=_MAX_SEARCHES)  # of the market, by visitor
        self.pictures = Pictures(store, clock, options.pictures, change_days)
        self.accounts = Accounts(store, self.pictures, clock, composer, about.plan)
        self.keys = Keys(store, self.accounts, clock, composer)
        attempts = Attempts(store, clock)
        self.sessions = Sessions(store, attempts, passwords, clock, composer, about.sign_up_open)
        self.invitations = Invitations(store, self.accounts, self.sessions, passwords, clock, composer)
        self.operators = Operators(store, attempts, self.accounts, self.sessions, clock, about.market_name)
        self.own_account = OwnAccount(store, self.accounts, self.sessions, clock, composer)
        self.test_mode = TestMode(store, self.accounts, self.keys, clock, options.trial_days)
        self.member_keys = MemberKeys(store, attempts, self.keys, self.sessions, clock, self.test_mode)
        self.activity = Activity(store, clock)
        self.changes = Changes(store, clock, change_days, options.deleted_days)
        self.change_waits = ChangeWaits(store)
        self.reverts = Reverts(store, clock, change_days)
        self.payments = Payments(store, options.payments, clock, composer, about.plan)
        self.plan_requests = PlanRequests(store, clock, composer)
        self.messages = Messages(store, attempts, self.market, clock, composer, options.message_days)
        self.listing_reports = ListingReports(store, attempts, self.market, clock, composer)
        self.mailer = Mailer(store, options.mail_server, clock, about.contact, options.on_mail, self.pictures.base_url)
        self.plan_reminders = PlanReminders(store, composer, clock)
        self.transfer = Transfer(store, clock)
        self.reports = Reports(store, clock, market_open=options.market_open)
        self._store = store
        self._options = options
        self._stopping = False

    def begin_shutdown(self) -> None:
        """Report the service as not ready."""
        self._stopping = True

    async def require_ready(self) -> None:
        """Raise Unavailable if the service is stopping or its store or rate limiter is unavailable."""
        if self._stopping:
            raise Unavailable("The service is stopping")
        try:
            await self._store.check()
            if self.limiter is not None:
                await self.limiter.check()
        except Problem as problem:
            raise Unavailable(problem.message) from problem

    async def list_degradations(self) -> list[str]:
        """Return descriptions of failures that leave the service ready."""
        found = []
        if self.market.stamping_failed_at is not None:
            found.append(f"the market has not been updated since {format_timestamp(self.market.stamping_failed_at)}")
        since = self.market.unindexed_since
        if since is not None and self.clock() - since > _LATE_SECONDS:
            found.append(f"the search index has been behind since {format_timestamp(since)}")
        if unavailable := await self._store.list_unavailable_nodes():
            found.append(f"these nodes of the database are unavailable: {', '.join(unavailable)}")
        return found

    async def report_state(self) -> None:
        """Call `Options.on_state`. Without the database, emails and bytes are 0."""
        reason, backlog = "", (0, 0, 0)
        try:
            await self.require_ready()
            backlog = await self._store.read_backlog()
        except Unavailable as problem:
            reason = problem.message
        if self._options.on_state is not None:
            self._options.on_state(reason, *backlog)

    @property
    def restore_id(self) -> str:
        """The id of the last restore, which is part of every tag and cursor."""
        return self._store.restore_id

    async def run_background_tasks(self) -> None:
        """Run the background tasks until cancelled."""
        purges = (
            self.listings.purge_idempotency_records,
            self.market.purge_views,
            self.market.purge_tombstones,
            self.sessions.purge,
            self.activity.purge,
            self.changes.purge,
            self.mailer.purge,
            self.messages.purge,
        )
        tasks = [
            Task(background_tasks.MINUTELY_SECONDS, [self.access.write_key_uses, self.usage.write, *purges]),
            Task(background_tasks.USAGE_SECONDS, [self.usage.write_batch]),
            Task(background_tasks.MARKET_SECONDS, [self.market.write_views]),
            Task(background_tasks.INDEX_SECONDS, [self.market.index_accounts]),
            Task(
                background_tasks.HOURLY_SECONDS,
                [self.plan_requests.report, self.plan_reminders.queue, self.test_mode.empty_idle, self.pictures.sweep],
            ),
            Task(background_tasks.MINUTELY_SECONDS, [self.own_account.erase_closed]),
            Task(background_tasks.BUDGET_SECONDS, [self.changes.enforce_budgets]),
            Task(background_tasks.REVERT_SECONDS, [self.reverts.run]),
        ]
        if self._options.on_state is not None:
            tasks.append(Task(background_tasks.STATE_SECONDS, [self.report_state], pauses_first=False))
        if self.mailer.is_on:
            tasks.append(Task(background_tasks.MAIL_SECONDS, [self.mailer.send_due]))
        if self.limiter is not None:
            maintain = self.limiter.run_maintenance  # runs until cancelled, or returns if it has nothing to do
            tasks.append(Task(background_tasks.LIMITER_SECONDS, [maintain], pauses_first=False))
        if self._options.market_open:
            tasks.append(Task(background_tasks.STAMP_SECONDS, [self.market.stamp]))
            tasks.append(Task(background_tasks.STATE_SECONDS, [self.market.watch_index]))
        await run_tasks(tasks, self._options.pause)

    async def write_pending(self) -> None:
        """Store the counts and times that are still in memory."""
        await self.access.write_key_uses()
        await self.market.write_views()
        await self.usage.write()

    def close(self) -> None:
        """End the threads of searches, and the process that converts pictures."""
        self.market.close()
        self.pictures.close()
