"""Random operations of several callers, compared with a small model of the specification.

The model consists of plain dictionaries and shares no code with the service. After each step the response must be the
one that the model predicts, and so must the list of each owner.
"""

import json
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from listings.domain import api_keys
from tests.harness import MONTH, START, Harness, Reply

PHASES = (Phase.generate, Phase.shrink)  # explaining a failure takes minutes
LIMIT = 100_000
HOUR = 3600
ROOT = "/api/v1/listings"

# Model


class Sent(NamedTuple):
    """A request; `segment` is the id in the path, and a body of bytes is malformed."""

    method: str
    headers: dict[str, str]
    segment: str | None = None
    body: Any = None


class Expected(NamedTuple):
    """The predicted response; without `content` it is any error message that names the `invalid` fields."""

    status: int
    content: Any = None
    code: str | None = None
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    invalid: tuple[str, ...] = ()


class RejectedError(Exception):
    """The model rejects a request."""

    def __init__(self, status: int, code: str, invalid: tuple[str, ...] = ()) -> None:
        super().__init__(code)
        self.expected = Expected(status, None, code, {}, invalid)


RECORD = (
    *("id", "title", "content", "type", "category", "images", "price", "price_type", "location", "region"),
    *("is_active", "view_count", "created_at", "updated_at"),
)
LENGTHS = {"title": 255, "content": 100_000, "category": 100, "location": 255, "region": 100, "district": 100}
WORDS = {
    "type": ("product", "service", "rental", "job"),
    "price_type": ("fixed", "negotiable", "per_hour", "per_night"),
}
DEGREES = {"latitude": 90, "longitude": 180}
EMPTY: dict[str, Any] = {"category": "", "images": [], "price": 0.0, "price_type": "fixed"}
OPTIONAL_DEFAULTS = EMPTY | {"location": "", "region": "", "district": "", "latitude": None, "longitude": None}
REQUIRED_DEFAULTS: dict[str, Any] = {  # null cannot clear these
    "title": None,
    "content": None,
    "type": "product",
    "is_active": True,
}
ABSOLUTE = ("https://a.example/1.jpg", "HTTP://b.example:81/ü?q#f", "https://a.example/1.jpg#" + "x" * 2024)
RELATIVE = ("b.jpg", "/pictures/c.jpg", "//d.example/e.jpg")


def is_allowed(name: str, value: Any, *, strict: bool) -> bool:
    """Apply the decisions G2 to G5 to one field of a body."""
    if name in LENGTHS:
        blank = name in REQUIRED_DEFAULTS and isinstance(value, str) and not value.strip()
        return isinstance(value, str) and len(value) <= LENGTHS[name] and "\0" not in value and not blank
    if name in WORDS:
        return value in WORDS[name]
    if name == "images":
        known = ABSOLUTE if strict else ABSOLUTE + RELATIVE
        return isinstance(value, list) and len(value) <= 50 and all(address in known for address in value)
    if name == "is_active" or isinstance(value, bool) or not isinstance(value, int | float):
        return name == "is_active" and isinstance(value, bool)
    if name == "price":
        cents = round(Fraction(value) * 100)
        noise = abs(Fraction(value) - Fraction(cents, 100))
        return value >= 0 and cents <= 99_999_999_999 and noise <= Fraction("0.000001")
    return -DEGREES[name] <= value <= DEGREES[name]


