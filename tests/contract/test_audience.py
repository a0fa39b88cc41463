"""Buyers' messages, and the views and messages of each day: guarantees of every store."""

from listings.domain.audience import AccountDay, Message
from listings.domain.mail import NewMail
from listings.domain.model import Account, bucket_of
from listings.service.mail.messages import LATEST
from listings.store.audience import MAX_MESSAGES
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.helpers import add, erase

DAY = 86_400
FIRST = Message(20_000 * DAY, "00", 1025, "Ana", "ana@example.com", "Hello")
MAIL = NewMail("m", "buyer_message", "alice@example.com", 1, "{}", FIRST.created_at)


def partition_of(account: Account) -> tuple[int, int]:
    return bucket_of(account.id), account.id


def test_messages_are_paged_newest_first(store: Store, run: Run, account: Account) -> None:
    partition = partition_of(account)
    second, third = FIRST._replace(id="01"), FIRST._replace(created_at=FIRST.created_at + 5)
    for message in (third, FIRST, second):
        run(store.add_message(partition, message, None, stored=True))
    assert run(store.page_messages(partition, LATEST, 2)) == [third, second]
    assert run(store.page_messages(partition, second[:2], 2)) == [FIRST]
    assert run(store.page_messages((partition[0], 99), LATEST, 2)) == []


def test_a_message_is_counted_and_its_mail_queued(store: Store, run: Run, account: Account) -> None:
    partition = partition_of(account)
    run(store.add_message(partition, FIRST, MAIL, stored=False))
    run(store.add_message(partition, FIRST, None, stored=False))
    assert run(store.page_messages(partition, LATEST, 2)) == []
    assert run(store.list_account_days(partition, 0)) == [AccountDay(20_000, messages=2)]
    queued = run(store.claim_mail(FIRST.created_at, FIRST.created_at + 60))
    assert queued is not None
    assert queued.mail == MAIL


def test_an_account_keeps_its_newest_messages(store: Store, run: Run, account: Account) -> None:
    partition = partition_of(account)

    async def fill() -> None:
        for number in range(MAX_MESSAGES + 2):
            await store.add_message(partition, FIRST._replace(id=f"{number:04}"), None, stored=True)

    run(fill())
    stored = run(store.page_messages(partition, LATEST, 2 * MAX_MESSAGES))
    assert (len(stored), stored[-1].id) == (MAX_MESSAGES, "0002")


def test_views_of_all_listings_of_an_account_are_counted_by_day(store: Store, run: Run, account: Account) -> None:
    first, second = add(run, store, account), add(run, store, account)
    run(store.record_views(20_000, {first: [b"a" * 16, b"b" * 16], second: [b"a" * 16]}))
    run(store.record_views(20_000, {first: [b"a" * 16], second: [b"c" * 16]}))
    run(store.record_views(20_001, {first: [b"a" * 16]}))
    days = run(store.list_account_days(partition_of(account), 0))
    assert days == [AccountDay(20_000, views=4), AccountDay(20_001, views=1)]
    assert run(store.list_account_days(partition_of(account), 20_001)) == days[1:]


def test_old_messages_and_days_are_purged(store: Store, run: Run, account: Account) -> None:
    partition, later = partition_of(account), FIRST._replace(created_at=FIRST.created_at + DAY)
    for message in (FIRST, later):
        run(store.add_message(partition, message, None, stored=True))
    run(store.purge_audience(later.created_at, 20_001))
    assert run(store.page_messages(partition, LATEST, 9)) == [later]
    assert run(store.list_account_days(partition, 0)) == [AccountDay(20_001, messages=1)]


def test_erasing_an_account_deletes_messages_and_days(store: Store, run: Run, account: Account) -> None:
    partition = partition_of(account)
    run(store.add_message(partition, FIRST, None, stored=True))
    run(erase(store, account.id, "erased@example.com", 5_000))
    assert run(store.page_messages(partition, LATEST, 9)) == []
    assert run(store.list_account_days(partition, 0)) == []
