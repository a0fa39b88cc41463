"""The rate limit over the API (decisions G28-G30); tests/contract has the tests of the limiters themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from listings.api.app import Application
from listings.ratelimit.memory import MemoryLimiter
from listings.service import Services
from tests.api.helpers import LISTINGS
from tests.harness import START, Clock, Harness, Person, Reply, fetch

pytestmark = pytest.mark.uncovered

HEADERS = ("ratelimit-policy", "ratelimit", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")

HINT = "; a batch of up to 100 writes counts as one request"


class LimitedApplication:
    """The application with a limiter that uses the clock of the harness."""

    def __init__(self, harness: Harness, limit: int, window: int) -> None:
        self.clock: Clock = harness.clock
        self.alice, self.bob, self.charlie = harness.cast()
        limiter = MemoryLimiter(limit, window, harness.clock)
        self._application = Application(Services(harness.store, limiter, harness.clock))
        self._harness = harness

    def fetch(self, person: Person | None, method: str = "GET", path: str = LISTINGS, body: bytes = b"") -> Reply:
        headers = [] if person is None else [(b"x-api-key", person.key.encode())]
        if body:
            headers.append((b"content-length", b"%d" % len(body)))
        return self._harness.run(fetch(self._application, method, path, headers, [body]))


@pytest.fixture
def five_a_minute(harness: Harness) -> LimitedApplication:
    """An application with a limit of five requests in sixty seconds."""
    return LimitedApplication(harness, 5, 60)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Harness]:
    """A service with settings of five requests in sixty seconds."""
    with Harness(tmp_path, rate_limit="5", rate_window="60") as harness:
        yield harness


def get_limit_headers(reply: Reply) -> dict[str, str]:
    return {name: reply.headers[name] for name in HEADERS if name in reply.headers}


@pytest.mark.decision("G29")
@pytest.mark.parametrize(
    ("who", "method", "path", "body", "status"),
    [
        ("alice", "GET", "", b"", 200),
        ("alice", "HEAD", "", b"", 200),
        ("alice", "POST", "", b'{"title": "a", "content": "b"}', 201),
        ("alice", "POST", "?dry_run=true", b'{"title": "a", "content": "b"}', 200),
        ("alice", "POST", "/batch", b'{"operations": [{"op": "delete", "id": 1}, {"op": "delete", "id": 2}]}', 200),
        ("alice", "POST", "", b"{not json", 400),
        ("alice", "POST", "", b"{}", 400),
        ("alice", "POST", "", b" " * (2 * 1024 * 1024 + 1), 413),
        ("alice", "GET", "/1", b"", 404),
        ("alice", "GET", "/abc", b"", 404),
        ("alice", "PATCH", "/1", b"{}", 404),
        ("alice", "DELETE", "/1", b"", 404),
        ("bob", "GET", "/{alices}", b"", 403),
        ("bob", "PUT", "/{alices}", b"{}", 403),
        ("alice", "GET", "/../key", b"", 200),
        ("alice", "GET", "/../changes", b"", 200),
        ("charlie", "GET", "", b"", 403),
        ("charlie", "POST", "", b"{}", 403),
    ],
)
def test_every_authenticated_request_counts_and_has_the_headers(
    five_a_minute: LimitedApplication, harness: Harness, who: str, method: str, path: str, body: bytes, status: int
) -> None:
    foreign = harness.fetch("POST", LISTINGS, key=five_a_minute.alice.key, json={"title": "a", "content": "b"})
    person: Person = getattr(five_a_minute, who)
    path = (LISTINGS + path.replace("{alices}", str(foreign.json()["id"]))).replace("/listings/..", "")
    reply = five_a_minute.fetch(person, method, path, body)
    assert (reply.status, get_limit_headers(reply)) == (
        status,
        {
            "ratelimit-policy": '"window";q=5;w=60',
            "ratelimit": '"window";r=4;t=60',
            "x-ratelimit-limit": "5",
            "x-ratelimit-remaining": "4",
            "x-ratelimit-reset": str(START + 60),
        },
    )
    assert "retry-after" not in reply.headers


def test_a_rejected_request_says_when_to_try_again(five_a_minute: LimitedApplication) -> None:
    for _ in range(5):
        five_a_minute.fetch(five_a_minute.alice)
        five_a_minute.clock.advance(2.5)
    reply = five_a_minute.fetch(five_a_minute.alice)
    assert (reply.status, reply.json()) == (
        429,
        {"error": f"Rate limit of 5 requests per 60 seconds exceeded: try again in 48 seconds{HINT}"},
    )
    assert reply.headers["x-error-code"] == "rate_limited"
    assert reply.headers["retry-after"] == "48"
    assert get_limit_headers(reply) == {
        "ratelimit-policy": '"window";q=5;w=60',
        "ratelimit": '"window";r=0;t=48',
        "x-ratelimit-limit": "5",
        "x-ratelimit-remaining": "0",
        "x-ratelimit-reset": str(START + 60),
    }


def test_a_request_beyond_the_limit_changes_nothing(small: Harness) -> None:
    key = small.cast().alice.key
    listing = small.fetch("POST", LISTINGS, key=key, json={"title": "a", "content": "b"}).json()["id"]
    for _ in range(4):
        small.fetch("GET", LISTINGS, key=key)
    assert small.fetch("POST", LISTINGS, key=key, json={"title": "c", "content": "d"}).status == 429
    assert small.fetch("DELETE", f"{LISTINGS}/{listing}", key=key).status == 429
    assert small.fetch("PUT", f"{LISTINGS}/{listing}", key=key, json={"title": "c"}).status == 429
    row = small.run(small.store.get_listing(listing))
    assert row is not None
    assert (row.version, row.deleted_at) == (1, None)


@pytest.mark.parametrize("key", [None, "", "malformed", "k" * 16])
def test_a_401_has_no_limit_headers(small: Harness, key: str | None) -> None:
    for _ in range(10):
        reply = small.fetch("GET", LISTINGS, key=key)
        assert (reply.status, get_limit_headers(reply)) == (401, {})
        assert "retry-after" not in reply.headers


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/api/v2/listings", 404),
        ("POST", "/api/v1/listings/1/x", 404),
        ("DELETE", LISTINGS, 405),
        ("OPTIONS", LISTINGS, 405),
        ("POST", f"{LISTINGS}/1", 405),
        ("GET", "/healthz", 200),
    ],
)
def test_requests_that_need_no_key_do_not_count(small: Harness, method: str, path: str, status: int) -> None:
    key = small.cast().alice.key
    for _ in range(10):
        reply = small.fetch(method, path, key=key)
        assert (reply.status, get_limit_headers(reply)) == (status, {})
    assert small.fetch("GET", LISTINGS, key=key).headers["x-ratelimit-remaining"] == "4"


@pytest.mark.parametrize(
    ("limit", "window", "text"),
    [
        (2, 3600, "2 requests per hour exceeded: try again in 3600 seconds"),
        (1, 1, "1 request per 1 second exceeded: try again in 1 second"),
    ],
)
def test_the_error_names_the_hour_and_has_the_singular_of_one(
    harness: Harness, limit: int, window: int, text: str
) -> None:
    application = LimitedApplication(harness, limit, window)
    replies = [application.fetch(application.alice) for _ in range(limit + 1)]
    assert replies[-1].json() == {"error": f"Rate limit of {text}{HINT}"}


@pytest.mark.decision("G30")
def test_a_limit_of_0_turns_it_off(tmp_path: Path) -> None:
    with Harness(tmp_path, rate_limit="0") as harness:
        key = harness.cast().alice.key
        replies = [harness.fetch("GET", LISTINGS, key=key) for _ in range(3)]
        assert {reply.status for reply in replies} == {200}
        assert not [reply for reply in replies if get_limit_headers(reply)]
