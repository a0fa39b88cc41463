"""The guides at /docs/NAME: their samples run, their links lead somewhere, and the catalogue of errors is complete."""

import html
import re
from pathlib import Path

import httpx2
import pytest

from listings.api.docs.page import list_titles
from listings.api.docs.texts import ERROR_DOCS
from listings.domain.errors import STATUS
from listings.service import NO_INFO
from tests.api.test_reference_page import ParsedPage
from tests.cli.commands import Program, demo_environment
from tests.guide_samples import build_environment, read_samples, run_sample, run_samples
from tests.harness import TIMEOUT, Harness

GUIDES = list(list_titles())


def get_page(harness: Harness, path: str) -> str:
    reply = harness.fetch("GET", path, headers={"Host": "shop.example"})
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8"), path
    return reply.body.decode()


@pytest.mark.parametrize("name", GUIDES)
def test_the_samples_print_what_the_guide_says(tmp_path: Path, name: str) -> None:
    run_samples(name, tmp_path, {"python", "sh"}, {})


def test_pages_are_well_formed_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    with Harness(tmp_path, sign_up="on") as harness:
        paths = ["/docs", *(f"/docs/{name}" for name in GUIDES)]
        pages = {path: ParsedPage(get_page(harness, path)) for path in paths}
        for path, page in pages.items():
            assert page.open == []
            assert len(set(page.ids)) == len(page.ids)
            for link in page.links:
                target, _, anchor = link.partition("#")
                if (target or path) in pages:
                    assert not anchor or anchor in pages[target or path].ids, (path, link)
                elif not link.startswith(("https://", "data:")):
                    assert harness.fetch("GET", link).status in {200, 303}, (path, link)


def test_the_header_links_to_pages_that_exist(tmp_path: Path) -> None:
    pages = {"/", "/console/keys"}
    found = {}
    for site in ("on", "off"):
        with Harness(tmp_path / site, site=site) as harness:
            found[site] = [pages & set(ParsedPage(get_page(harness, path)).links) for path in ("/docs", "/docs/sync")]
    assert found == {"on": [pages] * 2, "off": [set()] * 2}


def test_the_public_url_is_in_links_and_samples(tmp_path: Path) -> None:
    from listings.api.docs.guides import render_guide  # noqa: PLC0415 - loaded lazily by the service too

    page = ParsedPage(render_guide("errors", "https://a.example/shop", NO_INFO, {"contact": ""}).decode())
    assert {link for link in page.links if link.startswith("/") and not link.startswith("/shop/")} == {"/console/keys"}
    with Harness(tmp_path, base_url="https://a.example") as harness:
        text = get_page(harness, "/docs/quick-start")
    assert "export BASE_URL=https://a.example\n" in text
    assert "https://a.example/console/keys" in ParsedPage(text).links


def test_the_documentation_names_the_contact(tmp_path: Path) -> None:
    for contact, link in (("help@a.example", "mailto:help@a.example"), ("https://a.example/help",) * 2):
        with Harness(tmp_path / link.partition(":")[0], contact=contact) as harness:
            for path in ("/docs", "/docs/errors"):
                assert link in ParsedPage(get_page(harness, path)).links


@pytest.mark.decision("G27")
def test_the_catalogue_has_every_error_with_status_cause_and_fix(harness: Harness) -> None:
    text = get_page(harness, "/docs/errors")
    sections = dict(re.findall(r'<h3 id="(\w+)">(.*?)(?=<h3|</div>)', text, re.DOTALL))
    assert sections.keys() == ERROR_DOCS.keys()
    for code, doc in ERROR_DOCS.items():
        plain = html.unescape(re.sub(r"</?code>", "`", sections[code]))
        assert f"<strong>{STATUS[code]}.</strong> {doc.when} {doc.fix}" in plain


def test_a_guide_needs_no_script_and_no_other_host(harness: Harness) -> None:
    page = ParsedPage(get_page(harness, "/docs/quick-start"))
    assert not {name for name in page.attributes if name == "style" or name.startswith("on")}
    guide, reference = (harness.fetch("GET", path).headers for path in ("/docs/sync", "/docs"))
    assert guide["content-security-policy"] == reference["content-security-policy"]
    assert "export BASE_URL=http://shop.example\n" in get_page(harness, "/docs/quick-start")
    missing = harness.fetch("GET", "/docs/nothing")
    assert (missing.status, missing.json()) == (404, {"error": "Path not found: /docs lists all paths"})
    again = harness.fetch("GET", "/docs/sync", headers={"If-None-Match": guide["etag"]})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("names", [GUIDES, GUIDES[::-1]], ids=["forwards", "backwards"])
def test_the_samples_work_in_any_order_on_the_demo(tmp_path: Path, names: list[str]) -> None:
    """Where a guide shows no error, there is none. The other outputs depend on what earlier guides have changed."""
    with Program(tmp_path).serve("--demo"):
        environment = build_environment(demo_environment(tmp_path))
        for name in names:
            page = httpx2.get(f"{environment['BASE_URL']}/docs/{name}", timeout=TIMEOUT).text
            for sample in read_samples(page):
                if sample.language in {"python", "sh"}:
                    printed = run_sample(name, sample, tmp_path, environment)
                    assert ('"error"' in printed) == ('"error"' in sample.output), (sample.code, printed)
