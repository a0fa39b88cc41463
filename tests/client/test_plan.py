"""lst plan: files, the comparison with the catalogue, guards, and the number of requests."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import listings_client
from listings.store.sqlite.maintenance import backup, restore
from listings_client.errors import FileError
from listings_client.files import read_table
from listings_client.plan import Entry, Plan, load_plan, measure_jump
from tests.client.lst import Lst
from tests.harness import Person, RunningService

STOCK = """external_id,title,content,price
ü-1,Lamp,"Brass.\r\nTwo lines.",19.90
ü-2,Chair,Oak.,80
ü-3,Table,Rimu.,300.00
"""


def read(tmp_path: Path, text: str, name: str = "stock.csv", **mapping: str) -> dict[str, dict[str, Any]]:
    path = tmp_path / name
    path.write_text(text, "utf-8", newline="")
    return {external_id: row.fields for external_id, row in read_table(path, mapping)[0].items()}


def test_a_csv_file_is_read_by_names_and_synonyms(tmp_path: Path) -> None:
    text = '\ufeffSKU;Name;Description;Unit price (NZD);Published;Photos;Lat\na;Lamp;"x\ny";$5;no;https://a/1|https://a/2;-41.5\n'
    assert read(tmp_path, text) == {
        "a": {
            "title": "Lamp",
            "content": "x\ny",
            "price": Decimal("5.00"),
            "is_active": False,
            "images": ("https://a/1", "https://a/2"),
            "latitude": -41.5,
        }
    }


def test_the_first_of_several_names_counts(tmp_path: Path) -> None:
    assert read(tmp_path, "sku,external_id,title,name\na,b,c,d\n") == {"b": {"title": "c"}}


def test_a_mapping_comes_before_the_names(tmp_path: Path) -> None:
    text = "sku,title,note\na,b,c\n"
    assert read(tmp_path, text, title="-", note="title") == {"a": {"title": "c"}}
    with pytest.raises(FileError, match="has no column other"):
        read(tmp_path, text, other="title")


def test_json_lines_are_read_with_their_types(tmp_path: Path) -> None:
    rows = [{"external_id": 5, "price": 19.9, "images": ["https://a/1"], "latitude": None, "is_active": True}]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    expected = {"price": Decimal("19.90"), "images": ("https://a/1",), "latitude": None, "is_active": True}
    assert read(tmp_path, text, "stock.jsonl") == {"5": expected}


def test_text_with_unusual_line_breaks_stays_as_it_is(tmp_path: Path) -> None:
    assert read(tmp_path, 'external_id,content\r\na,"x\u2028\x0b\r\ny\x85"\r\n') == {
        "a": {"content": "x\u2028\x0b\r\ny\x85"}
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title\na\n", "No column of .* has the external ids"),
        ("", "No column of .* has the external ids"),
        ("sku,title\na,b\n,c\n", "Line 3 of .*: external_id is empty"),
        ("sku,title\na,b\na,c\n", "Line 3 of .*: external_id a is also in line 2"),
        ("sku,title\na\n", "Line 2 of .* has 1 cells, not 2"),
        ("sku,price\na,1.234\nb,x\n", "price may have two decimals, got '1.234'\n.*price must be a number, got 'x'"),
        ("sku,sku\na,b\n", "two columns with the same name"),
        ('sku,title\na,"b\n', "unexpected end of data"),
        ("sku,active\na,perhaps\n", "is_active must be yes or no"),
    ],
)
def test_an_invalid_file_is_explained(lst: Lst, text: str, message: str) -> None:
    with pytest.raises(FileError, match=f"(?s){message}"):
        read(lst.folder, text)
    assert lst("plan", lst.write(text)).code == 1


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_files_may_begin_with_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    for name, text in (("a.csv", "sku,title\na,Ōtaki\n"), ("a.jsonl", '{"sku":"a","title":"Ōtaki"}\r\n')):
        (tmp_path / name).write_bytes(text.encode(encoding))
        assert read_table(tmp_path / name, {})[0]["a"].fields["title"] == "Ōtaki"


def test_invalid_json_and_encodings_are_explained(tmp_path: Path) -> None:
    for text, message in (("{]", "Line 1 .* is not JSON"), ("[]", "Line 1 .* is not a JSON object")):
        with pytest.raises(FileError, match=message):
            read(tmp_path, text, "stock.jsonl")
    (tmp_path / "latin.csv").write_bytes("sku,title\na,ü\n".encode("latin-1"))
    with pytest.raises(FileError, match="is not UTF-8"):
        read_table(tmp_path / "latin.csv", {})


def test_a_plan_shows_what_would_change(lst: Lst) -> None:
    lst.load(STOCK)
    changed = STOCK.replace("19.90", "17.91").replace("ü-3", "ü-4")
    out = lst.ok("plan", lst.write(changed), "--out", lst.plan_file)
    assert "update ü-1\n  price: 19.90 → 17.91 (-10%)\n" in out
    assert "create ü-4\n  title: Table\n" in out
    assert "1 to create, 1 to update, 0 to delete, 1 unchanged, 1 not in the file" in out
    assert lst.plan_file.stat().st_mode & 0o777 == 0o600
    assert [len(lst.read()), lst.read()["ü-1"].price] == [3, Decimal("19.90")]


def test_an_applied_plan_leaves_nothing_to_do(lst: Lst) -> None:
    lst.load(STOCK)
    assert lst.read()["ü-1"].content == "Brass.\r\nTwo lines."
    numbers = lst.plan(STOCK)
    assert [numbers[name] for name in ("creates", "updates", "deletes", "unchanged", "left")] == [0, 0, 0, 3, 0]
    assert lst.ok("apply", lst.plan_file) == "0 applied, 0 skipped, 0 failed\n"


def test_only_columns_of_the_file_are_compared(lst: Lst) -> None:
    lst.load(STOCK)
    numbers = lst.plan("sku,price,colour\nü-1,19.90,red\nü-2,81,red\nü-3,300,red\n")
    assert (numbers["updates"], numbers["unchanged"]) == (1, 2)
    assert "Columns that are not used: colour" in lst("plan", lst.folder / "stock.csv", "--out", lst.plan_file).err


def test_a_new_listing_needs_title_and_content(lst: Lst) -> None:
    message = lst.fail(1, "plan", lst.write("sku,title\na,\n"), "--out", lst.plan_file)
    assert "Line 2: a is new, which needs title" in message
    assert "Line 2: a is new, which needs content" in message
    assert not lst.plan_file.exists()


def test_listings_without_an_external_id_are_never_touched(lst: Lst) -> None:
    with lst.connect() as client:
        own = client.create(title="By hand", content="Oak.")
    lst.load(STOCK)
    numbers = lst.plan("sku,title,content\nü-9,Lamp,Brass.\n", "--delete")
    assert (numbers["deletes"], numbers["left"]) == (3, 0)
    lst.ok("apply", lst.plan_file, "--yes")
    assert lst.read().keys() == {None, "ü-9"}
    assert lst.read()[None] == own


def test_a_prefix_limits_a_plan(lst: Lst) -> None:
    lst.load(STOCK)
    assert lst.plan("sku,title,content\nshop-1,Lamp,Brass.\n", "--delete", "--prefix", "shop-")["deletes"] == 0
    assert "does not begin with shop-" in lst.fail(1, "plan", lst.write(STOCK), "--prefix", "shop-")


def write_many(count: int, price: int = 5) -> str:
    return "sku,title,content,price\n" + "".join(f"p-{number},Lamp,Brass.,{price}\n" for number in range(count))


def test_deletions_need_the_option(lst: Lst) -> None:
    lst.load(write_many(20))
    assert lst.plan(write_many(15))["left"] == 5
    assert lst.plan(write_many(15), "--delete")["deletes"] == 5


def test_many_deletions_need_their_number(lst: Lst) -> None:
    lst.load(write_many(30))
    file = lst.write(write_many(19))
    message = lst.fail(3, "plan", file, "--delete", "--out", lst.folder / "guarded.json")
    assert message.endswith("11 of 30 listings would be deleted: to do so, add --max-delete 11\n")
    assert not (lst.folder / "guarded.json").exists()
    assert lst.fail(3, "plan", file, "--delete", "--max-delete", "10")
    assert lst.plan(write_many(19), "--delete", "--max-delete", "11")["deletes"] == 11
    assert lst.plan(write_many(20), "--delete")["deletes"] == 10


def test_price_jumps_and_short_files_are_questions(lst: Lst) -> None:
    lst.load(write_many(4))
    (question,) = lst.plan(write_many(4, price=8))["questions"]
    assert question == "4 prices change by more than 50%. Apply them?"
    assert "Without a terminal, this needs --yes" in lst.fail(3, "apply", lst.plan_file)
    assert {one.price for one in lst.read().values()} == {5}
    (question,) = lst.plan(write_many(1))["questions"]
    assert question == "The file has 1 rows, but there are 4 listings. Is it complete?"
    assert lst.plan(write_many(4, price=7))["questions"] == []
    assert lst.plan(write_many(2))["questions"] == []


def test_a_jump_needs_an_old_price() -> None:
    assert measure_jump(Entry("update", "a", {"price": 5}, 1, "", {"price": 0})) is None
    assert measure_jump(Entry("update", "a", {"price": 0}, 1, "", {"price": 5})) == -1


class Counted:
    """lst against a service with a rate limit, which counts its requests."""

    def __init__(self, folder: Path, service: RunningService) -> None:
        self.lst = Lst(folder, service, service.cast().alice)
        self.state = folder / "state.json"

    def count(self, text: str, *options: str) -> tuple[int, Any]:
        """Plan a file; return the number of requests, and the plan's numbers."""
        before = self._read_remaining()
        numbers = self.lst.plan(text, *options)
        return before - self._read_remaining(), numbers

    def _read_remaining(self) -> int:
        with self.lst.connect() as client:
            return client.limit().remaining or 0


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[Counted]:
    with RunningService(tmp_path / "service", rate_limit="1000") as service:
        yield Counted(tmp_path, service)


