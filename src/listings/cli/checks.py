"""The checks of `listings doctor`. A check changes nothing and always returns a result, even after an error."""

import http.client
import json
import os
import pwd
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from listings import maintenance
from listings.cli import postgres_checks
from listings.cli.check_result import (
    GIVE_ACCESS,
    CheckResult,
    Finding,
    catch_os_error,
    check_pending,
    check_schema,
    check_stored_times,
    fault,
    ok,
    warning,
)
from listings.cli.serve import RESERVED_FILES
from listings.contract.rate_limiter import REDIS_UNAVAILABLE
from listings.domain import timestamps
from listings.domain.errors import Problem, Unavailable
from listings.domain.number_text import format_count
from listings.settings import ResolvedSetting, Settings, build_settings
from listings.store.sqlite.maintenance.inspection import Inspection

if TYPE_CHECKING:
    from listings.ratelimit.redis_inspection import RedisReport

_GIB = 1024**3
_MIB = 1024**2
_MAX_WAL_BYTES = 64 * _MIB
_OTHERS_READ, _OTHERS_WRITE, _ALL_WRITE = 0o055, 0o022, 0o002
_MIN_YEAR, _MAX_YEAR = 2026, 2100
_MAX_CLOCK_DIFFERENCE_SECONDS = 300
_MIN_REDIS_VERSION = (6, 2)
_RESPONSE_TIMEOUT_SECONDS = 2
_NOT_A_DATABASE = "file is not a database"  # SQLite's message


def run_checks(
    given: list[ResolvedSetting], unknown: Sequence[str] = (), removed: Sequence[str] = ()
) -> Iterator[CheckResult]:
    """Run all checks. `unknown` are variables that look like settings but are not, `removed` errors about others."""
    settings = build_settings(given)
    yield "settings", _check_settings(given, unknown, removed, settings.warning)
    if not any(value.error for value in given if value.setting.attribute == "database"):
        check_database = _check_sqlite_database if isinstance(settings.database, Path) else postgres_checks.run_checks
        yield from check_database(settings)
    yield "clock", _check_clock()
    if isinstance(settings.database, Path):
        yield "SQLite", _check_sqlite_version()
    yield "rate limit", _check_rate_limit(settings)
    yield "open files", _check_open_files(settings)
    yield "workers", _check_workers(settings)
    yield "service", _check_service(settings)


def _check_settings(
    given: list[ResolvedSetting], unknown: Sequence[str], removed: Sequence[str], ineffective: str
) -> Finding:
    faults = [*(value.error for value in given if value.error), *removed]
    if faults:
        return fault("; ".join(faults), "Correct them; `listings settings` shows all settings")
    if unknown:
        found = f"Not settings, and therefore ignored: {', '.join(unknown)}"
        return warning(found, "Correct the names; `listings settings` shows all settings")
    if ineffective:
        return warning(ineffective, "Unset it")
    count = sum(value.source != "default" for value in given)
    return ok(f"{count} set, the others have default values")


# The database


def _check_sqlite_database(settings: Settings) -> Iterator[CheckResult]:
    database = settings.file.absolute()
    settings = replace(settings, database=database)
    yield "database", catch_os_error(lambda: _check_database_file(settings))
    if not _has_database(settings):
        return
    inspection = None
    try:
        inspection = maintenance.inspect_database(settings)
    except Problem as problem:
        yield "integrity", _unreadable(problem, database)
    if inspection is not None:
        yield "integrity", _check_integrity(inspection)
        if not inspection.corruption:
            yield "schema", check_schema(inspection.mismatch, inspection.pending)
            yield "stored times", check_stored_times(inspection.newest)
        if inspection.pending_work is not None:
            yield from check_pending(inspection.pending_work, settings)
    database_id = inspection.database_id if inspection is not None else None
    checks: dict[str, Callable[[], Finding]] = {
        "file permissions": lambda: _check_file_permissions(database),
        "folder permissions": lambda: _check_folder_permissions(database),
        "owner": lambda: _check_owner(database),
        "disk": lambda: _check_disk(settings),
        "WAL": lambda: _check_wal(database),
        "rate limit files": lambda: _check_rate_limit_files(settings, database_id),
        "unfinished backups": lambda: _check_unfinished_backups(settings),
    }
    for name, check in checks.items():
        yield name, catch_os_error(check)


def _check_database_file(settings: Settings) -> Finding:
    left = maintenance.find_orphaned_wal(settings)
    if left is not None:
        found = f"The database {settings.file} is missing or empty, but {left} still contains writes to it"
        advice = maintenance.ORPHANED_WAL_ADVICE
        return fault(found, advice[0].upper() + advice[1:])
    recovery = maintenance.describe_recovery(settings)
    if recovery is not None:
        found, advice = recovery
        return fault(found, advice[0].upper() + advice[1:])
    if not settings.file.exists():
        advice = "Create it with `listings migrate`, or set LISTINGS_DATABASE_URL to its location"
        return fault(f"There is no database at {settings.file}", advice)
    return ok(str(settings.file))


