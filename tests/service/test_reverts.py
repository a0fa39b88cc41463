"""How the unfinished reverts of all accounts are continued."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from listings.domain.errors import Problem, Unavailable
from listings.domain.history import OPERATOR
from listings.domain.model import bucket_of
from listings.domain.reverts import FoundScope, Revert, RevertPosition, RevertRequest, RevertStep
from listings.service.history import reverts as reverts_module
from listings.store.reverts import scan
from tests.harness import Harness, Person
from tests.service.members import catch_problem

LISTINGS = "/api/v1/listings"
LISTING = {"title": "Lamp", "content": "Brass."}


class Watched:
    """A store that reverts one listing per step, with hooks."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.steps: list[int] = []
        self.before_step: Callable[[int], Any] | None = None
        self.after_scope: Callable[[], Any] | None = None
        self.before_erasure: Callable[[], Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def choose_revert_step_size(self) -> int:
        return 1

    async def find_revert_scope(self, *arguments: Any) -> FoundScope:
        scope: FoundScope = await self._store.find_revert_scope(*arguments)
        if self.after_scope is not None:
            await self.after_scope()
        return scope

    async def erase_account(self, *arguments: Any) -> bool:
        if self.before_erasure is not None:
            await self.before_erasure()
        return bool(await self._store.erase_account(*arguments))

    async def advance_revert(self, key: Any, *arguments: Any) -> Revert | None:
        self.steps.append(key.account_id)
        if self.before_step is not None:
            await self.before_step(key.account_id)
        revert: Revert | None = await self._store.advance_revert(key, *arguments)
        return revert


@pytest.fixture
def store(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Watched:
    watched = Watched(harness.store)
    monkeypatch.setattr(reverts_module, "MAX_FIRST_LISTINGS", 1)
    monkeypatch.setattr(harness.services.reverts, "_store", watched)
    return watched


async def start(harness: Harness, person: Person) -> Revert:
    request = RevertRequest("key", person.key_id, int(harness.clock()) - 60)
    return (await harness.services.reverts.start(person.account.id, request, OPERATOR))[0]


def create(harness: Harness, person: Person, count: int) -> None:
    for _ in range(count):
        assert harness.fetch("POST", LISTINGS, key=person.key, json=LISTING).status == 201


def begin(harness: Harness, *names: str) -> list[tuple[Person, Revert]]:
    """Start a revert of four listings for each person: of each, one is reverted."""
    people = [harness.person(name) for name in names]
    for person in people:
        create(harness, person, 4)
    return [(person, harness.run(start(harness, person))) for person in people]


def count_listings(harness: Harness, person: Person) -> int:
    return len(harness.fetch("GET", LISTINGS, key=person.key).json()["listings"])


def test_the_previews_of_accounts_take_turns(harness: Harness) -> None:
    alice, bob = harness.person("alice"), harness.person("bob")
    ended: list[Person] = []

    async def preview(person: Person) -> None:
        request = RevertRequest("key", person.key_id, int(harness.clock()) - 60)
        await harness.services.reverts.preview(person.account.id, request)
        ended.append(person)

    async def preview_all() -> None:
        await asyncio.gather(*(preview(alice) for _ in range(20)), preview(bob))

    for person in (alice, bob):
        create(harness, person, 1)
    harness.run(preview_all())
    assert ended.index(bob) <= 2


@pytest.mark.decision("G55")
def test_the_reverts_of_all_accounts_take_turns(
    harness: Harness, store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_MAX_ROWS", 1)
    (alice, _), (bob, _) = begin(harness, "alice", "bob")
    harness.run(harness.services.reverts.run())
    assert store.steps == [alice.account.id, bob.account.id] * 3
    assert [count_listings(harness, person) for person in (alice, bob)] == [0, 0]


def test_a_revert_that_starts_during_a_run_joins_it(
    harness: Harness, store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_MAX_ROWS", 1)
    alice, bob = harness.person("alice"), harness.person("bob")
    create(harness, alice, 6)
    create(harness, bob, 3)
    harness.run(start(harness, alice))

    async def start_bobs(_: int) -> None:
        store.before_step = None
        await start(harness, bob)

    store.before_step = start_bobs
    harness.run(harness.services.reverts.run())
    first, second = alice.account.id, bob.account.id
    assert store.steps == [first, first, second, first, second, first, first]
    assert [count_listings(harness, person) for person in (alice, bob)] == [0, 0]


def test_a_revert_that_another_process_left_joins_the_run_again(
    harness: Harness, store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_MAX_ROWS", 1)
    (alice, _), (bob, revert) = begin(harness, "alice", "bob")

    async def lease_bobs(account_id: int) -> None:
        harness.clock.advance(4)
        if account_id == bob.account.id and store.steps.count(account_id) == 1:
            step = RevertStep(RevertPosition(0, 0), [], RevertPosition(0, 0), is_last=False)  # only takes the lease
            await harness.store.advance_revert(revert.key, step, b"another process", int(harness.clock()))

    store.before_step = lease_bobs
    harness.run(harness.services.reverts.run())
    assert [count_listings(harness, person) for person in (alice, bob)] == [0, 0]


def test_a_revert_that_fails_does_not_stop_the_others(
    harness: Harness, store: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    (alice, revert), (bob, _) = begin(harness, "alice", "bob")

    async def fail(account_id: int) -> None:
        if account_id == alice.account.id:
            raise ZeroDivisionError

    store.before_step = fail
    harness.run(harness.services.reverts.run())
    assert store.steps == [alice.account.id, *[bob.account.id] * 3]
    assert caplog.messages[-1] == f"The revert {revert.key.id} of account {alice.account.id} failed"
    assert [count_listings(harness, person) for person in (alice, bob)] == [3, 0]


def test_a_revert_that_fails_is_tried_again_a_minute_later(harness: Harness, store: Watched) -> None:
    [(alice, _)] = begin(harness, "alice")

    async def fail(_: int) -> None:
        store.before_step = None
        raise ZeroDivisionError

    store.before_step = fail
    for seconds in (0, 59, 1):
        harness.clock.advance(seconds)
        harness.run(harness.services.reverts.run())
        assert count_listings(harness, alice) == (0 if seconds == 1 else 3)


def test_a_run_ends_if_the_store_is_unavailable(harness: Harness, store: Watched) -> None:
    begin(harness, "alice", "bob")

    async def fail(_: int) -> None:
        raise Unavailable("The database is unavailable")

    store.before_step = fail
    assert catch_problem(harness, harness.services.reverts.run()).code == "unavailable"
    assert len(store.steps) == 1


@pytest.mark.decision("G55")
def test_a_revert_stops_when_its_account_is_disabled(
    harness: Harness, store: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    (alice, revert), (bob, _) = begin(harness, "alice", "bob")
    accounts, reverts = harness.services.accounts, harness.services.reverts

    async def disable(_: int) -> None:
        store.before_step = None
        await accounts.disable(str(alice.account.id))

    store.before_step = disable
    harness.run(reverts.run())
    assert store.steps == [alice.account.id, *[bob.account.id] * 3]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert catch_problem(harness, reverts.finish(revert)).code == "account_disabled"
    harness.run(accounts.enable(str(alice.account.id)))
    assert count_listings(harness, alice) == 3
    harness.run(reverts.run())
    assert count_listings(harness, alice) == 0


@pytest.mark.parametrize("erase", ["own_account", "operator"])
def test_an_erasure_leaves_no_listing_that_a_revert_restored(
    harness: Harness, store: Watched, monkeypatch: pytest.MonkeyPatch, erase: str
) -> None:
    alice = harness.person("alice")
    create(harness, alice, 3)
    harness.clock.advance(100)
    for one in harness.fetch("GET", LISTINGS, key=alice.key).json()["listings"]:
        assert harness.fetch("DELETE", f"{LISTINGS}/{one['id']}", key=alice.key).status == 200
    services, account_id = harness.services, alice.account.id
    harness.run(start(harness, alice))
    assert count_listings(harness, alice) == 1
    monkeypatch.setattr(services.accounts, "_store", store)
    store.before_erasure = services.reverts.run
    if erase == "own_account":
        harness.run(harness.store.close_account(account_id, int(harness.clock())))
        harness.run(services.own_account.erase_closed())
    else:
        harness.run(services.accounts.erase(str(account_id)))
    counts = harness.run(harness.store.count_listings(bucket_of(account_id), account_id))
    assert (counts.active, counts.inactive, counts.deleted) == (0, 0, 3)


def test_a_running_revert_is_not_reverted_even_if_it_finishes_meanwhile(harness: Harness, store: Watched) -> None:
    ((alice, revert),) = begin(harness, "alice")
    reverts = harness.services.reverts
    store.after_scope = reverts.run
    undo = reverts.start(alice.account.id, RevertRequest("revert", revert.key.id), OPERATOR)
    with pytest.raises(Problem, match="is not finished"):
        harness.run(undo)
    store.after_scope = None
    harness.run(reverts.run())
    undone, _ = harness.run(reverts.start(alice.account.id, RevertRequest("revert", revert.key.id), OPERATOR))
    harness.run(reverts.finish(undone))
    assert count_listings(harness, alice) == 4
