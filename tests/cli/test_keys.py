"""`listings key`: create, register, list, rotate and revoke keys."""

import json
import os
import pwd
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from listings.domain import api_keys, timestamps
from listings.service.keys import INVALID_KEY_MESSAGE
from listings.store.postgres import store as postgres_store
from tests.cli.commands import DEADLINE, Cli, Data, Program
from tests.postgres_server import PostgresServer
from tests.store.databases import change

NEW_KEY_FIELDS = ["id", "key", "name", "access", "account_id", "created_at", "expires_at"]
REVOKED_KEY_FIELDS = ["id", "hint", "name", "access", "account_id", "created_at", "expires_at", "revoked_at"]

OLD_KEY = "sk-live:0123456789/abcdef+XYZ~!"
MALFORMED_KEYS = ["", "two-lines-of\nvisible-ascii", "lst_0123456789abcdef"]  # others are tested in tests/domain


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key.txt"
    path.write_text(OLD_KEY + "\n")
    return path


def test_only_the_key_is_printed(cli: Cli, alice: Data) -> None:
    outcome = cli.run_ok("key", "create", str(alice["id"]), "--name", "warehouse")
    assert re.fullmatch(r"lst_[0-9A-Za-z]{38}\n", outcome.out)
    assert api_keys.is_well_formed(outcome.out.removesuffix("\n"))


def test_a_new_key_is_printed_with_seven_fields(cli: Cli, alice: Data) -> None:
    start = int(time.time())
    key = cli.key(alice)
    assert list(key) == NEW_KEY_FIELDS
    assert (key["id"], key["name"], key["account_id"], key["expires_at"]) == (1, "warehouse", alice["id"], None)
    assert key["access"] == "write"
    assert key["created_at"] in [timestamps.format_timestamp(moment) for moment in range(start, int(time.time()) + 1)]
    assert api_keys.is_well_formed(key["key"])


@pytest.mark.decision("G24")
def test_the_key_is_not_stored(cli: Cli, alice: Data, database: Path) -> None:
    key = cli.key(alice)["key"]
    assert all(key.encode() not in file.read_bytes() for file in database.parent.iterdir())


@pytest.mark.decision("G25")
@pytest.mark.parametrize("options", [[], ["--until", "2020-01-01"]])
@pytest.mark.parametrize("registered", [False, True])
def test_a_key_requires_an_active_plan(
    cli: Cli, database: Path, key_file: Path, options: list[str], *, registered: bool
) -> None:
    assert database.is_file()
    charlie = cli.account("charlie", *options)
    key = ["--key-file", str(key_file)] if registered else []
    add = ["key", "create", str(charlie["id"]), "--name", "warehouse", *key]
    error = cli.get_error(*add)
    assert cli.get_error(*add, "--json") == error
    assert "charlie@example.com" in error
    assert "Business plan" in error
    advice = re.search(r"`listings (account plan \d+ --months) N`", error)
    assert advice is not None
    cli.run_ok(*advice[1].split(), "1")
    assert cli.key(charlie)["id"] == 1


def expire(cli: Cli, key: Data) -> None:
    change(cli.folder / "data/listings.db", f"UPDATE api_keys SET expires_at = 1600000000 WHERE id = {key['id']}")  # noqa: S608 - an integer


@pytest.mark.decision("G44")
def test_the_access_of_a_key_is_printed_and_rotation_keeps_it(cli: Cli, alice: Data, key_file: Path) -> None:
    old = cli.key(alice, "--access", "read", "--key-file", str(key_file))
    new = cli.data("key", "rotate", str(old["id"]), "--grace", "0")
    cli.data("key", "revoke", str(new["id"]))
    assert [key["access"] for key in (old, new, *list_keys(cli, alice))] == ["read"] * 4
    assert cli.run_ok("key", "list", alice["email"]).out.count(" read ") == 2
    assert "--access" in cli.get_usage_error("key", "create", "1", "--name", "warehouse", "--access", "admin")


