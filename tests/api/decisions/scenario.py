"""The language of the decision cases: a scene, steps that act on it, and checks of the last response."""

import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from listings.domain import api_keys
from listings.domain.model import KeyAccess
from tests.harness import Harness, Person, Reply, fetch

ROOT = "/api/v1/listings"
CHAIR: dict[str, Any] = {
    "title": "Chair",
    "content": "Oak.",
    "price": 45,
    "region": "Otago",
    "images": ["https://a.example/1.jpg"],
}
LAMP = {"title": "Lamp", "content": "Brass."}
EMPTY: dict[str, Any] = {
    "type": "product",
    "category": "",
    "images": [],
    "price": 0,
    "price_type": "fixed",
    "location": "",
    "region": "",
}
RECORD_FIELDS = ["id", "title", "content", *EMPTY, "is_active", "view_count", "created_at", "updated_at"]


class Scene:
    """A service in which alice and bob have listings; charlie's plan has expired.

    Paths refer to listings by name: {own} and {deleted} are alice's, {foreign} and {foreign_deleted} bob's, {new} is
    the latest that a case has created, and {missing} does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stack = ExitStack()
        self.people: dict[str, Person] = {}
        self.ids: dict[str, int] = {"missing": 1024 * 1024 + 1}

    def open(self, **flags: str) -> None:
        """Start the service, or restart it on the same data."""
        self.stack.close()
        self.harness = self.stack.enter_context(Harness(self.folder, **flags))

    def fill(self) -> None:
        """Create the accounts and their listings."""
        self.people = self.harness.cast()._asdict()
        for owner, own, deleted in (("alice", "own", "deleted"), ("bob", "foreign", "foreign_deleted")):
            for name in (own, deleted):
                self.ids[name] = self.fetch("POST", json=CHAIR, who=owner).json()["id"]
            self.fetch("DELETE", f"/{{{deleted}}}", who=owner)

    def fetch(self, method: str, path: str = "", *, who: str = "alice", **more: Any) -> Reply:
        """Send a request; a path that does not start with /api is below the listings."""
        key = self.people[who].key if who else None
        path = path if path.startswith("/api") else ROOT + path
        reply = self.harness.fetch(method, path.format(**self.ids), key=key, **more)
        if reply.status == 201:
            self.ids["new"] = reply.json()["id"]
        return reply


Step: TypeAlias = Callable[[Scene], Reply | None]
Check: TypeAlias = Callable[[Scene, Reply], None]


class Case(NamedTuple):
    """One situation of a decision: steps, the last of which sends a request, and its expected response."""

    decision: str
    situation: str
    steps: tuple[Step, ...]
    status: int
    checks: tuple[Check, ...]
    every_engine: bool = False


def case(decision: str, situation: str, *steps: Step, expect: tuple[Any, ...]) -> Case:
    """Return a case whose response does not depend on the database engine.

    `expect` is the status followed by checks.
    """
    return Case(decision, situation, steps, expect[0], expect[1:])


def stored_case(decision: str, situation: str, *steps: Step, expect: tuple[Any, ...]) -> Case:
    """Return a case that depends on stored data, so it runs on every engine."""
    return Case(decision, situation, steps, expect[0], expect[1:], every_engine=True)


# Steps


def send(method: str, path: str = "", **more: Any) -> Step:
    """Send a request with alice's key, or with that of `who`; "" sends no key."""
    return lambda scene: scene.fetch(method, path, **more)


def create(**fields: Any) -> Step:
    return send("POST", json={**LAMP, **fields})


def create_with_key(key: str = "k", who: str = "alice", **fields: Any) -> Step:
    """Create with an Idempotency-Key."""
    return send("POST", json={**LAMP, **fields}, headers={"Idempotency-Key": key}, who=who)


def update(**fields: Any) -> Step:
    return send("PATCH", "/{own}", json=fields)


def read(name: str = "own", *, method: str = "GET", **more: Any) -> Step:
    return send(method, f"/{{{name}}}", **more)


def get_list(query: str = "", **more: Any) -> Step:
    return send("GET", query, **more)


def get_list_with(*headers: tuple[str, str]) -> Step:
    """Request the list with exactly these headers; {} in them is alice's key."""

    def step(scene: Scene) -> Reply:
        key = scene.people["alice"].key
        sent = [(name.lower().encode(), value.format(key).encode()) for name, value in headers]
        return scene.harness.run(fetch(scene.harness.application, "GET", ROOT, sent, [b""]))

    return step


