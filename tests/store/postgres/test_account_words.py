"""The words of an account's listings are written in pieces, and split outside of the event loop."""

import asyncio
from collections.abc import Iterable

from listings.domain.account_limits import AccountLimits
from listings.store.postgres.writes import PostgresEngine
from listings.store.query import Query, R, Row
from listings.store.scripts.script import Transaction


class RecordingTransaction(Transaction):
    """Records the values of statements, and runs none."""

    def __init__(self) -> None:
        self.many: list[Iterable[Row]] = []

    async def fetch(self, statement: Query[R], values: Row, *, locks: bool = False) -> list[R]:  # noqa: ARG002
        raise AssertionError(statement)

    async def fetch_many(self, statement: Query[R], many: Iterable[Row], at_once: Query[R] | None = None) -> list[R]:  # noqa: ARG002
        self.many.append(many)
        return []


def list_values(*texts: str) -> list[Iterable[Row]]:
    """Return the values of each statement that indexes the words of listings with these texts."""
    rows = [(number, "Lamp", text) for number, text in enumerate(texts)]
    tx = RecordingTransaction()
    asyncio.run(PostgresEngine(AccountLimits()).index_words(tx, 1, rows))
    return tx.many


def test_long_texts_are_split_in_a_thread_and_a_few_at_a_time() -> None:
    many = list_values(*["Brass. " * 100] * 120)
    assert not any(isinstance(values, list) for values in many)  # the transaction lists others in a thread
    assert len(many) == 3


def test_a_short_text_is_split_at_once() -> None:
    (values,) = list_values("Brass.")
    assert isinstance(values, list)