def count_with_state(counted: Counted, text: str) -> tuple[int, Any]:
    return counted.count(text, "--state", str(counted.state))


def test_an_unchanged_catalogue_costs_one_request(counted: Counted) -> None:
    text = write_many(1500)
    counted.lst.load(text)
    assert counted.count(text)[0] == 1
    assert count_with_state(counted, text)[0] == 3
    requests, numbers = count_with_state(counted, text)
    assert (requests, numbers["unchanged"]) == (1, 1500)


def test_the_state_file_follows_all_kinds_of_changes(counted: Counted) -> None:
    lst = counted.lst
    lst.load(write_many(6))
    count_with_state(counted, write_many(6))
    with lst.connect() as client:
        found = lst.read()
        client.delete(found["p-0"])
        client.update(found["p-1"], external_id=None)
        client.update(found["p-2"], external_id="moved")
        client.put("p-2", title="Another", content="Brass.", price=5)
        client.update(found["p-3"], title="Edited")
        gone = client.create(title="x", content="x", external_id="temporary")
        client.delete(gone)
        own = client.create(title="By hand", content="Oak.")
        client.update(own, external_id="p-0")
        client.delete(client.create(title="y", content="y", external_id="back"))
    for _ in range(2):
        with_state = lst.plan(write_many(6), "--state", str(counted.state))
        stored = load_plan(lst.plan_file)
        plain = lst.plan(write_many(6))
        assert show(stored) == show(load_plan(lst.plan_file))
        assert {**with_state, "group": ""} == {**plain, "group": ""}
    lst.ok("apply", lst.plan_file, "--yes")
    assert lst.plan(write_many(6), "--state", str(counted.state))["unchanged"] == 6


