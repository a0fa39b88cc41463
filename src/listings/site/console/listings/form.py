"""The form of a listing: its values, and the body of the API request for a submitted form. Pure functions."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from starlette.datastructures import FormData

from listings.domain.errors import Problem
from listings.domain.fields import (
    FIELDS,
    Coordinate,
    Field,
    FieldError,
    Flag,
    Identifier,
    Images,
    InvalidFieldsError,
    Money,
    get_default,
    parse_listing_change,
    parse_new_listing,
)
from listings.domain.model import Listing, Value
from listings.domain.number_text import parse_price
from listings.site import presentation

_DEGREES = re.compile(r"[+-]?[0-9]{1,15}(?:\.[0-9]{1,30})?(?:e-[0-9]{1,3})?")  # with the form of small floats
_LINE_BREAK = re.compile(r"\r\n|\r")
_IMAGE_ERROR = re.compile(r"\[([0-9]+)\]( must be an (?:absolute )?http or https URL)?")
_MULTILINE = {"content", "images"}

FormValues = Mapping[str, str]
"""The texts of a form by field name."""


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
    return {name: _text(field, getattr(listing, field.attribute)) for name, field in FIELDS.items()}


def copy_values(listing: Listing, base_url: str) -> FormValues:
    """Return the values of a new listing's form for a copy, which is paused and has no external id.

    Its pictures have whole addresses, because a new listing needs them. Those of the demo are below `base_url`.
    """
    values = form_values(listing)
    images = "\n".join(presentation.picture_url(url, base_url) or url for url in values["images"].split("\n"))
    return {**values, "images": images, "external_id": "", "is_active": ""}


def new_body(sent: FormValues) -> dict[str, object]:
    """Return the body of a create request."""
    return {name: _value(name, text) for name, text in sent.items()}


def changed_body(sent: FormValues, listing: Listing) -> dict[str, object]:
    """Return the body of an update request with the fields that the seller edited.

    Submitted values are compared with the form's texts, because a text may not show all of a stored value.
    """
    return {name: _value(name, sent[name]) for name in _changed_names(sent, form_values(listing))}


def build_preview(sent: FormValues, stored: Listing | None, account_id: int, now: str) -> Listing:
    """Return the listing that a form describes: a new one without an id, or the stored one with its changes.

    Raises InvalidFieldsError.
    """
    if stored is not None:
        change, _ = parse_listing_change(changed_body(sent, stored), strict=True)
        return msgspec.structs.replace(stored, **change)
    new, _ = parse_new_listing(new_body(sent), strict=True)
    values = {**msgspec.structs.asdict(new), "view_count": 0, "created_at": now, "updated_at": now, "deleted_at": None}
    return Listing(id=0, account_id=account_id, version=1, **values)


def differences(sent: FormValues, listing: Listing) -> list[Difference]:
    """Return the fields whose submitted values differ from the stored ones."""
    stored = form_values(listing)
    return [
        Difference(FIELDS[name].label, _display(name, stored[name]), _display(name, sent[name]))
        for name in _changed_names(sent, stored)
    ]


def field_errors(problem: Problem | None, sent: FormValues) -> Mapping[str, str]:
    """Return the error message of each invalid field of a form, with those of all invalid images."""
    if not isinstance(problem, InvalidFieldsError):
        return {}
    errors = {name: _label_error(name, error.removeprefix(name)) for name, error in problem.errors.items()}
    if problem.errors.get("images", "").startswith("images["):
        errors["images"] = ". ".join(_list_image_errors(sent["images"]))
    return errors


def _list_image_errors(text: str) -> list[str]:
    """Return the error of each invalid image URL. The rule of the field reports only the first."""
    field, errors = FIELDS["images"], []
    for index, url in enumerate(_split_lines(text)):
        try:
            (field.strict_rule or field.rule)([url])
        except FieldError as error:
            errors.append(_label_error("images", f"[{index}]{str(error).removeprefix('[0]')}"))
    return errors


def label_problem(problem: Problem) -> Problem:
    """Return the problem with the label of the field that it is about, for a page without the field."""
    if problem.code != "external_id_taken":
        return problem
    return Problem(problem.code, f"{FIELDS['external_id'].label}{problem.message.removeprefix('external_id')}")


def _changed_names(sent: FormValues, stored: FormValues) -> list[str]:
    return [name for name, text in sent.items() if text != _as_submitted(name, stored[name])]


def describe_value(name: str, value: Value) -> str:
    """Return a field's value as text for the seller, or "" if it is empty."""
    return _display(name, _text(FIELDS[name], value))


def _label_error(name: str, error: str) -> str:
    """Return the form's message for an error of a field's rule. Images are counted from 1."""
    if error.startswith(" is required"):
        return f"Enter a {FIELDS[name].label.lower()}"
    image = _IMAGE_ERROR.match(error)
    if image is None:
        return f"{FIELDS[name].label}{error}"
    rule = " must be the whole address of a picture, beginning with https:// or http://"
    return f"Image {int(image[1]) + 1}{rule if image[2] else error[image.end() :]}"


def _display(name: str, text: str) -> str:
    """Return the label of an option, or the text itself."""
    field = FIELDS[name]
    if isinstance(field.rule, Flag):
        return "yes" if text else "no"
    return field.options.get(text, text)


def _as_submitted(name: str, text: str) -> str:
    """Return the text as a browser submits it: a field of one line has no line breaks."""
    text = _LINE_BREAK.sub("\n", text)
    return text if name in _MULTILINE else text.replace("\n", "")


def _text(field: Field, value: Value) -> str:
    if isinstance(field.rule, Images):
        return "\n".join(msgspec.json.decode(str(value), type=list[str]))
    if isinstance(field.rule, Money):
        return f"{int(value or 0) // 100}.{int(value or 0) % 100:02}" if value else ""
    if isinstance(value, bool):
        return "true" if value else ""
    return "" if value is None else str(value)


def _value(name: str, text: str) -> object:
    """Return the field's value in a body. An invalid number stays a string, so that the field's rule rejects it."""
    rule = FIELDS[name].rule
    if isinstance(rule, Flag):
        return text == "true"
    if isinstance(rule, Images):
        return _split_lines(text)
    if isinstance(rule, Money):
        return parse_amount(text)
    if isinstance(rule, Identifier):
        return text.strip() or None
    if isinstance(rule, Coordinate):
        return _parse_degrees(text.strip())
    return text


def _split_lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def parse_amount(text: str) -> object:
    """Return the dollars of a price field, None if it is empty, or the text itself if it is not a price."""
    amount = parse_price(text)
    return amount if amount is not None else text if text.strip() else None


def _parse_degrees(text: str) -> object:
    if not _DEGREES.fullmatch(text):
        return text or None
    return float(text) if "." in text or "e" in text else int(text)


EMPTY: FormValues = {name: _text(field, get_default(name)) for name, field in FIELDS.items()}
"""The values of a new listing's form."""
