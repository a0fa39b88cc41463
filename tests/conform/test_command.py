"""`listings conform`: output, exit codes, keys and interruption."""

import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import DEADLINE, PROGRAM, Cli, Outcome, Program, clean_environment, demo_environment
from tests.conform.faulty_server import KEYS, FaultyServer
from tests.harness import unused_port

pytestmark = pytest.mark.covers_programs

KEY, OTHER, EXPIRED = "LISTINGS_CONFORM_KEY", "LISTINGS_CONFORM_OTHER_KEY", "LISTINGS_CONFORM_EXPIRED_KEY"
VARIABLES = {KEY: KEYS["alice"], OTHER: KEYS["bob"], EXPIRED: KEYS["charlie"]}


@pytest.fixture
def cli(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    restore_logging: None,  # noqa: ARG001 - commands configure it
) -> Cli:
    """Commands in this process, without a key in the environment."""
    return Cli(tmp_path, monkeypatch, capsys)


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    """A server without a fault."""
    with FaultyServer() as server:
        yield server


def test_output_is_a_table_and_a_summary(cli: Cli, server: FaultyServer) -> None:
    outcome = cli.run_ok("conform", server.base_url, "--key", KEYS["alice"], "--other-key", KEYS["bob"])
    head, *rows = outcome.out.splitlines()
    assert head.split() == ["id", "verdict", "sentence"]
    assert re.fullmatch(r"version-1  passed   The version is carried in the path prefix /api/v1\.", rows[0])
    assert any(re.match(r"\S+ +skipped .* - give --expired-key", row) for row in rows)
    cleaned, summary = outcome.err.splitlines()
    assert cleaned == f"The run created {len(server.market.rows)} listings and deleted them again."
    assert summary == f"{len(rows)} checks: {len(rows) - 4} passed, 0 failed, 0 blocked, 4 skipped."
    assert server.remaining == set()


def test_json_output_has_one_line_per_check(cli: Cli, server: FaultyServer) -> None:
    outcome = cli.run_ok("conform", server.base_url, "--key", KEYS["alice"], "--json", "--no-rate-limit")
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert all(list(row) == ["id", "section", "sentence", "verdict", "happened"] for row in rows)
    assert {row["verdict"] for row in rows} == {"passed", "skipped"}
    assert "checks: " in outcome.err


def test_keys_are_read_from_the_environment(cli: Cli, server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    assert ", 0 failed, 0 blocked, 0 skipped." in cli.run_ok("conform", server.base_url, "--rate-limit").err


def test_a_failed_check_shows_the_exchange_and_exits_with_1(cli: Cli) -> None:
    with FaultyServer("content is optional") as server:
        outcome = cli("conform", server.base_url, "--key", KEYS["alice"])
    assert outcome.code == 1
    (row,) = (row for row in outcome.out.splitlines() if row.startswith("create-5"))
    assert " failed " in row
    assert 'expected 400; POST /api/v1/listings {"title": "Conformance check' in row
    assert 'returned 201 {"id": ' in row
    assert KEYS["alice"] not in outcome.out + outcome.err


def test_a_blocked_check_exits_with_1(cli: Cli) -> None:
    with FaultyServer("limit of 500") as server:
        outcome = cli("conform", server.base_url, "--key", KEYS["alice"], "--rate-limit")
    assert outcome.code == 1
    assert ", 0 failed, 1 blocked, " in outcome.err


def test_an_unreachable_server_is_a_one_line_error(cli: Cli) -> None:
    with unused_port() as port:
        assert "refuses connections" in cli.get_error("conform", f"http://127.0.0.1:{port}", "--key", KEYS["alice"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "BASE_URL"),
        (["http://127.0.0.1"], KEY),
        (["ftp://127.0.0.1", "--key", "k"], "http"),
        (["http://127.0.0.1", "--key", ""], "--key"),
        (["http://127.0.0.1", "--key", "two\nlines"], "--key"),
        (["http://127.0.0.1", "--key", "k", "--other-key", "k"], "differ"),
        (["http://127.0.0.1", "--key", "k", "--timeout", "0"], "--timeout"),
        (["http://127.0.0.1", "--key", "k", "--timeout", "nan"], "--timeout"),
    ],
)
def test_wrong_usage_exits_with_2(cli: Cli, arguments: list[str], message: str) -> None:
    assert message in cli.get_usage_error("conform", *arguments)


def test_an_invalid_key_is_not_repeated(cli: Cli) -> None:
    assert "sécret" not in cli.get_usage_error("conform", "http://127.0.0.1", "--key", "sécret")


def test_the_demo_passes_every_check(tmp_path: Path) -> None:
    with Program(tmp_path).serve("--demo") as serving:
        keys = demo_environment(tmp_path)
        variables = {KEY: keys["API_KEY"], OTHER: keys["OTHER_API_KEY"], EXPIRED: keys["EXPIRED_API_KEY"]}
        outcome = Program(tmp_path, **variables).run("conform", serving.base_url)
    assert outcome.code == 0, outcome
    assert ", 0 failed, 0 blocked, 3 skipped." in outcome.err


class Pause:
    """Delays one response of the server until the test has interrupted the program."""

    def __init__(self, method: str, count: int) -> None:
        self.reached, self.resume = threading.Event(), threading.Event()
        self._method, self._remaining = method, count

    def __call__(self, method: str) -> None:
        self._remaining -= method == self._method
        if not self._remaining and not self.reached.is_set():
            self.reached.set()
            self.resume.wait(DEADLINE)


@pytest.mark.parametrize(("method", "count"), [("POST", 2), ("POST", 12), ("PATCH", 1), ("DELETE", 2)])
def test_an_interrupted_run_deletes_its_listings(tmp_path: Path, method: str, count: int) -> None:
    pause = Pause(method, count)
    with FaultyServer(before_response=pause) as server:
        with subprocess.Popen(
            [PROGRAM, "conform", server.base_url],
            cwd=tmp_path,
            env=clean_environment() | VARIABLES,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert pause.reached.wait(DEADLINE)
            process.send_signal(signal.SIGINT)
            pause.resume.set()
            out, err = process.communicate(timeout=DEADLINE)
        assert server.market.rows
        assert server.remaining == set()
    cleaned, _, message = err.splitlines(keepends=True)  # click ends the line with ^C
    assert cleaned.startswith(f"The run created {len(server.market.rows)} listings and deleted them again.")
    assert Outcome(process.returncode, out, message).error_message == "Stopped"
