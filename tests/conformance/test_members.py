"""Members, their sessions and invitations: what every store guarantees (`listings.contract.members.MemberStore`)."""

import asyncio
from typing import Any

import pytest

from listings.contract.accounts import NewKey, Rotation
from listings.contract.history import CONSOLE, LATEST, OPERATOR, Actor, Payment
from listings.contract.members import NewSession, SessionCutoffs
from listings.contract.store import Store
from listings.domain.model import Account, ApiKey, bucket_of
from tests.conformance.conftest import Run

BY_CONSOLE = Actor(CONSOLE, 1_500)
SUBJECT, OTHER = b"s" * 32, b"o" * 32


@pytest.fixture
def account(store: Store, run: Run) -> Account:
    """alice's, with the password "first"."""
    account = run(store.add_member("Alice", "alice@example.com", "first", 1_000))
    assert isinstance(account, Account)
    return account


def new_session(number: int, created_at: int = 1_000) -> NewSession:
    return NewSession(
        digest=bytes([number]) * 32,
        handle=f"handle{number}",
        csrf_secret=f"secret{number}",
        created_at=created_at,
        agent="Firefox",
    )


def begin(run: Run, store: Store, account: Account, *numbers: int) -> None:
    for number in numbers:
        hashed = run(store.get_password(account.id))
        assert run(store.add_session(account.id, new_session(number, 1_000 + number), hashed))


def handles(run: Run, store: Store, account: Account) -> list[str]:
    return [session.handle for session in run(store.list_sessions(account.id))]


def kinds(run: Run, store: Store, account: Account) -> list[str]:
    events = run(store.page_events(bucket_of(account.id), account.id, LATEST, 100))
    return [event.kind for event in reversed(events)]


def test_a_member_is_an_account_without_a_plan_that_has_a_password(store: Store, run: Run, account: Account) -> None:
    assert (account.name, account.email, account.plan_expires_at) == ("Alice", "alice@example.com", None)
    assert run(store.get_account(account.id)) == account
    assert run(store.get_password(account.id)) == "first"
    assert run(store.get_revision(bucket_of(account.id), account.id)) == 0


def test_an_address_that_is_taken_opens_no_second_account(store: Store, run: Run, account: Account) -> None:
    assert run(store.add_member("Bob", "alice@example.com", "other", 1_000)) is None
    assert run(store.get_password(account.id)) == "first"
    assert run(store.page_accounts(0, 10)) == [account]


def test_an_account_of_the_operators_has_no_password(store: Store, run: Run) -> None:
    bob = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    assert run(store.get_password(bob.id)) is None


def test_a_new_password_ends_all_sessions_but_one_and_all_invitations(store: Store, run: Run, account: Account) -> None:
    begin(run, store, account, 1, 2, 3)
    run(store.add_invitation(account.id, SUBJECT, 1_000, 2_000))
    run(store.set_password(account.id, "first", "second", BY_CONSOLE, "handle2"))
    assert run(store.get_password(account.id)) == "second"
    assert handles(run, store, account) == ["handle2"]
    assert run(store.find_invitation(SUBJECT, 1_500)) is None


def test_nothing_is_opened_or_changed_by_a_password_that_is_no_more_the_accounts(
    store: Store, run: Run, account: Account
) -> None:
    run(store.set_password(account.id, "first", "second", BY_CONSOLE))
    assert run(store.add_session(account.id, new_session(1), "first")) is False
    assert run(store.set_password(account.id, "first", "third", BY_CONSOLE)) is False
    assert run(store.get_password(account.id)) == "second"
    assert handles(run, store, account) == []
    assert kinds(run, store, account) == ["account_opened", "password_changed"]


def test_a_session_and_the_end_of_what_opens_it_leave_none_at_the_same_time(
    store: Store, run: Run, account: Account
) -> None:
    async def race(number: int) -> None:
        old, new = f"{number}", f"{number + 1}"
        await asyncio.gather(
            store.add_session(account.id, new_session(number), old),
            store.set_password(account.id, old, new, BY_CONSOLE),
        )

    run(store.set_password(account.id, "first", "0", BY_CONSOLE))
    for number in range(20):
        run(race(number))
        assert handles(run, store, account) == []


def test_a_disabled_account_has_no_session_that_begins(store: Store, run: Run, account: Account) -> None:
    run(store.change_account(account.id, lambda _: {"disabled_at": 1_200}))
    assert run(store.add_session(account.id, new_session(1), "first")) is False
    run(store.change_account(account.id, lambda _: {"disabled_at": None}))
    assert handles(run, store, account) == []
    assert run(store.add_session(account.id, new_session(1), "first")) is True


