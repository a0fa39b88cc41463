"""Numbered migrations of both engines, identified by a checksum of their text."""

import re
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from listings.domain.errors import Problem

_NAME = re.compile(r"(\d{4})_(\w+)\.sql")


APPLIED = "SELECT version, name, checksum FROM schema_migrations ORDER BY version"


UNFINISHED_COPY = 1_000_000
"""Higher than any migration: marks a database as a copy which is not finished, so that nothing uses it."""


class Migration(NamedTuple):
    """One step of the schema."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text."""
        return sha256(self.text.encode()).hexdigest()


def shipped_migrations(engine: Literal["sqlite", "postgres"] = "sqlite") -> list[Migration]:
    """The migrations of this program for an engine, in order."""
    found = []
    for file in files("listings.store").joinpath("schema", engine).iterdir():
        match = _NAME.fullmatch(file.name)
        if match is not None:
            found.append(Migration(int(match[1]), match[2], file.read_text("utf-8")))
    return sorted(found)


def older() -> Problem:
    """What a schema is told as that lacks migrations."""
    return Problem("schema_mismatch", "The database has an older schema: bring it up to date with `listings migrate`")


def count_known(applied: Sequence[Any], migrations: list[Migration]) -> int:
    """How many rows of APPLIED there are. Raises Problem("schema_mismatch") unless they are the first of ours."""
    if applied and applied[-1][0] == UNFINISHED_COPY:
        raise Problem("schema_mismatch", "The database is a copy that is not finished: run `listings copy` again")
    if len(applied) > len(migrations):
        raise Problem(
            "schema_mismatch",
            "The database has a newer schema than this program knows: install a newer Listings",
        )
    for (version, name, checksum), migration in zip(applied, migrations, strict=False):
        if (version, checksum) != (migration.version, migration.checksum):
            raise Problem(
                "schema_mismatch",
                f"Migration {version:04}_{name} of the database differs from this program's",
            )
    return len(applied)
