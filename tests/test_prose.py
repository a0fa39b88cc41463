"""Test that the check of wording finds phrases, and accepts good English."""

import pytest

from tests import prose
from tests.prose import Piece

pytestmark = pytest.mark.uncovered

PAGE = prose.ROOT / "page.md"


def find_phrases(text: str) -> list[str]:
    return [hit.phrase for hit in prose.find(PAGE, Piece(1, text))]


EXAMPLES = {
    "Who asks too often waits.": "Who asks",
    "Return a hash of what the client sent.": "of what the",
    "Of two writes the later one wins.": "Of two",
    "A default in the place of the value.": "in the place of",
    "The request is answered with 404.": "is answered",
    "The key works for whoever holds it.": "whoever",
}
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


def test_phrases_are_found() -> None:
    assert {text: find_phrases(text) for text in EXAMPLES} == {text: [hit] for text, hit in EXAMPLES.items()}


def test_good_english_passes() -> None:
    assert {text: find_phrases(text) for text in GOOD_SENTENCES} == {text: [] for text in GOOD_SENTENCES}
