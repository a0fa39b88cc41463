"""What everyone who does the work must answer, compared with the service's own answers, before anything is measured.

Raises Refusal with the first answer that is wrong.
"""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench import RejectedRequest
from bench.data import ACTIVE, Owner
from bench.exchange import Answer, Request, exchange
from bench.peers.contenders import Contender, Start
from bench.scenarios import PATH
from bench.servers import Server

WINDOW = 3600
"""The rate window of these checks, in seconds: nobody gets through a thousand requests and out of it."""

LIMIT = 1000

_NOWHERE = 2**40
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_LEAST = {"title": "Kayak", "content": "Two seats."}
_MOST = {
    **_LEAST,
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
    """What the service shows of the first owner's listings: one by one by their ids, and as a list."""

    by_id: Mapping[int, Any]
    listed: Any


class Side(NamedTuple):
    """A server that is asked."""

    port: int
    owner: Owner

    def get(self, path: str, key: str | None = None) -> Answer:
        """The answer to a GET with the owner's key or another."""
        return exchange(self.port, Request("GET", path, self.owner.key if key is None else key))

    def create(self, body: str) -> Answer:
        """The answer to a POST."""
        return exchange(self.port, Request("POST", PATH, self.owner.key, body))


def records_of(service: Contender, folder: Path, core: int) -> Records:
    """What the service shows, which everyone else must show as well."""
    with _running(service, folder, core) as server:
        side = Side(server.port, service.data.owners[0])
        by_id = {number: side.get(f"{PATH}/{number}").json() for number in side.owner.listings}
        return Records(by_id, side.get(PATH).json())


def require_contract(contender: Contender, records: Records, folder: Path, core: int) -> None:
    """Ask all that the contract says of reading, listing and creating."""
    try:
        with _running(contender, folder, core) as server:
            first, second, third = (Side(server.port, owner) for owner in contender.data.owners[:3])
            _require_errors(first, second, contender.expired)
            _require_records(first, records)
            _require_creates(second)
            _require_limit(third)
    except RejectedRequest as refusal:
        raise RejectedRequest(f"{contender.name}: {refusal}") from None


@contextmanager
def _running(contender: Contender, folder: Path, core: int) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        start = Start(Path(name), core, _NO_ANSWER, WINDOW)
        with contender.running(start) as server:
            yield server


def _require_errors(side: Side, other: Side, expired: str) -> None:
    one = f"{PATH}/{side.owner.listings[0]}"
    for path in (one, PATH):
        _require_error(side.get(path, ""), 401, "no key")
        _require_error(side.get(path, "no-such.key"), 401, "a key that nobody has")
        _require_error(side.get(path, expired), 403, "an expired plan")
    _require_error(side.get(f"{PATH}/{_NOWHERE}"), 404, "a listing that does not exist")
    _require_error(other.get(one), 403, "another account's listing")
    for body in ("{", '{"title": "Kayak"}', '{"content": "Two seats."}'):
        _require_error(side.create(body), 400, f"the body {body}")


def _require_error(answer: Answer, status: int, asked: str) -> None:
    content = answer.json()
    shape = isinstance(content, dict) and list(content) == ["error"] and isinstance(content["error"], str)
    if answer.status != status or not shape:
        raise RejectedRequest(
            f'{asked} is to be answered with {status} and {{"error": text}}, not with {shown(answer)}'
        )


def _require_records(side: Side, records: Records) -> None:
    for number, record in records.by_id.items():
        _require_content(side.get(f"{PATH}/{number}"), 200, record, f"the listing {number}")
    _require_content(side.get(PATH), 200, records.listed, f"the list of {ACTIVE}")


def _require_creates(side: Side) -> None:
    for body in (_LEAST, _MOST):
        answer = side.create(json.dumps(body))
        number = (answer.json() or {}).get("id")
        _require_content(answer, 201, {"id": number, "message": "listing created"}, "a create")
        record = side.get(f"{PATH}/{number}")
        _require_times(record)
        times = {name: record.json()[name] for name in ("created_at", "updated_at")}
        _require_content(record, 200, {"id": number, **_DEFAULTS, **body, **times}, "a new listing")


def _require_times(answer: Answer) -> None:
    content = answer.json() or {}
    if not all(_TIME.fullmatch(str(content.get(name))) for name in ("created_at", "updated_at")):
        raise RejectedRequest(f"times are YYYY-MM-DD HH:MM:SS, but the answer is {shown(answer)}")


def _require_limit(side: Side) -> None:
    """The thousandth request in an hour is answered, the next one refused."""
    path = f"{PATH}/{side.owner.listings[0]}"
    for _ in range(LIMIT):
        answer = side.get(path)
        if answer.status != 200:  # noqa: PLR2004 - success
            raise RejectedRequest(f"{LIMIT} requests an hour are to be answered, but one is with {shown(answer)}")
    _require_error(side.get(path), 429, f"request {LIMIT + 1} of an hour")


def _require_content(answer: Answer, status: int, wanted: object, what: str) -> None:
    if answer.status != status or answer.json() != wanted:
        raise RejectedRequest(f"{what} is to be answered with {status} and {wanted!r:.300}, not with {shown(answer)}")


def shown(answer: Answer) -> str:
    """An answer for a sentence."""
    return f"{answer.status} {answer.body[:300].decode('utf-8', 'replace')}"


_NO_ANSWER = Answer(b"HTTP/1.1 200 OK\r\n", b"")
