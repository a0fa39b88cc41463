"""Users of the console: sign-up, sign-in, passwords, invitations and API keys of a whole service."""

import asyncio
import os
import re
import threading
from collections.abc import Hashable
from importlib.resources import files
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from listings.domain.errors import Problem, Unavailable
from listings.service.members import passwords
from listings.service.members.passwords import MIN_LENGTH, Cost, Passwords, validate_password
from listings.service.tokens import create_token
from tests.harness import Harness
from tests.service.members import HERE, PASSWORD, THERE, catch_problem, error_code, find_member, guess, sign_in


@pytest.fixture
def costly_harness(tmp_path: Path) -> Any:
    """A harness with Alice and the normal password hashes."""
    with Harness(tmp_path) as harness:
        harness.run(harness.services.sessions.sign_up("Alice", "alice@example.com", PASSWORD, HERE))
        yield harness


def test_sign_up_creates_an_account_without_a_plan_and_signs_in(harness: Harness, alice: str) -> None:
    member = find_member(harness, alice)
    assert (member.account.name, member.account.email) == ("Alice", "alice@example.com")
    assert member.account.plan_expires_at is None
    assert member.confirmed_at == int(harness.clock.now)


def test_sign_up_can_be_closed_by_a_setting(tmp_path: Path) -> None:
    with Harness(tmp_path, sign_up="off") as harness:
        task = harness.services.sessions.sign_up("Alice", "alice@example.com", PASSWORD, HERE)
        assert error_code(harness, task) == "sign_up_closed"
        assert harness.run(harness.store.page_accounts(0, 9)) == []


@pytest.mark.usefixtures("alice")
def test_an_email_has_one_account(harness: Harness) -> None:
    task = harness.services.sessions.sign_up("Bob", " ALICE@example.com ", "another password", HERE)
    assert error_code(harness, task) == "email_taken"
    assert harness.run(sign_in(harness))


def test_an_ip_address_signs_up_ten_times_in_fifteen_minutes(harness: Harness) -> None:
    def sign_up(number: int, address: str = HERE) -> Any:
        return harness.services.sessions.sign_up("A", f"a{number}@example.com", PASSWORD, address)

    for number in range(10):
        harness.run(sign_up(number))
    assert error_code(harness, sign_up(10)) == "too_many_attempts"
    harness.run(sign_up(11, THERE))
    harness.clock.advance(15 * 60)
    harness.run(sign_up(12))


INVALID_PASSWORDS = [
    ("short", "at least 10 characters, got 5"),
    ("x" * 9, "at least 10"),
    ("ab" * 513, "at most 1024 bytes, got 1026"),
    ("pässwort" * 128, "at most 1024 bytes"),
    ("password123", "too easy to guess"),
    ("PassWord123", "too easy to guess"),
    ("1234567890", "too easy to guess"),
    ("ababababababab", "too easy to guess"),
    ("alice@example.com", "too easy to guess"),
    ("Alice in the attic", "too easy to guess"),
    ("a surrogate \ud83d", "surrogate"),
]


COMMON_PASSWORDS = [
    line
    for line in files("listings.service.members").joinpath("common_passwords.txt").read_text("ascii").splitlines()
    if not line.startswith("#")
]


def test_common_passwords_are_rejected_in_any_case() -> None:
    assert len(COMMON_PASSWORDS) > 2500
    for password in COMMON_PASSWORDS:
        for variant in (password, password.upper(), f" {password} "):
            with pytest.raises(Problem, match="too easy to guess"):
                validate_password(variant)


def test_common_passwords_are_sorted_and_break_no_other_rule() -> None:
    assert sorted(set(COMMON_PASSWORDS)) == COMMON_PASSWORDS
    for password in COMMON_PASSWORDS:
        validate_password(f"{password} and more")
        assert password == password.casefold().strip()
        assert len(password) >= MIN_LENGTH
        assert len(set(password)) >= 4


VALID_PASSWORDS = [
    "ten chars!",
    "株式会社のパスワード",
    "  spaces at both ends  ",
    "nul\0and tab\tin it",
    "x1y2" * 256,
]


