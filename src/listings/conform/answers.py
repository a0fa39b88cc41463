"""Checks of every response of the run."""

from listings.conform.context import Context
from listings.conform.session import Exchange
from listings.conform.suite import Check, require
from listings.conform.verdicts import Blocked

_ERROR_SHAPE = "Every error response is a JSON object with one field, error (string)."


def _check_error_shape(context: Context) -> None:
    """Check all errors of the run except 429, for which the specification defines no body."""
    if not context.session.errors:
        raise Blocked("no request returned an error")
    require(context.session.errors, _has_one_string, 'only {"error": string}')


def _has_one_string(response: Exchange) -> bool:
    return list(response.members) == ["error"] and isinstance(response.members["error"], str)


def _check_json(context: Context) -> None:
    require(context.session.non_json, lambda _: False, "JSON")


CHECKS = (
    Check("errors-1", "Errors", _ERROR_SHAPE, _check_error_shape),
    Check("json-1", "What the service does", "Requests and responses are JSON.", _check_json),
)
