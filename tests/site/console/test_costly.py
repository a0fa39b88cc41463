"""Limits of costly pages: how many run, what they reserve, and when they end."""

import asyncio
import base64
import threading
import zlib
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack
from time import process_time
from typing import Any

import pytest

from listings.domain.errors import Unavailable
from listings.domain.imports import RowOutcome
from listings.http.large_bodies import LargeBodies
from listings.service import Services
from listings.service.transfer.rows import Row
from listings.site import context
from listings.site.console.import_report import ImportReport
from listings.site.context import CostlyPages, Kind
from listings.site.pages import replace_message
from tests.harness import MONTH, TIMEOUT, Harness, RunningService, build_scope
from tests.http.raw import Connection, request
from tests.site.console.test_transfer import PATH, hidden_fields, preview, run_import
from tests.site.market import BROWSER_HEADERS
from tests.site.tab import Tab

BOUNDARY = "x7"
HEADER = b"title,content\n"
MANY_ROWS = b"title,content,external_id\n" + b"".join(b"a,%b,%d\n" % (b"b " * 40, number) for number in range(19_000))
TOO_MANY = "A file must have at most 20,000 rows: split it into several files"


def build_form(token: str, content: bytes) -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="token"\r\n\r\n{token}\r\n--{BOUNDARY}\r\n'
    file = 'Content-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'
    return f"{head}{file}".encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()