@pytest.mark.parametrize(("password", "message"), INVALID_PASSWORDS)
def test_an_invalid_password_is_rejected_with_a_reason(harness: Harness, password: str, message: str) -> None:
    problem = catch_problem(
        harness, harness.services.sessions.sign_up("Alice in the Attic", "alice@example.com", password, HERE)
    )
    assert problem.code == "invalid_request"
    assert message in problem.message


@pytest.mark.parametrize("password", VALID_PASSWORDS)
def test_a_password_may_have_any_characters(harness: Harness, password: str) -> None:
    harness.run(harness.services.sessions.sign_up("Alice", "alice@example.com", password, HERE))
    assert harness.run(sign_in(harness, password))
    assert error_code(harness, sign_in(harness, f"{password} ")) == "wrong_credentials"


def test_composed_and_decomposed_letters_are_the_same_password(harness: Harness) -> None:
    harness.run(harness.services.sessions.sign_up("Alice", "alice@example.com", "caf\u00e9 au lait", HERE))
    assert harness.run(sign_in(harness, "cafe\u0301 au lait"))


def test_passwords_and_tokens_are_stored_only_as_hashes(costly_harness: Harness, tmp_path: Path) -> None:
    tokens = [
        costly_harness.run(sign_in(costly_harness)),
        costly_harness.run(costly_harness.services.invitations.create("alice@example.com")),
    ]
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("listings.db*"))
    for secret in (PASSWORD, *tokens):
        assert secret.encode() not in stored
    hashed = re.findall(rb"\$argon2id\$v=19\$m=(\d+),t=(\d+),p=(\d+)\$", stored)
    assert set(hashed) == {(b"19456", b"2", b"1")}


@pytest.mark.usefixtures("alice")
def test_a_wrong_password_and_an_unknown_email_look_the_same(harness: Harness) -> None:
    wrong = catch_problem(harness, sign_in(harness, "not the password"))
    unknown = catch_problem(harness, sign_in(harness, email="bob@example.com"))
    invalid = catch_problem(harness, sign_in(harness, email="\ud83d\n@"))
    assert wrong.code == "wrong_credentials"
    assert {(one.code, one.message) for one in (wrong, unknown, invalid)} == {(wrong.code, wrong.message)}


@pytest.mark.usefixtures("alice")
def test_nobody_can_sign_in_to_an_account_without_a_password(harness: Harness) -> None:
    harness.run(harness.services.accounts.add("Bob", "bob@example.com", None))
    for password in ("", "None", PASSWORD):
        assert error_code(harness, sign_in(harness, password, THERE, "bob@example.com")) == "wrong_credentials"


@pytest.mark.timing
def test_an_unknown_email_takes_as_long_as_a_wrong_password(costly_harness: Harness) -> None:
    def measure_work(email: str) -> float:
        start = process_time()
        assert (
            error_code(costly_harness, sign_in(costly_harness, "not the password", email, email)) == "wrong_credentials"
        )
        return process_time() - start

    known, unknown = [], []
    for number in range(9):
        known.append(measure_work("alice@example.com"))
        unknown.append(measure_work(f"{number}@example.com"))
    assert 0.5 < min(known) / min(unknown) < 2


@pytest.mark.usefixtures("alice")
@pytest.mark.decision("G38")
def test_a_network_has_ten_guesses_in_fifteen_minutes_on_an_account(harness: Harness) -> None:
    assert guess(harness, 10) == ["wrong_credentials"] * 10
    problem = catch_problem(harness, sign_in(harness))
    assert (problem.code, problem.retry_after) == ("too_many_attempts", 15 * 60)
    assert harness.run(sign_in(harness, address=THERE))
    harness.clock.advance(15 * 60 - 1)
    problem = catch_problem(harness, sign_in(harness))
    assert (problem.message, problem.retry_after) == ("Too many attempts: wait 1 minute, then try again", 1)
    harness.clock.advance(1)
    assert harness.run(sign_in(harness))


