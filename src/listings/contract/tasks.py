"""The store's contract for tasks that run in one process at a time."""

from typing import Protocol


class TaskStore(Protocol):
    """Coordinates the background tasks of all processes, with the guarantees of `contract.store.Store`."""

    async def claim_task(self, name: str, now: int, seconds: int) -> bool:
        """Return whether the caller should start a task that all processes together start once in `seconds`.

        If so, the start is recorded at the Unix time `now`. A start in the future, from a wrong clock, is ignored.
        """
