"""The store of reverts, and its types (decisions G46, G55)."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from listings.contract.history import Actor
from listings.contract.listings import IdempotencyRecord
from listings.domain.changes import Change
from listings.domain.reverts import ConflictReason, RevertKind, RevertScope

MAX_FIRST_LISTINGS = 200
"""Maximum number of listings in a revert's first transaction, the same as in a batch of an import.

If one of them may take an external id, the higher MAX_STEP_LISTINGS applies, because listings that exchanged external
ids in one change set must be reverted in the same step.
"""

MAX_STEP_LISTINGS = 300
"""Maximum number of listings in each further transaction.

On PostgreSQL, a revert of 100,000 listings takes 9 s (15 s in steps of 100).
"""


class RevertRequest(NamedTuple):
    """What to revert: `subject` is the id of a change set, an import or an earlier revert, or an actor.

    An actor is the `key_id` of an `Actor`; `since` and `until` limit its changes (Unix times in seconds).
    """

    kind: RevertKind
    subject: int
    since: int = 0
    until: int | None = None  # None: now
    overwrite: bool = False  # also revert fields that were changed later


class RevertKey(NamedTuple):
    """Identifies a revert. Its id is that of its first change set."""

    bucket: int
    account_id: int
    id: int


class RevertPosition(NamedTuple):
    """A position in a revert, which continues with the newest change whose (edit_revision, number) is lower."""

    edit_revision: int
    number: int


class Candidate(NamedTuple):
    """A change that a revert undoes.

    The number of a creation is 0 if its change set exists only as the row of the listing, and otherwise -1, -2, ... in
    the order of creation.
    """

    edit_revision: int
    number: int
    listing_id: int
    takes_external_id: bool = False  # whether undoing it may give the listing one


class RevertScan(NamedTuple):
    """The next changes to revert, newest first, each listing at most once, and the position after them."""

    candidates: Sequence[Candidate]
    end: RevertPosition
    is_last: bool


class RevertStep(NamedTuple):
    """Changes to revert in one transaction: those from one position to another."""

    start: RevertPosition
    candidates: Sequence[Candidate]
    end: RevertPosition
    is_last: bool


class RevertCounts(msgspec.Struct, frozen=True):
    """The number of listings that a revert changed, the number that needed no change, and the number of conflicts."""

    reverted: int = 0
    unchanged: int = 0
    conflicts: int = 0


class RevertConflict(msgspec.Struct, frozen=True):
    """A conflict; see `listings.domain.reverts.Conflict`. Those of a revert are numbered from 1."""

    number: int
    listing_id: int
    external_id: str | None
    reason: ConflictReason
    fields: Sequence[str]
    subject: int | None


class Revert(msgspec.Struct, frozen=True):
    """A revert, and how far it has come. `actor` is the `key_id` of an `Actor`; times are in seconds since 1970."""

    key: RevertKey
    scope: RevertScope
    actor: int
    started_at: int
    position: RevertPosition
    counts: RevertCounts
    finished_at: int | None

    @property
    def progress(self) -> float:
        """The progress from 0 to 1."""
        if self.finished_at is not None:
            return 1.0
        first, last = self.scope.first, self.scope.last
        return round((last + 1 - self.position.edit_revision) / (last + 1 - first), 3)


class RevertPreview(NamedTuple):
    """What a revert would do to some candidates: its changes and conflicts. `done`: how many candidates were read."""

    changes: Sequence[Change]
    conflicts: Sequence[RevertConflict]
    counts: RevertCounts
    done: int


class RevertStore(Protocol):
    """Stores reverts, with the guarantees of `contract.store.Store`.

    A revert stores change sets of the kind `reverted`. Their `group_id` is the id of the revert.
    """

    async def find_revert_scope(self, bucket: int, account_id: int, request: RevertRequest) -> RevertScope:
        """Return the change sets to revert, of those that are stored now.

        Raises Problem: change_not_found, changes_gone.
        """

    async def scan_revert(self, bucket: int, account_id: int, scope: RevertScope, before: RevertPosition) -> RevertScan:
        """Return the next changes to revert. A scan is of limited size and may find none."""

    async def preview_revert(
        self, bucket: int, account_id: int, scope: RevertScope, candidates: Sequence[Candidate], now: int
    ) -> RevertPreview:
        """Return what the revert of some changes would do. It ends early if the values are large."""

    async def find_earlier_revert(self, bucket: int, account_id: int, idempotency: IdempotencyRecord) -> int | None:
        """Return the id of the revert that was started with an idempotency key, or None.

        Raises Problem("idempotency_key_reused") if the key was used for a different request.
        """

    async def begin_revert(  # noqa: PLR0913, PLR0917 - what to revert, where, and on whose behalf
        self,
        bucket: int,
        account_id: int,
        scope: RevertScope,
        step: RevertStep,
        actor: Actor,
        idempotency: IdempotencyRecord | None = None,
    ) -> Revert | int:
        """Start a revert with its first step, or return the id of the one that was started with the idempotency key.

        Raises Problem("idempotency_key_reused") if the key was used for a different request,
        Problem("revert_running") if the account has an unfinished revert, and Problem("account_disabled").
        """

    def choose_revert_step_size(self) -> int:
        """Return the maximum number of listings for the next step. Call it before each step.

        Small steps keep other writes from waiting long. The caller uses MAX_STEP_LISTINGS if undoing a change may set
        an external id.
        """

    async def advance_revert(self, key: RevertKey, step: RevertStep, worker: bytes, now: int) -> Revert | None:
        """Take the next step of a revert and store its progress. A step ends early if its values are large.

        `worker` identifies the calling process, which then holds a lease on the revert for a few seconds. Return None
        and write nothing if another process holds it. Return None and only renew the lease if the revert is not at the
        start of the step.

        Raises Problem("account_disabled"). The account is not erased during a step.
        """

    async def get_revert(self, key: RevertKey) -> Revert | None:
        """Return a revert, or None if it does not exist."""

    async def page_revert_conflicts(self, key: RevertKey, after: int, count: int) -> list[RevertConflict]:
        """Return at most `count` conflicts of a revert with numbers above `after`, in their order."""

    async def list_running_reverts(self, worker: bytes, now: int) -> list[Revert]:
        """Return the unfinished reverts of all enabled accounts, except those on which another worker is working."""
