"""/llms.txt, guides as Markdown, and the search of the documentation, which needs no script."""

import re

import pytest

from listings.api.docs.page import list_titles
from tests.api.test_reference_page import ParsedPage
from tests.harness import Harness, Reply


def get(harness: Harness, path: str) -> Reply:
    return harness.fetch("GET", path, headers={"Host": "shop.example"})


@pytest.mark.parametrize("name", list_titles())
def test_a_guide_is_also_markdown(harness: Harness, name: str) -> None:
    reply = get(harness, f"/docs/{name}.md")
    text = reply.body.decode()
    assert (reply.status, reply.headers["content-type"]) == (200, "text/markdown; charset=utf-8")
    assert text.startswith(f"# {list_titles()[name]}\n")
    assert "https://market.example" not in text
    assert "<!--" not in text
    again = harness.fetch("GET", f"/docs/{name}.md", headers={"If-None-Match": reply.headers["etag"]})
    assert again.status in {200, 304}


def test_an_unknown_markdown_file_is_not_found(harness: Harness) -> None:
    for path in ("/docs/nothing.md", "/docs/.md", "/docs/sync.md.md"):
        assert get(harness, path).status == 404


def test_the_overview_for_agents_links_to_pages_that_exist(harness: Harness) -> None:
    reply = get(harness, "/llms.txt")
    text = reply.body.decode()
    assert reply.headers["content-type"] == "text/markdown; charset=utf-8"
    assert len(text.splitlines()) <= 80
    links = re.findall(r"\]\(http://shop\.example(/[^)]+)\)", text)
    assert len(links) == len(list_titles()) + 1
    assert {get(harness, link).status for link in links} == {200}
    assert "- runBatch: " in text
    assert "<!--" not in text


@pytest.mark.parametrize(
    ("query", "address"),
    [
        ("restore", "/docs#restoreListing"),
        ("TIMEOUT change", "/docs#listChanges"),
        ("wait changes", "/docs/changes#wait-for-changes"),
        ("max-delete", "/docs/sync#write-a-catalogue"),
        ("if_match", "/docs/batches#batches"),
    ],
)
def test_a_search_finds_operations_and_parts_of_guides(harness: Harness, query: str, address: str) -> None:
    page = get(harness, f"/docs?q={query.replace(' ', '+')}")
    parsed = ParsedPage(page.body.decode())
    assert page.status == 200
    assert address in parsed.links
    path, _, anchor = address.partition("#")
    assert anchor in ParsedPage(get(harness, path).body.decode()).ids


def test_a_search_without_results_and_with_markup_is_safe(harness: Harness) -> None:
    text = get(harness, "/docs?q=%3Cscript%3Ealert%28%22x%22%29" + "x" * 5000).body.decode()
    assert "Nothing has all of these words" in text
    assert "<script>alert" not in text
    assert len(text) < 20_000
    assert get(harness, "/docs?q=+").body == get(harness, "/docs").body


def test_forms_of_writes_begin_with_a_dry_run(harness: Harness) -> None:
    text = get(harness, "/docs").body.decode()
    chosen = r'<select id="(\w+)-dry_run"[^>]*>\s*<option value=""></option>\s*<option value="true" selected>'
    selected = re.findall(chosen, text)
    writes = ["createListing", "runBatch", "updateListing", "updateListingByPut", "deleteListing", "restoreListing"]
    assert sorted(selected) == sorted([*writes, "deleteImage", "revertChanges"])
