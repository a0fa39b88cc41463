"""Build the OpenAPI 3.1 document from the same tables that serve the requests."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus

from listings import __version__
from listings.api.docs import headers
from listings.api.docs.components import build_component_schemas
from listings.api.docs.operations import Operation, Success
from listings.api.docs.schemas import READ_ONLY_FIELDS, build_schema, refer
from listings.api.docs.texts import ERROR_DOCS, OperationTexts, read_examples, read_texts
from listings.api.endpoints import Endpoint, Routes
from listings.domain.accounts import PlanTerms
from listings.domain.errors import STATUS, Code
from listings.domain.fields import FIELDS
from listings.domain.listing_json import Record
from listings.domain.rules import Schema
from listings.service import ServiceInfo

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
_EXTRA_HEADERS: Mapping[int, tuple[str, ...]] = {
    401: ("WWW-Authenticate",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}
_PHRASES: Mapping[int, str] = {  # of RFC 9110; others are the same in all versions of Python
    413: "Content Too Large",
    414: "URI Too Long",
    422: "Unprocessable Content",
}
_UPLOAD_BODY: Schema = {
    "description": "The file of the picture, at most 20 MiB. The Content-Type header is ignored.",
    "required": True,
    "content": {
        kind: {"schema": {"type": "string", "format": "binary"}} for kind in ("image/jpeg", "image/png", "image/webp")
    },
}
_OVERVIEW = """\
Create and manage your marketplace listings from your own software. Requests and responses are JSON in UTF-8.

