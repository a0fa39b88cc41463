"""What `listings doctor` looks at where the data is in PostgreSQL."""

import time
from collections.abc import Iterator

from listings import maintenance
from listings.cli.check_result import Finding, mismatched
from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.settings import Settings
from listings.store.postgres.inspection import PostgresInspection

_CLOCK_SECONDS = 5
_STORED_SECONDS = 300
_OLD_TRANSACTION = 600  # seconds
_OLD_AGE = 1_000_000_000  # of two thousand millions, at which the server stops


def examine(settings: Settings) -> Iterator[Finding]:
    """All findings about the server and the database."""
    try:
        found = maintenance.inspect_postgres(settings)
    except Problem as problem:
        yield _unreachable(problem)
        return
    yield Finding("database", "ok", f"{settings.redacted_database}, PostgreSQL {found.version}")
    yield _schema(found)
    yield _stored_times(found)
    yield _durability(found)
    yield _standby(found)
    yield _connections(found, settings.database_connections)
    yield _server_clock(found)
    yield _transactions(found)


def _unreachable(problem: Problem) -> Finding:
    if problem.code == "database_missing":
        return Finding("database", "fault", problem.message, "Make it, or set LISTINGS_DATABASE_URL to where it is")
    if problem.code == "schema_mismatch":
        return Finding("database", "fault", problem.message, "Set LISTINGS_DATABASE_URL to one that will do")
    advice = "See that the server runs and lets this machine and user in, and that LISTINGS_DATABASE_URL is right"
    return Finding("database", "fault", problem.message, advice)


def _schema(found: PostgresInspection) -> Finding:
    if found.mismatch is not None:
        return mismatched(found.mismatch)
    if found.pending_migrations:
        return Finding(
            "schema",
            "warning",
            f"The schema lacks {found.pending_migrations} of this program's migrations",
            "Run `listings migrate`; the service does the same when it starts",
        )
    return Finding("schema", "ok", "It is this program's")


def _stored_times(found: PostgresInspection) -> Finding:
    if found.newest_time is not None and found.newest_time > time.time() + _STORED_SECONDS:
        return Finding(
            "stored times",
            "warning",
            f"The latest stored time is {timestamps.format_timestamp(found.newest_time)}, "
            f"but the clock says {timestamps.format_timestamp(time.time())}",
            "Set the machine's clock if it is wrong; if it was wrong before, this passes with time",
        )
    return Finding(
        "stored times",
        "ok",
        "-" if found.newest_time is None else f"The latest is {timestamps.format_timestamp(found.newest_time)}",
    )


def _durability(found: PostgresInspection) -> Finding:
    if found.unsafe_settings:
        names = " and ".join(found.unsafe_settings)
        return Finding(
            "durability",
            "fault",
            f"The server runs with {names} off: a power cut can lose or damage what was acknowledged",
            f"Set {names} = on in postgresql.conf and restart the server",
        )
    return Finding("durability", "ok", "fsync and full_page_writes are on; each session sets synchronous_commit itself")


def _standby(found: PostgresInspection) -> Finding:
    if found.is_standby:
        advice = "Set LISTINGS_DATABASE_URL to the primary, or promote this server"
        return Finding("standby", "fault", "The server is a standby, which takes no writes", advice)
    return Finding("standby", "ok", "The server takes writes")


def _connections(found: PostgresInspection, wanted: int) -> Finding:
    text = f"{found.free_connections} are free on the server; each process of the service takes {wanted} at most"
    if found.free_connections < wanted:
        advice = "Raise the server's max_connections or lower LISTINGS_DATABASE_CONNECTIONS, unless services hold them"
        return Finding("connections", "warning", text, advice)
    return Finding("connections", "ok", text)


def _server_clock(found: PostgresInspection) -> Finding:
    text = f"The server's clock differs by {abs(found.clock_ahead_seconds):.1f} seconds"
    if abs(found.clock_ahead_seconds) > _CLOCK_SECONDS:
        return Finding("server clock", "warning", text, "Let both machines keep their clocks by NTP")
    return Finding("server clock", "ok", text)


def _transactions(found: PostgresInspection) -> Finding:
    if found.transaction_age > _OLD_AGE:
        return Finding(
            "transactions",
            "warning",
            f"The oldest transaction id is {found.transaction_age} transactions old; at 2,000,000,000 the server stops",
            "See why autovacuum does not freeze: open transactions, prepared ones, replication slots",
        )
    if found.longest_transaction_seconds > _OLD_TRANSACTION:
        return Finding(
            "transactions",
            "warning",
            f"A transaction has been open for {found.longest_transaction_seconds} seconds",
            "End it (pg_stat_activity names it): nothing that was deleted since can be cleaned up",
        )
    return Finding("transactions", "ok", f"The oldest id is {found.transaction_age} transactions old")