def test_another_hash_replaces_only_the_one_it_was_made_of(store: Store, run: Run, account: Account) -> None:
    run(store.replace_password(account.id, "stale", "wrong"))
    assert run(store.get_password(account.id)) == "first"
    run(store.replace_password(account.id, "first", "better"))
    assert run(store.get_password(account.id)) == "better"


def test_a_session_is_found_by_its_digest_with_its_account(store: Store, run: Run, account: Account) -> None:
    begin(run, store, account, 1)
    session, owner = run(store.find_session(bytes([1]) * 32))
    assert owner == account
    assert (session.account_id, session.handle, session.csrf_secret, session.agent) == (
        *(account.id, "handle1"),
        *("secret1", "Firefox"),
    )
    assert (session.created_at, session.seen_at, session.confirmed_at) == (1_001, 1_001, 1_001)
    assert run(store.find_session(bytes(32))) is None


def test_sessions_are_listed_the_latest_first_and_only_the_accounts_own(
    store: Store, run: Run, account: Account
) -> None:
    bob = run(store.add_member("Bob", "bob@example.com", "p", 1_000))
    begin(run, store, account, 1, 3, 2)
    begin(run, store, bob, 4)
    assert handles(run, store, account) == ["handle3", "handle2", "handle1"]


def test_a_session_is_seen_and_confirmed(store: Store, run: Run, account: Account) -> None:
    begin(run, store, account, 1, 2)
    run(store.touch_session(account.id, "handle1", 5_000))
    run(store.touch_session(account.id, "handle1", 4_000))
    run(store.confirm_session(account.id, "handle1", SUBJECT, 6_000))
    second, first = run(store.list_sessions(account.id))
    assert (first.seen_at, first.confirmed_at) == (5_000, 6_000)
    assert (second.seen_at, second.confirmed_at) == (1_002, 1_002)
    assert run(store.find_session(bytes([1]) * 32)) is None
    assert run(store.find_session(SUBJECT))[0] == first


def test_a_session_is_ended_once_and_by_its_own_account_alone(store: Store, run: Run, account: Account) -> None:
    bob = run(store.add_member("Bob", "bob@example.com", "p", 1_000))
    begin(run, store, account, 1, 2)
    assert run(store.end_session(bob.id, "handle1", BY_CONSOLE)) is False
    assert run(store.end_session(account.id, "handle1", BY_CONSOLE)) is True
    assert run(store.end_session(account.id, "handle1", BY_CONSOLE)) is False
    assert handles(run, store, account) == ["handle2"]
    assert run(store.find_session(bytes([1]) * 32)) is None


def test_all_sessions_are_ended_but_one(store: Store, run: Run, account: Account) -> None:
    begin(run, store, account, 1, 2, 3)
    assert run(store.end_sessions(account.id, "handle3")) == 2
    assert handles(run, store, account) == ["handle3"]
    assert run(store.end_sessions(account.id)) == 1
    assert handles(run, store, account) == []


def test_sessions_that_are_over_are_forgotten(store: Store, run: Run, account: Account) -> None:
    begin(run, store, account, 1, 2, 3)
    run(store.touch_session(account.id, "handle1", 9_000))
    run(store.purge_sessions(SessionCutoffs(seen_at=1_003, created_at=0)))
    assert handles(run, store, account) == ["handle3", "handle1"]
    run(store.purge_sessions(SessionCutoffs(seen_at=0, created_at=1_002)))
    assert handles(run, store, account) == ["handle3"]


def test_attempts_are_counted_by_subject_from_the_first_one_on(store: Store, run: Run) -> None:
    assert run(store.count_attempt([SUBJECT, OTHER], 1_000, 0)) == [1, 1]
    assert run(store.count_attempt([SUBJECT], 1_100, 200)) == [2]
    assert run(store.count_attempt([OTHER, SUBJECT], 1_899, 999)) == [2, 3]
    assert run(store.count_attempt([SUBJECT, OTHER], 1_900, 1_000)) == [1, 1]
    assert run(store.count_attempt([SUBJECT, OTHER], 1_901, 1_001)) == [2, 2]


def test_attempts_at_the_same_time_are_all_counted(store: Store, run: Run) -> None:
    async def rush() -> list[Any]:
        return await asyncio.gather(*(store.count_attempt([SUBJECT, OTHER], 1_000, 0) for _ in range(20)))

    assert sorted(run(rush())) == [[count, count] for count in range(1, 21)]


