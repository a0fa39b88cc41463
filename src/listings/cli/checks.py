"""The checks of `listings doctor`. A check changes nothing and always returns a result, even after an error."""

import http.client
import json
import os
import pwd
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from listings import maintenance
from listings.cli import postgres_checks
from listings.cli.check_result import CheckResult, describe_mismatch
from listings.cli.serve import RESERVED_FILES
from listings.domain import timestamps
from listings.domain.errors import Problem, Unavailable
from listings.settings import ResolvedSetting, Settings, build_settings
from listings.store.sqlite import connections
from listings.store.sqlite.maintenance import inspection, snapshot
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
    yield _check_settings(given, unknown, removed)
    if not any(value.error for value in given if value.setting.attribute == "database"):
        check_database = _check_sqlite_database if isinstance(settings.database, Path) else postgres_checks.run_checks
        yield from check_database(settings)
    yield _check_clock()
    if isinstance(settings.database, Path):
        yield _check_sqlite_version()
    yield _check_rate_limit(settings)
    yield _check_open_files(settings)
    yield _check_workers(settings)
    yield _check_service(settings)


def _check_sqlite_database(settings: Settings) -> Iterator[CheckResult]:
    database = settings.file.absolute()
    settings = replace(settings, database=database)
    try:
        result = _check_database_file(settings)
    except OSError as error:
        yield _inaccessible("database", error)
        return
    yield result
    if result.verdict != "ok":
        return
    found = None
    try:
        found = inspection.inspect(settings.file)
    except Problem as problem:
        yield _unreadable(problem, database)
    if found is not None:
        yield _check_integrity(found)
        if not found.corruption:
            yield _check_schema(found)
            yield _check_stored_times(found)
    database_id = found.database_id if found is not None else None
    checks: dict[str, Callable[[], CheckResult]] = {
        "file rights": lambda: _check_file_rights(database),
        "folder rights": lambda: _check_folder_rights(database),
        "owner": lambda: _check_owner(database),
        "disk": lambda: _check_disk(settings),
        "WAL": lambda: _check_wal(database),
        "rate limit files": lambda: _check_rate_limit_files(settings, database_id),
        "drafts": lambda: _check_drafts(settings),
    }
    for name, check in checks.items():
        try:
            yield check()
        except OSError as error:
            yield _inaccessible(name, error)


def _inaccessible(check: str, error: OSError) -> CheckResult:
    advice = "Run this command as the service's user, or give that user access to it"
    return CheckResult(check, "fault", f"{error.filename} can't be read: {error.strerror}", advice)


def _check_settings(given: list[ResolvedSetting], unknown: Sequence[str], removed: Sequence[str]) -> CheckResult:
    faults = [*(value.error for value in given if value.error), *removed]
    if faults:
        return CheckResult(
            "settings", "fault", "; ".join(faults), "Correct them; `listings settings` shows all settings"
        )
    if unknown:
        found = f"Not settings, and therefore ignored: {', '.join(unknown)}"
        return CheckResult("settings", "warning", found, "Correct the names; `listings settings` shows all settings")
    count = sum(value.source != "default" for value in given)
    return CheckResult("settings", "ok", f"{count} set, the others have default values")


# The database


def _check_database_file(settings: Settings) -> CheckResult:
    left = connections.find_orphaned_wal(settings.file)
    if left is not None:
        found = f"The database {settings.file} is missing, but {left} still contains writes to it"
        advice = connections.ORPHANED_WAL_ADVICE
        return CheckResult("database", "fault", found, advice[0].upper() + advice[1:])
    if not settings.file.exists():
        return CheckResult(
            "database",
            "fault",
            f"There is no database at {settings.file}",
            "Create it with `listings migrate`, or set LISTINGS_DATABASE_URL to its location",
        )
    return CheckResult("database", "ok", str(settings.file))


