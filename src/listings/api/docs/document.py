"""Build the OpenAPI 3.1 document from the same tables that serve the requests."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from listings import __version__
from listings.api import batch
from listings.api.docs import headers
from listings.api.docs.operations import (
    ERROR_DOCS,
    PARAMETER_DESCRIPTIONS,
    TAGS,
    Operation,
    Success,
)
from listings.api.docs.schemas import FIELD_DOCS, READ_ONLY_FIELDS, Schema, allow_null, build_schema
from listings.api.endpoints import Endpoint, Routes
from listings.domain.errors import STATUS, Code
from listings.domain.fields import FIELDS, REQUIRED, Images, get_default
from listings.domain.listing_json import Record

_CONNECTION_ERRORS: tuple[Code, ...] = (
    "malformed_request",
    "request_timeout",
    "uri_too_long",
    "header_too_large",
    "internal_error",
    "unavailable",
    "version_not_supported",
)
_KEY_ERRORS: tuple[Code, ...] = ("api_key_required", "invalid_api_key", "plan_expired", "account_disabled")
_BODY_ERRORS: tuple[Code, ...] = ("malformed_json", "body_too_large", "unsupported_encoding")
_STATUSES_BEFORE_LIMIT = {401, 408, 414, 431, 505}
_ROUTING_ERRORS: tuple[Code, ...] = ("path_not_found", "method_not_allowed")
_EXTRA_HEADERS: Mapping[int, tuple[str, ...]] = {
    401: ("WWW-Authenticate",),
    405: ("Allow",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}
_OVERVIEW = """\
Create and manage your marketplace listings from your own software. Requests and responses are JSON in UTF-8.

Every error is `{"error": "one plain sentence"}`, with a code for programs in `X-Error-Code`. HEAD responds like GET,
without a body. A trailing slash is ignored. An unknown path returns 404 and an unsupported method 405, with or without
a key.
"""


def build_document(routes: Routes) -> Schema:
    """Return the OpenAPI document."""
    errors = _ErrorResponses()
    paths = {path: _build_path(path, methods, errors) for path, methods in routes.items()}
    for code in _ROUTING_ERRORS:
        errors.add([code], limited=False)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Listings",
            "version": __version__,
            "summary": "Create and manage your marketplace listings",
            "description": _OVERVIEW,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/", "description": "This service"}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": _build_schemas(),
            "parameters": headers.build_parameters(),
            "headers": headers.build_headers(),
            "responses": errors.components,
            "securitySchemes": {
                "ApiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "Your API key."},
                "Bearer": {"type": "http", "scheme": "bearer", "description": "Your API key as a bearer token."},
            },
        },
    }


# Operations


def _build_path(path: str, methods: Mapping[str, Endpoint], errors: "_ErrorResponses") -> Schema:
    item: Schema = {"parameters": [_build_id_parameter()]} if "{id}" in path else {}
    return item | {method.lower(): _build_operation(endpoint, errors) for method, endpoint in methods.items()}


def _build_id_parameter() -> Schema:
    schema = READ_ONLY_FIELDS["id"].schema
    text = "Id of the listing. Any other value returns 404."
    return {"name": "id", "in": "path", "required": True, "description": text, "schema": schema, "example": 1025}


def _build_operation(endpoint: Endpoint, errors: "_ErrorResponses") -> Schema:
    doc = endpoint.operation
    operation: Schema = {
        "operationId": doc.id,
        "tags": [doc.tag],
        "summary": doc.summary,
        "description": doc.description,
        "security": [{"ApiKey": []}, {"Bearer": []}] if endpoint.needs_key else [],
        "parameters": [
            *(_build_query_parameter(name, rule) for name, rule in doc.parameters.items()),
            *(_ref("parameters", name) for name in (*doc.headers, "X-Request-Id")),
        ],
    }
    if endpoint.takes_body:
        operation["requestBody"] = _build_request_body(doc)
    responses = {str(success.status): _build_success(success, limited=endpoint.needs_key) for success in doc.responses}
    for status, codes in _group_by_status(list_error_codes(endpoint)).items():
        limited = endpoint.needs_key and status not in _STATUSES_BEFORE_LIMIT
        responses[str(status)] = errors.add(codes, limited=limited)
    operation["responses"] = dict(sorted(responses.items()))
    return operation


def list_error_codes(endpoint: Endpoint) -> list[Code]:
    """Return every error code that an endpoint can return."""
    codes = {*_CONNECTION_ERRORS, *endpoint.operation.codes}
    if endpoint.needs_key:
        codes.update(_KEY_ERRORS)
        if endpoint.counts:
            codes.add("rate_limited")
    if endpoint.takes_body:
        codes.update(_BODY_ERRORS)
    return sorted(codes, key=[*ERROR_DOCS].index)


def _group_by_status(codes: Iterable[Code]) -> dict[int, list[Code]]:
    groups: dict[int, list[Code]] = {}
    for code in codes:
        groups.setdefault(STATUS[code], []).append(code)
    return groups


_QUERY_EXAMPLES: Mapping[str, object] = {
    "limit": 100,
    "status": "all",
    "type": "product",
    "category": "Furniture",
    "region": "Wellington",
    "q": "rimu table",
    "price_min": 100,
    "price_max": 1999.5,
    "updated_since": "2026-11-21 06:54:32",
    "sort": "-updated_at",
    "include": ["district", "deleted_at"],
    "dry_run": True,
}


def _build_query_parameter(name: str, rule: object) -> Schema:
    schema = build_schema(rule)
    parameter: Schema = {"name": name, "in": "query", "description": PARAMETER_DESCRIPTIONS[name], "schema": schema}
    if schema["type"] == "array":
        parameter |= {"style": "form", "explode": False}
    if name in _QUERY_EXAMPLES:
        parameter["example"] = _QUERY_EXAMPLES[name]
    return parameter


def _build_request_body(doc: Operation) -> Schema:
    examples = {name: {"summary": summary, "value": body} for name, (summary, body) in doc.examples.items()}
    content = {"schema": _ref("schemas", doc.body), "examples": examples}
    text = "One JSON object in UTF-8. The Content-Type header is ignored."
    return {"description": text, "required": True, "content": {"application/json": content}}


# Responses


def _build_success(success: Success, *, limited: bool) -> Schema:
    response: Schema = {
        "description": success.description,
        "headers": _refer_to_headers((*success.headers, *(headers.RATE_LIMIT_HEADERS if limited else ()))),
    }
    if success.schema:
        content: Schema = {"schema": _ref("schemas", success.schema)}
        if success.example is not None:
            content["example"] = success.example
        response["content"] = {success.content_type: content}
    return response


class _ErrorResponses:
    """The error responses, each defined once in the components."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}

    def add(self, codes: list[Code], *, limited: bool) -> Schema:
        """Return a reference to the response with these codes, which share a status."""
        name = ".".join([*codes, *(["limited"] if limited else [])])
        if name not in self.components:
            self.components[name] = _build_error(codes, limited=limited)
        return _ref("responses", name)


