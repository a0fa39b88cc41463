"""Random catalogues: plan, apply and plan again, with rivals, and compare the result with a simple model."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from listings_client import Client, ConflictError, Listing
from listings_client.apply import Journal, apply_plan
from listings_client.files import Rows, read_table
from listings_client.plan import Plan, build_plan, follow_catalogue, read_catalogue, save_state
from listings_client.records import FIELD_NAMES, convert

TEXTS = ("Lamp", "ü", "a\r\nb", "a\nb\r", '"quoted", and; more', " spaces ", "\u2028", "🚲\x0b", "'=1+1", "0", "\ufeff")
PRICES = tuple(map(Decimal, ("0", "5", "19.99", "5.10", "999999999.99")))
COLUMNS = ("title", "content", "price", "category", "region", "latitude", "is_active", "images", "type", "district")

NEW: dict[str, Any] = {
    **dict.fromkeys(("category", "location", "region", "district"), ""),
    **dict.fromkeys(("latitude", "longitude")),
    "type": "product",
    "price_type": "fixed",
    "price": Decimal("0.00"),
    "images": (),
    "is_active": True,
}
_ALL = 10**6
State = dict[Any, dict[str, Any]]


class World:
    """The listings of one account, which files, rivals and plans change."""

    def __init__(self, client: Client, folder: Path, seed: int, rows: int) -> None:
        self.random = Random(seed)
        self.client = client
        self.rows = rows
        self._folder = folder
        self._state = folder / "state.json"
        self._names = [f"ü-{number}" for number in range(rows * 2)]

    def read(self) -> dict[int, Listing]:
        return {one.id: one for one in self.client.stream(status="all") if one.deleted_at is None}

    def check(self) -> Iterator[str]:
        """Plan and apply a random file. Yield the differences from the model."""
        self.disturb()
        deletes = self.random.random() < 0.5
        rows = self._write_file()
        plan = self._plan(rows, deletes=deletes)
        has_rival = self.random.random() < 0.5
        if has_rival:
            self.disturb()
        before = self.read()
        apply_plan(self.client, plan, Journal(self._folder / plan.id, plan), strict=False)
        after = self.read()
        expected = predict(before, plan)
        actual = describe(after)
        yield from (f"{name} is {actual.get(name)}, expected {expected.get(name)}" for name in differ(actual, expected))
        again = self._plan(rows, deletes=deletes)
        if not has_rival:
            yield from (f"after apply, the plan has {entry}" for entry in again.entries)
            yield from find_missing(rows, after)

    def _plan(self, rows: Rows, *, deletes: bool) -> Plan:
        if self.random.random() < 0.5:
            catalogue = read_catalogue(self.client, with_last=False)
            return build_plan(self.client, catalogue, rows, delete=deletes, max_delete=_ALL)
        catalogue = follow_catalogue(self.client, self._state)
        plan = build_plan(self.client, catalogue, rows, delete=deletes, max_delete=_ALL)
        save_state(self.client, catalogue, self._state)
        return plan

    def _write_file(self) -> Rows:
        chosen = self.random.sample(self._names, self.random.randint(1, self.rows))
        others = self.random.sample(COLUMNS[2:], self.random.randint(0, len(COLUMNS) - 2))
        columns = ["title", "content", *others]
        rows = [{"external_id": name, **{column: self.choose(column) for column in columns}} for name in chosen]
        if self.random.random() < 0.5:
            text = "".join(json.dumps(row, default=float, ensure_ascii=False) + "\n" for row in rows)
            return self._read(text, "stock.jsonl")
        file = io.StringIO(newline="")
        writer = csv.DictWriter(file, ["external_id", *columns], delimiter=self.random.choice(",;\t"))
        writer.writeheader()
        writer.writerows({name: to_cell(value) for name, value in row.items()} for row in rows)
        return self._read(file.getvalue(), "stock.csv")

    def _read(self, text: str, name: str) -> Rows:
        path = self._folder / name
        path.write_text(text, "utf-8", newline="")
        return read_table(path, {})[0]

    def choose(self, column: str) -> Any:
        pick = self.random.choice
        choices: dict[str, Callable[[], Any]] = {
            "price": lambda: pick(PRICES),
            "latitude": lambda: pick((None, -41.25, 0.1)),
            "is_active": lambda: pick((True, False)),
            "images": lambda: [f"https://a.example/{number}.jpg" for number in range(pick(range(4)))],
            "type": lambda: pick(("product", "rental")),
            "title": lambda: f"{pick(TEXTS)}.",
            "content": lambda: f"{pick(TEXTS)}{pick(TEXTS)}.",
        }
        return choices.get(column, lambda: pick(("", "Ölands", "x, y")))()

    def disturb(self) -> None:
        """Edit, delete, restore and create listings; move and free external ids."""
        found = list(self.read().values())
        for listing in self.random.sample(found, min(len(found), self.random.randint(0, 6))):
            self._edit(listing)
        deleted = list(islice(self.client.list(status="deleted", page_size=10, sort="-updated_at"), 10))
        for listing in self.random.sample(deleted, min(len(deleted), self.random.randint(0, 2))):
            with suppress(ConflictError):  # another listing has its external id
                self.client.restore(listing)

    def _edit(self, listing: Listing) -> None:
        free = self.random.choice(self._names)
        is_free = all(one.deleted_at is not None for one in self.client.list(external_id=free, status="all"))
        match self.random.randint(0, 4):
            case 0:
                self.client.delete(listing)
            case 1:
                self.client.update(listing, external_id=None)
            case 2 if is_free:
                self.client.update(listing, external_id=free)
            case 3 if is_free:
                self.client.create(title="Rival", content="By hand.", external_id=free)
            case _:
                self.client.update(listing, title=self.choose("title"), price=self.choose("price"))


def to_cell(value: Any) -> str:
    if isinstance(value, list):
        return "|".join(value)
    return "" if value is None else str(value)


def to_decimal(value: Any) -> Any:
    return Decimal(str(value)) if isinstance(value, float) else value


def describe(listings: Mapping[int, Listing]) -> State:
    """Return the fields of listings by external id, or by id if there is none."""
    return {
        one.external_id or number: {name: getattr(one, name) for name in FIELD_NAMES}
        for number, one in listings.items()
    }


def predict(before: Mapping[int, Listing], plan: Plan) -> State:
    """Return the state after a plan: only listings that are as the plan has seen them are changed."""
    state = describe(before)
    for entry in plan.entries:
        values = {name: convert(name, to_decimal(value)) for name, value in entry.fields.items()}
        if entry.op == "create":
            state.setdefault(entry.external_id, NEW | {"external_id": entry.external_id} | values)
            continue
        listing = before.get(entry.id or 0)
        if listing is not None and listing.etag == entry.if_match:
            state[entry.external_id] |= values
            if entry.op == "delete":
                del state[entry.external_id]
    return state


def differ(first: State, second: State) -> list[Any]:
    return [name for name in first.keys() | second.keys() if first.get(name) != second.get(name)]


def find_missing(rows: Rows, after: Mapping[int, Listing]) -> Iterator[str]:
    state = describe(after)
    for name, row in rows.items():
        if not row.fields.items() <= state.get(name, {}).items():
            yield f"{name} is {state.get(name)}, the file has {row.fields}"
