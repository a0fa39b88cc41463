"""Numbered migrations for both engines, identified by the checksum of their text."""

import re
from collections.abc import Sequence
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
            "schema_mismatch",
            "The database has a newer schema than this program: install a newer version of Listings",
        )
    for (version, name, checksum), migration in zip(applied, migrations, strict=False):
        if (version, checksum) != (migration.version, migration.checksum):
            raise Problem(
                "schema_mismatch",
                f"Migration {version:04}_{name} in the database differs from the one in this program",
            )
    return len(applied)
