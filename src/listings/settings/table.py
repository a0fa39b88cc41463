"""The table of settings: variables, default, parser and description of each."""

from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, NamedTuple

from listings.domain import postgres_url
from listings.domain.postgres_url import PostgresUrl
from listings.settings import values
from listings.settings.values import Address, RedisAddress

_MAX_RATE_LIMIT = 100_000
_MAX_TIMEOUT_SECONDS = 3600
_MIB = 1024 * 1024
_MAX_WINDOW_SECONDS = 31 * 24 * 3600
_MAX_WORKERS = 64
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound


class Setting(NamedTuple):
    """A row of the table. The parser raises ValueError, whose message begins with "must"."""

    attribute: str
    variables: tuple[str, ...]  # the first one that is set and not empty applies
    default: str
    parse: Callable[[str], Any]
    help: str
    flag: str = ""  # if it is not derived from the attribute
    secret: bool = False  # may contain a password
    is_password: bool = False  # the whole value is a password; `secret` is also set

    @property
    def flag_name(self) -> str:
        """The command-line flag, such as `--port`."""
        return self.flag or f"--{self.attribute.replace('_', '-')}"


class Settings(NamedTuple):
    """The parsed values."""

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
        """The SQLite file. With PostgreSQL, the base name of this machine's own files."""
        return self.database if isinstance(self.database, Path) else self.data_folder / "postgresql"

    @property
    def reachable_host(self) -> str:
        """The host at which a client on this machine reaches the service."""
        return _LOOPBACK.get(self.host, self.host)

    @property
    def redacted_database(self) -> str:
        """The location of the data, without a password."""
        return str(self.database.absolute()) if isinstance(self.database, Path) else self.database.redacted


