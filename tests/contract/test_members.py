"""Members, their sessions and invitations: guarantees of every store (`listings.store.store.Store`)."""

import asyncio
from typing import Any

import msgspec
import pytest

from listings.domain.accounts import AccountChange, NewKey, Rotation
from listings.domain.history import CONSOLE, LATEST, OPERATOR, Actor, HistoryCutoffs, Payment, UsageSlot
from listings.domain.listings import AddStep, IdempotencyRecord
from listings.domain.mail import NewMail
from listings.domain.members import AttemptLimit, NewSession, SessionCutoffs
from listings.domain.model import Account, ApiKey, bucket_of
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.helpers import CREATED, MINIMAL, add_email_token, erase, set_values

BY_CONSOLE = Actor(CONSOLE, 1_500)
SUBJECT, OTHER = b"s" * 32, b"o" * 32


@pytest.fixture
def account(store: Store, run: Run) -> Account:
    """Alice's account, with the password "first"."""
    account = run(store.add_member("Alice", "alice@example.com", "first", 1_000))
    assert isinstance(account, Account)
    return account


def build_session(number: int, created_at: int = 1_000) -> NewSession:
    return NewSession(
        digest=bytes([number]) * 32,
        handle=f"handle{number}",
        csrf_secret=f"secret{number}",
        created_at=created_at,
        agent="Firefox",
    )


def add_sessions(run: Run, store: Store, account: Account, *numbers: int) -> None:
    for number in numbers:
        hashed = run(store.get_password(account.id))
        assert run(store.add_session(account.id, build_session(number, 1_000 + number), hashed))


def list_handles(run: Run, store: Store, account: Account) -> list[str]:
    return [session.handle for session in run(store.list_sessions(account.id))]


def list_event_kinds(run: Run, store: Store, account: Account) -> list[str]:
    events = run(store.page_events(bucket_of(account.id), account.id, LATEST, 100))
    return [event.kind for event in reversed(events)]


def test_a_member_is_an_account_with_a_password_and_without_a_plan(store: Store, run: Run, account: Account) -> None:
    assert (account.name, account.email, account.plan_expires_at) == ("Alice", "alice@example.com", None)
    assert run(store.get_account(account.id)) == account
    assert run(store.get_password(account.id)) == "first"
    assert run(store.get_revisions(bucket_of(account.id), account.id)).revision == 0


def test_an_email_address_opens_only_one_account(store: Store, run: Run, account: Account) -> None:
    assert run(store.add_member("Bob", "alice@example.com", "other", 1_000)) is None
    assert run(store.get_password(account.id)) == "first"
    assert run(store.page_accounts(0, 10)) == [account]


def test_an_account_added_by_the_operator_has_no_password(store: Store, run: Run) -> None:
    bob = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    assert run(store.get_password(bob.id)) is None


def test_a_new_password_ends_other_sessions_and_invitations(store: Store, run: Run, account: Account) -> None:
    add_sessions(run, store, account, 1, 2, 3)
    run(store.add_invitation(account.id, SUBJECT, 1_000, 2_000))
    run(store.set_password(account.id, "first", "second", BY_CONSOLE, "handle2"))
    assert run(store.get_password(account.id)) == "second"
    assert list_handles(run, store, account) == ["handle2"]
    assert run(store.find_invitation(SUBJECT, 1_500)) is None


def test_a_former_address_or_a_disabled_account_gets_no_password_link(store: Store, run: Run, account: Account) -> None:
    assert run(store.add_invitation(account.id, SUBJECT, 1_000, 2_000, email=account.email)) is True
    assert run(store.add_invitation(account.id, OTHER, 1_000, 2_000, email="former@example.com")) is False
    run(store.change_account(account.id, lambda _: {"disabled_at": 1_500}))
    assert run(store.add_invitation(account.id, OTHER, 1_000, 2_000, email=account.email)) is False
    assert run(store.find_invitation(OTHER, 1_500)) is None


