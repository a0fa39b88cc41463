"""Members: signing up, in and out, passwords, invitations and keys, over a whole service with a clock to turn."""

import asyncio
import re
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from listings.domain.errors import Problem, Unavailable
from listings.domain.model import Account
from listings.service import Member
from listings.service.passwords import Cost, Passwords
from tests.harness import MONTH, Harness

PASSWORD = "a long and winding road"
HERE, THERE = "192.0.2.1", "198.51.100.7"
DAY = 24 * 3600


def problem_of(harness: Harness, task: Any) -> Problem:
    with pytest.raises(Problem) as caught:
        harness.run(task)
    return caught.value


def code_of(harness: Harness, task: Any) -> str:
    return problem_of(harness, task).code


@pytest.fixture
def alice(open_house: Harness) -> str:
    """The token of her session."""
    return open_house.run(open_house.service.sign_up("Alice", "Alice@Example.com", PASSWORD, HERE, "Firefox"))


@pytest.fixture
def open_house(tmp_path: Path) -> Any:
    """A house whose hashes cost next to nothing."""
    with Harness(tmp_path) as harness:
        harness.service.passwords = Passwords(Cost(kibibytes=8, passes=1))
        yield harness


@pytest.fixture
def costly_house(tmp_path: Path) -> Any:
    """One whose hashes are as they are in earnest, with alice."""
    with Harness(tmp_path) as harness:
        harness.run(harness.service.sign_up("Alice", "alice@example.com", PASSWORD, HERE))
        yield harness


def member_of(harness: Harness, token: str) -> Member:
    member = harness.run(harness.service.session_of(token))
    assert member is not None
    return member


def sign_in(harness: Harness, password: str = PASSWORD, address: str = HERE, email: str = "alice@example.com") -> Any:
    return harness.service.sign_in(email, password, address, "Firefox")


def guess(harness: Harness, times: int, address: str = HERE, email: str = "alice@example.com") -> list[str]:
    return [code_of(harness, sign_in(harness, f"wrong password {time}", address, email)) for time in range(times)]


def seller(harness: Harness, token: str) -> Member:
    """The member with a current plan."""
    account = member_of(harness, token).account
    harness.run(harness.service.extend_plan(str(account.id), 1))
    return member_of(harness, token)


# Sign-up


def test_who_signs_up_has_an_account_without_a_plan_and_is_signed_in(open_house: Harness, alice: str) -> None:
    member = member_of(open_house, alice)
    assert (member.account.name, member.account.email) == ("Alice", "alice@example.com")
    assert member.account.plan_expires_at is None
    assert member.signed_in_at == member.confirmed_at == int(open_house.clock.now)


def test_a_setting_closes_sign_up(tmp_path: Path) -> None:
    with Harness(tmp_path, sign_up="off") as harness:
        task = harness.service.sign_up("Alice", "alice@example.com", PASSWORD, HERE)
        assert code_of(harness, task) == "sign_up_closed"
        assert harness.run(harness.service.store.page_accounts(0, 9)) == []


@pytest.mark.usefixtures("alice")
def test_an_address_has_one_account(open_house: Harness) -> None:
    task = open_house.service.sign_up("Bob", " ALICE@example.com ", "another password", HERE)
    assert code_of(open_house, task) == "email_taken"
    assert open_house.run(sign_in(open_house))


def test_one_address_signs_up_ten_times_in_fifteen_minutes(open_house: Harness) -> None:
    def sign_up(number: int, address: str = HERE) -> Any:
        return open_house.service.sign_up("A", f"a{number}@example.com", PASSWORD, address)

    for number in range(10):
        open_house.run(sign_up(number))
    assert code_of(open_house, sign_up(10)) == "too_many_attempts"
    open_house.run(sign_up(11, THERE))
    open_house.clock.advance(15 * 60)
    open_house.run(sign_up(12))


BAD_PASSWORDS = [
    ("short", "at least 10 characters, got 5"),
    ("x" * 9, "at least 10"),
    ("ab" * 513, "at most 1024 bytes, got 1026"),
    ("pässwort" * 128, "at most 1024 bytes"),
    ("password123", "easily guessed"),
    ("PassWord123", "easily guessed"),
    ("1234567890", "easily guessed"),
    ("ababababababab", "easily guessed"),
    ("alice@example.com", "easily guessed"),
    ("Alice in the attic", "easily guessed"),
    ("half a pair \ud83d", "surrogate"),
]


