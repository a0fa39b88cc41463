"""Seed files: accounts and keys that a service creates before it opens its port."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from listings.cli import seed as seeding
from listings.domain import api_keys
from listings.domain.errors import Problem
from listings.domain.history import CONSOLE, Actor
from listings.domain.model import Account
from listings.service import Services
from tests.cli.commands import Cli, Data, Program, Serving
from tests.harness import Harness

pytestmark = pytest.mark.covers_programs

ALICE_KEY, BOB_KEY, CHARLIE_KEY, DORA_KEY = (f"{name}-key-of-the-older-system" for name in ("a", "b", "c", "d"))
GENERATED = api_keys.generate()

ALICE = {
    "name": "Alice's Attic",
    "email": "alice@example.com",
    "plan_expires_at": "2099-12-31",
    "keys": [ALICE_KEY, GENERATED],
}
BOB = {"name": "bob", "email": "bob@example.com", "plan_expires_at": None, "keys": [BOB_KEY]}
CHARLIE = {"name": "charlie", "email": "charlie@example.com", "plan_expires_at": "2020-01-01", "keys": [CHARLIE_KEY]}
DORA = {"name": "dora", "email": "Dora@Example.com", "keys": [DORA_KEY]}
READER = {"key": "r-key-of-the-older-system", "access": "read"}
ERIN = {"name": "erin", "email": "erin@example.com", "plan_expires_at": "2099-12-31 23:59:59"}


def write_seed(folder: Path, *accounts: Any) -> str:
    path = folder / "seed.json"
    path.write_text(json.dumps({"accounts": accounts}), "utf-8")
    return str(path)


def rows(folder: Path) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(folder / "data/listings.db"))
    try:
        statements = ("SELECT * FROM accounts ORDER BY id", "SELECT * FROM api_keys ORDER BY id")
        return [row for statement in statements for row in connection.execute(statement).fetchall()]
    finally:
        connection.close()


def plan_of(folder: Path, email: str) -> object:
    """Return the row with the Unix timestamp at which the plan of an account ends."""
    connection = apsw.Connection(str(folder / "data/listings.db"))
    try:
        return connection.execute("SELECT plan_expires_at FROM accounts WHERE email = ?", (email,)).fetchone()
    finally:
        connection.close()


def apply(program: Program, *accounts: Any) -> None:
    """Start a service with a seed file, and stop it."""
    with program.serve("--seed", write_seed(program.folder, *accounts)) as serving:
        assert serving.stop().code == 0


def apply_here(harness: Harness, *accounts: Data) -> None:
    seed = seeding.read(Path(write_seed(harness.settings.file.parent, *accounts)))
    harness.run(seeding.apply(harness.services, seed))


def list_accounts(harness: Harness) -> list[Account]:
    async def collect() -> list[Account]:
        return [account async for account in harness.services.accounts.iterate()]

    return harness.run(collect())


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A service with a seed file from the environment, for tests that change nothing."""
    folder = tmp_path_factory.mktemp("seeded")
    seed = write_seed(folder, ALICE, BOB, CHARLIE, DORA, ERIN | {"keys": [READER]})
    with Program(folder, LISTINGS_SEED_FILE=seed).serve() as serving:
        yield serving


@pytest.mark.parametrize("key", [ALICE_KEY, GENERATED], ids=["of another system", "generated"])
def test_keys_of_an_active_plan_work_when_the_port_opens(seeded: Serving, key: str) -> None:
    assert seeded.status(key) == 200


@pytest.mark.decision("G44")
def test_a_key_with_read_access_is_read_only(seeded: Serving) -> None:
    assert seeded.status(READER["key"]) == 200
    response = seeded.http.post("/api/v1/listings", headers={"X-API-Key": READER["key"]})
    assert response.headers["x-error-code"] == "key_not_allowed"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (BOB_KEY, "A current Business plan is required"),
        (CHARLIE_KEY, "Business plan expired on 2020-01-01; renew at /console/plan"),
        (DORA_KEY, "A current Business plan is required"),
    ],
    ids=["null", "a past date", "absent"],
)
def test_keys_without_an_active_plan_get_403(seeded: Serving, key: str, message: str) -> None:
    response = seeded.http.get("/api/v1/listings", headers={"X-API-Key": key})
    assert (response.status_code, response.json()) == (403, {"error": message})


