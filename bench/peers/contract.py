"""Checks of the service and its peers before the measurement: they must respond like the service.

The functions raise BenchmarkError for the first wrong response.
"""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench import BenchmarkError
from bench.data import ACTIVE, Owner
from bench.http_client import Request, Response, send
from bench.peers.candidates import Candidate, StartOptions
from bench.scenarios import PATH
from bench.servers import Server

WINDOW = 3600
"""The rate window of the checks in seconds, long enough that 1,000 requests fit into it."""

LIMIT = 1000

_MISSING_ID = 2**40
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_MINIMAL = {"title": "Kayak", "content": "Two seats."}
_COMPLETE = {
    **_MINIMAL,
    "type": "rental",
    "category": "Boats",
    "images": ["https://images.example/1.jpg", "https://images.example/2.jpg"],
    "price": 35.5,
    "price_type": "per_hour",
    "location": "Te Ānau",
    "region": "Southland",
}
_DEFAULTS = {
    "type": "product",
    "category": "",
    "images": [],
    "price": 0,
    "price_type": "fixed",
    "location": "",
    "region": "",
    "is_active": True,
    "view_count": 0,
}


class Records(NamedTuple):
    """The service's representation of the first owner's listings, by id and as a list."""

    by_id: Mapping[int, Any]
    listed: Any


class Client(NamedTuple):
    """Sends requests to a server with an owner's key."""

    port: int
    owner: Owner

    def get(self, path: str, key: str | None = None) -> Response:
        """Send a GET with the owner's key or another one."""
        return send(self.port, Request("GET", path, self.owner.key if key is None else key))

    def create(self, body: str) -> Response:
        """Create a listing."""
        return send(self.port, Request("POST", PATH, self.owner.key, body))


def fetch_records(service: Candidate, folder: Path, core: int) -> Records:
    """Fetch the records of the service, which every peer must return as well."""
    with _run(service, folder, core) as server:
        client = Client(server.port, service.data.owners[0])
        by_id = {number: client.get(f"{PATH}/{number}").json() for number in client.owner.listings}
        return Records(by_id, client.get(PATH).json())


def require_contract(candidate: Candidate, records: Records, folder: Path, core: int) -> None:
    """Check reads, lists, creates, errors and the rate limit of a candidate."""
    try:
        with _run(candidate, folder, core) as server:
            first, second, third = (Client(server.port, owner) for owner in candidate.data.owners[:3])
            _require_errors(first, second, candidate.expired)
            _require_records(first, records)
            _require_creates(second)
            _require_limit(third)
    except BenchmarkError as error:
        raise BenchmarkError(f"{candidate.name}: {error}") from None


@contextmanager
def _run(candidate: Candidate, folder: Path, core: int) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        start = StartOptions(Path(name), core, _NO_RESPONSE, WINDOW)
        with candidate.run(start) as server:
            yield server


def _require_errors(client: Client, other: Client, expired: str) -> None:
    one = f"{PATH}/{client.owner.listings[0]}"
    for path in (one, PATH):
        _require_error(client.get(path, ""), 401, "no key")
        _require_error(client.get(path, "no-such.key"), 401, "an unknown key")
        _require_error(client.get(path, expired), 403, "an expired plan")
    _require_error(client.get(f"{PATH}/{_MISSING_ID}"), 404, "a listing that does not exist")
    _require_error(other.get(one), 403, "another account's listing")
    for body in ("{", '{"title": "Kayak"}', '{"content": "Two seats."}'):
        _require_error(client.create(body), 400, f"the body {body}")


def _require_error(response: Response, status: int, subject: str) -> None:
    content = response.json()
    is_valid = isinstance(content, dict) and list(content) == ["error"] and isinstance(content["error"], str)
    if response.status != status or not is_valid:
        raise BenchmarkError(f'{subject} must get {status} and {{"error": text}}, but got {format_response(response)}')


def _require_records(client: Client, records: Records) -> None:
    for number, record in records.by_id.items():
        _require_content(client.get(f"{PATH}/{number}"), 200, record, f"the listing {number}")
    _require_content(client.get(PATH), 200, records.listed, f"the list of {ACTIVE}")


def _require_creates(client: Client) -> None:
    for body in (_MINIMAL, _COMPLETE):
        response = client.create(json.dumps(body))
        number = (response.json() or {}).get("id")
        _require_content(response, 201, {"id": number, "message": "listing created"}, "a create")
        record = client.get(f"{PATH}/{number}")
        _require_times(record)
        times = {name: record.json()[name] for name in ("created_at", "updated_at")}
        _require_content(record, 200, {"id": number, **_DEFAULTS, **body, **times}, "a new listing")


def _require_times(response: Response) -> None:
    content = response.json() or {}
    if not all(_TIME.fullmatch(str(content.get(name))) for name in ("created_at", "updated_at")):
        raise BenchmarkError(f"times must be YYYY-MM-DD HH:MM:SS, but got {format_response(response)}")


def _require_limit(client: Client) -> None:
    """Check that the limit's last request succeeds, and that the next one is rejected."""
    path = f"{PATH}/{client.owner.listings[0]}"
    for _ in range(LIMIT):
        response = client.get(path)
        if response.status != 200:  # noqa: PLR2004 - success
            raise BenchmarkError(f"{LIMIT} requests per hour must succeed, but one got {format_response(response)}")
    _require_error(client.get(path), 429, f"request {LIMIT + 1} of an hour")


def _require_content(response: Response, status: int, expected: object, subject: str) -> None:
    if response.status != status or response.json() != expected:
        raise BenchmarkError(f"{subject} must get {status} and {expected!r:.300}, but got {format_response(response)}")


def format_response(response: Response) -> str:
    """Return the status and the start of the body."""
    return f"{response.status} {response.body[:300].decode('utf-8', 'replace')}"


_NO_RESPONSE = Response(b"HTTP/1.1 200 OK\r\n", b"")
