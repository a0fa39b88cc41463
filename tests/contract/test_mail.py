"""The queue of mail: guarantees of every store (`listings.store.store.Store`)."""

import asyncio

from listings.domain.accounts import NewKey
from listings.domain.history import CONSOLE, Actor
from listings.domain.mail import NewMail, QueuedMail
from listings.domain.model import Account
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.helpers import erase


def build_mail(account: Account, number: int = 1) -> NewMail:
    return NewMail(f"mail{number}", "key_created", account.email, account.id, "{}", 1_000 + number)


def test_a_mail_is_due_until_it_is_deleted(store: Store, run: Run, account: Account) -> None:
    mail = build_mail(account)
    run(store.add_mail(mail))
    assert run(store.claim_mail(1_000, 1_100)) is None
    assert run(store.claim_mail(1_001, 1_100)) == QueuedMail(mail, 1)
    assert run(store.claim_mail(1_099, 1_200)) is None
    assert run(store.claim_mail(1_100, 1_200)) == QueuedMail(mail, 2)
    run(store.delete_mail(mail.id))
    assert run(store.claim_mail(2_000, 2_100)) is None


def test_concurrent_callers_never_claim_the_same_mail(store: Store, run: Run, account: Account) -> None:
    async def claim_all() -> list[QueuedMail | None]:
        return await asyncio.gather(*(store.claim_mail(2_000, 3_000) for _ in range(8)))

    for number in range(4):
        run(store.add_mail(build_mail(account, number)))
    ids = [it.mail.id for it in run(claim_all()) if it is not None]
    assert ids
    assert len(ids) == len(set(ids))


def test_the_mail_that_is_due_the_longest_comes_first(store: Store, run: Run, account: Account) -> None:
    for number in (3, 1, 2):
        run(store.add_mail(build_mail(account, number)))
    run(store.postpone_mail("mail1", 1_500))
    claimed = [run(store.claim_mail(2_000, 3_000)) for _ in range(4)]
    assert [it and it.mail.id for it in claimed] == ["mail2", "mail3", "mail1", None]


def test_an_email_is_purged_by_age_and_loses_its_detail_when_given_up(store: Store, run: Run, account: Account) -> None:
    run(store.add_mail(build_mail(account)._replace(detail='{"text": "Hello"}')))
    run(store.postpone_mail("mail1", None))
    assert run(store.claim_mail(5_000, 6_000)) is None
    run(store.purge_mails(1_001))
    run(store.postpone_mail("mail1", 5_000))
    claimed = run(store.claim_mail(5_000, 6_000))
    assert claimed is not None
    assert claimed.mail.detail == "{}"  # it may have been the message of a buyer
    run(store.purge_mails(1_002))
    run(store.postpone_mail("mail1", 5_000))
    assert run(store.claim_mail(5_000, 6_000)) is None


def test_a_mail_is_queued_with_its_cause_or_not_at_all(store: Store, run: Run, account: Account) -> None:
    new = NewKey(account_id=account.id, name="k", digest=b"d" * 32, hint="lst_…", created_at=1_000)
    assert run(store.add_key(new, None, build_mail(account, 1)))
    assert run(store.add_key(new, None, build_mail(account, 2))) is None
    assert run(store.add_plan_request(account.id, 1_000, build_mail(account, 3)))
    assert not run(store.add_plan_request(account.id, 1_000, build_mail(account, 4)))
    claimed = [run(store.claim_mail(2_000, 3_000)) for _ in range(3)]
    assert [it and it.mail.id for it in claimed] == ["mail1", "mail3", None]


def test_a_notice_is_queued_with_a_new_password_or_not_at_all(store: Store, run: Run) -> None:
    account = run(store.add_member("Bob", "bob@example.com", "first", 1_000))
    actor = Actor(CONSOLE, 1_000)
    assert not run(store.set_password(account.id, "wrong", "x", actor, notice=build_mail(account, 1)))
    assert run(store.set_password(account.id, "first", "second", actor, notice=build_mail(account, 2)))
    run(store.add_invitation(account.id, b"i" * 32, 1_000, 2_000))
    assert run(store.accept_invitation(b"i" * 32, "third", 1_000, build_mail(account, 3))) == account
    assert run(store.accept_invitation(b"i" * 32, "fourth", 1_000, build_mail(account, 4))) is None
    claimed = [run(store.claim_mail(2_000, 3_000)) for _ in range(3)]
    assert [it and it.mail.id for it in claimed] == ["mail2", "mail3", None]


def test_erasing_an_account_deletes_its_mail(store: Store, run: Run, account: Account) -> None:
    run(store.add_mail(build_mail(account)))
    run(store.add_mail(NewMail("mail2", "password_reset", account.email, None, "{}", 1_000)))
    run(erase(store, account.id, "erased@example.invalid", 2_000))
    assert run(store.claim_mail(2_000, 3_000)) is None


def test_a_reminder_is_stored_once_for_each_end_and_time(store: Store, run: Run, account: Account) -> None:
    end = account.plan_expires_at or 0

    def list_accounts(days: int) -> list[Account]:
        return list(run(store.list_accounts_to_remind(days, end - 1, end, 10)))

    assert run(store.list_accounts_to_remind(14, end, end + 1, 10)) == []
    assert run(store.list_accounts_to_remind(14, end - 2, end - 1, 10)) == []
    assert list_accounts(14) == [account]
    assert run(store.add_plan_reminder(account.id, end, 14, build_mail(account)))
    assert not run(store.add_plan_reminder(account.id, end, 14, build_mail(account, 2)))
    assert (list_accounts(14), list_accounts(7)) == ([], [account])
    assert run(store.add_plan_reminder(account.id, end, 7))
    assert not run(store.add_plan_reminder(account.id, end, 14))
    assert run(store.add_plan_reminder(account.id, end + 1, 14))
    assert [it and it.mail.id for it in (run(store.claim_mail(2_000, 3_000)) for _ in range(2))] == ["mail1", None]
    run(store.change_account(account.id, lambda _: {"disabled_at": 1}))
    assert list_accounts(0) == []
