"""A sheet of checks: each is a sentence of the specification, with its section, and what looks whether it is kept."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from listings.conform.context import Trial
from listings.conform.session import Exchange
from listings.conform.verdicts import Broken, NotChecked, Prevented, Result, Verdict

# Returns when the sentence is kept, with a remark if there is one; raises Broken, NotChecked or Prevented.
Look: TypeAlias = Callable[[Trial], str | None]


class Check(NamedTuple):
    """One sentence, quoted to the letter."""

    id: str
    section: str
    sentence: str
    look: Look

    def verdict_on(self, trial: Trial) -> Result:
        """Look, and tell what was found."""
        try:
            verdict, happened, prevented = Verdict.KEPT, self.look(trial) or "", False
        except Broken as found:
            verdict, happened, prevented = Verdict.BROKEN, str(found), False
        except NotChecked as reason:
            verdict, happened, prevented = Verdict.NOT_CHECKED, str(reason), False
        except Prevented as reason:
            verdict, happened, prevented = Verdict.NOT_CHECKED, str(reason), True
        return Result(self.id, self.section, self.sentence, verdict, happened, prevented)


class Sheet:
    """The checks of one subject, in order."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def add(self, identifier: str, section: str, sentence: str) -> Callable[[Look], Look]:
        """Put the decorated function on the sheet."""

        def decorate(look: Look) -> Look:
            self.checks.append(Check(identifier, section, sentence, look))
            return look

        return decorate


def require(exchanges: list[Exchange], kept: Callable[[Exchange], bool], wanted: str) -> None:
    """Raises Broken that tells every exchange that is not as wanted, the first few in full."""
    wrong = [exchange.told for exchange in exchanges if not kept(exchange)]
    if wrong:
        more = f"; {len(wrong) - _MOST_TOLD} more like it" if len(wrong) > _MOST_TOLD else ""
        raise Broken(f"wanted {wanted}; {'; '.join(wrong[:_MOST_TOLD])}{more}")


_MOST_TOLD = 3
