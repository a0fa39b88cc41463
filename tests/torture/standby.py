"""Two PostgreSQL servers of which one follows the other, and takes its place when it is gone."""

import shutil
import signal
import time
from types import TracebackType
from typing import Self

from tests.postgres_server import USER, PostgresServer

_DEADLINE = 60.0  # seconds
_FOLLOWERS = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '{kind}'"


class Member(PostgresServer):
    """One of the two: made anew, or as a copy of the other."""

    def follow(self, primary: PostgresServer) -> None:
        """Become its standby."""
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        shutil.rmtree(self._folder / "data", ignore_errors=True)
        place = ("--host=127.0.0.1", f"--port={primary.port}", f"--username={USER}")
        self._run("pg_basebackup", *place, "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
        self.start()

    def promote(self) -> None:
        """Take writes from now on."""
        self.execute("SELECT pg_promote(true, 60)")

    def require_follower(self, *, synchronous: bool) -> None:
        """Wait until one follows; if it is to be synchronous, nothing is committed without it any more."""
        if synchronous:
            self.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            self.execute("SELECT pg_reload_conf()")
        end = time.monotonic() + _DEADLINE
        while not self.execute(_FOLLOWERS.format(kind="sync" if synchronous else "async")):
            assert time.monotonic() < end, self.log()
            time.sleep(0.02)

    def unfollow(self) -> None:
        """Receive no more of what the primary writes."""
        self.execute("ALTER SYSTEM SET primary_conninfo = ''")
        self.execute("SELECT pg_reload_conf()")
        end = time.monotonic() + _DEADLINE
        while self.execute("SELECT 1 FROM pg_stat_wal_receiver"):
            assert time.monotonic() < end, self.log()
            time.sleep(0.02)


class Pair:
    """A primary and its standby; who is which changes."""

    def __init__(self) -> None:
        self.primary, self.standby = Member(), Member()

    def __enter__(self) -> Self:
        self.primary.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.primary.__exit__()
        self.standby.__exit__()

    def url(self, database: str) -> str:
        """Of both, whichever takes writes."""
        places = ",".join(f"127.0.0.1:{one.port}" for one in (self.primary, self.standby))
        return f"postgresql://{USER}@{places}/{database}?sslmode=disable&target_session_attrs=read-write"

    def fail_over(self) -> None:
        """The primary is gone, as after a crash, and the standby takes its place."""
        self.primary.stop(signal.SIGQUIT)
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary
