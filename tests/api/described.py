"""The OpenAPI document, and checks of responses against it."""

from typing import Any

import httpx2
import jsonschema_rs

from listings.api.docs import document
from listings.api.routes import ROUTES
from listings.service import NO_INFO

DOCUMENT: dict[str, Any] = document.build_document(ROUTES, NO_INFO)
SCHEMAS = DOCUMENT["components"]["schemas"]


def resolve(part: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in part:
        found = DOCUMENT
        for step in part["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        part = found
    return part


def get_operation(path: str, method: str) -> dict[str, Any]:
    operation: dict[str, Any] = DOCUMENT["paths"][path][method.lower()]
    return operation


def build_validator(schema: dict[str, Any]) -> Any:
    return jsonschema_rs.Draft202012Validator(
        schema | {"components": DOCUMENT["components"]}, pattern_options=jsonschema_rs.FancyRegexOptions()
    )


def check_response(operation: dict[str, Any], response: httpx2.Response) -> dict[str, Any]:
    """Check that a response has the described status, headers and schema; return its description."""
    described = resolve(operation["responses"][str(response.status_code)])
    headers = {name.lower(): resolve(header) for name, header in described["headers"].items()}
    assert set(response.headers) - {"connection", "content-type"} <= set(headers)
    assert {name for name, header in headers.items() if header["required"]} <= set(response.headers)
    for name, content in described.get("content", {}).items():
        assert response.headers["content-type"].split(";")[0] == name.split(";")[0]
        value = response.json() if name == "application/json" else response.text
        build_validator(content["schema"]).validate(value)
    return described
