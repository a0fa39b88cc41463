"""The errors that the client raises. `ListingsError` is the base of all."""

import json
from collections.abc import Mapping
from dataclasses import dataclass


class ListingsError(Exception):
    """The base of all errors of this package. Its text is one sentence for people."""


class ConfigurationError(ListingsError):
    """There is no usable key or URL, or the key is of the wrong mode."""


class FileError(ListingsError):
    """A file or a plan can't be used as it is. Nothing was sent."""


class NoResponseError(ListingsError):
    """The service sent no response in time. A write without an Idempotency-Key may have been applied."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a request: the field, parameter or header, a code, and a sentence for people."""

    field: str
    code: str
    message: str


class ApiError(ListingsError):
    """The service rejected a request.

    `status` is the HTTP status, `code` the error code, `message` a sentence for people, `fields` the faults of
    each field, and `request_id` the id to name when you report a problem. `retry_after` is in seconds, or None.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        fields: tuple[Fault, ...] = (),
        request_id: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.fields = fields
        self.request_id = request_id
        self.retry_after = retry_after
        self.may_have_applied = False  # whether the response to an earlier attempt of the same request was lost


class InvalidRequestError(ApiError):
    """The request is wrong (400, 405, 413, 414, 415, 422): the same request gets the same error."""


class AuthenticationError(ApiError):
    """The key is missing, unknown, revoked or expired (401)."""


class ForbiddenError(ApiError):
    """The key may not do this (403): it is read-only, or the listing belongs to another account."""


class PlanExpiredError(ForbiddenError):
    """The plan of the account has ended (403)."""


class NotFoundError(ApiError):
    """There is no such listing, change or revert (404)."""


class ConflictError(ApiError):
    """Another listing has the external id, or another revert is running (409)."""


class GoneError(ApiError):
    """The changes are no longer stored (410): start again with the list."""


class StaleError(ApiError):
    """The listing was edited since it was read (412): read it again, and decide again."""


class RateLimitedError(ApiError):
    """The rate limit of the key is reached (429), and the wait would exceed the deadline."""


class ServiceError(ApiError):
    """The service failed or is unavailable (5xx), also after the retries."""


_CLASSES: Mapping[int, type[ApiError]] = {
    401: AuthenticationError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    412: StaleError,
    429: RateLimitedError,
}


def build_error(status: int, headers: Mapping[str, str], content: bytes) -> ApiError:
    """Return the error of a response. An unknown code is treated like its status."""
    try:
        decoded = json.loads(content)
    except ValueError:
        decoded = None
    body = decoded if isinstance(decoded, dict) else {}
    code = headers.get("x-error-code", "")
    kind = _CLASSES.get(status, ServiceError if status in range(500, 600) else InvalidRequestError)
    wait = headers.get("retry-after", "")
    return (PlanExpiredError if code == "plan_expired" else kind)(
        status,
        code,
        body.get("error") or f"The service responded with status {status}, which is not from its API",
        fields=tuple(Fault(one["field"], one["code"], one["message"]) for one in body.get("errors", ())),
        request_id=headers.get("x-request-id", ""),
        retry_after=float(wait) if wait.isdecimal() else None,
    )
