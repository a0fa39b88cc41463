"""`listings operator`: who may open the operator's page."""

import json

import pytest
from pyotp import parse_uri

from tests.cli.commands import Cli, Data

pytestmark = pytest.mark.decision("G59")


def test_an_operator_is_added_listed_and_removed(cli: Cli, alice: Data) -> None:
    shown = {"account_id": alice["id"], "name": alice["name"], "email": alice["email"]}
    added = cli.data("operator", "add", "alice@example.com")
    assert {name: added[name] for name in shown} == shown
    factor = parse_uri(str(added["link"]))
    assert (factor.secret, factor.name, factor.issuer) == (added["secret"], "alice@example.com", "Listings")
    listed = cli.run_ok("operator", "list", "--json")
    assert {name: json.loads(listed.out)[name] for name in shown} == shown
    assert str(added["secret"]) not in listed.out + listed.err
    assert cli.data("operator", "remove", str(alice["id"])) == shown
    assert cli.run_ok("operator", "list", "--json").out == ""
    assert cli.get_error("operator", "remove", "alice@example.com") == f"Account {alice['id']} is not an operator"


def test_another_secret_replaces_the_first_one(cli: Cli, alice: Data) -> None:
    first, second = (cli.data("operator", "add", str(alice["email"])) for _ in range(2))
    assert first["secret"] != second["secret"]
    assert len(cli.run_ok("operator", "list", "--json").out.splitlines()) == 1


def test_only_an_enabled_account_can_have_an_operator(cli: Cli, alice: Data) -> None:
    assert "no account" in cli.get_error("operator", "add", "bob@example.com")
    cli.run_ok("account", "disable", str(alice["email"]))
    assert cli.get_error("operator", "add", str(alice["email"])) == "This account is disabled"


def test_an_export_has_no_secret(cli: Cli, alice: Data) -> None:
    secret = str(cli.data("operator", "add", str(alice["email"]))["secret"])
    cli.run_ok("account", "export", str(alice["email"]), "alice.json")
    assert secret not in (cli.folder / "alice.json").read_text("utf-8")
