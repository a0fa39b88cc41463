"""What a check of `listings doctor` ends in."""

from typing import Literal, NamedTuple, TypeAlias

Verdict: TypeAlias = Literal["ok", "warning", "fault"]


class Finding(NamedTuple):
    """What a check found, and what to do unless all is well."""

    check: str
    verdict: Verdict
    found: str
    advice: str | None = None


def mismatched(sentence: str) -> Finding:
    """A schema that is not this program's; the sentence about it may end in what to do."""
    found, _, advice = sentence.rpartition(": ")
    if found:
        return Finding("schema", "fault", found, advice[0].upper() + advice[1:])
    return Finding("schema", "fault", sentence, "Run the Listings that made it, or restore a backup")
