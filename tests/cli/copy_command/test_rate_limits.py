"""`listings copy` also copies the counts of the rate limiter."""

import json

import pytest

from tests.cli.commands import Cli
from tests.cli.copy_command.copies import Source, Target, are_equal, open_harness
from tests.harness import Harness
from tests.redis_server import RedisServer


def test_the_counts_are_copied(cli: Cli, source: Source, target: Target) -> None:
    key = source.cast.bob.key
    with open_harness(source.folder) as harness:
        replies = [harness.fetch("GET", "/api/v1/listings", key=key) for _ in range(4)]
    remaining = int(replies[-1].headers["x-ratelimit-remaining"])
    assert cli.data("copy", "--to", target.url)["rate_limits"] == 1
    assert cli.data("copy", "--to", target.url)["rate_limits"] == 1
    with Harness(source.folder / "data", database=target.url) as harness:
        assert json.loads(harness.fetch("GET", "/api/v1/rate_limit", key=key).body)["remaining"] == remaining


def test_the_counts_are_copied_to_redis(
    cli: Cli, source: Source, target: Target, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = source.cast.bob.key
    with open_harness(source.folder) as harness:
        replies = [harness.fetch("GET", "/api/v1/listings", key=key) for _ in range(4)]
    remaining = int(replies[-1].headers["x-ratelimit-remaining"])
    monkeypatch.setenv("LISTINGS_REDIS_URL", redis_server.url)
    for _ in range(2):
        assert cli.data("copy", "--to", target.url)["rate_limits"] == 1
    folder = cli.folder / "another machine"
    with Harness(folder, database=target.url, redis=redis_server.url, redis_timeout="10000") as harness:
        assert json.loads(harness.fetch("GET", "/api/v1/rate_limit", key=key).body)["remaining"] == remaining


def test_an_unreachable_redis_is_reported_and_the_next_run_continues(
    cli: Cli, source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_harness(source.folder) as harness:
        harness.fetch("GET", "/api/v1/listings", key=source.cast.bob.key)
    monkeypatch.setenv("LISTINGS_REDIS_URL", "redis://127.0.0.1:1")
    message = cli.get_error("copy", "--to", target.url)
    assert message.startswith("All rows are copied, but not the counts of the rate limit: ")
    assert are_equal(source, target)
    monkeypatch.delenv("LISTINGS_REDIS_URL")
    assert cli.data("copy", "--to", target.url)["rate_limits"] == 1
