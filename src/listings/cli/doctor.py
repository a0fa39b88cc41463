"""`listings doctor`: check the installation and suggest fixes.

A check changes nothing and always returns a result, even after an error.
"""

import http.client
import json
import os
import pwd
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from listings import maintenance, wiring
from listings.cli import postgres_checks
from listings.cli.group import example
from listings.cli.output import json_option, show_rows
from listings.cli.parameters import survey_settings
from listings.cli.serve import count_connections
from listings.cli.shared_checks import (
    GIVE_ACCESS,
    CheckResult,
    Finding,
    catch_os_error,
    check_pending,
    check_pictures,
    check_schema,
    check_search_index,
    check_stored_times,
    fault,
    fault_of,
    ok,
    warning,
)
from listings.domain import timestamps
from listings.domain.errors import Problem, Unavailable
from listings.domain.number_text import format_count
from listings.domain.rate_limiter import REDIS_UNAVAILABLE
from listings.ratelimit.mapped_file import list_log_files
from listings.settings import ResolvedSetting, Settings, build_settings, find_removed_variables, find_unknown_variables
from listings.store.sqlite import connections
from listings.store.sqlite.maintenance import backup, snapshot, wal_readers
from listings.store.sqlite.maintenance.inspection import Inspection, inspect

if TYPE_CHECKING:
    from listings.ratelimit.redis_inspection import RedisReport

_GIB = 1024**3
_MIB = 1024**2
_MAX_WAL_BYTES = 64 * _MIB
_MAX_BACKUP_AGE_SECONDS = 36 * 3600
_OTHERS_READ, _OTHERS_WRITE, _ALL_WRITE = 0o055, 0o022, 0o002
_MIN_YEAR, _MAX_YEAR = 2026, 2100
_MAX_CLOCK_DIFFERENCE_SECONDS = 300
_MIN_REDIS_VERSION = (6, 2)
_RESPONSE_TIMEOUT_SECONDS = 2
_NOT_A_DATABASE = "file is not a database"  # SQLite's message
_STYLES = {"ok": "green", "warning": "yellow", "fault": "bold red"}


@click.command(short_help="Check the installation and suggest fixes.")
@example("listings doctor")
@click.option("--full", is_flag=True, help="Also check all pages of the SQLite database, which may take minutes.")
@click.option("--offline", is_flag=True, help="The service may be stopped.")
@json_option
def doctor(*, full: bool, offline: bool) -> int:
    """Check settings, service, database, permissions, disk and clock, and suggest how to fix each problem.

    Nothing is changed. The exit code is 1 if there is a fault, such as a service that is not running.
    """
    results = list(run_checks(survey_settings(), is_full=full, is_offline=offline))
    show_rows(("check", *Finding._fields), [{"check": name, **found._asdict()} for name, found in results], _STYLES)
    return int(any(found.verdict == "fault" for _, found in results))


def run_checks(
    given: list[ResolvedSetting], *, is_full: bool = False, is_offline: bool = False
) -> Iterator[CheckResult]:
    """Run all checks, those that take longest last.

    `is_full` also checks all pages of a SQLite database. With `is_offline` the service may be stopped.
    """
    settings = build_settings(given)
    yield "settings", _check_settings(settings, given)
    yield "clock", _check_clock()
    yield "rate limit", _check_rate_limit(settings)
    yield "open files", _check_open_files(settings)
    yield "workers", _check_workers(settings)
    yield "service", _check_service(settings, is_offline=is_offline)
    if any(value.error for value in given if value.setting.attribute == "database"):
        return
    if isinstance(settings.database, Path):
        yield "SQLite", _check_sqlite_version()
        yield from _check_sqlite_database(settings, is_full=is_full)
    else:
        yield from postgres_checks.run_checks(settings)


