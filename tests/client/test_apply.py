"""lst apply: rivals, kills, old plans, and what the journal records."""

import json
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

import listings_client
from tests.cli.commands import DEADLINE, clean_environment
from tests.client.lst import Lst

HEAD = "sku,title,content,price\n"


def write_many(first: int, last: int, price: float = 5) -> str:
    return HEAD + "".join(f"p-{number},Lamp,Brass.,{price}\n" for number in range(first, last))


def test_listings_that_were_changed_since_are_skipped(lst: Lst) -> None:
    lst.load(write_many(0, 5))
    lst.plan(write_many(1, 7, price=6), "--delete")
    found = lst.read()
    with lst.connect() as client:
        client.update(found["p-0"], title="Edited")
        client.update(found["p-1"], title="Edited")
        client.delete(found["p-2"])
        client.create(title="Rival", content="x", external_id="p-5")
    outcome = lst("--json", "apply", lst.plan_file)
    assert outcome.code == 4
    result = json.loads(outcome.out)
    assert {(one["op"], one["external_id"]) for one in result["skipped"]} == {
        ("delete", "p-0"),
        ("update", "p-1"),
        ("update", "p-2"),
        ("create", "p-5"),
    }
    assert (result["applied"], result["failed"]) == (3, [])
    after = lst.read()
    assert (after["p-0"].title, after["p-1"].title, after["p-5"].title) == ("Edited", "Edited", "Rival")
    assert (after["p-1"].price, after["p-3"].price, after["p-6"].price) == (5, 6, 6)
    assert "p-2" not in after


def test_an_edit_of_anything_stops_a_strict_apply(lst: Lst) -> None:
    lst.load(write_many(0, 3))
    for options in ((), ("--state", str(lst.folder / "state.json"))):
        lst.plan(write_many(0, 3, price=6), *options)
        with lst.connect() as client:
            client.create(title="Another", content="x")
        assert lst("apply", lst.plan_file, "--strict").code == 4
        assert {one.price for name, one in lst.read().items() if name} == {5}
    lst.plan(write_many(0, 3, price=6))
    assert lst.ok("apply", lst.plan_file, "--strict").startswith("3 applied")
    assert lst.ok("apply", lst.plan_file, "--strict").startswith("3 applied")


def test_an_applied_plan_is_undone_as_a_whole(lst: Lst) -> None:
    lst.load(write_many(0, 250))
    before = {name: (one.price, one.title) for name, one in lst.read().items()}
    group = lst.plan(write_many(50, 300, price=7), "--delete", "--max-delete", "50")["group"]
    assert f"To undo: lst undo --group {group}" in lst.ok("apply", lst.plan_file)
    assert lst.read().keys() == {f"p-{number}" for number in range(50, 300)}
    assert lst.data("undo", "--group", group, "--yes")["reverted"] == 300
    assert {name: (one.price, one.title) for name, one in lst.read().items()} == before


def test_rejected_rows_are_reported_and_the_others_applied(lst: Lst) -> None:
    long = "x" * 256
    lst.plan(f"{HEAD}a,{long},Brass.,5\nb,Lamp,Brass.,5\n")
    outcome = lst("apply", lst.plan_file)
    assert outcome.code == 1
    assert "failed: create a: listing.title" in outcome.out
    assert lst.read().keys() == {"b"}


def test_a_plan_of_yesterday_is_refused(lst: Lst) -> None:
    lst.plan(write_many(0, 1))
    plan = json.loads(lst.plan_file.read_bytes())
    plan["created_at"] = (datetime.now(UTC) - timedelta(hours=24)).isoformat()
    lst.plan_file.write_text(json.dumps(plan), "utf-8")
    assert "older than 24 hours" in lst.fail(1, "apply", lst.plan_file)
    assert lst.read() == {}