def _unreadable(problem: Problem, database: Path) -> CheckResult:
    if problem.code == "unavailable" and not all(os.access(path, os.R_OK) for path in _own_files(database)):
        advice = "Run this command as the service's user, or give that user access to the files"
        return CheckResult("integrity", "fault", problem.message, advice)
    if problem.code == "unavailable":
        return CheckResult("integrity", "fault", problem.message, "Restore a backup: `listings restore FILE --force`")
    return CheckResult("integrity", "warning", problem.message, "Run `listings migrate`, then `listings doctor` again")


def _check_file_rights(database: Path) -> CheckResult:
    modes = {path: path.stat().st_mode for path in _own_files(database)}
    written = [str(path) for path, mode in modes.items() if mode & _OTHERS_WRITE]
    read = [str(path) for path, mode in modes.items() if mode & _OTHERS_READ]
    if written:
        return CheckResult("file rights", "fault", f"Other users can write {', '.join(written)}", _chmod(written))
    if read:
        return CheckResult("file rights", "warning", f"Other users can read {', '.join(read)}", _chmod(read))
    return CheckResult("file rights", "ok", "Only their owner can access the database's files")


def _chmod(paths: list[str]) -> str:
    return f"Run `chmod 600 {' '.join(paths)}`"


def _own_files(database: Path) -> list[Path]:
    real = database.resolve()
    paths = [real.with_name(real.name + suffix) for suffix in ("", "-wal", "-shm", "-journal", ".lock")]
    return [path for path in paths if path.exists()]


def _check_folder_rights(database: Path) -> CheckResult:
    folder = database.resolve().parent
    if folder.stat().st_mode & _ALL_WRITE:
        return CheckResult("folder rights", "fault", f"Everybody can write in {folder}", f"Run `chmod o-w {folder}`")
    if not os.access(folder, os.W_OK | os.X_OK):
        return CheckResult(
            "folder rights",
            "fault",
            f"{_user(os.geteuid())} can't write in {folder}",
            "Run this command as the service's user, or give that user access to the folder",
        )
    return CheckResult("folder rights", "ok", str(folder))


def _check_owner(database: Path) -> CheckResult:
    owner, user = database.stat().st_uid, os.geteuid()
    closed = [str(path) for path in _own_files(database) if not os.access(path, os.R_OK | os.W_OK)]
    if closed:
        return CheckResult(
            "owner",
            "fault",
            f"{_user(user)} can't read and write {', '.join(closed)}",
            "Run this command as the service's user, or give that user access to the files",
        )
    if owner != user:
        return CheckResult(
            "owner",
            "warning",
            f"The database belongs to {_user(owner)}, but you are {_user(user)}",
            f"Run commands as {_user(owner)}; otherwise the service may have no access to files that they create",
        )
    return CheckResult("owner", "ok", _user(owner))


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _check_integrity(inspection: Inspection) -> CheckResult:
    if inspection.corruption:
        found = "; ".join(inspection.corruption)
        advice = "Stop the service and restore the last good backup: `listings restore FILE --force`"
        if found == _NOT_A_DATABASE:
            advice = f"Check that LISTINGS_DATABASE_URL is the right file. If it is: {advice[0].lower()}{advice[1:]}"
        return CheckResult("integrity", "fault", f"The database is damaged: {found}", advice)
    return CheckResult("integrity", "ok", "All pages and references are intact")


def _check_schema(inspection: Inspection) -> CheckResult:
    if inspection.mismatch is not None:
        return describe_mismatch(inspection.mismatch)
    if inspection.pending:
        return CheckResult(
            "schema",
            "warning",
            f"{inspection.pending} migrations are pending",
            "Run `listings migrate`, or start the service, which does the same",
        )
    return CheckResult("schema", "ok", "It is up to date")


def _check_stored_times(inspection: Inspection) -> CheckResult:
    newest = inspection.newest
    if newest is not None and newest > time.time() + _MAX_CLOCK_DIFFERENCE_SECONDS:
        return CheckResult(
            "stored times",
            "warning",
            f"The latest stored time is {timestamps.format_timestamp(newest)}, "
            f"but the clock says {timestamps.format_timestamp(time.time())}",
            "Correct the machine's clock if it is wrong. If it was wrong before, this warning disappears with time",
        )
    return CheckResult(
        "stored times", "ok", "-" if newest is None else f"The latest is {timestamps.format_timestamp(newest)}"
    )


