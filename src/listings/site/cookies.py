"""Cookies: session, device, form secret, flash message, saved listings. No part of the API reads them.

RFC 6265bis, 4.1.3 (`__Host-`, `__Secure-`); OWASP ASVS 3.3.1-3.3.4, 7.2.1-7.2.4.
"""

import re
from collections.abc import Sequence
from ipaddress import ip_address

from starlette.requests import Request
from starlette.responses import Response

from listings.domain.errors import Problem
from listings.service.members.attempts import find_network
from listings.service.members.sessions import MAX_SESSION_SECONDS, Member
from listings.service.tokens import create_token, is_token
from listings.site.context import site_of
from listings.site.visitor import client_ip, host_of, scheme_of

_FLASH = re.compile(r"([a-z-]+(?:\.[0-9]{1,6}\.[0-9]{1,6})?)(?:~([0-9]{1,15}))?")
_SAVED_IDS = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})*")
_FLASH_SECONDS = 60
_DEVICE_SECONDS = _SAVED_SECONDS = 365 * 24 * 3600
_MAX_SESSIONS = 10_000
MAX_SAVED = 100
"""Listings that a visitor can save."""
_SESSION = ("listings_session", "__Host-listings")  # the cookie's names without and with TLS
_DEVICE = ("listings_device", "__Host-listings-device")
_FORM = ("listings_form", "__Host-listings-form")
_DONE = ("listings_done", "__Host-listings-done")
_SAVED = ("listings_saved", "__Host-listings-saved")


async def member_of(request: Request) -> Member | None:
    """Return the signed-in member, or None. The service is called once per request."""
    if not hasattr(request.state, "member"):
        return await reload_member(request)
    member: Member | None = request.state.member
    return member


async def reload_member(request: Request) -> Member | None:
    """Return the signed-in member as it is now, or None."""
    token = _get_cookie(request, _SESSION)
    member = await site_of(request).services.sessions.find_member(token) if token else None
    request.state.member = member
    sessions = site_of(request).sessions
    sessions.pop(token, None)
    if member is not None:
        sessions[token] = member.account.id
        if len(sessions) > _MAX_SESSIONS:
            sessions.popitem(last=False)
    return member


def find_owner(request: Request) -> int | str:
    """Return whose turn in a queue a request takes: the account of a session, otherwise the visitor's network.

    A session is known after its first request: a forged cookie must cost no lookup outside the queue, and no parsing.
    """
    cookie = ";".join(request.headers.getlist("Cookie"))
    token = cookie.partition(f"{_build_name(request, _SESSION)}=")[2].partition(";")[0].strip()
    return site_of(request).sessions.get(token) or find_network(client_ip(request))


def token_of(request: Request) -> str:
    """Return the session token from the cookie, or "" without one."""
    return _get_cookie(request, _SESSION)


def device_of(request: Request) -> str:
    """Return the token by which the browser is remembered: the one in the cookie, or a new one."""
    if not hasattr(request.state, "device"):
        token = _get_cookie(request, _DEVICE)
        request.state.device = token if is_token(token) else create_token()
    device: str = request.state.device
    return device


def begin(request: Request, response: Response, token: str) -> Response:
    """Set the cookies of session and device, and delete the form secret that was used before sign-in."""
    _delete_cookie(request, response, _FORM)
    _set_cookie(request, response, _DEVICE, device_of(request), _DEVICE_SECONDS)
    return _set_cookie(request, response, _SESSION, token, MAX_SESSION_SECONDS)


def renew(request: Request, token: str) -> None:
    """Set the cookies of `begin` with any response to the request, because the earlier token is no longer valid."""
    request.state.renewed_token = token


def list_renewed_cookies(request: Request) -> list[tuple[bytes, bytes]]:
    """Return the response headers that `renew` needs."""
    token = getattr(request.state, "renewed_token", None)
    if token is None:
        return []
    return [header for header in begin(request, Response(), token).raw_headers if header[0] == b"set-cookie"]


def end(request: Request, response: Response) -> Response:
    """Delete the session cookie, and the console pages that the browser may have cached."""
    _delete_cookie(request, response, _SESSION)
    if _is_secure(request):
        response.headers["Clear-Site-Data"] = '"cache"'  # browsers ignore it without TLS
    return response


