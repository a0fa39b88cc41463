"""The parts of a check. Each check tests one sentence of the specification."""

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


def require(exchanges: list[Exchange], is_expected: Callable[[Exchange], bool], expected: str) -> None:
    """Raise Failed if an exchange is not as expected. The text has the first few of them."""
    wrong = [exchange.summary for exchange in exchanges if not is_expected(exchange)]
    if wrong:
        rest = len(wrong) - _MAX_SUMMARIES
        more = f"; and {rest} more" if rest > 0 else ""
        raise Failed(f"expected {expected}; {'; '.join(wrong[:_MAX_SUMMARIES])}{more}")


def require_status(exchanges: list[Exchange], status: int) -> None:
    """Raise Failed unless all responses have the status."""
    require(exchanges, lambda response: response.status == status, str(status))


def require_success(response: Exchange, expected: str = "success") -> None:
    """Raise Failed unless the status is 2xx."""
    require([response], lambda response: response.succeeded, expected)


def require_message(response: Exchange) -> None:
    """Raise Failed unless the status is 2xx and the body has a message."""
    require(
        [response],
        lambda response: response.succeeded and isinstance(response.members.get("message"), str),
        "success and a JSON object with a string as message",
    )