def test_a_new_password_cancels_changes_of_the_email(store: Store, run: Run, account: Account) -> None:
    queued = NewMail("mail1", "confirm_email", "intruder@example.com", account.id, "{}", 1_000)
    for mail in (queued, queued._replace(id="mail2", kind="buyer_message")):
        run(store.add_mail(mail))
    run(add_email_token(store, account.id, SUBJECT, "intruder@example.com"))
    run(store.set_password(account.id, "first", "second", BY_CONSOLE))
    assert run(store.find_email_token(SUBJECT, 1_500)) is None
    sent_now = store.add_email_token(account.id, queued, SUBJECT, 1_000, 2_000)  # by a process that claimed it before
    assert run(sent_now) is False
    assert run(store.find_email_token(SUBJECT, 1_500)) is None
    assert run(store.claim_mail(1_500, 2_000)).mail.kind == "buyer_message"
    assert run(store.claim_mail(1_500, 2_000)) is None


def test_an_outdated_password_opens_no_session_and_changes_nothing(store: Store, run: Run, account: Account) -> None:
    run(store.set_password(account.id, "first", "second", BY_CONSOLE))
    assert run(store.add_session(account.id, build_session(1), "first")) is False
    assert run(store.set_password(account.id, "first", "third", BY_CONSOLE)) is False
    assert run(store.get_password(account.id)) == "second"
    assert list_handles(run, store, account) == []
    assert list_event_kinds(run, store, account) == ["account_opened", "password_changed"]


def test_a_session_opened_during_a_password_change_is_ended(store: Store, run: Run, account: Account) -> None:
    async def race(number: int) -> None:
        old, new = f"{number}", f"{number + 1}"
        await asyncio.gather(
            store.add_session(account.id, build_session(number), old),
            store.set_password(account.id, old, new, BY_CONSOLE),
        )

    run(store.set_password(account.id, "first", "0", BY_CONSOLE))
    for number in range(20):
        run(race(number))
        assert list_handles(run, store, account) == []


def test_a_disabled_account_opens_no_session(store: Store, run: Run, account: Account) -> None:
    run(store.change_account(account.id, lambda _: {"disabled_at": 1_200}))
    assert run(store.add_session(account.id, build_session(1), "first")) is False
    run(store.change_account(account.id, lambda _: {"disabled_at": None}))
    assert list_handles(run, store, account) == []
    assert run(store.add_session(account.id, build_session(1), "first")) is True


def test_a_new_hash_replaces_only_the_hash_it_was_computed_for(store: Store, run: Run, account: Account) -> None:
    assert not run(store.update_password_hash(account.id, "stale", "wrong"))
    assert run(store.get_password(account.id)) == "first"
    assert run(store.update_password_hash(account.id, "first", "better"))
    assert run(store.get_password(account.id)) == "better"


def test_a_session_is_found_by_its_digest_with_its_account(store: Store, run: Run, account: Account) -> None:
    add_sessions(run, store, account, 1)
    session, owner = run(store.find_session(bytes([1]) * 32))
    assert owner == account
    assert (session.account_id, session.handle, session.csrf_secret, session.agent) == (
        *(account.id, "handle1"),
        *("secret1", "Firefox"),
    )
    assert (session.created_at, session.seen_at, session.confirmed_at) == (1_001, 1_001, 1_001)
    assert run(store.find_session(bytes(32))) is None


def test_the_accounts_own_sessions_are_listed_newest_first(store: Store, run: Run, account: Account) -> None:
    bob = run(store.add_member("Bob", "bob@example.com", "p", 1_000))
    add_sessions(run, store, account, 1, 3, 2)
    add_sessions(run, store, bob, 4)
    assert list_handles(run, store, account) == ["handle3", "handle2", "handle1"]


def test_a_session_records_when_it_was_used_and_confirmed(store: Store, run: Run, account: Account) -> None:
    add_sessions(run, store, account, 1, 2)
    run(store.touch_session(account.id, "handle1", 5_000))
    run(store.touch_session(account.id, "handle1", 4_000))
    run(store.confirm_session(account.id, "handle1", SUBJECT, 6_000))
    second, first = run(store.list_sessions(account.id))
    assert (first.seen_at, first.confirmed_at) == (5_000, 6_000)
    assert (second.seen_at, second.confirmed_at) == (1_002, 1_002)
    assert run(store.find_session(bytes([1]) * 32)) is None
    assert run(store.find_session(SUBJECT))[0] == first


