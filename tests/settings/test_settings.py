"""The table of settings, and which value comes into force."""

import logging
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from listings.domain.errors import Problem
from listings.domain.postgres_url import PostgresUrl
from listings.settings import SETTINGS, Setting, Settings, load, settings_of, survey

MEBIBYTE = 1024 * 1024
ROWS = {setting.attribute: setting for setting in SETTINGS}

BOUNDS = {
    "database_connections": (1, 1000),
    "database_timeout": (1, 3600),
    "port": (0, 65_535),
    "workers": (1, 64),
    "rate_limit": (0, 100_000),
    "rate_window": (1, 31 * 24 * 3600),
    "redis_timeout": (10, 10_000),
    "header_timeout": (1, 3600),
    "body_timeout": (1, 3600),
    "idle_timeout": (1, 3600),
    "write_timeout": (1, 3600),
    "max_header_bytes": (1024, MEBIBYTE),
    "max_headers": (10, 1000),
    "max_url_bytes": (256, MEBIBYTE),
    "max_body_bytes": (1024, 64 * MEBIBYTE),
    "max_connections": (1, 1_000_000),
    "list_cache_bytes": (0, 1024 * MEBIBYTE),
}
GOOD = [
    ("database", "sqlite:///a.db", Path("a.db")),
    ("database", "sqlite:///data/a.db", Path("data/a.db")),
    ("database", "sqlite:////var/lib/a.db", Path("/var/lib/a.db")),
    ("database", "sqlite:///with%20space%3F.db", Path("with space?.db")),
    ("database", "sqlite:///späß.db", Path("späß.db")),
    *(
        ("database", url, PostgresUrl(url))
        for url in (
            "postgresql://localhost/listings",
            "postgres://listings:secret@db.example:6432/listings?sslmode=verify-full",
            "postgresql:///listings?host=/run/postgresql",
            "postgresql://[::1]:5432/listings",
            "postgresql://one.example:5432,two.example/listings?target_session_attrs=read-write",
        )
    ),
    ("data_folder", "/var/lib/listings", Path("/var/lib/listings")),
    ("host", "127.0.0.1", "127.0.0.1"),
    ("host", "0.0.0.0", "0.0.0.0"),  # noqa: S104 - nothing listens here
    ("host", "::1", "::1"),
    ("host", "localhost", "localhost"),
    ("host", "my-host.example", "my-host.example"),
    *(
        ("redis", url, (host, port, path, tls, user, password, database))
        for url, host, port, path, tls, user, password, database in (
            ("redis://127.0.0.1", "127.0.0.1", 6379, "", False, "", "", 0),
            ("redis://127.0.0.1:6380/2", "127.0.0.1", 6380, "", False, "", "", 2),
            ("redis://[::1]:6379/", "::1", 6379, "", False, "", "", 0),
            ("redis://:pass@redis.example", "redis.example", 6379, "", False, "", "pass", 0),
            ("rediss://alice:p%40ss%2F@redis.example:6390/15", "redis.example", 6390, "", True, "alice", "p@ss/", 15),
            ("unix:///run/redis/redis.sock", "", 6379, "/run/redis/redis.sock", False, "", "", 0),
            (
                "unix://alice:pass@/run/with%20space.sock?db=3",
                "",
                6379,
                "/run/with space.sock",
                False,
                "alice",
                "pass",
                3,
            ),
        )
    ),
    ("redis_required", "on", True),
    ("redis_required", "off", False),
    ("seed_file", "seed.json", Path("seed.json")),
    ("seed_file", "/etc/with space.json", Path("/etc/with space.json")),
    ("cors_origins", "https://shop.example", frozenset({"https://shop.example"})),
    (
        "cors_origins",
        "https://shop.example , http://127.0.0.1:8080,http://[::1]:8080",
        frozenset({"https://shop.example", "http://127.0.0.1:8080", "http://[::1]:8080"}),
    ),
    ("cors_origins", "*", frozenset({"*"})),
    ("site", "on", True),
    ("site", "off", False),
    ("base_url", "https://market.example", "https://market.example"),
    ("base_url", "http://[::1]:8000/", "http://[::1]:8000"),
    ("trusted_proxies", "127.0.0.1", (ip_network("127.0.0.1"),)),
    ("trusted_proxies", "10.0.0.0/8 ,::1,fd00::/8", tuple(map(ip_network, ("10.0.0.0/8", "::1", "fd00::/8")))),
    ("log_level", "info", logging.INFO),
    ("log_level", "warning", logging.WARNING),
    ("log_level", "error", logging.ERROR),
    ("log_format", "auto", "auto"),
    ("log_format", "json", "json"),
    ("log_format", "text", "text"),
    ("metrics_address", "9464", ("127.0.0.1", 9464)),
    ("metrics_address", "0", ("127.0.0.1", 0)),
    ("metrics_address", "0.0.0.0:9464", ("0.0.0.0", 9464)),  # noqa: S104 - nothing listens here
    ("metrics_address", "my-host.example:65535", ("my-host.example", 65_535)),
    ("metrics_address", "[::1]:9464", ("::1", 9464)),
    ("tracing", "on", True),
    ("tracing", "off", False),
    ("sign_up", "on", True),
    ("sign_up", "off", False),
    ("payment_provider", "manual", "manual"),
    ("payment_provider", "stripe", "stripe"),
    ("stripe_secret_key", "sk_live_51H", "sk_live_51H"),
    ("stripe_webhook_secret", "whsec_9/+=", "whsec_9/+="),
    ("stripe_currency", "usd", "usd"),
    *((attribute, str(value), value) for attribute, bounds in BOUNDS.items() for value in bounds),
]
WRONG = [
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
    ("host", "http://127.0.0.1"),
    ("host", "127.0.0.1/8"),
    ("host", "127.0.0.1\n"),
    ("port", "80.0"),
    ("port", " 80"),
    ("port", "80\n"),
    ("port", "٨٠"),
    ("port", "8" * 5_000),
    ("port", "http"),
    ("site", "yes"),
    ("base_url", "market.example"),
    ("base_url", "https://market.example/shop"),
    ("base_url", "https://user@market.example"),
    ("base_url", "https://market.example\n"),
    ("trusted_proxies", "everyone"),
    ("trusted_proxies", "10.0.0.1/8"),
    ("trusted_proxies", "127.0.0.1 10.0.0.1"),
    ("rate_limit", "none"),
    ("rate_limit", "1e3"),
    ("rate_limit", "1_000"),
    ("rate_window", "1h"),
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
    ("redis_required", "true"),
    ("cors_origins", "shop.example"),
    ("cors_origins", "https://shop.example/"),
    ("cors_origins", "https://shop.example:port"),
    ("cors_origins", "https://*.example"),
    ("cors_origins", "ftp://shop.example"),
    ("cors_origins", "https://shop.example;https://other.example"),
    ("cors_origins", "null"),
    ("log_level", "INFO"),
    ("log_level", "debug"),
    ("log_level", "20"),
    ("log_format", "JSON"),
    ("log_format", "xml"),
    ("metrics_address", "localhost"),
    ("metrics_address", ":9464"),
    ("metrics_address", "::1:9464"),
    ("metrics_address", "[localhost]:9464"),
    ("metrics_address", "127.0.0.1:"),
    ("metrics_address", "65536"),
    ("metrics_address", "127.0.0.1:9464\n"),
    ("metrics_address", "http://127.0.0.1:9464/metrics"),
    ("metrics_address", "٩٤٦٤"),
    ("tracing", "1"),
    ("tracing", "On"),
    ("sign_up", "open"),
    ("payment_provider", "paypal"),
    ("stripe_secret_key", "sk live"),
    ("stripe_webhook_secret", "wh\u00fcsec"),
    ("stripe_currency", "NZD"),
    ("stripe_currency", "dollars"),
    *((attribute, str(bounds[0] - 1)) for attribute, bounds in BOUNDS.items()),
    *((attribute, str(bounds[1] + 1)) for attribute, bounds in BOUNDS.items()),
    *((attribute, "ten") for attribute in BOUNDS),
]


