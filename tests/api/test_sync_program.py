"""The program of the guide "Sync with external ids", with a catalogue of 500 products."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from listings.domain import api_keys
from tests.api.helpers import LISTINGS
from tests.guide_samples import read_samples
from tests.harness import TIMEOUT, Person, RunningService

pytestmark = pytest.mark.uncovered

RETRY = "wait(5, "  # after a lost response


class Shop:
    """A catalogue, and the program that keeps the listings of alice in sync with it."""

    def __init__(self, folder: Path, running: RunningService, alice: Person) -> None:
        self.products: dict[str, dict[str, Any]] = {
            f"sku-{n}": {"title": f"Product {n}", "content": "New.", "price": n + 0.99, "is_active": "yes"}
            for n in range(500)
        }
        self.process: subprocess.Popen[str] | None = None
        self.waits: list[str] = []
        self.undo = ""
        self.running = running
        self._folder = folder
        self.environment = {**os.environ, "API_KEY": alice.key, "BASE_URL": running.base_url}
        issued = running.run(lambda services: services.keys.add(alice.account, "reader", api_keys.generate()))
        self.http = httpx2.Client(base_url=running.base_url, headers={"X-API-Key": issued.secret}, timeout=TIMEOUT)
        samples = read_samples(self.http.get("/docs/sync").text)
        (program,) = (sample.code for sample in samples if sample.language == "python")
        assert len(program.splitlines()) <= 90
        assert RETRY in program
        folder.joinpath("sync.py").write_text(program.replace(RETRY, "wait(0.1, "), "utf-8")

    def sync(self, base_url: str = "", *arguments: str, code: int = 0) -> list[str]:
        """Run the program until it ends with this exit code; return the lines that it prints."""
        rows = [",".join(map(str, (sku, *product.values()))) for sku, product in self.products.items()]
        header = "sku,title,content,price,is_active"
        self._folder.joinpath("products.csv").write_text("\n".join([header, *rows]), "utf-8-sig")
        environment = self.environment | ({"BASE_URL": base_url} if base_url else {})
        command = [sys.executable, "sync.py", *arguments]
        self.process = subprocess.Popen(
            command, cwd=self._folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        printed, _ = self.process.communicate(timeout=TIMEOUT)
        assert self.process.returncode == code, printed
        lines = printed.splitlines()
        self.waits = [line for line in lines if line.startswith("Waiting ")]
        self.undo = next((line.partition(": ")[2] for line in lines if line.startswith("To undo this run: ")), "")
        return [line for line in lines if not line.startswith(("Waiting ", "To undo this run: "))]

    def read(self, **query: str) -> dict[str, dict[str, Any]]:
        """Return the listings by title. No title may appear twice."""
        listings = self.http.get(LISTINGS, params=query).json()["listings"]
        found = {one["title"]: one for one in listings}
        assert len(found) == len(listings)
        return found

    def assert_in_sync(self) -> None:
        active = {each["title"]: each["price"] for each in self.products.values() if each["is_active"] == "yes"}
        assert {title: one["price"] for title, one in self.read().items()} == active
        assert self.sync() == ["0 operations (0 deletions), 0 failed"]


@contextmanager
def open_shop(folder: Path, *, rate_limit: str = "1000", rate_window: str = "3600") -> Iterator[Shop]:
    with RunningService(folder / "service", rate_limit=rate_limit, rate_window=rate_window) as running:
        shop = Shop(folder, running, running.cast().alice)
        with closing(shop.http):
            yield shop


def do_nothing() -> None:
    """Do nothing."""


@contextmanager
def intercept(
    target: str, number: int, *, before: Callable[[], object] = do_nothing, after: Callable[[], object] | None = None
) -> Iterator[str]:
    """Run a proxy that calls `before` before it forwards this request, the first one being 1. Yields its URL.

    With `after`, the proxy calls it instead of sending the response, and closes the connection.
    """
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = dict(self.headers)
            paths.append(self.path)
            is_meant = len(paths) == number
            if is_meant:
                before()
            with httpx2.stream(self.command, target + self.path, content=body, headers=headers) as reply:
                content = b"".join(reply.iter_raw())  # still compressed
            if is_meant and after is not None:
                after()
                return
            self.send_response(reply.status_code)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = forward  # noqa: N815 - named by the base class

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_lost_response_and_a_crash_create_nothing_twice(tmp_path: Path) -> None:
    with open_shop(tmp_path) as shop:

        def kill() -> None:
            assert shop.process is not None
            shop.process.kill()

        with intercept(str(shop.http.base_url), 4, after=kill) as proxy:
            assert shop.sync(proxy, code=-signal.SIGKILL) == []
        with intercept(str(shop.http.base_url), 3, after=do_nothing) as proxy:
            assert shop.sync(proxy) == ["200 operations (0 deletions), 0 failed"]
        assert [line.partition(":")[0] for line in shop.waits] == ["Waiting 0.1 s"]
        shop.assert_in_sync()


@pytest.mark.decision("G25")
def test_the_same_program_runs_in_test_mode_and_then_live(tmp_path: Path) -> None:
    with open_shop(tmp_path) as shop:
        live = shop.environment["API_KEY"]
        account = shop.running.run(lambda services: services.accounts.find("1"))
        issued = shop.running.run(lambda services: services.test_mode.create_key(account, "rehearsal"))
        for key in (issued.secret, live):
            shop.environment["API_KEY"] = key
            assert shop.sync() == ["500 operations (0 deletions), 0 failed"]
            assert shop.sync() == ["0 operations (0 deletions), 0 failed"]
        shop.assert_in_sync()


def test_changes_deletions_and_returning_products_are_applied(tmp_path: Path) -> None:
    with open_shop(tmp_path) as shop:
        shop.sync()
        gone = {sku: shop.products.pop(sku) for sku in ("sku-7", "sku-8")}
        shop.products["sku-1"]["price"] = 10.5
        shop.products["sku-2"]["is_active"] = "no"
        kept = "2 listings are not in products.csv: delete them with --delete"
        assert shop.sync("", "--dry-run") == [kept, "2 operations (0 deletions), 0 failed"]
        for arguments in ["", "--delete", "--dry-run"], ["", "--delete"]:
            assert shop.sync(*arguments) == ["4 operations (2 deletions), 0 failed"]
        shop.assert_in_sync()
        assert set(shop.read(status="inactive")) == {"Product 2"}
        shop.products |= gone
        assert shop.sync() == ["2 operations (0 deletions), 0 failed"]
        shop.assert_in_sync()


def test_listings_without_external_id_and_a_wrong_catalogue_delete_nothing(tmp_path: Path) -> None:
    with open_shop(tmp_path) as shop:
        shop.products = {"sku-1": shop.products["sku-1"]}
        shop.http.post(LISTINGS, json={"title": "By hand", "content": "Not in the catalogue."})
        assert shop.sync() == ["1 operations (0 deletions), 0 failed"]
        shop.products['"sku-1"'] = shop.products["sku-1"]  # the same in CSV
        assert shop.sync(code=1) == ["products.csv has 2 rows and 1 different skus: nothing is changed"]
        shop.products = {}
        assert shop.sync(code=1) == ["products.csv has 0 rows and 0 different skus: nothing is changed"]
        assert set(shop.read()) == {"By hand", "Product 1"}


def test_many_deletions_need_their_number(tmp_path: Path) -> None:
    with open_shop(tmp_path) as shop:
        shop.http.post(LISTINGS, json={"title": "Other", "content": "Of another program.", "external_id": "other-1"})
        shop.sync()
        for sku in list(shop.products)[:51]:
            del shop.products[sku]
        message = "51 of 500 listings would be deleted: to do so, add --max-delete 51"
        assert shop.sync("", "--delete", code=1) == [message]
        assert shop.sync("", "--delete", "--max-delete", "50", code=1) == [message]
        assert len(shop.read()) == 501
        assert shop.sync("", "--delete", "--max-delete", "51") == ["51 operations (51 deletions), 0 failed"]
        assert len(shop.read()) == 450


def test_the_printed_command_undoes_the_run(tmp_path: Path) -> None:
    with open_shop(tmp_path) as shop:
        shop.sync()
        before = shop.read(status="all", include="external_id")
        shop.products["sku-1"]["price"] = 10.5
        del shop.products["sku-2"]
        assert shop.sync("", "--delete") == ["2 operations (1 deletions), 0 failed"]
        done = subprocess.run(["bash", "-ec", shop.undo], env=shop.environment, capture_output=True, check=True)
        assert b'"reverted":2' in done.stdout
        after = shop.read(status="all", include="external_id")
        for listing in (*before.values(), *after.values()):
            del listing["updated_at"]
        assert after == before


def test_an_edit_by_hand_is_reported_before_the_catalogue_wins(tmp_path: Path) -> None:
    with open_shop(tmp_path) as shop:
        shop.products = {sku: shop.products[sku] for sku in ("sku-1", "sku-2")}
        shop.products["sku-1"]["is_active"] = "no"
        shop.sync()
        path = f"{LISTINGS}/{shop.read(status='inactive')['Product 1']['id']}"
        shop.products["sku-1"]["price"] = shop.products["sku-2"]["price"] = 5
        edit = {"content": "Slightly used.", "is_active": True}
        with intercept(str(shop.http.base_url), 2, before=lambda: shop.http.patch(path, json=edit)) as proxy:
            count, report = shop.sync(proxy, code=1)
        assert (count, shop.read()["Product 2"]["price"]) == ("2 operations (0 deletions), 1 failed", 5)
        assert report.startswith("shop-sku-1: precondition_failed: ")
        assert shop.read()["Product 1"]["content"] == "Slightly used."
        assert shop.sync() == ["1 operations (0 deletions), 0 failed"]
        shop.assert_in_sync()


def test_a_rejected_product_does_not_stop_the_others(tmp_path: Path) -> None:
    with open_shop(tmp_path) as shop:
        shop.products = {sku: shop.products[sku] for sku in ("sku-1", "sku-2")}
        shop.products["sku-1"]["price"] = -1
        _, report = shop.sync(code=1)
        assert report.startswith("shop-sku-1: invalid_request: listing.price ")
        assert set(shop.read()) == {"Product 2"}


def test_the_program_waits_for_the_rate_limit(tmp_path: Path) -> None:
    with open_shop(tmp_path, rate_limit="4", rate_window="1") as shop:
        assert shop.sync() == ["500 operations (0 deletions), 0 failed"]
        assert any("rate_limited" in line for line in shop.waits)
        assert len(shop.read()) == 500