def test_a_session_is_ended_once_and_only_by_its_own_account(store: Store, run: Run, account: Account) -> None:
    bob = run(store.add_member("Bob", "bob@example.com", "p", 1_000))
    add_sessions(run, store, account, 1, 2)
    assert run(store.end_session(bob.id, "handle1", BY_CONSOLE)) is False
    assert run(store.end_session(account.id, "handle1", BY_CONSOLE)) is True
    assert run(store.end_session(account.id, "handle1", BY_CONSOLE)) is False
    assert list_handles(run, store, account) == ["handle2"]
    assert run(store.find_session(bytes([1]) * 32)) is None


def test_all_sessions_except_one_are_ended(store: Store, run: Run, account: Account) -> None:
    add_sessions(run, store, account, 1, 2, 3)
    assert run(store.end_sessions(account.id, "handle3")) == 2
    assert list_handles(run, store, account) == ["handle3"]
    assert run(store.end_sessions(account.id)) == 1
    assert list_handles(run, store, account) == []


def test_expired_sessions_are_purged(store: Store, run: Run, account: Account) -> None:
    add_sessions(run, store, account, 1, 2, 3)
    run(store.touch_session(account.id, "handle1", 9_000))
    run(store.purge_sessions(SessionCutoffs(seen_at=1_003, created_at=0)))
    assert list_handles(run, store, account) == ["handle3", "handle1"]
    run(store.purge_sessions(SessionCutoffs(seen_at=0, created_at=1_002)))
    assert list_handles(run, store, account) == ["handle3"]


def count(run: Run, store: Store, moment: int, *limits: AttemptLimit) -> int | None:
    ended: int | None = run(store.count_attempt(limits, moment))
    return ended


def test_attempts_are_limited_by_subject_within_the_period(store: Store, run: Run) -> None:
    twice = AttemptLimit(SUBJECT, 2, 900)
    assert [count(run, store, moment, twice) for moment in (1_000, 1_100, 1_899)] == [None, None, 1_900]
    assert [count(run, store, moment, twice) for moment in (1_900, 1_901, 1_902)] == [None, None, 2_800]


def test_an_attempt_is_counted_up_to_the_first_subject_beyond_its_limit(store: Store, run: Run) -> None:
    once, often = AttemptLimit(SUBJECT, 1, 900), AttemptLimit(OTHER, 2, 3_600)
    assert [count(run, store, 1_000, once, often) for _ in range(4)] == [None, 1_900, 1_900, 1_900]
    assert [count(run, store, 1_000, often) for _ in range(2)] == [None, 4_600]


def test_concurrent_attempts_are_all_counted(store: Store, run: Run) -> None:
    limits = AttemptLimit(SUBJECT, 15, 900), AttemptLimit(OTHER, 10, 900)

    async def run_concurrently() -> list[Any]:
        counts: list[Any] = await asyncio.gather(*(store.count_attempt(limits, 1_000) for _ in range(20)))
        return counts

    assert run(run_concurrently()).count(None) == 10


def test_an_attempt_can_be_taken_back(store: Store, run: Run) -> None:
    limits = AttemptLimit(SUBJECT, 1, 900), AttemptLimit(OTHER, 1, 900)
    for _ in range(3):
        assert count(run, store, 1_000, *limits) is None
        run(store.decrement_attempts([SUBJECT, OTHER]))
    run(store.decrement_attempts([SUBJECT]))  # no count is negative
    assert [count(run, store, 1_000, *limits) for _ in range(2)] == [None, 1_900]