def _check_settings(settings: Settings, given: list[ResolvedSetting]) -> Finding:
    unknown, removed = find_unknown_variables(os.environ), find_removed_variables(os.environ)
    faults = [*(value.error for value in given if value.error), *removed, *filter(None, [settings.conflict])]
    try:
        with wiring.open_observers(settings, listening=False):
            wiring.build_options(settings)
    except Problem as problem:
        faults.append(problem.message)
    if faults:
        return fault("; ".join(faults), "Correct them; `listings settings` shows all settings")
    if unknown:
        found = f"Not settings, and therefore ignored: {', '.join(unknown)}"
        return warning(found, "Correct the names; `listings settings` shows all settings")
    if settings.warning:
        return warning(settings.warning, "Unset it")
    count = sum(value.source != "default" for value in given)
    return ok(f"{count} set, the others have default values")


# The database


def _check_sqlite_database(settings: Settings, *, is_full: bool) -> Iterator[CheckResult]:
    database = settings.file.absolute()
    settings = replace(settings, database=database)
    yield "database", catch_os_error(lambda: _check_database_file(settings))
    if not _has_database(settings):
        return
    yield "file permissions", catch_os_error(lambda: _check_file_permissions(database))
    yield "folder permissions", catch_os_error(lambda: _check_folder_permissions(database))
    yield "owner", catch_os_error(lambda: _check_owner(database))
    yield "disk", catch_os_error(lambda: _check_disk(settings))
    yield "WAL", catch_os_error(lambda: _check_wal(settings))
    yield "unfinished backups", catch_os_error(lambda: _check_unfinished_backups(settings))
    yield "copies", catch_os_error(lambda: _check_copies(settings))
    try:
        inspection = inspect(settings.file, is_full=is_full)
    except Problem as problem:
        yield "rate limit files", catch_os_error(lambda: _check_rate_limit_files(settings, None))
        yield "integrity", _unreadable(problem, database)
        return
    yield "rate limit files", catch_os_error(lambda: _check_rate_limit_files(settings, inspection.database_id))
    yield from _report_inspection(inspection, settings, is_full=is_full)


def _report_inspection(inspection: Inspection, settings: Settings, *, is_full: bool) -> Iterator[CheckResult]:
    yield "last backup", catch_os_error(lambda: _check_last_backup(settings, inspection.created))
    if not inspection.corruption:
        yield "schema", check_schema(inspection.mismatch, inspection.pending, inspection.differences)
        yield "stored times", check_stored_times(inspection.newest)
    if inspection.pending_work is not None:
        yield from check_pending(inspection.pending_work, settings)
    yield "integrity", _check_integrity(inspection, is_full=is_full)
    if inspection.pending_work is not None and not inspection.corruption:
        yield "pictures", check_pictures(settings)
    if settings.site and inspection.pending_work is not None and not inspection.corruption:
        yield "search index", check_search_index(settings)


def _check_database_file(settings: Settings) -> Finding:
    try:
        connections.require_no_recovery_marker(settings.file)
        connections.require_database_file(settings.file)
    except Problem as problem:
        return fault_of(problem.message)
    return ok(str(settings.file))


def _has_database(settings: Settings) -> bool:
    with suppress(OSError, Problem):
        connections.require_database_file(settings.file)
        return True
    return False


def _unreadable(problem: Problem, database: Path) -> Finding:
    if problem.code != "unavailable":
        return warning(problem.message, "Run `listings migrate`, then `listings doctor` again")
    if not all(os.access(path, os.R_OK) for path in _own_files(database)):
        return fault(problem.message, f"{GIVE_ACCESS} the files")
    return fault(problem.message, "Restore a backup: `listings restore FILE --force`")


def _check_integrity(inspection: Inspection, *, is_full: bool) -> Finding:
    if not inspection.corruption:
        return ok("All pages and references are intact" if is_full else "Not checked: --full reads all pages")
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
    free, minimum = connections.get_free_bytes(settings.file), connections.MIN_FREE_BYTES
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


def _check_wal(settings: Settings) -> Finding:
    wal = Path(f"{settings.file.resolve()}-wal")
    size = wal.stat().st_size if wal.exists() else 0
    found = f"{size // 1024} KiB"
    if size <= _MAX_WAL_BYTES:
        return ok(found)
    readers = wal_readers.find_old_readers(settings.file)
    if readers is None:
        advice = f"A process may keep an old snapshot open: `fuser {wal}` lists it, as well as those of the service"
        return warning(found, advice)
    others = [f"{reader.pid} ({reader.name})" for reader in readers if not reader.is_service]
    if others:
        found = f"{found}, because process {' and process '.join(others)} keeps an old snapshot open"
        return warning(found, "Wait until it has finished, or end it")
    if readers:
        return warning(f"{found}, because the service sends a large list", "Wait until it has sent it")
    return ok(f"{found}; the service makes it smaller when it next writes")


