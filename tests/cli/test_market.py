"""`listings market rebuild`, and doctor's check of the search index."""

import os
from pathlib import Path

import msgspec
import pytest

from listings.search import folders
from listings.search.folders import find_root
from listings.search.writer import OpenIndex
from tests.cli.commands import Cli
from tests.harness import Harness
from tests.site.market import create


def check_index(cli: Cli, code: int = 0) -> tuple[str, str]:
    outcome = cli("doctor", "--json", "--offline")
    assert outcome.code == code
    (row,) = [row for row in map(msgspec.json.decode, outcome.out.splitlines()) if row["check"] == "search index"]
    return row["verdict"], row["found"]


def test_doctor_compares_the_index_and_a_rebuild_repairs_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LISTINGS_DATABASE_URL", f"sqlite:///{tmp_path}/listings.db")
    cli.run_ok("migrate")
    assert check_index(cli) == ("ok", "There is none yet: a running service builds it")
    with Harness(tmp_path) as harness:
        create(harness, harness.person("alice"))
        root = find_root(harness.settings.file)
        folder = folders.choose_folder(root)
        assert folder is not None
        index = OpenIndex(folder)
        index.apply([it._replace(is_shown=0) for it in harness.run(harness.store.list_market_changes(0, 9))])
        index.commit(index.position)
        index.close()
    assert check_index(cli, 1) == ("fault", "1 of 1 listings differ from the database")
    assert cli("market", "rebuild").err == "The search index is built again in the background\n"
    with Harness(tmp_path) as harness:
        harness.index_market()
        assert folders.choose_folder(root) != folder
    assert check_index(cli) == ("ok", "1 listing compared, as in the database")


def test_doctor_names_an_index_of_another_user(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTINGS_DATABASE_URL", f"sqlite:///{tmp_path}/listings.db")
    cli.run_ok("migrate")
    root = find_root(tmp_path / "listings.db")
    root.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path != root)  # noqa: ARG005 - names of os.access
    assert check_index(cli, 1) == ("fault", f"{root} can't be read and written")
