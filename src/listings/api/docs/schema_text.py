"""JSON Schemas in words, for people."""

import json
from collections.abc import Iterator

from listings.api.docs.schemas import Schema

_KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "object",
    "null": "null",
}


def rows_of(schema: Schema, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Each field of an object, with those of the objects in it: name, whether it is required, what it is, words."""
    for name, one in schema["properties"].items():
        required = "required" if name in schema.get("required", ()) else ""
        default = f"; {json.dumps(one['default'])} when not given" if "default" in one else ""
        yield f"{prefix}{name}", required, shape_of(one) + default, one.get("description", "")
        inner = one.get("items", {})
        if "properties" in inner:
            yield from rows_of(inner, f"{prefix}{name}[].")
        for form in inner.get("oneOf", ()):
            yield from rows_of(form, f"{prefix}{name}[].")


def shape_of(schema: Schema) -> str:
    """What a value must be: "text of at most 255 characters"."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return str(schema["const"])
    if "oneOf" in schema:
        return " or ".join(form.get("title") or shape_of(form) for form in schema["oneOf"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    words = " or ".join(_KINDS[kind] for kind in kinds if kind != "null") + _bounds(schema)
    if "enum" in schema:
        words = f"one of {', '.join(str(value) for value in schema['enum'] if value is not None)}"
    if "items" in schema:
        words += f": each {shape_of(schema['items'])}"
    return f"{words}, or null" if "null" in kinds else words


def _bounds(schema: Schema) -> str:
    """The bounds as the end of a phrase."""
    if "maxLength" in schema:
        return f" of {_size(schema.get('minLength'), schema['maxLength'])} characters"
    if "maxItems" in schema:
        return f" of {_size(schema.get('minItems'), schema['maxItems'])}"
    bounds = f" from {schema['minimum']}" if "minimum" in schema else ""
    if "maximum" in schema:
        bounds += f" to {schema['maximum']}"
    return bounds


def _size(least: int | None, most: int) -> str:
    return f"{least} to {most}" if least else f"at most {most}"