def test_attempts_in_the_future_do_not_count(store: Store, run: Run) -> None:
    limits = AttemptLimit(SUBJECT, 1, 900), AttemptLimit(OTHER, 1, 900)
    count(run, store, 9_000, *limits)
    assert [count(run, store, 2_000, limits[0]) for _ in range(2)] == [None, 2_900]
    run(store.purge_attempts(1_000, 2_000))
    assert count(run, store, 2_100, limits[0]) == 2_900
    assert count(run, store, 9_000, limits[1]) is None


def test_old_attempts_are_purged(store: Store, run: Run) -> None:
    limits = AttemptLimit(SUBJECT, 1, 9_000), AttemptLimit(OTHER, 1, 9_000)
    for moment, limit in zip((1_000, 2_000), limits, strict=True):
        count(run, store, moment, limit)
    run(store.purge_attempts(2_000, 2_000))
    assert [count(run, store, 2_000, limit) for limit in limits] == [None, 11_000]


def test_the_last_devices_of_an_account_are_known(store: Store, run: Run, account: Account) -> None:
    other = run(store.add_member("Bob", "bob@example.com", "first", 1_000))
    digests = [bytes([number]) * 32 for number in range(4)]
    for moment, digest in enumerate([*digests[:3], digests[0], digests[3]]):
        run(store.set_device(account.id, digest, moment, 3))
    run(store.set_device(other.id, digests[0], 1, 3))
    assert [run(store.is_known_device(account.email, digest)) for digest in digests] == [True, False, True, True]
    assert [run(store.is_known_device(other.email, digest)) for digest in digests] == [True, False, False, False]
    assert not run(store.is_known_device("nobody@example.com", digests[0]))


@pytest.mark.parametrize("end", ["set_password", "accept_invitation", "erase_account"])
def test_a_new_password_and_an_erasure_delete_the_devices(store: Store, run: Run, account: Account, end: str) -> None:
    run(store.add_invitation(account.id, OTHER, 1_000, 2_000))
    run(store.set_device(account.id, SUBJECT, 1_000, 3))
    email = account.email
    if end == "set_password":
        run(store.set_password(account.id, "first", "second", Actor(CONSOLE, 1_500)))
    elif end == "accept_invitation":
        run(store.accept_invitation(OTHER, "second", 1_500))
    else:
        run(erase(store, account.id, email := "erased", 1_500))
    assert not run(store.is_known_device(email, SUBJECT))


def test_an_invitation_is_valid_once_and_until_it_expires(store: Store, run: Run, account: Account) -> None:
    add_sessions(run, store, account, 1)
    run(store.add_invitation(account.id, SUBJECT, 1_000, 2_000))
    assert run(store.find_invitation(SUBJECT, 1_999)) == account
    assert run(store.find_invitation(SUBJECT, 2_000)) is None
    assert run(store.accept_invitation(SUBJECT, "late", 2_000)) is None
    assert run(store.accept_invitation(OTHER, "other", 1_500)) is None
    assert run(store.get_password(account.id)) == "first"
    assert run(store.accept_invitation(SUBJECT, "second", 1_999)) == account
    assert run(store.get_password(account.id)) == "second"
    assert list_handles(run, store, account) == []
    assert run(store.accept_invitation(SUBJECT, "third", 1_999)) is None


def test_a_new_invitation_replaces_the_old_one(store: Store, run: Run, account: Account) -> None:
    run(store.add_invitation(account.id, SUBJECT, 1_000, 2_000))
    run(store.add_invitation(account.id, OTHER, 1_000, 2_000))
    assert run(store.find_invitation(SUBJECT, 1_000)) is None
    assert run(store.find_invitation(OTHER, 1_000)) == account


def build_key(account: Account, number: int, created_at: int = 1_000, expires_at: int | None = None) -> NewKey:
    digest = bytes([number]) * 32
    return NewKey(
        account_id=account.id, name="key", digest=digest, hint="lst_", created_at=created_at, expires_at=expires_at
    )


def rotate_key(run: Run, store: Store, key: ApiKey, new: NewKey, author: int) -> ApiKey:
    rotated = run(store.rotate_key(key.id, lambda *_: Rotation(new, 9_000), Actor(author, new.created_at)))
    assert isinstance(rotated, ApiKey)
    return rotated


