"""`TaskStore`: the times at which tasks were started."""

from listings.store.scripts.script import ScriptedStore

CLAIM_TASK = """
INSERT INTO periodic_tasks (name, started_at) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET started_at = excluded.started_at
WHERE periodic_tasks.started_at <= $3 OR periodic_tasks.started_at > $2
RETURNING name
"""


class ScriptedTaskStore(ScriptedStore):
    """Implements `TaskStore`."""

    async def claim_task(self, name: str, now: int, seconds: int) -> bool:
        return bool(await self._write(CLAIM_TASK, name, now, now - seconds))