@pytest.mark.parametrize("date", ["", "2031-02-29", "never"])
def test_an_invalid_date_is_a_usage_error(cli: Cli, date: str) -> None:
    assert "--expires" in cli.get_usage_error("key", "create", "1", "--name", "warehouse", "--expires", date)


def test_a_key_that_is_already_expired_is_rejected(cli: Cli, alice: Data) -> None:
    error = cli.get_error("key", "create", str(alice["id"]), "--name", "warehouse", "--expires", "2020-01-01")
    assert error == "The expiry of a key must be in the future: choose a later day"
    assert list_keys(cli, alice) == []


@pytest.mark.parametrize("name", ["", " ", "a" * 201, "two\nlines", "\udcff"])
def test_an_invalid_name_is_rejected(cli: Cli, alice: Data, name: str) -> None:
    assert "name" in cli.get_error("key", "create", str(alice["id"]), "--name", name)
    assert cli.key(alice)["id"] == 1


def test_a_key_is_registered_from_a_file(cli: Cli, alice: Data, key_file: Path) -> None:
    key = cli.key(alice, "--key-file", str(key_file))
    assert list(key) == NEW_KEY_FIELDS
    assert key["key"] == OLD_KEY
    assert cli.status(OLD_KEY) == 200


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
def test_a_key_is_registered_from_standard_input(
    cli: Cli,
    alice: Data,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    end: str,
) -> None:
    reading = Cli(cli.folder, monkeypatch, capsys, stdin=(OLD_KEY + end).encode())
    outcome = reading.run_ok("key", "create", str(alice["id"]), "--name", "warehouse", "--key-file", "-")
    assert outcome.out == OLD_KEY + "\n"
    assert cli.status(OLD_KEY) == 200


def test_a_malformed_key_is_rejected(cli: Cli, alice: Data, key_file: Path) -> None:
    create = ["key", "create", str(alice["id"]), "--name", "warehouse", "--key-file", str(key_file)]
    for key in MALFORMED_KEYS:
        key_file.write_text(key)
        assert cli.get_error(*create) == INVALID_KEY_MESSAGE, key
    assert cli.key(alice)["id"] == 1


def test_a_binary_key_file_is_rejected(cli: Cli, alice: Data, key_file: Path) -> None:
    key_file.write_bytes(b"\xff\xfe" + b"x" * 30)
    assert "key" in cli.get_error("key", "create", str(alice["id"]), "--name", "warehouse", "--key-file", str(key_file))


def test_a_mistyped_generated_key_is_rejected_and_not_shown(cli: Cli, alice: Data, key_file: Path) -> None:
    key = api_keys.generate()
    mistyped = key[:20] + ("a" if key[20] != "a" else "b") + key[21:]
    key_file.write_text(mistyped)
    error = cli.get_error("key", "create", str(alice["id"]), "--name", "warehouse", "--key-file", str(key_file))
    assert "checksum" in error
    assert mistyped not in error


@pytest.mark.parametrize("owner", ["alice", "bob"])
def test_a_key_can_be_registered_only_once(cli: Cli, alice: Data, bob: Data, key_file: Path, owner: str) -> None:
    cli.key(alice, "--key-file", str(key_file))
    account = {"alice": alice, "bob": bob}[owner]
    error = cli.get_error("key", "create", str(account["id"]), "--name", "again", "--key-file", str(key_file))
    assert "already exists" in error
    assert OLD_KEY not in error
    assert cli.status(OLD_KEY) == 200


def test_a_missing_key_file_is_a_usage_error(cli: Cli, alice: Data) -> None:
    options = ["--name", "warehouse", "--key-file", "missing.txt"]
    assert "missing.txt" in cli.get_usage_error("key", "create", str(alice["id"]), *options)


def test_a_revoked_key_is_printed_as_its_hint(cli: Cli, alice: Data) -> None:
    key = cli.key(alice, "--expires", "2099-12-31")
    start = int(time.time())
    revoked = cli.data("key", "revoke", str(key["id"]))
    assert list(revoked) == REVOKED_KEY_FIELDS
    assert revoked["revoked_at"] in [
        timestamps.format_timestamp(moment) for moment in range(start, int(time.time()) + 1)
    ]
    same = [name for name in REVOKED_KEY_FIELDS if name in NEW_KEY_FIELDS]
    assert [revoked[name] for name in same] == [key[name] for name in same]


