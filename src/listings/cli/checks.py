"""What `listings doctor` looks at. Every check changes nothing and ends in a finding, whatever it meets."""

import http.client
import json
import os
import pwd
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from listings import maintenance
from listings.cli import postgres_checks
from listings.cli.check_result import Finding, mismatched
from listings.cli.serve import OTHER_FILES
from listings.domain import timestamps
from listings.domain.errors import Problem, Unavailable
from listings.settings import ResolvedSetting, Settings, build_settings
from listings.store.sqlite.maintenance.inspection import Inspection

if TYPE_CHECKING:
    from listings.ratelimit.redis_inspection import RedisReport

_GIBIBYTE = 1024**3
_MEBIBYTE = 1024**2
_LARGEST_WAL = 64 * _MEBIBYTE
_OTHERS_READ, _OTHERS_WRITE, _ALL_WRITE = 0o055, 0o022, 0o002
_FIRST_YEAR, _LAST_YEAR = 2026, 2100
_CLOCK_SECONDS = 300  # that clocks may differ
_OLDEST_REDIS = (6, 2)
_ANSWER_SECONDS = 2
_NO_DATABASE = "file is not a database"  # the engine's words


def examine(given: list[ResolvedSetting], unknown: Sequence[str] = ()) -> Iterator[Finding]:
    """All findings, in the order in which they are best read. `unknown` are names of what are no settings."""
    settings = build_settings(given)
    yield _settings(given, unknown)
    if not any(one.error for one in given if one.setting.attribute == "database"):
        examine_it = _examine_database if isinstance(settings.database, Path) else postgres_checks.examine
        yield from examine_it(settings)
    yield _clock()
    if isinstance(settings.database, Path):
        yield _sqlite()
    yield _limit(settings)
    yield _open_files(settings)
    yield _workers(settings)
    yield _service(settings)


def _examine_database(settings: Settings) -> Iterator[Finding]:
    database = settings.file.absolute()
    settings = settings._replace(database=database)
    try:
        found = _database(settings)
    except OSError as error:
        yield _out_of_reach("database", error)
        return
    yield found
    if found.verdict != "ok":
        return
    inspection = None
    try:
        inspection = maintenance.inspect_database(settings)
    except Problem as problem:
        yield _unreadable(problem, database)
    if inspection is not None:
        yield _integrity(inspection)
        if not inspection.corruption:
            yield _schema(inspection)
            yield _stored_times(inspection)
    database_id = inspection.database_id if inspection is not None else None
    checks: dict[str, Callable[[], Finding]] = {
        "file rights": lambda: _file_rights(database),
        "folder rights": lambda: _folder_rights(database),
        "owner": lambda: _owner(database),
        "disk": lambda: _room(settings),
        "WAL": lambda: _wal(database),
        "rate limit files": lambda: _rate_limit(settings, database_id),
        "drafts": lambda: _drafts(settings),
    }
    for name, check in checks.items():
        try:
            yield check()
        except OSError as error:
            yield _out_of_reach(name, error)


def _out_of_reach(check: str, error: OSError) -> Finding:
    advice = "Run this as the user that the service runs as, or give that user what is named"
    return Finding(check, "fault", f"{error.filename} can't be looked at: {error.strerror}", advice)


def _settings(given: list[ResolvedSetting], unknown: Sequence[str]) -> Finding:
    faults = [one.error for one in given if one.error]
    if faults:
        return Finding("settings", "fault", "; ".join(faults), "Correct them; `listings settings` shows all")
    if unknown:
        found = f"No settings, so that they change nothing: {', '.join(unknown)}"
        return Finding("settings", "warning", found, "Correct the names; `listings settings` shows all")
    count = sum(one.source != "default" for one in given)
    return Finding("settings", "ok", f"{count} set, the others are the defaults")


# The database


