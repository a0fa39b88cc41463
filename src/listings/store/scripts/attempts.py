"""The methods of the store for attempts to sign in."""

from collections.abc import Sequence

from listings.domain.members import AttemptLimit
from listings.store import member_sql
from listings.store.scripts.script import ScriptedStore, Transaction, transaction


class ScriptedAttemptStore(ScriptedStore):
    """Counts attempts, such as sign-ins, to limit them."""

    @transaction
    async def count_attempt(self, tx: Transaction, limits: Sequence[AttemptLimit], moment: int) -> int | None:
        """Count one attempt for each subject in turn, until one is beyond its limit.

        Return the Unix time at which the exceeded limit ends, or None if none was exceeded. A period begins with the
        first attempt that is counted; the count restarts at 1 after it, or if its start lies in the future. Always
        pass the kinds of subjects in the same order, because concurrent attempts could otherwise deadlock.
        """
        for limit in limits:
            counted = await tx.fetch(member_sql.COUNT_ATTEMPT, (limit.subject, moment, moment - limit.seconds))
            ((count, started_at),) = counted
            if count > limit.max_attempts:
                return int(started_at) + limit.seconds
        return None

    @transaction
    async def decrement_attempts(self, tx: Transaction, subjects: Sequence[bytes]) -> None:
        """Lower the count of each subject by one. Pass the subjects in the order of `count_attempt`."""
        for subject in subjects:
            await tx.fetch(member_sql.DECREMENT_ATTEMPTS, (subject,))

    @transaction
    async def purge_attempts(self, tx: Transaction, oldest: int, now: int) -> None:
        """Delete subjects whose first attempt was before `oldest` or lies after `now`."""
        await tx.fetch(member_sql.PURGE_ATTEMPTS, (oldest,))
        await tx.fetch(member_sql.PURGE_FUTURE_ATTEMPTS, (now,))  # stored while a clock was ahead