GOOD_PASSWORDS = [
    "ten chars!",
    "株式会社のパスワード",
    "  spaces at both ends  ",
    "nul\0and tab\tin it",
    "x1y2" * 256,
]


@pytest.mark.parametrize(("password", "sentence"), BAD_PASSWORDS)
def test_a_bad_password_is_refused_in_a_sentence(open_house: Harness, password: str, sentence: str) -> None:
    problem = problem_of(
        open_house, open_house.service.sign_up("Alice in the Attic", "alice@example.com", password, HERE)
    )
    assert problem.code == "invalid_request"
    assert sentence in problem.message


@pytest.mark.parametrize("password", GOOD_PASSWORDS)
def test_any_characters_make_a_password(open_house: Harness, password: str) -> None:
    open_house.run(open_house.service.sign_up("Alice", "alice@example.com", password, HERE))
    assert open_house.run(sign_in(open_house, password))
    assert code_of(open_house, sign_in(open_house, f"{password} ")) == "wrong_credentials"


def test_the_same_letters_are_the_same_password_however_they_are_composed(open_house: Harness) -> None:
    open_house.run(open_house.service.sign_up("Alice", "alice@example.com", "caf\u00e9 au lait", HERE))
    assert open_house.run(sign_in(open_house, "cafe\u0301 au lait"))


def test_a_password_and_a_token_are_kept_as_hashes_alone(costly_house: Harness, tmp_path: Path) -> None:
    tokens = [
        costly_house.run(sign_in(costly_house)),
        costly_house.run(costly_house.service.invite("alice@example.com")),
    ]
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("listings.db*"))
    for secret in (PASSWORD, *tokens):
        assert secret.encode() not in stored
    hashed = re.findall(rb"\$argon2id\$v=19\$m=(\d+),t=(\d+),p=(\d+)\$", stored)
    assert set(hashed) == {(b"19456", b"2", b"1")}


# Sign-in


@pytest.mark.usefixtures("alice")
def test_a_wrong_password_and_an_unknown_address_look_alike(open_house: Harness) -> None:
    wrong = problem_of(open_house, sign_in(open_house, "not the password"))
    unknown = problem_of(open_house, sign_in(open_house, email="bob@example.com"))
    nonsense = problem_of(open_house, sign_in(open_house, email="\ud83d\n@"))
    assert wrong.code == "wrong_credentials"
    assert {(one.code, one.message) for one in (wrong, unknown, nonsense)} == {(wrong.code, wrong.message)}


@pytest.mark.usefixtures("alice")
def test_an_account_without_a_password_is_signed_in_to_by_nobody(open_house: Harness) -> None:
    open_house.run(open_house.service.add_account("Bob", "bob@example.com", None))
    for password in ("", "None", PASSWORD):
        assert code_of(open_house, sign_in(open_house, password, THERE, "bob@example.com")) == "wrong_credentials"


@pytest.mark.timing
def test_an_unknown_address_takes_as_long_as_a_wrong_password(costly_house: Harness) -> None:
    def seconds(email: str) -> float:
        began = perf_counter()
        assert code_of(costly_house, sign_in(costly_house, "not the password", email, email)) == "wrong_credentials"
        return perf_counter() - began

    known, unknown = [], []
    for number in range(9):
        known.append(seconds("alice@example.com"))
        unknown.append(seconds(f"{number}@example.com"))
    assert 0.5 < min(known) / min(unknown) < 2


@pytest.mark.usefixtures("alice")
def test_an_account_is_guessed_at_ten_times_in_fifteen_minutes_from_anywhere(open_house: Harness) -> None:
    assert guess(open_house, 5) == guess(open_house, 5, THERE) == ["wrong_credentials"] * 5
    assert code_of(open_house, sign_in(open_house, address="203.0.113.9")) == "too_many_attempts"
    open_house.clock.advance(15 * 60 - 1)
    assert code_of(open_house, sign_in(open_house)) == "too_many_attempts"
    open_house.clock.advance(1)
    assert open_house.run(sign_in(open_house))


def test_an_address_without_an_account_is_limited_alike(open_house: Harness) -> None:
    assert guess(open_house, 11) == [*["wrong_credentials"] * 10, "too_many_attempts"]


