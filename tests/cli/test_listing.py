"""`listings list`, `show`, `delete` and `undelete`: an operator's access to sellers' listings."""

import json

import pytest

from tests.cli.commands import Cli, Data, Program, Serving


@pytest.fixture
def key(cli: Cli, alice: Data) -> str:
    return str(cli.key(alice)["key"])


def list_listings(cli: Cli, *options: str) -> list[Data]:
    return [json.loads(line) for line in cli.run_ok("list", "alice@example.com", *options, "--json").out.splitlines()]


def test_listings_of_every_state_are_listed_newest_first(cli: Cli, key: str, service: Serving) -> None:
    ids = [service.create(key, title) for title in ("one", "two", "three")]
    service.http.patch(f"/api/v1/listings/{ids[1]}", headers={"X-API-Key": key}, json={"is_active": False})
    cli.run_ok("delete", str(ids[2]))
    assert [(row["id"], row["state"]) for row in list_listings(cli)] == list(
        zip(reversed(ids), ["deleted", "inactive", "active"], strict=True)
    )
    assert [row["title"] for row in list_listings(cli, "--limit", "2")] == ["three", "two"]


def test_show_prints_the_api_record_and_all_other_fields(cli: Cli, alice: Data, key: str, service: Serving) -> None:
    body = {
        "title": "Table",
        "content": "Rimu.\nFour legs.",
        "images": ["https://a.example/1.jpg"],
        "price": 1250.5,
        "latitude": -41.3,
        "district": "Te Aro",
    }
    response = service.http.post("/api/v1/listings", headers={"X-API-Key": key}, json=body)
    listing_id = response.json()["id"]
    shown = cli.data("show", str(listing_id))
    record = service.read(key, listing_id).json()
    assert {name: shown[name] for name in record} == record
    additional = {"account_id", "state", "district", "latitude", "longitude", "deleted_at", "external_id"}
    assert shown.keys() - record.keys() == additional
    assert (shown["account_id"], shown["state"], shown["deleted_at"]) == (alice["id"], "active", None)
    assert (shown["latitude"], shown["longitude"], shown["district"]) == (-41.3, None, "Te Aro")
    lines = [line.split() for line in cli.run_ok("show", str(listing_id)).out.splitlines()]
    assert ["price", "1250.50"] in lines
    assert ["is_active", "true"] in lines
    assert " 1250.50 " in cli.run_ok("list", "alice@example.com").out


def test_a_deleted_listing_is_hidden_until_it_is_restored(cli: Cli, key: str, service: Serving) -> None:
    listing_id = service.create(key)
    assert cli.data("delete", str(listing_id))["state"] == "deleted"
    assert service.read(key, listing_id).status_code == 404
    assert cli.data("undelete", str(listing_id))["state"] == "inactive"
    assert service.read(key, listing_id).json()["is_active"] is False


def test_a_listing_can_be_restored_as_active(cli: Cli, key: str, service: Serving) -> None:
    listing_id = service.create(key)
    cli.run_ok("delete", str(listing_id))
    assert cli.data("undelete", str(listing_id), "--active")["state"] == "active"
    assert service.read(key, listing_id).json()["is_active"] is True


def test_deleting_is_idempotent(cli: Cli, key: str, service: Serving) -> None:
    listing_id = service.create(key)
    deleted = cli.data("delete", str(listing_id))
    assert cli.data("delete", str(listing_id)) == deleted
    assert cli.run_ok("delete", str(listing_id)).err == f"Listing {listing_id} was already deleted\n"


@pytest.mark.parametrize("options", [[], ["--active"]])
@pytest.mark.parametrize("is_active", [True, False])
def test_a_listing_that_is_not_deleted_cannot_be_restored(
    cli: Cli,
    key: str,
    service: Serving,
    options: list[str],
    is_active: bool,  # noqa: FBT001 - a pytest parameter
) -> None:
    listing_id = service.create(key)
    service.http.patch(
        f"/api/v1/listings/{listing_id}", headers={"X-API-Key": key}, json={"is_active": is_active}
    ).raise_for_status()
    untouched = cli.data("show", str(listing_id))
    outcome = cli("undelete", str(listing_id), *options)
    assert (outcome.code, outcome.err) == (1, f"listings: Listing {listing_id} is not deleted\n")
    assert cli.data("show", str(listing_id)) == untouched


def test_a_listing_of_an_erased_account_is_not_restored(cli: Cli, key: str, service: Serving) -> None:
    listing_id = service.create(key)
    cli.run_ok("account", "erase", "1", "--yes")
    assert cli.get_error("undelete", str(listing_id)) == "Account 1 is erased"
    assert cli.data("show", str(listing_id))["deleted_at"] is not None


def test_changes_by_the_operator_are_logged(
    program: Program, cli: Cli, alice: Data, key: str, service: Serving
) -> None:
    listing_id = service.create(key)
    outcomes = [program.run(command, str(listing_id)) for command in ("delete", "undelete")]
    lines = [json.loads(outcome.err) for outcome in outcomes]
    assert [line["event"] for line in lines] == [
        f"Deleted listing {listing_id} of account {alice['id']}",
        f"Restored listing {listing_id} of account {alice['id']}",
    ]
    assert all(line["operator"] for line in lines)
    assert cli.data("show", str(listing_id))["state"] == "inactive"


@pytest.mark.decision("G59")
def test_a_listing_is_taken_down_and_lifted(cli: Cli, alice: Data, key: str, service: Serving) -> None:
    listing_id = service.create(key)
    down = cli.data("takedown", "add", str(listing_id), "--reason", "A copy")
    assert (down["listing_id"], down["account_id"], down["reason"]) == (listing_id, alice["id"], "A copy")
    assert down.keys() == {"listing_id", "account_id", "reason", "operator", "taken_down_at"}
    assert service.http.get(f"/listings/{listing_id}").status_code == 404
    assert service.read(key, listing_id).json()["is_active"] is True
    assert cli.data("takedown", "list") == down
    assert cli.data("takedown", "lift", str(listing_id)) == down
    assert service.http.get(f"/listings/{listing_id}").status_code == 200
    assert cli.run_ok("takedown", "list", "--json").out == ""
    assert cli.get_error("takedown", "lift", str(listing_id)) == f"Listing {listing_id} is not taken down"


@pytest.mark.parametrize("command", ["show", "delete", "undelete"])
def test_an_unknown_listing_is_rejected(cli: Cli, alice: Data, command: str) -> None:  # noqa: ARG001 - creates the database
    assert cli.get_error(command, "1025") == "There is no listing with the id 1025"


def test_control_characters_are_not_printed(cli: Cli, key: str, service: Serving) -> None:
    title = "Red \x1b[31mbike\x1b[0m \u202e[bold]x[/bold]"
    listing_id = service.create(key, title)
    for shown in (cli.run_ok("list", "1").out, cli.run_ok("show", str(listing_id)).out):
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "[bold]x[/bold]" in shown
    assert cli.data("show", str(listing_id))["title"] == title
