"""Every setting, once: its name in the environment, its default, its parser, its help."""

from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, NamedTuple

from listings.domain import postgres_url
from listings.domain.postgres_url import PostgresUrl
from listings.settings import values
from listings.settings.values import Address, RedisAddress

_MOST_REQUESTS = 100_000
_LONGEST_TIMEOUT = 3600
_MEBIBYTE = 1024 * 1024
_LONGEST_WINDOW = 31 * 24 * 3600
_MOST_WORKERS = 64
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not listened on


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
    def reachable_host(self) -> str:
        """Where a client on this machine reaches the service, also when it listens on all addresses."""
        return _LOOPBACK.get(self.host, self.host)

    @property
    def database_shown(self) -> str:
        """Where the data is, for eyes: without a password."""
        return str(self.database.absolute()) if isinstance(self.database, Path) else self.database.shown


SETTINGS = (
    Setting(
        "database",
        ("LISTINGS_DATABASE_URL",),
        "sqlite:///data/listings.db",
        values.database_url,
        "Where the data is kept: sqlite:///PATH, relative to the working directory, sqlite:////PATH, or "
        "postgresql://USER:PASSWORD@HOST/DATABASE.",
        flag="--database-url",
        secret=True,
    ),
    Setting(
        "database_connections",
        ("LISTINGS_DATABASE_CONNECTIONS",),
        "8",
        values.number(1, 1000),
        "Connections to PostgreSQL that one process has at most.",
    ),
    Setting(
        "database_timeout",
        ("LISTINGS_DATABASE_TIMEOUT",),
        "5",
        values.number(1, _LONGEST_TIMEOUT),
        "Seconds that a statement in PostgreSQL may take, and that a request may wait for a connection to it.",
    ),
    Setting(
        "data_folder",
        ("LISTINGS_DATA_FOLDER",),
        "data",
        Path,
        "Where the files of this machine are, the rate limit's, when the data is in PostgreSQL.",
    ),
    Setting("host", ("LISTINGS_HOST",), "127.0.0.1", values.host, "The address to listen on."),
    Setting(
        "port",
        ("LISTINGS_PORT", "PORT"),
        "8000",
        values.number(0, values.LARGEST_PORT),
        "The port to listen on; 0 lets the system choose one.",
    ),
    Setting(
        "workers",
        ("LISTINGS_WORKERS",),
        "1",
        values.number(1, _MOST_WORKERS),
        "Processes that answer requests; from 2 on one more looks after them.",
    ),
    Setting(
        "rate_limit",
        ("LISTINGS_RATE_LIMIT",),
        "1000",
        values.number(0, _MOST_REQUESTS),
        "Requests per window and key; 0 turns the limit off.",
    ),
    Setting(
        "rate_window",
        ("LISTINGS_RATE_WINDOW",),
        "3600",
        values.number(1, _LONGEST_WINDOW),
        "The sliding window of the rate limit, in seconds.",
    ),
    Setting(
        "redis",
        ("LISTINGS_REDIS_URL",),
        "",
        values.redis_url,
        "The Redis or Valkey that counts the rate limit for all machines: redis://, rediss:// with TLS, or unix://.",
        secret=True,
    ),
    Setting(
        "redis_timeout",
        ("LISTINGS_REDIS_TIMEOUT",),
        "250",
        values.number(10, 10_000),
        "Milliseconds within which Redis has to answer; then the machine counts for itself until it does.",
    ),
    Setting(
        "redis_required",
        ("LISTINGS_REDIS_REQUIRED",),
        "off",
        values.switch,
        "on: while Redis is away, requests are answered 503; off: they are counted on each machine.",
    ),
    Setting(
        "seed_file",
        ("LISTINGS_SEED_FILE",),
        "",
        values.optional_file,
        "A JSON file of accounts and keys that the service makes sure of before it opens its port.",
        flag="--seed",
    ),
    Setting(
        "cors_origins",
        ("LISTINGS_CORS_ORIGINS",),
        "",
        values.origins,
        "Origins whose web pages may call the API from a browser, with commas between them; * for all.",
    ),
    Setting(
        "site",
        ("LISTINGS_SITE",),
        "on",
        values.switch,
        "on: the pages of the market are served beside the API; off: the API alone, and the index of the market waits.",
    ),
    Setting(
        "base_url",
        ("LISTINGS_BASE_URL",),
        "",
        values.base_url,
        "Where visitors find the pages, like https://market.example; empty: as each of them calls it.",
    ),
    Setting(
        "trusted_proxies",
        ("LISTINGS_TRUSTED_PROXIES",),
        "",
        values.networks,
        "Proxies whose X-Forwarded-For and X-Forwarded-Proto count: addresses or networks, with commas between them.",
    ),
    Setting(
        "header_timeout",
        ("LISTINGS_HEADER_TIMEOUT",),
        "10",
        values.number(1, _LONGEST_TIMEOUT),
        "Seconds that a request's headers may take.",
    ),
    Setting(
        "body_timeout",
        ("LISTINGS_BODY_TIMEOUT",),
        "30",
        values.number(1, _LONGEST_TIMEOUT),
        "Seconds that a request's body may take.",
    ),
    Setting(
        "idle_timeout",
        ("LISTINGS_IDLE_TIMEOUT",),
        "75",
        values.number(1, _LONGEST_TIMEOUT),
        "Seconds that a connection may wait for its next request.",
    ),
    Setting(
        "write_timeout",
        ("LISTINGS_WRITE_TIMEOUT",),
        "30",
        values.number(1, _LONGEST_TIMEOUT),
        "Seconds within which a client has to take 64 KiB of its answer, or the rest.",
    ),
    Setting(
        "max_header_bytes",
        ("LISTINGS_MAX_HEADER_BYTES",),
        "16384",
        values.number(1024, _MEBIBYTE),
        "Size of a request's headers.",
    ),
    Setting(
        "max_headers",
        ("LISTINGS_MAX_HEADERS",),
        "100",
        values.number(10, 1000),
        "Number of a request's headers.",
    ),
    Setting(
        "max_url_bytes",
        ("LISTINGS_MAX_URL_BYTES",),
        "8192",
        values.number(256, _MEBIBYTE),
        "Size of a request's address.",
    ),
    Setting(
        "max_body_bytes",
        ("LISTINGS_MAX_BODY_BYTES",),
        "2097152",
        values.number(1024, 64 * _MEBIBYTE),
        "Size of a request's body.",
    ),
    Setting(
        "max_connections",
        ("LISTINGS_MAX_CONNECTIONS",),
        "10000",
        values.number(1, 1_000_000),
        "Connections at a time to each worker, as far as the system allows open files; one more is answered 503.",
    ),
    Setting(
        "list_cache_bytes",
        ("LISTINGS_LIST_CACHE_BYTES",),
        "16777216",
        values.number(0, 1024 * _MEBIBYTE),
        "Memory for whole lists and for listings as they were answered, kept until the account's listings change; "
        "0 keeps none.",
    ),
    Setting(
        "log_level",
        ("LISTINGS_LOG_LEVEL",),
        "info",
        values.log_level,
        "What is logged: info (every request), warning (401, 403, 429 and faults), error.",
    ),
    Setting(
        "log_format",
        ("LISTINGS_LOG_FORMAT",),
        "auto",
        values.log_format,
        "auto: text on a terminal, else JSON lines; json; text.",
    ),
    Setting(
        "metrics_address",
        ("LISTINGS_METRICS_ADDRESS",),
        "",
        values.address,
        "Where metrics are told to Prometheus: PORT of this machine, or HOST:PORT; 0 lets the system choose a port.",
    ),
    Setting(
        "tracing",
        ("LISTINGS_TRACING",),
        "off",
        values.switch,
        "on: a span of each request goes to OpenTelemetry, which needs the extra listings[tracing]; off.",
    ),
    Setting(
        "sign_up",
        ("LISTINGS_SIGN_UP",),
        "on",
        values.switch,
        "on: anybody may open an account in the console, without a plan; off: only the operator opens accounts.",
    ),
    Setting(
        "payment_provider",
        ("LISTINGS_PAYMENT_PROVIDER",),
        "manual",
        values.provider,
        "Who takes the sellers' money: manual, which is the operator; stripe, which needs the extra listings[stripe].",
    ),
    Setting(
        "stripe_secret_key",
        ("LISTINGS_STRIPE_SECRET_KEY",),
        "",
        values.password,
        "The secret key of the account with Stripe.",
        secret=True,
        is_password=True,
    ),
    Setting(
        "stripe_webhook_secret",
        ("LISTINGS_STRIPE_WEBHOOK_SECRET",),
        "",
        values.password,
        "The secret by which Stripe signs its events.",
        secret=True,
        is_password=True,
    ),
    Setting(
        "stripe_currency",
        ("LISTINGS_STRIPE_CURRENCY",),
        "nzd",
        values.currency,
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
