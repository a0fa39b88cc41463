"""The times at which tasks were started."""

from listings.store.query import Query
from listings.store.scripts.script import ScriptedStore

CLAIM_TASK = Query[tuple[str]]("""
INSERT INTO periodic_tasks (name, started_at) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET started_at = excluded.started_at
WHERE periodic_tasks.started_at <= $3 OR periodic_tasks.started_at > $2
RETURNING name
""")


class ScriptedTaskStore(ScriptedStore):
    """Coordinates the background tasks of all processes."""

    async def claim_task(self, name: str, now: int, seconds: int) -> bool:
        """Record that the task starts at `now`. Return False if a process has started it in the last `seconds`.

        `now` is a Unix time in seconds. A start in the future, from a wrong clock, is ignored.
        """
        return bool(await self._write(CLAIM_TASK, name, now, now - seconds))
