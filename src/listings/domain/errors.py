"""The expected errors of Listings.

Rules and stores raise a `Problem`. The API and the pages map its code to a status, the command line to an exit code.
Any other exception is a bug.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

Code: TypeAlias = Literal[
    "account_disabled",
    "account_not_found",
    "already_imported",
    "api_key_required",
    "backup_refused",
    "body_too_large",
    "confirmation_required",
    "copy_refused",
    "cross_site",
    "database_missing",
    "dependency_failed",
    "email_taken",
    "header_too_large",
    "idempotency_key_reused",
    "import_conflict",
    "insecure_connection",
    "internal_error",
    "invalid_api_key",
    "invalid_request",
    "invalid_setting",
    "invitation_invalid",
    "key_ended",
    "key_not_found",
    "key_taken",
    "listing_deleted",
    "listing_not_found",
    "malformed_json",
    "malformed_request",
    "method_not_allowed",
    "not_owner",
    "path_not_found",
    "payment_refused",
    "plan_expired",
    "precondition_failed",
    "rate_limited",
    "request_timeout",
    "restore_refused",
    "schema_mismatch",
    "sign_up_closed",
    "too_many_attempts",
    "too_many_keys",
    "unavailable",
    "unsupported_encoding",
    "uri_too_long",
    "version_not_supported",
    "wrong_credentials",
]

STATUS: Mapping[Code, int] = {
    "invalid_request": 400,
    "malformed_json": 400,
    "malformed_request": 400,
    "payment_refused": 400,
    "api_key_required": 401,
    "invalid_api_key": 401,
    "account_disabled": 403,
    "confirmation_required": 403,
    "cross_site": 403,
    "insecure_connection": 403,
    "not_owner": 403,
    "plan_expired": 403,
    "sign_up_closed": 403,
    "wrong_credentials": 403,
    "invitation_invalid": 404,
    "key_not_found": 404,
    "listing_not_found": 404,
    "path_not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "already_imported": 409,
    "email_taken": 409,
    "import_conflict": 409,
    "key_ended": 409,
    "too_many_keys": 409,
    "listing_deleted": 410,
    "precondition_failed": 412,
    "body_too_large": 413,
    "uri_too_long": 414,
    "unsupported_encoding": 415,
    "idempotency_key_reused": 422,
    "dependency_failed": 424,
    "rate_limited": 429,
    "too_many_attempts": 429,
    "header_too_large": 431,
    "internal_error": 500,
    "unavailable": 503,
    "version_not_supported": 505,
}
"""The HTTP status of each code that a response can have. `site.pages` overrides it for two codes."""


class Problem(Exception):
    """A rejected operation: an error code for programs and one sentence for people."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Unavailable(Problem):
    """The store or the rate limiter is unavailable. A write that fails with it has an unknown outcome."""

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        """`retry_after` is in seconds and is sent as the Retry-After header."""
        super().__init__("unavailable", message)
        self.retry_after = retry_after
