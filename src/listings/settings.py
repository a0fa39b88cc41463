"""Every setting, once: its name in the environment, its default, its parser, its help.

A flag wins over the environment, the environment over the default. A wrong value stops the start. A secret one can
also be read from a file that `NAME_FILE` names, and is never shown.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from listings import postgres_url
from listings.errors import Problem
from listings.logs import LEVELS
from listings.postgres_url import PostgresUrl

_LARGEST_PORT = 65_535
_MOST_REQUESTS = 100_000
_LONGEST_TIMEOUT = 3600
_MEBIBYTE = 1024 * 1024
_LONGEST_WINDOW = 31 * 24 * 3600
_MOST_WORKERS = 64
_ADDRESS = re.compile(r"(?:([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):)?([0-9]{1,5})")
_REDIS_PORT = 6379
_REDIS = re.compile(
    r"(?:rediss?|(?P<unix>unix))://(?:(?P<user>[^:@/?#]*)(?::(?P<password>[^@/?#]*))?@)?"
    r"(?(unix)(?P<path>/[^?#\0]+)(?:\?db=(?P<db>[0-9]{1,5}))?"
    r"|(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?(?:/(?P<database>[0-9]{1,5})?)?)"
)
MASK = "***"
_FILE = "_FILE"
_LONGEST_FILE = 64 * 1024
_PASSWORD = re.compile(r"(?i)((?:pass(?:word|wd|phrase)?|pwd|secret|token)\s*=\s*)('[^']*'|[^&\s]*)")
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


class Setting(NamedTuple):
    """One row of the table. A parser raises ValueError with a sentence that begins with "must"."""

    attribute: str
    variables: tuple[str, ...]  # the first one that is set and not empty counts
    default: str
    parse: Callable[[str], Any]
    help: str
    flag: str = ""  # where it is not made of the attribute
    secret: bool = False  # may hold a password
    is_password: bool = False  # is nothing else, and secret besides

    @property
    def flag_name(self) -> str:
        """Such as `--port`."""
        return self.flag or f"--{self.attribute.replace('_', '-')}"


class Given(NamedTuple):
    """What a setting is set to, and by what: a flag, a variable, a file that a variable names, or "default"."""

    setting: Setting
    source: str
    text: str
    fault: str = ""  # the sentence about a value that is not good

    @property
    def shown(self) -> str:
        """The text, for eyes: without a password, and nothing of a file that doesn't hold what it should."""
        if not self.setting.secret:
            return self.text
        if self.setting.is_password:
            return MASK if self.text else ""
        return MASK if self.fault and self.source.endswith(_FILE) else mask(self.text)


class Settings(NamedTuple):
    """The values in force."""

    database: Path | PostgresUrl
    database_connections: int
    database_timeout: int
    data_folder: Path
    host: str
    port: int
    workers: int
    rate_limit: int
    rate_window: int
    redis: RedisAddress | None
    redis_timeout: int
    redis_required: bool
    seed_file: Path | None
    cors_origins: frozenset[str]
    site: bool
    base_url: str
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...]
    header_timeout: int
    body_timeout: int
    idle_timeout: int
    write_timeout: int
    max_header_bytes: int
    max_headers: int
    max_url_bytes: int
    max_body_bytes: int
    max_connections: int
    list_cache_bytes: int
    log_level: int
    log_format: str
    metrics_address: Address | None
    tracing: bool
    sign_up: bool
    payment_provider: str
    stripe_secret_key: str
    stripe_webhook_secret: str
    stripe_currency: str

    @property
    def file(self) -> Path:
        """The SQLite file; with PostgreSQL, the name beside which the files of this machine are."""
        return self.database if isinstance(self.database, Path) else self.data_folder / "postgresql"

    @property
    def database_shown(self) -> str:
        """Where the data is, for eyes: without a password."""
        return str(self.database.absolute()) if isinstance(self.database, Path) else self.database.shown


def parse_database_url(text: str) -> Path | PostgresUrl:
    """`sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user@host/database`."""
    if postgres_url.is_postgres(text):
        return postgres_url.parse(text)
    path = unquote(text.removeprefix("sqlite:///"))
    if not text.startswith("sqlite:///") or not path or path.startswith(":") or "\0" in path:
        raise ValueError(
            "must be like sqlite:///data/listings.db, sqlite:////var/lib/listings.db or postgresql://user@host/database"
        )
    return Path(path)


def parse_host(text: str) -> str:
    """An address or a name to listen on."""
    if not re.fullmatch(r"[A-Za-z0-9.:_-]+", text):
        raise ValueError("must be an address or a host name, like 127.0.0.1")
    return text


