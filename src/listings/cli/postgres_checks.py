"""The checks of `listings doctor` for a PostgreSQL database."""

import time
from collections.abc import Iterator

from listings import maintenance
from listings.cli.check_result import CheckResult, describe_mismatch
from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.settings import Settings
from listings.store.postgres.inspection import PostgresInspection

_MAX_CLOCK_DIFFERENCE_SECONDS = 5
_MAX_FUTURE_SECONDS = 300
_MAX_TRANSACTION_SECONDS = 600
_MAX_TRANSACTION_AGE = 1_000_000_000  # at 2,000,000,000 the server stops


def run_checks(settings: Settings) -> Iterator[CheckResult]:
    """Check the server and the database."""
    try:
        found = maintenance.inspect_postgres(settings)
    except Problem as problem:
        yield _unreachable(problem)
        return
    yield CheckResult("database", "ok", f"{settings.redacted_database}, PostgreSQL {found.version}")
    yield _check_schema(found)
    yield _check_stored_times(found)
    yield _check_durability(found)
    yield _check_standby(found)
    yield _check_connections(found, settings.database_connections)
    yield _check_server_clock(found)
    yield _check_transactions(found)


def _unreachable(problem: Problem) -> CheckResult:
    if problem.code == "database_missing":
        advice = "Create it, or set LISTINGS_DATABASE_URL to an existing database"
        return CheckResult("database", "fault", problem.message, advice)
    if problem.code == "schema_mismatch":
        return CheckResult("database", "fault", problem.message, "Set LISTINGS_DATABASE_URL to a suitable database")
    advice = (
        "Check that the server is running and accepts this machine and user, and that LISTINGS_DATABASE_URL is right"
    )
    return CheckResult("database", "fault", problem.message, advice)


def _check_schema(found: PostgresInspection) -> CheckResult:
    if found.mismatch is not None:
        return describe_mismatch(found.mismatch)
    if found.pending_migrations:
        return CheckResult(
            "schema",
            "warning",
            f"{found.pending_migrations} migrations are pending",
            "Run `listings migrate`, or start the service, which does the same",
        )
    return CheckResult("schema", "ok", "It is up to date")


def _check_stored_times(found: PostgresInspection) -> CheckResult:
    if found.newest_time is not None and found.newest_time > time.time() + _MAX_FUTURE_SECONDS:
        return CheckResult(
            "stored times",
            "warning",
            f"The latest stored time is {timestamps.format_timestamp(found.newest_time)}, "
            f"but the clock says {timestamps.format_timestamp(time.time())}",
            "Correct the machine's clock if it is wrong. If it was wrong before, this warning disappears with time",
        )
    return CheckResult(
        "stored times",
        "ok",
        "-" if found.newest_time is None else f"The latest is {timestamps.format_timestamp(found.newest_time)}",
    )


def _check_durability(found: PostgresInspection) -> CheckResult:
    if found.unsafe_settings:
        names = " and ".join(found.unsafe_settings)
        return CheckResult(
            "durability",
            "fault",
            f"The server runs with {names} off: a power failure can lose or damage acknowledged writes",
            f"Set {names} = on in postgresql.conf and restart the server",
        )
    return CheckResult(
        "durability", "ok", "fsync and full_page_writes are on; each session sets synchronous_commit itself"
    )


def _check_standby(found: PostgresInspection) -> CheckResult:
    if found.is_standby:
        advice = "Set LISTINGS_DATABASE_URL to the primary, or promote this server"
        return CheckResult("standby", "fault", "The server is a standby, which rejects writes", advice)
    return CheckResult("standby", "ok", "The server accepts writes")


def _check_connections(found: PostgresInspection, needed: int) -> CheckResult:
    text = f"{found.free_connections} are free on the server; each process of the service needs up to {needed}"
    if found.free_connections < needed:
        advice = (
            "Raise the server's max_connections or lower LISTINGS_DATABASE_CONNECTIONS, "
            "unless running services already have their connections"
        )
        return CheckResult("connections", "warning", text, advice)
    return CheckResult("connections", "ok", text)


def _check_server_clock(found: PostgresInspection) -> CheckResult:
    text = f"The server's clock differs by {abs(found.clock_ahead_seconds):.1f} seconds"
    if abs(found.clock_ahead_seconds) > _MAX_CLOCK_DIFFERENCE_SECONDS:
        return CheckResult("server clock", "warning", text, "Synchronise both machines' clocks with NTP")
    return CheckResult("server clock", "ok", text)


def _check_transactions(found: PostgresInspection) -> CheckResult:
    if found.transaction_age > _MAX_TRANSACTION_AGE:
        return CheckResult(
            "transactions",
            "warning",
            f"The oldest transaction id is {found.transaction_age} transactions old; at 2,000,000,000 the server stops",
            "Find out why autovacuum cannot freeze rows: open or prepared transactions, or replication slots",
        )
    if found.longest_transaction_seconds > _MAX_TRANSACTION_SECONDS:
        return CheckResult(
            "transactions",
            "warning",
            f"A transaction has been open for {found.longest_transaction_seconds} seconds",
            "End it (pg_stat_activity shows it): it keeps PostgreSQL from removing deleted rows",
        )
    return CheckResult("transactions", "ok", f"The oldest id is {found.transaction_age} transactions old")
