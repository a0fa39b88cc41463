"""The store of change sets, and its types (decision G45)."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from listings.domain.changes import Change
from listings.domain.errors import Problem

END = 2**31 - 1
"""The `number` of a `ChangePosition` after a whole change set."""


class ChangePosition(NamedTuple):
    """A position between two changes of an account: after a change, or after a whole change set if `number` is END.

    `edit_revision` is the id of the change set.
    """

    edit_revision: int
    number: int = END


class EditState(NamedTuple):
    """The ids of an account's last change set, and of the last one that was deleted (0 for none)."""

    edit_revision: int
    purged_revision: int

    def require_retained(self, after: int) -> None:
        """Raise Problem("changes_gone") if a change set after `after` was deleted, or `after` is above the last one."""
        if not self.purged_revision <= after <= self.edit_revision:
            is_purged = after < self.purged_revision
            problem = f"Some changes after {after} are no longer stored" if is_purged else f"There is no change {after}"
            raise Problem(
                "changes_gone",
                f"{problem}. Start over: request limit=0 and store the last id, read all listings with status=all, "
                "then request the changes after that id",
            )


class ChangePage(NamedTuple):
    """Changes, oldest first. The next page starts at `end`.

    `end` is after a whole change set, unless that set is too large for one page.
    """

    changes: Sequence[Change]
    end: ChangePosition
    edit_revision: int  # the id of the account's last change set when the page was read


class ListingChangePage(NamedTuple):
    """Changes of one listing, newest first, and whether there are older ones."""

    changes: Sequence[Change]
    more: bool


class ChangeStore(Protocol):
    """Stores change sets, with the guarantees of `contract.store.Store`.

    The ids of an account's change sets count from 1, without gaps, in the order of their commits.
    """

    async def get_edit_state(self, bucket: int, account_id: int) -> EditState:
        """Return the state of the account's change sets."""

    async def list_edit_revisions(self, account_ids: Collection[int]) -> Mapping[int, int]:
        """Return the id of the last change set of each account, 0 for none. Ids without an account are ignored."""

    async def page_changes(self, bucket: int, account_id: int, after: ChangePosition, last: int) -> ChangePage:
        """Return changes after a position, up to the change set `last`.

        The page ends early if it would be too large. A change set that is too large for a page is split; any other is
        on one page. Raises Problem("changes_gone").
        """

    async def page_listing_changes(self, listing_id: int, before: int, count: int) -> ListingChangePage:
        """Return the changes of a listing in at most `count` change sets before `before`.

        There are fewer if they would be too large together. The change that created the listing is the oldest one.
        """

    async def purge_changes(self, buckets: Sequence[int], oldest: int, max_sets: int) -> int:
        """Delete change sets from before `oldest`, a Unix time in seconds, in a transaction for each account.

        At most `max_sets` of each account are deleted; return the total number. A change set that exists only as the
        row of the created listing does not count. It is regarded as deleted once a later one is deleted.
        """
