"""Classify errors of PostgreSQL and its driver by SQLSTATE, and those of Citus about its nodes by their texts."""

import re

import asyncpg

from listings.domain.errors import Unavailable

DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""All errors that a call of the driver may raise, except CancelledError."""

_SESSION_ENDED = {"57P01", "57P02", "57P03"}
_ROLLED_BACK = {"40001", "40P01", "23505"}  # serialization failure, deadlock, a unique value just taken
_LOCK_TIMEOUT = "55P03"
_TIMED_OUT = {_LOCK_TIMEOUT, "57014", "25P03"}
_NODE_FAILED = "08006"
_NEVER_CONNECTED = re.compile(  # texts of Citus and libpq; the same SQLSTATE also means a connection lost while in use
    r"connection to the remote node .* failed with the following error: "
    r"(connection to server .* failed: |could not translate host name |.*\n\tIs the server running |"
    r"FATAL: +the database system is )|could not establish any connections to the node "
)
_STALE = (asyncpg.InvalidCachedStatementError, asyncpg.InvalidSQLStatementNameError, asyncpg.OutdatedSchemaCacheError)


def get_sqlstate(error: BaseException) -> str:
    """Return the SQLSTATE, or an empty string if the server sent none."""
    return getattr(error, "sqlstate", None) or ""


def describe(error: BaseException) -> str:
    """Return a description for the log.

    It leaves out the server's details, which quote rows, and the driver's own messages, which quote values.
    """
    is_of_server = isinstance(error, asyncpg.PostgresError) and type(error) is not asyncpg.DataError
    message = str(error.args[0]) if is_of_server and error.args else ""
    return " ".join(filter(None, (type(error).__name__, get_sqlstate(error), message)))


def is_lost(error: BaseException) -> bool:
    """Return whether the session ended or could not be opened."""
    if isinstance(error, asyncpg.PostgresError):
        is_ended = get_sqlstate(error).startswith("08") or get_sqlstate(error) in _SESSION_ENDED
        return is_ended and not is_of_unreachable_node(error)
    is_invalid = isinstance(error, ValueError)  # raised by the driver before it sends anything
    return isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError | OSError) and not is_invalid


def is_of_unreachable_node(error: BaseException) -> bool:
    """Return whether a Citus coordinator could not connect to a node, which therefore has executed nothing.

    The session with the coordinator is still open.
    """
    return get_sqlstate(error) == _NODE_FAILED and _NEVER_CONNECTED.search(str(error)) is not None


def is_stale(error: BaseException) -> bool:
    """Return whether a prepared statement no longer fits the schema.

    Nothing was executed, and the statement works on a new session.
    """
    return isinstance(error, _STALE)


def is_rolled_back(error: BaseException) -> bool:
    """Return whether the server rolled back the transaction because of a conflict with another one."""
    return get_sqlstate(error) in _ROLLED_BACK


def is_contention(error: BaseException | None) -> bool:
    """Return whether a statement failed only because of other transactions. The database itself then works."""
    return error is not None and (get_sqlstate(error) == _LOCK_TIMEOUT or is_rolled_back(error))


def is_certain(error: BaseException) -> bool:
    """Return whether a statement that failed with this error has certainly written nothing.

    That is so if the server is alive and rejected the statement.
    """
    lost_commit = get_sqlstate(error).startswith("XX") or get_sqlstate(error) == "40003"
    return isinstance(error, asyncpg.PostgresError) and not is_lost(error) and not lost_commit


def is_of_one_statement(error: BaseException) -> bool:
    """Return whether another statement may succeed on the same session, because the server is neither lost nor busy."""
    is_of_session = is_lost(error) or is_stale(error) or get_sqlstate(error) in _TIMED_OUT
    return isinstance(error, DRIVER_ERRORS) and not is_of_session


def build_read_error(error: BaseException) -> Unavailable:
    """Return the error for a failed read."""
    if is_lost(error):
        return Unavailable("The database can't be reached")
    if is_of_unreachable_node(error):
        return Unavailable("A node of the database can't be reached")
    if get_sqlstate(error) in _TIMED_OUT:
        return Unavailable("The database took too long to respond")
    return Unavailable("The database can't be read")


def build_write_error(error: BaseException) -> Unavailable:
    """Return the error for a write that certainly wrote nothing."""
    if is_lost(error):
        return Unavailable("The database can't be reached; nothing was written")
    if is_of_unreachable_node(error):
        return Unavailable("A node of the database can't be reached; nothing was written")
    if get_sqlstate(error) in _TIMED_OUT or is_rolled_back(error):
        return Unavailable("The database is busy; nothing was written")
    return Unavailable("The database rejected the write")


def build_unknown_outcome() -> Unavailable:
    """Return the error for a write whose outcome is unknown."""
    return Unavailable("The database failed to confirm the write; its outcome is unknown")