@pytest.mark.usefixtures("alice")
@pytest.mark.decision("G38")
def test_all_networks_together_have_a_hundred_guesses_an_hour(harness: Harness) -> None:
    for _ in range(3):
        outcomes = [code for number in range(12) for code in guess(harness, 11, f"198.51.100.{number}")]
        assert outcomes.count("wrong_credentials") == 100
        assert catch_problem(harness, sign_in(harness)).retry_after == 3600
        harness.clock.advance(3600)
    assert harness.run(sign_in(harness))


@pytest.mark.usefixtures("alice")
@pytest.mark.decision("G38")
def test_one_network_can_not_use_up_the_guesses_of_all_networks(harness: Harness) -> None:
    assert guess(harness, 200).count("wrong_credentials") == 10
    assert harness.run(sign_in(harness, address=THERE))


@pytest.mark.usefixtures("alice")
@pytest.mark.decision("G38")
def test_the_owner_signs_in_from_a_known_browser_during_an_attack(harness: Harness) -> None:
    device, other = create_token(), create_token()
    token = harness.run(sign_in(harness, device=device))
    harness.run(harness.services.sessions.sign_out(token))
    for number in range(12):
        guess(harness, 10, f"198.51.100.{number}", device=other)
    guess(harness, 31, HERE, "bob@example.com")
    assert error_code(harness, sign_in(harness, device=other)) == "too_many_attempts"
    assert error_code(harness, sign_in(harness, device="")) == "too_many_attempts"
    assert harness.run(sign_in(harness, device=device))
    assert error_code(harness, sign_in(harness)) == "too_many_attempts"


@pytest.mark.usefixtures("alice")
@pytest.mark.decision("G38")
def test_a_known_browser_has_ten_guesses_and_only_on_its_account(harness: Harness) -> None:
    device = create_token()
    harness.run(sign_in(harness, device=device))
    harness.run(harness.services.sessions.sign_up("Bob", "bob@example.com", PASSWORD, THERE))
    assert guess(harness, 11, device=device)[-2:] == ["wrong_credentials", "too_many_attempts"]
    assert error_code(harness, sign_in(harness, address=THERE, device=device)) == "too_many_attempts"
    outcomes = [
        code for number in range(12) for code in guess(harness, 10, str(number), "bob@example.com", device=device)
    ]
    assert outcomes.count("wrong_credentials") == 100
    assert harness.run(sign_in(harness, address=THERE))


@pytest.mark.usefixtures("alice")
@pytest.mark.decision("G38")
def test_ten_browsers_are_known_until_the_password_changes(harness: Harness) -> None:
    devices, token = [create_token() for _ in range(11)], ""
    for device in devices:
        token = harness.run(sign_in(harness, device=device))
        harness.clock.advance(1)
    for number in range(12):
        guess(harness, 10, f"198.51.100.{number}")
    assert error_code(harness, sign_in(harness, device=devices[0])) == "too_many_attempts"
    assert harness.run(sign_in(harness, device=devices[1]))
    member = find_member(harness, token)
    new = "another long password"
    harness.run(harness.services.sessions.change_password(member, PASSWORD, new, device=devices[10]))
    assert error_code(harness, sign_in(harness, new, device=devices[1])) == "too_many_attempts"
    assert harness.run(sign_in(harness, new, device=devices[10]))


def test_an_email_without_an_account_has_the_same_limit(harness: Harness) -> None:
    assert guess(harness, 11) == [*["wrong_credentials"] * 10, "too_many_attempts"]


@pytest.mark.usefixtures("alice")
@pytest.mark.parametrize(
    ("addresses", "other"),
    [
        ([HERE], THERE),
        (["2001:db8:1:2::1", "2001:db8:1:2:ffff::9"], "2001:db8:1:3::1"),
        ([HERE, f"::ffff:{HERE}"], THERE),
    ],
)
def test_an_ip_address_allows_thirty_guesses_in_fifteen_minutes(
    harness: Harness, addresses: list[str], other: str
) -> None:
    for number in range(30):
        address = addresses[number % len(addresses)]
        assert guess(harness, 1, address, f"{number}@example.com") == ["wrong_credentials"]
    assert error_code(harness, sign_in(harness, address=addresses[0])) == "too_many_attempts"
    assert harness.run(sign_in(harness, address=other))