def _check_disk(settings: Settings) -> CheckResult:
    free, minimum = connections.get_free_bytes(settings.file), connections.MIN_FREE_BYTES
    found = f"{free // _MIB} MiB are free"
    if free < minimum:
        advice = f"Free disk space: below {minimum // _MIB} MiB the service is not ready"
        return CheckResult("disk", "fault", found, advice)
    if free < _GIB:
        return CheckResult("disk", "warning", found, "Free disk space, or move the database to a larger disk")
    return CheckResult("disk", "ok", found)


def _check_wal(database: Path) -> CheckResult:
    wal = Path(f"{database.resolve()}-wal")
    size = wal.stat().st_size if wal.exists() else 0
    found = f"{size // 1024} KiB"
    if size > _MAX_WAL_BYTES:
        advice = f"A process keeps an old snapshot open: end it (`fuser {wal}` lists the processes)"
        return CheckResult("WAL", "warning", found, advice)
    return CheckResult("WAL", "ok", found)


def _check_rate_limit_files(settings: Settings, database_id: str | None) -> CheckResult:
    name = "rate limit files"
    files = maintenance.list_rate_limit_files(settings)
    if not files:
        return CheckResult(name, "ok", "Not used" if files is None else "There are none yet")
    damaged = [str(file.path) for file in files if not file.is_valid]
    if damaged:
        advice = "You need not do anything: the service replaces it and counts from zero"
        return CheckResult(name, "warning", f"{', '.join(damaged)} is damaged", advice)
    foreign = [str(file.path) for file in files if database_id not in {None, file.database_id}]
    if foreign:
        return CheckResult(
            name,
            "warning",
            f"{', '.join(foreign)} belongs to another database",
            "Ignore this if you restored another database here. Otherwise give each database its own folder",
        )
    accessible = [str(file.path) for file in files if file.path.stat().st_mode & (_OTHERS_READ | _OTHERS_WRITE)]
    if accessible:
        return CheckResult(name, "warning", f"Other users can access {', '.join(accessible)}", _chmod(accessible))
    return CheckResult(name, "ok", f"{len(files)}, of this database")


def _check_drafts(settings: Settings) -> CheckResult:
    drafts = [str(path) for path in snapshot.find_stale_drafts(settings.file.resolve().parent)]
    if drafts:
        found = f"An interrupted backup left {', '.join(drafts)}"
        return CheckResult("drafts", "warning", found, f"Run `rm {' '.join(drafts)}`")
    return CheckResult("drafts", "ok", "There are none")


# The machine and the service


def _check_clock() -> CheckResult:
    now = time.time()
    if not _MIN_YEAR <= time.gmtime(now).tm_year <= _MAX_YEAR:
        advice = "Correct the machine's clock: it decides when plans and keys expire"
        return CheckResult("clock", "fault", timestamps.format_timestamp(now), advice)
    return CheckResult("clock", "ok", f"{timestamps.format_timestamp(now)} UTC")


def _check_sqlite_version() -> CheckResult:
    try:
        connections.require_safe_sqlite()
        return CheckResult("SQLite", "ok", connections.get_sqlite_version())
    except Problem as problem:
        return CheckResult("SQLite", "fault", problem.message, "Install the package versions that Listings requires")


def _check_rate_limit(settings: Settings) -> CheckResult:
    scope = maintenance.rate_limit_scope(settings)
    if scope is None:
        return CheckResult("rate limit", "ok", "Off, because LISTINGS_RATE_LIMIT is 0")
    limit = f"{settings.rate_limit} requests per key in {settings.rate_window} s, counted across {scope}"
    try:
        report = maintenance.inspect_redis(settings)
    except Unavailable as problem:
        advice = "Check that Redis is running, and that LISTINGS_REDIS_URL has its address and password"
        return CheckResult("rate limit", "fault", f"Redis can't be reached: {problem.message}", advice)
    if report is None:
        return CheckResult("rate limit", "ok", limit)
    return _check_redis(report, f"{limit}, {report.name}")