SETTINGS = (
    Setting(
        "database",
        ("LISTINGS_DATABASE_URL",),
        "sqlite:///data/listings.db",
        values.database_url,
        "The database: sqlite:///PATH (relative to the working directory), sqlite:////PATH (absolute), or "
        "postgresql://USER:PASSWORD@HOST/DATABASE.",
        flag="--database-url",
        secret=True,
    ),
    Setting(
        "database_connections",
        ("LISTINGS_DATABASE_CONNECTIONS",),
        "8",
        values.integer_between(1, 1000),
        "Maximum number of connections to PostgreSQL per process.",
    ),
    Setting(
        "database_timeout",
        ("LISTINGS_DATABASE_TIMEOUT",),
        "5",
        values.integer_between(1, _MAX_TIMEOUT_SECONDS),
        "Seconds that a statement in PostgreSQL may take, and that a request may wait for a connection.",
    ),
    Setting(
        "data_folder",
        ("LISTINGS_DATA_FOLDER",),
        "data",
        Path,
        "With PostgreSQL: the folder for this machine's files, which are those of the rate limit.",
    ),
    Setting("host", ("LISTINGS_HOST",), "127.0.0.1", values.host, "Address to listen on."),
    Setting(
        "port",
        ("LISTINGS_PORT", "PORT"),
        "8000",
        values.integer_between(0, values.MAX_PORT),
        "Port to listen on; 0 lets the system choose one.",
    ),
    Setting(
        "workers",
        ("LISTINGS_WORKERS",),
        "1",
        values.integer_between(1, _MAX_WORKERS),
        "Number of worker processes. With 2 or more, a supervisor process is added.",
    ),
    Setting(
        "rate_limit",
        ("LISTINGS_RATE_LIMIT",),
        "1000",
        values.integer_between(0, _MAX_RATE_LIMIT),
        "Requests per key in each window; 0 turns the rate limit off.",
    ),
    Setting(
        "rate_window",
        ("LISTINGS_RATE_WINDOW",),
        "3600",
        values.integer_between(1, _MAX_WINDOW_SECONDS),
        "Length of the rate limit's sliding window, in seconds.",
    ),
    Setting(
        "redis",
        ("LISTINGS_REDIS_URL",),
        "",
        values.redis_url,
        "Redis or Valkey that counts the rate limit for all machines: redis://, rediss:// (TLS) or unix://. "
        "Empty: each machine counts for itself.",
        secret=True,
    ),
    Setting(
        "redis_timeout",
        ("LISTINGS_REDIS_TIMEOUT",),
        "250",
        values.integer_between(10, 10_000),
        "Milliseconds to wait for Redis. After a timeout, the machine counts by itself until Redis responds again.",
    ),
    Setting(
        "redis_required",
        ("LISTINGS_REDIS_REQUIRED",),
        "off",
        values.switch,
        "on: requests get 503 while Redis is unavailable. off: each machine counts by itself meanwhile.",
    ),
    Setting(
        "seed_file",
        ("LISTINGS_SEED_FILE",),
        "",
        values.optional_file,
        "Seed file (JSON): accounts and keys to create or update before the port opens.",
        flag="--seed",
    ),
    Setting(
        "cors_origins",
        ("LISTINGS_CORS_ORIGINS",),
        "",
        values.origins,
        "Origins whose web pages may call the API from a browser, separated by commas; * for all.",
    ),
    Setting(
        "site",
        ("LISTINGS_SITE",),
        "on",
        values.switch,
        "on: serve the market and the console. off: serve only the API; the market's index is not updated.",
    ),
    Setting(
        "base_url",
        ("LISTINGS_BASE_URL",),
        "",
        values.base_url,
        "Public URL of the pages, such as https://market.example. Empty: the host of each request.",
    ),
    Setting(
        "trusted_proxies",
        ("LISTINGS_TRUSTED_PROXIES",),
        "",
        values.networks,
        "Proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted: addresses or networks, separated by commas.",
    ),
    Setting(
        "header_timeout",
        ("LISTINGS_HEADER_TIMEOUT",),
        "10",
        values.integer_between(1, _MAX_TIMEOUT_SECONDS),
        "Seconds to receive a request's headers.",
    ),
    Setting(
        "body_timeout",
        ("LISTINGS_BODY_TIMEOUT",),
        "30",
        values.integer_between(1, _MAX_TIMEOUT_SECONDS),
        "Seconds to receive a request's body.",
    ),
    Setting(
        "idle_timeout",
        ("LISTINGS_IDLE_TIMEOUT",),
        "75",
        values.integer_between(1, _MAX_TIMEOUT_SECONDS),
        "Seconds that a connection may wait for its next request.",
    ),
    Setting(
        "write_timeout",
        ("LISTINGS_WRITE_TIMEOUT",),
        "30",
        values.integer_between(1, _MAX_TIMEOUT_SECONDS),
        "Seconds in which a client must receive 64 KiB of a response, or the rest of it.",
    ),
    Setting(
        "max_header_bytes",
        ("LISTINGS_MAX_HEADER_BYTES",),
        "16384",
        values.integer_between(1024, _MIB),
        "Maximum size of a request's headers, in bytes.",
    ),
    Setting(
        "max_headers",
        ("LISTINGS_MAX_HEADERS",),
        "100",
        values.integer_between(10, 1000),
        "Maximum number of headers in a request.",
    ),
    Setting(
        "max_url_bytes",
        ("LISTINGS_MAX_URL_BYTES",),
        "8192",
        values.integer_between(256, _MIB),
        "Maximum size of a request's URL, in bytes.",
    ),
    Setting(
        "max_body_bytes",
        ("LISTINGS_MAX_BODY_BYTES",),
        "2097152",
        values.integer_between(1024, 64 * _MIB),
        "Maximum size of a request's body, in bytes.",
    ),
    Setting(
        "max_connections",
        ("LISTINGS_MAX_CONNECTIONS",),
        "10000",
        values.integer_between(1, 1_000_000),
        "Maximum number of open connections per worker, if the system allows enough open files. Further ones get 503.",
    ),
    Setting(
        "list_cache_bytes",
        ("LISTINGS_LIST_CACHE_BYTES",),
        "16777216",
        values.integer_between(0, 1024 * _MIB),
        "Memory for cached responses (whole lists and single listings), in bytes; 0 turns the cache off.",
    ),
    Setting(
        "log_level",
        ("LISTINGS_LOG_LEVEL",),
        "info",
        values.log_level,
        "info (every request), warning (401, 403, 429 and problems) or error.",
    ),
    Setting(
        "log_format",
        ("LISTINGS_LOG_FORMAT",),
        "auto",
        values.log_format,
        "auto (text on a terminal, JSON lines otherwise), json or text.",
    ),
    Setting(
        "metrics_address",
        ("LISTINGS_METRICS_ADDRESS",),
        "",
        values.address,
        "Address that serves metrics for Prometheus: PORT on this machine, or HOST:PORT; port 0 lets the system choose "
        "one. Empty: no metrics.",
    ),
    Setting(
        "tracing",
        ("LISTINGS_TRACING",),
        "off",
        values.switch,
        "on: send a span of each request to OpenTelemetry; needs the extra listings[tracing].",
    ),
    Setting(
        "sign_up",
        ("LISTINGS_SIGN_UP",),
        "on",
        values.switch,
        "on: anyone can create an account in the console, without a plan. off: only the operator creates accounts.",
    ),
    Setting(
        "payment_provider",
        ("LISTINGS_PAYMENT_PROVIDER",),
        "manual",
        values.payment_provider,
        "Payments: manual (the operator collects them) or stripe; needs the extra listings[stripe].",
    ),
    Setting(
        "stripe_secret_key",
        ("LISTINGS_STRIPE_SECRET_KEY",),
        "",
        values.password,
        "Secret key of your Stripe account.",
        secret=True,
        is_password=True,
    ),
    Setting(
        "stripe_webhook_secret",
        ("LISTINGS_STRIPE_WEBHOOK_SECRET",),
        "",
        values.password,
        "Secret with which Stripe signs its events.",
        secret=True,
        is_password=True,
    ),
    Setting(
        "stripe_currency",
        ("LISTINGS_STRIPE_CURRENCY",),
        "nzd",
        values.currency,
        "Currency of the monthly price of 49 with Stripe: three lowercase letters.",
    ),
)

COPY_TARGET = Setting(
    "copy_to",
    ("LISTINGS_COPY_TO",),
    "",
    postgres_url.parse,
    "PostgreSQL database to which `listings copy` copies.",
    flag="--to",
    secret=True,
)