def parse_redis_url(text: str) -> RedisAddress | None:
    """`redis://USER:PASSWORD@HOST:PORT/DATABASE`, `rediss://` with TLS, or `unix://USER:PASSWORD@/PATH?db=DATABASE`."""
    if not text:
        return None
    match = _REDIS.fullmatch(text)
    if match is None or int(match["port"] or 0) > _LARGEST_PORT:
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


def _provider(text: str) -> str:
    if text not in {"manual", "stripe"}:
        raise ValueError("must be manual or stripe")
    return text


def _password(text: str) -> str:
    if not re.fullmatch(r"[\x21-\x7e]*", text):
        raise ValueError("must be visible ASCII characters without a space")
    return text


def _currency(text: str) -> str:
    if not re.fullmatch(r"[a-z]{3}", text):
        raise ValueError("must be three small letters, like nzd")
    return text


def _origins(text: str) -> frozenset[str]:
    origins = frozenset(origin.strip() for origin in text.split(",") if origin.strip())
    if not all(_ORIGIN.fullmatch(origin) for origin in origins):
        raise ValueError("must be origins like https://shop.example, with commas between them, or *")
    return origins


def _base_url(text: str) -> str:
    address = text.removesuffix("/")
    if text and not _BASE_URL.fullmatch(address):
        raise ValueError("must be like https://market.example, in small letters and without a path")
    return address


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(
            "must be addresses or networks like 127.0.0.1 or 10.0.0.0/8, with commas between them"
        ) from None


