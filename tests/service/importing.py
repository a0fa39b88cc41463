"""Import files into an account of the harness, without the console or the command line."""

import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from listings.domain.errors import Problem
from listings.domain.imports import ImportProgress, Position, RowOutcome
from listings.domain.model import Listing
from listings.service.transfer import importer
from listings.service.transfer.columns import ReadOptions
from listings.service.transfer.file_formats import ImportFile, begin_export, detect_format
from listings.service.transfer.rows import Row
from tests.harness import Harness, Person

DEFAULT = ReadOptions()


class Seen(NamedTuple):
    """A row of an import: its line, its outcome or the reason of its rejection, and the attributes that it changes."""

    line: int
    outcome: str
    diff: Mapping[str, Any]


class Listener:
    def __init__(self) -> None:
        self.rows: list[Seen] = []

    def on_outcome(self, row: Row, outcome: RowOutcome) -> None:
        text = outcome.message if isinstance(outcome, Problem) else outcome
        self.rows.append(Seen(row.line, text, {name: new for name, (_, new) in row.diff.items()}))

    def on_resume(self, done: ImportProgress) -> None:
        pass

    def on_progress(self, phase: importer.ImportPhase, position: Position) -> None:
        pass

    def on_ignored_columns(self, names: frozenset[str]) -> None:
        pass


class Shop:
    def __init__(self, harness: Harness, person: Person) -> None:
        self.harness, self.person = harness, person

    def create(self, **fields: Any) -> int:
        reply = self.harness.fetch(
            "POST", "/api/v1/listings", key=self.person.key, json={"title": "A", "content": "c"} | fields
        )
        assert reply.status == 201, reply
        return int(reply.json()["id"])

    def change(self, listing_id: int, **fields: Any) -> None:
        method = "PATCH" if fields else "DELETE"
        assert (
            self.harness.fetch(method, f"/api/v1/listings/{listing_id}", key=self.person.key, json=fields).status == 200
        )

    def get(self, listing_id: int) -> Listing:
        found = self.harness.run(self.harness.services.transfer._store.get_listing(listing_id))  # noqa: SLF001
        assert found is not None
        return found

    def listings(self) -> list[Listing]:
        async def read() -> list[Listing]:
            return [
                one async for page in self.harness.services.transfer.read_pages(self.person.account) for one in page
            ]

        return self.harness.run(read())

    def titles(self) -> list[str]:
        return [listing.title for listing in self.listings()]

    def export(self, name: str = "a.csv") -> bytes:
        origin = self.harness.run(self.harness.services.transfer.get_origin())
        encoder = begin_export(detect_format(Path(name)), origin)
        return encoder.header + encoder.encode(self.listings()) + encoder.finish()

    def run(
        self,
        content: bytes | str,
        name: str = "a.csv",
        read: ReadOptions = DEFAULT,
        **options: Any,
    ) -> list[Seen]:
        """Import a file, and return its rows. It may have been imported before."""
        data = content.encode() if isinstance(content, str) else content
        listener = Listener()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(data)
            with path.open("rb") as file, closing(ImportFile(file, detect_format(path), read)) as source:
                chosen = importer.ImportOptions(**{"again": True, "ids": "auto", **options})
                task = self.harness.services.transfer.run_import(self.person.account, source, listener, chosen)
                self.harness.run(task)
        return listener.rows

    def outcomes(self, content: bytes | str, name: str = "a.csv", **options: Any) -> list[str]:
        """Return the outcomes of a dry run, which are those of the import that follows."""
        planned = self.run(content, name, dry_run=True, **options)
        done = self.run(content, name, **options)
        assert [one[:2] for one in planned] == [one[:2] for one in done]
        return [one.outcome for one in done]
