"""What keeps a page the visitor's own: headers, the origin of a form, and its token.

OWASP ASVS 3.4.3-3.4.6, 3.5.1-3.5.3.
"""

import hmac
import secrets

from starlette.requests import Request

from listings.domain.errors import Problem
from listings.site.visitor import base_url_of, host_of, scheme_of

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; "
    "img-src 'self' https: http:; "  # the pictures of listings are at their sellers'
    "object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),  # no-referrer would make browsers send a form with `Origin: null`
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_STRICT_TRANSPORT = (b"strict-transport-security", b"max-age=31536000")
_SAFE = {"GET", "HEAD", "OPTIONS"}
_CROSS_SITE = "This form was sent from another site: open the page here, and send it again"
_STALE = "This form was no longer valid, and nothing is stored: send it once more from its page"


def headers(request: Request) -> list[tuple[bytes, bytes]]:
    """The headers of every page and file."""
    return [*_HEADERS, _STRICT_TRANSPORT] if scheme_of(request) == "https" else list(_HEADERS)


def require_same_origin(request: Request) -> None:
    """Raises Problem("cross_site") for what changes something and does not come from a page of ours.

    A browser tells it by Sec-Fetch-Site, or by Origin where the connection is not one that it trusts.
    """
    if request.method in _SAFE:
        return
    told = request.headers.get("sec-fetch-site")
    if told != "same-origin" and (told is not None or not _is_ours(request, request.headers.get("origin", ""))):
        raise Problem("cross_site", _CROSS_SITE)


def _is_ours(request: Request, origin: str) -> bool:
    ours = {host_of(request).lower(), base_url_of(request).partition("://")[2].lower()}
    return origin.partition("://")[2].lower() in ours


def new_secret() -> str:
    """What the tokens of a session's forms, or of those before there is one, are made of."""
    return secrets.token_urlsafe(32)


def form_token(secret: str) -> str:
    """What a form carries that is bound to this secret, and doesn't tell it."""
    return hmac.digest(secret.encode(), b"listings form", "sha256").hex()


def require_form_token(secret: str, sent: object) -> None:
    """Raises Problem("cross_site") unless a form has the token of this secret."""
    if not isinstance(sent, str) or not hmac.compare_digest(form_token(secret).encode(), sent.encode()):
        raise Problem("cross_site", _STALE)
