"""Invitations and API keys of the console's users, in a whole service."""

import asyncio

import pytest

from listings.domain.errors import Problem
from listings.domain.model import Account
from listings.service import Services
from listings.service.keys import IssuedKey
from tests.harness import MONTH, Harness
from tests.service.members import DAY, PASSWORD, catch_problem, error_code, find_member, find_member_with_plan, sign_in

pytestmark = pytest.mark.decision("G25")

HOUR = 3600


@pytest.fixture
def bob(harness: Harness) -> Account:
    return harness.run(harness.services.accounts.add("Bob", "bob@example.com", None))


def test_an_invitation_sets_a_password_once(harness: Harness, bob: Account) -> None:
    services = harness.services
    token = harness.run(services.invitations.create(bob.email))
    assert harness.run(services.invitations.find(token)) == bob
    assert error_code(harness, services.invitations.accept(token, "short")) == "invalid_request"
    session = harness.run(services.invitations.accept(token, PASSWORD))
    assert find_member(harness, session).account == bob
    assert harness.run(sign_in(harness, email=bob.email))
    assert error_code(harness, services.invitations.accept(token, "yet another password")) == "invitation_invalid"


@pytest.mark.usefixtures("bob")
def test_an_invitation_ends_after_seven_days_or_with_the_next_one(harness: Harness) -> None:
    services = harness.services
    first, second = (harness.run(services.invitations.create("bob@example.com")) for _ in range(2))
    assert error_code(harness, services.invitations.find(first)) == "invitation_invalid"
    harness.clock.advance(7 * DAY - 1)
    assert harness.run(services.invitations.find(second)).email == "bob@example.com"
    harness.clock.advance(1)
    assert error_code(harness, services.invitations.accept(second, PASSWORD)) == "invitation_invalid"
    assert error_code(harness, services.invitations.find("invalid")) == "invitation_invalid"


def test_a_disabled_account_cannot_be_invited(harness: Harness, bob: Account) -> None:
    token = harness.run(harness.services.invitations.create(bob.email))
    harness.run(harness.services.accounts.disable(bob.email))
    assert error_code(harness, harness.services.invitations.find(token)) == "invitation_invalid"
    assert error_code(harness, harness.services.invitations.create(bob.email)) == "account_disabled"


def test_creating_a_key_needs_an_active_plan(harness: Harness, alice: str) -> None:
    member = find_member(harness, alice)
    assert error_code(harness, harness.services.member_keys.create(member, "warehouse")) == "plan_expired"
    issued = harness.run(harness.services.member_keys.create(find_member_with_plan(harness, alice), "warehouse"))
    assert harness.fetch("GET", "/api/v1/listings", key=issued.secret).status == 200
    harness.clock.advance(MONTH)
    token = harness.run(sign_in(harness))
    assert error_code(harness, harness.services.member_keys.create(find_member(harness, token), "b")) == "plan_expired"


def test_creating_or_rotating_a_key_needs_a_recent_confirmation(harness: Harness, alice: str) -> None:
    member = find_member_with_plan(harness, alice)
    harness.clock.advance(15 * 60 - 1)
    issued = harness.run(harness.services.member_keys.create(member, "warehouse"))
    rotated = harness.run(harness.services.member_keys.rotate(member, issued.key.id, 3600))
    harness.clock.advance(1)
    assert error_code(harness, harness.services.member_keys.create(member, "b")) == "confirmation_required"
    assert (
        error_code(harness, harness.services.member_keys.rotate(member, rotated.key.id, 0)) == "confirmation_required"
    )
    assert harness.run(harness.services.member_keys.revoke(member, rotated.key.id)).revoked_at is not None
    token = harness.run(harness.services.sessions.confirm_password(member, PASSWORD))
    assert harness.run(harness.services.member_keys.create(find_member(harness, token), "b")).key.name == "b"


def test_a_rotated_key_stays_valid_for_the_grace_period(harness: Harness, alice: str) -> None:
    member = find_member_with_plan(harness, alice)
    old = harness.run(harness.services.member_keys.create(member, "warehouse"))
    new = harness.run(harness.services.member_keys.rotate(member, old.key.id, 3600))
    assert new.key.name == "warehouse"
    with pytest.raises(Problem, match=r"already rotated: create a new one$"):
        harness.run(harness.services.member_keys.rotate(member, old.key.id, 0))
    statuses = [harness.fetch("GET", "/api/v1/listings", key=key.secret).status for key in (old, new)]
    harness.clock.advance(3600)
    statuses += [harness.fetch("GET", "/api/v1/listings", key=key.secret).status for key in (old, new)]
    assert statuses == [200, 200, 401, 200]
    token = harness.run(harness.services.sessions.confirm_password(member, PASSWORD))
    again = harness.services.member_keys.rotate(find_member(harness, token), old.key.id, 0)
    assert error_code(harness, again) == "key_ended"


def test_keys_of_other_accounts_look_like_unknown_ones(harness: Harness, alice: str) -> None:
    bob = harness.person("bob")
    member = find_member_with_plan(harness, alice)
    unknown = catch_problem(harness, harness.services.member_keys.revoke(member, 999))
    for task in (
        harness.services.member_keys.revoke(member, bob.key_id),
        harness.services.member_keys.rotate(member, bob.key_id, 0),
    ):
        problem = catch_problem(harness, task)
        assert (problem.code, problem.message.replace(str(bob.key_id), "999")) == (unknown.code, unknown.message)
    assert harness.fetch("GET", "/api/v1/listings", key=bob.key).status == 200