Every error is `{"error": "one plain sentence"}`, with a code for programs in `X-Error-Code`. HEAD responds like GET,
without a body. A trailing slash is ignored. An unknown path returns 404 and an unsupported method 405, with or without
a key.
"""


def build_document(routes: Routes, about: ServiceInfo) -> Schema:
    """Return the OpenAPI document."""
    documented = {path: methods for path, methods in routes.items() if any(one.operation for one in methods.values())}
    document: Schema = {
        "openapi": "3.1.0",
        "info": _build_info(about),
        "servers": [{"url": about.base_url or "/", "description": "This service"}],
        "tags": [{"name": name, "description": text} for name, text in read_texts().groups.items()],
        "paths": {path: _build_path(path, methods) for path, methods in documented.items()},
        "components": {
            "schemas": build_component_schemas(),
            "parameters": headers.build_parameters(),
            "headers": headers.build_headers(),
            "responses": _build_errors(endpoint for methods in documented.values() for endpoint in methods.values()),
            "securitySchemes": {
                "ApiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "Your API key."},
                "Bearer": {"type": "http", "scheme": "bearer", "description": "Your API key as a bearer token."},
            },
        },
    }
    if about.base_url:  # its URL must be absolute
        document["externalDocs"] = {"url": f"{about.base_url}/docs", "description": "Reference and guides"}
    return document


def _build_info(about: ServiceInfo) -> Schema:
    info: Schema = {
        "title": "Listings",
        "version": __version__,
        "summary": "Create and manage your marketplace listings",
        "description": f"{_OVERVIEW}\n{describe_access(about.plan)}\n",
        "license": {"name": "MIT", "identifier": "MIT"},
    }
    if about.contact:
        info["contact"] = {"email" if about.contact_email else "url": about.contact}
    return info


def describe_access(plan: PlanTerms) -> str:
    """Return how to get an API key, as Markdown."""
    source = (
        f"Create a key in the console at `{plan.console_url}/keys`."
        if plan.console_url
        else "Ask the operator for a key."
    )
    return (
        f"You need an API key and the Business plan, which costs {plan.format_price()} a month. {source} A "
        "read-only key can send GET and HEAD only."
    )


# Operations


def _build_path(path: str, methods: Mapping[str, Endpoint]) -> Schema:
    item: Schema = {}
    for method, endpoint in methods.items():
        if endpoint.operation is not None:
            if "{id}" in path:
                item.setdefault("parameters", [_build_id_parameter(endpoint.operation)])
            item[method.lower()] = _build_operation(endpoint, endpoint.operation)
    return item


def _build_id_parameter(doc: Operation) -> Schema:
    schema, example = ({"type": "string"}, doc.path_name) if doc.path_name else (READ_ONLY_FIELDS["id"].schema, 1025)
    text = doc.path_id
    return {"name": "id", "in": "path", "required": True, "description": text, "schema": schema, "example": example}


def _build_operation(endpoint: Endpoint, doc: Operation) -> Schema:
    codes, texts = list_error_codes(endpoint), read_texts().operations[doc.id]
    query = {name: rule for name, rule in doc.parameters.items() if name not in doc.undescribed}
    operation: Schema = {
        "operationId": doc.id,
        "tags": [doc.tag],
        "summary": texts.summary,
        "description": texts.description,
        "security": [{"ApiKey": []}, {"Bearer": []}],
        "parameters": [
            *(_build_query_parameter(name, rule, texts) for name, rule in query.items()),
            *(refer("parameters", name) for name in (*doc.headers, "X-Request-Id", *doc.later_headers)),
        ],
    }
    if endpoint.takes_body:
        operation["requestBody"] = _build_request_body(doc)
    if endpoint.takes_upload:
        operation["requestBody"] = _UPLOAD_BODY
    operation["responses"] = {
        **{str(success.status): _build_success(success) for success in doc.responses},
        **{str(STATUS[code]): refer("responses", _get_phrase(STATUS[code]).replace(" ", "")) for code in codes},
    }
    operation["x-error-codes"] = codes
    return operation


def list_error_codes(endpoint: Endpoint) -> list[Code]:
    """Return every error code that a documented endpoint can return."""
    codes = {*_CONNECTION_ERRORS, *_KEY_ERRORS, *(endpoint.operation.codes if endpoint.operation is not None else ())}
    if endpoint.counts:
        codes.add("rate_limited")
    if endpoint.takes_body:
        codes.update(_BODY_ERRORS)
    return sorted(codes, key=lambda code: (STATUS[code], [*ERROR_DOCS].index(code)))


_QUERY_EXAMPLES: Mapping[str, object] = {
    "limit": 100,
    "status": "all",
    "type": "product",
    "category": "Furniture",
    "region": "Wellington",
    "q": "rimu table",
    "price_min": 100,
    "price_max": 1999.5,
    "force": False,
    "updated_since": "2026-11-21 06:54:32",
    "since": "2026-11-21 06:54:32",
    "until": "2026-11-21 06:54:32",
    "external_id": ["sku-17"],
    "ids": [1025, 2049],
    "sort": "-updated_at",
    "include": ["district", "deleted_at"],
    "after": 0,
    "before": 1201,
    "timeout": 30,
    "gather": 5,
    "count": True,
    "dry_run": True,
}


def _build_query_parameter(name: str, rule: object, texts: OperationTexts) -> Schema:
    schema = build_schema(rule)
    text = texts.parameters.get(name) or read_texts().parameters[name]
    parameter: Schema = {"name": name, "in": "query", "description": text, "schema": schema}
    if schema.get("type") == "array":
        parameter |= {"style": "form", "explode": True}
    if name in _QUERY_EXAMPLES:
        parameter["example"] = _QUERY_EXAMPLES[name]
    return parameter


def _build_request_body(doc: Operation) -> Schema:
    every_field = {name: FIELDS[name].example for name in Record.__struct_fields__ if name in FIELDS}
    examples = {
        name: {"summary": example.summary, "value": example.value or every_field}
        for name, example in read_examples().requests[doc.body].items()
    }
    content = {"schema": refer("schemas", doc.body), "examples": examples}
    text = "One JSON object in UTF-8. The Content-Type header is ignored."
    return {"description": text, "required": True, "content": {"application/json": content}}


# Responses


def _build_success(success: Success) -> Schema:
    more = ("X-Ignored-Parameters", *(["Content-Encoding"] if success.schema else []), *headers.RATE_LIMIT_HEADERS)
    response: Schema = {"description": success.description, "headers": _refer_to_headers((*success.headers, *more))}
    if success.schema:
        example = success.example or read_examples().responses[success.schema]
        content = {"schema": refer("schemas", success.schema), "example": example}
        response["content"] = {"application/json": content}
    return response


def _build_errors(endpoints: Iterable[Endpoint]) -> dict[str, Schema]:
    used = {code for endpoint in endpoints if endpoint.operation for code in list_error_codes(endpoint)}
    groups: dict[int, list[Code]] = {}
    for code in ERROR_DOCS:
        if code in used:
            groups.setdefault(STATUS[code], []).append(code)
    return {
        _get_phrase(status).replace(" ", ""): _build_error(status, codes) for status, codes in sorted(groups.items())
    }


def _get_phrase(status: int) -> str:
    return _PHRASES.get(status) or HTTPStatus(status).phrase


def _build_error(status: int, codes: list[Code]) -> Schema:
    examples = {
        code: {"summary": ERROR_DOCS[code].when, "value": {"error": ERROR_DOCS[code].example}} for code in codes
    }
    more = ("Preference-Applied", *_EXTRA_HEADERS.get(status, ()))
    limit_headers = () if status in _STATUSES_BEFORE_LIMIT else headers.RATE_LIMIT_HEADERS
    return {
        "description": f"{_get_phrase(status)}. " + " ".join(f"`{code}`: {ERROR_DOCS[code].when}" for code in codes),
        "headers": _refer_to_headers(("X-Error-Code", *more, *limit_headers)),
        "content": {"application/json": {"schema": refer("schemas", "ErrorBody"), "examples": examples}},
    }


def _refer_to_headers(more: Iterable[str]) -> Schema:
    return {name: refer("headers", name) for name in (*headers.COMMON_HEADERS, *more)}