@pytest.mark.parametrize("key_id", ["2", "9223372036854775807"])
def test_revoking_an_unknown_key_fails(cli: Cli, alice: Data, key_id: str) -> None:
    key = cli.key(alice)["key"]
    assert key_id in cli.get_error("key", "revoke", key_id)
    assert cli.status(key) == 200


def test_events_of_a_key_are_logged_with_the_operator(program: Program, alice: Data) -> None:
    added = program.run("key", "create", str(alice["id"]), "--name", "warehouse")
    revoked = program.run("key", "revoke", "1")
    written = [json.loads(outcome.err.splitlines()[0]) for outcome in (added, revoked)]
    assert [line["event"] for line in written] == [
        f"Created key 1 of account {alice['id']}",
        f"Revoked key 1 of account {alice['id']}",
    ]
    assert {line["operator"] for line in written} == {pwd.getpwuid(os.getuid()).pw_name}
    assert added.out.strip() not in added.err


def test_the_operator_in_the_log_can_be_named(program: Program, alice: Data) -> None:
    program.environment["LISTINGS_OPERATOR"] = "Jane of support"
    outcome = program.run("account", "disable", alice["email"])
    assert {json.loads(line)["operator"] for line in outcome.err.splitlines()} == {"Jane of support"}


LISTED_KEY_FIELDS = [*REVOKED_KEY_FIELDS, "last_used_at"]


def list_keys(cli: Cli, account: Data) -> list[Data]:
    return [json.loads(line) for line in cli.run_ok("key", "list", str(account["id"]), "--json").out.splitlines()]


def test_keys_are_listed_by_their_hints_only(cli: Cli, alice: Data, bob: Data) -> None:
    keys = [cli.key(alice), cli.key(alice, "--expires", "2099-12-31")]
    cli.key(bob)
    cli.run_ok("key", "revoke", str(keys[0]["id"]))
    rows = list_keys(cli, alice)
    assert [list(row) for row in rows] == [LISTED_KEY_FIELDS] * 2
    assert [row["id"] for row in rows] == [key["id"] for key in keys]
    assert [row["revoked_at"] is None for row in rows] == [False, True]
    shown = cli.run_ok("key", "list", alice["email"]).out
    assert all(key["key"] not in shown and key["key"][-4:] in shown for key in keys)


@pytest.mark.decision("G25")
def test_rotation_does_not_extend_the_expiry_date(cli: Cli, alice: Data) -> None:
    soon = timestamps.format_timestamp(time.time() + 3600)
    old = cli.key(alice, "--expires", soon)
    outcome = cli.run_ok("key", "rotate", str(old["id"]), "--grace", "48", "--json")
    new = json.loads(outcome.out)
    assert f"It expires at {soon}, as the old key did before the rotation\n" in outcome.err
    assert [row["expires_at"] for row in list_keys(cli, alice)] == [soon, soon]
    assert new["expires_at"] == soon


@pytest.mark.decision("G25")
def test_a_key_can_be_rotated_only_once(cli: Cli, alice: Data) -> None:
    old = cli.key(alice)
    new = cli.data("key", "rotate", str(old["id"]))
    error = cli.get_error("key", "rotate", str(old["id"]))
    assert error == f"Key {old['id']} was already rotated to key {new['id']}: rotate that one, or create a new one"
    cli.run_ok("key", "rotate", str(new["id"]))
    assert len(list_keys(cli, alice)) == 3


@pytest.mark.parametrize("reason", ["revoked", "expired"])
def test_an_expired_or_revoked_key_cannot_be_rotated(cli: Cli, alice: Data, reason: str) -> None:
    old = cli.key(alice)
    if reason == "revoked":
        cli.run_ok("key", "revoke", str(old["id"]))
    else:
        expire(cli, old)
    assert "listings key create" in cli.get_error("key", "rotate", str(old["id"]))
    assert len(list_keys(cli, alice)) == 1


