"""A listing as a form: what it shows, and what of it was changed, as a body of the API has it. Pure."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from starlette.datastructures import FormData

from listings.errors import Problem
from listings.fields import FIELDS, InvalidFields
from listings.model import Listing, Value

_GROUPING = re.compile(r"[\s,]")
_PRICE = re.compile(r"\$?(-?[0-9]{1,15}(?:\.[0-9]{1,20})?)")
_DEGREES = re.compile(r"[+-]?[0-9]{1,15}(?:\.[0-9]{1,30})?")
_BREAKS = re.compile(r"\r\n|\r")
_MANY_LINES = {"content", "images"}

Texts = Mapping[str, str]
"""What stands in the form, by the field's name."""

EMPTY: Texts = dict.fromkeys(FIELDS, "") | {"type": "product", "price_type": "fixed", "is_active": "true"}


class Difference(NamedTuple):
    """A field that somebody else has changed meanwhile, or that differs from it."""

    name: str
    stored: str
    sent: str


def read(form: FormData) -> Texts:
    """What was sent; a line break is one character."""
    values = {name: form.get(name, "") for name in FIELDS}
    return {name: _plain(name, value) if isinstance(value, str) else "" for name, value in values.items()}


def texts_of(listing: Listing) -> Texts:
    """What the form shows of a listing."""
    return {name: _text(name, getattr(listing, field.attribute)) for name, field in FIELDS.items()}


def new_body(sent: Texts) -> dict[str, object]:
    """The body of a create."""
    return {name: _value(name, text) for name, text in sent.items()}


def changed_body(sent: Texts, listing: Listing) -> dict[str, object]:
    """The body of an update: only what differs from what the form has shown, which may not tell all of a value."""
    shown = texts_of(listing)
    return {name: _value(name, text) for name, text in sent.items() if text != _plain(name, shown[name])}


def differences(sent: Texts, listing: Listing) -> list[Difference]:
    """Where what was sent is not what is stored."""
    shown = texts_of(listing)
    return [Difference(name, shown[name], text) for name, text in sent.items() if text != _plain(name, shown[name])]


def faults_of(problem: Problem | None) -> Mapping[str, str]:
    """Sentences by the field that is at fault."""
    if not isinstance(problem, InvalidFields):
        return {}
    return {name: sentence[:1].upper() + sentence[1:] for name, sentence in problem.faults.items()}


def _plain(name: str, text: str) -> str:
    """As a browser gives it back: a field of one line has no line breaks."""
    text = _BREAKS.sub("\n", text)
    return text if name in _MANY_LINES else text.replace("\n", "")


def _text(name: str, value: Value) -> str:
    if name == "images":
        return "\n".join(msgspec.json.decode(str(value), type=list[str]))
    if name == "price":
        return f"{int(value or 0) // 100}.{int(value or 0) % 100:02}" if value else ""
    if isinstance(value, bool):
        return "true" if value else ""
    return "" if value is None else str(value)


def _value(name: str, text: str) -> object:
    """What a body has for a field; what is no number stays text, so that the field's rule tells what is wrong."""
    if name == "is_active":
        return text == "true"
    if name == "images":
        return text.split()
    if name == "price":
        return _number(_PRICE.fullmatch(_GROUPING.sub("", text)), text)
    if name in {"latitude", "longitude"}:
        return _number(_DEGREES.fullmatch(text.strip()), text)
    return text


def _number(match: re.Match[str] | None, text: str) -> object:
    if not text.strip():
        return None
    return float(match[match.lastindex or 0]) if match is not None else text