def _database(settings: Settings) -> Finding:
    left, advice = maintenance.find_orphaned_wal(settings)
    if left is not None:
        found = f"The database {settings.file} is missing, but {left} still contains writes to it"
        return Finding("database", "fault", found, advice[0].upper() + advice[1:])
    if not settings.file.exists():
        return Finding(
            "database",
            "fault",
            f"There is no database at {settings.file}",
            "Make it with `listings migrate`, or set LISTINGS_DATABASE_URL to where it is",
        )
    return Finding("database", "ok", str(settings.file))


def _unreadable(problem: Problem, database: Path) -> Finding:
    if problem.code == "unavailable" and not all(os.access(path, os.R_OK) for path in _own_files(database)):
        advice = "Run this as the user that the service runs as, or give that user the files"
        return Finding("integrity", "fault", problem.message, advice)
    if problem.code == "unavailable":
        return Finding("integrity", "fault", problem.message, "Restore a backup: `listings restore FILE --force`")
    return Finding("integrity", "warning", problem.message, "Run `listings migrate`, then `listings doctor` again")


def _file_rights(database: Path) -> Finding:
    modes = {path: path.stat().st_mode for path in _own_files(database)}
    written = [str(path) for path, mode in modes.items() if mode & _OTHERS_WRITE]
    read = [str(path) for path, mode in modes.items() if mode & _OTHERS_READ]
    if written:
        return Finding("file rights", "fault", f"Others can write {', '.join(written)}", _chmod(written))
    if read:
        return Finding("file rights", "warning", f"Others can read {', '.join(read)}", _chmod(read))
    return Finding("file rights", "ok", "The database's files are for their owner alone")


def _chmod(paths: list[str]) -> str:
    return f"Run `chmod 600 {' '.join(paths)}`"


def _own_files(database: Path) -> list[Path]:
    real = database.resolve()
    paths = [real.with_name(real.name + suffix) for suffix in ("", "-wal", "-shm", "-journal", ".lock")]
    return [path for path in paths if path.exists()]


def _folder_rights(database: Path) -> Finding:
    folder = database.resolve().parent
    if folder.stat().st_mode & _ALL_WRITE:
        return Finding("folder rights", "fault", f"Everybody can write in {folder}", f"Run `chmod o-w {folder}`")
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding(
            "folder rights",
            "fault",
            f"{_user(os.geteuid())} can't write in {folder}",
            "Run this as the user that the service runs as, or give that user the folder",
        )
    return Finding("folder rights", "ok", str(folder))


def _owner(database: Path) -> Finding:
    owner, user = database.stat().st_uid, os.geteuid()
    closed = [str(path) for path in _own_files(database) if not os.access(path, os.R_OK | os.W_OK)]
    if closed:
        return Finding(
            "owner",
            "fault",
            f"{_user(user)} can't read and write {', '.join(closed)}",
            "Run this as the user that the service runs as, or give that user the files",
        )
    if owner != user:
        return Finding(
            "owner",
            "warning",
            f"The database belongs to {_user(owner)}, and this is {_user(user)}",
            f"Run commands as {_user(owner)}, or the files that they make shut the service out",
        )
    return Finding("owner", "ok", _user(owner))


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _integrity(inspection: Inspection) -> Finding:
    if inspection.corruption:
        found = "; ".join(inspection.corruption)
        advice = "Stop the service and restore the last good backup: `listings restore FILE --force`"
        if found == _NO_DATABASE:
            advice = (
                f"Check that LISTINGS_DATABASE_URL names the right file. If it does: {advice[0].lower()}{advice[1:]}"
            )
        return Finding("integrity", "fault", f"The database is damaged: {found}", advice)
    return Finding("integrity", "ok", "Every page and every reference is sound")


def _schema(inspection: Inspection) -> Finding:
    if inspection.mismatch is not None:
        return mismatched(inspection.mismatch)
    if inspection.pending:
        return Finding(
            "schema",
            "warning",
            f"The schema lacks {inspection.pending} of this program's migrations",
            "Run `listings migrate`; the service does the same when it starts",
        )
    return Finding("schema", "ok", "It is this program's")


