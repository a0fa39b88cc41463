"""Columns by meaning: the names that spreadsheets and exports of other shops use, and the shapes of their cells."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from listings.domain.errors import Problem
from listings.domain.fields import FIELDS
from listings.service.transfer.escaping import unescape_formula
from listings.service.transfer.html_text import convert_to_text
from listings.service.transfer.rows import COLUMNS

IGNORED = "-"  # the column to which a mapping assigns cells that are not imported

_SYNONYMS: Mapping[str, list[str]] = msgspec.json.decode(  # the first name that a file has wins
    Path(__file__).with_name("synonyms.json").read_bytes(), type=dict[str, list[str]]
)
_MAX_NAME = 200
_WORD = re.compile(r"[^\W_]+")
_BRACKETS = re.compile(r"\([^)]*\)(?!$)|\((?!html).*\)$")
_NUMBERED_IMAGE = re.compile(
    r"(?:product )?(?:image|picture|photo)(?: url| src| link| file)? ?[0-9]{1,2}(?: url| src| link)?"
)


class _Shop(NamedTuple):
    signature: frozenset[str]  # the columns that identify its exports
    columns: Mapping[str, tuple[str, int]]  # their meaning in its exports, with the rank of the name


_LAST = 99
_NOT: tuple[str, int] = (IGNORED, 0)
_SHOPS: Mapping[str, _Shop] = {
    "Shopify": _Shop(
        frozenset({"handle", "title"}),
        {"type": ("category", _LAST), "status": ("is_active", 0), "published": ("is_active", _LAST), "id": _NOT},
    ),
    "WooCommerce": _Shop(
        frozenset({"type", "sku", "name", "regular price"}), {"type": _NOT, "id": ("external_id", _LAST)}
    ),
    "Etsy": _Shop(frozenset({"title", "currency code"}), {"type": _NOT, "id": ("external_id", _LAST)}),
    "Google Merchant": _Shop(frozenset({"link", "image link"}), {"type": _NOT, "id": ("external_id", _LAST)}),
    "Square": _Shop(frozenset({"item name", "variation name"}), {"type": _NOT, "id": _NOT}),
}
_CURRENCIES = ("currency", "currency code")
_STATES = {"1": "true", "0": "false", "-1": "false", "yes": "true", "no": "false", "y": "true", "n": "false"}
_STATES |= {"active": "true", "draft": "false", "archived": "false", "published": "true", "unlisted": "false"}
_STATES |= {"inactive": "false", "paused": "false", "hidden": "false", "visible": "true"}
_LABELS = {
    name: {label.lower(): value for value, label in FIELDS[name].options.items()} for name in ("type", "price_type")
}


def normalise(name: str) -> str:
    """Return the words of a column's name, without case, signs and brackets with their text."""
    return " ".join(_WORD.findall(_BRACKETS.sub(" ", name[:_MAX_NAME].lower())))


_NAMES: Mapping[str, str] = {normalise(name): name for name in COLUMNS}
_RANKS: Mapping[str, tuple[str, int]] = {
    normalise(one): (column, rank)
    for column, names in _SYNONYMS.items()
    for rank, one in enumerate((FIELDS[column].label, *names), 1)
} | {name: (column, 0) for name, column in _NAMES.items()}


class ReadOptions(NamedTuple):
    """How the rows of a spreadsheet are read."""

    mapping: Mapping[str, str] = {}  # the column of each name in the header that its importer has chosen
    keep_text: bool = False  # do not convert HTML and escaped line breaks in descriptions
    skip_variants: bool = False  # import only the first variant of a product
    only: frozenset[str] = frozenset()  # the columns that are read, or all


def detect_delimiter(start: bytes) -> tuple[str, bool]:
    """Return the delimiter of a CSV file, and whether its first line is not the header but says it, like "sep=;"."""
    text = start.decode("utf-8-sig", "replace")
    said = re.match(r'"?sep=([,;|\t])"?\r*\n', text, re.IGNORECASE)
    if said is not None:
        return said[1], True
    line = text.lstrip("\r\n").partition("\n")[0].strip("\r")
    outside = re.sub(r'"[^"]*"', "", line)
    known = {one: sum(normalise(cell.strip('"')) in _RANKS for cell in line.split(one)) for one in ",;\t|"}
    return max(known, key=lambda one: (known[one], outside.count(one))), False


