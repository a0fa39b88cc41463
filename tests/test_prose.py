"""Test that the check of wording finds each phrase, and no others."""

import pytest

from tests import prose
from tests.prose import Piece

pytestmark = pytest.mark.uncovered

PAGE = prose.ROOT / "page.md"


def find_phrases(text: str) -> list[str]:
    return [hit.phrase for hit in prose.find(PAGE, Piece(1, text))]


EXAMPLES = {
    "The client is told of an error.": "is told",
    "The key counts no more.": "counts no more",
    "It needs no more as input.": "no more as",
    "There is none left.": "none left",
    "Who asks too often waits.": "Who asks",
    "The name of who sends it.": "of who sends",
    "What was answered, for as long as nothing changed.": "What was",
    "Return a hash of what the client sent.": "of what the",
    "Of two writes the later one wins.": "Of two",
    "The socket is closed at once.": "at once",
    "The header behind the body.": "behind the",
    "A file beside the database.": "beside",
    "Read the file anew.": "anew",
    "It is sent again and again.": "again and again",
    "A default in the place of the value.": "in the place of",
    "A time as PostgreSQL has it.": "as PostgreSQL has it",
    "A listing is made here.": "is made",
    "Make a new listing.": "Make a new listing",
    "The responses are kept.": "are kept",
    "The index is to be built.": "is to be",
    "The request is answered with 404.": "is answered",
    "No lock is waited for.": "is waited for",
    "The header is not heeded.": "heeded",
    "A pure function judges the change.": "judges",
    "It can be mended.": "mended",
    "The body, whatever it is.": "whatever it",
    "The key works for whoever holds it.": "whoever",
    "At most so many rows.": "so many",
    "A field stands once in a body.": "stands once",
    "The fault that there is.": "that there is",
    "A table that is not there.": "that is not there",
    "The string is no number.": "is no number",
    "The writer has the turn to write.": "the turn",
    "The price must be a text.": "a text",
    "The price must be a whole number.": "whole number",
    "The keys of a body are checked.": "keys of a body",
    "The words of a search are joined.": "words of a search",
    "It is on the way of a request.": "the way of a",
    "The listing is gone for good.": "for good",
    "Sellers create listings by program.": "by program",
    "Enter your e-mail address.": "e-mail",
    "A rehearsal writes nothing.": "rehearsal",
    "The account as whose seller it acts.": "as whose",
}
"""A sentence for each phrase of the check, with the hit."""
GOOD_SENTENCES = [
    "Return the listing, or None if it does not exist.",
    "The writer commits queued writes in one transaction.",
    "Run the service behind nginx or Caddy.",
    "What is a cursor?",
    "See what happens: a worker that stops is replaced.",
    "Users who sign in see their listings.",
    "There is no listing with this id.",
    "The server is no longer running.",
    "The connection is made over TLS.",
    "Besides SQLite, the service supports PostgreSQL.",
    "Load the rows all at once.",
    "It returns a text file.",
    "A lock is held so that readers never block.",
    "Use it for good reason, and out of turn.",
    "One of the workers accepts the connection.",
]


def test_each_phrase_is_found() -> None:
    assert {text: find_phrases(text) for text in EXAMPLES} == {text: [hit] for text, hit in EXAMPLES.items()}
    patterns = {pattern for pattern, _ in prose._PATTERNS for text in EXAMPLES if pattern.search(text)}  # noqa: SLF001 - to cover each one
    assert [pattern.pattern for pattern, _ in prose._PATTERNS if pattern not in patterns] == []  # noqa: SLF001 - to cover each one


def test_good_english_passes() -> None:
    assert {text: find_phrases(text) for text in GOOD_SENTENCES} == {text: [] for text in GOOD_SENTENCES}
