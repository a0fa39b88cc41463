"""Plan: compare a file with the catalogue of the service, by external id."""

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from listings_client import credentials, operations
from listings_client.client import Client
from listings_client.core import Emits, Options
from listings_client.errors import FileError, GoneError, ListingsError
from listings_client.files import Rows
from listings_client.records import FIELD_NAMES, ChangeSet, Listing, convert

MAX_AGE = timedelta(hours=24)  # after which the service has forgotten Idempotency-Keys
_VERSION = 2
_MAX_DELETED, _MAX_DELETED_SHARE = 10, 0.1
_MAX_PRICE_JUMP = 0.5
_MIN_ROWS_SHARE = 0.5


class GuardError(ListingsError):
    """A guard stopped the command: a person has to confirm it."""


@dataclass
class Catalogue:
    """The listings with an external id, by id: their fields, and the tags of those that were read."""

    listings: dict[int, dict[str, Any]] = field(default_factory=dict)
    tags: dict[int, str] = field(default_factory=dict)
    last: int | None = None  # the id of the last change set, if it is known
    tag: str | None = None  # of the list, if it was read
    account: str = ""  # if it is known

    def store(self, listing: Listing) -> None:
        """Add a listing as it was read, or remove it if it is not part of the catalogue."""
        if listing.deleted_at is not None or listing.external_id is None:
            self.listings.pop(listing.id, None)
        else:
            self.listings[listing.id] = {name: getattr(listing, name) for name in FIELD_NAMES}
            self.tags[listing.id] = listing.etag

    def apply(self, change_set: ChangeSet) -> set[int]:
        """Apply a change set. Return the ids of listings that have to be read, because not all fields are known."""
        unknown = set()
        for change in change_set.changes:
            known = self.listings.get(change.id, {} if change.before is None else None)
            if change.after.get("deleted_at") is not None:
                self.listings.pop(change.id, None)
            elif known is not None:
                known.update({name: value for name, value in change.after.items() if name in FIELD_NAMES})
                self.listings[change.id] = known
            elif change.external_id is not None:
                unknown.add(change.id)
        return unknown


def _read_all(options: Options, catalogue: Catalogue) -> Emits[Listing]:
    catalogue.tag = yield from operations.stream_listings(options, status="all")


def read_catalogue(client: Client, *, with_last: bool) -> Catalogue:
    """Read the list: one request, and with `with_last` another one before it. Raises ListingsError."""
    catalogue = Catalogue(last=client.last_change() if with_last else None)
    for listing in client.iterate(_read_all(client.options, catalogue)):
        catalogue.store(listing)
    return catalogue


def follow_catalogue(client: Client, path: Path) -> Catalogue:
    """Bring the catalogue in a state file up to date from the feed, or read it again. Raises ListingsError."""
    catalogue = _load_state(client, path)
    try:
        if catalogue is not None:
            unknown: set[int] = set()
            for change_set in client.changes(catalogue.last):
                unknown |= catalogue.apply(change_set)
                catalogue.last = change_set.id
            refresh(client, catalogue, sorted(unknown))
    except GoneError:
        catalogue = None
    if catalogue is None:
        catalogue = read_catalogue(client, with_last=True)
    for number in [number for number, fields in catalogue.listings.items() if fields["external_id"] is None]:
        del catalogue.listings[number]
    return catalogue


def refresh(client: Client, catalogue: Catalogue, ids: Sequence[int]) -> None:
    """Read listings again. Raises ListingsError."""
    for start in range(0, len(ids), operations.MAX_OPERATIONS):
        part = ids[start : start + operations.MAX_OPERATIONS]
        for number in part:
            catalogue.listings.pop(number, None)
        for listing in client.list(ids=part, status="all"):
            catalogue.store(listing)


def _load_state(client: Client, path: Path) -> Catalogue | None:
    try:
        saved = operations.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FileError(f"{path} can't be read: {error}") from None
    is_state = isinstance(saved, dict) and saved.get("version") == _VERSION and {"key", "account"} <= saved.keys()
    if not is_state or (saved["key"] != _digest(client) and saved["account"] != client.account()):
        raise FileError(f"{path} is not the state of this account and version: use another file")
    listings = {
        int(number): {name: convert(name, value) for name, value in fields.items()}
        for number, fields in saved["listings"].items()
    }
    return Catalogue(listings, last=saved["last"], account=saved["account"])


def _digest(client: Client) -> str:
    return hashlib.sha256(f"{client.options.key} {client.options.base_url}".encode()).hexdigest()


def save_state(client: Client, catalogue: Catalogue, path: Path) -> None:
    """Write the state file."""
    identity = {"version": _VERSION, "key": _digest(client), "account": catalogue.account or client.account()}
    state = {**identity, "last": catalogue.last, "listings": catalogue.listings}
    credentials.write_privately(path, operations.encode(state).decode())


