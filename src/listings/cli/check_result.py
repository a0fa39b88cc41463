"""The result of one check of `listings doctor`."""

from typing import Literal, NamedTuple, TypeAlias

Verdict: TypeAlias = Literal["ok", "warning", "fault"]


class Finding(NamedTuple):
    """What a check found, and how to fix it unless it is ok."""

    check: str
    verdict: Verdict
    found: str
    advice: str | None = None


def mismatched(sentence: str) -> Finding:
    """Return the result for a schema that is not this program's; `sentence` may end with `: advice`."""
    found, _, advice = sentence.rpartition(": ")
    if found:
        return Finding("schema", "fault", found, advice[0].upper() + advice[1:])
    return Finding("schema", "fault", sentence, "Run the version of Listings that created it, or restore a backup")
