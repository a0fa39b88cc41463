"""Operations of the operator's commands: migrate, back up, restore, copy and inspect databases and rate limits."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from listings.domain.errors import Problem, Unavailable
from listings.domain.postgres_url import PostgresUrl
from listings.ratelimit.mapped import MappedLimiter
from listings.settings import Settings
from listings.store.migrations import Migration, require_equal_schema
from listings.store.sqlite.maintenance import backup, compact, inspection, migrate, restore
from listings.store.sqlite.maintenance.snapshot import Progress, ignore_progress
from listings.wiring import build_redis_endpoint, build_redis_limiter, create_data_folder

if TYPE_CHECKING:  # imported in functions, because most commands need none of them
    from listings.ratelimit.redis import RedisLimiter
    from listings.ratelimit.redis_inspection import RedisReport
    from listings.store.postgres.inspection import PostgresInspection
    from listings.store.sqlite_to_postgres.copy import CopyResult

OnDamage: TypeAlias = Callable[[Callable[[], None]], None]
"""Starts to look for damage, and calls the callback, which stops the service, if there is any.

Call it on the running event loop, on which the callback is then called.
"""


T = TypeVar("T")

_IN_POSTGRES = "The data is in PostgreSQL"
_SCAN_SECONDS, _STARTUP_SCAN_SECONDS = 2.0, 0.2
_COPY_TIMEOUT_MS = 5_000  # longer than for requests, because nobody is waiting


def migrate_database(settings: Settings, on_backup: Callable[[Path], None] = lambda _: None) -> list[Migration]:
    """Apply the pending migrations and return them. A missing SQLite file is created first.

    `on_backup` is called with the path of the backup that precedes the upgrade of a SQLite database.
    """
    if isinstance(settings.database, PostgresUrl):
        from listings.store.postgres import migrate as postgres_migrate

        return _run_in_thread(postgres_migrate.migrate(settings.database))
    return migrate.migrate(settings.database, on_backup=on_backup)


@contextmanager
def watch_for_damage(settings: Settings) -> Iterator[OnDamage]:
    """Scan the pages of a SQLite file for damage for at most two seconds.

    The block starts when the scan ends, or after 0.2 seconds. If there is damage, raises Unavailable with its
    description, on entry or, if it is found later, on exit. In the latter case, callbacks registered with the yielded
    function are called, so that they can end the block early.
    """
    if isinstance(settings.database, PostgresUrl):
        yield lambda _: None
        return
    cancelled = threading.Event()
    thread = ThreadPoolExecutor(1, "listings-scan")
    scan = thread.submit(inspection.find_damage, settings.database, _SCAN_SECONDS, cancelled.is_set)
    thread.shutdown(wait=False)  # the thread ends with the scan
    if wait([scan], _STARTUP_SCAN_SECONDS).done:
        _require_undamaged(settings, scan)
    try:
        yield partial(_call_on_damage, scan)
    except Exception:
        cancelled.set()
        _require_undamaged(settings, scan)  # damage may be the cause of the error
        raise
    finally:
        cancelled.set()
    _require_undamaged(settings, scan)


def _call_on_damage(scan: Future[str], end: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    scan.add_done_callback(
        lambda future: loop.call_soon_threadsafe(end) if future.exception() or future.result() else None
    )


def _require_undamaged(settings: Settings, scan: Future[str]) -> None:
    damage = scan.result()
    if damage:
        advice = "restore the last good backup with `listings restore FILE --force`"
        raise Unavailable(f"The database {settings.redacted_database} is damaged: {damage}: {advice}")


def list_pending_migrations(settings: Settings) -> list[Migration]:
    """Return the migrations that `migrate_database` would apply."""
    if isinstance(settings.database, PostgresUrl):
        from listings.store.postgres import migrate as postgres_migrate

        return _run_in_thread(postgres_migrate.list_pending(settings.database))
    return migrate.list_pending(settings.database)


def back_up_database(settings: Settings, file: Path, *, force: bool, progress: Progress = ignore_progress) -> Path:
    """Copy the database to a file. Return its path with links resolved."""
    if isinstance(settings.database, PostgresUrl):
        raise Problem("backup_refused", f"{_IN_POSTGRES}: back it up with `pg_dump --format=custom`")
    return backup.back_up(settings.database, file, force=force, progress=progress)


def restore_database(
    settings: Settings, file: Path, *, force: bool, progress: Progress = ignore_progress
) -> Path | None:
    """Restore the database from a backup. Return the new path of the previous one."""
    if isinstance(settings.database, PostgresUrl):
        raise Problem("restore_refused", f"{_IN_POSTGRES}: restore it with `pg_restore`, then run `listings restored`")
    return restore.restore(settings.database, file, force=force, progress=progress)


def require_schema(settings: Settings) -> None:
    """Raise Problem("schema_mismatch") if the schema in PostgreSQL was altered. Every start checks that of SQLite."""
    if isinstance(settings.database, PostgresUrl):
        require_equal_schema(inspect_postgres(settings).differences)


def finish_restore(settings: Settings, last_listing_id: int | None) -> None:
    """Finish the restore of a PostgreSQL database. See `store.postgres.restored`."""
    if not isinstance(settings.database, PostgresUrl):
        raise Problem("restore_refused", "The data is in SQLite: `listings restore` has done this already")
    from listings.store.postgres import restored

    _run_in_thread(restored.finish(settings.database, last_listing_id))


def compact_database(settings: Settings, progress: Progress = ignore_progress) -> None:
    """Return the free pages of the SQLite file to the file system."""
    if isinstance(settings.database, PostgresUrl):
        raise Problem("backup_refused", f"{_IN_POSTGRES}, which reuses free space: see VACUUM in its documentation")
    compact.compact(settings.database, progress)


def find_copies(settings: Settings) -> list[Path]:
    """Return the copies that migrations and restores have made of the SQLite file."""
    real = settings.file.resolve()
    return sorted(file for file in real.parent.glob(f"{escape(real.name)}.before-*") if file.is_file())


def copy_database(settings: Settings, target: PostgresUrl, *, dry_run: bool, progress: Progress) -> "CopyResult":
    """Copy the SQLite database of the settings to PostgreSQL. With `dry_run`, only count the differences."""
    if isinstance(settings.database, PostgresUrl):
        raise Problem("copy_refused", f"{_IN_POSTGRES} already: set LISTINGS_DATABASE_URL to the SQLite database")
    from listings.store.sqlite_to_postgres import copy

    return asyncio.run(copy.copy(settings.database, target, dry_run=dry_run, progress=progress))


def copy_rate_limits(settings: Settings, target: PostgresUrl, database_id: str) -> int:
    """Copy the rate limit logs of a copied database. Return the number of keys with counted requests."""
    if not settings.rate_limit:
        return 0
    try:
        return asyncio.run(_copy_rate_limits(settings, replace(settings, database=target), database_id))
    except Problem as problem:
        raise Problem(
            "copy_refused",
            f"All rows are copied, but not the counts of the rate limit: {problem.message}: run `listings copy` again",
        ) from problem


async def _copy_rate_limits(source: Settings, target: Settings, database_id: str) -> int:
    old, new = (MappedLimiter(it.file, database_id, it.rate_limit, it.rate_window) for it in (source, target))
    limiters: list[MappedLimiter | RedisLimiter] = [new]
    if target.redis is not None:
        limiters.append(build_redis_limiter(target.redis, replace(target, redis_timeout=_COPY_TIMEOUT_MS), database_id))
    create_data_folder(target)
    keys = 0
    try:
        for key_id in await old.list_keys():
            ages = await old.list_ages(key_id)
            keys += bool(ages)
            for limiter in limiters if ages else ():
                await limiter.import_history(key_id, ages)
    finally:
        for limiter in (old, *limiters):
            await limiter.close()
    return keys


def inspect_postgres(settings: Settings) -> "PostgresInspection":
    """Inspect the PostgreSQL server and database without changing them. Raises Problem if that is impossible."""
    from listings.store.postgres import inspection as postgres_inspection

    return _run_in_thread(postgres_inspection.inspect(str(settings.database)))


def rate_limit_scope(settings: Settings) -> str | None:
    """Return the scope of the rate limit while Redis is available, or None without a limit."""
    if not settings.rate_limit:
        return None
    if settings.redis is not None:
        from listings.ratelimit.redis import RedisLimiter

        return RedisLimiter.scope
    return MappedLimiter.scope


def inspect_redis(settings: Settings) -> "RedisReport | None":
    """Inspect the Redis server of the rate limit. Return None if none is used. Raises Unavailable."""
    if settings.redis is None or not settings.rate_limit:
        return None
    from listings.ratelimit.redis_inspection import inspect

    return inspect(build_redis_endpoint(settings.redis, settings))


def _run_in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    # In a thread, because the caller may already be running an event loop.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