@dataclass(frozen=True)
class Entry:
    """One write of a plan, and its changes."""

    op: str
    external_id: str
    fields: Mapping[str, Any]
    id: int | None = None
    if_match: str | None = None
    before: Mapping[str, Any] = field(default_factory=dict)

    @property
    def body(self) -> dict[str, Any]:
        """The operation of a batch."""
        if self.op == "create":
            return {"op": "create", "listing": {**self.fields, "external_id": self.external_id}}
        changes = {"changes": self.fields} if self.op == "update" else {}
        return {"op": self.op, "id": self.id, "if_match": self.if_match, **changes}


@dataclass(frozen=True)
class Plan:
    """The writes that make the catalogue like the file, and how many listings they leave."""

    account: str  # as `Client.account`; empty without entries
    entries: Sequence[Entry]
    unchanged: int
    left: int  # listings that are not in the file
    questions: Sequence[str]
    last: int | None
    tag: str | None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    version: int = _VERSION

    @property
    def group(self) -> str:
        """The name of all its writes, with which they can be undone."""
        return f"lst-{self.id}"

    def count(self, op: str) -> int:
        """Return the number of its creates, updates or deletes."""
        return sum(entry.op == op for entry in self.entries)

    def save(self, path: Path) -> None:
        """Write the plan, readable only by its owner."""
        credentials.write_privately(path, operations.encode(self).decode())


def load_plan(path: Path) -> Plan:
    """Read a plan. Raises FileError."""
    try:
        data = json.loads(path.read_bytes())
        return Plan(**{**data, "entries": [Entry(**one) for one in data["entries"]]})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FileError(f"{path} is not a plan: {error}") from None


def require_current(plan: Plan, client: Client) -> None:
    """Raise FileError if the plan is too old, or of another account. Raises ListingsError."""
    if plan.entries and plan.account != client.account():
        raise FileError(f"The plan is for {plan.account}, but the key is for {client.account()}")
    if datetime.now(UTC) - datetime.fromisoformat(plan.created_at) >= MAX_AGE:
        raise FileError("The plan is older than 24 hours: run lst plan again")


def build_plan(
    client: Client, catalogue: Catalogue, rows: Rows, *, delete: bool = False, max_delete: int = 0, prefix: str = ""
) -> Plan:
    """Compare rows with the listings whose external ids begin with the prefix.

    Listings that would change are read again if their tags are unknown.

    Raises FileError, GuardError, ListingsError.
    """
    stray = next((name for name in rows if not name.startswith(prefix)), None)
    if stray is not None:
        raise FileError(f"The external id {stray} does not begin with {prefix}")
    while True:
        own = {
            fields["external_id"]: number
            for number, fields in catalogue.listings.items()
            if fields["external_id"].startswith(prefix)
        }
        entries = list(_compare(catalogue, own, rows, delete=delete))
        unread = [entry.id for entry in entries if entry.id is not None and entry.if_match is None]
        if not unread:
            break
        refresh(client, catalogue, unread)
    gone = own.keys() - rows.keys()
    deleted = sum(entry.op == "delete" for entry in entries)
    if deleted > max(_MAX_DELETED, len(own) * _MAX_DELETED_SHARE, max_delete):
        raise GuardError(f"{deleted} of {len(own)} listings would be deleted: to do so, add --max-delete {deleted}")
    changed = sum(entry.op == "update" for entry in entries)
    return Plan(
        account=client.account() if entries else "",
        entries=entries,
        unchanged=len(own) - len(gone) - changed,
        left=len(gone) - deleted,
        questions=list(_find_questions(entries, len(rows), len(own))),
        last=catalogue.last,
        tag=catalogue.tag,
    )


def _compare(catalogue: Catalogue, own: Mapping[str, int], rows: Rows, *, delete: bool) -> Iterator[Entry]:
    """Yield deletes, then updates, then creates."""
    for external_id, number in own.items():
        if delete and external_id not in rows:
            yield Entry("delete", external_id, {}, number, catalogue.tags.get(number))
    faults = []
    creates = []
    for external_id, row in rows.items():
        found = own.get(external_id)
        if found is None:
            missing = [name for name in ("title", "content") if not row.fields.get(name)]
            faults += [f"Line {row.number}: {external_id} is new, which needs {name}" for name in missing]
            creates.append(Entry("create", external_id, row.fields))
            continue
        old = catalogue.listings[found]
        changes = {name: value for name, value in row.fields.items() if old[name] != value}
        if changes:
            before = {name: old[name] for name in changes}
            yield Entry("update", external_id, changes, found, catalogue.tags.get(found), before)
    if faults:
        raise FileError("\n".join(faults[:20]))
    yield from creates


def measure_jump(entry: Entry) -> float | None:
    """Return by which share of the old price an update changes the price, or None."""
    old, new = entry.before.get("price"), entry.fields.get("price")
    return None if not old or new is None else float((new - old) / old)


def _find_questions(entries: Sequence[Entry], rows: int, listings: int) -> Iterator[str]:
    jumps = sum(abs(measure_jump(entry) or 0) > _MAX_PRICE_JUMP for entry in entries if entry.op == "update")
    if jumps:
        yield f"{jumps} prices change by more than 50%. Apply them?"
    if rows < listings * _MIN_ROWS_SHARE:
        yield f"The file has {rows} rows, but there are {listings} listings. Is it complete?"