def _check_last_backup(settings: Settings, created: int | None) -> Finding:
    last, now = backup.get_last_backup(settings.file), time.time()
    since = last or created or now
    found = f"The last one is of {timestamps.format_timestamp(last)}" if last else "There is none yet"
    if now - since > _MAX_BACKUP_AGE_SECONDS:
        advice = "Run `listings backup FILE` every day. With systemd, see `systemctl status listings-backup`"
        return warning(found, advice)
    return ok(found)


def _check_rate_limit_files(settings: Settings, database_id: str | None) -> Finding:
    files = list_log_files(settings.file) if settings.rate_limit else None
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
    files = [str(path) for path in snapshot.find_stale_drafts(settings.file.resolve().parent)]
    if files:
        return warning(f"An interrupted backup left {', '.join(files)}", f"Run `rm {' '.join(files)}`")
    return ok("There are none")


def _check_copies(settings: Settings) -> Finding:
    copies = maintenance.find_copies(settings)
    if not copies:
        return ok("There are none")
    size = sum(copy.stat().st_size for copy in copies) // _MIB
    found = f"Upgrades and restores left copies of the database, {size} MiB"
    return warning(found, f"When you no longer need them, run `rm {' '.join(map(str, copies))}`")


# The machine and the service


def _check_clock() -> Finding:
    now = time.time()
    found = timestamps.format_timestamp(now)
    if not _MIN_YEAR <= time.gmtime(now).tm_year <= _MAX_YEAR:
        return fault(found, "Correct the machine's clock: it decides when plans and keys expire")
    return ok(f"{found} UTC")


def _check_sqlite_version() -> Finding:
    try:
        connections.require_safe_sqlite()
        return ok(connections.get_sqlite_version())
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
    if hard != resource.RLIM_INFINITY and count_connections(hard) < wanted:
        found = f"The limit is {hard}, enough for {count_connections(hard)} of {wanted} connections"
        return warning(found, "Raise the limit (ulimit -n, LimitNOFILE=), or lower LISTINGS_MAX_CONNECTIONS")
    return ok(f"Enough for {wanted} connections per worker")


def _check_workers(settings: Settings) -> Finding:
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = f"{settings.workers} on {format_count(processors, 'processor')}"
    if settings.workers > processors:
        advice = f"Set LISTINGS_WORKERS to {processors}: more workers than processors are not faster"
        return warning(found, advice)
    return ok(found)


def _check_service(settings: Settings, *, is_offline: bool) -> Finding:
    if not settings.port:
        return ok("Not checked, because its port is unknown (LISTINGS_PORT is 0)")
    host = settings.reachable_host
    address = f"{f'[{host}]' if ':' in host else host}:{settings.port}"
    connection = http.client.HTTPConnection(host, settings.port, timeout=_RESPONSE_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        return _check_readiness(address, response.status, response.read(_MIB), is_offline=is_offline)
    except ConnectionRefusedError:
        found = f"Nothing is listening at {address}"
        advice = "Start the service, or set LISTINGS_PORT to its port. If it should be stopped, use --offline"
        return ok(found) if is_offline else fault(found, advice)
    except http.client.HTTPException:
        return _report_other_program(address, is_offline=is_offline)
    except (OSError, UnicodeError) as error:
        return warning(f"{address} does not respond: {error}", "Look at the service's log, then restart it")
    finally:
        connection.close()


def _check_readiness(address: str, status: int, body: bytes, *, is_offline: bool) -> Finding:
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
        return fault(f"Not ready: {data['error']}", "Fix this cause without a restart: the service then recovers")
    return _report_other_program(address, is_offline=is_offline)


def _report_other_program(address: str, *, is_offline: bool) -> Finding:
    advice = "Set LISTINGS_PORT to another port, or stop the other program"
    return (warning if is_offline else fault)(f"Another program than Listings is running at {address}", advice)
