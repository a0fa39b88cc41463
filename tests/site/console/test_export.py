"""Limits of simultaneous exports in the console."""

import asyncio
import select
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from listings.domain.errors import Unavailable
from listings.domain.model import Listing
from listings.service import Services
from listings.service.transfer.file_formats import Format
from listings.site.console.export import Exports
from listings.site.pages import replace_message
from tests.cli.crowds import until
from tests.harness import RunningService, cheap_passwords
from tests.http.raw import Connection, request

PATH = "/api/v1/listings"
SMALL_BUFFER = 4096


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RunningService]:
    with cheap_passwords(), RunningService(tmp_path, site="on", sign_up="on") as service:
        yield service


def sign_up(service: RunningService) -> str:
    async def run(services: Services) -> str:
        token = await services.sessions.sign_up("Alice", "alice@shop.example", "wide rivers run", "192.0.2.1")
        await services.accounts.set_plan("alice@shop.example", 4_000_000_000)
        return token

    return service.run(run)


def test_an_account_has_at_most_two_unread_exports(service: RunningService) -> None:
    cookie = f"Cookie: listings_session={sign_up(service)}".encode()
    key = service.run(lambda services: services.keys.create("alice@shop.example", "test")).secret
    body = b'{"title": "Large", "content": "%s"}' % (b"x" * 100_000)
    with Connection(service) as writer:
        for _ in range(40):
            assert writer.send(request("POST", PATH, key, body=body)).read_response().status == 201
    export = request("GET", "/console/export", None, cookie, b"Accept: text/html")
    with ExitStack() as stack:
        for _ in range(2):
            unread = stack.enter_context(Connection(service, SMALL_BUFFER)).send(export)
            assert select.select([unread.socket], [], [], 10)[0]
        with Connection(service) as third:
            response = third.send(export).read_response()
            assert (response.status, response.headers["retry-after"]) == (503, "30")
    url, headers = f"{service.base_url}/console/export", {"Cookie": cookie.decode().partition(": ")[2]}
    until(lambda: httpx2.get(url, headers=headers).status_code == 200)  # the service learns that both have left


def test_exports_of_all_accounts_are_limited() -> None:
    exports = Exports()
    with ExitStack() as stack:
        for account_id in range(16):
            exports.require_room(account_id)
            stack.enter_context(exports.count(account_id))
        with pytest.raises(Unavailable, match="Too many exports are running") as rejected:
            exports.require_room(99)
        assert replace_message(rejected.value) is rejected.value
    exports.require_room(99)


def test_others_run_between_reading_a_page_and_encoding_it() -> None:
    steps = []

    async def read_page() -> AsyncIterator[list[Listing]]:
        steps.append("read")
        asyncio.get_running_loop().call_soon(steps.append, "others")
        yield []

    def encode(_: list[Listing]) -> bytes:
        steps.append("encode")
        return b"page"

    file_format = Format("test", b"header", encode, lambda *_: iter(()))

    async def export() -> list[bytes]:
        return [piece async for piece in Exports().encode(read_page(), file_format)]

    assert asyncio.run(export()) == [b"header", b"page"]
    assert steps == ["read", "others", "encode"]
