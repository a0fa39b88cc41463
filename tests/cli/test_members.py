"""`listings account invite`, `erase` and `export`."""

import json
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from listings.domain import fields
from listings.service import Services
from tests.cli.commands import Cli, Data
from tests.harness import Harness

pytestmark = pytest.mark.usefixtures("database")

PASSWORD = "a long and winding road"


@contextmanager
def open_services(cli: Cli) -> Iterator[Harness]:
    with Harness(cli.folder / "data") as harness:
        harness.clock.now = time.time()
        yield harness


def use(cli: Cli, act: Callable[[Services], Awaitable[Any]]) -> Any:
    with open_services(cli) as harness:

        async def run() -> Any:
            return await act(harness.services)

        return harness.run(run())


def parse_token(link: str) -> str:
    match = re.fullmatch(r"https?://\S+/invitations/([A-Za-z0-9_-]{43})", link.strip())
    assert match is not None, link
    return match[1]


def test_an_invitation_link_sets_a_password(cli: Cli, alice: Data) -> None:
    link = cli.run_ok("account", "invite", alice["email"]).out
    assert link.startswith("http://127.0.0.1:8000/invitations/")
    session = use(cli, lambda services: services.invitations.accept(parse_token(link), PASSWORD))
    assert use(cli, lambda services: services.sessions.find_member(session)).account.id == alice["id"]