@pytest.mark.usefixtures("alice")
@pytest.mark.parametrize(
    ("addresses", "other"),
    [
        ([HERE], THERE),
        (["2001:db8:1:2::1", "2001:db8:1:2:ffff::9"], "2001:db8:1:3::1"),
        ([HERE, f"::ffff:{HERE}"], THERE),
    ],
)
def test_an_address_guesses_thirty_times_in_fifteen_minutes(
    open_house: Harness, addresses: list[str], other: str
) -> None:
    for number in range(30):
        address = addresses[number % len(addresses)]
        assert guess(open_house, 1, address, f"{number}@example.com") == ["wrong_credentials"]
    assert code_of(open_house, sign_in(open_house, address=addresses[0])) == "too_many_attempts"
    assert open_house.run(sign_in(open_house, address=other))


@pytest.mark.usefixtures("alice")
def test_a_right_password_takes_nothing_from_an_address(open_house: Harness) -> None:
    for _ in range(31):
        assert open_house.run(sign_in(open_house))


@pytest.mark.usefixtures("alice")
def test_the_limit_outlives_a_restart(open_house: Harness, tmp_path: Path) -> None:
    guess(open_house, 10)
    with Harness(tmp_path) as again:
        assert code_of(again, sign_in(again)) == "too_many_attempts"


@pytest.mark.usefixtures("alice")
def test_attempts_of_a_clock_that_was_ahead_lock_nobody_out(open_house: Harness) -> None:
    open_house.clock.advance(DAY)
    guess(open_house, 11)
    open_house.clock.advance(-DAY)
    assert open_house.run(sign_in(open_house))


@pytest.mark.usefixtures("alice")
def test_guesses_at_the_same_time_are_all_counted(open_house: Harness) -> None:
    async def rush() -> list[Any]:
        tries = (sign_in(open_house, f"guess {number}", str(number)) for number in range(20))
        return await asyncio.gather(*tries, return_exceptions=True)

    codes = [problem.code for problem in open_house.run(rush())]
    assert (codes.count("wrong_credentials"), codes.count("too_many_attempts")) == (10, 10)


def test_too_many_hashes_at_once_are_refused() -> None:
    async def rush() -> list[Any]:
        passwords = Passwords()
        return await asyncio.gather(*(passwords.check(None, "x") for _ in range(40)), return_exceptions=True)

    outcomes = asyncio.run(rush())
    assert sum(isinstance(outcome, Unavailable) for outcome in outcomes) == 8


@pytest.mark.usefixtures("alice")
def test_who_is_not_judged_for_lack_of_room_has_not_tried(open_house: Harness) -> None:
    async def crowd() -> int:
        checks = [asyncio.create_task(open_house.service.passwords.check(None, "x")) for _ in range(32)]
        await asyncio.sleep(0)
        refused = 0
        for _ in range(11):
            try:
                await sign_in(open_house)
            except Unavailable:
                refused += 1
        await asyncio.gather(*checks)
        return refused

    assert open_house.run(crowd()) == 11
    assert open_house.run(sign_in(open_house))


def test_a_hash_of_another_cost_is_made_anew_at_the_next_sign_in(open_house: Harness, alice: str) -> None:
    account = member_of(open_house, alice).account
    open_house.service.passwords = Passwords(Cost(kibibytes=16, passes=3))
    for _ in range(2):
        open_house.run(sign_in(open_house))
        stored = open_house.run(open_house.service.store.get_password(account.id))
        assert stored is not None
        assert stored.startswith("$argon2id$v=19$m=16,t=3,p=1$")


# Sessions


@pytest.mark.parametrize("token", ["", "x", "x" * 43, "ü" * 43, "x" * 5_000])
def test_a_token_of_nobodys_making_opens_nothing(open_house: Harness, token: str) -> None:
    assert open_house.run(open_house.service.session_of(token)) is None
    open_house.run(open_house.service.sign_out(token))


def test_every_sign_in_is_a_session_of_its_own(open_house: Harness, alice: str) -> None:
    second = open_house.run(sign_in(open_house))
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", second)
    members = [member_of(open_house, token) for token in (alice, second)]
    assert len({member.session for member in members}) == len({member.csrf_secret for member in members}) == 2


def test_a_session_is_dead_after_signing_out(open_house: Harness, alice: str) -> None:
    open_house.run(open_house.service.sign_out(alice))
    assert open_house.run(open_house.service.session_of(alice)) is None


def test_a_session_ends_after_seven_idle_days(open_house: Harness, alice: str) -> None:
    open_house.clock.advance(7 * DAY - 1)
    member_of(open_house, alice)
    open_house.clock.advance(7 * DAY - 1)
    member_of(open_house, alice)
    open_house.clock.advance(7 * DAY)
    assert open_house.run(open_house.service.session_of(alice)) is None


