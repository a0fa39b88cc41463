"""What a check finds."""

from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """Whether a server keeps a sentence of the specification."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_CHECKED = "not checked"


class Result(NamedTuple):
    """A sentence with its verdict. `prevented` tells a check that was wanted and could not be made."""

    id: str
    section: str
    sentence: str
    verdict: Verdict
    happened: str
    prevented: bool = False


class Broken(Exception):
    """The server broke the sentence: what was sent and what came."""


class NotChecked(Exception):
    """Nobody asked for this check, or gave what it needs."""


class Prevented(Exception):
    """What the check needs first did not work, which is another check's finding."""