def test_accounts_are_stored_as_in_the_file(seeded: Serving) -> None:
    accounts = [row[2:5] for row in rows(seeded.folder)[:5]]
    assert accounts == [
        ("Alice's Attic", "alice@example.com", 4_102_358_400),
        ("bob", "bob@example.com", None),
        ("charlie", "charlie@example.com", 1_577_836_800),
        ("dora", "dora@example.com", None),
        ("erin", "erin@example.com", 4_102_444_799),
    ]


def test_applying_a_file_twice_has_no_further_effect(tmp_path: Path) -> None:
    accounts = (ALICE, BOB, CHARLIE, DORA, ERIN | {"keys": [READER]})
    with Harness(tmp_path / "data") as harness:
        apply_here(harness, *accounts)
        before = rows(tmp_path)
        apply_here(harness, *accounts)
        assert rows(tmp_path) == before
        assert len(before) == 11


@pytest.mark.decision("G44")
def test_another_access_of_an_existing_key_prevents_all_changes(tmp_path: Path) -> None:
    with Harness(tmp_path / "data") as harness:
        apply_here(harness, ERIN | {"keys": [READER["key"]]})
        before = rows(tmp_path)
        with pytest.raises(Problem, match="the access of a key can't be changed") as rejected:
            apply_here(harness, ALICE, ERIN | {"name": "Erin", "keys": [READER]})
        assert READER["key"] not in rejected.value.message
        assert rows(tmp_path) == before


def test_a_changed_file_updates_the_accounts(program: Program, cli: Cli) -> None:
    apply(program, ALICE, BOB, CHARLIE, DORA)
    cli.run_ok("account", "plan", "dora@example.com", "--until", "2088-08-08")
    cli.run_ok("key", "revoke", "1")
    changed = (
        ALICE | {"name": "Alice's Cellar", "email": "ALICE@example.com", "keys": [ALICE_KEY, "another-key-of-alice"]},
        BOB | {"plan_expires_at": "2099-12-31"},
        CHARLIE | {"plan_expires_at": None},
        DORA,
    )
    with program.serve("--seed", write_seed(program.folder, *changed)) as serving:
        assert serving.status("another-key-of-alice") == 200
        assert serving.status(GENERATED) == 200  # a key that was removed from the file
        assert serving.status(ALICE_KEY) == 401  # a revoked key
        assert serving.status(BOB_KEY) == 200
        assert serving.status(CHARLIE_KEY) == 403
        assert serving.status(DORA_KEY) == 200  # a plan that is not in the file
    assert rows(program.folder)[0][2:4] == ("Alice's Cellar", "alice@example.com")
    assert plan_of(program.folder, "charlie@example.com") == (None,)
    assert plan_of(program.folder, "dora@example.com") == (3_742_761_600,)


def test_two_processes_may_apply_a_file_at_the_same_time(tmp_path: Path) -> None:
    seed = seeding.read(Path(write_seed(tmp_path, ALICE, BOB)))

    async def apply_twice(services: Services) -> None:
        await asyncio.gather(seeding.apply(services, seed), seeding.apply(services, seed))

    with Harness(tmp_path) as harness:
        harness.run(apply_twice(harness.services))
        alice, bob = (account.id for account in list_accounts(harness))
        for key, owner in ((ALICE_KEY, alice), (GENERATED, alice), (BOB_KEY, bob)):
            caller = harness.run(harness.services.keys.find(key))
            assert caller is not None
            assert caller.account_id == owner


