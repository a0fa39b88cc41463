"""The words of an account's listings are written in pieces, and split outside of the event loop."""

from listings.domain.account_limits import AccountLimits
from listings.store.postgres.writes import PostgresEngine
from listings.store.scripts.script import QueryMany


def list_queries(*texts: str) -> list[QueryMany]:
    rows = [(number, "Lamp", text) for number, text in enumerate(texts)]
    return [query for query in PostgresEngine(AccountLimits()).index_words(1, rows) if isinstance(query, QueryMany)]


def test_long_texts_are_split_in_a_thread_and_a_few_at_a_time() -> None:
    queries = list_queries(*["Brass. " * 100] * 120)
    assert not any(isinstance(query.many, list) for query in queries)  # the transaction lists others in a thread
    assert len(queries) == 3


def test_a_short_text_is_split_at_once() -> None:
    (query,) = list_queries("Brass.")
    assert isinstance(query.many, list)
