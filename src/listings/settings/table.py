"""The table of settings: the fields of `Settings` with their types, bounds, defaults and descriptions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta

from listings.domain import postgres_url
from listings.domain.postgres_url import PostgresUrl
from listings.settings import values
from listings.settings.values import (
    Address,
    BucketUrl,
    Contact,
    Currency,
    Email,
    Host,
    Line,
    Operator,
    Password,
    RedisAddress,
    SmtpAddress,
)

Timeout = Annotated[int, Meta(ge=1, le=3600)]

_MIB = 1024 * 1024
_MAX_WINDOW_SECONDS = 31 * 24 * 3600
_DEFAULT_DATA_FOLDER = "data"
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound


class Setting(NamedTuple):
    """A row of the table."""

    attribute: str
    type: Any
    help: str
    variables: tuple[str, ...]  # the first one that is set and not empty applies
    flag: str  # such as `--port`
    default: str = ""
    parser: Callable[[str], Any] | None = None  # if the type does not suffice; raises like `parse`
    secret: bool = False  # may contain a password
    is_password: bool = False  # the whole value is a password; `secret` is also set

    def parse(self, text: str) -> Any:
        """Return the value. Raises ValueError, whose message begins with "must"."""
        return self.parser(text) if self.parser is not None else values.parse(text, self.type)


def setting(help: str, default: str = "", **options: Any) -> Any:  # noqa: A002 - a field of `Setting`
    """Describe a field of `Settings`. Its variable and flag are derived from its name, unless they are given."""
    return field(metadata={"help": help, "default": default, **options})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The parsed values. `SETTINGS` is the table of their descriptions."""

    database: Path | PostgresUrl = setting(
        "The database: sqlite:///PATH (relative to the working directory), sqlite:////PATH (absolute), or "
        "postgresql://USER:PASSWORD@HOST/DATABASE.",
        "sqlite:///data/listings.db",
        parser=values.parse_database_url,
        variables=("LISTINGS_DATABASE_URL",),
        flag="--database-url",
        secret=True,
    )
    database_connections: Annotated[int, Meta(ge=1, le=1000)] = setting(
        "Maximum number of connections to PostgreSQL per process.", "8"
    )
    database_timeout: Timeout = setting(
        "Seconds that a statement in PostgreSQL may take, and that a request may wait for a connection.", "5"
    )
    data_folder: Path = setting(
        "With PostgreSQL: the folder for the files of the rate limit and of large lists that are being sent.",
        _DEFAULT_DATA_FOLDER,
        parser=Path,
    )
    media_url: Path | BucketUrl | None = setting(
        "Uploaded pictures: the folder file:///PATH, or s3://BUCKET/PREFIX, which needs the packages in "
        "requirements/s3.txt. It belongs to this database alone; several machines share it. Empty: the folder media "
        "next to the other files.",
        parser=values.parse_media_url,
    )
    media_base_url: str = setting(
        "With s3://: the public URL of the bucket with the prefix, or of a CDN in front of it. Browsers load pictures "
        "from there.",
        parser=values.parse_base_url,
    )
    host: Host = setting("Address to listen on.", "127.0.0.1")
    port: Annotated[int, Meta(ge=0, le=values.MAX_PORT)] = setting(
        "Port to listen on; 0 lets the system choose one.", "8000", variables=("LISTINGS_PORT", "PORT")
    )
    workers: Annotated[int, Meta(ge=1, le=64)] = setting(
        "Number of worker processes. With 2 or more, a supervisor process is added.", "1"
    )
    rate_limit: Annotated[int, Meta(ge=0, le=100_000)] = setting(
        "Requests per key in each window; 0 turns the rate limit off.", "1000"
    )
    rate_window: Annotated[int, Meta(ge=1, le=_MAX_WINDOW_SECONDS)] = setting(
        "Length of the rate limit's sliding window, in seconds.", "3600"
    )
    redis: RedisAddress | None = setting(
        "Redis or Valkey that counts the rate limit for all machines: redis://, rediss:// (TLS) or unix://. "
        "Empty: each machine counts for itself.",
        parser=values.parse_redis_url,
        variables=("LISTINGS_REDIS_URL",),
        secret=True,
    )
    redis_timeout: Annotated[int, Meta(ge=10, le=10_000)] = setting(
        "Milliseconds to wait for Redis. After a timeout, the machine counts by itself until Redis responds again.",
        "250",
    )
    redis_required: bool = setting(
        "on: requests get 503 while Redis is unavailable. off: each machine counts by itself meanwhile.", "off"
    )
    seed_file: Path | None = setting(
        "Seed file (JSON): accounts to create or update, and keys to create, before the port opens.",
        parser=values.parse_optional_path,
        flag="--seed",
    )
    cors_origins: frozenset[str] = setting(
        "Origins whose web pages may call the API from a browser, separated by commas; * for all.",
        parser=values.parse_origins,
    )
    site: bool = setting(
        "on: serve the market and the console. off: serve only the API; the market's index is not updated.", "on"
    )
    base_url: str = setting(
        "Public URL of the service, such as https://market.example: in pages, in the OpenAPI document, and in the "
        "headers Link and Location. With a path, such as https://example.com/shop, the service is below it. Empty: the "
        "host of each request; Link and Location are relative.",
        parser=values.parse_base_url,
    )
    contact: Contact = setting(
        "Email address or URL of the people to ask; shown on pages, in mail and in the OpenAPI document. If it is "
        "an email address, requests for the plan are mailed to it.",
    )
    market_name: Line = setting("Name of the market, shown on every page and as the sender of mail.", "Listings")
    market_tagline: Line = setting("Heading of the market's home page.", "Find it in Aotearoa")
    market_logo: Path | None = setting(
        "File with the market's logo (SVG or PNG, at most 100 KiB). Empty: the built-in icon.", parser=values.parse_logo
    )
    market_links: tuple[tuple[str, str], ...] = setting(
        "Links at the foot of every page, such as Terms=https://market.example/terms, separated by commas.",
        parser=values.parse_links,
    )
    smtp_url: SmtpAddress | None = setting(
        "SMTP server that sends mail: smtp+starttls://USER:PASSWORD@HOST:PORT, smtps:// (TLS), or smtp:// without TLS, "
        "only on this machine. Needs LISTINGS_MAIL_FROM and LISTINGS_BASE_URL. Empty: no mail.",
        parser=values.parse_smtp_url,
        secret=True,
    )
    mail_from: Email = setting("Email address that mail is sent from.")
    exact_locations: bool = setting(
        "on: pages show the coordinates of a listing as sent. off: rounded to two decimals, about a kilometre.", "off"
    )
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = setting(
        "Proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted: addresses or networks, separated by commas.",
        parser=values.parse_networks,
    )
    max_account_listings: Annotated[int, Meta(ge=0, le=1_000_000_000)] = setting(
        "Maximum number of listings of an account that are not deleted; 0 turns the limit off.", "100000"
    )
    max_account_bytes: Annotated[int, Meta(ge=0, le=1024 * 1024 * _MIB)] = setting(
        "Maximum size of the titles, descriptions and image URLs of an account's listings that are not deleted, in "
        "bytes; 0 turns the limit off.",
        "1073741824",
    )
    max_account_stored_bytes: Annotated[int, Meta(ge=0, le=1024 * 1024 * _MIB)] = setting(
        "Maximum size of all that is stored for an account: the texts of LISTINGS_MAX_ACCOUNT_BYTES, changes and "
        "deleted listings, of which the oldest are removed beyond it. 0: four times the texts of the account, at least "
        "268435456, and at most four times LISTINGS_MAX_ACCOUNT_BYTES.",
        "0",
    )
    max_account_picture_bytes: Annotated[int, Meta(ge=0, le=1024 * 1024 * _MIB)] = setting(
        "Maximum size of the files of an account's pictures, in bytes; 0 turns the limit off. Beyond it, the longest "
        "unused pictures are removed first.",
        "10737418240",
    )
    change_days: Annotated[int, Meta(ge=1, le=3650)] = setting(
        "Days for which the changes of listings are stored. The activity in the console shows at most the last 90.",
        "90",
    )
    deleted_days: Annotated[int, Meta(ge=0, le=36500)] = setting(
        "Days after which a deleted listing is removed permanently, at least LISTINGS_CHANGE_DAYS. 0: only when its "
        "account stores too much.",
        "0",
    )
    message_days: Annotated[int, Meta(ge=0, le=3650)] = setting(
        "Days for which sellers see buyers' messages in the console. 0: messages are only sent and counted.",
        "90",
    )
    trial_days: Annotated[int, Meta(ge=0, le=365)] = setting(
        "Days after the confirmation of the email address in which a seller without a plan can use test mode. 0: none.",
        "14",
    )
    max_connections: Annotated[int, Meta(ge=1, le=1_000_000)] = setting(
        "Maximum number of open connections per worker, if the system allows enough open files. Further ones get 503.",
        "10000",
    )
    list_cache_bytes: Annotated[int, Meta(ge=0, le=1024 * _MIB)] = setting(
        "Memory for cached responses (whole lists and single listings), in bytes; 0 turns the cache off.", "16777216"
    )
    operator_page: bool = setting(
        "on: serve /operator, a page for the operators that `listings operator add` names, with a second factor.", "off"
    )
    operator: Operator = setting(
        "Name of the person who runs a command, for the log. Empty: the system user. The service does not use it."
    )
    log_level: int = setting(
        "info (every request), warning (requests with 401, 403, 429 or 5xx, and all warnings and errors) or error.",
        "info",
        parser=values.parse_log_level,
    )
    metrics_address: Address | None = setting(
        "Address that serves metrics for Prometheus: PORT on this machine, or HOST:PORT; port 0 lets the system choose "
        "one. Empty: no metrics.",
        parser=values.parse_address,
    )
    tracing: bool = setting(
        "on: send a span of each request to OpenTelemetry; needs the packages in requirements/tracing.txt.", "off"
    )
    sign_up: bool = setting(
        "on: anyone can create an account in the console, without a plan. off: only the operator creates accounts.",
        "on",
    )
    plan_price: int = setting(
        "Price of the Business plan for a month, such as 49 or 49.50, in the currency of LISTINGS_STRIPE_CURRENCY.",
        "49",
        parser=values.parse_price,
    )
    payment_provider: Literal["manual", "stripe"] = setting(
        "Payments: manual (the operator collects them) or stripe, which needs the packages in requirements/stripe.txt.",
        "manual",
    )
    stripe_secret_key: Password = setting("Secret key of your Stripe account.", secret=True, is_password=True)
    stripe_webhook_secret: Password = setting(
        "Secret with which Stripe signs its events.", secret=True, is_password=True
    )
    stripe_currency: Currency = setting(
        "Currency of the plan's price, also without Stripe: three lowercase letters.", "nzd"
    )

    @property
    def file(self) -> Path:
        """The SQLite file. With PostgreSQL, the path with which those of this machine's own files begin."""
        return self.database if isinstance(self.database, Path) else self.data_folder / "postgresql"

    @property
    def media_folder(self) -> Path:
        """The folder for uploaded pictures. With S3, for those that are being stored."""
        return self.media_url if isinstance(self.media_url, Path) else self.file.absolute().parent / "media"

    @property
    def warning(self) -> str:
        """A sentence about a setting that has no effect with the others, or ""."""
        if isinstance(self.database, Path) and str(self.data_folder) != _DEFAULT_DATA_FOLDER:
            return "LISTINGS_DATA_FOLDER has no effect with SQLite: all files are next to the database"
        if self.media_base_url and not isinstance(self.media_url, BucketUrl):
            return "LISTINGS_MEDIA_BASE_URL has no effect without s3:// in LISTINGS_MEDIA_URL"
        return ""

    @property
    def conflict(self) -> str:
        """A sentence about settings that exclude each other, or ""."""
        if 0 < self.deleted_days < self.change_days:
            expected = f"0 or at least LISTINGS_CHANGE_DAYS, which is {self.change_days}"
            return f"LISTINGS_DELETED_DAYS must be {expected}, got '{self.deleted_days}'"
        return ""

    @property
    def reachable_host(self) -> str:
        """The host at which a client on this machine reaches the service."""
        return _LOOPBACK.get(self.host, self.host)

    @property
    def redacted_database(self) -> str:
        """The location of the data, without a password."""
        return str(self.database.absolute()) if isinstance(self.database, Path) else self.database.redacted


