"""A primary PostgreSQL server and a standby that takes over from it."""

import shutil
import signal
import time
from types import TracebackType
from typing import Self

from tests.postgres_server import USER, PostgresServer, find_programs, run_as

_TIMEOUT_SECONDS = 60.0
_SELECT_STANDBYS = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '{kind}'"


class ReplicatedServer(PostgresServer):
    """One of the two servers: new, or a copy of the other."""

    def follow(self, primary: PostgresServer) -> None:
        """Become the standby of `primary`."""
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        shutil.rmtree(self._folder / "data", ignore_errors=True)
        service = ("--host=127.0.0.1", f"--port={primary.port}", f"--username={USER}")
        options = ("-D", self._folder / "data", "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
        run_as(self._user, find_programs() / "pg_basebackup", *service, *options)
        self.start()

    def promote(self) -> None:
        """Accept writes from now on."""
        self.execute("SELECT pg_promote(true, 60)")

    def wait_for_standby(self, *, synchronous: bool) -> None:
        """Wait until a standby is connected; if `synchronous`, commits wait for it from now on."""
        if synchronous:
            self.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            self.execute("SELECT pg_reload_conf()")
        end = time.monotonic() + _TIMEOUT_SECONDS
        while not self.execute(_SELECT_STANDBYS.format(kind="sync" if synchronous else "async")):
            assert time.monotonic() < end, self.log()
            time.sleep(0.02)

    def stop_replication(self) -> None:
        """Stop receiving changes from the primary."""
        self.execute("ALTER SYSTEM SET primary_conninfo = ''")
        self.execute("SELECT pg_reload_conf()")
        end = time.monotonic() + _TIMEOUT_SECONDS
        while self.execute("SELECT 1 FROM pg_stat_wal_receiver"):
            assert time.monotonic() < end, self.log()
            time.sleep(0.02)


class ReplicatedPair:
    """A primary and its standby; `fail_over` swaps them."""

    def __init__(self) -> None:
        self.primary, self.standby = ReplicatedServer(), ReplicatedServer()

    def __enter__(self) -> Self:
        self.primary.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.primary.__exit__()
        self.standby.__exit__()

    def url(self, database: str) -> str:
        """Return a URL with both servers that selects the one that accepts writes."""
        addresses = ",".join(f"127.0.0.1:{one.port}" for one in (self.primary, self.standby))
        return f"postgresql://{USER}@{addresses}/{database}?sslmode=disable&target_session_attrs=read-write"

    def fail_over(self) -> None:
        """Crash the primary and promote the standby."""
        self.primary.stop(signal.SIGQUIT)
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary
