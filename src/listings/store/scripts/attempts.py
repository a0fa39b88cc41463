"""`AttemptStore`, implemented with scripts that every engine can run."""

from collections.abc import Sequence

from listings.contract.members import AttemptLimit
from listings.store import member_sql
from listings.store.scripts.script import Query, Script, ScriptedStore, transaction


class ScriptedAttemptStore(ScriptedStore):
    """Implements `AttemptStore`."""

    @transaction
    def count_attempt(self, limits: Sequence[AttemptLimit], moment: int) -> Script[int | None]:
        for limit in limits:
            rows = yield Query(member_sql.COUNT_ATTEMPT, (limit.subject, moment, moment - limit.seconds))
            count, started_at = rows[0]
            if count > limit.max_attempts:
                return int(started_at) + limit.seconds
        return None

    @transaction
    def decrement_attempts(self, subjects: Sequence[bytes]) -> Script[None]:
        for subject in subjects:
            yield Query(member_sql.DECREMENT_ATTEMPTS, (subject,))

    @transaction
    def purge_attempts(self, oldest: int, now: int) -> Script[None]:
        yield Query(member_sql.PURGE_ATTEMPTS, (oldest,))
        yield Query(member_sql.PURGE_FUTURE_ATTEMPTS, (now,))  # stored while a clock was ahead