def require_secure_connection(request: Request) -> None:
    """Raise Problem("insecure_connection") if others could read a form on the network."""
    if not (_is_secure(request) or _is_loopback(host_of(request))):
        message = "Open this page with https, so that nobody else can read what you enter"
        raise Problem("insecure_connection", f"{message}. Operators: see LISTINGS_BASE_URL in the operating guide")


def form_secret(request: Request) -> str:
    """Return the secret for form tokens before sign-in: the one in the cookie, or a new one."""
    secret = _get_cookie(request, _FORM)
    return secret if is_token(secret) else create_token()


def set_form_secret(request: Request, response: Response, secret: str) -> Response:
    """Set the cookie with the form secret. The browser deletes it when it is closed."""
    return _set_cookie(request, response, _FORM, secret, None)


def set_flash(request: Request, response: Response, notice: str, change: int | None) -> Response:
    """Set the notice that the next page shows, and the change set that it offers to undo: 0 for several."""
    text = notice if change is None else f"{notice}~{change}"
    return _set_cookie(request, response, _DONE, text, _FLASH_SECONDS)


def get_flash(request: Request) -> tuple[str, int | None]:
    """Return the notice to show, or "", and its change set."""
    found = _FLASH.fullmatch(_get_cookie(request, _DONE))
    if found is None:
        return "", None
    return found[1], int(found[2]) if found[2] else None


def clear_flash(request: Request, response: Response) -> Response:
    """Delete the notice, after a page has shown it."""
    return _delete_cookie(request, response, _DONE)


def get_saved(request: Request) -> list[int]:
    """Return the ids of the listings that the visitor has saved, the last one first."""
    text = _get_cookie(request, _SAVED)
    return [int(one) for one in text.split(".")[:MAX_SAVED]] if _SAVED_IDS.fullmatch(text) else []


def set_saved(request: Request, response: Response, ids: Sequence[int]) -> Response:
    """Set the ids of the saved listings. Scripts can read them, to show on a listing's page that it is saved."""
    text = ".".join(map(str, ids[:MAX_SAVED]))
    if not text:
        return _delete_cookie(request, response, _SAVED)
    return _set_cookie(request, response, _SAVED, text, _SAVED_SECONDS, is_readable=True)


def saved_name(request: Request) -> str:
    """Return the name of the cookie with the saved listings."""
    return _build_name(request, _SAVED)


def _get_cookie(request: Request, names: tuple[str, str]) -> str:
    name = _build_name(request, names)  # our values need no unquoting, which takes quadratic time in older Pythons
    pairs = (pair.strip().partition("=") for pair in ";".join(request.headers.getlist("Cookie")).split(";"))
    return next((value for key, _, value in pairs if key == name), "")


def _set_cookie(
    request: Request,
    response: Response,
    names: tuple[str, str],
    value: str,
    seconds: int | None,
    *,
    is_readable: bool = False,
) -> Response:
    name, path, is_secure = _build_name(request, names), site_of(request).path_prefix or "/", _is_secure(request)
    response.set_cookie(name, value, seconds, path=path, secure=is_secure, httponly=not is_readable, samesite="lax")
    return response


def _delete_cookie(request: Request, response: Response, names: tuple[str, str]) -> Response:
    name, path, is_secure = _build_name(request, names), site_of(request).path_prefix or "/", _is_secure(request)
    response.delete_cookie(name, path=path, secure=is_secure, httponly=True, samesite="lax")
    return response


def _build_name(request: Request, names: tuple[str, str]) -> str:
    # The name contains the path prefix, because a page of /shop/b also gets the cookies of /shop.
    name, prefix = names[_is_secure(request)], site_of(request).path_prefix
    return name.replace("__Host-", "__Secure-") + prefix.replace("/", ".") if prefix else name


def _is_secure(request: Request) -> bool:
    return scheme_of(request) == "https"


def _is_loopback(host: str) -> bool:
    name = host.rpartition(":")[0] if re.search(r":[0-9]+$", host) and not host.endswith("]") else host
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False
