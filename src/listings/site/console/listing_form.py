"""The form of a listing: its values, and the body of the API request for a submitted form. Pure functions."""

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
_LINE_BREAK = re.compile(r"\r\n|\r")
_IMAGE_INDEX = re.compile(r"\[([0-9]+)\]")
_MULTILINE = {"content", "images"}
_YES_OR_NO = {"true": "yes", "": "no"}

FormValues = Mapping[str, str]
"""The texts of a form by field name."""

EMPTY: FormValues = dict.fromkeys(FIELDS, "") | {"type": "product", "price_type": "fixed", "is_active": "true"}


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
    "images": "Images",
    "price": "Price",
    "price_type": "Price type",
    "location": "Address or suburb",
    "region": "Region",
    "district": "District",
    "latitude": "Latitude",
    "longitude": "Longitude",
    "is_active": "On the market",
}
_OPTION_LABELS: Mapping[str, Mapping[str, str]] = {
    "type": TYPES,
    "price_type": PRICE_TYPES,
    "is_active": _YES_OR_NO,
}


class Difference(NamedTuple):
    """A field whose submitted value differs from the stored one, as shown to the seller."""

    name: str
    stored: str
    sent: str


def read(form: FormData) -> FormValues:
    """Return the submitted values. Line breaks are normalised to one character."""
    values = {name: form.get(name, "") for name in FIELDS}
    return {name: _as_submitted(name, value) if isinstance(value, str) else "" for name, value in values.items()}


def form_values(listing: Listing) -> FormValues:
    """Return the values that the form shows for a listing."""
    return {name: _text(name, getattr(listing, field.attribute)) for name, field in FIELDS.items()}


def new_body(sent: FormValues) -> dict[str, object]:
    """Return the body of a create request."""
    return {name: _value(name, text) for name, text in sent.items()}


def changed_body(sent: FormValues, listing: Listing) -> dict[str, object]:
    """Return the body of an update request with the fields that the seller edited.

    Submitted values are compared with the form's texts, because a text may not show all of a stored value.
    """
    return {name: _value(name, sent[name]) for name in _changed_names(sent, form_values(listing))}


def differences(sent: FormValues, listing: Listing) -> list[Difference]:
    """Return the fields whose submitted values differ from the stored ones."""
    stored = form_values(listing)
    return [
        Difference(_LABELS[name], _display(name, stored[name]), _display(name, sent[name]))
        for name in _changed_names(sent, stored)
    ]


def field_errors(problem: Problem | None) -> Mapping[str, str]:
    """Return the error message of each invalid field."""
    if not isinstance(problem, InvalidFieldsError):
        return {}
    return {name: _label_error(name, error.removeprefix(name)) for name, error in problem.errors.items()}


def _changed_names(sent: FormValues, stored: FormValues) -> list[str]:
    return [name for name, text in sent.items() if text != _as_submitted(name, stored[name])]


def _label_error(name: str, error: str) -> str:
    """Return the form's message for an error of a field's rule. Images are counted from 1."""
    if error.startswith(" is required"):
        return f"Enter a {_LABELS[name].lower()}"
    index = _IMAGE_INDEX.match(error)
    if index is not None:
        return f"Image {int(index[1]) + 1} isn't a valid http or https URL"
    return f"{_LABELS[name]}{error}"


def _display(name: str, text: str) -> str:
    """Return the label of an option, or the text itself."""
    return _OPTION_LABELS.get(name, {}).get(text, text)


def _as_submitted(name: str, text: str) -> str:
    """Return the text as a browser submits it: a field of one line has no line breaks."""
    text = _LINE_BREAK.sub("\n", text)
    return text if name in _MULTILINE else text.replace("\n", "")


def _text(name: str, value: Value) -> str:
    if name == "images":
        return "\n".join(msgspec.json.decode(str(value), type=list[str]))
    if name == "price":
        return f"{int(value or 0) // 100}.{int(value or 0) % 100:02}" if value else ""
    if isinstance(value, bool):
        return "true" if value else ""
    return "" if value is None else str(value)


def _value(name: str, text: str) -> object:
    """Return the field's value in a body. An invalid number stays a string, so that the field's rule rejects it."""
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