def refusal(environment: dict[str, str], flags: dict[str, str | None] | None = None) -> str:
    with pytest.raises(Problem) as raised:
        load(environment, flags or {})
    assert raised.value.code == "invalid_setting"
    return raised.value.message


# The table


def test_there_is_a_row_for_each_setting_in_its_order() -> None:
    assert tuple(setting.attribute for setting in SETTINGS) == Settings._fields


def test_no_variable_means_two_settings() -> None:
    variables = [variable for setting in SETTINGS for variable in setting.variables]
    assert len(set(variables)) == len(variables)


@pytest.mark.parametrize("setting", SETTINGS, ids=ROWS)
def test_the_first_variable_begins_with_the_programs_name(setting: Setting) -> None:
    assert setting.variables[0].startswith(f"LISTINGS_{setting.attribute.upper()}")


@pytest.mark.parametrize("setting", SETTINGS, ids=ROWS)
def test_each_setting_is_explained(setting: Setting) -> None:
    assert setting.help.endswith(".")


@pytest.mark.parametrize("setting", SETTINGS, ids=ROWS)
def test_each_default_is_as_good_when_it_is_set(setting: Setting) -> None:
    assert load(dict.fromkeys(setting.variables, setting.default), {}) == load({}, {})


def test_every_row_is_tried_here() -> None:
    assert {attribute for attribute, *_ in GOOD} == ROWS.keys()
    assert {attribute for attribute, _ in WRONG} == ROWS.keys() - {"seed_file", "data_folder"}  # any text is a path


# Values


