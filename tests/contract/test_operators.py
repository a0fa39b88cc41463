"""Operators and the second factor of their sessions: guarantees of every store."""

from listings.domain.members import NewSession, Operator
from listings.domain.model import Account
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.helpers import erase

SESSION = NewSession(digest=b"d" * 32, handle="one", csrf_secret="s", created_at=1_000, agent="")


def add_operator(store: Store, run: Run, account: Account) -> Operator:
    operator = Operator(account.id, "ABC", 0, 1_000)
    run(store.set_operator(operator))
    return operator


def start_session(store: Store, run: Run, account: Account) -> None:
    invited = store.add_invitation(account.id, b"i" * 32, 1_000, 2_000)
    assert run(invited)
    assert run(store.accept_invitation(b"i" * 32, "hash", 1_000)) is not None
    assert run(store.add_session(account.id, SESSION, "hash"))


def test_an_operator_is_replaced_and_deleted(store: Store, run: Run, account: Account) -> None:
    operator = add_operator(store, run, account)
    assert run(store.get_operator(account.id)) == operator
    other = operator._replace(secret="DEF", added_at=2_000)
    run(store.set_operator(other))
    assert run(store.list_operators()) == [other]
    assert run(store.delete_operator(account.id))
    assert not run(store.delete_operator(account.id))
    assert run(store.get_operator(account.id)) is None


def test_a_code_works_once_and_no_earlier_one_after_it(store: Store, run: Run, account: Account) -> None:
    operator = add_operator(store, run, account)
    start_session(store, run, account)
    assert run(store.get_operator_session(account.id, "one")) is None
    used = [run(store.use_operator_code(operator, step, "one", 1_000 + step)) for step in (7, 7, 6, 8)]
    assert used == [True, False, False, True]
    assert run(store.get_operator_session(account.id, "one")) == 1_008
    assert run(store.get_operator_session(account.id, "two")) is None


def test_a_new_secret_ends_the_sessions_and_the_old_codes(store: Store, run: Run, account: Account) -> None:
    operator = add_operator(store, run, account)
    start_session(store, run, account)
    assert run(store.use_operator_code(operator, 7, "one", 1_000))
    run(store.set_operator(operator._replace(secret="DEF")))
    assert run(store.get_operator_session(account.id, "one")) is None
    assert not run(store.use_operator_code(operator, 8, "one", 1_000))


def test_an_erased_account_is_no_operator(store: Store, run: Run, account: Account) -> None:
    add_operator(store, run, account)
    run(erase(store, account.id, "erased@example.com", 2_000))
    assert run(store.list_operators()) == []
