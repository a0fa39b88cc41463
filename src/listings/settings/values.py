"""The values of settings out of their texts. What is wrong is a ValueError whose sentence begins with "must"."""

import re
from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from listings.domain import postgres_url
from listings.domain.postgres_url import PostgresUrl
from listings.telemetry.logs import LEVELS

LARGEST_PORT = 65_535
_ADDRESS = re.compile(r"(?:([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):)?([0-9]{1,5})")
_REDIS_PORT = 6379
_REDIS = re.compile(
    r"(?:rediss?|(?P<unix>unix))://(?:(?P<user>[^:@/?#]*)(?::(?P<password>[^@/?#]*))?@)?"
    r"(?(unix)(?P<path>/[^?#\0]+)(?:\?db=(?P<db>[0-9]{1,5}))?"
    r"|(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?(?:/(?P<database>[0-9]{1,5})?)?)"
)
_BASE_URL = re.compile(r"https?://(?:[a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?")
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:\d{1,5})?|https?://\[[0-9a-f:]+\](:\d{1,5})?|\*")


class Address(NamedTuple):
    """Where something listens."""

    host: str
    port: int


class RedisAddress(NamedTuple):
    """Where Redis answers, and as whom it is spoken to; what is not told is empty."""

    host: str
    port: int
    path: str  # of a Unix socket, in the place of host and port
    tls: bool
    user: str
    password: str
    database: int


def database_url(text: str) -> Path | PostgresUrl:
    """`sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user@host/database`."""
    if postgres_url.is_postgres(text):
        return postgres_url.parse(text)
    path = unquote(text.removeprefix("sqlite:///"))
    if not text.startswith("sqlite:///") or not path or path.startswith(":") or "\0" in path:
        raise ValueError(
            "must be like sqlite:///data/listings.db, sqlite:////var/lib/listings.db or postgresql://user@host/database"
        )
    return Path(path)


def host(text: str) -> str:
    """An address or a name to listen on."""
    if not re.fullmatch(r"[A-Za-z0-9.:_-]+", text):
        raise ValueError("must be an address or a host name, like 127.0.0.1")
    return text


def redis_url(text: str) -> RedisAddress | None:
    """`redis://USER:PASSWORD@HOST:PORT/DATABASE`, `rediss://` with TLS, or `unix://USER:PASSWORD@/PATH?db=DATABASE`."""
    if not text:
        return None
    match = _REDIS.fullmatch(text)
    if match is None or int(match["port"] or 0) > LARGEST_PORT:
        raise ValueError(
            "must be like redis://127.0.0.1:6379/0, rediss://USER:PASSWORD@redis.example or unix:///run/redis.sock"
        )
    return RedisAddress(
        host=(match["host"] or "").strip("[]"),
        port=int(match["port"] or _REDIS_PORT),
        path=unquote(match["path"] or ""),
        tls=text.startswith("rediss:"),
        user=unquote(match["user"] or ""),
        password=unquote(match["password"] or ""),
        database=int(match["database"] or match["db"] or 0),
    )


def number(least: int, most: int) -> Callable[[str], int]:
    """A whole number within bounds, both included."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,12}", text) or not least <= int(text) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(text)

    return parse


def optional_file(text: str) -> Path | None:
    """A path, or none."""
    return Path(text) if text else None


def log_level(text: str) -> int:
    """A level by its name."""
    if text not in LEVELS:
        raise ValueError(f"must be one of {', '.join(LEVELS)}")
    return LEVELS[text]


def log_format(text: str) -> str:
    """How lines of the log are written."""
    if text not in {"auto", "json", "text"}:
        raise ValueError("must be one of auto, json, text")
    return text


def address(text: str) -> Address | None:
    """A port of this machine, or HOST:PORT; empty: none."""
    if not text:
        return None
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[2]) > LARGEST_PORT:
        raise ValueError("must be a port, or an address and a port, like 9464, 127.0.0.1:9464 or [::1]:9464")
    return Address((match[1] or "127.0.0.1").strip("[]"), int(match[2]))


def switch(text: str) -> bool:
    """On or off."""
    if text not in {"off", "on"}:
        raise ValueError("must be off or on")
    return text == "on"


def provider(text: str) -> str:
    """Who takes payments."""
    if text not in {"manual", "stripe"}:
        raise ValueError("must be manual or stripe")
    return text


def password(text: str) -> str:
    """What can stand in a header: visible ASCII."""
    if not re.fullmatch(r"[\x21-\x7e]*", text):
        raise ValueError("must be visible ASCII characters without a space")
    return text


def currency(text: str) -> str:
    """Three small letters."""
    if not re.fullmatch(r"[a-z]{3}", text):
        raise ValueError("must be three small letters, like nzd")
    return text


def origins(text: str) -> frozenset[str]:
    """Origins with commas between them; * is one that stands for all."""
    found = frozenset(origin.strip() for origin in text.split(",") if origin.strip())
    if not all(_ORIGIN.fullmatch(origin) for origin in found):
        raise ValueError("must be origins like https://shop.example, with commas between them, or *")
    return found


def base_url(text: str) -> str:
    """Scheme and host, without the slash behind them; empty: none."""
    found = text.removesuffix("/")
    if text and not _BASE_URL.fullmatch(found):
        raise ValueError("must be like https://market.example, in small letters and without a path")
    return found


def networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Addresses and networks with commas between them."""
    try:
        return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(
            "must be addresses or networks like 127.0.0.1 or 10.0.0.0/8, with commas between them"
        ) from None
