"""What the operator's commands do to a database: migrate, back up, restore, copy, inspect."""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from listings.domain.errors import Problem, Unavailable
from listings.domain.postgres_url import PostgresUrl
from listings.ratelimit.mapped import LogFile, MappedLimiter, log_files
from listings.ratelimit.memory import MemoryLimiter
from listings.settings import Settings
from listings.store.migrations import Migration
from listings.store.sqlite import connections
from listings.store.sqlite.maintenance import backup, inspection, migrate, restore, snapshot
from listings.store.sqlite.maintenance.inspection import Inspection
from listings.store.sqlite.maintenance.restore import Restored
from listings.store.sqlite.maintenance.snapshot import Progress, ignore_progress
from listings.wiring import create_data_folder, redis_endpoint, redis_limiter

if TYPE_CHECKING:  # loaded where they are used: most commands need none of them
    from listings.ratelimit.redis import RedisLimiter
    from listings.ratelimit.redis_inspection import RedisReport
    from listings.store.postgres.inspection import PostgresInspection
    from listings.store.sqlite_to_postgres.copy import CopyResult

OnDamage: TypeAlias = Callable[[Callable[[], None]], None]
"""Is given what ends the service once damage is found, to be called on the event loop that runs."""


T = TypeVar("T")

_IN_POSTGRES = "The data is in PostgreSQL"


_LOOK_SECONDS, _LOOK_BEFORE_SECONDS = 2.0, 0.2


_COPY_TIMEOUT = 5_000  # milliseconds that Redis may take to answer where no request waits for it


def migrate_database(settings: Settings, on_backup: Callable[[Path], None] = lambda _: None) -> list[Migration]:
    """Create the database where there is none and bring its schema up to date; returns what was applied.

    `on_backup` is told where the database is kept as it was before.
    """
    if isinstance(settings.database, PostgresUrl):
        from listings.store.postgres import migrate as postgres_migrate  # noqa: PLC0415 - its driver is for those who use it

        return _finished(postgres_migrate.migrate(settings.database))
    return migrate.migrate(settings.database, on_backup=on_backup)


@contextmanager
def sound_database(settings: Settings) -> Iterator[OnDamage]:
    """Look through the pages of a SQLite file, for two seconds at most, the block beginning after a fifth of one.

    Raises Unavailable, which names the damage: before the block, or behind it where it is found while that runs; who is
    given to what is yielded then ends it.
    """
    if isinstance(settings.database, PostgresUrl):
        yield lambda _: None
        return
    leaving = threading.Event()
    thread = ThreadPoolExecutor(1, "listings-look")
    looking = thread.submit(inspection.find_damage, settings.database, _LOOK_SECONDS, leaving.is_set)
    thread.shutdown(wait=False)  # it ends with the look
    if not wait([looking], _LOOK_BEFORE_SECONDS).not_done:
        _require_sound(settings, looking)
    try:
        yield partial(_call_on_damage, looking)
    finally:
        leaving.set()
    _require_sound(settings, looking)