def test_a_session_ends_after_thirty_days(open_house: Harness, alice: str) -> None:
    member = member_of(open_house, alice)
    for _ in range(5):
        open_house.clock.advance(6 * DAY - 1)
        assert member_of(open_house, alice) == member
    assert len(open_house.run(open_house.service.list_sessions(member))) == 1
    open_house.clock.advance(5)
    assert open_house.run(open_house.service.session_of(alice)) is None


def test_what_was_seen_or_confirmed_by_a_clock_that_was_ahead_counts_no_more(open_house: Harness, alice: str) -> None:
    open_house.clock.advance(DAY)
    service, ahead = open_house.service, open_house.run(sign_in(open_house))
    member = member_of(open_house, ahead)
    assert open_house.run(service.session_of(alice)) is not None
    open_house.clock.advance(-DAY)
    assert open_house.run(service.session_of(ahead)) is None
    assert open_house.run(service.session_of(alice)) is None
    assert open_house.run(service.list_sessions(member)) == []
    assert not service.is_confirmed(member)


def test_a_clock_that_is_a_little_ahead_of_another_ends_nothing(open_house: Harness, alice: str) -> None:
    member = member_of(open_house, alice)
    open_house.clock.advance(-60)
    assert member_of(open_house, alice) == member
    assert open_house.service.is_confirmed(member)


def test_what_is_over_is_forgotten_by_the_upkeep(open_house: Harness, alice: str) -> None:
    account = member_of(open_house, alice).account
    open_house.clock.advance(7 * DAY)
    open_house.run(open_house.service.purge_sessions())
    assert open_house.run(open_house.service.store.list_sessions(account.id)) == []


def test_being_seen_is_written_once_a_minute(open_house: Harness, alice: str) -> None:
    began = int(open_house.clock.now)

    def seen_at() -> int:
        return open_house.run(open_house.service.list_sessions(member_of(open_house, alice)))[0].seen_at

    open_house.clock.advance(59)
    assert seen_at() == began
    open_house.clock.advance(1)
    assert seen_at() == began + 60


def test_other_sessions_are_ended_by_one_of_them(open_house: Harness, alice: str) -> None:
    others = [open_house.run(sign_in(open_house)) for _ in range(2)]
    member = member_of(open_house, alice)
    assert len(open_house.run(open_house.service.list_sessions(member))) == 3
    assert open_house.run(open_house.service.end_other_sessions(member)) == 2
    assert [open_house.run(open_house.service.session_of(token)) for token in others] == [None, None]
    assert member_of(open_house, alice) == member


def test_a_session_of_another_account_can_not_be_ended(open_house: Harness, alice: str) -> None:
    bob = open_house.run(open_house.service.sign_up("Bob", "bob@example.com", PASSWORD, HERE))
    handle = member_of(open_house, alice).session
    assert not open_house.run(open_house.service.end_session(member_of(open_house, bob), handle))
    member_of(open_house, alice)


def test_a_disabled_accounts_sessions_are_over_for_good(open_house: Harness, alice: str) -> None:
    open_house.run(open_house.service.disable_account("alice@example.com"))
    assert open_house.run(open_house.service.session_of(alice)) is None
    assert code_of(open_house, sign_in(open_house)) == "account_disabled"
    assert code_of(open_house, sign_in(open_house, "not the password")) == "wrong_credentials"
    open_house.run(open_house.service.enable_account("alice@example.com"))
    assert open_house.run(open_house.service.session_of(alice)) is None
    assert open_house.run(sign_in(open_house))


def test_session_events_are_logged(open_house: Harness, alice: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    open_house.run(sign_in(open_house))
    guess(open_house, 1)
    guess(open_house, 1, email="bob@example.com")
    open_house.run(open_house.service.sign_out(alice))
    assert caplog.messages == [
        "Account 1 is signed in",
        "A wrong password was given for account 1",
        "A wrong password was given for no account",
        "A session of account 1 is ended",
    ]
    assert alice not in caplog.text


# Passwords


def test_a_password_is_changed_with_the_old_one(open_house: Harness, alice: str) -> None:
    other = open_house.run(sign_in(open_house))
    member = member_of(open_house, alice)
    change = open_house.service.change_password
    assert code_of(open_house, change(member, "not the password", "another password")) == "wrong_credentials"
    assert code_of(open_house, change(member, PASSWORD, "short")) == "invalid_request"
    token = open_house.run(change(member, PASSWORD, "another password"))
    assert member_of(open_house, token).session == member.session
    assert [open_house.run(open_house.service.session_of(old)) for old in (alice, other)] == [None, None]
    assert code_of(open_house, sign_in(open_house)) == "wrong_credentials"
    assert open_house.run(sign_in(open_house, "another password"))


def test_who_signs_in_with_the_old_password_while_it_is_changed_is_refused(open_house: Harness, alice: str) -> None:
    service, member = open_house.service, member_of(open_house, alice)
    changed: list[str] = []

    class Slow(Passwords):
        """Whose sign-in finds the password right just before it is another one."""

        async def check(self, stored: str | None, password: str) -> Any:
            checked = await super().check(stored, password)
            if not changed:
                changed.append("")
                changed[0] = await service.change_password(member, PASSWORD, "another long password")
            return checked

    service.passwords = Slow(Cost(kibibytes=8, passes=1))
    assert code_of(open_house, sign_in(open_house)) == "wrong_credentials"
    sessions = open_house.run(service.list_sessions(member_of(open_house, changed[0])))
    assert len(sessions) == 1


def test_of_two_who_change_a_password_at_once_the_second_has_given_a_wrong_one(open_house: Harness, alice: str) -> None:
    service, member = open_house.service, member_of(open_house, alice)

    async def change_twice() -> list[Any]:
        changes = (service.change_password(member, PASSWORD, f"another password {number}") for number in range(2))
        return await asyncio.gather(*changes, return_exceptions=True)

    results = open_house.run(change_twice())
    assert [isinstance(result, Problem) and result.code for result in results].count("wrong_credentials") == 1


def test_a_password_is_confirmed_under_the_same_limit(open_house: Harness, alice: str) -> None:
    member = member_of(open_house, alice)
    open_house.clock.advance(15 * 60)
    assert not open_house.service.is_confirmed(member_of(open_house, alice))
    token = open_house.run(open_house.service.confirm_password(member, PASSWORD))
    assert open_house.service.is_confirmed(member_of(open_house, token))
    assert open_house.run(open_house.service.session_of(alice)) is None
    for _ in range(10):
        assert code_of(open_house, open_house.service.confirm_password(member, "wrong")) == "wrong_credentials"
    assert code_of(open_house, open_house.service.confirm_password(member, PASSWORD)) == "too_many_attempts"


# Invitations


@pytest.fixture
def bob(open_house: Harness) -> Account:
    """An account of the operator's."""
    return open_house.run(open_house.service.add_account("Bob", "bob@example.com", None))


def test_an_invitation_sets_a_password_once(open_house: Harness, bob: Account) -> None:
    service = open_house.service
    token = open_house.run(service.invite(bob.email))
    assert open_house.run(service.find_invitation(token)) == bob
    assert code_of(open_house, service.accept_invitation(token, "short")) == "invalid_request"
    session = open_house.run(service.accept_invitation(token, PASSWORD))
    assert member_of(open_house, session).account == bob
    assert open_house.run(sign_in(open_house, email=bob.email))
    assert code_of(open_house, service.accept_invitation(token, "yet another password")) == "invitation_invalid"


@pytest.mark.usefixtures("bob")
def test_an_invitation_ends_after_seven_days_and_by_the_next_one(open_house: Harness) -> None:
    service = open_house.service
    first, second = (open_house.run(service.invite("bob@example.com")) for _ in range(2))
    assert code_of(open_house, service.find_invitation(first)) == "invitation_invalid"
    open_house.clock.advance(7 * DAY - 1)
    assert open_house.run(service.find_invitation(second)).email == "bob@example.com"
    open_house.clock.advance(1)
    assert code_of(open_house, service.accept_invitation(second, PASSWORD)) == "invitation_invalid"
    assert code_of(open_house, service.find_invitation("nonsense")) == "invitation_invalid"


def test_a_disabled_account_is_not_invited(open_house: Harness, bob: Account) -> None:
    token = open_house.run(open_house.service.invite(bob.email))
    open_house.run(open_house.service.disable_account(bob.email))
    assert code_of(open_house, open_house.service.find_invitation(token)) == "invitation_invalid"
    assert code_of(open_house, open_house.service.invite(bob.email)) == "account_disabled"


# Keys


@pytest.mark.decision("G25")
def test_a_key_needs_a_current_plan(open_house: Harness, alice: str) -> None:
    member = member_of(open_house, alice)
    assert code_of(open_house, open_house.service.create_key(member, "warehouse")) == "plan_expired"
    issued = open_house.run(open_house.service.create_key(seller(open_house, alice), "warehouse"))
    assert open_house.fetch("GET", "/api/v1/listings", key=issued.secret).status == 200
    open_house.clock.advance(MONTH)
    token = open_house.run(sign_in(open_house))
    assert code_of(open_house, open_house.service.create_key(member_of(open_house, token), "b")) == "plan_expired"


@pytest.mark.decision("G25")
def test_a_key_is_made_and_rotated_within_fifteen_minutes_of_the_password(open_house: Harness, alice: str) -> None:
    member = seller(open_house, alice)
    open_house.clock.advance(15 * 60 - 1)
    issued = open_house.run(open_house.service.create_key(member, "warehouse"))
    rotated = open_house.run(open_house.service.rotate_own_key(member, issued.key.id, 3600))
    open_house.clock.advance(1)
    assert code_of(open_house, open_house.service.create_key(member, "b")) == "confirmation_required"
    assert code_of(open_house, open_house.service.rotate_own_key(member, rotated.key.id, 0)) == "confirmation_required"
    assert open_house.run(open_house.service.revoke_own_key(member, rotated.key.id)).revoked_at is not None
    token = open_house.run(open_house.service.confirm_password(member, PASSWORD))
    assert open_house.run(open_house.service.create_key(member_of(open_house, token), "b")).key.name == "b"


def test_a_rotated_key_goes_on_for_the_grace(open_house: Harness, alice: str) -> None:
    member = seller(open_house, alice)
    old = open_house.run(open_house.service.create_key(member, "warehouse"))
    new = open_house.run(open_house.service.rotate_own_key(member, old.key.id, 3600))
    assert new.key.name == "warehouse"
    statuses = [open_house.fetch("GET", "/api/v1/listings", key=key.secret).status for key in (old, new)]
    open_house.clock.advance(3600)
    statuses += [open_house.fetch("GET", "/api/v1/listings", key=key.secret).status for key in (old, new)]
    assert statuses == [200, 200, 401, 200]
    token = open_house.run(open_house.service.confirm_password(member, PASSWORD))
    again = open_house.service.rotate_own_key(member_of(open_house, token), old.key.id, 0)
    assert code_of(open_house, again) == "key_ended"


def test_keys_of_others_are_as_if_they_were_not(open_house: Harness, alice: str) -> None:
    bob = open_house.person("bob")
    member = seller(open_house, alice)
    unknown = problem_of(open_house, open_house.service.revoke_own_key(member, 999))
    for task in (
        open_house.service.revoke_own_key(member, bob.key_id),
        open_house.service.rotate_own_key(member, bob.key_id, 0),
    ):
        problem = problem_of(open_house, task)
        assert (problem.code, problem.message.replace(str(bob.key_id), "999")) == (unknown.code, unknown.message)
    assert open_house.fetch("GET", "/api/v1/listings", key=bob.key).status == 200


@pytest.mark.decision("G25")
def test_an_account_has_twenty_usable_keys_of_its_own_making(open_house: Harness, alice: str) -> None:
    member = seller(open_house, alice)
    keys = [open_house.run(open_house.service.create_key(member, f"key {number}")) for number in range(20)]
    assert code_of(open_house, open_house.service.create_key(member, "one more")) == "too_many_keys"
    open_house.run(open_house.service.revoke_own_key(member, keys[0].key.id))
    assert open_house.run(open_house.service.create_key(member, "one more")).key.name == "one more"


def test_a_key_expires_in_the_future(open_house: Harness, alice: str) -> None:
    member = seller(open_house, alice)
    now = int(open_house.clock.now)
    assert code_of(open_house, open_house.service.create_key(member, "a", now)) == "invalid_request"
    assert open_house.run(open_house.service.create_key(member, "a", now + 1)).key.expires_at == now + 1


def test_a_token_opens_no_api_and_a_key_no_console(open_house: Harness, alice: str) -> None:
    issued = open_house.run(open_house.service.create_key(seller(open_house, alice), "warehouse"))
    assert open_house.fetch("GET", "/api/v1/listings", key=alice).status == 401
    cookie = {"Cookie": f"__Host-listings={alice}; listings_session={alice}"}
    assert open_house.fetch("GET", "/api/v1/listings", headers=cookie).status == 401
    assert open_house.run(open_house.service.session_of(issued.secret)) is None
