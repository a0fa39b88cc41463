"""The result of one check of `listings doctor`."""

from typing import Literal, NamedTuple, TypeAlias

Verdict: TypeAlias = Literal["ok", "warning", "fault"]


class CheckResult(NamedTuple):
    """The result of a check. `advice` says how to fix a warning or fault."""

    check: str
    verdict: Verdict
    found: str
    advice: str | None = None


def describe_mismatch(message: str) -> CheckResult:
    """Return the result for a schema that does not match this version; `message` may end with `: advice`."""
    found, _, advice = message.rpartition(": ")
    if found:
        return CheckResult("schema", "fault", found, advice[0].upper() + advice[1:])
    return CheckResult("schema", "fault", message, "Run the version of Listings that created it, or restore a backup")
