"""Whole lists as they were answered, for as long as nothing in them has changed."""

from collections import OrderedDict
from typing import NamedTuple

MOST_BYTES = 16 * 1024 * 1024


class _List(NamedTuple):
    revision: int
    body: bytes


class KeptLists:
    """The encoded list of each account, under the account's revision; those asked for least recently go first.

    Every edit raises the revision in its own transaction (`listings.contract.Store`), so whoever has read the present
    revision may be given what was kept under it.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        """`most_bytes`: of all bodies together; 0 keeps none."""
        self._most_bytes = most_bytes
        self._lists: OrderedDict[int, _List] = OrderedDict()
        self.bytes = 0

    def find(self, account_id: int, revision: int) -> bytes | None:
        """The list of this revision, where it was kept."""
        kept = self._lists.get(account_id)
        if kept is None or kept.revision != revision:
            return None
        self._lists.move_to_end(account_id)
        return kept.body

    def keep(self, account_id: int, revision: int, body: bytes) -> None:
        """Take a list that was read after its revision was."""
        self._forget(account_id)
        if len(body) > self._most_bytes // 4:  # one account is not to drive out all others
            return
        self._lists[account_id] = _List(revision, body)
        self.bytes += len(body)
        while self.bytes > self._most_bytes:
            self._forget(next(iter(self._lists)))

    def _forget(self, account_id: int) -> None:
        kept = self._lists.pop(account_id, None)
        if kept is not None:
            self.bytes -= len(kept.body)