def get_next_page(query: str, *between: Step, more: str = "") -> Step:
    """Request a page, run the steps `between`, then request the next page, with `more` added to its query."""

    def step(scene: Scene) -> Reply:
        link = scene.fetch("GET", query).headers["link"]
        ids = scene.ids.copy()
        for each in between:
            each(scene)
        scene.ids = ids
        return scene.fetch("GET", link.partition(">")[0][1:] + more)

    return step


def repeat(times: int, step: Step) -> Step:
    def steps(scene: Scene) -> None:
        for _ in range(times):
            step(scene)

    return steps


def wait(seconds: float) -> Step:
    """Advance the clock; a negative number sets it back."""
    return lambda scene: scene.harness.clock.advance(seconds)


def set_plan_end(seconds_from_now: float, who: str = "alice") -> Step:
    def step(scene: Scene) -> None:
        end = int(scene.harness.clock() + seconds_from_now)
        scene.harness.run(scene.harness.services.accounts.set_plan(str(scene.people[who].account.id), end))

    return step


def remove_plan(who: str) -> Step:
    """Let an account never have had a plan."""

    def step(scene: Scene) -> None:
        scene.harness.run(scene.harness.services.accounts.set_plan(str(scene.people[who].account.id), None))

    return step


def revoke_key(who: str) -> Step:
    def step(scene: Scene) -> None:
        scene.harness.run(scene.harness.services.keys.revoke(scene.people[who].key_id))

    return step


def rotate_key(who: str, grace: int, successor: str = "") -> Step:
    """Rotate a key; requests of `successor` have the new one."""

    def step(scene: Scene) -> None:
        issued = scene.harness.run(scene.harness.services.keys.rotate(scene.people[who].key_id, grace))
        scene.people[successor] = Person(scene.people[who].account, issued.secret, issued.key.id)

    return step


def disable_account(who: str) -> Step:
    def step(scene: Scene) -> None:
        scene.harness.run(scene.harness.services.accounts.disable(scene.people[who].account.email))

    return step


def enable_account(who: str) -> Step:
    def step(scene: Scene) -> None:
        scene.harness.run(scene.harness.services.accounts.enable(scene.people[who].account.email))

    return step


def add_key(name: str, secret: str = "", expires_in: int | None = None, access: KeyAccess = "write") -> Step:
    """Add another key to alice's account, for requests of `name`."""

    def step(scene: Scene) -> None:
        account = scene.people["alice"].account
        expires_at = None if expires_in is None else int(scene.harness.clock()) + expires_in
        issued = scene.harness.run(
            scene.harness.services.keys.add(account, name, secret or api_keys.generate(), expires_at, access=access)
        )
        scene.people[name] = Person(account, issued.secret, issued.key.id)

    return step


def mistype_key(scene: Scene) -> None:
    """Let "mistyped" be alice's key with another last character."""
    alice = scene.people["alice"]
    last = "1" if alice.key[-1] == "0" else "0"
    scene.people["mistyped"] = alice._replace(key=alice.key[:-1] + last)


def restart(**flags: str) -> Step:
    return lambda scene: scene.open(**flags)


def close_store(scene: Scene) -> None:
    scene.harness.run(scene.harness.store.close())


def send_back_record(scene: Scene) -> Reply:
    return scene.fetch("PUT", "/{own}", json=scene.fetch("GET", "/{own}").json())


# Checks


def body(**expected: Any) -> Check:
    """The body is exactly this object."""

    def check(_: Scene, reply: Reply) -> None:
        assert reply.json() == expected

    return check


def fields(**expected: Any) -> Check:
    """The body has these fields among others."""

    def check(_: Scene, reply: Reply) -> None:
        assert {name: reply.json()[name] for name in expected} == expected

    return check


def record(name: str = "new", **expected: Any) -> Check:
    """The listing has these fields when it is read afterwards."""

    def check(scene: Scene, _: Reply) -> None:
        fields(**expected)(scene, scene.fetch("GET", f"/{{{name}}}"))

    return check


