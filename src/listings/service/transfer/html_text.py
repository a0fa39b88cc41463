"""Descriptions of other shops as plain text."""

import re
from html.parser import HTMLParser

_HTML = re.compile(
    r"</?(?:a|b|blockquote|br|div|em|figure|font|h[1-6]|hr|i|img|li|ol|p|pre|span|strong|sub|sup|table|tbody|td|th|tr|u|ul)"
    r"(?:\s[^<>]*)?/?>|&(?:#\d{1,6}|amp|gt|lt|nbsp|quot);",
    re.IGNORECASE,
)
_ESCAPED_LINE_BREAK = re.compile(r"(?<!\\)(?<![A-Za-z]:)(?:\\r)?\\n")
_BLOCKS = frozenset({"blockquote", "div", "figure", "hr", "ol", "p", "pre", "table", "tr", "ul"}) | {
    f"h{level}" for level in range(1, 7)
}
_HIDDEN = frozenset({"script", "style"})


def convert_to_text(text: str) -> str:
    """Return a text without HTML, whose paragraphs and lists become lines, and with real line breaks."""
    if "\\n" in text:
        text = _ESCAPED_LINE_BREAK.sub("\n", text)
    if not ("<" in text or "&" in text) or _HTML.search(text) is None:
        return text
    parser = _TextParser()
    parser.feed(text)
    parser.close()
    lines = (re.sub(r"[ \t\xa0]+", " ", line).strip() for line in "".join(parser.parts).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _TextParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 - of the base class
        self._hidden += tag in _HIDDEN
        self.parts.append("\n" if tag == "br" else "\n- " if tag == "li" else "\n\n" if tag in _BLOCKS else "")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in _HIDDEN and self._hidden > 0
        self.parts.append("\n\n" if tag in _BLOCKS else "")

    def handle_data(self, data: str) -> None:
        self.parts.append("" if self._hidden else data)