def _build_error(codes: list[Code], *, limited: bool) -> Schema:
    status = STATUS[codes[0]]
    code_schema = {"type": "string", "enum": codes}
    examples = {
        code: {"summary": ERROR_DOCS[code].when, "value": {"error": ERROR_DOCS[code].example}} for code in codes
    }
    more = (*_EXTRA_HEADERS.get(status, ()), *(headers.RATE_LIMIT_HEADERS if limited else ()))
    return {
        "description": f"{HTTPStatus(status).phrase}. "
        + " ".join(f"`{code}`: {ERROR_DOCS[code].when}" for code in codes),
        "headers": {
            "X-Error-Code": {"description": "The error code, for programs.", "required": True, "schema": code_schema},
            **_refer_to_headers(more),
        },
        "content": {"application/json": {"schema": _ref("schemas", "Error"), "examples": examples}},
    }


def _refer_to_headers(more: Iterable[str]) -> Schema:
    return {name: _ref("headers", name) for name in (*headers.COMMON_HEADERS, *more)}


def _ref(kind: str, name: str) -> Schema:
    return {"$ref": f"#/components/{kind}/{name}"}


# Schemas


def _build_schemas() -> dict[str, Schema]:
    return {
        "Listing": _build_record(),
        "Listings": _build_object({"listings": {"type": "array", "items": _ref("schemas", "Listing")}}),
        "NewListing": _build_new_listing(),
        "ListingChange": _build_change(),
        "Batch": _build_batch(),
        "BatchResults": _build_batch_results(),
        "Created": _build_object({"id": _build_record_field("id"), "message": {"type": "string"}}),
        "Message": _build_object({"message": {"type": "string"}}),
        "Error": _build_object({"error": {"type": "string", "description": "One plain sentence for people."}}),
        "RateLimit": _build_rate_limit(),
        "Health": _build_object({"status": {"const": "ok"}}),
        "Readiness": _build_readiness(),
        "Description": {"type": "object", "required": ["openapi", "info", "paths", "components"]},
        "File": {"type": "string"},
    }


def _build_readiness() -> Schema:
    scope: Schema = {
        "type": "string",
        "description": "Scope in which requests are currently counted. Only present if Redis is configured.",
    }
    degraded = {"type": "array", "items": {"type": "string"}, "description": "What fails nevertheless."}
    properties = {"status": {"const": "ready"}, "rate_limit": scope, "degraded": degraded}
    return {**_build_object(properties), "required": ["status"]}


