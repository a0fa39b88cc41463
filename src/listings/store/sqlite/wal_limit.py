"""Keep the WAL short even if reads overlap without a pause.

SQLite writes to the start of the WAL again once the database file has all of it and no reader uses it. Reads that
overlap never allow that, and the WAL grows. The writer therefore waits for the current reads once the WAL is long.
Meanwhile nothing is written, so later reads need only the database file.
"""

from contextlib import suppress

import apsw

from listings.store.sqlite.connections import WRITER_BUSY_TIMEOUT_MS

_LONG_WAL_FRAMES = 4_000  # four times the length at which SQLite copies the WAL into the database
_FRAMES_PER_TRY = 1_000
_MAX_WAIT_MS = 50


class WalLimit:
    """Restarts the WAL of one database. For the writer's thread."""

    def __init__(self) -> None:
        self._next_try = _LONG_WAL_FRAMES

    def apply(self, connection: apsw.Connection) -> None:
        """Restart the WAL if it is long. If reads take longer than 50 ms, try again once it has grown.

        `connection` must have no transaction, and its process must hold the write lock.
        """
        frames, _ = connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_NOOP)
        if frames < self._next_try:
            if frames < _LONG_WAL_FRAMES:
                self._next_try = _LONG_WAL_FRAMES
            return
        self._next_try = frames + _FRAMES_PER_TRY
        connection.set_busy_timeout(_MAX_WAIT_MS)
        with suppress(apsw.Error):  # busy means a later retry, and the commit that follows reports a failing disk
            connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_RESTART)
        connection.set_busy_timeout(WRITER_BUSY_TIMEOUT_MS)