def _check_redis(report: "RedisReport", found: str) -> CheckResult:
    """Return the result for Redis; `found` describes the limit if there is no problem."""
    if report.is_replica or report.is_cluster:
        kind = "a replica, which rejects writes" if report.is_replica else "part of a Redis Cluster"
        return CheckResult("rate limit", "fault", f"{report.name} is {kind}", "Set LISTINGS_REDIS_URL to a primary")
    if report.version < _MIN_REDIS_VERSION:
        return CheckResult("rate limit", "fault", f"{report.name} is too old", "Install Redis 6.2 or newer, or Valkey")
    if report.policy != "noeviction":
        found = f"{report.name} discards counts when its memory is full: maxmemory-policy is {report.policy}"
        return CheckResult("rate limit", "warning", found, "Set `maxmemory-policy noeviction` in Redis's configuration")
    if abs(report.ahead) > _MAX_CLOCK_DIFFERENCE_SECONDS:
        side = "ahead of" if report.ahead > 0 else "behind"
        found = f"The clock of {report.name} is {abs(report.ahead):.0f} s {side} this machine's"
        return CheckResult("rate limit", "warning", found, "Correct whichever of the two clocks is wrong")
    return CheckResult("rate limit", "ok", found)


def _check_open_files(settings: Settings) -> CheckResult:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.max_connections + RESERVED_FILES
    if hard != resource.RLIM_INFINITY and hard < needed:
        possible = max(1, hard - RESERVED_FILES)
        return CheckResult(
            "open files",
            "warning",
            f"The limit is {hard}, enough for {possible} of {settings.max_connections} connections",
            "Raise the limit (ulimit -n, LimitNOFILE=), or lower LISTINGS_MAX_CONNECTIONS",
        )
    return CheckResult("open files", "ok", f"Enough for {settings.max_connections} connections per worker")


def _check_workers(settings: Settings) -> CheckResult:
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = f"{settings.workers} on {processors} processors"
    if settings.workers > processors:
        advice = f"Set LISTINGS_WORKERS to {processors}: more workers than processors are not faster"
        return CheckResult("workers", "warning", found, advice)
    return CheckResult("workers", "ok", found)


def _check_service(settings: Settings) -> CheckResult:
    if not settings.port:
        return CheckResult("service", "ok", "Not checked, because its port is unknown (LISTINGS_PORT is 0)")
    host = settings.reachable_host
    address = f"{f'[{host}]' if ':' in host else host}:{settings.port}"
    connection = http.client.HTTPConnection(host, settings.port, timeout=_RESPONSE_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        return _check_readiness(address, response.status, response.read(_MIB))
    except ConnectionRefusedError:
        return CheckResult("service", "ok", f"Not running at {address}, or running at another address")
    except (OSError, http.client.HTTPException) as error:
        advice = "Look at the service's log, then restart it"
        return CheckResult("service", "warning", f"{address} does not respond: {error}", advice)
    finally:
        connection.close()


def _check_readiness(address: str, status: int, body: bytes) -> CheckResult:
    try:
        data = json.loads(body)
    except ValueError:
        data = None
    if status == http.client.OK and isinstance(data, dict) and _is_readiness(data):
        return _describe_ready(address, str(data.get("rate_limit", "")))
    if status == http.client.SERVICE_UNAVAILABLE and isinstance(data, dict) and set(data) == {"error"}:
        advice = "Fix this cause; the service then recovers by itself"
        return CheckResult("service", "fault", f"Not ready: {data['error']}", advice)
    advice = "Set LISTINGS_PORT to another port, or stop the other program"
    return CheckResult("service", "warning", f"Another program than Listings is running at {address}", advice)


def _is_readiness(data: dict[str, object]) -> bool:
    return data.get("status") == "ready" and data.keys() <= {"status", "rate_limit"}


def _describe_ready(address: str, scope: str) -> CheckResult:
    if scope.endswith("since Redis is away"):
        found = f"Ready at {address}; counts the rate limit across {scope}"
        return CheckResult("service", "warning", found, "Follow the advice for the rate limit, and look at Redis's log")
    return CheckResult("service", "ok", f"Ready at {address}")
