"""The table of settings, the parsing of their values, and the precedence of their sources."""

import logging
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from listings import wiring
from listings.domain.errors import Problem
from listings.domain.postgres_url import PostgresUrl
from listings.settings import REMOVED, SETTINGS, Settings, build_settings, find_unknown_variables, load, resolve_all
from listings.settings.values import BucketUrl, SmtpAddress

MIB = 1024 * 1024
LOGO = Path(wiring.__file__).parent / "site" / "static" / "icon.svg"
ROWS = {setting.attribute: setting for setting in SETTINGS}

LIMITS = {
    "database_connections": (1, 1000),
    "database_timeout": (1, 3600),
    "port": (0, 65_535),
    "workers": (1, 64),
    "rate_limit": (0, 100_000),
    "rate_window": (1, 31 * 24 * 3600),
    "redis_timeout": (10, 10_000),
    "max_account_bytes": (0, 2**40),
    "max_account_listings": (0, 1_000_000_000),
    "max_account_stored_bytes": (0, 2**40),
    "max_account_picture_bytes": (0, 2**40),
    "change_days": (1, 3650),
    "deleted_days": (0, 36_500),
    "message_days": (0, 3_650),
    "trial_days": (0, 365),
    "max_connections": (1, 1_000_000),
    "list_cache_bytes": (0, 1024 * MIB),
}
SWITCHES = ["redis_required", "site", "exact_locations", "operator_page", "tracing", "sign_up"]
POSTGRES_URLS = [
    "postgresql://localhost/listings",
    "postgres://listings:secret@db.example:6432/listings?sslmode=verify-full",
    "postgresql:///listings?host=/run/postgresql",
    "postgresql://[::1]:5432/listings",
    "postgresql://one.example:5432,two.example/listings?target_session_attrs=read-write",
]
REDIS_URLS = {
    "redis://127.0.0.1": ("127.0.0.1", 6379, "", False, "", "", 0),
    "redis://127.0.0.1:6380/2": ("127.0.0.1", 6380, "", False, "", "", 2),
    "redis://[::1]:6379/": ("::1", 6379, "", False, "", "", 0),
    "redis://:pass@redis.example": ("redis.example", 6379, "", False, "", "pass", 0),
    "rediss://alice:p%40ss%2F@redis.example:6390/15": ("redis.example", 6390, "", True, "alice", "p@ss/", 15),
    "unix:///run/redis/redis.sock": ("", 6379, "/run/redis/redis.sock", False, "", "", 0),
    "unix://alice:pass@/run/with%20space.sock?db=3": ("", 6379, "/run/with space.sock", False, "alice", "pass", 3),
}
VALID = [
    ("database", "sqlite:///data/a.db", Path("data/a.db")),
    ("database", "sqlite:////var/lib/a.db", Path("/var/lib/a.db")),
    ("database", "sqlite:///with%20space%3F.db", Path("with space?.db")),
    ("database", "sqlite:///späß.db", Path("späß.db")),
    *(("database", url, PostgresUrl(url)) for url in POSTGRES_URLS),
    ("data_folder", "/var/lib/listings", Path("/var/lib/listings")),
    ("media_url", "file:///srv/my%20media", Path("/srv/my media")),
    ("media_url", "", None),
    ("media_url", "s3://pictures", BucketUrl("pictures", "")),
    ("media_url", "s3://my.bucket-1/a/b_c/", BucketUrl("my.bucket-1", "a/b_c")),
    ("media_base_url", "https://cdn.example/media/", "https://cdn.example/media"),
    ("host", "0.0.0.0", "0.0.0.0"),  # noqa: S104 - nothing listens here
    ("host", "::1", "::1"),
    ("host", "my-host.example", "my-host.example"),
    *(("redis", url, parts) for url, parts in REDIS_URLS.items()),
    ("seed_file", "/etc/with space.json", Path("/etc/with space.json")),
    ("cors_origins", "https://shop.example", frozenset({"https://shop.example"})),
    (
        "cors_origins",
        "https://shop.example , http://127.0.0.1:8080,http://[::1]:8080",
        frozenset({"https://shop.example", "http://127.0.0.1:8080", "http://[::1]:8080"}),
    ),
    ("cors_origins", "*", frozenset({"*"})),
    ("base_url", "https://market.example", "https://market.example"),
    ("base_url", "http://[::1]:8000/", "http://[::1]:8000"),
    ("base_url", "https://example.com/my.Shop/~a_b-1/", "https://example.com/my.Shop/~a_b-1"),
    ("contact", "help@market.example", "help@market.example"),
    ("smtp_url", "", None),
    ("smtp_url", "smtp+starttls://u:p%40@smtp.example", SmtpAddress("smtp.example", 587, "starttls", "u", "p@")),
    ("smtp_url", "smtps://smtp.example:2465", SmtpAddress("smtp.example", 2465, "tls", "", "")),
    ("smtp_url", "smtp://[::1]", SmtpAddress("::1", 25, "none", "", "")),
    ("smtp_url", "smtp://u:p@localhost", SmtpAddress("localhost", 25, "none", "u", "p")),
    ("mail_from", "no-reply@market.example", "no-reply@market.example"),
    ("contact", "https://market.example/help", "https://market.example/help"),
    ("market_name", "Tāone", "Tāone"),
    ("operator", "Jane of support", "Jane of support"),
    ("market_tagline", "Good things, near you", "Good things, near you"),
    ("market_logo", str(LOGO), LOGO),
    (
        "market_links",
        "Terms of use=https://market.example/terms, Help=http://market.example/help?a=b",
        (("Terms of use", "https://market.example/terms"), ("Help", "http://market.example/help?a=b")),
    ),
    ("trusted_proxies", "127.0.0.1", (ip_network("127.0.0.1"),)),
    ("trusted_proxies", "10.0.0.0/8 ,::1,fd00::/8", tuple(map(ip_network, ("10.0.0.0/8", "::1", "fd00::/8")))),
    ("log_level", "info", logging.INFO),
    ("log_level", "warning", logging.WARNING),
    ("log_level", "error", logging.ERROR),
    ("stripe_currency", "usd", "usd"),
    ("metrics_address", "9464", ("127.0.0.1", 9464)),
    ("metrics_address", "0", ("127.0.0.1", 0)),
    ("metrics_address", "my-host.example:65535", ("my-host.example", 65_535)),
    ("metrics_address", "[::1]:9464", ("::1", 9464)),
    ("plan_price", "49.50", 4_950),
    ("plan_price", "0.01", 1),
    ("plan_price", "999999", 99_999_900),
    ("payment_provider", "stripe", "stripe"),
    ("stripe_secret_key", "sk_live_51H", "sk_live_51H"),
    ("stripe_webhook_secret", "whsec_9/+=", "whsec_9/+="),
]
INVALID = [
    ("database", "data/listings.db"),
    ("database", "sqlite://data/listings.db"),
    ("database", "sqlite:///"),
    ("database", "sqlite:///:memory:"),
    ("database", "sqlite:///%00"),
    ("database", "mysql://localhost/listings"),
    ("database", "postgresql://"),
    ("database", "postgresql://[::1/listings"),
    ("database", "postgresql://localhost:65536/listings"),
    ("database", "postgresql://localhost/listings?sslmode"),
    ("host", "a b"),
    ("host", "127.0.0.1/8"),
    ("host", "127.0.0.1\n"),
    ("port", "80.0"),
    ("port", " 80"),
    ("port", "80\n"),
    ("port", "٨٠"),
    ("port", "8" * 5_000),
    ("rate_limit", "1e3"),
    ("rate_limit", "1_000"),
    ("media_url", "media"),
    ("media_url", "file://media"),
    ("media_url", "ftp://host/media"),
    ("media_url", "s3://"),
    ("media_url", "s3://UPPER/x"),
    ("media_url", "s3://bucket//x"),
    ("media_url", "s3://bucket/../x"),
    ("media_url", "s3://key:secret@bucket/x"),
    ("media_base_url", "cdn.example"),
    ("base_url", "market.example"),
    ("base_url", "https://example.com/a?b"),
    ("base_url", "https://user@market.example"),
    ("base_url", "https://market.example\n"),
    ("contact", "the operator"),
    ("smtp_url", "smtp://smtp.example"),
    ("smtp_url", "smtp://localhost:***@smtp.example:25"),
    ("smtp_url", "smtps://u@smtp.example"),
    ("smtp_url", "smtps://smtp.example:65536"),
    ("mail_from", "Listings <no-reply@market.example>"),
    ("contact", "javascript:alert(1)"),
    ("market_name", "two\nlines"),
    ("operator", "x" * 61),
    ("market_tagline", "x" * 61),
    ("market_logo", "logo.gif"),
    ("market_logo", "/nothing/logo.svg"),
    ("market_logo", "x" * 300 + ".svg"),
    ("market_links", "https://market.example/terms"),
    ("market_links", "Terms=javascript:alert(1)"),
    ("trusted_proxies", "everyone"),
    ("trusted_proxies", "10.0.0.1/8"),
    ("trusted_proxies", "127.0.0.1 10.0.0.1"),
    ("redis", "127.0.0.1:6379"),
    ("redis", "http://127.0.0.1:6379"),
    ("redis", "redis://"),
    ("redis", "redis:///0"),
    ("redis", "redis://127.0.0.1:65536"),
    ("redis", "redis://127.0.0.1:6379/zero"),
    ("redis", "redis://127.0.0.1:6379/0?db=1"),
    ("redis", "redis://a b"),
    ("redis", "redis://a@b@c"),
    ("redis", "unix://run/redis.sock"),
    ("redis", "unix:///run/redis.sock?database=1"),
    ("redis", "redis://127.0.0.1\n"),
    ("cors_origins", "shop.example"),
    ("cors_origins", "https://shop.example/"),
    ("cors_origins", "https://shop.example:port"),
    ("cors_origins", "https://*.example"),
    ("cors_origins", "ftp://shop.example"),
    ("cors_origins", "https://shop.example;https://other.example"),
    ("cors_origins", "null"),
    ("log_level", "INFO"),
    ("log_level", "debug"),
    ("stripe_currency", "NZD"),
    ("stripe_currency", "dollars"),
    ("metrics_address", "localhost"),
    ("metrics_address", ":9464"),
    ("metrics_address", "::1:9464"),
    ("metrics_address", "[localhost]:9464"),
    ("metrics_address", "127.0.0.1:"),
    ("metrics_address", "65536"),
    ("metrics_address", "127.0.0.1:9464\n"),
    ("metrics_address", "٩٤٦٤"),
    ("plan_price", "0"),
    ("plan_price", "0.00"),
    ("plan_price", "$49"),
    ("plan_price", "49.5"),
    ("plan_price", "-49"),
    ("plan_price", "1000000"),
    ("plan_price", "49\n"),
    ("payment_provider", "paypal"),
    ("stripe_secret_key", "sk live"),
    ("stripe_webhook_secret", "wh\u00fcsec"),
]


