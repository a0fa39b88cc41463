"""Run the operations of a batch in one transaction, so that each can fail on its own."""

import logging
from sys import getsizeof

import apsw

from listings.domain.errors import Problem, Unavailable
from listings.domain.model import Listing
from listings.store.scripts.batches import RollbackError
from listings.store.sqlite.writer.calls import Call, Outcome

# Errors of SQLite that end one statement and keep the transaction. Any other apsw.Error fails the whole batch.
_STATEMENT_ERRORS = (apsw.ConstraintError, apsw.MismatchError, apsw.RangeError, apsw.SQLError, apsw.TooBigError)

_MAX_RESULT_BYTES = 8 * 1024 * 1024  # of listings that wait for one commit

_log = logging.getLogger(__name__)


def run_operations(connection: apsw.Connection, batch: list[Call]) -> list[Outcome]:
    """Run all operations in a transaction that has just begun, or the first ones if their results are large.

    Most operations that fail have not written anything. If a failed one has, or if SQLite has rejected a statement, the
    whole batch is rolled back and run again in a new transaction, with a savepoint for each operation. In the first
    run, only dry runs have a savepoint, because it doubles the cost of an operation.

    Raises apsw.Error if the transaction is lost.
    """
    outcomes = run_without_savepoints(connection, batch)
    if outcomes is None:
        connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        outcomes = [_run_in_savepoint(connection, call) for call in batch]
    return outcomes


def run_without_savepoints(connection: apsw.Connection, batch: list[Call]) -> list[Outcome] | None:
    """Run operations, or return None if the batch must be rolled back.

    Raises apsw.Error if the transaction is lost.
    """
    outcomes: list[Outcome] = []
    size = 0
    for call in batch:
        if size > _MAX_RESULT_BYTES:
            return outcomes
        if call.is_dry_run:
            outcomes.append(_run_in_savepoint(connection, call))
            continue
        written = connection.total_changes()
        try:
            result = call.operation(connection)
            outcomes.append(Outcome(call, result))
            size += getsizeof(result.content) if isinstance(result, Listing) else 0
        except Exception as error:  # noqa: BLE001 - raised again in the caller
            if isinstance(error, apsw.Error) or connection.total_changes() != written:
                _require_transaction(connection, error)
                return None
            outcomes.append(Outcome(call, error=_drop_frames(error)))
    return outcomes


def _run_in_savepoint(connection: apsw.Connection, call: Call) -> Outcome:
    connection.execute("SAVEPOINT operation")
    try:
        result = call.operation(connection)
    except Exception as error:  # noqa: BLE001 - raised again in the caller
        if isinstance(error, apsw.Error):
            _require_transaction(connection, error)
            _log.exception("The database rejected a statement")
            error = Unavailable("The database rejected the write")
        connection.execute("ROLLBACK TO operation")
        connection.execute("RELEASE operation")
        return Outcome(call, error=_drop_frames(error))
    connection.execute("RELEASE operation")
    return Outcome(call, result)


def _drop_frames(error: Exception) -> Exception:
    # They hold listings, and many errors may wait for one commit.
    return error.with_traceback(None) if isinstance(error, Problem | RollbackError) else error


def _require_transaction(connection: apsw.Connection, error: Exception) -> None:
    if isinstance(error, apsw.Error) and not (isinstance(error, _STATEMENT_ERRORS) and connection.in_transaction):
        raise error
