"""Read the file of a catalogue: CSV or JSON lines, with the fields' names, synonyms, or a given mapping."""

import csv
import io
import json
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from listings_client.errors import FileError
from listings_client.records import FIELD_NAMES, convert

IGNORED = "-"
_WORD = re.compile(r"[^\W_]+")
_BRACKETS = re.compile(r"\([^)]*\)")
_SYNONYMS: Mapping[str, Sequence[str]] = json.loads(files(__package__).joinpath("synonyms.json").read_text("utf-8"))
_TRUE, _FALSE = {"true", "yes", "y", "1", "active"}, {"false", "no", "n", "0", "inactive", "paused"}
_MAX_SHOWN = 20


class Row(NamedTuple):
    """A row: its number in the file, and the fields that it sets."""

    number: int
    fields: dict[str, Any]


Rows: TypeAlias = Mapping[str, Row]


def read_table(path: Path, mapping: Mapping[str, str]) -> tuple[Rows, list[str]]:
    """Return the rows of a file by external id, and the columns that are not used. Raises FileError.

    `mapping` has the field of each column that it names, or "-" to ignore it.
    """
    try:
        data = path.read_bytes()
        text = data.decode("utf-16" if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig")
    except OSError as error:
        raise FileError(f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise FileError(f"{path} is not UTF-8: save it as CSV UTF-8") from None
    is_json = path.suffix in {".jsonl", ".ndjson", ".json"} or text.lstrip().startswith("{")
    names, cells = _read_json(text, path) if is_json else _read_csv(text, path)
    columns = find_columns(names, mapping, path)
    if "external_id" not in columns.values():
        raise FileError(f"No column of {path} has the external ids: name one external_id, or use --map")
    return _collect(cells, columns, path), [name for name in names if name not in columns]


def _read_csv(text: str, path: Path) -> tuple[list[str], Iterable[tuple[int, dict[str, Any]]]]:
    line = text.partition("\n")[0]
    delimiter = max(",;\t", key=line.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    names = [name.strip() for name in next(reader, [])]
    if len(set(names)) < len(names):
        raise FileError(f"{path} has two columns with the same name")

    def read() -> Iterator[tuple[int, dict[str, Any]]]:
        try:
            for cells in reader:
                if any(cells):
                    if len(cells) != len(names):
                        raise FileError(f"Line {reader.line_num} of {path} has {len(cells)} cells, not {len(names)}")
                    yield reader.line_num, dict(zip(names, cells, strict=True))
        except csv.Error as error:
            raise FileError(f"Line {reader.line_num} of {path}: {error}") from None

    return names, read()


def _read_json(text: str, path: Path) -> tuple[list[str], Iterable[tuple[int, dict[str, Any]]]]:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line, parse_float=Decimal)
            except ValueError as error:
                raise FileError(f"Line {number} of {path} is not JSON: {error}") from None
            if not isinstance(row, dict):
                raise FileError(f"Line {number} of {path} is not a JSON object")
            rows.append((number, row))
    return list(dict.fromkeys(name for _, row in rows for name in row)), rows


def find_columns(names: Sequence[str], mapping: Mapping[str, str], path: Path) -> dict[str, str]:
    """Return the field of each column that is used. Raises FileError."""
    missing = next((name for name in mapping if name not in names), None)
    if missing is not None:
        raise FileError(f"{path} has no column {missing}")
    columns = {name: field for name, field in mapping.items() if field != IGNORED}
    taken = set(columns.values())
    if len(taken) < len(columns):
        raise FileError("Two columns are mapped to the same field")
    for field in FIELD_NAMES:
        known = [field.replace("_", " "), *_SYNONYMS.get(field, ())]
        found = [name for name in names if name not in mapping and normalise(name) in known]
        if found and field not in taken:
            columns[min(found, key=lambda name: known.index(normalise(name)))] = field
    return columns


def normalise(name: str) -> str:
    """Return the words of a column's name, without case, signs and brackets."""
    return " ".join(_WORD.findall(_BRACKETS.sub(" ", name.lower())))


def _collect(cells: Iterable[tuple[int, Mapping[str, Any]]], columns: Mapping[str, str], path: Path) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    faults: list[str] = []
    for number, row in cells:
        values = ((columns[name], value) for name, value in row.items() if name in columns)
        try:
            fields = {name: parse_value(name, value) for name, value in values if (name, value) != ("is_active", "")}
        except ValueError as error:
            faults.append(f"Line {number} of {path}: {error}")
            continue
        external_id = fields.pop("external_id", None)
        if external_id and external_id not in rows:
            rows[external_id] = Row(number, fields)
        else:
            fault = f"{external_id} is also in line {rows[external_id].number}" if external_id else "is empty"
            faults.append(f"Line {number} of {path}: external_id {fault}")
    if faults:
        more = [f"and {len(faults) - _MAX_SHOWN} more"] if len(faults) > _MAX_SHOWN else []
        raise FileError("\n".join([*faults[:_MAX_SHOWN], *more]))
    return rows


def parse_value(field: str, value: Any) -> Any:  # noqa: ANN401 - of any field
    """Return the value of a cell, or of a field in JSON. Raises ValueError."""
    if value is None:
        return None if field in {"latitude", "longitude", "external_id"} else convert(field, _EMPTY.get(field, ""))
    if isinstance(value, str) and field in _PARSERS:
        return _PARSERS[field](value.strip())
    if field == "price" and isinstance(value, int | Decimal) and not isinstance(value, bool):
        return _parse_price(str(value))
    return convert(field, str(value) if field == "external_id" else value)


def _parse_price(text: str) -> Decimal:
    try:
        price = Decimal(text.replace("$", "") or 0)
        rounded = price.quantize(Decimal("0.01"))
    except InvalidOperation:
        raise ValueError(f"price must be a number, got {text!r}") from None
    if price != rounded:
        raise ValueError(f"price may have two decimals, got {text!r}")
    return rounded


def _parse_state(text: str) -> bool:
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise ValueError(f"is_active must be yes or no, got {text!r}")


_EMPTY: Mapping[str, Any] = {"images": (), "price": 0, "price_type": "fixed", "type": "product"}
_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "price": _parse_price,
    "is_active": _parse_state,
    "images": lambda text: tuple(re.split(r"[\s|]+", text)) if text else (),
    **dict.fromkeys(("latitude", "longitude"), lambda text: float(text) if text else None),
    "type": lambda text: text.lower() or "product",
    "price_type": lambda text: text.lower() or "fixed",
}
