"""Render the OpenAPI document as a reference page. Only the forms that send requests need JavaScript.

The guides share its layout, and its contents link to them.
"""

import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from functools import cache, partial
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import jinja2
from markupsafe import Markup, escape

from listings.api.docs.headers import COMMON_HEADERS, RATE_LIMIT_HEADERS
from listings.api.docs.schema_text import describe_schema, inline_references, list_properties
from listings.api.docs.texts import ERROR_DOCS
from listings.domain.errors import STATUS
from listings.domain.rules import Schema
from listings.service import NO_INFO, ServiceInfo

_COMMON_HEADERS = {*COMMON_HEADERS, *RATE_LIMIT_HEADERS, "X-Error-Code", "WWW-Authenticate", "Retry-After", "Allow"}
_METHODS = ("get", "post", "patch", "put", "delete")
_GUIDES = (
    *(
        "quick-start",
        "listings",
        "images",
        "pagination",
        "sync",
        "changes",
        "undo",
        "batches",
        "idempotency",
        "concurrency",
    ),
    *("rate-limit", "errors", "dates", "versions", "changelog"),
)


class Operation(NamedTuple):
    """One operation of the document, with its references resolved."""

    method: str
    path: str
    spec: Schema
    parameters: list[Schema]
    undescribed: list[Schema]  # parameters that only the form shows: a create has a dry run, too
    responses: dict[str, Schema]
    body_schema: Schema | None
    body: Any
    """The first example of a body, or None."""
    takes_file: bool = False


@cache
def list_titles() -> Mapping[str, str]:
    """Return the title of each guide by its name, in their order."""
    return {name: read_guide(name).partition("\n")[0].removeprefix("# ") for name in _GUIDES}


def read_guide(name: str) -> str:
    """Return the Markdown of a guide."""
    return files("listings.api.docs").joinpath("guides", f"{name}.md").read_text("utf-8")


def render_page(document: Schema, base_url: str, about: ServiceInfo = NO_INFO) -> bytes:
    """Return the reference page. Its samples send requests to `base_url`."""
    document = inline_references(document, document["components"]["schemas"])
    operations = {
        group["name"]: [
            _build_operation(document, method, path, item)
            for path, item in document["paths"].items()
            for method in _METHODS
            if group["name"] in item.get(method, {}).get("tags", ())
        ]
        for group in document["tags"]
    }
    environment = build_environment(base_url, about)
    objects = [name for name, schema in document["components"]["schemas"].items() if "properties" in schema]
    environment.filters["link_schemas"] = partial(_link_schemas, objects)
    template = environment.get_template("reference.html")
    return template.render(document=document, operations=operations).encode()


def build_environment(base_url: str, about: ServiceInfo = NO_INFO) -> jinja2.Environment:
    """Return the templates. They escape every value, and an undefined name is an error."""
    templates = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader("listings.api.docs"), jinja2.PackageLoader("listings.site")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= {
        "about": about,
        "base_url": base_url,
        "common_headers": _COMMON_HEADERS,
        "current": "",
        "query": "",
        "error_docs": ERROR_DOCS,
        "error_statuses": STATUS,
        "path_prefix": urlsplit(base_url).path,
        "titles": list_titles(),
    }
    templates.filters |= {
        "json": partial(json.dumps, indent=2, ensure_ascii=False),
        "properties": list_properties,
        "python_literal": _format_literal,
        "type": describe_schema,
    }
    return templates


def _link_schemas(names: Iterable[str], text: str) -> Markup:
    link = r'<a href="#schema-\1">\1</a>'
    return Markup(re.sub(rf"\b({'|'.join(names)})\b", link, str(escape(text))))  # noqa: S704 - escaped


def _format_literal(value: object) -> str:
    if isinstance(value, dict):
        inner = ",\n".join(f"{json.dumps(key)}: {_format_literal(part)}" for key, part in value.items())
        return f"{{\n{textwrap.indent(inner, '    ')},\n}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_format_literal, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _build_operation(document: Schema, method: str, path: str, item: Schema) -> Operation:
    spec = item[method]
    content = spec.get("requestBody", {}).get("content", {}).get("application/json", {})
    dry_run = {"name": "dry_run", "in": "query", "schema": {"type": "boolean"}}
    examples = [example["value"] for example in content.get("examples", {}).values()]
    return Operation(
        method.upper(),
        path,
        spec,
        [_resolve(document, parameter) for parameter in [*item.get("parameters", []), *spec["parameters"]]],
        [dry_run] if spec["operationId"] == "createListing" else [],
        {status: _resolve(document, response) for status, response in spec["responses"].items()},
        _resolve(document, content["schema"]) if content else None,
        examples[0] if examples else None,
        takes_file="image/jpeg" in spec.get("requestBody", {}).get("content", {}),
    )


def _resolve(document: Schema, part: Schema) -> Schema:
    while "$ref" in part:
        found = document
        for step in part["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        part = found
    return part