def _stored_times(inspection: Inspection) -> Finding:
    newest = inspection.newest
    if newest is not None and newest > time.time() + _CLOCK_SECONDS:
        return Finding(
            "stored times",
            "warning",
            f"The latest stored time is {timestamps.format_timestamp(newest)}, "
            f"but the clock says {timestamps.format_timestamp(time.time())}",
            "Set the machine's clock if it is wrong; if it was wrong before, this passes with time",
        )
    return Finding(
        "stored times", "ok", "-" if newest is None else f"The latest is {timestamps.format_timestamp(newest)}"
    )


def _room(settings: Settings) -> Finding:
    free, least = maintenance.get_free_bytes(settings)
    found = f"{free // _MEBIBYTE} MiB are free"
    if free < least:
        return Finding("disk", "fault", found, f"Free some: with less than {least // _MEBIBYTE} MiB the service stops")
    if free < _GIBIBYTE:
        return Finding("disk", "warning", found, "Free some, or move the database to a larger disk")
    return Finding("disk", "ok", found)


def _wal(database: Path) -> Finding:
    wal = Path(f"{database.resolve()}-wal")
    size = wal.stat().st_size if wal.exists() else 0
    found = f"{size // 1024} KiB"
    if size > _LARGEST_WAL:
        return Finding(
            "WAL", "warning", found, f"Something keeps an old snapshot open: end it (`fuser {wal}` names processes)"
        )
    return Finding("WAL", "ok", found)


def _rate_limit(settings: Settings, database_id: str | None) -> Finding:
    name = "rate limit files"
    files = maintenance.list_rate_limit_files(settings)
    if not files:
        return Finding(name, "ok", "There are none to be" if files is None else "There are none yet")
    broken = [str(file.path) for file in files if not file.is_valid]
    if broken:
        return Finding(
            name, "warning", f"{', '.join(broken)} is damaged", "Nothing needs doing: the limit begins anew there"
        )
    foreign = [str(file.path) for file in files if database_id not in {None, file.database_id}]
    if foreign:
        return Finding(
            name,
            "warning",
            f"{', '.join(foreign)} is of another database",
            "Nothing where a restore brought another database here; else see that each has a folder of its own",
        )
    opened = [str(file.path) for file in files if file.path.stat().st_mode & (_OTHERS_READ | _OTHERS_WRITE)]
    if opened:
        return Finding(name, "warning", f"Others can use {', '.join(opened)}", _chmod(opened))
    return Finding(name, "ok", f"{len(files)}, of this database")


def _drafts(settings: Settings) -> Finding:
    drafts = [str(path) for path in maintenance.find_stale_drafts(settings)]
    if drafts:
        return Finding("drafts", "warning", f"A backup was killed: {', '.join(drafts)}", f"Run `rm {' '.join(drafts)}`")
    return Finding("drafts", "ok", "No backup was cut short here")


# The machine and the service


def _clock() -> Finding:
    now = time.time()
    if not _FIRST_YEAR <= time.gmtime(now).tm_year <= _LAST_YEAR:
        return Finding(
            "clock", "fault", timestamps.format_timestamp(now), "Set the machine's clock: plans and keys end by it"
        )
    return Finding("clock", "ok", f"{timestamps.format_timestamp(now)} UTC")


def _sqlite() -> Finding:
    try:
        return Finding("SQLite", "ok", maintenance.get_sqlite_version())
    except Problem as problem:
        return Finding("SQLite", "fault", problem.message, "Install the packages that Listings is pinned to")


def _limit(settings: Settings) -> Finding:
    reach = maintenance.rate_limit_scope(settings)
    if reach is None:
        return Finding("rate limit", "ok", "There is none, as LISTINGS_RATE_LIMIT is 0")
    counted = f"{settings.rate_limit} requests in {settings.rate_window} s and key, counted over {reach}"
    try:
        report = maintenance.inspect_redis(settings)
    except Unavailable as problem:
        advice = "See that Redis runs, and that LISTINGS_REDIS_URL names it with the right password"
        return Finding("rate limit", "fault", f"Redis can't be asked: {problem.message}", advice)
    if report is None:
        return Finding("rate limit", "ok", counted)
    return _redis(report, f"{counted}, {report.name}")