class Model:
    """Plans, keys and listings, including deleted listings."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.plans: dict[int, float] = {}  # when each account's plan ends
        self.keys: dict[str, tuple[int, float]] = {}  # the account, and the end of the key's validity
        self.listings: dict[str, dict[str, Any]] = {}
        self.counted: Counter[str] = Counter()
        self.edits: Counter[int] = Counter()

    def respond(self, sent: Sent) -> Expected:
        """Apply a request and return its response."""
        limits: dict[str, str] = {}
        try:
            account = self._authenticate(sent, limits)
            expected = self._act(sent, account)
        except RejectedError as rejected:
            expected = rejected.expected
        return expected._replace(headers={**expected.headers, **limits})

    def listed(self, account: int) -> list[dict[str, Any]]:
        """Return the active listings of an account, newest first."""
        own = [one for one in self.listings.values() if one["account"] == account and one["is_active"]]
        return [self.record(one) for one in sorted(own, key=lambda one: -int(one["id"]))]

    def record(self, listing: dict[str, Any]) -> dict[str, Any]:
        """Return the fourteen fields in their order."""
        times = {name: f"{datetime.fromtimestamp(listing[name], UTC):%Y-%m-%d %H:%M:%S}" for name in RECORD[-2:]}
        return {name: times.get(name, listing[name]) for name in RECORD}

    def _authenticate(self, sent: Sent, limits: dict[str, str]) -> int:
        scheme, _, bearer = sent.headers.get("Authorization", "").strip().partition(" ")
        key = sent.headers.get("X-API-Key", "").strip() or (bearer.strip() if scheme.lower() == "bearer" else "")
        account, valid_until = self.keys.get(key, (0, 0.0))
        if self.now >= valid_until:
            raise RejectedError(401, "invalid_api_key" if key else "api_key_required")
        self.counted[key] += 1
        limits["x-ratelimit-remaining"] = str(LIMIT - self.counted[key])
        if self.now >= self.plans[account]:
            raise RejectedError(403, "plan_expired")
        return account

    def _act(self, sent: Sent, account: int) -> Expected:
        if sent.segment is None:
            if sent.method == "POST":
                return self._create(sent, account)
            tag = f'"s{self.edits[account]}.{account}-r{self.edits[account]}"'
            return Expected(200, {"listings": self.listed(account)}, None, {"etag": tag})
        listing = self.listings.get(sent.segment)
        if listing is None:
            raise RejectedError(404, "listing_not_found")
        if listing["account"] != account:
            raise RejectedError(403, "not_owner")
        if listing["deleted"]:
            raise RejectedError(404, "listing_not_found")
        if sent.method == "DELETE":
            listing.update(deleted=True, is_active=False)
            self.edits[account] += 1
            return Expected(200, {"message": "listing deleted"})
        if sent.body is None:
            return Expected(200, self.record(listing), None, {"etag": build_etag(listing)})
        return self._update(sent, listing)

    def _create(self, sent: Sent, account: int) -> Expected:
        values, headers = self._read(sent, new=True)
        serial = 1 + sum(one["account"] == account for one in self.listings.values())
        listing_id = serial * 1024 + account % 1024
        fixed = {"id": listing_id, "account": account, "deleted": False, "view_count": 0, "version": 1}
        self.edits[account] += 1
        times = {"created_at": int(self.now), "updated_at": int(self.now)}
        self.listings[str(listing_id)] = {**REQUIRED_DEFAULTS, **OPTIONAL_DEFAULTS, **values, **fixed, **times}
        headers |= {"location": f"{ROOT}/{listing_id}", "etag": build_etag(self.listings[str(listing_id)])}
        return Expected(201, {"id": listing_id, "message": "listing created"}, None, headers)

    def _update(self, sent: Sent, listing: dict[str, Any]) -> Expected:
        values, headers = self._read(sent, new=False)
        if any(listing[name] != value for name, value in values.items()):
            listing.update(values, updated_at=max(int(self.now), listing["updated_at"]), version=listing["version"] + 1)
            self.edits[listing["account"]] += 1
        return Expected(200, {"message": "listing updated"}, None, headers | {"etag": build_etag(listing)})

    def _read(self, sent: Sent, *, new: bool) -> tuple[dict[str, Any], dict[str, str]]:
        if not isinstance(sent.body, dict):
            raise RejectedError(400, "malformed_json")
        strict = "Prefer" in sent.headers
        ignored = [name for name in sent.body if name not in OPTIONAL_DEFAULTS and name not in REQUIRED_DEFAULTS]
        nulls = [name for name, value in sent.body.items() if value is None and (new or name in OPTIONAL_DEFAULTS)]
        values = {name: value for name, value in sent.body.items() if name not in ignored and name not in nulls}
        wrong = [name for name, value in values.items() if not is_allowed(name, value, strict=strict)]
        wrong += [name for name in ("title", "content") if new and name not in values]
        if wrong or (strict and ignored):
            raise RejectedError(400, "invalid_request", tuple(wrong + ignored if strict else wrong))
        if "price" in values:
            values["price"] = round(Fraction(values["price"]) * 100) / 100
        values.update({} if new else {name: OPTIONAL_DEFAULTS[name] for name in nulls})
        headers = {"x-ignored-fields": ", ".join(quote(name, safe="") for name in ignored)} if ignored else {}
        return values, headers | ({"preference-applied": "handling=strict"} if strict else {})


def build_etag(listing: dict[str, Any]) -> str:
    """Return the version and the number of views as an ETag (decision G35)."""
    return f'"v{listing["version"]}.0"'


# Requests


def mostly(usual: st.SearchStrategy[Any], *rare: Any) -> st.SearchStrategy[Any]:
    """Draw from `usual`, and in one of twelve draws from `rare`."""
    return st.integers(0, 11).flatmap(lambda number: st.sampled_from(rare) if number == 7 else usual)


def text(longest: int, *bad: Any) -> st.SearchStrategy[Any]:
    edges = st.sampled_from(["Bicycle", " kept as it is\n", "from\x0bWord", "🚲" * min(longest, 300)])
    too_long = ["x" * (longest + 1)] if longest < 300 else []  # a too long content would take too much time
    return mostly(st.one_of(edges, st.text(min_size=1, max_size=5)), None, "nul\0", 5, *too_long, *bad)


CENTS = st.one_of(
    st.integers(0, 10**11).map(lambda cents: cents / 100),
    st.sampled_from([0, -0.0, 0.1 + 0.2, 1250, 19.99, 999_999_999.99, 1e-7]),
)
BAD_PRICES = (-0.01, 1_000_000_000, 999_999_999.995, 0.005, 19.999, 10**40, "12", True, [1])
ADDRESSES = st.lists(st.sampled_from(ABSOLUTE + RELATIVE), max_size=3)
BAD_IMAGES: tuple[Any, ...] = (
    *(["ftp://a.example/1.jpg"], ["https://"], ["https://me@a.example/1.jpg"], ["javascript:alert(1)"], ["a b"]),
    *(["a\\b"], [""], [5], ["b.jpg"] * 51, ["x" * 2049], "b.jpg", {}),
)
REQUIRED = {"title": text(255, "", " \t\n", "\u3000"), "content": text(100_000, "", " ", ["c"])}
OPTIONAL = {
    "type": mostly(st.sampled_from(WORDS["type"]), None, "", "Product", 1),
    "category": text(100),
    "images": mostly(st.one_of(ADDRESSES, st.just(["b.jpg"] * 50)), None, *BAD_IMAGES),
    "price": mostly(mostly(CENTS, 0.005, 19.999), None, *BAD_PRICES),
    "price_type": mostly(st.sampled_from(WORDS["price_type"]), None, "", "free", 0),
    "location": text(255),
    "region": text(100),
    "district": text(100),
    "latitude": mostly(st.sampled_from([-90, 90, -41.29, 0, -0.0]), None, 90.01, "1", [1]),
    "longitude": mostly(st.sampled_from([-180, 180, 174.77]), None, -181, {}),
    "is_active": mostly(st.booleans(), None, 1, "true"),
}
IGNORED = {
    "id": st.just(7),
    "view_count": st.sampled_from([99, None]),
    "updated_at": st.just("2020-01-01 00:00:00"),
    "größe, in %": st.just({"deep": [1, {"title": "no"}]}),
}
MALFORMED = st.sampled_from(
    [b"", b"{", b"\xff", b'{"title": "a", "content": "b"} x', b'{"price": NaN}', b'{"title": "\\ud800"}', b"title=a"]
)
OTHER_JSON = st.sampled_from([[], ["title"], "title", 5, True])
CREATES = st.fixed_dictionaries(REQUIRED, optional=OPTIONAL | IGNORED)
CHANGES = st.fixed_dictionaries({}, optional=REQUIRED | OPTIONAL | IGNORED)
NOT_OBJECTS = st.one_of(MALFORMED, OTHER_JSON)

WRONG_KEY = "an-unknown-key-of-another-system"
NOT_IDS = (
    "0",
    "1",
    "007",
    "-1025",
    "+1025",
    "1025.0",
    "1e3",
    "abc",
    "%20",
    "٣",
    "1024",
    str(2**63 - 1),
    str(2**63),
)
USUAL_FORMS: tuple[dict[str, str], ...] = ({"X-API-Key": "{}"}, {"Authorization": "Bearer {}"})
FORMS: tuple[dict[str, str], ...] = (
    {"Authorization": "bEARER   {} "},
    {"X-API-Key": " {} ", "Authorization": f"Bearer {WRONG_KEY}"},
    {"X-API-Key": WRONG_KEY, "Authorization": "Bearer {}"},
    {"X-API-Key": " \t", "Authorization": "Bearer {}"},
    {"Authorization": "Basic {}"},
    {"Cookie": "X-API-Key={}"},
)

OWNERS = st.sampled_from(["alice", "alice", "bob"])
WHO = mostly(OWNERS, "charlie", "dora", "former", "brief", "mistyped", "unknown", "nobody")
HOW = mostly(st.sampled_from(USUAL_FORMS), *FORMS)
WHICH = mostly(st.integers(0, 30), *NOT_IDS)
SLASH = st.sampled_from(["", "", "/"])
PREFERENCE = st.sampled_from([{}, {}, {"Prefer": "handling=strict"}])
CHANGING = st.sampled_from(["PUT", "PATCH"])


class RandomRequests(RuleBasedStateMachine):
    """Sends random requests of several callers, to the service and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(TemporaryDirectory()))
        self.harness = self.stack.enter_context(Harness(folder, rate_limit=str(LIMIT)))
        self.model = Model(START)
        self.accounts: dict[str, int] = {}
        self.keys = {"unknown": WRONG_KEY, "nobody": ""}
        for name, plan_ends_in in {"alice": 12 * MONTH, "bob": 12 * MONTH, "charlie": -MONTH, "dora": -MONTH}.items():
            self.accounts[name] = self.harness.person(name, plan_ends_in).account.id
            self.model.plans[self.accounts[name]] = START + plan_ends_in
            self.add_key(name)
        self.set_plan("dora", None)
        self.keys["former"] = self.keys["alice"]
        self.replace_key("alice")
        self.add_key("bob", "brief", expires_at=START + HOUR)
        self.keys["mistyped"] = self.keys["alice"][:-1] + ("0" if self.keys["alice"][-1] != "0" else "1")

    def add_key(self, owner: str, name: str = "", expires_at: int | None = None) -> None:
        account = self.harness.run(self.harness.services.accounts.find(str(self.accounts[owner])))
        issued = self.harness.run(self.harness.services.keys.add(account, "test", api_keys.generate(), expires_at))
        self.keys[name or owner] = issued.secret
        valid_until = float("inf") if expires_at is None else expires_at
        self.model.keys[issued.secret] = (account.id, valid_until)

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

    def send(self, sent: Sent, who: str, slash: str = "") -> Reply:
        """Send a request with the key of `who`, and compare the response with that of the model."""
        sent = sent._replace(headers={name: form.format(self.keys[who]) for name, form in sent.headers.items()})
        body = sent.body if isinstance(sent.body, bytes) else json.dumps(sent.body).encode()
        path = ROOT + (f"/{sent.segment}" if sent.segment is not None else "") + slash
        reply = self.harness.fetch(sent.method, path, body=b"" if sent.body is None else body, headers=sent.headers)
        compare(reply, self.model.respond(sent), head=sent.method == "HEAD")
        return reply

    def segment(self, which: int | str, who: str) -> str:
        """Return `which` if it is a string, otherwise an existing listing, usually of the caller."""
        if isinstance(which, str):
            return which
        account = self.accounts.get(who)
        segments = [segment for segment, one in self.model.listings.items() if which >= 20 or one["account"] == account]
        return segments[which % len(segments)] if segments else "1025"

    @initialize()
    def create_listings_of_both_owners(self) -> None:
        for owner in ("alice", "alice", "bob"):
            self.send(Sent("POST", USUAL_FORMS[0], None, {"title": "Chair", "content": "Oak."}), owner)

    @rule(who=WHO, how=HOW, slash=SLASH)
    def read_the_list(self, who: str, how: dict[str, str], slash: str) -> None:
        self.read(Sent("GET", how), who, slash)

    @rule(who=WHO, how=HOW, slash=SLASH, which=WHICH)
    def read_one(self, who: str, how: dict[str, str], slash: str, which: int | str) -> None:
        self.read(Sent("GET", how, self.segment(which, who)), who, slash)

    def read(self, sent: Sent, who: str, slash: str) -> None:
        reply, head = self.send(sent, who, slash), self.send(sent._replace(method="HEAD"), who, slash)
        assert head.headers["content-length"] == reply.headers["content-length"]

    @rule(who=WHO, how=HOW, slash=SLASH, body=CREATES, prefer=PREFERENCE)
    def create(self, who: str, how: dict[str, str], slash: str, body: Any, prefer: dict[str, str]) -> None:
        self.send(Sent("POST", how | prefer, None, body), who, slash)

    @rule(who=OWNERS, body=st.one_of(CHANGES, NOT_OBJECTS))
    def create_with_missing_fields(self, who: str, body: Any) -> None:
        self.send(Sent("POST", USUAL_FORMS[0], None, body), who)

    @rule(who=WHO, how=HOW, which=WHICH, method=CHANGING, body=CHANGES, prefer=PREFERENCE)
    def update(
        self, who: str, how: dict[str, str], which: int | str, method: str, body: Any, prefer: dict[str, str]
    ) -> None:
        self.send(Sent(method, how | prefer, self.segment(which, who), body), who)

    @rule(who=OWNERS, which=WHICH, method=CHANGING, name=st.sampled_from([*REQUIRED, *OPTIONAL]), data=st.data())
    def update_one_field(self, who: str, which: int | str, method: str, name: str, data: st.DataObject) -> None:
        body = {name: data.draw((REQUIRED | OPTIONAL)[name])}
        self.send(Sent(method, USUAL_FORMS[0], self.segment(which, who), body), who)

    @rule(who=WHO, which=WHICH, method=CHANGING, body=NOT_OBJECTS)
    def update_without_an_object(self, who: str, which: int | str, method: str, body: Any) -> None:
        self.send(Sent(method, USUAL_FORMS[1], self.segment(which, who), body), who)

    @rule(who=OWNERS, which=WHICH, method=CHANGING)
    def send_back_a_record(self, who: str, which: int | str, method: str) -> None:
        reply = self.send(Sent("GET", USUAL_FORMS[0], self.segment(which, who)), who)
        if reply.status == 200:
            self.send(Sent(method, USUAL_FORMS[0], self.segment(which, who), reply.json()), who)

    @rule(who=WHO, how=HOW, slash=SLASH, which=WHICH)
    def delete(self, who: str, how: dict[str, str], slash: str, which: int | str) -> None:
        self.send(Sent("DELETE", how, self.segment(which, who)), who, slash)

    @rule(seconds=st.sampled_from([0.4, 59.7, HOUR, MONTH, -90, -2 * HOUR]))
    def time_passes(self, seconds: float) -> None:
        self.harness.clock.advance(seconds)
        self.model.now += seconds

    @rule(who=st.sampled_from(["alice", "bob", "charlie", "dora"]), seconds=st.sampled_from([-1, 0, 1, HOUR, None]))
    def change_plan_end(self, who: str, seconds: int | None) -> None:
        self.set_plan(who, None if seconds is None else int(self.model.now) + seconds)

    @rule(who=OWNERS)
    def replace_a_key(self, who: str) -> None:
        self.keys["former"] = self.keys[who]
        self.replace_key(who)

    @rule()
    def renew_all_plans_and_read_all_listings(self) -> None:
        for owner in ("alice", "bob", "charlie", "dora"):
            self.set_plan(owner, int(self.model.now) + 12 * MONTH)
            for segment, listing in self.model.listings.items():
                if listing["account"] == self.accounts[owner]:
                    self.send(Sent("GET", USUAL_FORMS[1], segment), owner)

    @invariant()
    def lists_equal_those_of_the_model(self) -> None:
        for owner in ("alice", "bob"):
            self.send(Sent("GET", USUAL_FORMS[0]), owner)

    def teardown(self) -> None:
        self.stack.close()


