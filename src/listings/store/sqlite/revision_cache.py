"""Cache of account revisions, validated without reading the SQLite file.

An entry is valid for at most a second, and only until another process acquires the write lock. This process's own
writes do not invalidate it if they report their changes: a new listing raises its account's revision by one and changes
no existing listing.
"""

from collections.abc import Callable
from time import monotonic

from listings.domain.model import Revisions
from listings.store.sqlite.write_lock import INCREMENT_PER_WRITE, MAX_CACHE_ENTRIES, MAX_CACHE_SECONDS, WriteLock

# How far one batch of this process raises the counter: during the batch, and after it.
_OWN_STEPS = (1, INCREMENT_PER_WRITE)


class RevisionCache:
    """Cached revisions of accounts, and for each the revision at which its listings last changed, or a higher one.

    A new listing is not a change. For the event loop's thread.
    """

    def __init__(self, lock: WriteLock, clock: Callable[[], float] = monotonic) -> None:
        """`lock` is the one that this process's writer uses; `clock` returns seconds."""
        self._lock = lock
        self._clock = clock
        self._sequence = lock.read_sequence()  # the cache includes all writes up to this counter value
        self._expires_at = clock() + MAX_CACHE_SECONDS
        self._generation = 0  # entries of an earlier generation must be read again
        self._accounts: dict[int, tuple[Revisions, int, int]] = {}  # revisions, revision of the last change, generation
        self._untracked = 0  # queued writes of this process that do not report their changes

    def can_record(self) -> bool:
        """Expire invalid entries, and return whether a revision that is read now may be recorded."""
        sequence, now = self._lock.read_sequence(), self._clock()
        if not self._is_own(sequence):
            self._sequence = sequence
            self._begin_generation(now)
        elif now > self._expires_at:
            self._begin_generation(now)
        return not self._sequence & 1 and not self._untracked

    def find_revisions(self, account_id: int) -> Revisions | None:
        """Return the account's revisions, or None if they must be read."""
        entry = self._find(account_id)
        return entry[0] if entry is not None and self._lock.read_sequence() == self._sequence else None

    def find_last_change_revision(self, account_id: int) -> int | None:
        """Return the revision at which the account's listings last changed, or a higher one. None: it must be read."""
        entry = self._find(account_id)
        return entry[1] if entry is not None else None

    def record(self, account_id: int, revisions: Revisions) -> None:
        """Record revisions that were read directly after `can_record` returned True.

        If the revision equals that of the expired entry, the account was not edited meanwhile, and the revision of the
        last change stays the same.
        """
        entry = self._accounts.get(account_id)
        if entry is not None and entry[2] == self._generation:
            return
        if len(self._accounts) >= MAX_CACHE_ENTRIES:
            self._accounts.clear()
        revision = revisions.revision
        last_change = entry[1] if entry is not None and entry[0].revision == revision else revision
        self._accounts[account_id] = (revisions, last_change, self._generation)

    def record_create(self, account_id: int, revisions: Revisions) -> None:
        """Record that this process created a listing, which raised the account's revisions to `revisions`."""
        entry = self._accounts.get(account_id)
        if entry is None or revisions.revision <= entry[0].revision:
            return
        if revisions.revision == entry[0].revision + 1:
            self._accounts[account_id] = (revisions, entry[1], entry[2])
        else:
            del self._accounts[account_id]

    def begin_untracked_write(self) -> None:
        """Disable the cache until a queued write that may change any listing has ended."""
        self._untracked += 1

    def end_batch(self, sequence: int, untracked: int, *, outcomes_known: bool) -> None:
        """Record the end of a batch of this process, after its creates were recorded.

        `sequence` is the write counter before the batch, `untracked` the number of its untracked writes, and
        `outcomes_known` whether the outcome of every other write is known.
        """
        self._untracked -= untracked
        if untracked or not outcomes_known:
            self._begin_generation(self._clock())
        if sequence == self._sequence:
            self._sequence += INCREMENT_PER_WRITE

    def _find(self, account_id: int) -> tuple[Revisions, int, int] | None:
        if not self.can_record():
            return None
        entry = self._accounts.get(account_id)
        return entry if entry is not None and entry[2] == self._generation else None

    def _is_own(self, sequence: int) -> bool:
        # Whether only this process has held the lock since the last recorded write.
        return sequence == self._sequence or (
            sequence - self._sequence in _OWN_STEPS and self._lock.sequence_at_acquire == self._sequence
        )

    def _begin_generation(self, now: float) -> None:
        self._generation += 1
        self._expires_at = now + MAX_CACHE_SECONDS