SETTINGS = (
    Setting(
        "database",
        ("LISTINGS_DATABASE_URL",),
        "sqlite:///data/listings.db",
        parse_database_url,
        "Where the data is kept: sqlite:///PATH, relative to the working directory, sqlite:////PATH, or "
        "postgresql://USER:PASSWORD@HOST/DATABASE.",
        flag="--database-url",
        secret=True,
    ),
    Setting(
        "database_connections",
        ("LISTINGS_DATABASE_CONNECTIONS",),
        "8",
        _number(1, 1000),
        "Connections to PostgreSQL that one process has at most.",
    ),
    Setting(
        "database_timeout",
        ("LISTINGS_DATABASE_TIMEOUT",),
        "5",
        _number(1, _LONGEST_TIMEOUT),
        "Seconds that a statement in PostgreSQL may take, and that a request may wait for a connection to it.",
    ),
    Setting(
        "data_folder",
        ("LISTINGS_DATA_FOLDER",),
        "data",
        Path,
        "Where the files of this machine are, the rate limit's, when the data is in PostgreSQL.",
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
        "workers",
        ("LISTINGS_WORKERS",),
        "1",
        _number(1, _MOST_WORKERS),
        "Processes that answer requests; from 2 on one more looks after them.",
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
        "redis",
        ("LISTINGS_REDIS_URL",),
        "",
        parse_redis_url,
        "The Redis or Valkey that counts the rate limit for all machines: redis://, rediss:// with TLS, or unix://.",
        secret=True,
    ),
    Setting(
        "redis_timeout",
        ("LISTINGS_REDIS_TIMEOUT",),
        "250",
        _number(10, 10_000),
        "Milliseconds within which Redis has to answer; then the machine counts for itself until it does.",
    ),
    Setting(
        "redis_required",
        ("LISTINGS_REDIS_REQUIRED",),
        "off",
        _switch,
        "on: while Redis is away, requests are answered 503; off: they are counted on each machine.",
    ),
    Setting(
        "seed_file",
        ("LISTINGS_SEED_FILE",),
        "",
        _optional_file,
        "A JSON file of accounts and keys that the service makes sure of before it opens its port.",
        flag="--seed",
    ),
    Setting(
        "cors_origins",
        ("LISTINGS_CORS_ORIGINS",),
        "",
        _origins,
        "Origins whose web pages may call the API from a browser, with commas between them; * for all.",
    ),
    Setting(
        "site",
        ("LISTINGS_SITE",),
        "on",
        _switch,
        "on: the pages of the market are served beside the API; off: the API alone, and the index of the market waits.",
    ),
    Setting(
        "base_url",
        ("LISTINGS_BASE_URL",),
        "",
        _base_url,
        "Where visitors find the pages, like https://market.example; empty: as each of them calls it.",
    ),
    Setting(
        "trusted_proxies",
        ("LISTINGS_TRUSTED_PROXIES",),
        "",
        _networks,
        "Proxies whose X-Forwarded-For and X-Forwarded-Proto count: addresses or networks, with commas between them.",
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
        "Connections at a time to each worker, as far as the system allows open files; one more is answered 503.",
    ),
    Setting(
        "list_cache_bytes",
        ("LISTINGS_LIST_CACHE_BYTES",),
        "16777216",
        _number(0, 1024 * _MEBIBYTE),
        "Memory for whole lists and for listings as they were answered, kept until the account's listings change; "
        "0 keeps none.",
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
    Setting(
        "sign_up",
        ("LISTINGS_SIGN_UP",),
        "on",
        _switch,
        "on: anybody may open an account in the console, without a plan; off: only the operator opens accounts.",
    ),
    Setting(
        "payment_provider",
        ("LISTINGS_PAYMENT_PROVIDER",),
        "manual",
        _provider,
        "Who takes the sellers' money: manual, which is the operator; stripe, which needs the extra listings[stripe].",
    ),
    Setting(
        "stripe_secret_key",
        ("LISTINGS_STRIPE_SECRET_KEY",),
        "",
        _password,
        "The secret key of the account with Stripe.",
        secret=True,
        is_password=True,
    ),
    Setting(
        "stripe_webhook_secret",
        ("LISTINGS_STRIPE_WEBHOOK_SECRET",),
        "",
        _password,
        "The secret by which Stripe signs its events.",
        secret=True,
        is_password=True,
    ),
    Setting(
        "stripe_currency",
        ("LISTINGS_STRIPE_CURRENCY",),
        "nzd",
        _currency,
        "The currency of the 49 a month that Stripe asks for, as three small letters.",
    ),
)

COPY_TARGET = Setting(
    "copy_to",
    ("LISTINGS_COPY_TO",),
    "",
    postgres_url.parse,
    "Where `listings copy` copies to.",
    flag="--to",
    secret=True,
)


def load(environment: Mapping[str, str], flags: Mapping[str, str | None]) -> Settings:
    """The settings in force. `flags` are by attribute; None: not given. Raises Problem("invalid_setting")."""
    given = survey(environment, flags)
    for one in given:
        if one.fault:
            raise Problem("invalid_setting", one.fault)
    return settings_of(given)


def survey(environment: Mapping[str, str], flags: Mapping[str, str | None]) -> list[Given]:
    """What each setting is set to, in the table's order, faults included."""
    return [resolve(setting, environment, flags.get(setting.attribute)) for setting in SETTINGS]


def settings_of(given: Iterable[Given]) -> Settings:
    """The values, with the default in the place of a faulty one."""
    return Settings(
        **{one.setting.attribute: one.setting.parse(one.setting.default if one.fault else one.text) for one in given}
    )


def mask(text: str) -> str:
    """A URL, or what should have been one, without its password."""
    scheme, slashes, rest = text.partition("://")
    if not slashes:
        scheme, rest = "", text
    user, at, place = rest.rpartition("@")
    if at and not rest.startswith("/"):  # else it is a path
        name, colon, _ = user.partition(":")
        rest = (f"{name}:{MASK}@" if colon else f"{name}@") + place if slashes else f"{MASK}@{place}"
    return scheme + slashes + _PASSWORD.sub(rf"\1{MASK}", rest)


def resolve(setting: Setting, environment: Mapping[str, str], flag: str | None) -> Given:
    """What one setting is set to; `flag` None: not given."""
    if flag is not None:
        return _judged(Given(setting, setting.flag_name, flag))
    candidates = [name for name in setting.variables if environment.get(name)]
    files = [name + _FILE for name in setting.variables if setting.secret and environment.get(name + _FILE)]
    if candidates and files:
        fault = f"{candidates[0]} and {files[0]} are both set: leave one of them"
        return Given(setting, candidates[0], environment[candidates[0]], fault)
    if files:
        return _read(setting, files[0], environment[files[0]])
    if candidates:
        return _judged(Given(setting, candidates[0], environment[candidates[0]]))
    return _judged(Given(setting, "default", setting.default))


def _read(setting: Setting, source: str, path: str) -> Given:
    """The value in a file, without the space around it."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(_LONGEST_FILE).strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        return Given(setting, source, "", f"{source} names {path[:200]}, which can't be read: {reason}")
    return _judged(Given(setting, source, text))


def _judged(given: Given) -> Given:
    try:
        given.setting.parse(given.text)
    except ValueError as error:
        wrong = given._replace(fault=str(error))
        return given._replace(fault=f"{given.source} {error}, got {wrong.shown[:60]!r}")
    return given
