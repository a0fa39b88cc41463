"""Suites of checks. Each check tests one sentence of the specification."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from listings.conform.context import Context
from listings.conform.session import Exchange
from listings.conform.verdicts import Blocked, Failed, Result, Skipped, Verdict

# Returns a remark or None if the server conforms; raises Failed, Blocked or Skipped otherwise.
CheckFunction: TypeAlias = Callable[[Context], str | None]

_MAX_SUMMARIES = 3


class Check(NamedTuple):
    """A sentence quoted verbatim, and the function that checks it."""

    id: str
    section: str
    sentence: str
    function: CheckFunction

    def run(self, context: Context) -> Result:
        try:
            verdict, happened = Verdict.PASSED, self.function(context) or ""
        except Failed as error:
            verdict, happened = Verdict.FAILED, str(error)
        except Blocked as error:
            verdict, happened = Verdict.BLOCKED, str(error)
        except Skipped as error:
            verdict, happened = Verdict.SKIPPED, str(error)
        return Result(self.id, self.section, self.sentence, verdict, happened)


class Suite:
    """The checks of one subject, in the order in which they run."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def add(self, identifier: str, section: str, sentence: str) -> Callable[[CheckFunction], CheckFunction]:
        """Return a decorator that adds a check function to the suite."""

        def decorate(function: CheckFunction) -> CheckFunction:
            self.checks.append(Check(identifier, section, sentence, function))
            return function

        return decorate


def require(exchanges: list[Exchange], is_expected: Callable[[Exchange], bool], expected: str) -> None:
    """Raise Failed if an exchange is not as expected. The text has the first few of them."""
    wrong = [exchange.summary for exchange in exchanges if not is_expected(exchange)]
    if wrong:
        rest = len(wrong) - _MAX_SUMMARIES
        more = f"; and {rest} more" if rest > 0 else ""
        raise Failed(f"expected {expected}; {'; '.join(wrong[:_MAX_SUMMARIES])}{more}")