def show(plan: Plan) -> list[Any]:
    return sorted((entry.op, entry.external_id, entry.fields, entry.id, entry.if_match) for entry in plan.entries)


def test_a_restored_listing_is_read_again(counted: Counted) -> None:
    lst = counted.lst
    lst.load(write_many(3))
    found = lst.read()
    with lst.connect() as client:
        client.delete(found["p-0"])
        count_with_state(counted, write_many(3))
        client.restore(found["p-0"])
    assert count_with_state(counted, write_many(3))[1]["unchanged"] == 3


def make_key(service: RunningService, person: Person) -> str:
    account = str(person.account.id)
    return service.run(lambda services: services.keys.create(account, "second")).secret


def test_a_state_belongs_to_one_account(lst: Lst, service: RunningService) -> None:
    state = lst.folder / "state.json"
    lst.plan(STOCK, "--state", str(state))
    stranger = Lst(lst.folder, service, service.cast().bob)
    message = stranger.fail(1, "plan", lst.folder / "stock.csv", "--state", state)
    assert "is not the state of this account" in message
    lst.environment["LISTINGS_API_KEY"] = make_key(service, lst.seller)
    assert lst.plan(STOCK, "--state", str(state))["creates"] == 3
    for text in ("[]", "{}", '{"version": 2}'):
        state.write_text(text, "utf-8")
        assert "is not the state of" in lst.fail(1, "plan", lst.folder / "stock.csv", "--state", state)
    state.write_text("{", "utf-8")
    assert "can't be read" in lst.fail(1, "plan", lst.folder / "stock.csv", "--state", state)


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_restore_of_the_server_is_noticed(tmp_path: Path, is_lost: bool) -> None:  # noqa: FBT001 - a parameter
    folder, state = tmp_path / "service", tmp_path / "state.json"
    with RunningService(folder, rate_limit="0") as service:
        lst = Lst(tmp_path, service, service.cast().alice)
        lst.load(write_many(3))
        if is_lost:
            backup.back_up(folder / "listings.db", tmp_path / "backup.db")
        lst.load(write_many(5))
        lst.plan(write_many(5), "--state", str(state))
        if not is_lost:
            backup.back_up(folder / "listings.db", tmp_path / "backup.db")
    restore.restore(folder / "listings.db", tmp_path / "backup.db", force=True)
    with RunningService(folder, rate_limit="0") as restored:
        state.write_text(state.read_text("utf-8").replace(service.base_url, restored.base_url), "utf-8")
        lst = Lst(tmp_path, restored, lst.seller)
        numbers = lst.plan(write_many(5, price=6), "--state", str(state))
        assert (numbers["creates"], numbers["updates"]) == ((2, 3) if is_lost else (0, 5))
        assert lst.ok("apply", lst.plan_file).startswith("5 applied, 0 skipped")


def test_a_plan_is_bound_to_its_account_and_format(lst: Lst, service: RunningService) -> None:
    lst.plan(STOCK)
    stranger = Lst(lst.folder, service, service.cast().bob)
    assert "The plan is for live " in stranger.fail(1, "apply", lst.plan_file)
    assert stranger.read() == {}
    lst.environment["LISTINGS_API_KEY"] = make_key(service, lst.seller)
    lst.ok("apply", lst.plan_file)
    assert len(lst.read()) == 3
    lst.plan_file.write_text("{}", "utf-8")
    assert "is not a plan" in lst.fail(1, "apply", lst.plan_file)
    with pytest.raises(listings_client.ListingsError):
        load_plan(lst.folder / "missing.json")
