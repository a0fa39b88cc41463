"""`listings conform`: what it prints, its exit codes, its keys, and how it is stopped."""

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


def test_people_get_a_table_and_a_summary(cli: Cli, server: FaultyServer) -> None:
    outcome = cli.done("conform", server.base_url, "--key", KEYS["alice"], "--other-key", KEYS["bob"])
    head, *rows = outcome.out.splitlines()
    assert head.split() == ["id", "sentence", "verdict", "happened"]
    assert re.fullmatch(r"version-1 +The version is carried in the path prefix /api/v1\. +kept *", rows[0])
    assert any("not checked  give --expired-key" in row for row in rows)
    cleaned, summary = outcome.err.splitlines()
    assert cleaned == f"The run made {len(server.market.rows)} listings and deleted them again."
    assert summary == f"{len(rows)} checks: {len(rows) - 4} kept, 0 broken, 4 not checked."
    assert server.remaining == set()


def test_programs_get_a_line_of_json_for_each_check(cli: Cli, server: FaultyServer) -> None:
    outcome = cli.done("conform", server.base_url, "--key", KEYS["alice"], "--json", "--no-rate-limit")
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert all(list(row) == ["id", "section", "sentence", "verdict", "happened"] for row in rows)
    assert {row["verdict"] for row in rows} == {"kept", "not checked"}
    assert "checks: " in outcome.err


def test_keys_come_from_the_environment(cli: Cli, server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    assert ", 0 broken, 0 not checked." in cli.done("conform", server.base_url, "--rate-limit").err


def test_a_broken_sentence_is_exit_code_1_and_tells_what_was_sent_and_what_came(cli: Cli) -> None:
    with FaultyServer("content is optional") as server:
        outcome = cli("conform", server.base_url, "--key", KEYS["alice"])
    assert outcome.code == 1
    (row,) = (row for row in outcome.out.splitlines() if row.startswith("create-5"))
    assert " broken " in row
    assert 'wanted 400; POST /api/v1/listings {"title": "Conformance check' in row
    assert 'was answered 201 {"id": ' in row
    assert KEYS["alice"] not in outcome.out + outcome.err


def test_a_check_that_was_prevented_is_exit_code_1(cli: Cli) -> None:
    with FaultyServer("limit of 500") as server:
        outcome = cli("conform", server.base_url, "--key", KEYS["alice"], "--rate-limit")
    assert outcome.code == 1
    assert ", 0 broken, " in outcome.err


def test_a_server_that_is_not_there_is_one_sentence(cli: Cli) -> None:
    with unused_port() as port:
        assert "refuses connections" in cli.refused("conform", f"http://127.0.0.1:{port}", "--key", KEYS["alice"])


@pytest.mark.parametrize(
    ("arguments", "said"),
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
def test_wrong_usage_is_exit_code_2(cli: Cli, arguments: list[str], said: str) -> None:
    assert said in cli.misused("conform", *arguments)


def test_a_key_that_no_header_can_carry_is_not_repeated(cli: Cli) -> None:
    assert "sécret" not in cli.misused("conform", "http://127.0.0.1", "--key", "sécret")


def test_our_service_is_checked_as_its_page_tells(tmp_path: Path) -> None:
    with Program(tmp_path).serve("--demo") as serving:
        keys = demo_environment(tmp_path)
        variables = {KEY: keys["API_KEY"], OTHER: keys["OTHER_API_KEY"], EXPIRED: keys["EXPIRED_API_KEY"]}
        outcome = Program(tmp_path, **variables).run("conform", serving.base_url)
    assert outcome.code == 0, outcome
    assert ", 0 broken, 3 not checked." in outcome.err


class Stop:
    """Holds a server's answer back until the program that waits for it was told to end."""

    def __init__(self, method: str, count: int) -> None:
        self.reached, self.over = threading.Event(), threading.Event()
        self._method, self._left = method, count

    def __call__(self, method: str) -> None:
        self._left -= method == self._method
        if not self._left and not self.reached.is_set():
            self.reached.set()
            self.over.wait(DEADLINE)


@pytest.mark.parametrize(("method", "count"), [("POST", 2), ("POST", 12), ("PATCH", 1), ("DELETE", 2)])
def test_whoever_stops_it_leaves_no_listing_behind(tmp_path: Path, method: str, count: int) -> None:
    stop = Stop(method, count)
    with FaultyServer(before_answering=stop) as server:
        with subprocess.Popen(
            [PROGRAM, "conform", server.base_url],
            cwd=tmp_path,
            env=clean_environment() | VARIABLES,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert stop.reached.wait(DEADLINE)
            process.send_signal(signal.SIGINT)
            stop.over.set()
            out, err = process.communicate(timeout=DEADLINE)
        assert server.market.rows
        assert server.remaining == set()
    cleaned, _, sentence = err.splitlines(keepends=True)  # click ends the line with ^C
    assert cleaned.startswith(f"The run made {len(server.market.rows)} listings and deleted them again.")
    assert Outcome(process.returncode, out, sentence).sentence == "Stopped"
