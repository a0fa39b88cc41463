"""The API described as OpenAPI 3.1, made of the tables by which requests are served: nothing of it stands twice."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from listings import __version__
from listings.api import batch, codec
from listings.api.docs import headers
from listings.api.docs.operations import (
    ERROR_DOCS,
    FIELDS_IN_WORDS,
    LISTING,
    MORE,
    PARAMETERS_IN_WORDS,
    TAGS,
    Operation,
    Success,
)
from listings.api.docs.schemas import Schema, field_schema, nullable, schema_of
from listings.api.endpoints import Endpoint, Routes
from listings.domain.errors import Code
from listings.domain.fields import FIELDS, REQUIRED
from listings.domain.listing_json import Record
from listings.domain.model import NewListing

_OF_THE_CONNECTION: tuple[Code, ...] = (
    "malformed_request",
    "request_timeout",
    "uri_too_long",
    "header_too_large",
    "internal_error",
    "unavailable",
    "version_not_supported",
)
_OF_A_KEY: tuple[Code, ...] = ("api_key_required", "invalid_api_key", "plan_expired", "account_disabled")
_OF_A_BODY: tuple[Code, ...] = ("malformed_json", "body_too_large", "unsupported_encoding")
_BEFORE_THE_LIMIT = {401, 408, 414, 431, 505}
_OF_NO_OPERATION: tuple[Code, ...] = ("path_not_found", "method_not_allowed")
_MORE_HEADERS: Mapping[int, tuple[str, ...]] = {
    401: ("WWW-Authenticate",),
    405: ("Allow",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}
_OVERVIEW = """\
Sellers manage their marketplace listings by program. Requests and answers are JSON in UTF-8.

Every error is `{"error": "one plain sentence"}` with its code for programs in `X-Error-Code`. HEAD answers as GET
without the body, a trailing slash changes nothing. An unknown path is answered 404 and an unknown method 405, both
without a key.
"""


def document(routes: Routes) -> Schema:
    """The whole description."""
    described = _Responses()
    paths = {path: _path(path, methods, described) for path, methods in routes.items()}
    for code in _OF_NO_OPERATION:
        described.refusal([code], limited=False)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Listings",
            "version": __version__,
            "summary": "Manage your marketplace listings by program",
            "description": _OVERVIEW,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/", "description": "This service"}],
        "tags": [{"name": name, "description": words} for name, words in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "parameters": headers.parameters(),
            "headers": headers.headers(),
            "responses": described.components,
            "securitySchemes": {
                "ApiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "Your key."},
                "Bearer": {"type": "http", "scheme": "bearer", "description": "The same key as a bearer token."},
            },
        },
    }


# Operations


def _path(path: str, methods: Mapping[str, Endpoint], described: "_Responses") -> Schema:
    item: Schema = {"parameters": [_id_parameter()]} if "{id}" in path else {}
    return item | {method.lower(): _operation(endpoint, described) for method, endpoint in methods.items()}


def _id_parameter() -> Schema:
    schema = {"type": "integer", "format": "int64", "minimum": 1, "maximum": codec.LARGEST_ID}
    words = "The listing's id. Anything else in its place is a listing that does not exist."
    return {"name": "id", "in": "path", "required": True, "description": words, "schema": schema, "example": 1025}


def _operation(endpoint: Endpoint, described: "_Responses") -> Schema:
    about = endpoint.about
    operation: Schema = {
        "operationId": about.id,
        "tags": [about.tag],
        "summary": about.summary,
        "description": about.description,
        "security": [{"ApiKey": []}, {"Bearer": []}] if endpoint.needs_key else [],
        "parameters": [
            *(_query_parameter(name, rule) for name, rule in about.parameters.items()),
            *(_ref("parameters", name) for name in (*about.headers, "X-Request-Id")),
        ],
    }
    if endpoint.takes_body:
        operation["requestBody"] = _request_body(about)
    answers = {str(success.status): _success(success, limited=endpoint.needs_key) for success in about.answers}
    for status, codes in _by_status(codes_of(endpoint)).items():
        limited = endpoint.needs_key and status not in _BEFORE_THE_LIMIT
        answers[str(status)] = described.refusal(codes, limited=limited)
    operation["responses"] = dict(sorted(answers.items()))
    return operation


def codes_of(endpoint: Endpoint) -> list[Code]:
    """Every code that an endpoint's answers can have."""
    codes = {*_OF_THE_CONNECTION, *endpoint.about.codes}
    if endpoint.needs_key:
        codes.update(_OF_A_KEY)
        if endpoint.counts:
            codes.add("rate_limited")
    if endpoint.takes_body:
        codes.update(_OF_A_BODY)
    return [code for code in codec.STATUS if code in codes]


