"""The JSON Schemas of fields and parameters."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, get_args

from listings.api import params
from listings.domain.fields import FIELDS, Field
from listings.domain.listing_json import INCLUDABLE_FIELDS
from listings.domain.model import SortKey
from listings.domain.rules import Schema

_MONTH_AND_DAY = (
    r"(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8])"
)
_MULTIPLE_OF_FOUR = r"(?:0[48]|[2468][048]|[13579][26])"
_LEAP_YEAR = rf"[0-9]{{2}}{_MULTIPLE_OF_FOUR}|{_MULTIPLE_OF_FOUR}00"
_YEAR = r"[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3}"
_TIMESTAMP = (
    rf"^(?:(?:{_YEAR})-(?:{_MONTH_AND_DAY})|(?:{_LEAP_YEAR})-02-29)"
    r"(?:[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+ -](?:[01][0-9]|2[0-3]):[0-5][0-9])?)?$"
)


def _build_enum(values: Iterable[str], names: Iterable[str] = ()) -> Schema:
    schema: Schema = {"type": "string", "enum": list(values)}
    variables = [name.upper() for name in names]  # for generated clients, if the values are not valid names
    return schema | {"x-enum-varnames": variables} if variables else schema


RULE_COMPONENTS: Mapping[str, Schema] = {
    name: schema
    for rule in (*(field.rule for field in FIELDS.values()), params.STATUS)
    for name, schema in rule.components.items()
}
"""The schemas that those of rules refer to, by name."""

_DIRECTIONS = {"": "", "-": "_descending"}
_ORDERS = {f"{sign}{key}": f"{key}{suffix}" for key in get_args(SortKey) for sign, suffix in _DIRECTIONS.items()}
ENUMS: Mapping[str, Schema] = {
    **{name: schema for name, schema in RULE_COMPONENTS.items() if "enum" in schema},
    "SortOrder": _build_enum(_ORDERS, _ORDERS.values()),
    "IncludedField": _build_enum((*INCLUDABLE_FIELDS, "all"), (*INCLUDABLE_FIELDS, "all_fields")),
}
"""Every closed enumeration. The names of constants are unique: Go has one scope for all."""

_BOUNDS = {"pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"}


def relax(schema: Schema) -> Schema:
    """Return a schema without patterns and bounds, for a response: a client must not reject a later, wider value."""
    relaxed = {key: value for key, value in schema.items() if key not in _BOUNDS}
    return relaxed | ({"items": {"type": "string"}} if schema.get("items") == refer("schemas", "ImageUrl") else {})


def list_values(*values: str) -> Schema:
    """Return a string of a response with its known values, to which later versions may add others."""
    return {"type": "string", "x-extensible-enum": list(values)}


def refer(kind: str, name: str) -> Schema:
    """Return a reference to a component."""
    return {"$ref": f"#/components/{kind}/{name}"}


def build_schema(rule: Any) -> Schema:  # noqa: ANN401 - a rule or a function, which have no common type
    """Return the schema of the values that a rule accepts."""
    return dict(_PARAMETER_SCHEMAS[rule]) if rule in _PARAMETER_SCHEMAS else rule.schema


_ID: Schema = {"type": "integer", "format": "int64", "minimum": 1, "maximum": params.MAX_INTEGER}
_PARAMETER_SCHEMAS: Mapping[object, Schema] = {
    params.parse_timestamp: {"type": "string", "pattern": _TIMESTAMP},
    params.parse_search_terms: {"type": "string", "minLength": 1, "maxLength": params.MAX_SEARCH_LENGTH},
    params.parse_external_id: {"type": "array", "minItems": 1, "items": FIELDS["external_id"].rule.schema},
    params.LIST_PARAMETERS["include"]: {"type": "array", "minItems": 1, "items": refer("schemas", "IncludedField")},
    params.parse_sort: refer("schemas", "SortOrder"),
    params.parse_bool: {"type": "boolean"},
    params.check_cursor_length: {"type": "string", "maxLength": params.MAX_CURSOR_LENGTH},
    params.check_image_cursor: {"type": "string", "pattern": f"^{params.IMAGE_CURSOR.pattern}$"},
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
    "id": ReadOnlyField(_ID, "Positive and never reused. Your later listings have higher ids.", 1025),
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
