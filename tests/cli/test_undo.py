"""`listings account changes` and `listings account undo` (decision G46)."""

import json
import time
from pathlib import Path

import pytest

from listings.domain import timestamps
from listings.domain.reverts import MAX_FIRST_LISTINGS
from listings.service import Services
from tests.cli.commands import Cli
from tests.harness import Harness, Person

LISTINGS = "/api/v1/listings"


@pytest.fixture
def alice(tmp_path: Path) -> Person:
    """Alice, whose key has created a listing and changed its price twice."""
    with Harness(tmp_path / "data") as harness:
        harness.clock.now = time.time()
        alice = harness.person("alice")
        created = harness.fetch("POST", LISTINGS, key=alice.key, json={"title": "Lamp", "content": "Brass."})
        for price in (5, 6):
            harness.fetch("PATCH", created.headers["location"], key=alice.key, json={"price": price})
        return alice


def test_change_sets_are_listed_and_one_is_undone(cli: Cli, alice: Person) -> None:
    account = str(alice.account.id)
    rows = [json.loads(line) for line in cli.run_ok("account", "changes", account, "--json").out.splitlines()]
    assert [(row["id"], row["kind"], row["listings"]) for row in rows] == [
        (1, "created", 1),
        (2, "updated", 1),
        (3, "updated", 1),
    ]
    assert rows[0]["by"].endswith(f"(key {alice.key_id})")
    planned = cli.data("account", "undo", account, "--change", "3", "--dry-run")
    assert planned == {"id": None, "reverted": 1, "unchanged": 0, "conflicts": 0}
    dry_run = cli.run_ok("account", "undo", account, "--change", "3", "--dry-run")
    assert dry_run.err == "This was a dry run: nothing was written\n"
    done = cli.data("account", "undo", account, "--change", "3", "--yes")
    assert done == {"id": 1, "reverted": 1, "unchanged": 0, "conflicts": 0}
    last = cli.data("account", "changes", account, "--last", "1")
    assert (last["by"], last["kind"], last["part_of"]) == ("operator", "reverted", 1)


def test_the_writes_of_a_key_are_undone(cli: Cli, alice: Person) -> None:
    since = timestamps.format_timestamp(time.time() - 3600)
    options = ("--key", str(alice.key_id), "--since", since)
    done = cli.data("account", "undo", str(alice.account.id), *options, "--yes")
    assert done["reverted"] == 1
    shown = cli.data("account", "show", str(alice.account.id))
    assert (shown["active_listings"], shown["deleted_listings"]) == (0, 1)


def create_many(harness: Harness) -> Person:
    """Create listings whose undo needs several transactions."""
    alice = harness.person("alice")
    operations = [{"op": "create", "listing": {"title": "Lamp", "content": "Brass."}}] * 100
    for _ in range(2 * MAX_FIRST_LISTINGS // 100):
        harness.fetch("POST", f"{LISTINGS}/batch", key=alice.key, json={"operations": operations})
    return alice


def test_a_large_undo_is_finished_without_the_background_tasks(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with Harness(cli.folder / "data") as harness:
        harness.clock.now = time.time()
        alice = create_many(harness)
    calls: list[Services] = []

    async def run_background_tasks(services: Services) -> None:
        calls.append(services)

    monkeypatch.setattr(Services, "run_background_tasks", run_background_tasks)
    options = ("--key", str(alice.key_id), "--since", timestamps.format_timestamp(time.time() - 3600))
    done = cli.data("account", "undo", str(alice.account.id), *options, "--yes")
    assert done["reverted"] == 2 * MAX_FIRST_LISTINGS
    assert calls == []


def test_conflicts_are_reported_and_without_confirmation_nothing_written(cli: Cli, alice: Person) -> None:
    refused = cli("account", "undo", str(alice.account.id), "--change", "2")
    assert refused.code != 0
    assert "This changes 0 listings, with 1 conflict. Continue?" in refused.err
    outcome = cli.run_ok("account", "undo", str(alice.account.id), "--change", "2", "--yes")
    assert "keeps price: change set 3 changed it later" in outcome.err


def test_an_unclear_undo_is_rejected(cli: Cli) -> None:
    one_of = "Give exactly one of --change, --import, --revert and --key."
    for options, error in (
        ((), one_of),
        (("--change", "1", "--key", "1"), one_of),
        (("--change", "1", "--since", "2026-11-20"), "Give --since and --until only with --key."),
        (("--key", "1"), "Give --since with --key."),
    ):
        assert error in cli.get_usage_error("account", "undo", "1", *options)
