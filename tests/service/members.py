"""What tests of members share: passwords, addresses, and helpers to sign in and to guess."""

from typing import Any

import pytest

from listings.domain.errors import Problem
from listings.service.members.sessions import Member
from tests.harness import Harness

PASSWORD = "a long and winding road"
HERE, THERE = "192.0.2.1", "198.51.100.7"
DAY = 24 * 3600


def catch_problem(harness: Harness, task: Any) -> Problem:
    with pytest.raises(Problem) as caught:
        harness.run(task)
    return caught.value


def error_code(harness: Harness, task: Any) -> str:
    return catch_problem(harness, task).code


def find_member(harness: Harness, token: str) -> Member:
    member = harness.run(harness.services.sessions.find_member(token))
    assert member is not None
    return member


def sign_in(
    harness: Harness,
    password: str = PASSWORD,
    address: str = HERE,
    email: str = "alice@example.com",
    *,
    device: str = "",
) -> Any:
    return harness.services.sessions.sign_in(email, password, address, "Firefox", device=device)


def guess(
    harness: Harness, times: int, address: str = HERE, email: str = "alice@example.com", *, device: str = ""
) -> list[str]:
    return [
        error_code(harness, sign_in(harness, f"wrong password {time}", address, email, device=device))
        for time in range(times)
    ]


def find_member_with_plan(harness: Harness, token: str) -> Member:
    account = find_member(harness, token).account
    harness.run(harness.services.accounts.extend_plan(str(account.id), 1))
    return find_member(harness, token)
