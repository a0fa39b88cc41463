"""The operator's report: guarantees of every store (`listings.store.store.Store`)."""

import pytest

from listings.domain.history import Report, ReportTimes, UsageSlot
from listings.domain.listings import AddStep
from listings.domain.mail import NewMail
from listings.domain.model import Account, NewListing, bucket_of
from listings.domain.pictures import Picture
from listings.store import report
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.test_usage import build_rejected_request, get_partition

HOUR = 20_000 * 24
TIMES = ReportTimes(since=HOUR * 3600, now=HOUR * 3600 + 86_000, soon=HOUR * 3600 + 1_000_000)
NOW, SOON = TIMES.now, TIMES.soon
OLD, NEW = "2024-10-03 23:59:59", "2024-10-04 00:00:00"  # TIMES.since is the latter


def open_account(store: Store, run: Run, name: str, plan_expires_at: int | None, created_at: int = 1_000) -> Account:
    account: Account = run(store.add_account(name, f"{name}@example.com", plan_expires_at, created_at))
    return account


def read(store: Store, run: Run) -> Report:
    report: Report = run(store.read_report(TIMES))
    return report


def count_listings(store: Store, run: Run) -> tuple[int | None, int | None]:
    report = read(store, run)
    return report.new_listings, report.market_listings


def test_an_empty_database_has_an_empty_report(store: Store, run: Run) -> None:
    report = read(store, run)
    assert report.database_bytes > 0
    assert report._replace(database_bytes=0) == Report(0, 0, 0, 0, 0, 0, 0, 0, {}, 0, 0, 0, 0, 0, 0, 0, {}, 0)


def test_accounts_are_counted_by_plan(store: Store, run: Run) -> None:
    open_account(store, run, "alice", SOON + 1, created_at=TIMES.since)
    open_account(store, run, "bob", SOON, created_at=TIMES.since - 1)
    open_account(store, run, "charlie", NOW)
    open_account(store, run, "dora", None)
    disabled = open_account(store, run, "erin", SOON, created_at=NOW)
    run(store.change_account(disabled.id, lambda _: {"disabled_at": NOW}))
    assert read(store, run)[:6] == (4, 1, 1, 2, 1, 1)


def test_usage_and_rejections_of_the_period_are_summed_over_accounts(store: Store, run: Run) -> None:
    alice, bob = (get_partition(open_account(store, run, name, None)) for name in ("alice", "bob"))
    counts = {
        UsageSlot(alice.account_id, HOUR - 1, 7, 200): 1_000,
        UsageSlot(alice.account_id, HOUR, 7, 200): 5,
        UsageSlot(alice.account_id, HOUR + 1, 8, 399): 3,
        UsageSlot(bob.account_id, HOUR, 9, 400): 2,
        UsageSlot(bob.account_id, HOUR + 23, 9, 503): 4,
    }
    since = TIMES.since * 1_000_000
    rejections = [build_rejected_request(alice, since + number) for number in (-1, 0)]
    rejections += [build_rejected_request(bob, since + number) for number in range(2)]
    run(store.add_usage(counts, rejections, 100))
    report = read(store, run)
    assert (report.requests, report.rejected_requests, report.rejections) == (14, 6, {"not_owner": 3})


@pytest.mark.parametrize("page_size", [1, 100])
def test_new_listings_of_the_market_are_counted(
    store: Store, run: Run, page_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "PAGE_SIZE", page_size)
    alice = open_account(store, run, "alice", None)
    for created_at in (OLD, OLD, NEW, NEW, NEW):
        new = NewListing(title="Lamp", content="c")
        run(store.add_listing(bucket_of(alice.id), alice.id, AddStep(new, created_at)))
    assert count_listings(store, run) == (0, 0)
    run(store.stamp_market(100, b"i" * 16, float(NOW)))
    assert count_listings(store, run) == (3, 5)


def test_plan_requests_and_mails_that_wait_are_counted(store: Store, run: Run) -> None:
    alice = open_account(store, run, "alice", None)
    run(store.add_plan_request(alice.id, NOW))
    for mail_id in ("a", "b", "c"):
        run(store.add_mail(NewMail(mail_id, "key_created", alice.email, alice.id, "", NOW)))
    run(store.postpone_mail("c", None))
    report = read(store, run)
    assert (report.plan_requests, report.queued_mails, report.given_up_mails) == (1, 2, 1)


def test_pictures_are_counted_apart_but_make_an_account_large(store: Store, run: Run) -> None:
    alice, bob = (open_account(store, run, name, None) for name in ("alice", "bob"))
    run(store.add_listing(bucket_of(alice.id), alice.id, AddStep(NewListing(title="t", content="c"), NEW)))
    for number, size in enumerate((100, 20)):
        run(store.add_picture(Picture(f"{number:032x}", bob.id, 1, 1, size, 1), bytes([number] * 32), 1_000))
    report = read(store, run)
    assert (report.stored_bytes, report.picture_bytes) == (len("tc[]"), 120)
    assert report.largest_accounts == {str(bob.id): 120, str(alice.id): len("tc[]")}
    assert run(store.read_backlog()) == (0, len("tc[]"), 120)
