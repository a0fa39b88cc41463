"""Accounts, keys and callers: guarantees of every store (`listings.store.store.Store`)."""

from functools import partial
from typing import Any

import msgspec
import pytest

from listings.domain.accounts import AccountChange, NewKey, PlanRequest, PlanRequestState, Rotation
from listings.domain.errors import Problem
from listings.domain.history import OPERATOR, Actor
from listings.domain.mail import NewMail
from listings.domain.model import Account, ApiKey, Caller, bucket_of
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.helpers import erase


def test_an_account_is_found_by_id_and_email(store: Store, run: Run, account: Account) -> None:
    assert account == Account(account.id, "Alice", "alice@example.com", 2_000_000_000, 1_000, None)
    assert run(store.get_account(account.id)) == account
    assert run(store.find_account("alice@example.com")) == account


def test_an_unknown_account_is_none(store: Store, run: Run, account: Account) -> None:
    assert run(store.get_account(account.id + 1)) is None
    assert run(store.find_account("bob@example.com")) is None
    assert run(store.change_account(account.id + 1, lambda _: {"name": "B"})) is None


def test_an_email_address_is_unique(store: Store, run: Run, account: Account) -> None:
    assert run(store.add_account("Another", account.email, None, 2_000)) is None
    assert run(store.get_account(account.id)) == account


def test_an_account_may_have_no_plan(store: Store, run: Run) -> None:
    account = run(store.add_account("Dora", "dora@example.com", None, 1_000))
    assert account.plan_expires_at is None


def test_only_the_decided_fields_of_an_account_change(store: Store, run: Run, account: Account) -> None:
    changed = run(store.change_account(account.id, lambda found: {"plan_expires_at": (found.plan_expires_at or 0) + 5}))
    assert changed == msgspec.structs.replace(account, plan_expires_at=2_000_000_005)
    assert run(store.get_account(account.id)) == changed
    assert run(store.change_account(account.id, lambda _: {})) == changed


def build_key(account: Account, digest: bytes = b"\x01" * 32, **more: Any) -> NewKey:
    return NewKey(account_id=account.id, name="shop", digest=digest, hint="lst_…abcd", created_at=1_500, **more)


def test_a_key_is_found_with_its_account(store: Store, run: Run, account: Account) -> None:
    key = run(store.add_key(build_key(account, expires_at=9_000, access="read")))
    assert (key.account_id, key.name, key.hint, key.created_at) == (account.id, "shop", "lst_…abcd", 1_500)
    assert (key.expires_at, key.revoked_at, key.access) == (9_000, None, "read")
    caller = Caller(key.id, account.id, bucket_of(account.id), 2_000_000_000, None, 9_000, None, "read")
    assert run(store.find_caller(b"\x01" * 32)) == caller


def test_an_unknown_digest_is_none(store: Store, run: Run, account: Account) -> None:
    run(store.add_key(build_key(account)))
    assert run(store.find_caller(b"\x02" * 32)) is None


def test_a_digest_is_unique(store: Store, run: Run, account: Account) -> None:
    key = run(store.add_key(build_key(account)))
    assert run(store.add_key(build_key(account, expires_at=7, access="read"))) is None
    caller = run(store.find_caller(b"\x01" * 32))
    assert (caller.key_id, caller.key_access) == (key.id, "write")


def test_an_erased_account_gets_no_key(store: Store, run: Run, account: Account) -> None:
    run(erase(store, account.id, "erased-1@0123456789abcdef.invalid", 1_700))
    with pytest.raises(Problem, match=f"Account {account.id} is erased"):
        run(store.add_key(build_key(account)))
    assert run(store.list_keys(account.id)) == []


def test_a_key_revoked_twice_keeps_the_first_time(store: Store, run: Run, account: Account) -> None:
    key = run(store.add_key(build_key(account)))
    assert run(store.revoke_key(key.id, 5_000)).revoked_at == 5_000
    assert run(store.revoke_key(key.id, 6_000)).revoked_at == 5_000
    assert run(store.find_caller(b"\x01" * 32)).key_revoked_at == 5_000


def test_an_unknown_key_cannot_be_revoked(store: Store, run: Run) -> None:
    assert run(store.revoke_key(77, 5_000)) is None


def test_a_plan_change_is_seen_by_the_next_lookup(store: Store, run: Run, account: Account) -> None:
    run(store.add_key(build_key(account)))
    run(store.change_account(account.id, lambda _: {"plan_expires_at": None}))
    assert run(store.find_caller(b"\x01" * 32)).plan_expires_at is None


def test_the_time_an_account_was_disabled_is_found_with_its_key(store: Store, run: Run, account: Account) -> None:
    run(store.add_key(build_key(account)))
    assert run(store.change_account(account.id, lambda _: {"disabled_at": 7_000})).disabled_at == 7_000
    assert run(store.find_caller(b"\x01" * 32)).account_disabled_at == 7_000


