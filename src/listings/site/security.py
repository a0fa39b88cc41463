"""Security of the pages: response headers, origin check and form tokens.

OWASP ASVS 3.4.3-3.4.6, 3.5.1-3.5.3.
"""

import hmac
from urllib.parse import urlsplit

from starlette.requests import Request

from listings.domain.errors import Problem
from listings.site.visitor import base_url_of, host_of, scheme_of

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; connect-src 'self'; form-action 'self'; "
    "img-src 'self' https: http:; "  # sellers host pictures of their listings elsewhere
    "object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),  # with no-referrer, browsers would send forms with `Origin: null`
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_PREVIEW_HEADERS = ((_HEADERS[0][0], POLICY.replace("img-src", "img-src blob:").encode()), *_HEADERS[1:])
_STRICT_TRANSPORT = (b"strict-transport-security", b"max-age=31536000")
_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}


def allow_previews(request: Request) -> None:
    """Let the page show pictures that the visitor has chosen in a form, before they are uploaded."""
    request.state.has_previews = True


def headers(request: Request) -> list[tuple[bytes, bytes]]:
    """Return the headers of every page and file."""
    own = _PREVIEW_HEADERS if hasattr(request.state, "has_previews") else _HEADERS
    return [*own, _STRICT_TRANSPORT] if scheme_of(request) == "https" else list(own)


def require_same_origin(request: Request) -> None:
    """Raise Problem("cross_site") for a request that could change something and does not come from our own pages.

    Browsers send Sec-Fetch-Site. Without a secure connection they send only Origin.
    """
    if request.method in _SAFE_METHODS:
        return
    fetch_site = request.headers.get("sec-fetch-site")
    if fetch_site is None:
        own = {host_of(request).lower(), urlsplit(base_url_of(request)).netloc.lower()}
        is_own = request.headers.get("origin", "").partition("://")[2].lower() in own
    else:
        is_own = fetch_site == "same-origin"
    if not is_own:
        raise Problem("cross_site", "This form was sent from another site. Open the page here and submit it again")


def form_token(secret: str) -> str:
    """Return the token of forms that belong to this secret. It does not reveal the secret."""
    return hmac.digest(secret.encode(), b"listings form", "sha256").hex()


def has_form_token(secret: str, token: object) -> bool:
    """Return whether a form's token belongs to this secret."""
    return isinstance(token, str) and hmac.compare_digest(form_token(secret).encode(), token.encode())


def require_form_token(secret: str, token: object) -> None:
    """Raise Problem("cross_site") unless a form's token belongs to this secret."""
    if not has_form_token(secret, token):
        raise Problem("cross_site", "This form has expired and nothing was saved. Submit it again from its page")