def _has_database(settings: Settings) -> bool:
    with suppress(OSError):
        return maintenance.find_orphaned_wal(settings) is None and settings.file.exists()
    return False


def _unreadable(problem: Problem, database: Path) -> Finding:
    if problem.code != "unavailable":
        return warning(problem.message, "Run `listings migrate`, then `listings doctor` again")
    if not all(os.access(path, os.R_OK) for path in _own_files(database)):
        return fault(problem.message, f"{GIVE_ACCESS} the files")
    return fault(problem.message, "Restore a backup: `listings restore FILE --force`")


def _check_integrity(inspection: Inspection) -> Finding:
    if not inspection.corruption:
        return ok("All pages and references are intact")
    found = "; ".join(inspection.corruption)
    advice = "Stop the service and restore the last good backup: `listings restore FILE --force`"
    if found == _NOT_A_DATABASE:
        advice = f"Check that LISTINGS_DATABASE_URL is the right file. If it is: {advice[0].lower()}{advice[1:]}"
    return fault(f"The database is damaged: {found}", advice)


def _check_file_permissions(database: Path) -> Finding:
    modes = {path: path.stat().st_mode for path in _own_files(database)}
    written = [str(path) for path, mode in modes.items() if mode & _OTHERS_WRITE]
    read = [str(path) for path, mode in modes.items() if mode & _OTHERS_READ]
    if written:
        return fault(f"Other users can write {', '.join(written)}", _chmod(written))
    if read:
        return warning(f"Other users can read {', '.join(read)}", _chmod(read))
    return ok("Only their owner can access the database's files")


def _chmod(paths: list[str]) -> str:
    return f"Run `chmod 600 {' '.join(paths)}`"


def _own_files(database: Path) -> list[Path]:
    real = database.resolve()
    paths = [real.with_name(real.name + suffix) for suffix in ("", "-wal", "-shm", "-journal", ".lock")]
    return [path for path in paths if path.exists()]


def _check_folder_permissions(database: Path) -> Finding:
    folder = database.resolve().parent
    if folder.stat().st_mode & _ALL_WRITE:
        return fault(f"Everybody can write in {folder}", f"Run `chmod o-w {folder}`")
    if not os.access(folder, os.W_OK | os.X_OK):
        return fault(f"{_user(os.geteuid())} can't write in {folder}", f"{GIVE_ACCESS} the folder")
    return ok(str(folder))


def _check_owner(database: Path) -> Finding:
    owner, user = _user(database.stat().st_uid), _user(os.geteuid())
    closed = [str(path) for path in _own_files(database) if not os.access(path, os.R_OK | os.W_OK)]
    if closed:
        return fault(f"{user} can't read and write {', '.join(closed)}", f"{GIVE_ACCESS} the files")
    if database.stat().st_uid != os.geteuid():
        advice = f"Run commands as {owner}; otherwise the service may have no access to files that they create"
        return warning(f"The database belongs to {owner}, but you are {user}", advice)
    return ok(owner)


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _check_disk(settings: Settings) -> Finding:
    free, minimum = maintenance.get_free_bytes(settings)
    found = f"{free // _MIB} MiB are free"
    if free < minimum:
        return fault(
            found,
            f"Free disk space: below {minimum // _MIB} MiB the service is not ready, and on a full disk it rejects"
            " writes and counts the requests of new keys in memory",
        )
    if free < _GIB:
        return warning(found, "Free disk space, or move the database to a larger disk")
    return ok(found)


def _check_wal(database: Path) -> Finding:
    wal = Path(f"{database.resolve()}-wal")
    size = wal.stat().st_size if wal.exists() else 0
    found = f"{size // 1024} KiB"
    if size > _MAX_WAL_BYTES:
        return warning(found, f"A process keeps an old snapshot open: end it (`fuser {wal}` lists the processes)")
    return ok(found)


def _check_rate_limit_files(settings: Settings, database_id: str | None) -> Finding:
    files = maintenance.list_rate_limit_files(settings)
    if not files:
        return ok("Not used" if files is None else "There are none yet")
    damaged = [str(file.path) for file in files if not file.is_valid]
    if damaged:
        advice = "You need not do anything: the service replaces it and counts from zero"
        return warning(f"{', '.join(damaged)} is damaged", advice)
    foreign = [str(file.path) for file in files if database_id not in {None, file.database_id}]
    if foreign:
        advice = "Ignore this if you restored another database here. Otherwise give each database its own folder"
        return warning(f"{', '.join(foreign)} belongs to another database", advice)
    accessible = [str(file.path) for file in files if file.path.stat().st_mode & (_OTHERS_READ | _OTHERS_WRITE)]
    if accessible:
        return warning(f"Other users can access {', '.join(accessible)}", _chmod(accessible))
    return ok("1 file, of this database" if len(files) == 1 else f"{len(files)} files, all of this database")


def _check_unfinished_backups(settings: Settings) -> Finding:
    drafts = [str(path) for path in maintenance.find_stale_drafts(settings)]
    if drafts:
        return warning(f"An interrupted backup left {', '.join(drafts)}", f"Run `rm {' '.join(drafts)}`")
    return ok("There are none")