def _by_status(codes: Iterable[Code]) -> dict[int, list[Code]]:
    found: dict[int, list[Code]] = {}
    for code in codes:
        found.setdefault(codec.STATUS[code], []).append(code)
    return found


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


def _query_parameter(name: str, rule: object) -> Schema:
    schema = schema_of(rule)
    parameter: Schema = {"name": name, "in": "query", "description": PARAMETERS_IN_WORDS[name], "schema": schema}
    if schema["type"] == "array":
        parameter |= {"style": "form", "explode": False}
    if name in _QUERY_EXAMPLES:
        parameter["example"] = _QUERY_EXAMPLES[name]
    return parameter


def _request_body(about: Operation) -> Schema:
    examples = {name: {"summary": summary, "value": body} for name, (summary, body) in about.examples.items()}
    content = {"schema": _ref("schemas", about.body), "examples": examples}
    words = "One JSON object in UTF-8; what Content-Type says does not matter."
    return {"description": words, "required": True, "content": {"application/json": content}}


# Answers


def _success(success: Success, *, limited: bool) -> Schema:
    response: Schema = {
        "description": success.description,
        "headers": _header_refs((*success.headers, *(headers.OF_THE_LIMIT if limited else ()))),
    }
    if success.schema:
        content: Schema = {"schema": _ref("schemas", success.schema)}
        if success.example is not None:
            content["example"] = success.example
        response["content"] = {success.kind: content}
    return response