def _call_on_damage(looking: Future[str], end: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    looking.add_done_callback(
        lambda looked: loop.call_soon_threadsafe(end) if looked.exception() or looked.result() else None
    )


def _require_sound(settings: Settings, looking: Future[str]) -> None:
    damage = looking.result()
    if damage:
        advice = "restore the last good backup with `listings restore FILE --force`"
        raise Unavailable(f"The database {settings.redacted_database} is damaged: {damage}: {advice}")


def pending_migrations(settings: Settings) -> list[Migration]:
    """What `migrate_database` would apply. Changes nothing."""
    if isinstance(settings.database, PostgresUrl):
        from listings.store.postgres import migrate as postgres_migrate  # noqa: PLC0415 - as above

        return _finished(postgres_migrate.list_pending(settings.database))
    return migrate.list_pending(settings.database)


def back_up_database(settings: Settings, file: Path, *, force: bool, progress: Progress = ignore_progress) -> Path:
    """Copy the database to a file; returns the file, links resolved."""
    if isinstance(settings.database, PostgresUrl):
        raise Problem("backup_refused", f"{_IN_POSTGRES}: back it up with `pg_dump --format=custom`")
    return backup.back_up(settings.database, file, force=force, progress=progress)


def restore_database(settings: Settings, file: Path, *, force: bool, progress: Progress = ignore_progress) -> Restored:
    """Make the database what a backup is."""
    if isinstance(settings.database, PostgresUrl):
        raise Problem("restore_refused", f"{_IN_POSTGRES}: restore it with `pg_restore`")
    return restore.restore(settings.database, file, force=force, progress=progress)


def copy_database(settings: Settings, target: PostgresUrl, *, dry_run: bool, progress: Progress) -> "CopyResult":
    """Make a PostgreSQL database what the SQLite database of the settings is; `dry_run`: only count what differs."""
    if isinstance(settings.database, PostgresUrl):
        raise Problem("copy_refused", f"{_IN_POSTGRES} already: let LISTINGS_DATABASE_URL name the SQLite database")
    from listings.store.sqlite_to_postgres import copy  # noqa: PLC0415 - as above

    return asyncio.run(copy.copy(settings.database, target, dry_run=dry_run, progress=progress))


def copy_limits(settings: Settings, target: PostgresUrl, database_id: str) -> int:
    """Let the limiters of a copied database go on from what was counted beside its source; returns of how many keys."""
    if not settings.rate_limit or sys.platform != "linux":
        return 0
    try:
        return asyncio.run(_copy_limits(settings, settings._replace(database=target), database_id))
    except Problem as problem:
        raise Problem(
            "copy_refused",
            f"All rows are copied, but not what the rate limit has counted: {problem.message}: run it again",
        ) from problem


async def _copy_limits(source: Settings, target: Settings, database_id: str) -> int:
    old, new = (MappedLimiter(it.file, database_id, it.rate_limit, it.rate_window) for it in (source, target))
    limiters: list[MappedLimiter | RedisLimiter] = [new]
    if target.redis is not None:
        limiters.append(redis_limiter(target.redis, target._replace(redis_timeout=_COPY_TIMEOUT), database_id))
    create_data_folder(target)
    keys = 0
    try:
        for key_id in await old.keys():
            ages = await old.ages(key_id)
            keys += bool(ages)
            for limiter in limiters if ages else ():
                await limiter.import_history(key_id, ages)
    finally:
        for limiter in (old, *limiters):
            await limiter.close()
    return keys


def inspect_database(settings: Settings) -> Inspection:
    """Look through the database, changing nothing."""
    return inspection.inspect(settings.file)


def inspect_postgres(settings: Settings) -> "PostgresInspection":
    """Look at the server and its database, changing nothing. Raises Problem where that can't be."""
    from listings.store.postgres import inspection as postgres_inspection  # noqa: PLC0415 - as above

    return _finished(postgres_inspection.inspect(str(settings.database)))


def get_sqlite_version() -> str:
    """The SQLite in use. Raises Problem("schema_mismatch") when it is one that can corrupt the file."""
    connections.require_safe_sqlite()
    return connections.get_sqlite_version()


def find_orphaned_wal(settings: Settings) -> tuple[Path | None, str]:
    """The WAL or journal of a database that is gone, if it is, and what to do then."""
    return connections.find_orphaned_wal(settings.file), connections.ORPHANED_WAL_ADVICE


def get_free_bytes(settings: Settings) -> tuple[int, int]:
    """How many bytes the database can grow by, and with how few the store isn't ready any more."""
    return connections.get_free_bytes(settings.file), connections.MIN_FREE_BYTES


def find_stale_drafts(settings: Settings) -> list[Path]:
    """What backups that were killed have left in the database's folder."""
    return snapshot.find_stale_drafts(settings.file.resolve().parent)


def limiter_files(settings: Settings) -> list[LogFile] | None:
    """The files of the rate limit; None where there are none to be."""
    if not settings.rate_limit or sys.platform != "linux":
        return None
    return log_files(settings.file)


def rate_limit_scope(settings: Settings) -> str | None:
    """Whose requests the rate limit counts together, unless Redis is away; None where there is no limit."""
    if not settings.rate_limit:
        return None
    if settings.redis is not None:
        return "all machines that use this Redis"
    return MappedLimiter.scope if sys.platform == "linux" else MemoryLimiter.scope


def inspect_redis(settings: Settings) -> "RedisReport | None":
    """What the Redis of the rate limit says of itself; None where there is none. Raises Unavailable."""
    if settings.redis is None or not settings.rate_limit:
        return None
    from listings.ratelimit.redis_inspection import inspect  # noqa: PLC0415 - with Redis's client, which few need

    return inspect(redis_endpoint(settings.redis, settings))


def _finished(work: Coroutine[Any, Any, T]) -> T:
    """What it comes to, on a loop of its own, since the caller may be on one already."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
