"""The expected errors of Listings.

Rules and stores raise a `Problem`. The HTTP server maps its code to a status, the command line to an exit code. Any
other exception is a bug.
"""

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
