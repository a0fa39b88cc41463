"""The part of a store with which a cache of listings validates its entries."""

from collections.abc import Callable
from typing import NamedTuple, Protocol


class Revisions(NamedTuple):
    """The revision of an account, and its edit revision: the id of its last change set.

    Views of its listings raise only the former.
    """

    revision: int
    edit_revision: int


class RevisionStore(Protocol):
    """Reads the revisions with which a cache validates its entries."""

    async def get_revisions(self, bucket: int, account_id: int) -> Revisions:
        """Return both revisions of the account, from one snapshot. Both are 0 at first.

        `revision` is higher after every edit, and `edit_revision` after every change set.
        """

    async def get_last_change_revision(self, bucket: int, account_id: int) -> int:
        """Return the `revision` that the account had after the last change of one of its listings, or a higher one.

        A cached response with a single listing is current if it was read at this revision or later. The creation of a
        listing does not count as a change.
        """

    def get_cached_last_change_revision(self, bucket: int, account_id: int) -> int | None:
        """Like `get_last_change_revision`, but from memory only. Return None if a read would be needed."""

    def on_reset(self, callback: Callable[[], None]) -> None:
        """Register the callback that empties caches. It replaces an earlier callback.

        It is called before the first read from another server, or from a restarted one: its data may be older, because
        it is a standby or a restored backup.
        """
