"""Render the guides. They are Markdown files that are also readable in the repository."""

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from itertools import pairwise
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

from listings.api.docs.page import build_environment, list_titles, read_guide
from listings.api.docs.texts import ERROR_DOCS, read_texts
from listings.domain.errors import STATUS, Problem
from listings.domain.faults import FAULTS
from listings.service import ServiceInfo

_BASE_URL = "https://market.example"  # in the samples


def render_guide(name: str, base_url: str, about: ServiceInfo, texts: Mapping[str, str]) -> bytes:
    """Return the page of a guide. Its samples send requests to `base_url`.

    `texts` has the text for each comment `<!-- NAME -->`, by name.

    Raises Problem("path_not_found").
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(format_guide(name, base_url, texts))
    # Links to Markdown files lead to the guides that they contain.
    for link in (child for token in tokens for child in token.children or () if child.type == "link_open"):
        target = str(link.attrGet("href"))
        link.attrSet("href", re.sub(r"^([\w-]+)\.md(?=#|$)", rf"{urlsplit(base_url).path}/docs/\1", target))
    title, *headings = _mark_headings(tokens)
    # Readers can scroll wide tables and samples with the keyboard.
    html = parser.renderer.render(tokens, parser.options, {}).replace("<pre>", '<pre tabindex="0">')
    template = build_environment(base_url, about).get_template("guide.html")
    return template.render(
        current=name,
        title=title[2],
        sections=[(anchor, text) for level, anchor, text in headings if level == "h2"],
        html=html.replace("<table>", '<div class="wide" tabindex="0"><table>').replace("</table>", "</table></div>"),
    ).encode()


def format_guide(name: str, base_url: str, texts: Mapping[str, str]) -> str:
    """Return a guide as Markdown. Arguments and errors are those of `render_guide`."""
    if name not in list_titles():
        raise Problem("path_not_found", f"Path not found: {urlsplit(base_url).path}/docs lists all paths")
    text = read_guide(name).replace(_BASE_URL, base_url)
    faults = ["| Code | Meaning |", "|---|---|", *(f"| `{code}` | {text} |" for code, text in FAULTS.items())]
    for comment, replacement in {**texts, "errors": _format_errors(), "faults": "\n".join(faults)}.items():
        text = text.replace(f"<!-- {comment} -->", replacement)
    return text


def format_overview(base_url: str, access: str) -> str:
    """Return /llms.txt: the API in brief, and the addresses of the guides, for agents."""
    guides = "\n".join(f"- [{title}]({base_url}/docs/{name}.md)" for name, title in list_titles().items())
    operations = "\n".join(f"- {name}: {texts.summary}" for name, texts in read_texts().operations.items())
    template = files("listings.api.docs").joinpath("llms.txt").read_text("utf-8")
    texts = {"access": access, "guides": guides, "operations": operations}
    for comment, replacement in texts.items():
        template = template.replace(f"<!-- {comment} -->", replacement)
    return template.replace(_BASE_URL, base_url)


def _mark_headings(tokens: list[Token]) -> Iterator[tuple[str, str, str]]:
    # Each heading gets the id that GitHub gives it. Yields its level, id and text.
    for heading, content in pairwise(tokens):
        if heading.type == "heading_open":
            anchor = re.sub(r"[^\w -]", "", content.content.lower()).replace(" ", "-")
            heading.attrSet("id", anchor)
            yield heading.tag, anchor, content.content


def _format_errors() -> str:
    codes = sorted(ERROR_DOCS, key=lambda code: STATUS[code])
    return "\n\n".join(
        f"### `{code}`\n\n**{STATUS[code]}.** {ERROR_DOCS[code].when} {ERROR_DOCS[code].fix}\n\n"
        f'Example: `{{"error": "{ERROR_DOCS[code].example}"}}`'
        for code in codes
    )
