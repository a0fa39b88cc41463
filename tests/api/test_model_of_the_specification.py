"""Random writes and reads of several callers, compared with a small model of listings, keys and plans.

The model consists of plain dictionaries and shares no code with the service. After each step the response must be the
one that the model predicts, and so must the list of each owner. Which values, headers and bodies are valid is tested
per endpoint.
"""

import json
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from listings.domain import api_keys
from tests.api.helpers import LISTINGS
from tests.harness import MONTH, START, Harness, Reply

PHASES = (Phase.generate, Phase.shrink)  # explaining a failure takes minutes
HOUR = 3600
DEFAULTS: dict[str, Any] = {
    "type": "product",
    "category": "",
    "images": [],
    "price": 0.0,
    "price_type": "fixed",
    "location": "",
    "region": "",
    "is_active": True,
}


class Expected(NamedTuple):
    """The predicted response. `content` is None for an error, whose text is not predicted."""

    status: int
    content: Any = None
    code: str | None = None
    etag: str | None = None


class RejectedError(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.expected = Expected(status, code=code)


class Model:
    """Plans, keys and listings, including deleted listings."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.plans: dict[int, float] = {}  # when each account's plan ends
        self.keys: dict[str, tuple[int, float]] = {}  # the account, and the end of the key's validity
        self.listings: dict[int, dict[str, Any]] = {}
        self.edits: dict[int, int] = {}

    def respond(self, method: str, key: str, listing_id: int | None, body: dict[str, Any] | None) -> Expected:
        try:
            account = self._authenticate(key)
            if listing_id is None:
                return self._list(account) if body is None else self._create(account, body)
            listing = self._find(account, listing_id)
        except RejectedError as rejected:
            return rejected.expected
        if method == "DELETE":
            listing.update(deleted=True, is_active=False)
            self.edits[account] += 1
            return Expected(200, {"message": "listing deleted"})
        if body is None:
            return Expected(200, build_record(listing), etag=build_etag(listing))
        return self._update(listing, body)

    def _authenticate(self, key: str) -> int:
        account, valid_until = self.keys.get(key, (0, 0.0))
        if self.now >= valid_until:
            raise RejectedError(401, "invalid_api_key" if key else "api_key_required")
        if self.now >= self.plans[account]:
            raise RejectedError(403, "plan_expired")
        return account

    def _find(self, account: int, listing_id: int) -> dict[str, Any]:
        listing = self.listings.get(listing_id)
        if listing is not None and listing["account"] != account:
            raise RejectedError(403, "not_owner")
        if listing is None or listing["deleted"]:
            raise RejectedError(404, "listing_not_found")
        return listing

    def _list(self, account: int) -> Expected:
        """Return the active listings of an account, newest first."""
        own = [one for one in self.listings.values() if one["account"] == account and one["is_active"]]
        records = [build_record(one) for one in sorted(own, key=lambda one: -one["id"])]
        return Expected(200, {"listings": records}, etag=f'"s{self.edits[account]}.{account}-r{self.edits[account]}"')

    def _create(self, account: int, body: dict[str, Any]) -> Expected:
        serial = 1 + sum(one["account"] == account for one in self.listings.values())
        listing_id = serial * 1024 + account % 1024
        fixed = {"id": listing_id, "account": account, "deleted": False, "view_count": 0, "version": 1}
        times = {"created_at": int(self.now), "updated_at": int(self.now)}
        self.listings[listing_id] = {**DEFAULTS, **body, **fixed, **times}
        self.edits[account] += 1
        content = {"id": listing_id, "message": "listing created"}
        return Expected(201, content, etag=build_etag(self.listings[listing_id]))

    def _update(self, listing: dict[str, Any], body: dict[str, Any]) -> Expected:
        values = {name: DEFAULTS[name] if value is None else value for name, value in body.items()}
        if any(listing[name] != value for name, value in values.items()):
            listing.update(values, updated_at=max(int(self.now), listing["updated_at"]), version=listing["version"] + 1)
            self.edits[listing["account"]] += 1
        return Expected(200, {"message": "listing updated"}, etag=build_etag(listing))


def build_record(listing: dict[str, Any]) -> dict[str, Any]:
    """Return the fourteen fields in their order."""
    times = {
        name: f"{datetime.fromtimestamp(listing[name], UTC):%Y-%m-%d %H:%M:%S}" for name in ("created_at", "updated_at")
    }
    names = ("id", "title", "content", *DEFAULTS, "view_count")
    return {name: listing[name] for name in names} | times


def build_etag(listing: dict[str, Any]) -> str:
    """Return the version and the number of views as an ETag (decision G35)."""
    return f'"v{listing["version"]}.0"'


VALUES = {
    "title": st.sampled_from(["Bicycle", "🚲", " Lamp\n"]),
    "content": st.sampled_from(["Two wheels.", "c"]),
    "type": st.sampled_from(["product", "service"]),
    "category": st.sampled_from(["", "Tents", None]),
    "images": st.sampled_from([[], ["https://a.example/1.jpg"], None]),
    "price": st.sampled_from([0.0, 19.99, 450.0, None]),
    "region": st.sampled_from(["Otago", None]),
    "is_active": st.booleans(),
}
CREATES = st.fixed_dictionaries(VALUES).map(
    lambda body: {name: value for name, value in body.items() if value is not None}
)
CHANGES = st.fixed_dictionaries({}, optional=VALUES)
OWNERS = st.sampled_from(["alice", "alice", "bob"])
CALLERS = st.sampled_from([*["alice"] * 6, *["bob"] * 3, "charlie", "former", "brief", "unknown", "nobody"])
LISTING = st.integers(0, 30)


class RandomRequests(RuleBasedStateMachine):
    """Sends random requests of several callers, to the service and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(TemporaryDirectory()))
        self.harness = self.stack.enter_context(Harness(folder, rate_limit="0"))
        self.model = Model(START)
        self.accounts: dict[str, int] = {}
        self.keys = {"unknown": "an-unknown-key-of-another-system", "nobody": ""}
        for name, plan_ends_in in {"alice": 12 * MONTH, "bob": 12 * MONTH, "charlie": -MONTH}.items():
            self.accounts[name] = self.harness.person(name, plan_ends_in).account.id
            self.model.plans[self.accounts[name]] = START + plan_ends_in
            self.model.edits[self.accounts[name]] = 0
            self.add_key(name)
        self.keys["former"] = self.keys["alice"]
        self.replace_key("alice")
        self.add_key("bob", "brief", expires_at=START + HOUR)

    def add_key(self, owner: str, name: str = "", expires_at: int | None = None) -> None:
        account = self.harness.run(self.harness.services.accounts.find(str(self.accounts[owner])))
        issued = self.harness.run(self.harness.services.keys.add(account, "test", api_keys.generate(), expires_at))
        self.keys[name or owner] = issued.secret
        self.model.keys[issued.secret] = (account.id, float("inf") if expires_at is None else expires_at)

    def replace_key(self, owner: str) -> None:
        former = self.keys[owner]
        found = self.harness.run(self.harness.services.keys.find(former))
        assert found is not None
        self.harness.run(self.harness.services.keys.revoke(found.key_id))
        self.model.keys[former] = (self.accounts[owner], 0.0)
        self.add_key(owner)

    def set_plan(self, owner: str, ends_at: int | None) -> None:
        self.harness.run(self.harness.services.accounts.set_plan(str(self.accounts[owner]), ends_at))
        self.model.plans[self.accounts[owner]] = ends_at or 0

    def send(self, method: str, who: str, listing_id: int | None = None, body: dict[str, Any] | None = None) -> None:
        """Send a request with the key of `who`, and compare the response with that of the model."""
        path = LISTINGS if listing_id is None else f"{LISTINGS}/{listing_id}"
        reply = self.harness.fetch(method, path, key=self.keys[who] or None, json=body)
        compare(reply, self.model.respond(method, self.keys[who], listing_id, body))

    def choose(self, which: int, who: str) -> int:
        """Return the id of an existing listing, usually of the caller."""
        account = self.accounts.get(who)
        ids = [id_ for id_, one in self.model.listings.items() if which >= 20 or one["account"] == account]
        return ids[which % len(ids)] if ids else 1025

    @initialize()
    def create_listings_of_both_owners(self) -> None:
        for owner in ("alice", "alice", "bob"):
            self.send("POST", owner, None, {"title": "Chair", "content": "Oak."})

    @rule(who=CALLERS, which=LISTING)
    def read_one(self, who: str, which: int) -> None:
        self.send("GET", who, self.choose(which, who))

    @rule(who=CALLERS, body=CREATES)
    def create(self, who: str, body: dict[str, Any]) -> None:
        self.send("POST", who, None, body)

    @rule(who=CALLERS, which=LISTING, method=st.sampled_from(["PUT", "PATCH"]), body=CHANGES)
    def update(self, who: str, which: int, method: str, body: dict[str, Any]) -> None:
        self.send(method, who, self.choose(which, who), body)

    @rule(who=CALLERS, which=LISTING)
    def delete(self, who: str, which: int) -> None:
        self.send("DELETE", who, self.choose(which, who))

    @rule(seconds=st.sampled_from([0.4, 59.7, HOUR, MONTH, -90, -2 * HOUR]))
    def time_passes(self, seconds: float) -> None:
        self.harness.clock.advance(seconds)
        self.model.now += seconds

    @rule(who=st.sampled_from(["alice", "bob", "charlie"]), seconds=st.sampled_from([-1, 0, 1, HOUR, None]))
    def change_plan_end(self, who: str, seconds: int | None) -> None:
        self.set_plan(who, None if seconds is None else int(self.model.now) + seconds)

    @rule(who=OWNERS)
    def replace_a_key(self, who: str) -> None:
        self.keys["former"] = self.keys[who]
        self.replace_key(who)

    @rule()
    def renew_all_plans_and_read_all_listings(self) -> None:
        for owner, account in self.accounts.items():
            self.set_plan(owner, int(self.model.now) + 12 * MONTH)
            for listing_id, listing in self.model.listings.items():
                if listing["account"] == account:
                    self.send("GET", owner, listing_id)

    @invariant()
    def lists_equal_those_of_the_model(self) -> None:
        for owner in ("alice", "bob"):
            self.send("GET", owner)

    def teardown(self) -> None:
        self.stack.close()


def compare(reply: Reply, expected: Expected) -> None:
    """Compare status, body and ETag exactly, except for the message of an error."""
    assert reply.status == expected.status, reply
    assert reply.headers.get("x-error-code") == expected.code, reply
    assert reply.headers.get("etag") == expected.etag, reply
    if expected.content is None:
        assert list(reply.json()) == ["error"]
    else:
        assert json.dumps(reply.json()) == json.dumps(expected.content)  # compares order and types of numbers too


@pytest.mark.decision("G10", "G13")
@pytest.mark.every_engine
@pytest.mark.slow
@pytest.mark.uncovered
def test_the_service_responds_as_the_model_of_the_specification() -> None:
    limits = settings(max_examples=25, stateful_step_count=40, report_multiple_bugs=False, phases=PHASES)
    run_state_machine_as_test(RandomRequests, settings=limits)