def test_accounts_are_paged_by_id(store: Store, run: Run) -> None:
    added = [run(store.add_account(f"N{number}", f"n{number}@example.com", None, 1_000)) for number in range(5)]
    assert run(store.page_accounts(0, 2)) == added[:2]
    assert run(store.page_accounts(added[1].id, 10)) == added[2:]
    assert run(store.page_accounts(added[-1].id, 10)) == []


def test_all_keys_of_an_account_are_listed(store: Store, run: Run, account: Account) -> None:
    other = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    active, _, revoked = (
        run(store.add_key(build_key(owner, bytes([n]) * 32))) for n, owner in enumerate([account, other, account])
    )
    revoked = run(store.revoke_key(revoked.id, 5_000))
    assert run(store.list_keys(account.id)) == [active, revoked]
    assert run(store.list_keys(other.id + 1)) == []


def test_a_rotated_key_expires_and_gets_a_successor(store: Store, run: Run, account: Account) -> None:
    old = run(store.add_key(build_key(account)))

    def decide(found: ApiKey, owner: Account, successor: int | None) -> Rotation:
        assert (found, owner, successor) == (old, account, None)
        return Rotation(build_key(account, b"\x02" * 32, expires_at=9_000), 8_000)

    new = run(store.rotate_key(old.id, decide))
    assert run(store.list_keys(account.id)) == [msgspec.structs.replace(old, expires_at=8_000), new]
    assert run(store.find_caller(b"\x02" * 32)).key_id == new.id
    assert run(store.find_caller(b"\x01" * 32)).key_expires_at == 8_000


def test_an_unknown_key_is_not_rotated(store: Store, run: Run) -> None:
    def decide(_: ApiKey, __: Account, ___: int | None) -> Rotation:
        raise AssertionError

    assert run(store.rotate_key(77, decide)) is None


def test_a_rejected_rotation_changes_nothing(store: Store, run: Run, account: Account) -> None:
    old = run(store.add_key(build_key(account)))

    def reject(_: ApiKey, __: Account, ___: int | None) -> Rotation:
        raise Problem("key_ended", "no")

    with pytest.raises(Problem, match="no"):
        run(store.rotate_key(old.id, reject))
    assert run(store.list_keys(account.id)) == [old]


def test_the_latest_use_of_a_key_is_stored(store: Store, run: Run, account: Account) -> None:
    keys = [run(store.add_key(build_key(account, bytes([n]) * 32))) for n in range(3)]
    run(store.record_key_uses({keys[0].id: 5_000, keys[1].id: 6_000, 77: 1}))
    run(store.record_key_uses({keys[0].id: 4_000, keys[1].id: 7_000}))
    assert [key.last_used_at for key in run(store.list_keys(account.id))] == [5_000, 7_000, None]


def test_an_account_has_one_request_for_the_plan(store: Store, run: Run, account: Account) -> None:
    assert run(store.get_plan_request(account.id)) is None
    assert run(store.add_plan_request(account.id, 5_000))
    assert not run(store.add_plan_request(account.id, 6_000))
    assert run(store.get_plan_request(account.id)) == PlanRequestState(5_000)
    assert run(store.list_plan_requests()) == [PlanRequest(account, 5_000)]


def test_a_request_is_declined_once_and_may_be_repeated(store: Store, run: Run, account: Account) -> None:
    actor, mail = Actor(OPERATOR, 6_000), NewMail("m", "plan_declined", account.email, account.id, "{}", 6_000)
    assert not run(store.decline_plan_request(account.id, "No", actor, mail))
    run(store.add_plan_request(account.id, 5_000))
    assert run(store.decline_plan_request(account.id, "Not yet", actor, mail))
    assert not run(store.decline_plan_request(account.id, "No", actor, mail._replace(id="n")))
    assert run(store.get_plan_request(account.id)) == PlanRequestState(5_000, 6_000, "Not yet")
    assert run(store.list_plan_requests()) == []
    assert run(store.claim_mail(6_000, 6_001)).mail == mail
    assert run(store.claim_mail(6_000, 6_001)) is None
    assert run(store.add_plan_request(account.id, 7_000))
    assert run(store.get_plan_request(account.id)) == PlanRequestState(7_000)


def _decide(change: AccountChange, _: Account) -> AccountChange:
    return change


def test_only_a_later_end_of_the_plan_answers_a_request(store: Store, run: Run, account: Account) -> None:
    run(store.add_plan_request(account.id, 5_000))
    end = account.plan_expires_at or 0
    for plan_end, is_open in ((end - 1, True), (end - 1, True), (end, False)):
        change: AccountChange = {"plan_expires_at": plan_end}
        run(store.change_account(account.id, partial(_decide, change), Actor(OPERATOR, 6_000)))
        assert (run(store.get_plan_request(account.id)) is not None) is is_open


def test_a_task_starts_in_one_process_once_in_its_period(store: Store, run: Run) -> None:
    assert run(store.claim_task("report", 1_000, 60))
    assert not run(store.claim_task("report", 1_059, 60))
    assert run(store.claim_task("other", 1_059, 60))
    assert run(store.claim_task("report", 1_060, 60))
    assert run(store.claim_task("report", 500, 60))