def reject(environment: dict[str, str], flags: dict[str, str | None] | None = None) -> str:
    """Return the error of invalid settings."""
    with pytest.raises(Problem) as raised:
        load(environment, flags or {})
    assert raised.value.code == "invalid_setting"
    return raised.value.message


def require_valid(attribute: str, text: str, value: Any) -> None:
    """Check that a variable and a flag set one setting to a value."""
    expected = replace(load({}, {}), **{attribute: value})
    assert load({ROWS[attribute].variables[0]: text}, {}) == expected
    assert load({}, {attribute: text}) == expected


def require_invalid(attribute: str, text: str) -> None:
    """Check that the error of an invalid value names each variable and quotes the value, unless it is a password."""
    for variable in ROWS[attribute].variables:
        message = reject({variable: text})
        assert message.startswith(f"{variable} must be ")
        assert repr("***" if ROWS[attribute].is_password else text[:60]) in message
        assert len(message) < 250


def test_deleted_listings_are_stored_as_long_as_changes() -> None:
    with pytest.raises(Problem, match="must be 0 or at least LISTINGS_CHANGE_DAYS, which is 90, got '89'"):
        load({"LISTINGS_DELETED_DAYS": "89"}, {})
    assert load({"LISTINGS_DELETED_DAYS": "90"}, {}).deleted_days == 90


