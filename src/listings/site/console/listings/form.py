"""The form of a listing: its values, and the body of the API request for a submitted form. Pure functions."""

import re
from collections.abc import Mapping
from typing import NamedTuple, cast

import msgspec
from starlette.datastructures import FormData

from listings.domain.errors import Problem
from listings.domain.faults import FieldError, InvalidFieldsError
from listings.domain.fields import FIELDS, get_default, parse_listing_change, parse_new_listing
from listings.domain.model import Listing, Value
from listings.site.console.faults import describe_faults

_LINE_BREAK = re.compile(r"\r\n|\r")
_NOT_A_URL = re.compile(r" must be an (?:absolute )?http or https URL")
_MULTILINE = {"content", "images"}
_MAX_SHOWN_LENGTHS = {"content": 200_000, "images": 100_000}  # at least twice the valid length
_MAX_SHOWN_LENGTH = 10_000  # that other fields show

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


def shorten(sent: FormValues) -> FormValues:
    """Return the values as a form shows them again: one that is much too long would make a large page."""
    return {name: text[: _MAX_SHOWN_LENGTHS.get(name, _MAX_SHOWN_LENGTH)] for name, text in sent.items()}


def form_values(listing: Listing) -> FormValues:
    """Return the values that the form shows for a listing."""
    return {name: field.rule.to_text(getattr(listing, field.attribute)) for name, field in FIELDS.items()}


def copy_values(listing: Listing, base_url: str) -> FormValues:
    """Return the values of a new listing's form for a copy, which is paused and has no external id.

    Pictures of the demo have whole addresses, because a new listing needs them.
    """
    values = form_values(listing)
    urls = values["images"].split("\n")
    images = "\n".join(f"{base_url}{url}" if url.startswith("/static/demo/") else url for url in urls)
    return {**values, "images": images, "external_id": "", "is_active": ""}


def new_body(sent: FormValues) -> dict[str, object]:
    """Return the body of a create request."""
    return {name: FIELDS[name].rule.from_text(text) for name, text in sent.items()}


def changed_body(sent: FormValues, listing: Listing) -> dict[str, object]:
    """Return the body of an update request with the fields that the seller edited.

    Submitted values are compared with the form's texts, because a text may not show all of a stored value.
    """
    return {name: FIELDS[name].rule.from_text(sent[name]) for name in _changed_names(sent, form_values(listing))}


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
    errors = {name: sentence.removesuffix(".") for name, sentence in describe_faults(problem).items()}
    if problem.errors.get("images", "").startswith("images["):
        errors["images"] = ". ".join(_list_image_errors(sent["images"]))
    return errors


def _list_image_errors(text: str) -> list[str]:
    # The rule of the field reports only the first invalid one.
    field, errors = FIELDS["images"], []
    for index, url in enumerate(cast("list[str]", field.rule.from_text(text)), 1):
        try:
            (field.strict_rule or field.rule)([url])
        except FieldError as error:
            fault = str(error).removeprefix("[0]")
            if _NOT_A_URL.match(fault):
                fault = " must be the whole address of a picture, beginning with https:// or http://"
            errors.append(f"Image {index}{fault}")
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
    return _display(name, FIELDS[name].rule.to_text(value))


def _display(name: str, text: str) -> str:
    return FIELDS[name].options.get(text, text)


def _as_submitted(name: str, text: str) -> str:
    text = _LINE_BREAK.sub("\n", text)
    return text if name in _MULTILINE else text.replace("\n", "")  # as a browser does


EMPTY: FormValues = {name: field.rule.to_text(get_default(name)) for name, field in FIELDS.items()}
"""The values of a new listing's form."""
