"""The store's contract for tasks that run in one process at a time."""

from typing import Protocol


class TaskStore(Protocol):
    """Coordinates the background tasks of all processes, with the guarantees of `contract.store.Store`."""

    async def claim_task(self, name: str, now: int, seconds: int) -> bool:
        """Record that the task starts at `now`. Return False if a process has started it in the last `seconds`.

        `now` is a Unix time in seconds. A start in the future, from a wrong clock, is ignored.
        """
