"""Types of the settings, and parsers for those that have a format of their own.

Parsers raise ValueError, whose message begins with "must".
"""

import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast
from urllib.parse import unquote

import msgspec
from msgspec import Meta
from msgspec.inspect import BoolType, IntType, LiteralType, Metadata, type_info

from listings.domain import postgres_url
from listings.domain.postgres_url import PostgresUrl
from listings.telemetry.logs import LEVELS

Host = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9.:_-]+\Z", description="an IP address or a host name, like 127.0.0.1")]
Line = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f]{1,60}\Z", description="1 to 60 characters in one line")]
Operator = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f]{0,60}\Z", description="at most 60 characters in one line")]
Currency = Annotated[str, Meta(pattern=r"\A[a-z]{3}\Z", description="three lowercase letters, like nzd")]
Password = Annotated[str, Meta(pattern=r"\A[\x21-\x7e]*\Z", description="visible ASCII characters without spaces")]
Email = Annotated[  # local part like HTML's <input type="email">; may be empty
    str,
    Meta(
        pattern=r"\A(?:[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9.-]+)?\Z",
        description="an email address like no-reply@market.example",
    ),
]
Contact = Annotated[
    str,
    Meta(
        pattern=r"\A(?:[^@\s/]+@[^@\s/]+|https?://[^\s/]\S*)?\Z",
        description="an email address like help@market.example, or a URL like https://market.example/help",
    ),
]

MAX_PORT = 65_535
_SWITCH = {"off": False, "on": True}
_INTEGER = re.compile(r"[0-9]{1,15}")
_ADDRESS = re.compile(r"(?:([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):)?([0-9]{1,5})")
_DEFAULT_REDIS_PORT = 6379
_REDIS_URL = re.compile(
    r"(?:rediss?|(?P<unix>unix))://(?:(?P<user>[^:@/?#]*)(?::(?P<password>[^@/?#]*))?@)?"
    r"(?(unix)(?P<path>/[^?#\0]+)(?:\?db=(?P<db>[0-9]{1,5}))?"
    r"|(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?(?:/(?P<database>[0-9]{1,5})?)?)"
)
_SMTP_URL = re.compile(
    r"(?P<scheme>smtp\+starttls|smtps|smtp)://"
    r"(?:(?P<user>[^:@/?#]+):(?P<password>[^@/?#]+)@)?"
    r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
)
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
_SMTP_SCHEMES: Mapping[str, tuple[Literal["starttls", "tls", "none"], int]] = {
    "smtp+starttls": ("starttls", 587),
    "smtps": ("tls", 465),
    "smtp": ("none", 25),
}
_BASE_URL = re.compile(
    r"https?://(?:[a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?"
    r"(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._~-]+)*"  # segments that every client sends unchanged (RFC 3986, 2.3, 5.2.4)
)
_BUCKET_URL = re.compile(
    r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._-]{1,100}){0,8})/?"
)
_PRICE = re.compile(r"([0-9]{1,6})(?:\.([0-9]{2}))?")
_LINK = re.compile(r"([^=<>\x00-\x1f]{1,40})=(https?://[^\s,<>\"]{1,500})")
_MAX_LOGO_BYTES = 100 * 1024
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:\d{1,5})?|https?://\[[0-9a-f:]+\](:\d{1,5})?|\*")


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int


class SmtpAddress(NamedTuple):
    """The address of an SMTP server and its credentials, which may be empty."""

    host: str
    port: int
    security: Literal["starttls", "tls", "none"]
    user: str
    password: str


class BucketUrl(NamedTuple):
    """A bucket of S3, and the prefix of its names, without slashes at its ends."""

    bucket: str
    prefix: str


class RedisAddress(NamedTuple):
    """The address of Redis and its credentials. Absent parts are empty."""

    host: str
    port: int
    path: str  # the Unix socket, instead of host and port
    tls: bool
    user: str
    password: str
    database: int


def parse(text: str, type_: Any) -> Any:
    """Parse an integer, a switch (on or off), one of several words, or text with a pattern."""
    rule = type_info(type_)
    value: object = text
    if isinstance(rule, BoolType):
        value = _SWITCH.get(text, text)
    elif isinstance(rule, IntType) and _INTEGER.fullmatch(text):
        value = int(text)
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError:
        raise ValueError(f"must be {_describe(rule)}") from None


def parse_price(text: str) -> int:
    """Return a price in cents."""
    match = _PRICE.fullmatch(text)
    cents = int(match[1]) * 100 + int(match[2] or 0) if match is not None else 0
    if cents == 0:
        raise ValueError("must be a price above 0, like 49 or 49.50")
    return cents


def _describe(rule: msgspec.inspect.Type) -> str:
    match rule:
        case BoolType():
            return "off or on"
        case IntType(ge=minimum, le=maximum):
            return f"an integer from {minimum} to {maximum}"
        case LiteralType(values=words):
            return " or ".join(map(str, words))
    return str((cast("Metadata", rule).extra_json_schema or {})["description"])


def parse_database_url(text: str) -> Path | PostgresUrl:
    """Parse `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user@host/database`."""
    if text.partition("://")[0] in postgres_url.SCHEMES:
        return postgres_url.parse(text)
    path = unquote(text.removeprefix("sqlite:///"))
    if not text.startswith("sqlite:///") or not path or path.startswith(":") or "\0" in path:
        raise ValueError(
            "must be like sqlite:///data/listings.db, sqlite:////var/lib/listings.db or postgresql://user@host/database"
        )
    return Path(path)