def pack(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


@pytest.fixture
def first_row(monkeypatch: pytest.MonkeyPatch) -> Iterator["FirstRow"]:
    with FirstRow(monkeypatch) as first:
        yield first


class FirstRow(ExitStack):
    """Counts the rows of imports, and calls functions at the first one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.count = 0
        self.actions: list[Callable[[], object]] = []
        original = ImportReport.on_outcome

        def on_outcome(report: ImportReport, row: Row, outcome: RowOutcome) -> None:
            self.count += 1
            while self.actions:
                self.actions.pop()()
            original(report, row, outcome)

        monkeypatch.setattr(ImportReport, "on_outcome", on_outcome)


async def enter_all(pages: CostlyPages, *entered: tuple[Kind, int]) -> AsyncExitStack:
    held = AsyncExitStack()
    for kind, account_id in entered:
        await pages.enter(kind, account_id, held)
    return held


def start(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)


def test_the_third_page_of_an_account_waits_until_one_has_ended() -> None:
    async def run() -> None:
        pages = CostlyPages()
        first, _ = [await enter_all(pages, ("imports", 1)) for _ in range(2)]
        third = start(enter_all(pages, ("imports", 1)))
        await enter_all(pages, ("imports", 2), ("exports", 1), ("exports", 1))  # others are not delayed
        assert not third.done()
        await first.aclose()
        await third

    asyncio.run(run())


def test_an_account_whose_pages_wait_does_not_delay_others() -> None:
    async def run() -> None:
        pages = CostlyPages()
        held = await enter_all(pages, *[("imports", number // 2) for number in range(16)])
        waiting = [start(enter_all(pages, ("imports", 99))) for _ in range(10)]
        await asyncio.sleep(0)
        other = start(enter_all(pages, ("imports", 100)))
        await asyncio.sleep(0)
        assert not other.done()
        await held.aclose()
        await other
        assert sum(one.done() for one in waiting) == 2
        for one in waiting:
            one.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("accounts", [[1, 1], range(50, 66)])
def test_a_page_without_a_place_is_rejected_after_a_while(monkeypatch: pytest.MonkeyPatch, accounts: list[int]) -> None:
    monkeypatch.setattr(context, "_WAIT_SECONDS", 0.01)

    async def run() -> None:
        pages = CostlyPages()
        held = await enter_all(pages, *[("exports", number) for number in accounts])
        async with AsyncExitStack() as late:
            with pytest.raises(Unavailable, match="Too many exports are in progress") as rejected:
                await pages.enter("exports", 1, late)
            assert (replace_message(rejected.value), rejected.value.retry_after) == (rejected.value, 30)
        await held.aclose()
        await enter_all(pages, *[("exports", number) for number in accounts])  # all places are free again

    asyncio.run(run())


def test_the_unpacked_size_of_a_form_is_held_until_the_response_is_sent(
    alice: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, reserve = [0], LargeBodies.reserve

    def record(bodies: LargeBodies, owner: int | str, size: int) -> None:
        reserve(bodies, owner, size)
        held.append(held[-1] + size)

    monkeypatch.setattr(LargeBodies, "reserve", record)
    content = HEADER + b"a,\n" * 9_000
    alice.get(PATH)
    for path, field in [("run", "packed"), ("rejected", "rejected")]:
        del held[1:]
        alice.post(f"{PATH}/{path}", name="a.csv", **{field: pack(content)})
        assert alice.reply.status == 200
        assert held[1:] == [2 * 1024 * 1024, len(content), 0]  # before the file is unpacked, after that, at the end
    alice.post(f"{PATH}/run", name="a.csv", packed="x")
    assert (alice.reply.status, held[-1]) == (400, 0)


def test_a_form_without_room_for_its_file_is_rejected(alice: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LargeBodies, "has_room", lambda *_: False)
    alice.get(PATH)
    alice.post(f"{PATH}/rejected", name="a.csv", rejected=pack(HEADER))
    assert alice.reply.status == 503
    assert "Too many large forms are being processed. Try again in a moment" in alice.text


@pytest.mark.decision("G20")
@pytest.mark.parametrize("new_ids", [{}, {"new_ids": "on"}])
def test_a_file_has_at_most_20_000_rows(harness: Harness, alice: Tab, new_ids: dict[str, str]) -> None:
    content = HEADER + b",b\n" * 20_001
    started = process_time()
    preview(alice, content, **new_ids)
    assert (alice.reply.status, TOO_MANY in alice.text) == (400, True)
    alice.upload(f"{PATH}/run", "", b"", name="a.csv", packed=pack(HEADER + b"a,b\n" * 20_001), **new_ids)
    assert TOO_MANY in alice.text
    assert process_time() - started < TIMEOUT
    assert harness.run(count_listings(harness.services)) == 0
    assert "0 updated, 0 unchanged, 20,000 rejected" in run_import(preview(alice, HEADER + b",b\n" * 20_000)).text


async def count_listings(services: Services) -> int:
    account = await services.accounts.find("alice@example.com")
    return sum([len(page) async for page in services.transfer.read_pages(account)])


def test_rejected_rows_can_be_downloaded_after_the_plan_ended(harness: Harness, alice: Tab) -> None:
    preview(alice, HEADER + b",b\nc,d\n")
    hidden = hidden_fields(alice)
    harness.clock.advance(13 * MONTH)
    alice.sign_in("alice@example.com").get(PATH)
    assert alice.post(f"{PATH}/rejected", **hidden).reply.body == b"title,content,reason\r\n,b,Enter a title.\r\n"


def build_body(path: str, token: str) -> bytes:
    """Return the form of a preview, or of an import."""
    if path == PATH:
        return build_form(token, MANY_ROWS)
    fields = {"name": "a.csv", "packed": pack(MANY_ROWS)}.items()
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in fields
    ]
    return "".join(parts).encode() + build_form(token, b"")


each_path = pytest.mark.parametrize("path", [PATH, f"{PATH}/run"])


@each_path
def test_the_work_stops_when_the_client_has_left(harness: Harness, alice: Tab, first_row: FirstRow, path: str) -> None:
    alice.get(PATH)
    left = asyncio.Event()
    first_row.actions.append(left.set)
    headers = {
        **BROWSER_HEADERS,
        "cookie": f"listings_session={alice.cookies['listings_session']}",
        "host": "localhost:8000",
        "sec-fetch-site": "same-origin",
        "content-type": f"multipart/form-data; boundary={BOUNDARY}",
    }
    waiting = [{"type": "http.request", "body": build_body(path, alice.token), "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        if waiting:
            return waiting.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = build_scope("POST", path, [(name.lower().encode(), value.encode()) for name, value in headers.items()])
    harness.run(harness.application(scope, receive, send))
    assert 0 < first_row.count < 18_000
    assert not any(b"</html>" in message.get("body", b"") for message in sent)
    assert preview(alice, HEADER + b"a,b\n").reply.status == 200


@each_path
def test_the_work_ends_with_the_service_and_the_page_says_so(
    signed_up: tuple[RunningService, bytes], first_row: FirstRow, path: str
) -> None:
    begun = threading.Event()
    first_row.actions.append(begun.set)

    service, cookie = signed_up
    with Connection(service) as client:
        headers = [cookie, b"Accept: text/html"]
        page = client.send(request("GET", PATH, None, *headers)).read_response().body.decode()
        token = page.partition('name="token" value="')[2].partition('"')[0]
        headers += [b"Sec-Fetch-Site: same-origin", b"Content-Type: multipart/form-data; boundary=" + BOUNDARY.encode()]
        client.send(request("POST", path, None, *headers, body=build_body(path, token)))
        assert begun.wait(TIMEOUT)
        service.stop()
        with client.socket.makefile("rb") as response:
            text = response.read().decode()
    assert text.startswith("HTTP/1.1 503" if path == PATH else "HTTP/1.1 200")
    assert "The service is restarting, or your browser has closed the connection. Try again in a moment" in text
    assert "</html>" in text
    assert first_row.count < 18_000
