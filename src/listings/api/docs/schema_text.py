"""Describe JSON Schemas in words."""

import json
from collections.abc import Iterator

from listings.api.docs.schemas import Schema


def list_properties(schema: Schema, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield the name, "required" or "", type and description of each property, including those of nested objects."""
    for name, field in schema["properties"].items():
        required = "required" if name in schema.get("required", ()) else ""
        default = f"; default {json.dumps(field['default'])}" if "default" in field else ""
        yield f"{prefix}{name}", required, describe_schema(field) + default, field.get("description", "")
        items = field.get("items", {})
        for nested in [items] if "properties" in items else items.get("oneOf", ()):
            yield from list_properties(nested, f"{prefix}{name}[].")


def describe_schema(schema: Schema) -> str:
    """Return the type and bounds of a value, such as "string of at most 255 characters"."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return str(schema["const"])
    if "oneOf" in schema:
        return " or ".join(variant.get("title") or describe_schema(variant) for variant in schema["oneOf"])
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    text = " or ".join(name for name in types if name != "null").replace("boolean", "true or false")
    text += _describe_bounds(schema)
    if "enum" in schema:
        text = f"one of {', '.join(str(value) for value in schema['enum'] if value is not None)}"
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