@pytest.mark.usefixtures("alice")
def test_correct_passwords_do_not_count_as_attempts(harness: Harness) -> None:
    for _ in range(31):
        assert harness.run(sign_in(harness))


@pytest.mark.usefixtures("alice")
def test_the_attempt_limit_survives_a_restart(harness: Harness, tmp_path: Path) -> None:
    guess(harness, 10)
    with Harness(tmp_path) as again:
        assert error_code(again, sign_in(again)) == "too_many_attempts"


def test_256_passwords_may_wait_and_more_are_rejected() -> None:
    async def sign_in_concurrently() -> list[Any]:
        hasher = Passwords(Cost(kibibytes=8, passes=1))
        return await asyncio.gather(
            *(hasher.verify(None, "x", number) for number in range(264)), return_exceptions=True
        )

    outcomes = asyncio.run(sign_in_concurrently())
    assert sum(isinstance(outcome, Unavailable) for outcome in outcomes) == 8


def test_64_passwords_of_an_owner_may_wait_and_owners_take_turns() -> None:
    ended: list[int] = []

    async def verify(hasher: Passwords, owner: int) -> None:
        await hasher.verify(None, "x", owner)
        ended.append(owner)

    async def verify_concurrently() -> list[Any]:
        hasher = Passwords(Cost(kibibytes=8, passes=1))
        checks = [verify(hasher, 1) for _ in range(70)]
        return await asyncio.gather(*checks, verify(hasher, 2), return_exceptions=True)

    outcomes = asyncio.run(verify_concurrently())
    assert sum(isinstance(outcome, Unavailable) for outcome in outcomes) == 6
    assert ended.index(2) == 1


def test_passwords_are_checked_with_a_low_priority() -> None:
    own, hasher = os.getpriority(os.PRIO_PROCESS, 0), Passwords(Cost(kibibytes=8, passes=1))
    others = set(threading.enumerate())
    asyncio.run(hasher.verify(None, "x"))
    [thread] = (one for one in set(threading.enumerate()) - others if one.name.startswith("listings-passwords"))
    assert os.getpriority(os.PRIO_PROCESS, thread.native_id or 0) == min(own + 10, 19)
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


@pytest.mark.usefixtures("alice")
def test_a_burst_of_sign_ins_counts_only_those_with_capacity(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "_MAX_PENDING", 32)

    async def sign_in_concurrently() -> list[Any]:
        tries = (sign_in(harness, f"guess {number}", str(number)) for number in range(40))
        return await asyncio.gather(*tries, return_exceptions=True)

    for rejected in (8, 8, 8):
        outcomes = [problem.code for problem in harness.run(sign_in_concurrently())]
        assert (outcomes.count("wrong_credentials"), outcomes.count("unavailable")) == (32, rejected)
    assert guess(harness, 5, THERE) == [*["wrong_credentials"] * 4, "too_many_attempts"]


