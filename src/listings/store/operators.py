"""Operators, who are owners of accounts: statements, scripts and methods."""

from listings.domain.members import Operator
from listings.store.query import Command, Query
from listings.store.scripts.script import ScriptedStore, Transaction, transaction

_COLUMNS = ", ".join(Operator._fields)

SET_OPERATOR = Command(f"""
INSERT INTO operators ({_COLUMNS}) VALUES ($1, $2, $3, $4)
ON CONFLICT (account_id) DO UPDATE
SET secret = excluded.secret, last_step = excluded.last_step, added_at = excluded.added_at
""")
GET_OPERATOR = Query[tuple[int, str, int, int]](f"SELECT {_COLUMNS} FROM operators WHERE account_id = $1")
LIST_OPERATORS = Query[tuple[int, str, int, int]](f"SELECT {_COLUMNS} FROM operators ORDER BY account_id")
DELETE_OPERATOR = Query[tuple[int]]("DELETE FROM operators WHERE account_id = $1 RETURNING account_id")
USE_STEP = Query[tuple[int]]("""
UPDATE operators SET last_step = $3 WHERE account_id = $1 AND secret = $2 AND last_step < $3 RETURNING account_id
""")
GET_SESSION_START = Query[tuple[int | None]]("SELECT operator_at FROM sessions WHERE account_id = $1 AND handle = $2")
START_SESSION = Command("UPDATE sessions SET operator_at = $3 WHERE account_id = $1 AND handle = $2")
END_SESSIONS = Command("UPDATE sessions SET operator_at = NULL WHERE account_id = $1")


class ScriptedOperatorStore(ScriptedStore):
    """Stores operators, with the secrets of their second factors, and when each session has used one."""

    @transaction
    async def set_operator(self, tx: Transaction, operator: Operator) -> None:
        """Store an operator, or replace the stored one, and end the account's sessions as an operator."""
        await tx.fetch(SET_OPERATOR, operator)
        await tx.fetch(END_SESSIONS, (operator.account_id,))

    @transaction
    async def delete_operator(self, tx: Transaction, account_id: int) -> bool:
        """Delete an operator, and end the account's sessions as one. Return False if it is none."""
        await tx.fetch(END_SESSIONS, (account_id,))
        return bool(await tx.fetch(DELETE_OPERATOR, (account_id,)))

    async def get_operator(self, account_id: int) -> Operator | None:
        return await self._find(Operator, GET_OPERATOR, account_id)

    async def list_operators(self) -> list[Operator]:
        """Return all operators, by account id."""
        return await self._list(Operator, LIST_OPERATORS)

    async def get_operator_session(self, account_id: int, handle: str) -> int | None:
        """Return when a code was last used in a session (a Unix time in seconds), or None."""
        rows = await self._fetch(GET_SESSION_START, account_id, handle)
        return next((started for (started,) in rows), None)

    @transaction
    async def use_operator_code(self, tx: Transaction, operator: Operator, step: int, handle: str, now: int) -> bool:
        """Store that the code of a time step was used in a session.

        Return False and write nothing if that of this or a later step was used before, or if the secret was replaced.
        """
        if not await tx.fetch(USE_STEP, (operator.account_id, operator.secret, step)):
            return False
        await tx.fetch(START_SESSION, (operator.account_id, handle, now))
        return True
