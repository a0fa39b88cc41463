"""lst: commands for single listings, changes and keys."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from listings_client import credentials
from listings_client.cli import main
from tests.client.lst import Lst

COMMANDS = list(main.commands)


def create(lst: Lst, *fields: str) -> int:
    return int(lst.data("create", "title=Lamp", "content=Brass.", *fields)["id"])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help(lst: Lst, command: str) -> None:
    out = lst.ok(command, "--help")
    assert "Usage: " in out
    assert main.commands[command].help


def test_login_checks_and_saves_the_key(lst: Lst) -> None:
    environment, lst.environment = lst.environment, {"LISTINGS_API_KEY": "", "LISTINGS_URL": ""}
    assert "run lst login" in lst.fail(1, "list")
    out = lst.ok("login", stdin=f"{lst.base_url}/\n{lst.seller.key}\n")
    assert "Saved the live key" in out
    assert lst.seller.key not in out
    assert lst.ok("list").startswith("ID")
    assert lst.fail(1, "--test", "list") == "lst: There is no test key: run lst login\n"
    assert credentials.find().key == environment["LISTINGS_API_KEY"]


def test_login_rejects_a_wrong_key(lst: Lst) -> None:
    assert "Invalid API key" in lst.fail(1, "login", "--url", lst.base_url, "--key", "lst_wrong")
    assert not credentials.get_path().exists()


def test_a_listing_is_created_edited_deleted_and_restored(lst: Lst) -> None:
    number = str(
        create(lst, "price=19.90", "external_id=sku-1", "images=https://a.example/1.jpg https://a.example/2.jpg")
    )
    assert "price: 19.90\n" in lst.ok("get", number)
    edited = lst.data("edit", number, "price=25", "is_active=no", "external_id=")
    assert (edited["price"], edited["is_active"], edited["external_id"]) == (25.0, False, None)
    assert len(edited["images"]) == 2
    assert "Without a terminal, this needs --yes" in lst.fail(3, "delete", number)
    assert lst.ok("delete", number, "--yes") == f"{number}: listing deleted\n"
    assert lst.fail(1, "get", number) == "lst: Listing not found\n"
    assert lst.ok("restore", number) == f"{number}: listing restored\n"
    assert lst(*("delete", "1", "--yes")).code == 1


def test_a_list_is_a_table_without_control_characters(lst: Lst) -> None:
    create(lst, "title=\x1b[31mRed\nlamp" + "x" * 60, "price=5")
    head, row = lst.ok("list").splitlines()
    assert head.split() == ["ID", "EXTERNAL", "ID", "PRICE", "STATE", "TITLE"]
    assert row.endswith("…")
    assert "\x1b" not in row
    create(lst, "external_id=b", "is_active=no")
    assert [one["external_id"] for one in lst.data("list", "--status", "inactive")] == ["b"]
    assert len(lst.data("list", "--status", "all", "--limit", "1")) == 1
    assert [one["external_id"] for one in lst.data("list", "--status", "all", "--external-id", "b")] == ["b"]


def test_an_export_can_be_planned(lst: Lst) -> None:
    create(lst, "external_id=ü", "price=19.90", "latitude=-41.25", "images=https://a.example/1.jpg")
    deleted = str(create(lst, "external_id=gone"))
    lst.ok("delete", deleted, "--yes")
    file = lst.folder / "stock.jsonl"
    lst.ok("export", file)
    (line,) = file.read_text("utf-8").splitlines()
    assert json.loads(line)["external_id"] == "ü"
    assert lst.ok("export") == f"{line}\n"
    summary = lst.data("plan", file, "--out", lst.plan_file)
    assert (summary["creates"], summary["updates"], summary["unchanged"]) == (0, 0, 1)


def test_changes_and_history_are_shown(lst: Lst) -> None:
    number = str(create(lst))
    create(lst)
    lst.ok("edit", number, "price=5")
    lines = lst.ok("changes").splitlines()
    assert len([line for line in lines if not line.startswith(" ")]) == 3
    assert lines[-1] == f"  {number}: price 0.00 → 5.00"
    assert [json.loads(line)["kind"] for line in lst.ok("--json", "history", number).splitlines()] == [
        "updated",
        "created",
    ]
    assert lst.data("changes", "--after", "2")["id"] == 3


def test_the_last_write_is_undone_after_a_preview(lst: Lst) -> None:
    number = str(create(lst, "price=5"))
    lst.ok("edit", number, "price=6")
    outcome = lst("undo")
    assert outcome.code == 3
    assert f"{number}: price 6.00 → 5.00" in outcome.err
    assert lst.data("get", number)["price"] == 6.0
    assert lst.data("undo", "--yes")["reverted"] == 1
    assert lst.data("get", number)["price"] == 5.0
    lst.ok("undo", "--yes")  # the undo itself
    assert lst.data("get", number)["price"] == 6.0


def test_an_undo_names_what_was_changed_later(lst: Lst) -> None:
    number = str(create(lst, "price=5"))
    lst.ok("edit", number, "price=6")
    lst.ok("edit", number, "price=7")
    assert lst("undo", "--change", "2", "--yes").code == 4
    assert lst.data("get", number)["price"] == 7.0
    assert lst.data("undo", "--change", "2", "--overwrite", "--yes")["reverted"] == 1
    assert lst.data("get", number)["price"] == 5.0


def test_the_work_of_a_key_is_undone(lst: Lst) -> None:
    create(lst)
    since = (datetime.now(UTC) - timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%S")
    assert "--key must be" in lst.fail(2, "undo", "--key", "mine", "--since", since)
    assert lst.data("undo", "--key", "self", "--since", since, "--yes")["reverted"] == 1
    assert lst.data("list") == []


@pytest.mark.parametrize(
    "options", [("--key", "self"), ("--since", "2020-01-01"), ("--change", "1", "--group", "a"), ("--key", "x y")]
)
def test_an_undo_of_nothing_certain_is_rejected(lst: Lst, options: tuple[str, ...]) -> None:
    assert "Choose one of --change" in lst.fail(2, "undo", *options)


def test_without_changes_there_is_nothing_to_undo(lst: Lst) -> None:
    assert "no changes to undo" in lst.fail(1, "undo", "--yes")


def test_the_limit_is_shown(lst: Lst) -> None:
    assert lst.ok("limit") == "There is no limit\n"
    assert lst.data("limit")["limit"] is None


@pytest.mark.parametrize("field", ["price=x", "colour=red", "price", "is_active=perhaps", "price=1.234"])
def test_an_invalid_field_is_wrong_usage(lst: Lst, field: str) -> None:
    assert lst.fail(2, "create", "title=Lamp", "content=Brass.", field)
    assert lst.data("list", "--status", "all") == []


def test_errors_of_the_service_are_one_line(lst: Lst) -> None:
    assert lst.fail(1, "create", "title=Lamp") == "lst: content is required\n"


def test_the_mode_is_checked(lst: Lst) -> None:
    assert lst.fail(1, "--test", "list") == "lst: A test key is needed, but this is a live key\n"
