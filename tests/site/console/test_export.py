"""Exports in the console: how many run, and until when."""

import asyncio
import select
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack

import pytest

from listings.domain.model import Listing
from listings.service.transfer.file_formats import Format
from listings.site.console import costly
from listings.site.console.transfer import encode as encode_pages
from listings.site.context import CostlyPages
from tests.harness import TIMEOUT, RunningService
from tests.http.raw import Connection, request
from tests.waiting import until

PATH = "/api/v1/listings"
SMALL_BUFFER = 4096
COUNT = 40


@pytest.fixture
def service(signed_up: tuple[RunningService, bytes]) -> RunningService:
    return signed_up[0]


@pytest.fixture
def export(signed_up: tuple[RunningService, bytes]) -> bytes:
    """Create listings of 4 MB, and return the request for their export."""
    service, cookie = signed_up
    key = service.run(lambda services: services.keys.create("alice@shop.example", "test")).secret
    body = b'{"title": "Large", "content": "%s"}' % (b"x" * 100_000)
    with Connection(service) as writer:
        for _ in range(COUNT):
            assert writer.send(request("POST", PATH, key, body=body)).read_response().status == 201
    return request("GET", "/console/export", None, cookie, b"Accept: text/html")


def test_an_account_has_at_most_two_unread_exports(service: RunningService, export: bytes) -> None:
    def fetch() -> int:
        with Connection(service).send(export) as connection, connection.socket.makefile("rb") as response:
            return int(response.readline().split()[1])

    with ExitStack() as stack:
        for _ in range(2):
            unread = stack.enter_context(Connection(service, SMALL_BUFFER)).send(export)
            assert select.select([unread.socket], [], [], 10)[0]
        with Connection(service) as third:
            response = third.send(export).read_response()
            assert (response.status, response.headers["retry-after"]) == (503, "30")
    until(lambda: fetch() == 200)  # the service learns that both have left


def test_a_client_that_will_send_nothing_further_gets_its_export(
    service: RunningService, export: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costly, "_FINISH_SECONDS", 0.0)  # otherwise, the export could end before its work is cancelled
    with Connection(service, SMALL_BUFFER).send(export) as connection, Connection(service) as other:
        connection.socket.shutdown(socket.SHUT_WR)
        assert select.select([connection.socket], [], [], TIMEOUT)[0]
        assert other.send(request("GET", "/healthz")).read_response().status == 200  # the shutdown was noticed
        with connection.socket.makefile("rb") as response:
            assert response.read().count(b"Large") == COUNT


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
        return [piece async for piece in encode_pages(read_page(), file_format, CostlyPages())]

    assert asyncio.run(export()) == [b"header", b"page"]
    assert steps == ["read", "others", "encode"]
