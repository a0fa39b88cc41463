"""`listings list`, `show`, `close`, `reopen`: the operator's work on sellers' listings."""

import json

import pytest

from tests.cli.commands import Cli, Data, Program, Serving


@pytest.fixture
def key(cli: Cli, alice: Data) -> str:
    """alice's."""
    return str(cli.key(alice)["key"])


def listed(cli: Cli, *options: str) -> list[Data]:
    return [json.loads(line) for line in cli.done("list", "alice@example.com", *options, "--json").out.splitlines()]


def test_listings_of_every_state_are_listed_the_newest_first(cli: Cli, key: str, service: Serving) -> None:
    ids = [service.create(key, title) for title in ("one", "two", "three")]
    service.http.patch(f"/api/v1/listings/{ids[1]}", headers={"X-API-Key": key}, json={"is_active": False})
    cli.done("delete", str(ids[2]))
    assert [(row["id"], row["state"]) for row in listed(cli)] == list(
        zip(reversed(ids), ["deleted", "inactive", "active"], strict=True)
    )
    assert [row["title"] for row in listed(cli, "--limit", "2")] == ["three", "two"]


def test_a_listing_is_shown_as_its_owner_reads_it_with_what_is_stored_besides(
    cli: Cli, alice: Data, key: str, service: Serving
) -> None:
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
    besides = {"account_id", "state", "district", "latitude", "longitude", "deleted_at"}
    assert shown.keys() - record.keys() == besides
    assert (shown["account_id"], shown["state"], shown["deleted_at"]) == (alice["id"], "active", None)
    assert (shown["latitude"], shown["longitude"], shown["district"]) == (-41.3, None, "Te Aro")


def test_a_closed_listing_is_gone_for_its_owner_until_it_is_reopened(cli: Cli, key: str, service: Serving) -> None:
    listing_id = service.create(key)
    assert cli.data("delete", str(listing_id))["state"] == "deleted"
    assert service.read(key, listing_id).status_code == 404
    assert cli.data("undelete", str(listing_id))["state"] == "inactive"
    assert service.read(key, listing_id).json()["is_active"] is False


def test_a_listing_is_reopened_active_where_that_is_asked_for(cli: Cli, key: str, service: Serving) -> None:
    listing_id = service.create(key)
    cli.done("delete", str(listing_id))
    assert cli.data("undelete", str(listing_id), "--active")["state"] == "active"
    assert service.read(key, listing_id).json()["is_active"] is True


def test_closing_twice_changes_nothing(cli: Cli, key: str, service: Serving) -> None:
    listing_id = service.create(key)
    closed = cli.data("delete", str(listing_id))
    assert cli.data("delete", str(listing_id)) == closed


@pytest.mark.parametrize("options", [[], ["--active"]])
@pytest.mark.parametrize("is_active", [True, False])
def test_a_listing_that_is_not_deleted_is_not_reopened(
    cli: Cli,
    key: str,
    service: Serving,
    options: list[str],
    is_active: bool,  # noqa: FBT001 - pytest's way
) -> None:
    listing_id = service.create(key)
    service.http.patch(
        f"/api/v1/listings/{listing_id}", headers={"X-API-Key": key}, json={"is_active": is_active}
    ).raise_for_status()
    untouched = cli.data("show", str(listing_id))
    outcome = cli("undelete", str(listing_id), *options)
    assert (outcome.code, outcome.err) == (1, f"listings: Listing {listing_id} is not deleted\n")
    assert cli.data("show", str(listing_id)) == untouched


def test_what_the_operator_does_to_a_listing_is_logged_as_the_operators(
    program: Program, cli: Cli, alice: Data, key: str, service: Serving
) -> None:
    listing_id = service.create(key)
    outcomes = [program.run(command, str(listing_id)) for command in ("delete", "undelete")]
    lines = [json.loads(outcome.err) for outcome in outcomes]
    assert [line["event"] for line in lines] == [
        f"Deleted listing {listing_id} of account {alice['id']} for its owner",
        f"Restored listing {listing_id} of account {alice['id']} for its owner",
    ]
    assert all(line["operator"] for line in lines)
    assert cli.data("show", str(listing_id))["state"] == "inactive"


@pytest.mark.parametrize("command", ["show", "delete", "undelete"])
def test_a_listing_that_is_not_there_is_refused(cli: Cli, alice: Data, command: str) -> None:  # noqa: ARG001 - there is a database
    assert cli.refused(command, "1025") == "There is no listing with the id 1025"


@pytest.mark.parametrize("command", ["show", "delete", "undelete"])
@pytest.mark.parametrize("what", ["0", "-1", "x", "9223372036854775808"])
def test_what_is_no_id_is_wrong_usage(cli: Cli, command: str, what: str) -> None:
    cli.misused(command, what)


def test_text_that_a_terminal_would_obey_is_shown_harmless(cli: Cli, key: str, service: Serving) -> None:
    title = "Red \x1b[31mbike\x1b[0m \u202e[bold]x[/bold]"
    listing_id = service.create(key, title)
    for shown in (cli.done("list", "1").out, cli.done("show", str(listing_id)).out):
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "[bold]x[/bold]" in shown
    assert cli.data("show", str(listing_id))["title"] == title