def _build_object(properties: Mapping[str, Any]) -> Schema:
    """Return the schema of an object with exactly these properties."""
    return {
        "type": "object",
        "required": list(properties),
        "properties": dict(properties),
        "additionalProperties": False,
    }


def _build_record_field(name: str) -> Schema:
    """Return the schema of a field in a record."""
    if name in READ_ONLY_FIELDS:
        return READ_ONLY_FIELDS[name].schema | _build_field_texts(name)
    schema = build_schema(FIELDS[name].rule)
    return (allow_null(schema) if get_default(name) is None else schema) | _build_field_texts(name)


def _build_field_texts(name: str) -> Schema:
    return {"description": FIELD_DOCS[name].description, "examples": [FIELD_DOCS[name].example]}


def _build_record() -> Schema:
    fields = msgspec.structs.fields(Record)
    record = _build_object({field.name: _build_record_field(field.name) for field in fields})
    return record | {
        "description": "A listing. Optional fields are present only if `include` names them.",
        "required": [field.name for field in fields if field.required],
    }


def _build_body_field(name: str, *, null: bool = False, default: object = None) -> Schema:
    """Return the schema of a field in a request body."""
    schema = build_schema(FIELDS[name].rule)
    schema = (allow_null(schema) if null else schema) | _build_field_texts(name)
    return schema if default is None else schema | {"default": default}


def _find_default(name: str) -> object:
    """Return the value of a field that was never sent, or None if it has no default."""
    default = get_default(name)
    return msgspec.json.decode(str(default)) if isinstance(FIELDS[name].rule, Images) else default


def _build_new_listing() -> Schema:
    return {
        "type": "object",
        "description": (
            "A new listing. null is the same as leaving a field out. Unknown and read-only fields are ignored."
        ),
        "required": list(REQUIRED),
        "properties": {
            name: _build_body_field(name)
            if name in REQUIRED
            else _build_body_field(name, null=True, default=_find_default(name))
            for name in FIELDS
        },
    }


def _build_change() -> Schema:
    return {
        "type": "object",
        "description": (
            "The fields to update. null resets an optional field to its default. Unknown and read-only fields are "
            "ignored."
        ),
        "properties": {name: _build_body_field(name, null=field.clearable) for name, field in FIELDS.items()},
    }


def _build_batch() -> Schema:
    reference = {
        "type": ["string", "integer"],
        "maxLength": batch.MAX_REF_LENGTH,
        "description": "Your own reference for the operation, which its result repeats.",
    }
    kinds = {
        "create": {"listing": _ref("schemas", "NewListing")},
        "update": {"id": READ_ONLY_FIELDS["id"].schema, "changes": _ref("schemas", "ListingChange")},
        "delete": {"id": READ_ONLY_FIELDS["id"].schema},
    }
    variants = [
        {
            "type": "object",
            "title": kind,
            "required": ["op", *more],
            "properties": {"op": {"const": kind}, **more, "ref": reference},
        }
        for kind, more in kinds.items()
    ]
    return {
        "type": "object",
        "description": "Writes in the order in which they run. Errors are reported per operation.",
        "required": ["operations"],
        "properties": {
            "operations": {
                "type": "array",
                "minItems": 1,
                "maxItems": batch.MAX_OPERATIONS,
                "items": {"oneOf": variants},
            },
            "atomic": {
                "type": "boolean",
                "default": False,
                "description": "Whether to undo all operations if one fails.",
            },
        },
    }


_RESULT_CODES: tuple[Code, ...] = (
    "invalid_request",
    "account_full",
    "not_owner",
    "listing_not_found",
    "dependency_failed",
)


def _build_batch_results() -> Schema:
    statuses = sorted({200, 201, *(STATUS[code] for code in _RESULT_CODES)})
    result = _build_object(
        {
            "ref": {"type": ["string", "integer"], "description": "Your reference for the operation."},
            "status": {"type": "integer", "enum": statuses},
            "body": {"oneOf": [_ref("schemas", name) for name in ("Created", "Message", "Error")]},
        }
    )
    result["required"] = ["status", "body"]
    return _build_object(
        {"results": {"type": "array", "minItems": 1, "maxItems": batch.MAX_OPERATIONS, "items": result}}
    )


def _build_rate_limit() -> Schema:
    descriptions = {
        "limit": "Maximum number of requests in a window.",
        "window": "Length of the window in seconds.",
        "remaining": "Remaining requests.",
        "reset": "Unix time at which the oldest counted request leaves the window and one more becomes available.",
    }
    number: Schema = {"type": ["integer", "null"], "minimum": 0}
    return _build_object({name: number | {"description": text} for name, text in descriptions.items()})
