"""Every setting, once: its name in the environment, its default, its parser, its help.

A flag wins over the environment, the environment over the default. A wrong value stops the start.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from listings.errors import Problem
from listings.logs import LEVELS

_LARGEST_PORT = 65_535
_MOST_REQUESTS = 100_000
_LONGEST_TIMEOUT = 3600
_MEBIBYTE = 1024 * 1024
_LONGEST_WINDOW = 31 * 24 * 3600
_ADDRESS = re.compile(r"(?:([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):)?([0-9]{1,5})")
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:\d{1,5})?|https?://\[[0-9a-f:]+\](:\d{1,5})?|\*")


class Address(NamedTuple):
    """Where something listens."""

    host: str
    port: int


class Setting(NamedTuple):
    """One row of the table. A parser raises ValueError with a sentence that begins with "must"."""

    attribute: str
    variables: tuple[str, ...]  # the first one that is set and not empty counts
    default: str
    parse: Callable[[str], Any]
    help: str


class Settings(NamedTuple):
    """The values in force."""

    database: Path
    host: str
    port: int
    rate_limit: int
    rate_window: int
    seed_file: Path | None
    cors_origins: frozenset[str]
    header_timeout: int
    body_timeout: int
    idle_timeout: int
    write_timeout: int
    max_header_bytes: int
    max_headers: int
    max_url_bytes: int
    max_body_bytes: int
    max_connections: int
    log_level: int
    log_format: str
    metrics_address: Address | None
    tracing: bool


def parse_database_url(text: str) -> Path:
    """`sqlite:///relative.db` or `sqlite:////absolute.db`."""
    path = unquote(text.removeprefix("sqlite:///"))
    if not text.startswith("sqlite:///") or not path or path.startswith(":") or "\0" in path:
        raise ValueError("must be like sqlite:///data/listings.db or sqlite:////var/lib/listings.db")
    return Path(path)


def parse_host(text: str) -> str:
    """An address or a name to listen on."""
    if not re.fullmatch(r"[A-Za-z0-9.:_-]+", text):
        raise ValueError("must be an address or a host name, like 127.0.0.1")
    return text


def _number(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,12}", text) or not least <= int(text) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(text)

    return parse


def _optional_file(text: str) -> Path | None:
    return Path(text) if text else None


def _log_level(text: str) -> int:
    if text not in LEVELS:
        raise ValueError(f"must be one of {', '.join(LEVELS)}")
    return LEVELS[text]


def _log_format(text: str) -> str:
    if text not in {"auto", "json", "text"}:
        raise ValueError("must be one of auto, json, text")
    return text


def _address(text: str) -> Address | None:
    if not text:
        return None
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[2]) > _LARGEST_PORT:
        raise ValueError("must be a port, or an address and a port, like 9464, 127.0.0.1:9464 or [::1]:9464")
    return Address((match[1] or "127.0.0.1").strip("[]"), int(match[2]))


def _switch(text: str) -> bool:
    if text not in {"off", "on"}:
        raise ValueError("must be off or on")
    return text == "on"


def _origins(text: str) -> frozenset[str]:
    origins = frozenset(origin.strip() for origin in text.split(",") if origin.strip())
    if not all(_ORIGIN.fullmatch(origin) for origin in origins):
        raise ValueError("must be origins like https://shop.example, with commas between them, or *")
    return origins


SETTINGS = (
    Setting(
        "database",
        ("LISTINGS_DATABASE_URL",),
        "sqlite:///data/listings.db",
        parse_database_url,
        "Where the data is kept: sqlite:///PATH, relative to the working directory, or sqlite:////PATH.",
    ),
    Setting("host", ("LISTINGS_HOST",), "127.0.0.1", parse_host, "The address to listen on."),
    Setting(
        "port",
        ("LISTINGS_PORT", "PORT"),
        "8000",
        _number(0, _LARGEST_PORT),
        "The port to listen on; 0 lets the system choose one.",
    ),
    Setting(
        "rate_limit",
        ("LISTINGS_RATE_LIMIT",),
        "1000",
        _number(0, _MOST_REQUESTS),
        "Requests per window and key; 0 turns the limit off.",
    ),
    Setting(
        "rate_window",
        ("LISTINGS_RATE_WINDOW",),
        "3600",
        _number(1, _LONGEST_WINDOW),
        "The sliding window of the rate limit, in seconds.",
    ),
    Setting(
        "seed_file",
        ("LISTINGS_SEED_FILE",),
        "",
        _optional_file,
        "A JSON file of accounts and keys that the service makes sure of before it opens its port.",
    ),
    Setting(
        "cors_origins",
        ("LISTINGS_CORS_ORIGINS",),
        "",
        _origins,
        "Origins whose web pages may call the API from a browser, with commas between them; * for all.",
    ),
    Setting(
        "header_timeout",
        ("LISTINGS_HEADER_TIMEOUT",),
        "10",
        _number(1, _LONGEST_TIMEOUT),
        "Seconds that a request's headers may take.",
    ),
    Setting(
        "body_timeout",
        ("LISTINGS_BODY_TIMEOUT",),
        "30",
        _number(1, _LONGEST_TIMEOUT),
        "Seconds that a request's body may take.",
    ),
    Setting(
        "idle_timeout",
        ("LISTINGS_IDLE_TIMEOUT",),
        "75",
        _number(1, _LONGEST_TIMEOUT),
        "Seconds that a connection may wait for its next request.",
    ),
    Setting(
        "write_timeout",
        ("LISTINGS_WRITE_TIMEOUT",),
        "30",
        _number(1, _LONGEST_TIMEOUT),
        "Seconds within which a client has to take 64 KiB of its answer, or the rest.",
    ),
    Setting(
        "max_header_bytes",
        ("LISTINGS_MAX_HEADER_BYTES",),
        "16384",
        _number(1024, _MEBIBYTE),
        "Size of a request's headers.",
    ),
    Setting(
        "max_headers",
        ("LISTINGS_MAX_HEADERS",),
        "100",
        _number(10, 1000),
        "Number of a request's headers.",
    ),
    Setting(
        "max_url_bytes",
        ("LISTINGS_MAX_URL_BYTES",),
        "8192",
        _number(256, _MEBIBYTE),
        "Size of a request's address.",
    ),
    Setting(
        "max_body_bytes",
        ("LISTINGS_MAX_BODY_BYTES",),
        "2097152",
        _number(1024, 64 * _MEBIBYTE),
        "Size of a request's body.",
    ),
    Setting(
        "max_connections",
        ("LISTINGS_MAX_CONNECTIONS",),
        "10000",
        _number(1, 1_000_000),
        "Connections at a time, as far as the system allows so many open files; one more is answered 503.",
    ),
    Setting(
        "log_level",
        ("LISTINGS_LOG_LEVEL",),
        "info",
        _log_level,
        "What is logged: info (every request), warning (401, 403, 429 and faults), error.",
    ),
    Setting(
        "log_format",
        ("LISTINGS_LOG_FORMAT",),
        "auto",
        _log_format,
        "auto: text on a terminal, else JSON lines; json; text.",
    ),
    Setting(
        "metrics_address",
        ("LISTINGS_METRICS_ADDRESS",),
        "",
        _address,
        "Where metrics are told to Prometheus: PORT of this machine, or HOST:PORT; 0 lets the system choose a port.",
    ),
    Setting(
        "tracing",
        ("LISTINGS_TRACING",),
        "off",
        _switch,
        "on: a span of each request goes to OpenTelemetry, which needs the extra listings[tracing]; off.",
    ),
)


def load(environment: Mapping[str, str], flags: Mapping[str, str | None]) -> Settings:
    """The settings in force. `flags` are by attribute; None: not given. Raises Problem("invalid_setting")."""
    return Settings(**{setting.attribute: _value(setting, environment, flags) for setting in SETTINGS})


def _value(setting: Setting, environment: Mapping[str, str], flags: Mapping[str, str | None]) -> Any:  # noqa: ANN401 - each parser has its own type
    flag = flags.get(setting.attribute)
    if flag is not None:
        source, text = f"--{setting.attribute.replace('_', '-')}", flag
    else:
        source = next((name for name in setting.variables if environment.get(name)), "")
        text = environment[source] if source else setting.default
    try:
        return setting.parse(text)
    except ValueError as error:
        raise Problem("invalid_setting", f"{source} {error}, got {text[:60]!r}") from None
