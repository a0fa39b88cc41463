"""Build JSON Schemas from the rules of fields and parameters.

Patterns are ECMA-262 regular expressions. They list white space by code point, because dialects of regular expressions
define it differently.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias, get_args

from listings.api import params
from listings.domain.fields import FIELDS, Choice, Coordinate, Field, Flag, Identifier, Images, Money, Text
from listings.domain.listing_json import INCLUDABLE_FIELDS
from listings.domain.model import MAX_ID, SortKey
from listings.domain.reverts import ConflictReason

Schema: TypeAlias = dict[str, Any]

_SPACE = r"\t-\r\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_FORBIDDEN = _SPACE + r"\u0000-\u001f\u007f-\u009f\\"
_URL = (
    rf"^(?:[Hh][Tt][Tt][Pp][Ss]?://[^@:/?#{_FORBIDDEN}][^@/?#{_FORBIDDEN}]*(?:[/?#][^{_FORBIDDEN}]*)?"
    rf"|[A-Za-z][A-Za-z0-9+.-]*(?:[^A-Za-z0-9+.:{_FORBIDDEN}-][^{_FORBIDDEN}]*)?"  # relative: no scheme
    rf"|[^A-Za-z{_FORBIDDEN}][^{_FORBIDDEN}]*)$"
)
_MONTH_AND_DAY = (
    r"(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8])"
)
_MULTIPLE_OF_FOUR = r"(?:0[48]|[2468][048]|[13579][26])"
_LEAP_YEAR = rf"[0-9]{{2}}{_MULTIPLE_OF_FOUR}|{_MULTIPLE_OF_FOUR}00"
_YEAR = r"[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3}"
_TIMESTAMP = (
    rf"^(?:(?:{_YEAR})-(?:{_MONTH_AND_DAY})|(?:{_LEAP_YEAR})-02-29)"
    r"(?:[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+ ]00:00)?)?$"
)


def _build_enum(values: Iterable[str], names: Iterable[str] = ()) -> Schema:
    """Return an enumeration. `names` are for the constants of generated clients, if the values are no names."""
    schema: Schema = {"type": "string", "enum": list(values)}
    variables = [name.upper() for name in names]
    return schema | {"x-enum-varnames": variables} if variables else schema


_CHOICES: Mapping[object, str] = {
    FIELDS["type"].rule: "ListingType",
    FIELDS["price_type"].rule: "PriceType",
    params.LIST_PARAMETERS["status"]: "ListingStatus",
}
_CHANGE_KINDS = ("created", "updated", "deleted", "restored", "batch", "import", "reverted")
_DIRECTIONS = {"": "", "-": "_descending"}
_ORDERS = {f"{sign}{key}": f"{key}{suffix}" for key in get_args(SortKey) for sign, suffix in _DIRECTIONS.items()}
ENUMS: Mapping[str, Schema] = {
    **{name: _build_enum(rule.allowed) for rule, name in _CHOICES.items() if isinstance(rule, Choice)},
    "SortOrder": _build_enum(_ORDERS, _ORDERS.values()),
    "PutOutcome": _build_enum(("create", "update")) | {"description": "What a put did, or would do."},
    "ActorType": _build_enum(
        ("key", "member", "operator", "import"), ("by_key", "by_member", "by_operator", "by_import")
    )
    | {"description": "member: the signed-in owner of the account."},
    "ChangeKind": _build_enum(
        _CHANGE_KINDS,
        (f"{kind}_change" for kind in _CHANGE_KINDS),
    ),
    "RevertStatus": _build_enum(
        ("running", "finished", "planned"), ("running_revert", "finished_revert", "planned_revert")
    )
    | {"description": "planned: of a dry run."},
    "ConflictReason": _build_enum(get_args(ConflictReason), (f"{it}_conflict" for it in get_args(ConflictReason)))
    | {"description": "changed_later: in another change set. external_id_taken: by the listing in holder."},
    "IncludedField": _build_enum((*INCLUDABLE_FIELDS, "all"), (*INCLUDABLE_FIELDS, "all_fields")),
}
"""Every named enumeration. The names of constants are unique: Go has one scope for all."""


def refer(kind: str, name: str) -> Schema:
    """Return a reference to a component."""
    return {"$ref": f"#/components/{kind}/{name}"}


def build_schema(rule: object) -> Schema:
    """Return the schema of the values that a rule accepts."""
    build = _BUILDERS.get(type(rule))
    return build(rule) if build is not None else dict(_FUNCTION_SCHEMAS[rule])


def _build_text(rule: Text) -> Schema:
    if rule.allow_blank:
        return {"type": "string", "maxLength": rule.max_length, "pattern": r"^[^\u0000]*$"}
    return _build_string(rule.max_length, rf"^[^\u0000]*[^\u0000{_SPACE}][^\u0000]*$")


def _build_string(max_length: int, pattern: str) -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": max_length, "pattern": pattern}


def build_image_url() -> Schema:
    """Return the schema of the URL of an image, which several schemas refer to because its pattern is long."""
    (rule,) = (field.rule for field in FIELDS.values() if isinstance(field.rule, Images))
    return _build_string(rule.max_length, _URL)


_BUILDERS: Mapping[type, Callable[[Any], Schema]] = {
    Text: _build_text,
    Identifier: lambda rule: _build_string(rule.max_length, r"^[^\u0000-\u001f\u007f-\u009f]*$"),
    Choice: lambda rule: refer("schemas", _CHOICES[rule]),
    Flag: lambda _: {"type": "boolean"},
    Money: lambda rule: {"type": "number", "format": "double", "minimum": 0, "maximum": rule.max_cents / 100},
    Coordinate: lambda rule: {"type": "number", "format": "double", "minimum": rule.minimum, "maximum": rule.maximum},
    Images: lambda rule: {"type": "array", "maxItems": rule.max_items, "items": refer("schemas", "ImageUrl")},
    params.Count: lambda rule: {"type": "integer", "minimum": rule.minimum, "maximum": rule.maximum},
    params.Amount: lambda rule: build_schema(rule.money),
    params.NameSet: lambda _: {"type": "array", "minItems": 1, "items": refer("schemas", "IncludedField")},
}
_ID: Schema = {"type": "integer", "format": "int64", "minimum": 1, "maximum": MAX_ID}
_FUNCTION_SCHEMAS: Mapping[object, Schema] = {
    params.parse_timestamp: {"type": "string", "pattern": _TIMESTAMP},
    params.parse_search_terms: {"type": "string", "minLength": 1, "maxLength": params.MAX_SEARCH_LENGTH},
    params.parse_external_id: {"type": "array", "minItems": 1, "items": build_schema(FIELDS["external_id"].rule)},
    params.parse_sort: refer("schemas", "SortOrder"),
    params.parse_bool: {"type": "boolean"},
    params.check_cursor_length: {"type": "string", "maxLength": params.MAX_CURSOR_LENGTH},
    params.parse_ids: {"type": "array", "minItems": 1, "maxItems": params.MAX_IDS, "items": _ID},
}


def allow_null(schema: Schema) -> Schema:
    """Return a schema that also allows null."""
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return schema | {"type": [schema["type"], "null"]}


class ReadOnlyField(NamedTuple):
    """A field of a record that no body can set."""

    schema: Schema
    description: str
    example: object


TIME_FORMAT = "in UTC as `YYYY-MM-DD HH:MM:SS`"
_TIME: Schema = {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}$"}
READ_ONLY_FIELDS: Mapping[str, ReadOnlyField] = {
    "id": ReadOnlyField(
        _ID,
        "Positive and never reused. Your later listings have higher ids.",
        1025,
    ),
    "view_count": ReadOnlyField({"type": "integer", "minimum": 0}, "Number of views of its public page.", 0),
    "created_at": ReadOnlyField(_TIME, f"Time of creation, {TIME_FORMAT}.", "2026-11-21 06:54:32"),
    "updated_at": ReadOnlyField(
        _TIME, f"Time when a field last changed its value, {TIME_FORMAT}.", "2026-11-21 06:54:32"
    ),
    "deleted_at": ReadOnlyField(
        _TIME | {"type": ["string", "null"]}, f"Time of deletion, {TIME_FORMAT}; null if it is not deleted.", None
    ),
    "etag": ReadOnlyField(
        {"type": "string", "pattern": '^"[^"]+"$'}, "The tag of the listing, for `If-Match` and `if_match`.", '"v1.0"'
    ),
}
FIELD_DOCS: Mapping[str, Field | ReadOnlyField] = {**FIELDS, **READ_ONLY_FIELDS}
"""The description and the example of every field of a record or a request body."""