def test_one_subject_is_forgiven_and_another_by_one(store: Store, run: Run) -> None:
    for _ in range(3):
        run(store.count_attempt([SUBJECT, OTHER], 1_000, 0))
    run(store.clear_attempts(SUBJECT, OTHER))
    assert run(store.count_attempt([SUBJECT, OTHER], 1_000, 0)) == [1, 3]


def test_attempts_of_a_clock_that_was_ahead_count_no_more(store: Store, run: Run) -> None:
    for _ in range(3):
        run(store.count_attempt([SUBJECT, OTHER], 9_000, 8_000))
    assert run(store.count_attempt([SUBJECT], 2_000, 1_000)) == [1]
    assert run(store.count_attempt([SUBJECT], 2_000, 1_000)) == [2]
    run(store.purge_attempts(1_000, 2_000))
    assert run(store.count_attempt([SUBJECT, OTHER], 9_000, 0)) == [3, 1]


def test_old_attempts_are_forgotten(store: Store, run: Run) -> None:
    run(store.count_attempt([SUBJECT], 1_000, 0))
    run(store.count_attempt([OTHER], 2_000, 0))
    run(store.purge_attempts(2_000, 2_000))
    assert run(store.count_attempt([SUBJECT, OTHER], 2_000, 0)) == [1, 2]


def test_an_invitation_is_good_once_and_until_it_expires(store: Store, run: Run, account: Account) -> None:
    begin(run, store, account, 1)
    run(store.add_invitation(account.id, SUBJECT, 1_000, 2_000))
    assert run(store.find_invitation(SUBJECT, 1_999)) == account
    assert run(store.find_invitation(SUBJECT, 2_000)) is None
    assert run(store.accept_invitation(SUBJECT, "late", 2_000)) is None
    assert run(store.accept_invitation(OTHER, "other", 1_500)) is None
    assert run(store.get_password(account.id)) == "first"
    assert run(store.accept_invitation(SUBJECT, "second", 1_999)) == account
    assert run(store.get_password(account.id)) == "second"
    assert handles(run, store, account) == []
    assert run(store.accept_invitation(SUBJECT, "third", 1_999)) is None


def test_a_new_invitation_takes_the_place_of_the_old_one(store: Store, run: Run, account: Account) -> None:
    run(store.add_invitation(account.id, SUBJECT, 1_000, 2_000))
    run(store.add_invitation(account.id, OTHER, 1_000, 2_000))
    assert run(store.find_invitation(SUBJECT, 1_000)) is None
    assert run(store.find_invitation(OTHER, 1_000)) == account


def new_key(account: Account, number: int) -> NewKey:
    return NewKey(account_id=account.id, name="key", digest=bytes([number]) * 32, hint="lst_", created_at=1_000)


def test_what_is_no_edit_is_told_in_its_order(store: Store, run: Run, account: Account) -> None:
    begin(run, store, account, 1)
    key = run(store.add_key(new_key(account, 1), BY_CONSOLE))
    rotated = run(store.rotate_key(key.id, lambda *_: Rotation(new_key(account, 2), 9_000), BY_CONSOLE))
    run(store.revoke_key(rotated.id, 1_500, Actor(OPERATOR, 1_600)))
    run(store.revoke_key(rotated.id, 1_700, Actor(OPERATOR, 1_700)))
    run(store.change_account(account.id, lambda _: {"plan_expires_at": 9_000}, Actor(OPERATOR, 1_800)))
    run(store.change_account(account.id, lambda _: {}, Actor(OPERATOR, 1_900)))
    run(store.set_password(account.id, "first", "second", BY_CONSOLE))
    begin(run, store, account, 2)
    run(store.end_session(account.id, "handle2", BY_CONSOLE))
    events = run(store.page_events(bucket_of(account.id), account.id, LATEST, 100))[::-1]
    assert [(event.revision, event.number) for event in events] == [(0, number) for number in range(1, 10)]
    assert [(event.kind, event.actor, event.subject, event.detail) for event in events] == [
        ("account_opened", CONSOLE, 0, ""),
        ("signed_in", CONSOLE, 0, ""),
        ("key_added", CONSOLE, key.id, ""),
        ("key_rotated", CONSOLE, rotated.id, str(key.id)),
        ("key_revoked", OPERATOR, rotated.id, ""),
        ("account_changed", OPERATOR, 0, '{"plan_expires_at":9000}'),
        ("password_changed", CONSOLE, 0, ""),
        ("signed_in", CONSOLE, 0, ""),
        ("signed_out", CONSOLE, 0, ""),
    ]
    assert [event.moment for event in events] == [1_000, 1_001, 1_500, 1_500, 1_600, 1_800, 1_500, 1_002, 1_500]