def parse_redis_url(text: str) -> RedisAddress | None:
    """Parse `redis://USER:PASSWORD@HOST:PORT/DATABASE`, `rediss://`, or `unix://USER:PASSWORD@/PATH?db=DATABASE`."""
    if not text:
        return None
    match = _REDIS_URL.fullmatch(text)
    if match is None or int(match["port"] or 0) > MAX_PORT:
        raise ValueError(
            "must be like redis://127.0.0.1:6379/0, rediss://USER:PASSWORD@redis.example or unix:///run/redis.sock"
        )
    return RedisAddress(
        host=(match["host"] or "").strip("[]"),
        port=int(match["port"] or _DEFAULT_REDIS_PORT),
        path=unquote(match["path"] or ""),
        tls=text.startswith("rediss:"),
        user=unquote(match["user"] or ""),
        password=unquote(match["password"] or ""),
        database=int(match["database"] or match["db"] or 0),
    )


def parse_smtp_url(text: str) -> SmtpAddress | None:
    """Parse `smtp+starttls://USER:PASSWORD@HOST:PORT`, `smtps://`, or `smtp://` on this machine. Empty means none."""
    if not text:
        return None
    match = _SMTP_URL.fullmatch(text)
    if (
        match is None
        or int(match["port"] or 0) > MAX_PORT
        or (match["scheme"] == "smtp" and match["host"] not in _LOCAL_HOSTS)  # other hosts need TLS
    ):
        raise ValueError(
            "must be like smtp+starttls://USER:PASSWORD@smtp.example:587, smtps://USER:PASSWORD@smtp.example or "
            "smtp://127.0.0.1"
        )
    security, port = _SMTP_SCHEMES[match["scheme"]]
    user, password = unquote(match["user"] or ""), unquote(match["password"] or "")
    return SmtpAddress(match["host"].strip("[]"), int(match["port"] or port), security, user, password)


def parse_optional_path(text: str) -> Path | None:
    """Parse a path. Empty means none."""
    return Path(text) if text else None


def parse_log_level(text: str) -> int:
    """Parse the name of a log level."""
    if text not in LEVELS:
        raise ValueError(f"must be one of {', '.join(LEVELS)}")
    return LEVELS[text]


def parse_address(text: str) -> Address | None:
    """Parse HOST:PORT, or a port of this machine. Empty means none."""
    if not text:
        return None
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[2]) > MAX_PORT:
        raise ValueError("must be a port, or a host and a port, like 9464, 127.0.0.1:9464 or [::1]:9464")
    return Address((match[1] or "127.0.0.1").strip("[]"), int(match[2]))


def parse_origins(text: str) -> frozenset[str]:
    """Parse origins separated by commas; * means all."""
    found = frozenset(_split(text))
    if not all(_ORIGIN.fullmatch(origin) for origin in found):
        raise ValueError("must be origins like https://shop.example, separated by commas, or *")
    return found


def parse_base_url(text: str) -> str:
    """Parse a scheme, a host and a path prefix, and remove the slash at the end. Empty means none."""
    found = text.removesuffix("/")
    if text and not _BASE_URL.fullmatch(found):
        raise ValueError("must be like https://market.example or https://example.com/shop, with the host in lowercase")
    return found


def parse_media_url(text: str) -> Path | BucketUrl | None:
    """Parse `file:///PATH` or `s3://BUCKET/PREFIX`. Empty means none."""
    match = _BUCKET_URL.fullmatch(text)
    if match is not None:
        return BucketUrl(match[1], match[2].strip("/"))
    if text and not text.startswith("file:///"):
        raise ValueError("must be like file:///var/lib/listings/media or s3://bucket/media")
    return Path(unquote(text.removeprefix("file://"))) if text else None


def parse_logo(text: str) -> Path | None:
    """Parse the path of an SVG or PNG file. Empty means none."""
    if text and Path(text).suffix not in {".svg", ".png"}:
        raise ValueError("must be the path of a .svg or .png file")
    if text and not _is_small_file(Path(text)):
        raise ValueError("must be a readable file of at most 100 KiB")
    return Path(text) if text else None


def _is_small_file(path: Path) -> bool:
    try:
        if not path.is_file():  # opening a pipe could wait forever
            return False
        with path.open("rb") as file:
            return len(file.read(_MAX_LOGO_BYTES + 1)) <= _MAX_LOGO_BYTES
    except OSError:
        return False


def parse_links(text: str) -> tuple[tuple[str, str], ...]:
    """Parse labels and http or https URLs such as `Terms=https://market.example/terms`, separated by commas."""
    matches = [_LINK.fullmatch(part) for part in _split(text)]
    if not all(matches):
        raise ValueError("must be like Terms=https://market.example/terms, separated by commas")
    return tuple((match[1].strip(), match[2]) for match in matches if match is not None)


def parse_networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Parse addresses and networks separated by commas."""
    try:
        return tuple(map(ip_network, _split(text)))
    except ValueError:
        raise ValueError("must be addresses or networks like 127.0.0.1 or 10.0.0.0/8, separated by commas") from None


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