def _redis(report: "RedisReport", found: str) -> Finding:
    """`found` is what there is to say where all is well."""
    if report.is_replica or report.is_cluster:
        kind = "a replica, which takes no writes" if report.is_replica else "a part of a Redis Cluster"
        return Finding("rate limit", "fault", f"{report.name} is {kind}", "Name a primary in LISTINGS_REDIS_URL")
    if report.version < _OLDEST_REDIS:
        return Finding("rate limit", "fault", f"{report.name} is too old", "Install Redis 6.2 or newer, or Valkey")
    if report.policy != "noeviction":
        found = f"{report.name} forgets counts when its memory is full: maxmemory-policy is {report.policy}"
        return Finding("rate limit", "warning", found, "Set `maxmemory-policy noeviction` in Redis's configuration")
    if abs(report.ahead) > _CLOCK_SECONDS:
        side = "ahead of" if report.ahead > 0 else "behind"
        found = f"The clock of {report.name} is {abs(report.ahead):.0f} s {side} this machine's"
        return Finding("rate limit", "warning", found, "Set the wrong one of the two clocks")
    return Finding("rate limit", "ok", found)


def _open_files(settings: Settings) -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.max_connections + OTHER_FILES
    if hard != resource.RLIM_INFINITY and hard < needed:
        possible = max(1, hard - OTHER_FILES)
        return Finding(
            "open files",
            "warning",
            f"{hard} are allowed here, enough for {possible} of {settings.max_connections} connections",
            "Raise the limit (ulimit -n, LimitNOFILE=), or lower LISTINGS_MAX_CONNECTIONS",
        )
    return Finding("open files", "ok", f"Enough for {settings.max_connections} connections to each worker")


def _workers(settings: Settings) -> Finding:
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = f"{settings.workers} on {processors} processors"
    if settings.workers > processors:
        return Finding("workers", "warning", found, f"Set LISTINGS_WORKERS to {processors}: more only share them")
    return Finding("workers", "ok", found)


def _service(settings: Settings) -> Finding:
    if not settings.port:
        return Finding("service", "ok", "Its port is the system's choice, so it was not asked")
    host = settings.reachable_host
    place = f"{f'[{host}]' if ':' in host else host}:{settings.port}"
    connection = http.client.HTTPConnection(host, settings.port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return _answer(place, answer.status, answer.read(_MEBIBYTE))
    except ConnectionRefusedError:
        return Finding("service", "ok", f"It does not run at {place}")
    except (OSError, http.client.HTTPException) as error:
        return Finding(
            "service", "warning", f"{place} does not answer: {error}", "Look at the service's log, then restart it"
        )
    finally:
        connection.close()


def _answer(place: str, status: int, body: bytes) -> Finding:
    try:
        data = json.loads(body)
    except ValueError:
        data = None
    if status == http.client.OK and isinstance(data, dict) and _is_readiness(data):
        return _ready(place, str(data.get("rate_limit", "")))
    if status == http.client.SERVICE_UNAVAILABLE and isinstance(data, dict) and set(data) == {"error"}:
        return Finding("service", "fault", f"It is not ready: {data['error']}", "Mend that; the service then recovers")
    return Finding(
        "service", "warning", f"What answers at {place} is not Listings", "Give one of them another port: LISTINGS_PORT"
    )


def _is_readiness(data: dict[str, object]) -> bool:
    return data.get("status") == "ready" and data.keys() <= {"status", "rate_limit"}


def _ready(place: str, reach: str) -> Finding:
    if reach.endswith("since Redis is away"):
        found = f"It is ready at {place}, and counts the rate limit over {reach}"
        return Finding("service", "warning", found, "See what is said of the rate limit, and look at Redis's log")
    return Finding("service", "ok", f"It is ready at {place}")
