"""Email addresses and closed accounts: guarantees of every store (`listings.store.store.Store`)."""

import pytest

from listings.domain import history
from listings.domain.errors import Problem
from listings.domain.history import CONSOLE, LATEST, Actor
from listings.domain.mail import NewMail
from listings.domain.members import NewSession
from listings.domain.model import Account, bucket_of
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.helpers import add_email_token

TOKEN, OTHER = b"t" * 32, b"o" * 32
NEW = "alice@new.example"
OPERATOR = Actor(history.OPERATOR, 1_600)


def test_a_token_confirms_its_address_once(store: Store, run: Run, account: Account) -> None:
    notice = NewMail("mail1", "email_changed", account.email, account.id, "{}", 1_500)
    run(store.add_invitation(account.id, OTHER, 1_000, 9_000))
    run(add_email_token(store, account.id, TOKEN, NEW))
    assert run(store.get_confirmed_email(account.id)) is None
    assert run(store.find_email_token(TOKEN, 1_999)) == (account, NEW)
    changed = run(store.confirm_email(TOKEN, 1_500, notice))
    assert changed == run(store.find_account(NEW))
    assert run(store.get_confirmed_email(account.id)) == NEW
    assert run(store.find_invitation(OTHER, 1_500)) is None
    assert run(store.claim_mail(1_500, 2_000)).mail == notice
    events = run(store.page_events(bucket_of(account.id), account.id, LATEST, 10))
    assert [(event.kind, event.actor) for event in events] == [("account_changed", CONSOLE)]
    assert run(store.confirm_email(TOKEN, 1_500)) is None


def test_confirming_the_present_address_changes_nothing_else(store: Store, run: Run, account: Account) -> None:
    run(add_email_token(store, account.id, TOKEN, account.email))
    notice = NewMail("mail1", "email_changed", account.email, account.id, "{}", 1_500)
    assert run(store.confirm_email(TOKEN, 1_500, notice)) == account
    assert run(store.get_confirmed_email(account.id)) == account.email
    assert run(store.claim_mail(1_500, 2_000)) is None
    assert run(store.page_events(bucket_of(account.id), account.id, LATEST, 10)) == []


def test_a_confirmed_address_cancels_changes_to_others(store: Store, run: Run, account: Account) -> None:
    mistyped = NewMail("mail1", "confirm_email", "alise@new.example", account.id, "{}", 1_000)
    run(store.add_mail(mistyped))
    run(add_email_token(store, account.id, TOKEN, NEW))
    assert run(store.confirm_email(TOKEN, 1_500)).email == NEW
    assert run(store.claim_mail(1_500, 2_000)) is None
    assert not run(store.add_email_token(account.id, mistyped, OTHER, 1_500, 2_000))


def test_an_expired_token_confirms_nothing(store: Store, run: Run, account: Account) -> None:
    run(add_email_token(store, account.id, TOKEN, NEW))
    assert run(store.find_email_token(TOKEN, 2_000)) is None
    assert run(store.confirm_email(TOKEN, 2_000)) is None
    assert run(store.get_account(account.id)) == account


def test_the_address_of_another_account_is_not_taken(store: Store, run: Run, account: Account) -> None:
    bob = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    run(add_email_token(store, account.id, TOKEN, bob.email))
    assert run(store.confirm_email(TOKEN, 1_500)) is None
    assert run(store.change_email(account.id, bob.email, Actor(CONSOLE, 1_500))) is None
    assert run(store.get_account(account.id)) == account
    assert run(store.find_email_token(TOKEN, 1_500)) == (account, bob.email)
    changed = run(store.change_email(account.id, NEW, Actor(CONSOLE, 1_500)))
    assert changed.email == NEW


def test_a_closed_account_is_disabled_until_it_is_erased(store: Store, run: Run) -> None:
    alice = run(store.add_member("Alice", "alice@example.com", "hash", 1_000))
    new = NewSession(digest=TOKEN, handle="h", csrf_secret="s", created_at=1_000, agent="")
    run(store.add_session(alice.id, new, "hash"))
    run(add_email_token(store, alice.id, OTHER, NEW))
    for moment in (1_500, 1_600):
        run(store.close_account(alice.id, moment))
    assert run(store.get_account(alice.id)).disabled_at == 1_500
    assert run(store.list_sessions(alice.id)) == []
    assert run(store.list_closed_accounts()) == [alice.id]
    run(store.erase_account(alice.id, "Erased", "erased@example.invalid", 1_700, 1_500))
    assert run(store.list_closed_accounts()) == []
    assert run(store.find_email_token(OTHER, 1_500)) is None


def test_a_closed_account_that_is_enabled_again_is_not_erased(store: Store, run: Run, account: Account) -> None:
    run(store.close_account(account.id, 1_500))
    run(store.change_account(account.id, lambda _: {"name": "Alice again"}, OPERATOR))
    assert run(store.list_closed_accounts()) == [account.id]
    run(store.change_account(account.id, lambda _: {"disabled_at": None}, OPERATOR))
    assert run(store.list_closed_accounts()) == []
    assert not run(store.erase_account(account.id, "Erased", "erased@example.invalid", 1_700, 1_500))
    assert run(store.get_account(account.id)).name == "Alice again"


def test_a_disabled_account_gets_no_new_address(store: Store, run: Run, account: Account) -> None:
    run(add_email_token(store, account.id, TOKEN, NEW))
    run(store.change_account(account.id, lambda _: {"disabled_at": 1_500}))
    for task in (
        store.change_email(account.id, NEW, Actor(CONSOLE, 1_600)),
        store.confirm_email(TOKEN, 1_600),
    ):
        with pytest.raises(Problem) as caught:
            run(task)
        assert caught.value.code == "account_disabled"
    assert run(store.get_account(account.id)).email == account.email


def test_an_old_password_permits_nothing_after_it_was_changed(store: Store, run: Run) -> None:
    alice = run(store.add_member("Alice", "alice@example.com", "first", 1_000))
    run(store.set_password(alice.id, "first", "second", Actor(CONSOLE, 1_100)))
    mail = NewMail("mail1", "confirm_email", NEW, alice.id, "{}", 1_200)
    for task in (
        store.change_email(alice.id, NEW, Actor(CONSOLE, 1_200), "first"),
        store.queue_confirmation(alice.id, mail, "first"),
        store.close_account(alice.id, 1_200, "first"),
    ):
        with pytest.raises(Problem) as caught:
            run(task)
        assert caught.value.code == "wrong_credentials"
    assert run(store.get_account(alice.id)) == alice
    assert run(store.claim_mail(1_300, 1_400)) is None
    run(store.queue_confirmation(alice.id, mail, "second"))
    assert run(store.claim_mail(1_300, 1_400)).mail == mail


def test_an_account_that_was_disabled_again_is_not_erased(store: Store, run: Run, account: Account) -> None:
    run(store.change_account(account.id, lambda _: {"disabled_at": 1_500}))
    run(store.change_account(account.id, lambda _: {"disabled_at": None}))
    run(store.change_account(account.id, lambda _: {"disabled_at": 1_600}))
    run(store.erase_rows(account.id, 1, 1_500))
    assert not run(store.erase_account(account.id, "Erased", "erased@example.invalid", 1_700, 1_500))
    assert run(store.get_account(account.id)).name == account.name
