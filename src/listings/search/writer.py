"""Write one index: apply changes, and commit them with the position that they lead to."""

import json
import os
from collections.abc import Iterable, Sequence

from tantivy import Index, IndexWriter, Query

from listings.domain.market import IndexedListing
from listings.search.folders import Folder
from listings.search.schema import SCHEMA, Position, build_document, build_position, read_position

_HEAP_BYTES = 15_000_000  # the least that tantivy accepts
_MIN_DEAD = 10_000
_MAX_DEAD_SHARE = 1 / 3


class IndexDamageError(Exception):
    """An index can't be read, or a commit was lost."""


class OpenIndex:
    """An index that this process writes."""

    def __init__(self, folder: Folder, start: Position | None = None) -> None:
        """Open an index, or create one with the position `start`. Raises IndexDamageError, OSError or ValueError."""
        self.folder = folder
        self._lock = folder.lock()
        self._index = Index(SCHEMA, str(folder.path), reuse=True)
        self._index.config_reader("manual")
        self._writer: IndexWriter = self._index.writer(_HEAP_BYTES, 1)
        if start is not None:
            self.position = start
            self.commit(start)
            folder.mark_started()
        self.position = self._read_position()

    def apply(self, changes: Sequence[IndexedListing]) -> None:
        """Replace the documents of changed listings."""
        if changes:
            self._delete([change.id for change in changes])
            self.add(changes)

    def add(self, listings: Iterable[IndexedListing]) -> None:
        """Add listings that the index does not have."""
        for listing in listings:
            if listing.is_shown:
                self._writer.add_document(build_document(listing))

    def commit(self, position: Position) -> None:
        """Commit the added documents, with their position. Raises IndexDamageError if it can't be read afterwards."""
        self._delete([0])
        self._writer.add_document(build_position(position))
        self._writer.commit()
        if self._read_position() != position:
            raise IndexDamageError("a commit was lost")
        self.position = position

    def has_many_dead(self) -> bool:
        """Return whether more than a third of the documents were replaced or deleted."""
        segments = json.loads((self.folder.path / "meta.json").read_text())["segments"]
        dead: int = sum((it["deletes"] or {"num_deleted_docs": 0})["num_deleted_docs"] for it in segments)
        documents: int = sum(it["max_doc"] for it in segments)
        return dead > max(_MIN_DEAD, _MAX_DEAD_SHARE * documents)

    def close(self) -> None:
        """Close the index. Uncommitted documents are lost."""
        del self._writer, self._index
        os.close(self._lock)

    def _delete(self, ids: Sequence[int]) -> None:
        # `delete_documents_by_term` finds no unsigned number.
        self._writer.delete_documents_by_query(Query.term_set_query(SCHEMA, "id", list(ids)))

    def _read_position(self) -> Position:
        self._index.reload()
        position = read_position(self._index.searcher())
        if position is None:
            raise IndexDamageError("the position is missing")
        return position