# The machine and the service


def _check_clock() -> Finding:
    now = time.time()
    found = timestamps.format_timestamp(now)
    if not _MIN_YEAR <= time.gmtime(now).tm_year <= _MAX_YEAR:
        return fault(found, "Correct the machine's clock: it decides when plans and keys expire")
    return ok(f"{found} UTC")


def _check_sqlite_version() -> Finding:
    try:
        return ok(maintenance.get_sqlite_version())
    except Problem as problem:
        return fault(problem.message, "Install the package versions that Listings requires")


def _check_rate_limit(settings: Settings) -> Finding:
    scope = maintenance.rate_limit_scope(settings)
    if scope is None:
        return ok("Off, because LISTINGS_RATE_LIMIT is 0")
    limit = (
        f"{format_count(settings.rate_limit, 'request')} per key in {settings.rate_window} s, counted across {scope}"
    )
    try:
        report = maintenance.inspect_redis(settings)
    except Unavailable as problem:
        advice = "Check that Redis is running, and that LISTINGS_REDIS_URL has its address and password"
        return fault(f"Redis can't be reached: {problem.message}", advice)
    return _check_redis(report, f"{limit}, {report.name}") if report is not None else ok(limit)


def _check_redis(report: "RedisReport", found: str) -> Finding:
    """Check Redis; `found` describes the limit if there is no problem."""
    if report.is_replica or report.is_cluster:
        kind = "a replica, which rejects writes" if report.is_replica else "part of a Redis Cluster"
        return fault(f"{report.name} is {kind}", "Set LISTINGS_REDIS_URL to a primary")
    if report.version < _MIN_REDIS_VERSION:
        return fault(f"{report.name} is too old", "Install Redis 6.2 or newer, or Valkey")
    if report.eviction_policy != "noeviction":
        found = f"{report.name} discards counts when its memory is full: maxmemory-policy is {report.eviction_policy}"
        return warning(found, "Set `maxmemory-policy noeviction` in Redis's configuration")
    if abs(report.clock_ahead_seconds) > _MAX_CLOCK_DIFFERENCE_SECONDS:
        side = "ahead of" if report.clock_ahead_seconds > 0 else "behind"
        found = f"The clock of {report.name} is {abs(report.clock_ahead_seconds):.0f} s {side} this machine's"
        return warning(found, "Correct whichever of the two clocks is wrong")
    return ok(found)


def _check_open_files(settings: Settings) -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.max_connections
    if hard != resource.RLIM_INFINITY and hard < wanted + RESERVED_FILES:
        found = f"The limit is {hard}, enough for {max(1, hard - RESERVED_FILES)} of {wanted} connections"
        return warning(found, "Raise the limit (ulimit -n, LimitNOFILE=), or lower LISTINGS_MAX_CONNECTIONS")
    return ok(f"Enough for {wanted} connections per worker")


def _check_workers(settings: Settings) -> Finding:
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = f"{settings.workers} on {format_count(processors, 'processor')}"
    if settings.workers > processors:
        advice = f"Set LISTINGS_WORKERS to {processors}: more workers than processors are not faster"
        return warning(found, advice)
    return ok(found)


def _check_service(settings: Settings) -> Finding:
    if not settings.port:
        return ok("Not checked, because its port is unknown (LISTINGS_PORT is 0)")
    host = settings.reachable_host
    address = f"{f'[{host}]' if ':' in host else host}:{settings.port}"
    connection = http.client.HTTPConnection(host, settings.port, timeout=_RESPONSE_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        return _check_readiness(address, response.status, response.read(_MIB))
    except ConnectionRefusedError:
        return ok(f"Nothing is listening at {address} (set LISTINGS_PORT if the service has another port)")
    except (OSError, UnicodeError, http.client.HTTPException) as error:
        return warning(f"{address} does not respond: {error}", "Look at the service's log, then restart it")
    finally:
        connection.close()


def _check_readiness(address: str, status: int, body: bytes) -> Finding:
    try:
        data = json.loads(body)
    except ValueError:
        data = None
    data = data if isinstance(data, dict) else {}
    is_ours = data.get("status") == "ready" and data.keys() <= {"status", "rate_limit", "degraded"}
    if status == http.client.OK and is_ours:
        if data.get("degraded"):
            found = f"Ready at {address}, but {'; '.join(map(str, data['degraded']))}"
            return warning(found, "Look at the service's log, and at the other checks")
        scope = str(data.get("rate_limit", ""))
        if not scope.endswith(REDIS_UNAVAILABLE):
            return ok(f"Ready at {address}")
        found = f"Ready at {address}; counts the rate limit across {scope}"
        return warning(found, "Follow the advice for the rate limit, and look at Redis's log")
    if status == http.client.SERVICE_UNAVAILABLE and data.keys() == {"error"}:
        return fault(f"Not ready: {data['error']}", "Fix this cause; the service then recovers by itself")
    advice = "Set LISTINGS_PORT to another port, or stop the other program"
    return warning(f"Another program than Listings is running at {address}", advice)