def test_every_default_can_be_set_explicitly() -> None:
    for setting in SETTINGS:
        assert load(dict.fromkeys(setting.variables, setting.default), {}) == load({}, {})


def test_every_setting_is_tested_with_valid_and_invalid_values() -> None:
    tested = {*LIMITS, *SWITCHES}
    assert tested | {attribute for attribute, *_ in VALID} == ROWS.keys()
    assert tested | {attribute for attribute, _ in INVALID} == ROWS.keys() - {"seed_file", "data_folder"}  # any path


def test_the_defaults_apply_if_nothing_is_set() -> None:
    assert load({}, {}) == Settings(
        database=Path("data/listings.db"),
        database_connections=8,
        database_timeout=5,
        data_folder=Path("data"),
        media_url=None,
        media_base_url="",
        host="127.0.0.1",
        port=8000,
        workers=1,
        rate_limit=1000,
        rate_window=3600,
        redis=None,
        redis_timeout=250,
        redis_required=False,
        seed_file=None,
        cors_origins=frozenset(),
        site=True,
        base_url="",
        contact="",
        market_name="Listings",
        market_tagline="Find it in Aotearoa",
        market_logo=None,
        market_links=(),
        smtp_url=None,
        mail_from="",
        exact_locations=False,
        operator_page=False,
        plan_price=4_900,
        trusted_proxies=(),
        max_account_listings=100_000,
        max_account_bytes=2**30,
        max_account_stored_bytes=0,
        max_account_picture_bytes=10 * 1024**3,
        change_days=90,
        deleted_days=0,
        message_days=90,
        trial_days=14,
        max_connections=10_000,
        list_cache_bytes=16 * MIB,
        operator="",
        log_level=logging.INFO,
        stripe_currency="nzd",
        metrics_address=None,
        tracing=False,
        sign_up=True,
        payment_provider="manual",
        stripe_secret_key="",
        stripe_webhook_secret="",
    )