def test_a_key_that_was_rotated_is_told_with_its_first_successor(store: Store, run: Run, account: Account) -> None:
    told: list[int | None] = []

    def rotate(key: ApiKey, number: int) -> ApiKey:
        def decide(_: ApiKey, __: Account, successor: int | None) -> Rotation:
            told.append(successor)
            return Rotation(new_key(account, number), 9_000)

        rotated = run(store.rotate_key(key.id, decide, BY_CONSOLE))
        assert isinstance(rotated, ApiKey)
        return rotated

    key = run(store.add_key(new_key(account, 1), BY_CONSOLE))
    successor = rotate(key, 2)
    rotate(successor, 3)
    rotate(key, 4)
    assert told == [None, None, successor.id]


def test_without_an_author_nothing_is_told(store: Store, run: Run) -> None:
    bob = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    key = run(store.add_key(new_key(bob, 1)))
    run(store.rotate_key(key.id, lambda *_: Rotation(new_key(bob, 2), 9_000)))
    run(store.revoke_key(key.id, 1_500))
    run(store.change_account(bob.id, lambda _: {"disabled_at": 9_000}))
    assert kinds(run, store, bob) == []


def test_events_at_the_same_time_are_all_kept(store: Store, run: Run, account: Account) -> None:
    async def rush() -> None:
        await asyncio.gather(*(store.add_session(account.id, new_session(number), "first") for number in range(20)))

    run(rush())
    events = run(store.page_events(bucket_of(account.id), account.id, LATEST, 100))
    assert [event.number for event in events] == list(range(21, 0, -1))


def test_a_paid_plan_is_extended_once(store: Store, run: Run, account: Account) -> None:
    payment = Payment("stripe", "evt_1", account.id, 1)
    paid = run(store.add_payment(payment, lambda _: 5_000, 1_500))
    assert paid.plan_expires_at == 5_000
    assert run(store.add_payment(payment, lambda _: 9_000, 1_600)) == paid
    again = run(
        store.add_payment(payment._replace(payment_id="evt_2"), lambda it: (it.plan_expires_at or 0) + 1, 1_700)
    )
    assert again.plan_expires_at == 5_001
    assert run(store.add_payment(payment._replace(payment_id="evt_3", account_id=999), lambda _: 1, 1_700)) is None
    assert kinds(run, store, account) == ["account_opened", "plan_paid", "plan_paid"]


def test_a_payment_that_comes_twice_at_the_same_time_counts_once(store: Store, run: Run, account: Account) -> None:
    payment = Payment("stripe", "evt_1", account.id, 1)

    async def rush() -> None:
        await asyncio.gather(
            *(store.add_payment(payment, lambda it: (it.plan_expires_at or 0) + 100, 1_500) for _ in range(10))
        )

    run(rush())
    assert run(store.get_account(account.id)).plan_expires_at == 100


def test_of_an_erased_account_nothing_personal_is_left(store: Store, run: Run, account: Account) -> None:
    begin(run, store, account, 1)
    key = run(store.add_key(new_key(account, 1), BY_CONSOLE))
    run(store.add_invitation(account.id, SUBJECT, 1_000, 2_000))
    run(store.change_account(account.id, lambda _: {"plan_expires_at": 9_000}))
    assert run(store.find_caller(bytes([1]) * 32)).key_revoked_at is None
    run(store.erase_account(account.id, "Erased", "erased@example.invalid", 3_000))
    erased = run(store.get_account(account.id))
    assert erased == Account(account.id, "Erased", "erased@example.invalid", None, 1_000, 3_000)
    assert run(store.find_account("alice@example.com")) is None
    assert run(store.get_password(account.id)) is None
    assert handles(run, store, account) == []
    assert run(store.find_invitation(SUBJECT, 1_500)) is None
    assert kinds(run, store, account) == []
    assert run(store.list_keys(account.id)) == [ApiKey(key.id, account.id, "Erased", "lst_", 1_000, None, None, 3_000)]
    assert run(store.find_caller(bytes([1]) * 32)).key_revoked_at == 3_000
