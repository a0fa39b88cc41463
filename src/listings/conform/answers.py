"""What every answer of the run had to have."""

from listings.conform.context import Trial
from listings.conform.session import Exchange
from listings.conform.suite import Sheet, require
from listings.conform.verdicts import Prevented

SHEET = Sheet()


@SHEET.add("errors-1", "Errors", "Every error response is a JSON object with one field, error (string).")
def shape_of_errors(trial: Trial) -> None:
    """Every error of the run so far; those for too many requests are left out, since nothing is said about them."""
    if not trial.session.errors:
        raise Prevented("no request was answered with an error")
    require(trial.session.errors, _has_one_text, 'nothing but {"error": string}')


def _has_one_text(answer: Exchange) -> bool:
    return list(answer.members) == ["error"] and isinstance(answer.members["error"], str)


@SHEET.add("json-1", "What the service does", "Requests and responses are JSON.")
def answers_are_json(trial: Trial) -> None:
    """Every answer of the run so far."""
    require(trial.session.no_json, lambda _: False, "JSON")