class Header(NamedTuple):
    """The columns of a file: `names` in the file, and `columns` of listings, IGNORED, or unknown names."""

    names: Sequence[str]
    columns: Sequence[str]
    shop: str | None  # whose export it is
    used: Sequence[tuple[int, str]]  # the indexes of cells, and their columns. Later cells replace empty ones
    currency: int | None  # the index of the column with the currency of prices
    is_own: bool  # whether the file is an export of this program, whose texts are those of listings
    has_states: bool  # whether the column for is_active has another name, and other words

    def require_any(self, name: str) -> None:
        """Raise Problem("invalid_request") if no column is known."""
        if not set(COLUMNS).intersection(self.columns):
            message = "must name the columns, separated by commas, for example id,title,price"
            raise Problem("invalid_request", f"The first line of {name} {message}")

    def require_title(self, name: str) -> None:
        """Raise Problem("invalid_request") if the rows of the file name neither titles nor listings."""
        self.require_any(name)
        if not {"title", "id", "external_id"} & set(self.columns):
            raise Problem(
                "invalid_request", f"No column of {name} has the titles: name one title, or choose which it is"
            )

    def read(self, cells: Sequence[str], *, convert_text: bool) -> dict[str, str]:
        """Return the texts of a row by column. Several image columns are joined. `cells` may end early."""
        row: dict[str, str] = {}
        count = len(cells)
        for index, column in self.used:
            if index < count:
                cell = unescape_formula(cells[index])
                if not row.get(column):
                    row[column] = cell
                elif column == "images":
                    row[column] += f"\n{cell}"
        if not self.is_own:
            self._adapt(row, cells, convert_text=convert_text)
        return row

    def _adapt(self, row: dict[str, str], cells: Sequence[str], *, convert_text: bool) -> None:
        if convert_text and row.get("content"):
            row["content"] = convert_to_text(row["content"])
        if ">" in row.get("category", ""):
            row["category"] = row["category"].split(",")[0].rpartition(">")[2].strip()
        if row.get("is_active") and self.has_states:
            row["is_active"] = _STATES.get(row["is_active"].strip().lower(), row["is_active"])
        for name, labels in _LABELS.items():
            if row.get(name):
                row[name] = labels.get(row[name].strip().lower(), row[name])
        if row.get("price") and self.currency is not None and self.currency < len(cells):
            currency = cells[self.currency].strip()
            row["price"] += f" {currency}" if currency not in row["price"] else ""


def build_header(cells: Sequence[str], name: str, options: ReadOptions) -> Header:
    """Return the columns that the cells of a header name.

    Raises Problem("invalid_request") if it names a column of listings twice.
    """
    mapping = options.mapping
    names = [cell.strip() for cell in cells]
    words = [normalise(cell) for cell in names]
    missing = next((chosen for chosen in mapping if chosen not in names), None)
    if missing is not None:
        raise Problem("invalid_request", f"{name} has no column {missing}")
    shop = next((shop for shop, one in _SHOPS.items() if one.signature <= set(words)), None)
    ranked = [_rank(word, _SHOPS[shop].columns if shop is not None else {}) for word in words]
    best: dict[str, int] = {}
    for column, rank in ranked:
        best[column] = min(rank, best.get(column, rank))
    taken = set(mapping.values())
    columns: list[str] = []
    for cell, (column, rank) in zip(names, ranked, strict=True):
        is_best = column == "images" or (rank == best[column] and column not in taken)
        unused = IGNORED if column or shop is not None else cell
        columns.append(mapping.get(cell, column if column and is_best else unused))
    counts = Counter(columns)  # also a set: a header may have 30,000 columns
    duplicate = next((column for column in COLUMNS if column != "images" and counts[column] > 1), None)
    if duplicate is not None:
        raise Problem("invalid_request", f"The column {duplicate} appears twice in {name}")
    spare = [
        (rank, index, column)
        for index, (column, rank) in enumerate(ranked)
        if column in counts and columns[index] == IGNORED and names[index] not in mapping and column not in taken
    ]
    used = [(index, one) for index, one in enumerate(columns) if one not in {"", IGNORED}]
    used += [(index, column) for _, index, column in sorted(spare)]
    return Header(
        names=names,
        columns=columns,
        shop=shop,
        used=[(index, one) for index, one in used if not options.only or one in options.only],
        currency=next((index for index, word in enumerate(words) if word in _CURRENCIES), None),
        is_own={"id", "version"} <= set(columns),
        has_states="is_active" not in names,
    )


def _rank(word: str, given: Mapping[str, tuple[str, int]]) -> tuple[str, int]:
    # "": it is unknown
    if word in given:
        return given[word]
    if _NUMBERED_IMAGE.fullmatch(word):
        return "images", 0
    return _RANKS.get(word, ("", 0))