def test_the_defaults_are_in_force_when_nothing_is_set() -> None:
    assert load({}, {}) == Settings(
        database=Path("data/listings.db"),
        database_connections=8,
        database_timeout=5,
        data_folder=Path("data"),
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
        trusted_proxies=(),
        header_timeout=10,
        body_timeout=30,
        idle_timeout=75,
        write_timeout=30,
        max_header_bytes=16 * 1024,
        max_headers=100,
        max_url_bytes=8 * 1024,
        max_body_bytes=2 * MEBIBYTE,
        max_connections=10_000,
        list_cache_bytes=16 * MEBIBYTE,
        log_level=logging.INFO,
        log_format="auto",
        metrics_address=None,
        tracing=False,
        sign_up=True,
        payment_provider="manual",
        stripe_secret_key="",
        stripe_webhook_secret="",
        stripe_currency="nzd",
    )


@pytest.mark.parametrize(("attribute", "text", "value"), GOOD)
def test_a_good_value_comes_into_force_alone(attribute: str, text: str, value: Any) -> None:
    settings = load({ROWS[attribute].variables[0]: text}, {})
    assert settings == load({}, {})._replace(**{attribute: value})


@pytest.mark.parametrize(("attribute", "text", "value"), GOOD)
def test_a_flag_means_what_the_variable_means(attribute: str, text: str, value: Any) -> None:
    assert load({}, {attribute: text}) == load({}, {})._replace(**{attribute: value})


@pytest.mark.parametrize(("attribute", "text"), WRONG)
def test_a_wrong_value_is_refused_by_its_variables_name(attribute: str, text: str) -> None:
    for variable in ROWS[attribute].variables:
        said = refusal({variable: text})
        assert said.startswith(f"{variable} must be ")
        assert repr("***" if ROWS[attribute].is_password else text[:60]) in said
        assert len(said) < 250


@pytest.mark.parametrize(("attribute", "text"), [("port", "eighty"), ("host", "a b"), ("rate_limit", "ten")])
def test_a_wrong_flag_is_refused_by_its_name(attribute: str, text: str) -> None:
    assert refusal({}, {attribute: text}).startswith(f"--{attribute.replace('_', '-')} must be ")


# Who wins


def test_a_flag_wins_over_the_environment() -> None:
    assert load({"LISTINGS_PORT": "1", "PORT": "2"}, {"port": "3"}).port == 3


def test_a_flag_that_is_not_given_leaves_it_to_the_environment() -> None:
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
def test_listings_port_wins_over_port_and_empty_is_as_not_set(environment: dict[str, str], port: int) -> None:
    assert load(environment, {}).port == port


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://localhost", "must name a database"),
        ("postgresql://localhost/", "must name a database"),
        ("postgresql://localhost/listings?sslmode=on", "must have as sslmode one of"),
        ("postgresql://localhost/listings?ssl=true", "must not have the parameter ssl"),
    ],
)
def test_an_address_of_postgresql_that_lacks_something_is_told_what(url: str, words: str) -> None:
    assert refusal({"LISTINGS_DATABASE_URL": url}).startswith(f"LISTINGS_DATABASE_URL {words}")


def test_the_files_of_this_machine_are_beside_the_database_or_in_their_folder() -> None:
    assert load({}, {"database": "sqlite:///a/b.db"}).file == Path("a/b.db")
    settings = load({}, {"database": "postgresql://u:secret@db.example/listings", "data_folder": "/srv"})
    assert settings.file == Path("/srv/postgresql")
    assert settings.database_shown == "postgresql://db.example/listings"


def test_what_does_not_count_is_not_judged() -> None:
    assert load({"LISTINGS_PORT": "1", "PORT": "wrong"}, {}).port == 1
    assert load({"LISTINGS_PORT": "wrong"}, {"port": "3"}).port == 3


def test_other_variables_are_nobodys_business() -> None:
    assert load({"HOST": "elsewhere", "DATABASE_URL": "postgresql://", "LISTINGS_SURPRISE": "x"}, {}) == load({}, {})


# What each is set to


def test_a_survey_tells_faults_beside_good_values() -> None:
    given = {one.setting.attribute: one for one in survey({"LISTINGS_PORT": "x", "LISTINGS_RATE_LIMIT": "7"}, {})}
    assert given.keys() == ROWS.keys()
    assert given["port"].fault.startswith("LISTINGS_PORT must be ")
    assert (given["rate_limit"].text, given["rate_limit"].source, given["rate_limit"].fault) == (
        "7",
        "LISTINGS_RATE_LIMIT",
        "",
    )
    assert settings_of(given.values()) == load({}, {})._replace(rate_limit=7)


def test_only_a_secret_is_read_from_a_file() -> None:
    assert load({"LISTINGS_HOST_FILE": "/nowhere", "PORT_FILE": "/nowhere"}, {}) == load({}, {})


def test_a_flag_leaves_a_secrets_variables_unread() -> None:
    environment = {"LISTINGS_DATABASE_URL": "wrong", "LISTINGS_DATABASE_URL_FILE": "/nowhere"}
    assert load(environment, {"database": "sqlite:///a.db"}).database == Path("a.db")
