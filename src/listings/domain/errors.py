"""The expected errors of Listings.

Rules and stores raise a `Problem`. The API and the pages map its code to a status, the command line to an exit code.
Any other exception is a bug.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

Code: TypeAlias = Literal[
    "account_disabled",
    "account_full",
    "account_not_found",
    "already_imported",
    "api_key_required",
    "backup_refused",
    "body_too_large",
    "change_not_found",
    "changes_gone",
    "confirmation_required",
    "copy_refused",
    "cross_site",
    "database_missing",
    "dependency_failed",
    "email_taken",
    "external_id_taken",
    "header_too_large",
    "idempotency_key_reused",
    "image_in_use",
    "image_not_found",
    "import_conflict",
    "insecure_connection",
    "internal_error",
    "invalid_api_key",
    "invalid_image",
    "invalid_request",
    "invalid_setting",
    "invitation_invalid",
    "key_ended",
    "key_not_allowed",
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
    "revert_running",
    "schema_mismatch",
    "sign_up_closed",
    "too_many_attempts",
    "too_many_keys",
    "too_many_waits",
    "unavailable",
    "unsupported_encoding",
    "uri_too_long",
    "version_not_supported",
    "wrong_credentials",
]

_CODES: Mapping[int, tuple[Code, ...]] = {
    400: ("account_full", "invalid_image", "invalid_request", "malformed_json", "malformed_request", "payment_refused"),
    401: ("api_key_required", "invalid_api_key"),
    403: (
        "account_disabled",
        "confirmation_required",
        "cross_site",
        "insecure_connection",
        "key_not_allowed",
        "not_owner",
        "plan_expired",
        "sign_up_closed",
        "wrong_credentials",
    ),
    404: (
        "account_not_found",
        "change_not_found",
        "image_not_found",
        "invitation_invalid",
        "key_not_found",
        "listing_not_found",
        "path_not_found",
    ),
    405: ("method_not_allowed",),
    408: ("request_timeout",),
    409: (
        "already_imported",
        "email_taken",
        "external_id_taken",
        "image_in_use",
        "import_conflict",
        "key_ended",
        "revert_running",
        "too_many_keys",
    ),
    410: ("changes_gone", "listing_deleted"),
    412: ("precondition_failed",),
    413: ("body_too_large",),
    414: ("uri_too_long",),
    415: ("unsupported_encoding",),
    422: ("idempotency_key_reused",),
    424: ("dependency_failed",),
    429: ("rate_limited", "too_many_attempts", "too_many_waits"),
    431: ("header_too_large",),
    500: ("internal_error",),
    503: ("unavailable",),
    505: ("version_not_supported",),
}
STATUS: Mapping[Code, int] = {code: status for status, codes in _CODES.items() for code in codes}
"""The HTTP status of each code that a response can have. `site.pages` overrides it for two codes."""


class Problem(Exception):
    """A rejected operation: an error code for programs and one sentence for people."""

    def __init__(self, code: Code, message: str, *, retry_after: int = 0) -> None:
        """`retry_after` is in seconds and is sent as the Retry-After header. 0: the error does not end by itself."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after


class Unavailable(Problem):
    """Something that a request needs is unavailable, or too much is in progress.

    Unless the message says that nothing was written, the outcome of a write is unknown.

    `for_visitors`: whether pages may show the message. Most are for operators.
    """

    def __init__(self, message: str, *, retry_after: int = 1, for_visitors: bool = False) -> None:
        super().__init__("unavailable", message, retry_after=retry_after)
        self.for_visitors = for_visitors
