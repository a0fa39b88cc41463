"""What the errors of PostgreSQL and of its driver mean, by their SQLSTATEs alone: names are an engine's own."""

import asyncpg

from listings.domain.errors import Unavailable

DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""All that a call of the driver may raise, but for being cancelled."""

_SESSION_ENDED = {"57P01", "57P02", "57P03"}
_UNDONE = {"40001", "40P01"}  # a conflict of transactions: the same again may well pass
_TOO_LONG = {"55P03", "57014", "25P03"}
_MISSING = "3D000"
_FORBIDDEN = "42501"
_STALE = (asyncpg.InvalidCachedStatementError, asyncpg.InvalidSQLStatementNameError, asyncpg.OutdatedSchemaCacheError)


def state_of(error: BaseException) -> str:
    """The SQLSTATE; empty where the server has not said any."""
    return getattr(error, "sqlstate", None) or ""


def described(error: BaseException) -> str:
    """For the log: without the server's details, which quote rows, and the driver's words, which quote values."""
    said = str(error.args[0]) if isinstance(error, asyncpg.PostgresError) and error.args else ""
    return " ".join(filter(None, (type(error).__name__, state_of(error), said)))


def is_lost(error: BaseException) -> bool:
    """Whether the session is gone, or was never there."""
    if isinstance(error, asyncpg.PostgresError):
        return state_of(error).startswith("08") or state_of(error) in _SESSION_ENDED
    refused_values = isinstance(error, asyncpg.DataError | ValueError)  # of the driver, before anything was sent
    return isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError | OSError) and not refused_values


def is_stale(error: BaseException) -> bool:
    """Whether a held statement no longer fits the schema: nothing was done, and another session is good."""
    return isinstance(error, _STALE)


def is_undone(error: BaseException) -> bool:
    """Whether the server undid a transaction for another's sake."""
    return state_of(error) in _UNDONE


def is_forbidden(error: BaseException) -> bool:
    """Whether the role lacks a right."""
    return state_of(error) == _FORBIDDEN


def is_missing_database(error: BaseException) -> bool:
    """Whether the server has no database of this name."""
    return state_of(error) == _MISSING


def is_certain(error: BaseException) -> bool:
    """Whether a statement that ended so has certainly written nothing: the server lives and has refused it."""
    lost_commit = state_of(error).startswith("XX") or state_of(error) == "40003"
    return isinstance(error, asyncpg.PostgresError) and not is_lost(error) and not lost_commit


def is_of_one(error: BaseException) -> bool:
    """Whether another statement on the same session may well pass: the server is there, and has the time."""
    is_of_session = is_lost(error) or is_stale(error) or state_of(error) in _TOO_LONG
    return isinstance(error, DRIVER_ERRORS) and not is_of_session


def unread(error: BaseException) -> Unavailable:
    """What a read that failed is told as."""
    if is_lost(error):
        return Unavailable("The database can't be reached")
    if state_of(error) in _TOO_LONG:
        return Unavailable("The database took too long to answer")
    return Unavailable("The database can't be read")


def unwritten(error: BaseException) -> Unavailable:
    """What a write that certainly did nothing is told as."""
    if is_lost(error):
        return Unavailable("The database can't be reached; nothing was written")
    if state_of(error) in _TOO_LONG or is_undone(error):
        return Unavailable("The database is busy; nothing was written")
    return Unavailable("The database refused the write")


def unknown() -> Unavailable:
    """What a write is told as whose end was not heard."""
    return Unavailable("The database failed to confirm the write; its outcome is unknown")
