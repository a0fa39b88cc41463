"""HTML that can't be forgotten to be escaped: whatever is not an `Html` already is text."""

import re
from html import escape
from typing import TypeAlias

_VOID = {"input", "link", "meta"}
_CODE = re.compile(r"`([^`]+)`")


class Html(str):
    """Text that is markup."""

    __slots__ = ()


Content: TypeAlias = "str | Html | None"


def tag(name: str, /, *content: Content, **attributes: str | bool | None) -> Html:
    """An element. A trailing underscore of an attribute's name is dropped, others are hyphens; None and False: none."""
    inner = "".join(markup(part) for part in content if part is not None)
    start = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Html(start if name in _VOID else f"{start}{inner}</{name}>")


def markup(content: str) -> Html:
    """Text as markup; markup stays as it is."""
    return content if isinstance(content, Html) else Html(escape(content))


def joined(parts: list[Html], between: str = "") -> Html:
    """Many pieces as one."""
    return Html(between.join(parts))


def words(text: str) -> Html:
    """Text in which what stands between backquotes is code."""
    pieces = _CODE.split(text)
    return joined([tag("code", piece) if place % 2 else markup(piece) for place, piece in enumerate(pieces)])


def _attribute(name: str, value: str | bool | None) -> str:  # noqa: FBT001 - an attribute that is there or not
    key = name.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {key}" if value is True else f' {key}="{escape(value)}"'
