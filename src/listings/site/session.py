"""Who is signed in: the console's cookies, which no part of the API reads.

RFC 6265bis, 4.1.3.2 (`__Host-`); OWASP ASVS 3.3.1-3.3.4, 7.2.1-7.2.4.
"""

import re
from ipaddress import ip_address

from starlette.requests import Request
from starlette.responses import Response

from listings.domain.errors import Problem
from listings.service import Member
from listings.service.members import MAX_SESSION_SECONDS
from listings.site import security
from listings.site.context import site_of
from listings.site.visitor import host_of, scheme_of

_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")
_WORD = re.compile(r"[a-z-]{1,20}(?:\.[0-9]{1,3})?")
_TOLD_SECONDS = 60
_LOCAL = "localhost"


async def member_of(request: Request) -> Member | None:
    """Whoever is signed in; asked for once in a request."""
    if not hasattr(request.state, "member"):
        token = request.cookies.get(_session_cookie(request))
        request.state.member = await site_of(request).service.find_member(token) if token else None
    member: Member | None = request.state.member
    return member


def token_of(request: Request) -> str:
    """The session's token, as the browser has it; "" where it has none."""
    return request.cookies.get(_session_cookie(request), "")


def begin(request: Request, response: Response, token: str) -> Response:
    """Let the browser keep a session's token, in place of the secret of forms before it."""
    response.delete_cookie(_form_cookie(request), secure=_is_secure(request), httponly=True, samesite="lax")
    return _with_cookie(request, response, _session_cookie(request), token, MAX_SESSION_SECONDS)


def end(request: Request, response: Response) -> Response:
    """Let the browser forget the session, and whatever of the console it may have kept."""
    response.delete_cookie(_session_cookie(request), secure=_is_secure(request), httponly=True, samesite="lax")
    if _is_secure(request):
        response.headers["Clear-Site-Data"] = '"cache"'  # heeded over TLS alone
    return response


def require_private(request: Request) -> None:
    """Raises Problem("insecure_connection") where others could read a password on its way."""
    if not (_is_secure(request) or _is_local(host_of(request))):
        told = "Open this page by https: a password must not be sent where others can read it"
        raise Problem("insecure_connection", f"{told}; the operator's guide tells how, under LISTINGS_BASE_URL")


def form_secret(request: Request) -> str:
    """What the tokens of forms are made of for who is not signed in yet; a new one where the browser has none."""
    kept = request.cookies.get(_form_cookie(request), "")
    return kept if _SECRET.fullmatch(kept) else security.new_secret()


def keep_form_secret(request: Request, response: Response, secret: str) -> Response:
    """Let the browser keep the secret of its forms, until it is closed."""
    return _with_cookie(request, response, _form_cookie(request), secret, None)


def tell_next(request: Request, response: Response, word: str) -> Response:
    """Let the browser keep the word of what was done, which the page that comes next tells."""
    return _with_cookie(request, response, _word_cookie(request), word, _TOLD_SECONDS)


def word_of(request: Request) -> str:
    """The word of what was done just now; "" where there is none."""
    kept = request.cookies.get(_word_cookie(request), "")
    return kept if _WORD.fullmatch(kept) else ""


def clear_flash(request: Request, response: Response) -> Response:
    """Let the browser forget the word, since a page has told it."""
    response.delete_cookie(_word_cookie(request), secure=_is_secure(request), httponly=True, samesite="lax")
    return response


def _with_cookie(request: Request, response: Response, name: str, value: str, seconds: int | None) -> Response:
    response.set_cookie(name, value, seconds, secure=_is_secure(request), httponly=True, samesite="lax")
    return response


def _session_cookie(request: Request) -> str:
    return "__Host-listings" if _is_secure(request) else "listings_session"


def _form_cookie(request: Request) -> str:
    return "__Host-listings-form" if _is_secure(request) else "listings_form"


def _word_cookie(request: Request) -> str:
    return "__Host-listings-done" if _is_secure(request) else "listings_done"


def _is_secure(request: Request) -> bool:
    return scheme_of(request) == "https"


def _is_local(host: str) -> bool:
    """Whether a Host names this very machine, as browsers see it."""
    name = host.rpartition(":")[0] if re.search(r":[0-9]+$", host) and not host.endswith("]") else host
    if name == _LOCAL or name.endswith(f".{_LOCAL}"):
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False
