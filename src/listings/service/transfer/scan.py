"""Read a whole file before its first row is imported: which ids and external ids it has, and which are repeated."""

from array import array
from bisect import bisect_left
from collections.abc import Hashable
from itertools import pairwise
from typing import TypeGuard

from listings.domain.errors import Problem
from listings.domain.faults import preview
from listings.domain.model import BUCKETS, MAX_ID, Account, bucket_of
from listings.service.transfer.row_changes import parse_external_id, parse_version
from listings.service.transfer.rows import Row

MAX_GIVEN_ID = 2**52  # of a new listing: JSON parsers are exact up to 2**53, and the upper half is left for new ids
_PART = 100_000  # keys that are sorted at a time: a set of a million would take 100 MB
_MAX_LINES = 5  # that a message names


class IdChoiceRequired(Problem):
    """A file has ids that can't be this account's, so its importer has to choose their meaning."""

    def __init__(self, line: int, number: object) -> None:
        message = f"The file has ids of another shop or account, such as {preview(number)} in line {line}"
        super().__init__("invalid_request", message)


class _Keys:
    def __init__(self) -> None:
        self._keys = array("q")  # hashes of ids or external ids
        self._lines = array("I")
        self._parts: list[array[int]] = []
        self.repeated: dict[int, list[int]] = {}  # the lines of each key that occurs more than once

    def add(self, key: Hashable, line: int) -> None:
        self._keys.append(hash(key))
        self._lines.append(min(line, 2**32 - 1))

    def finish(self) -> None:
        count = 1 + len(self._keys) // _PART
        for part in range(count):
            ordered = sorted(key for key in self._keys if key % count == part) if count > 1 else sorted(self._keys)
            self.repeated |= {key: [] for key, following in pairwise(ordered) if key == following}
            self._parts.append(array("q", ordered))
        if self.repeated:
            for key, line in zip(self._keys, self._lines, strict=True):
                if key in self.repeated:
                    self.repeated[key].append(line)
        self._keys = array("q")
        self._lines = array("I")

    def __contains__(self, key: Hashable) -> bool:
        wanted = hash(key)
        part = self._parts[wanted % len(self._parts)] if self._parts else array("q")
        index = bisect_left(part, wanted)
        return index < len(part) and part[index] == wanted

    def require_unique(self, name: str, value: Hashable) -> None:
        lines = self.repeated.get(hash(value)) if self.repeated else None
        if lines:
            shown = [str(line) for line in lines[:_MAX_LINES]]
            last = shown.pop() if len(lines) <= _MAX_LINES else f"{len(lines) - _MAX_LINES} more"
            where = f"{', '.join(shown)} and {last}"
            raise Problem("invalid_request", f"{name} {preview(value)} is in lines {where}: use it in one row only")


class FileScan:
    """Collects the ids and external ids of a file."""

    def __init__(self, account: Account, origin: str, *, new_ids: bool) -> None:
        """`origin` is that of this database's exports. With `new_ids`, ids are ignored."""
        self._bucket = bucket_of(account.id)
        self._origin = origin
        self._new_ids = new_ids
        self._is_own = False  # whether the file is an export of this database
        self._foreign: tuple[int, object] | None = None
        self.last_id = 0  # the highest id of the account's bucket
        self.ids = _Keys()
        self.external_ids = _Keys()

    def add(self, row: Row) -> None:
        number = row.content.get("id")
        if number is not None and not self._new_ids:
            if is_id_in(number, self._bucket):
                self.ids.add(number, row.line)
                self.last_id = max(self.last_id, number) if number <= MAX_GIVEN_ID else self.last_id
            elif self._foreign is None:
                self._foreign = row.line, number
        external_id = parse_external_id(row, new_ids=self._new_ids)
        if external_id is not None:
            self.external_ids.add(external_id, row.line)
        self._is_own = self._is_own or parse_version(row.content, self._origin) is not None

    def finish(self) -> None:
        """End the scan after the last row."""
        self.ids.finish()
        self.external_ids.finish()

    def require_own_ids(self) -> None:
        """Raise IdChoiceRequired if the ids of the file may be those of another shop or account."""
        if self._foreign is not None and not self._is_own:
            raise IdChoiceRequired(*self._foreign)


def is_id_in(number: object, bucket: int) -> TypeGuard[int]:
    """Return whether a value is an id that a listing of the bucket can have."""
    return (
        isinstance(number, int)
        and not isinstance(number, bool)
        and BUCKETS <= number <= MAX_ID
        and bucket_of(number) == bucket
    )
