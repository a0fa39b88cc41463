"""Numbered migrations for both engines, identified by the checksum of their text."""

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from listings.domain.errors import Problem

_NAME = re.compile(r"(\d{4})_(\w+)\.sql")


APPLIED = "SELECT version, name, checksum FROM schema_migrations ORDER BY version"


UNFINISHED_COPY = 1_000_000
"""Version in schema_migrations that marks a database as an unfinished copy, so that the service rejects it.

It is higher than the version of any migration.
"""


class Migration(NamedTuple):
    """A numbered change of the schema."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """The SHA-256 of the text in hexadecimal digits."""
        return sha256(self.text.encode()).hexdigest()


class SchemaObject(NamedTuple):
    """An object of a schema: its kind, its table if its name is only unique there, its name and its definition."""

    kind: str
    table: str
    name: str
    definition: str


class Difference(NamedTuple):
    """A difference from the schema that the migrations create, and the statement that removes it."""

    found: str
    repair: str
    is_fault: bool


def compare_schemas(found: Iterable[SchemaObject], expected: Iterable[SchemaObject]) -> list[Difference]:
    """Return how a schema differs.

    Additional objects are no fault unless they change what a write does. What belongs to an additional table, which
    may be another program's, is not listed.
    """
    actual, wanted = ({one[:3]: one.definition for one in objects} for objects in (found, expected))
    tables = {"", *(name for kind, _, name in wanted if kind == "table")}
    reference = re.compile(rf"\bREFERENCES\W+({'|'.join(tables - {''})})\b", re.IGNORECASE)
    differences = []
    for key in sorted(actual.keys() | wanted.keys(), key=lambda key: (key[0] != "table", key)):
        kind, table, name = key
        described, definition = f"{kind} {table}{table and '.'}{name}", wanted.get(key, "")
        add, drop = definition, f"DROP {kind.upper()} {name}{table and f' ON {table}'}"
        if kind in {"column", "constraint"}:
            change = f"ALTER TABLE {table} {{}} {kind.upper()} {name} {{}}"
            add, drop = change.format("ADD", definition), change.format("DROP", "").rstrip()
        if key not in actual:
            differences.append(Difference(f"{described} is missing", add, is_fault=True))
        elif key not in wanted:
            is_refused = kind in {"column", "constraint", "trigger"} and table in tables
            is_fault = is_refused or reference.search(actual[key]) is not None  # a foreign key can prevent a delete
            if is_fault or table in tables:
                differences.append(Difference(f"{described} is not part of it", drop, is_fault=is_fault))
        elif actual[key] != definition:
            repair = f"change it back to {add}" if kind in {"table", "column"} else f"{drop}; {add}"
            differences.append(Difference(f"{described} was changed", repair, is_fault=True))
    return differences


def require_equal_schema(differences: Sequence[Difference]) -> None:
    """Raise Problem("schema_mismatch") if there is a fault."""
    faults = [difference.found for difference in differences if difference.is_fault]
    if faults:
        raise Problem("schema_mismatch", f"The schema was altered ({', '.join(faults)}): run `listings doctor`")


def shipped_migrations(engine: Literal["sqlite", "postgres"] = "sqlite") -> list[Migration]:
    """Return this program's migrations for an engine, in order."""
    found = []
    for file in files("listings.store").joinpath("schema", engine).iterdir():
        match = _NAME.fullmatch(file.name)
        if match is not None:
            found.append(Migration(int(match[1]), match[2], file.read_text("utf-8")))
    return sorted(found)


def build_older_schema_problem() -> Problem:
    """Return the error for a schema with pending migrations."""
    return Problem("schema_mismatch", "The database has an older schema: run `listings migrate` to update it")


def count_known(applied: Sequence[Any], migrations: list[Migration]) -> int:
    """Return the number of applied migrations, given the rows of APPLIED.

    Raises Problem("schema_mismatch") if they are not the first ones of this program's migrations.
    """
    if applied and applied[-1][0] == UNFINISHED_COPY:
        raise Problem("schema_mismatch", "The database is an unfinished copy: run `listings copy` again to finish it")
    if len(applied) > len(migrations):
        raise Problem(
            "schema_mismatch", "The database has a newer schema than this program: install a newer version of Listings"
        )
    for (version, name, checksum), migration in zip(applied, migrations, strict=False):
        if (version, checksum) != (migration.version, migration.checksum):
            raise Problem(
                "schema_mismatch", f"Migration {version:04}_{name} in the database differs from the one in this program"
            )
    return len(applied)