def row(name: str = "new", **expected: Any) -> Check:
    """The stored listing has these values, deleted or not."""

    def check(scene: Scene, _: Reply) -> None:
        listing = scene.harness.run(scene.harness.store.get_listing(scene.ids[name]))
        assert {attribute: getattr(listing, attribute) for attribute in expected} == expected

    return check


def listed(*expected: str) -> Check:
    """The list contains these listings in this order."""

    def check(scene: Scene, reply: Reply) -> None:
        assert [one["id"] for one in reply.json()["listings"]] == [scene.ids[name] for name in expected]

    return check


def listed_count(count: int) -> Check:
    """The list contains `count` listings, the newest first."""

    def check(_: Scene, reply: Reply) -> None:
        ids = [one["id"] for one in reply.json()["listings"]]
        assert ids == sorted(ids, reverse=True)
        assert len(ids) == count

    return check


def error(code: str, message: str = "") -> Check:
    """The body has the one shape of an error, with this code, and this message if the decision has one."""

    def check(_: Scene, reply: Reply) -> None:
        assert reply.headers["x-error-code"] == code
        assert list(reply.json()) == ["error"]
        assert reply.json()["error"].strip()
        assert message in {"", reply.json()["error"]}

    return check


def header(name: str, pattern: str) -> Check:
    """The whole value of the header matches."""

    def check(_: Scene, reply: Reply) -> None:
        assert re.fullmatch(pattern, reply.headers.get(name, "is missing")), reply.headers

    return check


def no_header(*names: str) -> Check:
    def check(_: Scene, reply: Reply) -> None:
        assert not set(names) & set(reply.headers)

    return check


def record_fields(*more: str) -> Check:
    """The record has the fourteen fields of the specification, followed by `more`."""

    def check(_: Scene, reply: Reply) -> None:
        assert list(reply.json()) == [*RECORD_FIELDS, *more]

    return check


def first_record_fields(*more: str) -> Check:
    """The first record of the list has the fourteen fields, followed by `more`."""

    def check(scene: Scene, reply: Reply) -> None:
        first = json.dumps(reply.json()["listings"][0]).encode()
        record_fields(*more)(scene, reply._replace(body=first))

    return check


def no_body(_: Scene, reply: Reply) -> None:
    assert reply.body == b""


def no_body_but_its_length(_: Scene, reply: Reply) -> None:
    assert reply.body == b""
    assert int(reply.headers["content-length"]) > 0


def id_in_bucket(scene: Scene, reply: Reply) -> None:
    assert reply.json()["id"] & 1023 == scene.people["alice"].account.id & 1023
    assert reply.json()["id"] > scene.ids["own"]


def results(*statuses: int) -> Check:
    """The operations of a batch have these statuses."""

    def check(_: Scene, reply: Reply) -> None:
        assert [result["status"] for result in reply.json()["results"]] == list(statuses)

    return check


def result_fields(number: int = 0, **expected: Any) -> Check:
    """The result of this operation of a batch has these fields among others."""

    def check(_: Scene, reply: Reply) -> None:
        result = reply.json()["results"][number]
        assert {name: result.get(name) for name in expected} == expected

    return check


def invalid(message: str = "") -> tuple[int, Check]:
    """400 for a field or a parameter."""
    return 400, error("invalid_request", message)


MALFORMED = 400, error("malformed_json")
NOT_FOUND = 404, error("listing_not_found", "Listing not found")
NOT_OWNER = 403, error("not_owner", "This listing belongs to another account")
PLAN_EXPIRED = 403, error("plan_expired", "Business plan expired on 2026-08-21; renew at /console/plan")
KEY_NOT_ALLOWED = (
    403,
    error("key_not_allowed", "This key is read-only: send GET or HEAD, or use a key with write access"),
)
DISABLED = 403, error("account_disabled", "This account is disabled")
KEY_REQUIRED = 401, error("api_key_required", "API key is required")
INVALID_KEY = 401, error("invalid_api_key", "Invalid API key")
NO_SUCH_PATH = 404, error("path_not_found")
NOT_ALLOWED = 405, error("method_not_allowed")
RATE_LIMITED = 429, error("rate_limited")
UNSUPPORTED_ENCODING = 415, error("unsupported_encoding")
STALE = (
    412,
    error(
        "precondition_failed",
        "The listing does not match If-Match: read it again and send its current ETag, including the quotes",
    ),
)