def compare(reply: Reply, expected: Expected, *, head: bool) -> None:
    """Compare status, body and headers exactly, except for the message of an error."""
    assert reply.status == expected.status, reply
    assert reply.headers.get("x-error-code") == expected.code, reply
    for name in ("etag", "location", "x-ignored-fields", "preference-applied", "x-ratelimit-remaining"):
        assert reply.headers.get(name) == expected.headers.get(name), (name, reply)
    assert ("www-authenticate" in reply.headers) == (reply.status == 401)
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    assert reply.headers["cache-control"] == ("private, no-cache" if "etag" in expected.headers else "no-store")
    assert reply.headers["x-request-id"]
    if head:
        assert reply.body == b""
        return
    assert reply.headers["content-length"] == str(len(reply.body))
    content = reply.json()
    if expected.content is not None:
        assert json.dumps(content) == json.dumps(expected.content)  # compares order and types of numbers too
    else:
        assert list(content) == ["error"]
        assert all(json.dumps(name, ensure_ascii=False)[1:-1] in content["error"] for name in expected.invalid), content
        assert content["error"].strip()


@pytest.mark.every_engine
@pytest.mark.slow
@pytest.mark.uncovered
def test_the_service_responds_as_the_model_of_the_specification() -> None:
    limits = settings(max_examples=25, stateful_step_count=40, report_multiple_bugs=False, phases=PHASES)
    run_state_machine_as_test(RandomRequests, settings=limits)