class _Responses:
    """Refusals, each kept once among the components."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}

    def refusal(self, codes: list[Code], *, limited: bool) -> Schema:
        """The answer that has one of these codes, which share a status."""
        name = ".".join([*codes, *(["limited"] if limited else [])])
        if name not in self.components:
            self.components[name] = _refusal(codes, limited=limited)
        return _ref("responses", name)


def _refusal(codes: list[Code], *, limited: bool) -> Schema:
    status = codec.STATUS[codes[0]]
    code_schema = {"type": "string", "enum": codes}
    examples = {
        code: {"summary": ERROR_DOCS[code].when, "value": {"error": ERROR_DOCS[code].example}} for code in codes
    }
    more = (*_MORE_HEADERS.get(status, ()), *(headers.OF_THE_LIMIT if limited else ()))
    return {
        "description": f"{HTTPStatus(status).phrase}. "
        + " ".join(f"`{code}`: {ERROR_DOCS[code].when}" for code in codes),
        "headers": {
            "X-Error-Code": {"description": "The error for programs.", "required": True, "schema": code_schema},
            **_header_refs(more),
        },
        "content": {"application/json": {"schema": _ref("schemas", "Error"), "examples": examples}},
    }


def _header_refs(more: Iterable[str]) -> Schema:
    return {name: _ref("headers", name) for name in (*headers.OF_EVERY_ANSWER, *more)}


def _ref(kind: str, name: str) -> Schema:
    return {"$ref": f"#/components/{kind}/{name}"}


# Schemas


def _schemas() -> dict[str, Schema]:
    return {
        "Listing": _record(),
        "Listings": _object({"listings": {"type": "array", "items": _ref("schemas", "Listing")}}),
        "NewListing": _new_listing(),
        "ListingChange": _change(),
        "Batch": _batch(),
        "BatchResults": _batch_results(),
        "Created": _object({"id": _of_ours("id"), "message": {"type": "string"}}),
        "Message": _object({"message": {"type": "string"}}),
        "Error": _object({"error": {"type": "string", "description": "One plain sentence, for people."}}),
        "RateLimit": _rate_limit(),
        "Health": _object({"status": {"const": "ok"}}),
        "Readiness": _readiness(),
        "Description": {"type": "object", "required": ["openapi", "info", "paths", "components"]},
        "File": {"type": "string"},
    }


def _readiness() -> Schema:
    reach: Schema = {
        "type": "string",
        "description": "Whose requests the rate limit counts together now; only where Redis is to count it.",
    }
    return {**_object({"status": {"const": "ready"}, "rate_limit": reach}), "required": ["status"]}


def _object(properties: Mapping[str, Any]) -> Schema:
    """One of ours: with all of these keys and no others."""
    return {
        "type": "object",
        "required": list(properties),
        "properties": dict(properties),
        "additionalProperties": False,
    }


_TIME: Schema = {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}$"}
_READ_ONLY: Mapping[str, Schema] = {
    "id": {"type": "integer", "format": "int64", "minimum": 1, "maximum": codec.LARGEST_ID},
    "view_count": {"type": "integer", "minimum": 0},
    "created_at": _TIME,
    "updated_at": _TIME,
    "deleted_at": _TIME | {"type": ["string", "null"]},
}
_CAN_BE_UNKNOWN = {"latitude", "longitude"}


def _of_ours(name: str) -> Schema:
    """A field as it is returned."""
    schema = dict(_READ_ONLY[name]) if name in _READ_ONLY else field_schema(name)
    if name in _CAN_BE_UNKNOWN:
        schema = nullable(schema)
    return schema | {"description": FIELDS_IN_WORDS[name], "examples": [(LISTING | MORE)[name]]}


def _record() -> Schema:
    told = msgspec.structs.fields(Record)
    record = _object({field.name: _of_ours(field.name) for field in told})
    return record | {
        "description": "A listing. Fields that are not required are shown where `include` asks for them.",
        "required": [field.name for field in told if field.required],
    }


def _given(name: str, *, null: bool = False, default: object = None) -> Schema:
    """A field as a body gives it."""
    schema = nullable(field_schema(name)) if null else field_schema(name)
    schema |= {"description": FIELDS_IN_WORDS[name], "examples": [(LISTING | MORE)[name]]}
    return schema if default is None else schema | {"default": default}


_NEVER_GIVEN = NewListing(title="", content="")


def _default(name: str) -> object:
    """What a field holds when it was never given, as it is returned; None: it has no such value."""
    stored: object = getattr(_NEVER_GIVEN, FIELDS[name].attribute)
    return msgspec.json.decode(str(stored)) if name == "images" else stored


def _new_listing() -> Schema:
    return {
        "type": "object",
        "description": "A listing to be made. null means that a field is not given; unknown keys are ignored.",
        "required": list(REQUIRED),
        "properties": {
            name: _given(name) if name in REQUIRED else _given(name, null=True, default=_default(name))
            for name in FIELDS
        },
    }


def _change() -> Schema:
    return {
        "type": "object",
        "description": "What is to change. null sets an optional field back; unknown keys are ignored.",
        "properties": {name: _given(name, null=field.clearable) for name, field in FIELDS.items()},
    }


def _batch() -> Schema:
    reference = {
        "type": ["string", "integer"],
        "maxLength": batch.LONGEST_REF,
        "description": "Your own name for the operation, which its result repeats.",
    }
    kinds = {
        "create": {"listing": _ref("schemas", "NewListing")},
        "update": {"id": _READ_ONLY["id"], "changes": _ref("schemas", "ListingChange")},
        "delete": {"id": _READ_ONLY["id"]},
    }
    forms = [
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
        "description": "Writes to be done in this order. A wrong operation is told in its own result.",
        "required": ["operations"],
        "properties": {
            "operations": {
                "type": "array",
                "minItems": 1,
                "maxItems": batch.MOST_OPERATIONS,
                "items": {"oneOf": forms},
            },
            "atomic": {
                "type": "boolean",
                "default": False,
                "description": "Whether one operation's failure undoes all of them.",
            },
        },
    }


_RESULT_CODES: tuple[Code, ...] = ("invalid_request", "not_owner", "listing_not_found", "dependency_failed")


def _batch_results() -> Schema:
    statuses = sorted({200, 201, *(codec.STATUS[code] for code in _RESULT_CODES)})
    result = _object(
        {
            "ref": {"type": ["string", "integer"], "description": "What you called the operation."},
            "status": {"type": "integer", "enum": statuses},
            "body": {"oneOf": [_ref("schemas", name) for name in ("Created", "Message", "Error")]},
        }
    )
    result["required"] = ["status", "body"]
    return _object({"results": {"type": "array", "minItems": 1, "maxItems": batch.MOST_OPERATIONS, "items": result}})


def _rate_limit() -> Schema:
    words = {
        "limit": "Requests in a window.",
        "window": "Its length in seconds.",
        "remaining": "Requests that are left.",
        "reset": "When the oldest that counts is forgotten, in seconds since 1970.",
    }
    number: Schema = {"type": ["integer", "null"], "minimum": 0}
    return _object({name: number | {"description": text} for name, text in words.items()})
