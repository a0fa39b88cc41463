"""Build HTML that is escaped by default: any string that is not `Html` is text."""

import re
from html import escape
from typing import TypeAlias

_VOID = {"input", "link", "meta"}
_CODE = re.compile(r"`([^`]+)`")


class Html(str):
    """A string of HTML markup."""

    __slots__ = ()


Content: TypeAlias = "str | Html | None"


def tag(name: str, /, *content: Content, **attributes: str | bool | None) -> Html:
    """Return an element.

    Attribute names lose a trailing underscore; other underscores become hyphens. Attributes that are None or False
    are left out.
    """
    inner = "".join(to_html(part) for part in content if part is not None)
    start = f"<{name}{''.join(_format_attribute(key, value) for key, value in attributes.items())}>"
    return Html(start if name in _VOID else f"{start}{inner}</{name}>")


def to_html(content: str) -> Html:
    """Escape text. Markup stays as it is."""
    return content if isinstance(content, Html) else Html(escape(content))


def join_html(parts: list[Html], separator: str = "") -> Html:
    """Concatenate markup."""
    return Html(separator.join(parts))


def format_text(text: str) -> Html:
    """Escape text, and mark up parts in backquotes as code."""
    pieces = _CODE.split(text)
    return join_html([tag("code", piece) if index % 2 else to_html(piece) for index, piece in enumerate(pieces)])


def _format_attribute(name: str, value: str | bool | None) -> str:  # noqa: FBT001 - HTML has boolean attributes
    key = name.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {key}" if value is True else f' {key}="{escape(value)}"'