def list_revoked(run: Run, store: Store, account: Account) -> list[int]:
    return [key.id for key in run(store.list_keys(account.id)) if key.revoked_at is not None]


def test_a_reset_that_first_confirms_the_address_revokes_console_keys(store: Store, run: Run, account: Account) -> None:
    console = run(store.add_key(build_key(account, 1), Actor(CONSOLE, 1_000)))
    operator = run(store.add_key(build_key(account, 2), Actor(OPERATOR, 1_000)))
    run(store.add_key(build_key(account, 3)))  # without an event, as a migration from another engine may leave it
    rotated = rotate_key(run, store, operator, build_key(account, 4, 1_100), CONSOLE)
    rotate_key(run, store, console, build_key(account, 5, 1_100), OPERATOR)
    run(store.add_key(build_key(account, 6, 1_200, expires_at=1_300), Actor(CONSOLE, 1_200)))
    ended = run(store.add_key(build_key(account, 7, 1_200), Actor(CONSOLE, 1_200)))
    run(store.revoke_key(ended.id, 1_300))
    bob = run(store.add_member("Bob", "bob@example.com", "first", 1_000))
    run(store.add_key(build_key(bob, 8), Actor(CONSOLE, 1_000)))
    run(store.add_invitation(account.id, SUBJECT, 1_000, 2_000))
    assert run(store.accept_invitation(SUBJECT, "second", 1_500, is_reset=True)) == account
    assert list_revoked(run, store, account) == [console.id, rotated.id, ended.id]
    assert list_revoked(run, store, bob) == []
    assert run(store.find_caller(bytes([1]) * 32)).key_revoked_at == 1_500
    assert run(store.find_caller(bytes([7]) * 32)).key_revoked_at == 1_300
    events = run(store.page_events(bucket_of(account.id), account.id, LATEST, 100))
    revocations = [(event.actor, event.moment, event.subject) for event in events if event.kind == "key_revoked"]
    assert revocations == [(CONSOLE, 1_500, rotated.id), (CONSOLE, 1_500, console.id)]
    assert run(store.get_confirmed_email(account.id)) == account.email


@pytest.mark.parametrize("earlier", ["link", "invitation", "reset"])
def test_a_reset_of_a_confirmed_address_revokes_no_key(store: Store, run: Run, account: Account, earlier: str) -> None:
    if earlier == "link":
        run(add_email_token(store, account.id, SUBJECT, account.email))
        run(store.confirm_email(SUBJECT, 1_100))
    else:
        run(store.add_invitation(account.id, SUBJECT, 1_000, 2_000))
        run(store.accept_invitation(SUBJECT, "second", 1_100, is_reset=earlier == "reset"))
    run(store.add_key(build_key(account, 1, 1_200), Actor(CONSOLE, 1_200)))
    run(store.add_invitation(account.id, OTHER, 1_000, 2_000))
    run(store.accept_invitation(OTHER, "third", 1_500, is_reset=True))
    assert list_revoked(run, store, account) == []


def test_an_invitation_revokes_no_key(store: Store, run: Run, account: Account) -> None:
    run(store.add_key(build_key(account, 1), Actor(CONSOLE, 1_000)))
    run(store.add_invitation(account.id, SUBJECT, 1_000, 2_000))
    run(store.accept_invitation(SUBJECT, "second", 1_500))
    assert list_revoked(run, store, account) == []


def test_a_reset_revokes_old_keys_of_the_console_too(store: Store, run: Run, account: Account) -> None:
    created = run(store.add_key(build_key(account, 1), Actor(CONSOLE, 1_000)))
    later, year = 1_000 + 90 * 86_400, 366 * 86_400
    rotated = rotate_key(run, store, created, build_key(account, 2, later), CONSOLE)
    operator = run(store.add_key(build_key(account, 3), Actor(OPERATOR, 1_000)))
    assert run(store.purge_history([bucket_of(account.id)], HistoryCutoffs(later + year + 1, 0, 0), 100)) == 2
    run(store.add_invitation(account.id, SUBJECT, later, later + 2 * year))
    run(store.accept_invitation(SUBJECT, "second", later + year, is_reset=True))
    assert operator.id not in list_revoked(run, store, account)
    assert rotated.id in list_revoked(run, store, account)