def test_a_link_begins_with_the_base_url(cli: Cli, alice: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = ("account", "invite", str(alice["id"]))
    given = cli.run_ok(*fetch, "--base-url", "https://market.example/").out
    assert given.startswith("https://market.example/invitations/")
    given = cli.run_ok(*fetch, "--base-url", "https://example.com/shop").out
    assert given.startswith("https://example.com/shop/invitations/")
    monkeypatch.setenv("LISTINGS_BASE_URL", "https://other.example")
    assert cli.run_ok(*fetch).out.startswith("https://other.example/invitations/")
    monkeypatch.delenv("LISTINGS_BASE_URL")
    monkeypatch.setenv("LISTINGS_HOST", "::1")
    monkeypatch.setenv("LISTINGS_PORT", "9000")
    assert cli.run_ok(*fetch).out.startswith("http://[::1]:9000/invitations/")
    monkeypatch.setenv("LISTINGS_HOST", "::")
    assert cli.run_ok(*fetch).out.startswith("http://[::1]:9000/invitations/")
    monkeypatch.setenv("LISTINGS_HOST", "0.0.0.0")  # noqa: S104 - nothing listens
    assert cli.run_ok(*fetch).out.startswith("http://127.0.0.1:9000/invitations/")


def test_an_invitation_without_a_base_url_reports_the_assumed_address(
    cli: Cli, alice: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LISTINGS_PORT", "9000")
    for options in ((), ("--json",)):
        outcome = cli.run_ok("account", "invite", alice["email"], *options)
        assert outcome.out.count("\n") == 1
        last = outcome.err.splitlines()[-1]
        assert last.startswith("The link assumes the address http://127.0.0.1:9000 (")
        assert "LISTINGS_BASE_URL=https://" in last
    given = cli.run_ok("account", "invite", alice["email"], "--base-url", "https://market.example")
    assert "assumes" not in given.err
    monkeypatch.setenv("LISTINGS_BASE_URL", "https://market.example")
    assert "assumes" not in cli.run_ok("account", "invite", alice["email"]).err


def test_an_invitation_requires_a_known_base_url(cli: Cli, alice: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    link = cli.run_ok("account", "invite", alice["email"]).out
    monkeypatch.setenv("LISTINGS_PORT", "0")
    assert "--base-url or LISTINGS_BASE_URL" in cli.get_error("account", "invite", alice["email"])
    session = use(cli, lambda services: services.invitations.accept(parse_token(link), PASSWORD))
    assert use(cli, lambda services: services.sessions.find_member(session)).account.id == alice["id"]


def test_an_invitation_as_json_has_its_expiry_date(cli: Cli, alice: Data) -> None:
    data = cli.data("account", "invite", alice["email"])
    assert parse_token(data["link"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", data["expires_at"])


def test_unknown_and_disabled_accounts_cannot_be_invited(cli: Cli, alice: Data) -> None:
    assert cli("account", "invite", "nobody@example.com").error_message == "There is no account nobody@example.com"
    cli.run_ok("account", "disable", alice["email"])
    assert "is disabled and can't be invited" in cli("account", "invite", alice["email"]).error_message


@pytest.fixture
def seller(cli: Cli, alice: Data) -> Data:
    """The account of alice with a key, a password, a session, listings and activity."""
    key = cli.data("key", "create", alice["email"], "--name", "Alice's phone")["key"]
    link = cli.run_ok("account", "invite", alice["email"]).out
    with open_services(cli) as harness:
        session = harness.run(harness.services.invitations.accept(parse_token(link), PASSWORD, "Firefox"))
        listing = {"title": "Lamp", "content": "Brass."}
        ids = [harness.fetch("POST", "/api/v1/listings", key=key, json=listing).json()["id"] for _ in range(3)]
        harness.fetch("PATCH", f"/api/v1/listings/{ids[0]}", key=key, json={"price": 5})
        harness.fetch("DELETE", f"/api/v1/listings/{ids[2]}", key=key)
        harness.fetch("GET", "/api/v1/listings/999999", key=key)
    return {**alice, "key": key, "session": session, "ids": ids}


def test_erasing_removes_all_personal_data(cli: Cli, seller: Data, database: Path) -> None:
    assert f"Erased account {seller['id']}\n" in cli.run_ok("account", "erase", seller["email"], "--yes").err
    shown = cli.data("account", "show", str(seller["id"]))
    assert shown["name"] == f"Erased account {seller['id']}"
    assert re.fullmatch(rf"erased-{seller['id']}@[0-9a-f]{{16}}\.invalid", shown["email"])
    assert (shown["plan"], shown["public_contact"], shown["usable_keys"]) == ("none", "", 0)
    assert shown["disabled_at"] is not None
    assert (shown["active_listings"], shown["inactive_listings"], shown["deleted_listings"]) == (0, 0, 3)
    with open_services(cli) as harness:
        assert harness.fetch("GET", "/api/v1/listings", key=seller["key"]).status == 401
        assert harness.run(harness.services.sessions.find_member(seller["session"])) is None
        owner = harness.run(harness.services.accounts.find(str(seller["id"])))
        assert [one.code for one in harness.run(harness.services.usage.get(owner)).rejected_requests] == [
            "invalid_api_key"
        ]
        assert {event.kind for event in harness.run(harness.services.activity.list_page(owner)).events} == {"created"}
    stored = b"".join(path.read_bytes() for path in database.parent.glob("listings.db-wal"))
    assert b"Alice's phone" not in stored
    cli.run_ok("account", "create", "--name", "Another", "--email", seller["email"])


def test_erasing_asks_for_confirmation(cli: Cli, seller: Data) -> None:
    outcome = cli("account", "erase", seller["email"])
    assert outcome.code == 1
    assert f"Permanently erase account {seller['id']} ({seller['email']})?" in outcome.err
    assert cli.data("account", "show", seller["email"])["active_listings"] == 2


def test_erasing_again_deletes_a_listing_that_was_being_created(cli: Cli, seller: Data) -> None:
    with open_services(cli) as harness:
        caller = harness.run(harness.services.keys.find(seller["key"]))
        assert caller is not None
        new, _ = fields.parse_new_listing({"title": "Late", "content": "c", "external_id": "late"})
        harness.run(harness.services.accounts.erase(seller["email"]))
        harness.run(harness.services.listings.create(caller, new))  # its key was checked before
    shown = cli.data("account", "show", str(seller["id"]))
    assert (shown["active_listings"], shown["deleted_listings"]) == (1, 3)
    cli.run_ok("account", "erase", str(seller["id"]), "--yes")
    again = cli.data("account", "show", str(seller["id"]))
    assert (again["active_listings"], again["deleted_listings"]) == (0, 4)
    assert (again["email"], again["name"]) == (shown["email"], shown["name"])


def test_an_erased_account_is_printed_as_json(cli: Cli, alice: Data) -> None:
    data = cli.data("account", "erase", alice["email"], "--yes")
    assert (data["id"], data["plan"]) == (alice["id"], "none")
    assert cli("account", "erase", alice["email"], "--yes").error_message == f"There is no account {alice['email']}"


def test_erasing_again_changes_nothing_and_asks_nothing(cli: Cli, alice: Data) -> None:
    cli.run_ok("account", "erase", str(alice["id"]), "--yes")
    erased = cli.data("account", "show", str(alice["id"]))
    assert cli.run_ok("account", "erase", str(alice["id"])).err == f"Account {alice['id']} was already erased\n"
    assert cli.data("account", "show", str(alice["id"])) == erased


@pytest.mark.parametrize(
    "command",
    [
        ["account", "enable", "1"],
        ["account", "plan", "1", "--months", "1"],
        ["account", "invite", "1"],
        ["key", "create", "1", "--name", "warehouse"],
    ],
)
def test_an_erased_account_cannot_be_used_again(cli: Cli, alice: Data, command: list[str]) -> None:
    cli.run_ok("account", "erase", str(alice["id"]), "--yes")
    erased = cli.data("account", "show", "1")
    assert cli.get_error(*command) == "Account 1 is erased"
    assert cli.data("account", "show", "1") == erased


def test_an_export_contains_everything_but_secrets(cli: Cli, seller: Data) -> None:
    cli.run_ok("account", "export", seller["email"], "alice.json")
    file = cli.folder / "alice.json"
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text("utf-8")
    for secret in (seller["key"], seller["session"], PASSWORD, "argon2"):
        assert secret not in text
    data = json.loads(text)
    sections = ["keys", "sessions", "activity", "usage", "messages", "pictures", "takedowns", "rejected_requests"]
    assert list(data) == ["account", *sections, "changes", "listings"]
    assert (data["account"]["name"], data["account"]["email"]) == (seller["name"], seller["email"])
    assert [key["name"] for key in data["keys"]] == ["Alice's phone"]
    assert [session["browser"] for session in data["sessions"]] == ["Firefox"]
    assert [(event["what"], event["by"]) for event in data["activity"]] == [
        ("deleted", "key 1"),
        ("updated", "key 1"),
        ("created", "key 1"),
        ("created", "key 1"),
        ("created", "key 1"),
        ("signed_in", "console"),
        ("password_changed", "console"),
        ("key_added", "operator"),
    ]
    assert data["activity"][1]["detail"] == ["price_cents"]
    assert {(row["status"], row["requests"]) for row in data["usage"]} == {(201, 3), (200, 2), (404, 1)}
    assert [(one["code"], one["path"]) for one in data["rejected_requests"]] == [
        ("listing_not_found", "/api/v1/listings/999999")
    ]
    assert [listing["state"] for listing in data["listings"]] == ["active", "active", "deleted"]


def test_an_export_has_the_values_before_and_after_each_change(cli: Cli, seller: Data) -> None:
    cli.run_ok("account", "export", seller["email"], "alice.json")
    changes = json.loads((cli.folder / "alice.json").read_text("utf-8"))["changes"]
    assert [(one["what"], one["by"]) for one in changes] == [
        *[("created", "key 1")] * 3,
        ("updated", "key 1"),
        ("deleted", "key 1"),
    ]
    update = changes[3]["listing"]
    assert (update["id"], update["before"]["price"], update["after"]["price"]) == (seller["ids"][0], 0, 5)


def test_an_export_has_the_contact_and_the_setting_of_messages(cli: Cli, alice: Data) -> None:
    async def change(services: Services) -> None:
        owner = await services.accounts.find(alice["email"])
        await services.accounts.set_public_contact(owner, "shop@example.com")
        await services.accounts.set_messages(owner, is_on=False)

    use(cli, change)
    cli.run_ok("account", "export", alice["email"], "alice.json")
    account = json.loads((cli.folder / "alice.json").read_text("utf-8"))["account"]
    assert account["public_contact"] == "shop@example.com"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", account["messages_off_at"])


def test_an_existing_file_is_overwritten_only_with_force(cli: Cli, alice: Data) -> None:
    file = cli.folder / "alice.json"
    file.write_text("mine")
    assert "overwrite it with --force" in cli("account", "export", alice["email"], "alice.json").error_message
    assert file.read_text() == "mine"
    cli.run_ok("account", "export", alice["email"], "alice.json", "--force")
    assert json.loads(file.read_text("utf-8"))["account"]["id"] == alice["id"]


def test_an_export_does_not_replace_a_pipe(cli: Cli, alice: Data) -> None:
    os.mkfifo(cli.folder / "pipe")
    error = cli.get_error("account", "export", alice["email"], "pipe", "--force")
    assert error == "pipe is not a regular file: choose another name"
    assert (cli.folder / "pipe").is_fifo()
    assert "standard output" in cli.get_usage_error("account", "export", alice["email"], "-")
    assert sorted(path.name for path in cli.folder.iterdir()) == ["data", "pipe"]


def test_an_export_follows_a_symbolic_link(cli: Cli, alice: Data) -> None:
    (cli.folder / "link.json").symlink_to("data/alice.json")
    cli.run_ok("account", "export", alice["email"], "link.json")
    cli.run_ok("account", "export", alice["email"], "link.json", "--force")
    assert (cli.folder / "link.json").is_symlink()
    assert json.loads((cli.folder / "data/alice.json").read_text("utf-8"))["account"]["id"] == alice["id"]


def test_a_failed_export_leaves_no_file(cli: Cli, alice: Data) -> None:
    error = cli("account", "export", alice["email"], "missing/alice.json").error_message
    assert error == "missing/alice.json can't be written: No such file or directory"
    assert "There is no account" in cli("account", "export", "nobody@example.com", "a.json").error_message
    assert [path.name for path in cli.folder.iterdir()] == ["data"]
