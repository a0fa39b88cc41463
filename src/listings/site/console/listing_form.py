"""A listing as a form: what it shows, and what of it was changed, as a body of the API has it. Pure."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from starlette.datastructures import FormData

from listings.domain.errors import Problem
from listings.domain.fields import FIELDS, InvalidFieldsError
from listings.domain.model import Listing, Value
from listings.site.presentation import TYPES

_GROUPING = re.compile(r"[\s,]")
_PRICE = re.compile(r"\$?\s*(-?(?:[0-9]{1,3}(?:[\s,][0-9]{3}){1,4}|[0-9]{1,15})(?:\.[0-9]{1,20})?)")
_DEGREES = re.compile(r"[+-]?[0-9]{1,15}(?:\.[0-9]{1,30})?")
_BREAKS = re.compile(r"\r\n|\r")
_PICTURE = re.compile(r"\[([0-9]+)\]")
_MANY_LINES = {"content", "images"}
_YES_OR_NO = {"true": "yes", "": "no"}

Texts = Mapping[str, str]
"""What stands in the form, by the field's name."""

EMPTY: Texts = dict.fromkeys(FIELDS, "") | {"type": "product", "price_type": "fixed", "is_active": "true"}


PRICE_TYPES: Mapping[str, str] = {
    "fixed": "Fixed",
    "negotiable": "Negotiable",
    "per_hour": "Per hour",
    "per_night": "Per night",
}
_LABELS: Mapping[str, str] = {
    "title": "Title",
    "content": "Description",
    "type": "Type",
    "category": "Category",
    "images": "Pictures",
    "price": "Price",
    "price_type": "How it is meant",
    "location": "Address or suburb",
    "region": "Region",
    "district": "District",
    "latitude": "Latitude",
    "longitude": "Longitude",
    "is_active": "On the market",
}
_WORDS: Mapping[str, Mapping[str, str]] = {"type": TYPES, "price_type": PRICE_TYPES, "is_active": _YES_OR_NO}


class Difference(NamedTuple):
    """A field that somebody else has changed meanwhile, or that differs from it, in the form's words."""

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
    return [
        Difference(_LABELS[name], _worded(name, shown[name]), _worded(name, text))
        for name, text in sent.items()
        if text != _plain(name, shown[name])
    ]


def faults_of(problem: Problem | None) -> Mapping[str, str]:
    """Sentences by the field that is at fault."""
    if not isinstance(problem, InvalidFieldsError):
        return {}
    return {name: _told(name, sentence.removeprefix(name)) for name, sentence in problem.errors.items()}


def _told(name: str, fault: str) -> str:
    """A fault that follows the field's name, behind the form's name of it; pictures are counted from 1."""
    picture = _PICTURE.match(fault)
    if picture is not None:
        return f"Picture {int(picture[1]) + 1}{fault[picture.end() :]}"
    return f"{_LABELS[name]}{fault}"


def _worded(name: str, text: str) -> str:
    """As the form shows it, or its choice."""
    return _WORDS.get(name, {}).get(text, text)


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
        return [line.strip() for line in text.split("\n") if line.strip()]
    if name == "price":
        return _number(_PRICE.fullmatch(text.strip()), text)
    if name in {"latitude", "longitude"}:
        return _number(_DEGREES.fullmatch(text.strip()), text)
    return text


def _number(match: re.Match[str] | None, text: str) -> object:
    if not text.strip():
        return None
    return float(_GROUPING.sub("", match[match.lastindex or 0])) if match is not None else text