def test_changes_of_the_account_are_recorded_in_order(store: Store, run: Run, account: Account) -> None:
    add_sessions(run, store, account, 1)
    key = run(store.add_key(build_key(account, 1), BY_CONSOLE))
    rotated = run(store.rotate_key(key.id, lambda *_: Rotation(build_key(account, 2), 9_000), BY_CONSOLE))
    assert run(store.list_successors(account.id)) == {key.id: rotated.id}
    run(store.revoke_key(rotated.id, 1_500, Actor(OPERATOR, 1_600)))
    run(store.revoke_key(rotated.id, 1_700, Actor(OPERATOR, 1_700)))
    run(store.change_account(account.id, lambda _: {"plan_expires_at": 9_000}, Actor(OPERATOR, 1_800)))
    run(store.change_account(account.id, lambda _: {}, Actor(OPERATOR, 1_900)))
    run(store.set_password(account.id, "first", "second", BY_CONSOLE))
    add_sessions(run, store, account, 2)
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


def test_rotating_again_gets_the_first_successor(store: Store, run: Run, account: Account) -> None:
    successors: list[int | None] = []

    def rotate(key: ApiKey, number: int) -> ApiKey:
        def decide(_: ApiKey, __: Account, successor: int | None) -> Rotation:
            successors.append(successor)
            return Rotation(build_key(account, number), 9_000)

        rotated = run(store.rotate_key(key.id, decide, Actor(OPERATOR, 1_500)))
        assert isinstance(rotated, ApiKey)
        return rotated

    key = run(store.add_key(build_key(account, 1), BY_CONSOLE))
    successor = rotate(key, 2)
    rotate(successor, 3)
    run(store.purge_history([bucket_of(account.id)], HistoryCutoffs(1_501 + 365 * 86_400, 0, 0), 100))
    rotate(key, 4)
    run(store.purge_history([bucket_of(account.id)], HistoryCutoffs(1_501 + 367 * 86_400, 0, 0), 100))
    rotate(key, 5)
    assert successors == [None, None, successor.id, None]


def test_without_an_actor_no_event_is_recorded(store: Store, run: Run) -> None:
    bob = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    key = run(store.add_key(build_key(bob, 1)))
    run(store.rotate_key(key.id, lambda *_: Rotation(build_key(bob, 2), 9_000)))
    run(store.revoke_key(key.id, 1_500))
    run(store.change_account(bob.id, lambda _: {"disabled_at": 9_000}))
    assert list_event_kinds(run, store, bob) == []


def test_concurrent_events_are_all_recorded(store: Store, run: Run, account: Account) -> None:
    async def run_concurrently() -> None:
        await asyncio.gather(*(store.add_session(account.id, build_session(number), "first") for number in range(20)))

    run(run_concurrently())
    events = run(store.page_events(bucket_of(account.id), account.id, LATEST, 100))
    assert [event.number for event in events] == list(range(21, 0, -1))


def test_a_paid_plan_is_extended_once(store: Store, run: Run, account: Account) -> None:
    payment = Payment("stripe", "evt_1", account.id, 1)
    paid = run(store.add_payment(payment, lambda _: 5_000, 1_500))
    assert (paid.account.plan_expires_at, paid.is_new) == (5_000, True)
    assert run(store.add_payment(payment, lambda _: 9_000, 1_600)) == (paid.account, False)
    again = run(
        store.add_payment(payment._replace(payment_id="evt_2"), lambda it: (it.plan_expires_at or 0) + 1, 1_700)
    )
    assert again.account.plan_expires_at == 5_001
    assert run(store.add_payment(payment._replace(payment_id="evt_3", account_id=999), lambda _: 1, 1_700)) is None
    assert list_event_kinds(run, store, account) == ["account_opened", "plan_paid", "plan_paid"]


