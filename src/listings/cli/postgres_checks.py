"""The checks of `listings doctor` for a PostgreSQL database."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from listings import maintenance
from listings.cli.shared_checks import (
    CheckResult,
    Finding,
    catch_os_error,
    check_pending,
    check_pictures,
    check_schema,
    check_search_index,
    check_stored_times,
    fault,
    ok,
    warning,
)
from listings.domain.errors import Problem
from listings.http.body_files import MIN_FREE_BYTES
from listings.settings import Settings
from listings.store.postgres.inspection import PostgresInspection

_MIB = 1024 * 1024
_MAX_CLOCK_DIFFERENCE_SECONDS = 5
_MAX_TRANSACTION_SECONDS = 600
_MAX_TRANSACTION_AGE = 1_000_000_000  # at 2,000,000,000 the server stops
_ADVICE = {
    "database_missing": "Create it, or set LISTINGS_DATABASE_URL to an existing database",
    "schema_mismatch": "Set LISTINGS_DATABASE_URL to a suitable database",
}


def run_checks(settings: Settings) -> Iterator[CheckResult]:
    """Check the server and the database."""
    try:
        found = maintenance.inspect_postgres(settings)
    except Problem as problem:
        unreachable = "Check that the server is running and accepts this machine and user"
        advice = _ADVICE.get(problem.code, f"{unreachable}, and that LISTINGS_DATABASE_URL is right")
        yield "database", fault(problem.message, advice)
        return
    yield "database", ok(f"{settings.redacted_database}, PostgreSQL {found.version}")
    yield "schema", check_schema(found.mismatch, found.pending_migrations, found.differences)
    yield "stored times", check_stored_times(found.newest_time)
    if found.pending_work is not None:
        yield from check_pending(found.pending_work, settings)
    yield "durability", _check_durability(found)
    yield "standby", _check_standby(found)
    yield "connections", _check_connections(found, settings.database_connections)
    yield "server clock", _check_server_clock(found)
    yield "transactions", _check_transactions(found)
    yield "market index", _check_market_index(found)
    if found.unavailable_workers is not None:
        yield "nodes", _check_nodes(found.unavailable_workers)
    if found.pending_work is not None:
        yield "pictures", check_pictures(settings)
    if settings.site and found.pending_work is not None:
        yield "search index", check_search_index(settings)
    yield "disk", catch_os_error(lambda: _check_disk(settings.data_folder.absolute()))


def _check_disk(folder: Path) -> Finding:
    existing = next(path for path in (folder, *folder.parents) if path.exists())  # the service creates the folder
    free = shutil.disk_usage(existing).free
    found = f"{free // _MIB} MiB are free in {folder}"
    if free < MIN_FREE_BYTES:
        advice = "Free disk space: large lists get 503, and on a full disk, requests of new keys are counted in memory"
        return warning(found, advice)
    return ok(found)


def _check_market_index(found: PostgresInspection) -> Finding:
    if found.indexing_error is not None:
        text = f"New and changed listings do not appear in the market: {found.indexing_error}"
        return fault(text, "Fix this cause; the service then indexes them by itself")
    return ok("The statements that find listings to index work")


def _check_nodes(unavailable: list[str]) -> Finding:
    if unavailable:
        text = f"The coordinator can't use {', '.join(unavailable)}: requests for the accounts there get 503"
        return fault(text, "Start these nodes, and check how the nodes authenticate to each other")
    return ok("The coordinator can use every worker")


def _check_durability(found: PostgresInspection) -> Finding:
    if found.unsafe_settings:
        names = " and ".join(found.unsafe_settings)
        text = f"The server runs with {names} off: a power failure can lose or damage acknowledged writes"
        return fault(text, f"Set {names} = on in postgresql.conf and restart the server")
    return ok("fsync and full_page_writes are on; each session sets synchronous_commit itself")


def _check_standby(found: PostgresInspection) -> Finding:
    if found.is_standby:
        advice = "Set LISTINGS_DATABASE_URL to the primary, or promote this server"
        return fault("The server is a standby, which rejects writes", advice)
    return ok("The server accepts writes")


def _check_connections(found: PostgresInspection, needed: int) -> Finding:
    text = f"{found.free_connections} are free on the server; each process of the service needs up to {needed}"
    if found.free_connections < needed:
        advice = "Raise the server's max_connections or lower LISTINGS_DATABASE_CONNECTIONS"
        return warning(text, f"{advice}, unless running services already have their connections")
    return ok(text)


def _check_server_clock(found: PostgresInspection) -> Finding:
    text = f"The server's clock differs by {abs(found.clock_ahead_seconds):.1f} seconds"
    if abs(found.clock_ahead_seconds) > _MAX_CLOCK_DIFFERENCE_SECONDS:
        return warning(text, "Synchronise both machines' clocks with NTP")
    return ok(text)


def _check_transactions(found: PostgresInspection) -> Finding:
    age = found.transaction_age
    if age > _MAX_TRANSACTION_AGE:
        text = f"The oldest transaction id is {age} transactions old; at 2,000,000,000 the server stops"
        advice = "Find out why autovacuum cannot freeze rows: open or prepared transactions, or replication slots"
        return warning(text, advice)
    if found.longest_transaction_seconds > _MAX_TRANSACTION_SECONDS:
        text = f"A transaction has been open for {found.longest_transaction_seconds} seconds"
        return warning(text, "End it (pg_stat_activity shows it): it keeps PostgreSQL from removing deleted rows")
    return ok(f"The oldest id is {age} transactions old")
