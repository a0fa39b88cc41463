"""Describe JSON Schemas in words."""

from collections.abc import Iterator, Mapping
from typing import Any

from listings.domain.rules import Schema


def inline_references(part: Any, schemas: Mapping[str, Schema]) -> Any:  # noqa: ANN401 - any part of a document
    """Replace references by their schemas, except those to objects."""
    if isinstance(part, list):
        return [inline_references(inner, schemas) for inner in part]
    if not isinstance(part, dict):
        return part
    target = schemas.get(_get_name(part), {})
    if target and "properties" not in target:
        part = target | {key: value for key, value in part.items() if key != "$ref"}
    if "oneOf" in part:
        part = part | {"oneOf": [schemas[_get_name(one)] | {"title": _get_name(one)} for one in part["oneOf"]]}
    return {key: inline_references(value, schemas) for key, value in part.items()}


def _get_name(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def list_properties(schema: Schema) -> Iterator[tuple[str, str, str, str]]:
    """Yield the name, "required" or "", type and description of each property."""
    for name, field in schema["properties"].items():
        required = "required" if name in schema.get("required", ()) else ""
        yield name, required, describe_schema(field), field.get("description", "")


def describe_schema(schema: Schema) -> str:
    """Return the type and bounds of a value, such as "string of at most 255 characters"."""
    if "$ref" in schema:
        return _get_name(schema)
    if "anyOf" in schema:
        return f"{describe_schema(schema['anyOf'][0])}, or null"
    if "const" in schema:
        return str(schema["const"])
    if "oneOf" in schema:
        return " or ".join(variant["title"] for variant in schema["oneOf"])
    kind = schema.get("type", ["integer", "string"])
    types = kind if isinstance(kind, list) else [kind]
    text = " or ".join(name for name in types if name != "null").replace("boolean", "true or false")
    text += _describe_bounds(schema)
    if "enum" in schema:
        text = f"one of {', '.join(map(str, schema['enum']))}"
    if "x-extensible-enum" in schema:
        text += f", such as {', '.join(schema['x-extensible-enum'])}"
    if "items" in schema:
        text += f", each {describe_schema(schema['items'])}"
    return f"{text}, or null" if "null" in types else text


def _describe_bounds(schema: Schema) -> str:
    if "maxLength" in schema:
        return f" of {_describe_size(schema.get('minLength'), schema['maxLength'])} characters"
    if "maxItems" in schema:
        return f" of {_describe_size(schema.get('minItems'), schema['maxItems'])} items"
    bounds = f" from {schema['minimum']}" if "minimum" in schema else ""
    if "maximum" in schema:
        bounds += f" to {schema['maximum']}"
    return bounds


def _describe_size(minimum: int | None, maximum: int) -> str:
    return f"{minimum} to {maximum}" if minimum else f"at most {maximum}"