def test_each_integer_setting_has_its_limits() -> None:
    for attribute, (minimum, maximum) in LIMITS.items():
        require_valid(attribute, str(minimum), minimum)
        require_valid(attribute, str(maximum), maximum)
        for text in (str(minimum - 1), str(maximum + 1), "ten"):
            require_invalid(attribute, text)


def test_a_switch_is_on_or_off() -> None:
    for attribute in SWITCHES:
        require_valid(attribute, "on", value=True)
        require_valid(attribute, "off", value=False)
        for text in ("true", "1", "On"):
            require_invalid(attribute, text)


def test_valid_values_are_parsed() -> None:
    for attribute, text, value in VALID:
        require_valid(attribute, text, value)


def test_invalid_values_are_rejected_with_their_variable() -> None:
    for attribute, text in INVALID:
        require_invalid(attribute, text)


def test_the_path_of_the_base_url_needs_no_encoding() -> None:
    for path in ("/..", "/../a", "/a/.", "//", "/a//", "/a//b", "/a#b", "/%61", "/a b", "/a;b", "/é"):
        require_invalid("base_url", f"https://example.com{path}")


def test_an_invalid_flag_is_rejected_with_its_name() -> None:
    for attribute, flag in (("port", "--port"), ("rate_limit", "--rate-limit"), ("database", "--database-url")):
        assert reject({}, {attribute: "invalid"}).startswith(f"{flag} must be ")


def test_a_flag_takes_precedence_over_the_environment() -> None:
    assert load({"LISTINGS_PORT": "1", "PORT": "2"}, {"port": "3"}).port == 3


def test_without_a_flag_the_environment_applies() -> None:
    assert load({"LISTINGS_PORT": "1"}, {"port": None}).port == 1


