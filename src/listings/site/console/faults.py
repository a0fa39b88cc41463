"""Sentences for people about faults of fields, in forms, previews and files of rejected rows."""

from collections.abc import Mapping

from listings.domain.faults import Fault, FaultCode, InvalidFieldsError
from listings.domain.fields import FIELDS

_PICTURE = "Enter the whole address of each picture, beginning with https:// or http://, with %20 for a space."
_SHORTENED = "Your spreadsheet has shortened {label}. Format its column as text, and enter it again."
_NOT_UPLOADED = (
    "Upload the pictures that the cell names first, or enter the whole address of each, beginning with https://."
)
_SENTENCES: Mapping[FaultCode, str] = {  # the others are those of the API, with the label of the field
    "inconsistent": "A deleted listing can\u2019t be on the market: choose \u201cno\u201d.",
    "invalid_url": _PICTURE,
    "not_allowed": "Choose one of {choices} as {label}.",
    "required": "Enter a {label}.",
    "too_many_decimals": "Enter the {label} with at most two decimals, such as 19.90.",
    "wrong_type": "Enter the {label} as a number, such as 41.29.",
}
_OF_FIELDS: Mapping[tuple[str, FaultCode], str] = {
    ("external_id", "invalid_format"): _SHORTENED,
    ("images", "not_allowed"): _NOT_UPLOADED,
    ("images", "wrong_type"): _PICTURE,
    ("is_active", "wrong_type"): "Enter true or false as \u201cOn the market\u201d.",
    ("price", "invalid_format"): "Enter the {label} without a comma or dot before three digits, such as 1250.",
    ("price", "not_allowed"): "Enter the {label} in New Zealand dollars, such as 450.",
    ("price", "out_of_range"): "Enter a {label} from 0 to 999,999,999.99.",
    ("price", "wrong_type"): "Enter the {label} as a number, such as 450. For \u201cono\u201d, choose Negotiable.",
}


def describe_fault(fault: Fault) -> str:
    """Return the sentence for a fault."""
    name = fault.field.partition("[")[0]
    field = FIELDS.get(name)
    label = field.label if field is not None else name.replace("_", " ").capitalize()
    template = _OF_FIELDS.get((name, fault.code)) or _SENTENCES.get(fault.code)
    if template is None:
        return f"{label}{fault.message.removeprefix(name)}."
    choices = ", ".join(f"\u201c{one}\u201d" for one in (field.options if field is not None else {}).values())
    return template.format(label=label[0].lower() + label[1:], choices=choices)


def describe_faults(problem: InvalidFieldsError) -> dict[str, str]:
    """Return the sentence for the first fault of each invalid field, by its name."""
    sentences: dict[str, str] = {}
    for fault in problem.faults:
        sentences.setdefault(fault.field.partition("[")[0], describe_fault(fault))
    return sentences
