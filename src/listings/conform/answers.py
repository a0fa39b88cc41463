"""Checks of every response of the run."""

from listings.conform.context import Context
from listings.conform.session import Exchange
from listings.conform.suite import Suite, require
from listings.conform.verdicts import Blocked

SUITE = Suite()


@SUITE.add("errors-1", "Errors", "Every error response is a JSON object with one field, error (string).")
def check_error_shape(context: Context) -> None:
    """Check all errors of the run except 429, for which the specification defines no body."""
    if not context.session.errors:
        raise Blocked("no request returned an error")
    require(context.session.errors, _has_one_string, 'only {"error": string}')


def _has_one_string(response: Exchange) -> bool:
    return list(response.members) == ["error"] and isinstance(response.members["error"], str)


@SUITE.add("json-1", "What the service does", "Requests and responses are JSON.")
def check_json(context: Context) -> None:
    """Require that every response of the run is JSON."""
    require(context.session.non_json, lambda _: False, "JSON")