@pytest.mark.parametrize(
    ("environment", "port"),
    [
        ({"LISTINGS_PORT": "1", "PORT": "2"}, 1),
        ({"PORT": "2"}, 2),
        ({"LISTINGS_PORT": "", "PORT": "2"}, 2),
        ({"LISTINGS_PORT": "0", "PORT": "2"}, 0),
        ({"LISTINGS_PORT": "", "PORT": ""}, 8000),
    ],
)
def test_the_first_variable_that_is_not_empty_applies(environment: dict[str, str], port: int) -> None:
    assert load(environment, {}).port == port


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("postgresql://localhost", "must name a database"),
        ("postgresql://localhost/", "must name a database"),
        ("postgresql://u:1/w@localhost/listings", "must be like postgresql://"),
        ("postgresql://u:1/w#x@localhost/listings", "must be like postgresql://"),
        ("postgresql://localhost/listings?sslmode=on", "must have one of disable, allow, prefer"),
        ("postgresql://localhost/listings?ssl=true", "must not have the unsupported parameter ssl"),
    ],
)
def test_the_error_of_a_postgresql_url_names_the_problem(url: str, error: str) -> None:
    assert reject({"LISTINGS_DATABASE_URL": url}).startswith(f"LISTINGS_DATABASE_URL {error}")


def test_local_files_are_next_to_the_database_or_in_the_data_folder() -> None:
    assert load({}, {"database": "sqlite:///a/b.db"}).file == Path("a/b.db")
    settings = load({}, {"database": "postgresql://u:secret@db.example/listings", "data_folder": "/srv"})
    assert settings.file == Path("/srv/postgresql")
    assert settings.redacted_database == "postgresql://db.example/listings"


def test_a_value_without_effect_is_not_validated() -> None:
    assert load({"LISTINGS_PORT": "1", "PORT": "wrong"}, {}).port == 1
    assert load({"LISTINGS_PORT": "wrong"}, {"port": "3"}).port == 3


def test_other_variables_are_ignored() -> None:
    assert load({"HOST": "elsewhere", "DATABASE_URL": "postgresql://", "LISTINGS_SURPRISE": "x"}, {}) == load({}, {})


@pytest.mark.decision("G37")
@pytest.mark.parametrize("variable", REMOVED)
def test_a_removed_setting_with_another_value_prevents_the_start(variable: str) -> None:
    expected = f"{variable} is no longer a setting, and its value is always {REMOVED[variable]}: unset it"
    assert reject({variable: "7"}) == expected


@pytest.mark.decision("G37")
def test_a_removed_setting_with_its_fixed_value_is_ignored() -> None:
    assert load(REMOVED, {}) == load(dict.fromkeys(REMOVED, ""), {}) == load({}, {})


def test_a_removed_setting_is_not_an_unknown_variable() -> None:
    assert find_unknown_variables(REMOVED) == []


def test_a_removed_setting_is_not_in_the_table() -> None:
    assert not REMOVED.keys() & {variable for setting in SETTINGS for variable in setting.variables}


def test_resolved_settings_include_errors_and_valid_values() -> None:
    resolved = {
        each.setting.attribute: each for each in resolve_all({"LISTINGS_PORT": "x", "LISTINGS_RATE_LIMIT": "7"}, {})
    }
    assert resolved.keys() == ROWS.keys()
    assert resolved["port"].error.startswith("LISTINGS_PORT must be ")
    assert (resolved["rate_limit"].text, resolved["rate_limit"].source, resolved["rate_limit"].error) == (
        "7",
        "LISTINGS_RATE_LIMIT",
        "",
    )
    assert build_settings(resolved.values()) == replace(load({}, {}), rate_limit=7)


def test_only_a_secret_is_read_from_a_file() -> None:
    assert load({"LISTINGS_HOST_FILE": "/nowhere", "PORT_FILE": "/nowhere"}, {}) == load({}, {})


def test_with_a_flag_the_variables_of_a_secret_are_not_read() -> None:
    environment = {"LISTINGS_DATABASE_URL": "wrong", "LISTINGS_DATABASE_URL_FILE": "/nowhere"}
    assert load(environment, {"database": "sqlite:///a.db"}).database == Path("a.db")
