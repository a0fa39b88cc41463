"""Numbers after a restore: those that clients may have from lost writes are never given out again.

The serials of the market are not raised: only its cursors contain them, together with the id of the last restore.
"""

import time
from typing import NamedTuple

from listings.store.query import Row

_FIRST_SECOND = 1_767_225_600  # 2026-01-01

_ENDED = (
    *("DELETE FROM sessions", "DELETE FROM invitations", "DELETE FROM email_tokens", "DELETE FROM sign_in_devices"),
    "DELETE FROM mails WHERE kind IN ('confirm_email', 'password_reset')",
)
_ADD_LOST_CHANGES = """
INSERT INTO lost_changes (bucket, account_id, first_revision, last_revision)
SELECT s.bucket, s.account_id, s.edit_revision + 1, r.edit_revision + 1
FROM account_state AS s JOIN ({}) AS r ON r.bucket = s.bucket AND r.account_id = s.account_id
WHERE r.edit_revision > s.edit_revision
"""
_SKIP_LOST_CHANGES = """
UPDATE account_state SET edit_revision = l.last_revision FROM lost_changes AS l
WHERE l.bucket = account_state.bucket AND l.account_id = account_state.account_id
    AND l.last_revision > account_state.edit_revision
"""
_RAISE_REVISIONS = """
UPDATE account_state SET revision = r.revision + 1 FROM ({}) AS r
WHERE r.bucket = account_state.bucket AND r.account_id = account_state.account_id
    AND r.revision > account_state.revision
"""
_RAISE_REVERTS = """
UPDATE account_state SET last_revert = r.last_revert FROM ({}) AS r
WHERE r.bucket = account_state.bucket AND r.account_id = account_state.account_id
    AND r.last_revert > account_state.last_revert
"""


class Gaps(NamedTuple):
    """More serials of a bucket, accounts or keys, and changes or reverts of an account, than can have been lost."""

    serials: int
    changes: int

    @property
    def states(self) -> str:
        """A query for revisions that no account can have had."""
        columns = ", ".join(
            f"{name} + {self.changes} AS {name}" for name in ("revision", "edit_revision", "last_revert")
        )
        return f"SELECT bucket, account_id, {columns} FROM account_state"


def choose_gaps() -> Gaps:
    """Return gaps that grow faster than numbers are given out, because a backup may be restored more than once."""
    seconds = max(time.time() - _FIRST_SECOND, 0.0)
    return Gaps(2**26 + int(256 * seconds), 2**32 + int(1024 * seconds))


def list_statements(restore_id: str, reached: str) -> list[tuple[str, Row]]:
    """Return the statements that end what was valid once, and raise the revisions of accounts above those reached.

    `reached` is a query for the highest revisions that accounts may have had. Accounts that have them keep them.
    """
    raising = (_ADD_LOST_CHANGES, _SKIP_LOST_CHANGES, _RAISE_REVISIONS, _RAISE_REVERTS)
    statements = (*_ENDED, *(statement.format(reached) for statement in raising))
    return [*((statement, ()) for statement in statements), ("UPDATE database_id SET restore_id = $1", (restore_id,))]