def test_a_seller_may_change_the_email(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Harness(tmp_path) as harness:
        apply_here(harness, ALICE, BOB)
        harness.run(harness.store.change_email(1, "new@example.com", Actor(CONSOLE, 1)))
        apply_here(harness, ALICE | {"name": "Alice's Cellar", "keys": [ALICE_KEY, CHARLIE_KEY]}, BOB)
        found = [(account.name, account.email) for account in list_accounts(harness)]
        caller = harness.run(harness.services.keys.find(CHARLIE_KEY))
    assert found == [("Alice's Cellar", "new@example.com"), ("bob", "bob@example.com")]
    assert caller is not None
    assert caller.account_id == 1
    assert caplog.messages.count("Account number 1 of the seed file is account 1, whose email has changed") == 1


@pytest.mark.parametrize("returns", [False, True])
def test_an_erased_account_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture, *, returns: bool) -> None:
    with Harness(tmp_path) as harness:
        apply_here(harness, ALICE)
        harness.run(harness.services.accounts.erase("alice@example.com"))
        if returns:
            harness.run(harness.services.accounts.add("Alice again", "alice@example.com", None))
        before = list_accounts(harness)
        apply_here(harness, ALICE | {"keys": [CHARLIE_KEY, ALICE_KEY]}, BOB)
        assert list_accounts(harness)[:-1] == before
        assert list_accounts(harness)[-1].name == "bob"
        assert harness.run(harness.services.keys.find(CHARLIE_KEY)) is None
    assert "Skipped account number 1 of the seed file: account 1 is erased" in caplog.messages


@pytest.mark.parametrize("email", ["alice@example.com", "bob@example.com"])
def test_an_entry_whose_key_and_email_have_different_accounts_is_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, email: str
) -> None:
    with Harness(tmp_path) as harness:
        apply_here(harness, ALICE, BOB)
        harness.run(harness.store.change_email(1, "new@example.com", Actor(CONSOLE, 1)))
        harness.run(harness.services.accounts.add("Mallory", "alice@example.com", None))
        before = list_accounts(harness)
        apply_here(harness, ALICE | {"name": "Other", "email": email, "keys": [ALICE_KEY, CHARLIE_KEY]}, ERIN)
        assert list_accounts(harness)[:-1] == before
        assert list_accounts(harness)[-1].email == "erin@example.com"
        assert harness.run(harness.services.keys.find(CHARLIE_KEY)) is None
    assert "Skipped account number 1 of the seed file: its key belongs to account 1, and its email to" in caplog.text


def test_two_entries_for_one_account_do_not_share_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Harness(tmp_path) as harness:
        apply_here(harness, ALICE)
        harness.run(harness.store.change_email(1, "team@example.com", Actor(CONSOLE, 1)))
        for _ in range(2):
            apply_here(harness, ALICE, BOB | {"email": "team@example.com"})
        [account] = list_accounts(harness)
        assert account.name == ALICE["name"]
        assert harness.run(harness.services.keys.find(BOB_KEY)) is None
    assert "Skipped account number 2 of the seed file: it is account 1, as is account number 1" in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"not json",
        b"\xff\xfe{\x00}\x00",
        b"[]",
        b"{}",
        b"null",
        b'{"accounts": {}}',
        b'{"accounts": [1]}',
        b'{"accounts": []} trailing',
        b'{"accounts": [], "surprise": 1}',
        b'{"accounts": [{"name": "a", "email": "a@example.com", "surprise": 1}]}',
        b'{"accounts": [{"name": "a"}]}',
        b'{"accounts": [{"email": "a@example.com"}]}',
        b'{"accounts": [{"name": "a", "email": null}]}',
        b'{"accounts": [{"name": 1, "email": "a@example.com"}]}',
        b'{"accounts": [{"name": "a", "email": "a@example.com", "keys": "older-system-key"}]}',
        b'{"accounts": [{"name": "a", "email": "a@example.com", "keys": [1234567890123456]}]}',
        b'{"accounts": [{"name": "a", "email": "a@example.com", "keys": null}]}',
        b'{"accounts": [{"name": "a", "email": "a@example.com", "keys": [{"key": "x", "access": "admin"}]}]}',
        b'{"accounts": [{"name": "a", "email": "a@example.com", "plan_expires_at": 1999999999}]}',
        b'{"accounts": [{"name": "a", "email": "a@example.com", "plan_expires_at": ""}]}',
        b'{"accounts": [{"name": "a", "email": "a@example.com", "plan_expires_at": "2031-02-29"}]}',
        b'{"accounts": [{"name": "a", "email": "a@example.com", "plan_expires_at": "2031-01-01T00:00:00Z"}]}',
    ],
)
def test_an_invalid_file_is_rejected_before_any_change(cli: Cli, taken_port: str, content: bytes) -> None:
    path = cli.folder / "seed.json"
    path.write_bytes(content)
    error = cli.get_error("serve", "--port", taken_port, "--seed", str(path))
    assert str(path) in error
    assert list(cli.folder.iterdir()) == [path]