def test_a_concurrent_duplicate_payment_counts_once(store: Store, run: Run, account: Account) -> None:
    payment = Payment("stripe", "evt_1", account.id, 1)

    async def run_concurrently() -> None:
        await asyncio.gather(
            *(store.add_payment(payment, lambda it: (it.plan_expires_at or 0) + 100, 1_500) for _ in range(10))
        )

    run(run_concurrently())
    assert run(store.get_account(account.id)).plan_expires_at == 100


def test_an_erased_account_has_no_personal_data(store: Store, run: Run, account: Account) -> None:
    add_sessions(run, store, account, 1)
    key = run(store.add_key(build_key(account, 1), BY_CONSOLE))
    run(store.add_invitation(account.id, SUBJECT, 1_000, 2_000))
    changes: AccountChange = {"plan_expires_at": 9_000, "public_contact": "021 555 0100", "messages_off_at": 8_000}
    run(store.change_account(account.id, lambda _: changes))
    stored = run(store.get_account(account.id))
    assert (stored.public_contact, stored.messages_off_at) == ("021 555 0100", 8_000)
    assert run(store.find_caller(bytes([1]) * 32)).key_revoked_at is None
    run(erase(store, account.id, "erased@example.invalid", 3_000))
    erased = run(store.get_account(account.id))
    assert erased == Account(account.id, "Erased", "erased@example.invalid", None, 1_000, 3_000)
    assert run(store.find_account("alice@example.com")) is None
    assert run(store.get_password(account.id)) is None
    assert list_handles(run, store, account) == []
    assert run(store.find_invitation(SUBJECT, 1_500)) is None
    assert list_event_kinds(run, store, account) == []
    erased = ApiKey(key.id, account.id, "Erased", "lst_", 1_000, None, None, 3_000, "write")
    assert run(store.list_keys(account.id)) == [erased]
    assert run(store.find_caller(bytes([1]) * 32)).key_revoked_at == 3_000


async def add_rows(store: Store, account: Account, count: int) -> None:
    """Add `count` listings with external ids, and as many change sets, counts of usage and idempotency records."""
    partition = (bucket_of(account.id), account.id)
    for number in range(count):
        new = AddStep(msgspec.structs.replace(MINIMAL, external_id=f"sku-{number}"), CREATED)
        added = await store.add_listing(*partition, new, IdempotencyRecord(f"key{number}", SUBJECT, 1_000, 0))
        await store.change_listing(added.listing_id, set_values(price_cents=5), BY_CONSOLE)
        await store.add_usage({UsageSlot(account.id, number, 1, 200): 1}, [], 5)


async def count_rows(store: Store, account: Account) -> list[int]:
    """Return how many external ids, change sets and counts of usage are stored."""
    partition = (bucket_of(account.id), account.id)
    listings = await store.page_listings(*partition, 0, 100)
    last, purged, _ = await store.get_edit_state(*partition)
    usage = await store.list_usage_by_hour(*partition, 0)
    return [sum(it.external_id is not None for it in listings), last - purged, len(usage)]


def test_the_rows_of_a_disabled_account_are_erased_in_steps(store: Store, run: Run, account: Account) -> None:
    run(add_rows(store, account, 3))
    other = run(store.add_account("Bob", "bob@example.com", None, 1_000))
    run(add_rows(store, other, 3))
    run(store.erase_rows(account.id, 1, 1_500))
    assert run(count_rows(store, account)) == [3, 3, 3]
    run(store.change_account(account.id, lambda _: {"disabled_at": 1_500}))
    run(store.erase_rows(account.id, 4, 1_500))
    assert run(count_rows(store, account)) == [3, 3, 3]
    run(store.erase_rows(account.id, 2, 1_500))
    assert run(count_rows(store, account)) == [1, 0, 1]
    run(store.erase_rows(account.id, 1, 1_500))
    assert run(count_rows(store, account)) == [0, 0, 0]
    assert list_event_kinds(run, store, account) == []
    assert run(count_rows(store, other)) == [3, 3, 3]
