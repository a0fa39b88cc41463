"""Sessions of the console: begin, use, and end, in a whole service."""

import re

import pytest

from tests.harness import Harness
from tests.service.members import DAY, error_code, find_member, guess, sign_in


@pytest.mark.parametrize("token", ["", "x", "x" * 43, "ü" * 43, "x" * 5_000])
def test_an_unknown_session_token_has_no_member(harness: Harness, token: str) -> None:
    assert harness.run(harness.services.sessions.find_member(token)) is None
    harness.run(harness.services.sessions.sign_out(token))


def test_every_sign_in_creates_a_new_session(harness: Harness, alice: str) -> None:
    second = harness.run(sign_in(harness))
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", second)
    members = [find_member(harness, token) for token in (alice, second)]
    assert len({member.session_handle for member in members}) == len({member.csrf_secret for member in members}) == 2


def test_a_session_expires_after_seven_idle_days(harness: Harness, alice: str) -> None:
    harness.clock.advance(7 * DAY - 1)
    find_member(harness, alice)
    harness.clock.advance(7 * DAY - 1)
    find_member(harness, alice)
    harness.clock.advance(7 * DAY)
    assert harness.run(harness.services.sessions.find_member(alice)) is None


def test_a_session_expires_after_thirty_days(harness: Harness, alice: str) -> None:
    member = find_member(harness, alice)
    for _ in range(5):
        harness.clock.advance(6 * DAY - 1)
        assert find_member(harness, alice) == member
    assert len(harness.run(harness.services.sessions.list_active(member))) == 1
    harness.clock.advance(5)
    assert harness.run(harness.services.sessions.find_member(alice)) is None


def test_sessions_and_confirmations_from_the_future_are_invalid(harness: Harness, alice: str) -> None:
    harness.clock.advance(DAY)
    services, ahead = harness.services, harness.run(sign_in(harness))
    member = find_member(harness, ahead)
    assert harness.run(services.sessions.find_member(alice)) is not None
    harness.clock.advance(-DAY)
    assert harness.run(services.sessions.find_member(ahead)) is None
    assert harness.run(services.sessions.find_member(alice)) is None
    assert harness.run(services.sessions.list_active(member)) == []
    assert not services.sessions.is_confirmed(member)


def test_a_small_clock_skew_does_not_end_a_session(harness: Harness, alice: str) -> None:
    member = find_member(harness, alice)
    harness.clock.advance(-60)
    assert find_member(harness, alice) == member
    assert harness.services.sessions.is_confirmed(member)


def test_background_tasks_purge_expired_sessions(harness: Harness, alice: str) -> None:
    account = find_member(harness, alice).account
    harness.clock.advance(7 * DAY)
    harness.run(harness.services.sessions.purge())
    assert harness.run(harness.store.list_sessions(account.id)) == []


def test_the_last_use_of_a_session_is_stored_once_a_minute(harness: Harness, alice: str) -> None:
    started = int(harness.clock.now)

    def seen_at() -> int:
        return harness.run(harness.services.sessions.list_active(find_member(harness, alice)))[0].seen_at

    harness.clock.advance(59)
    assert seen_at() == started
    harness.clock.advance(1)
    assert seen_at() == started + 60


def test_disabling_an_account_ends_its_sessions_permanently(harness: Harness, alice: str) -> None:
    harness.run(harness.services.accounts.disable("alice@example.com"))
    assert harness.run(harness.services.sessions.find_member(alice)) is None
    assert error_code(harness, sign_in(harness)) == "account_disabled"
    assert error_code(harness, sign_in(harness, "not the password")) == "wrong_credentials"
    harness.run(harness.services.accounts.enable("alice@example.com"))
    assert harness.run(harness.services.sessions.find_member(alice)) is None
    assert harness.run(sign_in(harness))


def test_session_events_are_logged(harness: Harness, alice: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    harness.run(sign_in(harness))
    guess(harness, 1)
    guess(harness, 1, email="bob@example.com")
    harness.run(harness.services.sessions.sign_out(alice))
    assert caplog.messages == [
        "Account 1 signed in",
        "Wrong password for account 1",
        "Wrong password for an unknown email",
        "Ended a session of account 1",
    ]
    assert alice not in caplog.text
