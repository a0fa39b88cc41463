"""The possible results of a check."""

from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """Whether a server conforms to a sentence of the specification."""

    PASSED = "passed"
    FAILED = "failed"
    BLOCKED = "blocked"
    SKIPPED = "skipped"


class Result(NamedTuple):
    """A sentence of the specification with its verdict, and what happened if it did not simply pass."""

    id: str
    section: str
    sentence: str
    verdict: Verdict
    happened: str


class Failed(Exception):
    """The server does not conform. The message describes the request and the response."""


class Blocked(Exception):
    """The check could not run because a request that it depends on failed. Another check reports that failure."""


class Skipped(Exception):
    """The check was not requested, or a key that it needs was not given."""
