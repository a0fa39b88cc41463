"""What a check of `listings doctor` ends in."""

from typing import Literal, NamedTuple, TypeAlias

Verdict: TypeAlias = Literal["ok", "warning", "fault"]


class Finding(NamedTuple):
    """What a check found, and what to do unless all is well."""

    check: str
    verdict: Verdict
    found: str
    advice: str | None = None