def test_an_account_can_create_twenty_active_keys(harness: Harness, alice: str) -> None:
    member = find_member_with_plan(harness, alice)
    keys = [harness.run(harness.services.member_keys.create(member, f"key {number}")) for number in range(20)]
    assert error_code(harness, harness.services.member_keys.create(member, "one more")) == "too_many_keys"
    harness.clock.advance(HOUR)
    member = find_member(harness, harness.run(harness.services.sessions.confirm_password(member, PASSWORD)))
    harness.run(harness.services.member_keys.revoke(member, keys[0].key.id))
    assert harness.run(harness.services.member_keys.create(member, "one more")).key.name == "one more"
    both_valid = harness.services.member_keys.rotate(member, keys[1].key.id, 3600)
    assert error_code(harness, both_valid) == "too_many_keys"
    assert harness.run(harness.services.member_keys.rotate(member, keys[1].key.id, 0)).key.name == "key 1"


def test_twenty_keys_an_hour_are_created_or_rotated(harness: Harness, alice: str) -> None:
    member, keys = find_member_with_plan(harness, alice), harness.services.member_keys
    for _ in range(10):
        harness.clock.advance(60)
        issued = harness.run(keys.create(member, "till"))
        rotated = harness.run(keys.rotate(member, issued.key.id, 0))
        harness.run(keys.revoke(member, rotated.key.id))
    other = harness.run(harness.services.keys.create("alice@example.com", "the operator's"))
    harness.run(harness.services.keys.rotate(other.key.id, 3600))
    for task in (keys.create(member, "one more"), keys.rotate(member, other.key.id, 0)):
        problem = catch_problem(harness, task)
        assert (problem.code, problem.retry_after) == ("too_many_attempts", HOUR - 9 * 60)
        assert problem.message == "Too many new keys in the last hour: wait 51 minutes, then try again"
    assert harness.run(keys.revoke(member, other.key.id)).revoked_at is not None
    harness.clock.advance(HOUR - 9 * 60)
    member = find_member(harness, harness.run(harness.services.sessions.confirm_password(member, PASSWORD)))
    assert harness.run(keys.create(member, "one more")).key.name == "one more"


def test_only_keys_that_are_created_count(harness: Harness, alice: str) -> None:
    member, keys = find_member_with_plan(harness, alice), harness.services.member_keys
    ended = harness.run(keys.create(member, "till", form_id="first"))
    harness.run(keys.revoke(member, ended.key.id))
    for _ in range(20):
        assert error_code(harness, keys.create(member, "")) == "invalid_request"
        assert error_code(harness, keys.create(member, "till", form_id="first")) == "idempotency_key_reused"
        assert error_code(harness, keys.rotate(member, ended.key.id, 0)) == "key_ended"
    for _ in range(19):
        harness.run(keys.create(member, "till"))
    assert error_code(harness, keys.create(member, "one more")) == "too_many_attempts"


def test_several_processes_create_twenty_keys_an_hour_together(harness: Harness, alice: str) -> None:
    member = find_member_with_plan(harness, alice)
    processes = [Services(harness.store, None, harness.clock) for _ in range(3)]

    async def create_and_revoke(number: int) -> None:
        keys = processes[number % 3].member_keys
        issued = await keys.create(member, "till")
        await keys.revoke(member, issued.key.id)

    async def create_all() -> list[object]:
        return list(await asyncio.gather(*map(create_and_revoke, range(30)), return_exceptions=True))

    assert harness.run(create_all()).count(None) == 20


def test_simultaneous_requests_create_no_more_than_twenty_keys(harness: Harness, alice: str) -> None:
    member, keys = find_member_with_plan(harness, alice), harness.services.member_keys
    for number in range(19):
        harness.run(keys.create(member, f"key {number}"))
    harness.clock.advance(HOUR)  # the keys that are created in an hour are limited, too
    member = find_member(harness, harness.run(harness.services.sessions.confirm_password(member, PASSWORD)))

    async def create_all() -> list[object]:
        tasks = [keys.create(member, f"more {number}") for number in range(3)]
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    assert sum(isinstance(result, IssuedKey) for result in harness.run(create_all())) == 1


def test_the_expiry_of_a_key_must_be_in_the_future(harness: Harness, alice: str) -> None:
    member = find_member_with_plan(harness, alice)
    now = int(harness.clock.now)
    assert error_code(harness, harness.services.member_keys.create(member, "a", now)) == "invalid_request"
    assert harness.run(harness.services.member_keys.create(member, "a", now + 1)).key.expires_at == now + 1


def test_session_tokens_and_api_keys_are_not_interchangeable(harness: Harness, alice: str) -> None:
    issued = harness.run(harness.services.member_keys.create(find_member_with_plan(harness, alice), "warehouse"))
    assert harness.fetch("GET", "/api/v1/listings", key=alice).status == 401
    cookie = {"Cookie": f"__Host-listings={alice}; listings_session={alice}"}
    assert harness.fetch("GET", "/api/v1/listings", headers=cookie).status == 401
    assert harness.run(harness.services.sessions.find_member(issued.secret)) is None