@pytest.mark.parametrize(
    "accounts",
    [
        [ALICE, BOB, ALICE],
        [ALICE, BOB | {"email": "ALICE@Example.com"}],
        [ALICE, BOB | {"email": " alice@example.com"}],
        [ALICE, BOB | {"keys": [GENERATED]}],
        [ALICE, BOB | {"keys": [BOB_KEY, {"key": BOB_KEY, "access": "read"}]}],
        [ALICE, BOB | {"keys": [BOB_KEY, ""]}],
        [ALICE, BOB | {"keys": ["fifteen-letters"]}],
        [ALICE, BOB | {"keys": ["x" * 201]}],
        [ALICE, BOB | {"keys": [" " + BOB_KEY]}],
        [ALICE, BOB | {"keys": [BOB_KEY + "\n"]}],
        [ALICE, BOB | {"keys": ["lst_of-an-older-system"]}],
        [ALICE, BOB | {"keys": [GENERATED[:-1] + ("a" if GENERATED[-1] != "a" else "b")]}],
    ],
    ids=[
        "an account twice",
        "an address twice in another case",
        "an address twice with a space",
        "a key of two accounts",
        "a key twice",
        "an empty key",
        "a short key",
        "a long key",
        "a key with a space",
        "a key with a newline",
        "a reserved prefix",
        "a wrong checksum",
    ],
)
def test_accounts_and_keys_are_validated_before_any_change(cli: Cli, taken_port: str, accounts: list[Data]) -> None:
    error = cli.get_error("serve", "--port", taken_port, "--seed", write_seed(cli.folder, *accounts))
    assert "seed.json" in error
    assert all(key not in error for account in accounts for key in account["keys"] if key and isinstance(key, str))
    assert [path.name for path in cli.folder.iterdir()] == ["seed.json"]


@pytest.mark.parametrize("name", ["missing.json", "a folder", "a folder/seed.json", "x" * 300])
def test_an_unreadable_file_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch, taken_port: str, name: str) -> None:
    (cli.folder / "a folder").mkdir()
    assert name in cli.get_error("serve", "--port", taken_port, "--seed", name)
    monkeypatch.setenv("LISTINGS_SEED_FILE", name)
    assert name in cli.get_error("serve", "--port", taken_port)
    assert [path.name for path in cli.folder.iterdir()] == ["a folder"]


@pytest.mark.parametrize(
    "fault",
    [
        {"name": ""},
        {"name": "a" * 201},
        {"email": "bob"},
        {"email": "bob@"},
        {"email": "bo b@example.com"},
        {"email": "b" * 250 + "@example.com"},
    ],
    ids=lambda fault: "-".join(f"{name} {value[:12]!r}" for name, value in fault.items()),
)
def test_an_invalid_account_prevents_all_changes(tmp_path: Path, fault: dict[str, str]) -> None:
    with Harness(tmp_path) as harness:
        apply_here(harness, CHARLIE)
        before = list_accounts(harness)
        changed = CHARLIE | {"name": "Charles", "plan_expires_at": "2099-12-31"}
        with pytest.raises(Problem):
            apply_here(harness, ALICE, changed, BOB | fault)
        assert list_accounts(harness) == before


def test_keys_of_two_accounts_prevent_all_changes(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        apply_here(harness, ALICE, BOB)
        with pytest.raises(Problem, match="does not belong to the account of the other keys of carol"):
            apply_here(harness, {"name": "carol", "email": "carol@example.com", "keys": [ALICE_KEY, BOB_KEY]})
        assert [account.name for account in list_accounts(harness)] == ["Alice's Attic", "bob"]