def test_a_sign_up_without_capacity_is_not_an_attempt(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    sign_up = harness.services.sessions.sign_up
    monkeypatch.setattr(passwords, "_MAX_PENDING", 0)
    for _ in range(11):
        assert error_code(harness, sign_up("Bob", "bob@example.com", PASSWORD, HERE)) == "unavailable"
    monkeypatch.undo()
    assert harness.run(sign_up("Bob", "bob@example.com", PASSWORD, HERE))


@pytest.mark.usefixtures("alice")
def test_a_sign_in_without_capacity_is_not_an_attempt(harness: Harness) -> None:
    busy = Passwords(Cost(kibibytes=8, passes=1))
    harness.replace_services(passwords=busy)

    async def sign_in_without_capacity() -> int:
        checks = [asyncio.create_task(busy.verify(None, "x", number)) for number in range(256)]
        await asyncio.sleep(0)
        rejected = 0
        for _ in range(11):
            try:
                await sign_in(harness)
            except Unavailable:
                rejected += 1
        await asyncio.gather(*checks)
        return rejected

    assert harness.run(sign_in_without_capacity()) == 11
    assert harness.run(sign_in(harness))


def test_a_hash_of_another_cost_is_replaced_at_sign_in(harness: Harness, alice: str) -> None:
    account = find_member(harness, alice).account
    harness.replace_services(passwords=Passwords(Cost(kibibytes=16, passes=3)))
    for _ in range(2):
        harness.run(sign_in(harness))
        stored = harness.run(harness.store.get_password(account.id))
        assert stored is not None
        assert stored.startswith("$argon2id$v=19$m=16,t=3,p=1$")


def test_changing_a_password_needs_the_old_one(harness: Harness, alice: str) -> None:
    other = harness.run(sign_in(harness))
    member = find_member(harness, alice)
    change = harness.services.sessions.change_password
    assert error_code(harness, change(member, "not the password", "another password")) == "wrong_credentials"
    assert error_code(harness, change(member, PASSWORD, "short")) == "invalid_request"
    token = harness.run(change(member, PASSWORD, "another password"))
    assert find_member(harness, token).session_handle == member.session_handle
    assert [harness.run(harness.services.sessions.find_member(old)) for old in (alice, other)] == [None, None]
    assert error_code(harness, sign_in(harness)) == "wrong_credentials"
    assert harness.run(sign_in(harness, "another password"))


def test_signing_in_during_a_password_change_is_rejected(harness: Harness, alice: str) -> None:
    services, member = harness.services, find_member(harness, alice)
    changed: list[str] = []

    class ChangingPasswords(Passwords):
        """Changes the password between its first check and the sign-in."""

        async def verify(self, stored: str | None, password: str, owner: Hashable = None) -> Any:
            check = await super().verify(stored, password, owner)
            if not changed:
                changed.append("")
                changed[0] = await services.sessions.change_password(member, PASSWORD, "another long password")
            return check

    harness.replace_services(passwords=ChangingPasswords(Cost(kibibytes=8, passes=1)))
    assert error_code(harness, sign_in(harness)) == "wrong_credentials"
    sessions = harness.run(services.sessions.list_active(find_member(harness, changed[0])))
    assert len(sessions) == 1


def test_the_second_of_two_concurrent_password_changes_is_rejected(harness: Harness, alice: str) -> None:
    services, member = harness.services, find_member(harness, alice)

    async def change_twice() -> list[Any]:
        changes = (
            services.sessions.change_password(member, PASSWORD, f"another password {number}") for number in range(2)
        )
        return await asyncio.gather(*changes, return_exceptions=True)

    results = harness.run(change_twice())
    assert [isinstance(result, Problem) and result.code for result in results].count("wrong_credentials") == 1


def test_confirming_a_password_has_an_attempt_limit_of_its_own(harness: Harness, alice: str) -> None:
    member = find_member(harness, alice)
    guess(harness, 11)
    harness.clock.advance(15 * 60)
    assert not harness.services.sessions.is_confirmed(find_member(harness, alice))
    token = harness.run(harness.services.sessions.confirm_password(member, PASSWORD))
    assert harness.services.sessions.is_confirmed(find_member(harness, token))
    assert harness.run(harness.services.sessions.find_member(alice)) is None
    for _ in range(10):
        assert error_code(harness, harness.services.sessions.confirm_password(member, "wrong")) == "wrong_credentials"
    assert error_code(harness, harness.services.sessions.confirm_password(member, PASSWORD)) == "too_many_attempts"


def test_a_password_that_is_too_long_is_not_normalized() -> None:
    password = "\N{COMBINING ACUTE ACCENT}" * 50_000 + "\N{COMBINING DOT BELOW}" * 50_000

    async def verify() -> None:
        hasher = Passwords(Cost(kibibytes=8, passes=1))
        stored = await hasher.hash("correct horse")
        assert await hasher.verify(stored, password) is None

    started = process_time()
    asyncio.run(verify())
    assert process_time() - started < 2  # seconds; normalizing takes 11