def test_a_plan_is_applied_once(lst: Lst) -> None:
    lst.plan(write_many(0, 150))
    first = lst.ok("apply", lst.plan_file)
    with lst.connect() as client:
        last = client.last_change()
        assert lst.ok("apply", lst.plan_file) == first
        journal = lst.plan_file.with_name("plan.json.journal")
        journal.unlink()
        assert lst.ok("apply", lst.plan_file) == first  # the service replays its responses
        assert client.last_change() == last


def test_a_torn_line_of_the_journal_is_written_again(lst: Lst) -> None:
    lst.plan(write_many(0, 250))
    first = lst.ok("apply", lst.plan_file)
    journal = lst.plan_file.with_name("plan.json.journal")
    complete = journal.read_bytes()
    assert complete.count(b"\n") == 3
    journal.write_bytes(complete[:-10])
    assert lst.ok("apply", lst.plan_file) == first
    assert journal.read_bytes() == complete


def test_a_journal_of_another_plan_is_not_used(lst: Lst) -> None:
    lst.load(write_many(0, 2))
    lst.load(write_many(0, 2, price=7))
    assert {one.price for one in lst.read().values()} == {7}


def test_a_rival_writer_loses_nothing(lst: Lst) -> None:
    lst.load(write_many(0, 400))
    lst.plan(write_many(0, 400, price=6))
    stopped, edited = threading.Event(), []

    def edit() -> None:
        with lst.connect() as client:
            found = list(client.stream())
            for listing in found:
                if stopped.is_set():
                    return
                try:
                    client.update(listing, title="Edited")
                except listings_client.StaleError:
                    continue
                edited.append(listing.external_id)

    rival = threading.Thread(target=edit)
    rival.start()
    outcome = lst("--json", "apply", lst.plan_file)
    stopped.set()
    rival.join(DEADLINE)
    skipped = {one["external_id"] for one in json.loads(outcome.out)["skipped"]}
    after = lst.read()
    assert {name for name, one in after.items() if one.title == "Edited"} == set(edited)
    assert {name for name, one in after.items() if one.price != 6} == skipped
    assert skipped <= set(edited)


_KILLED = """
import os, signal, sys
import httpx2
from listings_client import apply, cli

steps = iter(range(1_000))
wanted = int(sys.argv.pop(1))


def step():
    if next(steps) == wanted:
        os.kill(os.getpid(), signal.SIGKILL)


def around(owner, name, applies=lambda *_: True):
    method = getattr(owner, name)

    def wrapped(*given, **named):
        if not applies(*given):
            return method(*given, **named)
        step()
        result = method(*given, **named)
        step()
        return result

    setattr(owner, name, wrapped)


around(httpx2.Client, "send", lambda _client, request, *_: request.method == "POST")
around(apply.Journal, "write")
around(os, "fsync")
cli.main()
"""
"""Kills itself before or after a step: a write request, a line of the journal, and its fsync."""


def kill_at(lst: Lst, step: int) -> bool:
    """Run apply until it is killed at a step. Return whether it was."""
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(step), "apply", str(lst.plan_file), "--yes"],
        env={**clean_environment(), **lst.environment},
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode in {0, -9}, done.stderr
    return done.returncode == -9


@pytest.mark.slow
def test_after_a_kill_at_every_step_the_state_is_the_same(lst: Lst) -> None:
    lst.load(write_many(0, 150))
    for step in count():
        group = lst.plan(write_many(20, 170, price=7), "--delete", "--max-delete", "20")["group"]
        with lst.connect() as client:
            before = client.last_change()
            was_killed = kill_at(lst, step)
            done = lst.ok("apply", lst.plan_file, "--yes")
            assert client.last_change() == before + 2  # each batch was processed once
        assert done.startswith("170 applied, 0 skipped, 0 failed")
        state = lst.read()
        assert state.keys() == {f"p-{number}" for number in range(20, 170)}
        assert {one.price for one in state.values()} == {7}
        if not was_killed:
            break
        lst.data("undo", "--group", group, "--yes")
    assert step == 12