def _build_row(attribute: str, type_: Any, options: Mapping[str, Any]) -> Setting:
    derived = {"variables": (f"LISTINGS_{attribute.upper()}",), "flag": f"--{attribute.replace('_', '-')}"}
    return Setting(attribute, type_, **{**derived, **options})


SETTINGS = tuple(_build_row(each.name, each.type, each.metadata) for each in fields(Settings))

COPY_TARGET = Setting(
    "copy_to",
    PostgresUrl,
    "PostgreSQL database to which `listings copy` copies.",
    ("LISTINGS_COPY_TO",),
    "--to",
    parser=postgres_url.parse,
    secret=True,
)

REMOVED = {
    "LISTINGS_BODY_TIMEOUT": "30",
    "LISTINGS_HEADER_TIMEOUT": "10",
    "LISTINGS_IDLE_TIMEOUT": "75",
    "LISTINGS_LIST_FILE_BYTES": "4294967296",
    "LISTINGS_LOG_FORMAT": "auto",
    "LISTINGS_MAX_BODY_BYTES": "2097152",
    "LISTINGS_MAX_HEADERS": "100",
    "LISTINGS_MAX_HEADER_BYTES": "16384",
    "LISTINGS_MAX_URL_BYTES": "8192",
    "LISTINGS_WRITE_TIMEOUT": "30",
}
"""Variables that no longer have an effect, with the only value that they may have."""