def test_a_disabled_account_gets_no_new_key(cli: Cli, alice: Data) -> None:
    old = cli.key(alice)
    cli.run_ok("account", "disable", str(alice["id"]))
    for command in (["create", str(alice["id"]), "--name", "another"], ["rotate", str(old["id"])]):
        assert "is disabled and can't have a new key" in cli.get_error("key", *command)
    assert len(list_keys(cli, alice)) == 1


def test_rotation_requires_an_active_plan(cli: Cli, alice: Data) -> None:
    old = cli.key(alice)
    cli.run_ok("account", "plan", str(alice["id"]), "--expire")
    assert "no active Business plan" in cli.get_error("key", "rotate", str(old["id"]))
    assert len(list_keys(cli, alice)) == 1


def test_rotating_an_unknown_key_fails(cli: Cli, alice: Data) -> None:  # noqa: ARG001 - creates the database
    assert cli.get_error("key", "rotate", "7") == "There is no key with the id 7"


@pytest.mark.parametrize("hours", ["-1", "8761", "1.5", "x"])
def test_an_invalid_grace_period_is_a_usage_error(cli: Cli, alice: Data, hours: str) -> None:
    assert "--grace" in cli.get_usage_error("key", "rotate", str(cli.key(alice)["id"]), "--grace", hours)
    assert len(list_keys(cli, alice)) == 1


def test_the_last_use_of_a_key_is_listed_after_a_stop(cli: Cli, program: Program, alice: Data) -> None:
    used, unused = cli.key(alice), cli.key(alice)
    with program.serve() as service:
        start = int(time.time())
        assert service.status(used["key"]) == 200
        assert list_keys(cli, alice)[0]["last_used_at"] is None
        service.stop()
    first, second = (row["last_used_at"] for row in list_keys(cli, alice))
    assert first in [timestamps.format_timestamp(moment) for moment in range(start, int(time.time()) + 1)]
    assert (second, unused["id"]) == (None, 2)


def test_an_interrupted_rotation_says_that_there_may_be_a_new_key(
    cli: Cli, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "_CALLER_CHANGE_SECONDS", DEADLINE)  # the command waits after its commit
    with postgres.database() as url, ThreadPoolExecutor(1) as thread:
        name = url.rpartition("/")[2].partition("?")[0]
        options = ("--database-url", url)
        cli.run_ok(*options, "account", "create", "--name", "Alice", "--email", "alice@example.com", "--months", "1")
        cli.run_ok(*options, "key", "create", "1", "--name", "warehouse")

        def interrupt() -> None:
            while len(postgres.execute("SELECT id FROM api_keys", name)) < 2:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        thread.submit(interrupt)
        message = cli.get_error(*options, "key", "rotate", "1")
    assert message == "Stopped: see `listings key list` for a new key that was not shown, and revoke it"


def test_a_test_key_is_created_and_listed_next_to_the_live_ones(cli: Cli, alice: Data) -> None:
    live = cli.key(alice)
    test = cli.key(alice, "--test")
    assert test["key"].startswith("lst_test_")
    assert test["account_id"] != alice["id"]
    assert [key["id"] for key in list_keys(cli, alice)] == [live["id"], test["id"]]
    assert cli.data("account", "list")["id"] == alice["id"]  # the only one
    assert "is a test key" in cli.get_error("key", "rotate", str(test["id"]))
    assert "--test" in cli.get_usage_error("key", "create", "1", "--name", "x", "--test", "--key-file", "-")


def test_a_trial_gives_test_keys_without_a_plan(cli: Cli, alice: Data) -> None:
    cli.data("account", "plan", str(alice["id"]), "--expire")
    assert "Test keys need" in cli.get_error("key", "create", str(alice["id"]), "--name", "x", "--test")
    outcome = cli("account", "plan", str(alice["id"]), "--trial", "--json")
    assert json.loads(outcome.out)["id"] == alice["id"]
    assert "Test keys work until 2" in outcome.err
    assert cli.key(alice, "--test")["account_id"] != alice["id"]
