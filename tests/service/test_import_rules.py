"""Imports: conditional rows, files as a whole, and dry runs that predict the import."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listings.domain.errors import Problem
from listings.domain.history import CONSOLE
from listings.service.transfer.scan import IdChoiceRequired
from listings.store.query import Command
from tests.harness import Harness, create_member
from tests.service.importing import Shop


def conflict(field: str, now: object, row: object) -> str:
    return f"Changed after this file was exported: {field} is {json.dumps(now)} now, the row has {json.dumps(row)}"


def edit(text: bytes, old: str, new: str) -> bytes:
    assert text.count(old.encode()) == 1
    return text.replace(old.encode(), new.encode())


@pytest.mark.decision("G43")
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_an_old_export_does_not_undo_later_edits(shop: Shop, name: str) -> None:
    ids = [shop.create(title=title, price=100) for title in ("Sold", "Repriced", "Edited", "Same")]
    file = shop.export(name)
    shop.change(ids[0])
    shop.change(ids[1], price=150)
    shop.change(ids[3], price=150)
    shop.change(ids[3], price=100)
    sold, repriced, edited, same = shop.outcomes(edit(file, "Edited", "Better"), name)
    assert sold.startswith(
        "Changed after this file was exported: is_active is false now, the row has true; deleted_at is"
    )
    assert (repriced, edited, same) == (conflict("price", 150.0, 100.0), "updated", "unchanged")
    assert [shop.get(one).price_cents for one in ids] == [10_000, 15_000, 10_000, 10_000]
    assert shop.get(ids[0]).deleted_at is not None
    assert shop.outcomes(file, name, overwrite=True)[:2] == ["restored", "updated"]
    assert (shop.get(ids[0]).deleted_at, shop.get(ids[1]).price_cents) == (None, 10_000)


def test_one_export_is_edited_and_imported_three_times(shop: Shop) -> None:
    for title in ("One", "Two"):
        shop.create(title=title, price=1)
    file = shop.export()
    for price in ("2.00", "3.00", "4.00"):
        assert shop.outcomes(edit(file, "One,c,product,,,1.00", f"One,c,product,,,{price}")) == ["updated", "unchanged"]
    assert [one.price_cents for one in shop.listings()] == [400, 100]


@pytest.mark.parametrize("actor", ["key", "console import", "import of a later export"])
def test_fields_that_others_changed_are_conflicts_and_other_fields_are_not(shop: Shop, actor: str) -> None:
    one = shop.create(title="One", category="A")
    file = shop.export()
    shop.outcomes(edit(file, "One", "First"))
    if actor == "key":
        shop.change(one, title="Other")
    else:
        options: dict[str, Any] = {"actor": CONSOLE} if actor.startswith("console") else {}
        assert shop.outcomes(edit(shop.export(), "First", "Other"), **options) == ["updated"]
    assert shop.outcomes(edit(file, "One", "Mine")) == [conflict("title", "Other", "Mine")]
    assert shop.outcomes(edit(edit(file, "One", "Other"), ",A,", ",B,")) == ["updated"]
    assert (shop.get(one).title, shop.get(one).category) == ("Other", "B")


def test_without_a_version_the_time_of_the_last_update_is_compared(shop: Shop) -> None:
    one = shop.create(title="One", price=1)
    row = {"id": one, "title": "Mine", "updated_at": shop.get(one).updated_at}
    shop.harness.clock.advance(60)
    shop.change(one, title="Other")
    file = json.dumps(row)
    assert shop.outcomes(file, "a.jsonl") == [conflict("title", "Other", "Mine")]
    assert shop.outcomes(json.dumps(row | {"updated_at": shop.get(one).updated_at}), "a.jsonl") == ["updated"]
    assert shop.outcomes(json.dumps(row | {"updated_at": "yesterday", "title": "Any"}), "a.jsonl") == ["updated"]
    assert shop.outcomes(json.dumps({"id": one, "title": "Again"}), "a.jsonl") == ["updated"]


def test_a_version_of_another_database_counts_as_absent(shop: Shop) -> None:
    one = shop.create(title="One")
    shop.change(one, title="Other")
    row = {"id": one, "title": "Mine", "version": "v1-0123456789ab"}
    assert shop.outcomes(json.dumps(row), "a.jsonl") == ["updated"]


def test_only_the_version_of_the_deletion_restores(shop: Shop) -> None:
    one = shop.create(title="One")
    before = json.loads(shop.export("a.jsonl"))
    shop.change(one)
    after = json.loads(shop.export("a.jsonl"))
    restored = {"id": one, "deleted_at": None}
    assert shop.outcomes(json.dumps(restored), "a.jsonl") == ["unchanged"]
    assert shop.outcomes(json.dumps(restored | {"version": before["version"]}), "a.jsonl")[0].startswith(
        "Changed after"
    )
    assert shop.outcomes(json.dumps(restored | {"version": after["version"]}), "a.jsonl") == ["restored"]
    assert (shop.get(one).deleted_at, shop.get(one).is_active) == (None, False)
    version = json.loads(shop.export("a.jsonl"))["version"]
    deleted = {"id": one, "deleted_at": "2026-01-01 00:00:00", "version": version}
    assert shop.outcomes(json.dumps(deleted), "a.jsonl") == ["deleted"]
    assert "was deleted after this file was exported" in shop.outcomes(json.dumps(deleted | restored), "a.jsonl")[0]


def test_removed_changes_are_conflicts(shop: Shop) -> None:
    one = shop.create(title="One", category="A")
    file = shop.export()
    shop.change(one, title="Other")
    store = shop.harness.services.transfer._store  # noqa: SLF001
    shop.harness.run(store._write(Command("DELETE FROM changes WHERE listing_id = $1"), one))  # noqa: SLF001
    assert shop.outcomes(edit(file, ",A,", ",B,"))[0].startswith("Changed after this file was exported: title is")


def test_ids_that_are_not_the_accounts_wait_for_a_choice(shop: Shop) -> None:
    mine = shop.create(title="Mine", content="my words", price=40)
    before = shop.get(mine)
    rows = "".join(f'{mine + number},Shop product,"<p>d</p>",9.50\n' for number in range(-4, 4))
    file = f"ID,Title,Description,price\n{rows}"
    for options in ({}, {"dry_run": True}, {"actor": CONSOLE}):
        with pytest.raises(IdChoiceRequired, match="The file has ids of another shop or account"):
            shop.run(file, **options)
    assert shop.get(mine) == before
    assert shop.outcomes(file, ids="new") == ["created"] * 8
    assert shop.get(mine) == before
    assert {one.external_id for one in shop.listings()} == {None, *(str(mine + number) for number in range(-4, 4))}
    assert shop.outcomes(file, ids="match").count("updated") == 1


def test_an_own_export_rejects_foreign_ids_row_by_row(shop: Shop) -> None:
    shop.create(title="Mine")
    file = shop.export() + shop.export().splitlines()[1].replace(b"1025", b"1026", 1).replace(b"Mine", b"Other")
    assert [outcome.partition(" is invalid")[0] for outcome in shop.outcomes(file)] == ["unchanged", "id 1026"]


@pytest.mark.parametrize("kind", ["id", "external_id"])
def test_all_rows_of_a_repeated_id_are_rejected_with_their_lines(shop: Shop, kind: str) -> None:
    one = shop.create(title="Mine")
    value = one if kind == "id" else "9.42 x"
    file = f"title,content,{kind}\nKettle,c,{value}\nToaster,c,{value}\nLamp,c,\nIron,c,{value}\n"
    shown = one if kind == "id" else '"9.42 x"'
    reason = f"{kind} {shown} is in lines 2, 3 and 5: use it in one row only"
    assert shop.outcomes(file) == [reason, reason, "created", reason]
    assert shop.get(one).title == "Mine"


def test_a_swap_of_external_ids_is_rejected_and_a_chain_is_not(shop: Shop) -> None:
    ids = [shop.create(title=name, external_id=name) for name in "abc"]
    swap = [{"id": ids[0], "external_id": "b"}, {"id": ids[1], "external_id": "a"}]
    planned = shop.outcomes("\n".join(map(json.dumps, swap)), "a.jsonl")
    assert [one.partition(":")[0] for one in planned] == [
        f'external_id "b" belongs to listing {ids[1]}',
        f'external_id "a" belongs to listing {ids[0]}',
    ]
    chain = [{"id": ids[2], "external_id": "d"}, {"id": ids[1], "external_id": "c"}, {"id": ids[0], "external_id": "b"}]
    assert shop.outcomes("\n".join(map(json.dumps, chain)), "a.jsonl") == ["updated"] * 3
    assert [shop.get(one).external_id for one in ids] == ["b", "c", "d"]


def test_a_swap_and_a_repetition_have_the_outcomes_of_the_dry_run(shop: Shop) -> None:
    one, other = (shop.create(title=name, external_id=name) for name in "ab")
    assert len(shop.outcomes(f"id,external_id\n{one},t\n{other},a\n{one},b\n")) == 3


def test_imported_listings_reach_programs_that_poll(shop: Shop) -> None:
    old = "2020-01-01 00:00:00"
    assert shop.outcomes(f"title,content,created_at,updated_at,view_count\nMoved,c,{old},{old},7\n") == ["created"]
    (listing,) = shop.listings()
    assert (listing.created_at, listing.view_count, listing.updated_at > old) == (old, 7, True)
    found = shop.harness.fetch("GET", "/api/v1/listings?updated_since=2026-01-01T00:00:00Z", key=shop.person.key)
    assert [one["title"] for one in found.json()["listings"]] == ["Moved"]


class Files:
    """Random files about a few listings, whose external ids are exchanged, taken and given up."""

    def __init__(self, shop: Shop, choose: Callable[[list[Any]], Any]) -> None:
        self.shop, self.choose = shop, choose

    def build(self) -> str:
        exported = [json.loads(line) for line in self.shop.export("x.jsonl").splitlines()]
        return "\n".join(json.dumps(self._build_row(exported)) for _ in range(self.choose([1, 2, 3, 5, 8])))

    def _build_row(self, exported: list[dict[str, Any]]) -> dict[str, Any]:
        choose = self.choose
        row: dict[str, Any] = {"title": choose(["A", "B"]), "content": "c"}
        known = choose([*exported, None])
        if known is not None and choose([True, True, False]):
            row["id"] = known["id"]
            names = choose([["version"], ["version", "deleted_at"], ["updated_at"], [], ["version", "deleted_at"]])
            row |= {name: known[name] for name in names}
        elif choose([True, False, False]):
            row["id"] = choose([1026, 99 * 1024 + 1, 2**53 + 1])
        if choose([True, True, False]):
            row["external_id"] = choose(["a", "b", "c", "d", None])
        row |= choose(
            [{}, {}, {"deleted_at": "2026-01-01 00:00:00"}, {"deleted_at": None}, {"price": -1}, {"category": "x"}]
        )
        return row


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Harness(tmp_path_factory.mktemp("rules"), max_account_listings="14") as harness:
        yield Shop(harness, harness.run(create_member(harness.services, "alice")))


def check_a_file(shop: Shop, choose: Callable[[list[Any]], Any]) -> None:
    if len([one for one in shop.listings() if one.deleted_at is None]) < 3:
        shop.create(title="New")
    files = [Files(shop, choose).build() for _ in range(2)]
    edited = choose(shop.listings()).id
    if choose([True, False]):
        shop.harness.clock.advance(choose([0, 2]))
        change = {"title": choose(["A", "C"]), "external_id": choose(["a", "e"])}
        shop.harness.fetch("PATCH", f"/api/v1/listings/{edited}", key=shop.person.key, json=change)
    for file in files:
        compare(shop, file, {"ids": "match", "overwrite": choose([True, False, False])})


def compare(shop: Shop, file: str, options: dict[str, Any]) -> None:
    before = {one.id: one for one in shop.listings()}
    planned = shop.run(file, "x.jsonl", dry_run=True, **options)
    done = shop.run(file, "x.jsonl", **options)
    assert [one[:2] for one in planned] == [one[:2] for one in done], file
    changed: dict[int, dict[str, Any]] = {}
    for one in shop.listings():
        if one.id in before:
            names = [name for name in one.__struct_fields__ if name not in {"version", "updated_at"}]
            diff = {name: getattr(one, name) for name in names if getattr(one, name) != getattr(before[one.id], name)}
            changed |= {one.id: diff} if diff else {}
    key = lambda diff: json.dumps(diff, sort_keys=True)  # noqa: E731
    assert sorted(changed.values(), key=key) == sorted((one.diff for one in planned if one.diff), key=key), file


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_dry_run_has_the_outcomes_fields_and_reasons_of_the_import(market: Shop, seed: int) -> None:
    check_a_file(market, random.Random(seed).choice)


def test_a_file_that_does_not_name_its_titles_is_refused_with_one_sentence(shop: Shop) -> None:
    with pytest.raises(Problem, match=r"No column of .*a\.csv has the titles: name one title, or choose which it is"):
        shop.run("price,colour\n1,red\n" * 2)
