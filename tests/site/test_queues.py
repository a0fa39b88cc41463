"""Requests of visitors wait in queues that take turns by network, or by account for members."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.harness import Harness, Reply, fetch
from tests.site.market import BROWSER_HEADERS
from tests.site.tab import PASSWORD, Tab, open_console, open_harness

CROWD, VISITOR = "192.0.2.1", "192.0.2.2"
TURNS = 6  # requests of the crowd that may end before that of another owner: two run at the same time
LARGEST_QUEUE = 250


class Crowd:
    """Sends many requests at the same time, and records the order in which they end."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._ended: list[str] = []

    async def _send(
        self, name: str, client: str, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> Reply:
        sent = [(key.lower().encode(), value.encode()) for key, value in (BROWSER_HEADERS | headers).items()]
        reply = await fetch(self._harness.application, method, path, sent, [body], client=client)
        self._ended.append(name)
        return reply

    def place(
        self,
        method: str,
        path: str,
        *,
        crowd: str = CROWD,
        client: str = VISITOR,
        body: bytes = b"",
        crowd_body: bytes | None = None,
        crowd_headers: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> int:
        """Return how many of 40 requests of a crowd end before one that is sent after them."""

        async def run() -> None:
            theirs = body if crowd_body is None else crowd_body
            own = crowd_headers if crowd_headers is not None else headers
            many = [self._send("crowd", crowd, method, path, theirs, own or {}) for _ in range(40)]
            await asyncio.gather(*many, self._send("other", client, method, path, body, headers or {}))

        self._harness.run(run())
        return self._ended.index("other")

    def count_statuses(self, count: int) -> dict[int, Reply]:
        """Request a page `count` times at once. Return a response of each status."""

        async def run() -> list[Reply]:
            return await asyncio.gather(*(self._send("", CROWD, "GET", "/", b"", {}) for _ in range(count)))

        return {reply.status: reply for reply in self._harness.run(run())}


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with open_harness(tmp_path) as harness:
        yield harness


@pytest.fixture
def crowd(harness: Harness) -> Crowd:
    return Crowd(harness)


def build_sign_in(harness: Harness) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a sign-in form with a valid token."""
    tab = Tab(harness).get("/sign-in")
    body = urlencode({"token": tab.token, "email": "bob@example.com", "password": PASSWORD}).encode()
    cookie = f"listings_form={tab.cookies['listings_form']}"
    return body, {"Host": tab.host, "cookie": cookie, "sec-fetch-site": "same-origin"}


@pytest.mark.parametrize("path", ["/", "/?q=bike", "/static/x/site.css", "/nothing"])
def test_a_page_waits_for_one_request_of_each_other_network(crowd: Crowd, path: str) -> None:
    assert crowd.place("GET", path) <= TURNS


def test_the_addresses_of_an_ipv6_network_are_one_owner(crowd: Crowd) -> None:
    assert crowd.place("GET", "/", crowd="2001:db8::1", client="2001:db8::2") == 40


def test_the_networks_of_a_trusted_proxy_are_owners(tmp_path: Path) -> None:
    with open_harness(tmp_path, trusted_proxies=CROWD) as harness:
        place = Crowd(harness).place(
            "GET",
            "/",
            client=CROWD,
            headers={"X-Forwarded-For": "203.0.113.2"},
            crowd_headers={"X-Forwarded-For": "203.0.113.1"},
        )
        assert place <= TURNS


def test_a_member_does_not_wait_for_visitors_of_the_same_network(harness: Harness, crowd: Crowd) -> None:
    token = open_console(harness).cookies["listings_session"]
    headers = {"cookie": f"a=b; listings_session={token}"}
    assert crowd.place("GET", "/", client=CROWD, headers=headers, crowd_headers={}) <= TURNS


def test_the_requests_of_an_account_are_those_of_one_owner(harness: Harness, crowd: Crowd) -> None:
    token = open_console(harness).cookies["listings_session"]
    assert crowd.place("GET", "/", headers={"cookie": f"listings_session={token}"}) == 40


@pytest.mark.parametrize("cookie", ["listings_session=forged", "listings_session=", "listings_session"])
def test_a_forged_session_has_the_place_of_its_network(crowd: Crowd, cookie: str) -> None:
    assert crowd.place("GET", "/", client=CROWD, headers={"cookie": cookie}, crowd_headers={}) == 40


def test_an_ended_session_has_the_place_of_its_network(harness: Harness, crowd: Crowd) -> None:
    tab = open_console(harness)
    token = tab.cookies["listings_session"]
    tab.post("/sign-out")
    tab.cookies["listings_session"] = token
    tab.get("/console")
    headers = {"cookie": f"listings_session={token}"}
    assert crowd.place("GET", "/", client=CROWD, headers=headers, crowd_headers={}) == 40


def test_a_network_may_have_250_waiting_pages(crowd: Crowd) -> None:
    replies = crowd.count_statuses(LARGEST_QUEUE + 1)
    assert sorted(replies) == [200, 503]
    rejected = replies[503]
    assert rejected.json() == {"error": "Too many requests are waiting: try again in a moment"}
    assert rejected.headers["retry-after"] == "1"
    assert {"x-request-id", "x-error-code"} <= set(rejected.headers)
    assert sorted(crowd.count_statuses(LARGEST_QUEUE)) == [200]


def test_a_form_waits_for_one_of_each_other_network(harness: Harness, crowd: Crowd) -> None:
    body, headers = build_sign_in(harness)
    assert crowd.place("POST", "/sign-in", body=body, headers=headers) <= TURNS


def test_a_form_without_a_token_does_not_queue(harness: Harness, crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("listings.site.visitor_forms.INTERVAL_SECONDS", 0.02)
    body, headers = build_sign_in(harness)
    assert crowd.place("POST", "/sign-in", client=CROWD, crowd_body=body, headers=headers) < 40


def test_sitemaps_of_networks_are_read_in_turn(harness: Harness, crowd: Crowd) -> None:
    bob = harness.person("bob")
    for _ in range(3):
        harness.fetch("POST", "/api/v1/listings", key=bob.key, json={"title": "Bike", "content": "Red."})
    harness.index_market()
    assert crowd.place("GET", "/sitemaps/1.xml") <= TURNS
