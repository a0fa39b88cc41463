"""Build the OpenAPI 3.1 document from the same tables that serve the requests."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from listings import __version__
from listings.api import batch, params
from listings.api.docs import headers
from listings.api.docs.operations import (
    ERROR_DOCS,
    PARAMETER_DESCRIPTIONS,
    TAGS,
    Operation,
    Success,
)
from listings.api.docs.schemas import (
    ENUMS,
    FIELD_DOCS,
    READ_ONLY_FIELDS,
    TIME_FORMAT,
    Schema,
    allow_null,
    build_image_url,
    build_schema,
    refer,
)
from listings.api.endpoints import Endpoint, Routes
from listings.domain.errors import STATUS, Code
from listings.domain.fields import FIELDS, REQUIRED, Images, get_default
from listings.domain.listing_json import Record
from listings.domain.plan import PlanTerms
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
_PHRASES: Mapping[int, str] = {  # of RFC 9110; those of Python depend on its version
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    408: "Request Timeout",
    410: "Gone",
    409: "Conflict",
    412: "Precondition Failed",
    413: "Content Too Large",
    414: "URI Too Long",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
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
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": {path: _build_path(path, methods) for path, methods in documented.items()},
        "components": {
            "schemas": _build_schemas(),
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
        info["contact"] = {"email" if "://" not in about.contact else "url": about.contact}
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
    item: Schema = {"parameters": [_build_id_parameter()]} if "{id}" in path else {}
    for method, endpoint in methods.items():
        if endpoint.operation is not None:
            item[method.lower()] = _build_operation(endpoint, endpoint.operation)
    return item


def _build_id_parameter() -> Schema:
    schema = READ_ONLY_FIELDS["id"].schema
    text = "Id of the listing. Any other value returns 404."
    return {"name": "id", "in": "path", "required": True, "description": text, "schema": schema, "example": 1025}


def _build_operation(endpoint: Endpoint, doc: Operation) -> Schema:
    codes = list_error_codes(endpoint)
    operation: Schema = {
        "operationId": doc.id,
        "tags": [doc.tag],
        "summary": doc.summary,
        "description": doc.description,
        "security": [{"ApiKey": []}, {"Bearer": []}],
        "parameters": [
            *(_build_query_parameter(name, rule, doc) for name, rule in doc.parameters.items()),
            *(refer("parameters", name) for name in (*doc.headers, "X-Request-Id")),
        ],
    }
    if endpoint.takes_body:
        operation["requestBody"] = _build_request_body(doc)
    operation["responses"] = {
        **{str(success.status): _build_success(success) for success in doc.responses},
        **{str(STATUS[code]): refer("responses", _name_status(STATUS[code])) for code in codes},
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
    "updated_since": "2026-11-21 06:54:32",
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


def _build_query_parameter(name: str, rule: object, doc: Operation) -> Schema:
    schema = build_schema(rule)
    text = doc.parameter_texts.get(name) or PARAMETER_DESCRIPTIONS[name]
    parameter: Schema = {"name": name, "in": "query", "description": text, "schema": schema}
    if schema.get("type") == "array":
        parameter |= {"style": "form", "explode": rule is params.parse_external_id}
    if name in _QUERY_EXAMPLES:
        parameter["example"] = _QUERY_EXAMPLES[name]
    return parameter


def _build_request_body(doc: Operation) -> Schema:
    examples = {name: {"summary": summary, "value": body} for name, (summary, body) in doc.examples.items()}
    content = {"schema": refer("schemas", doc.body), "examples": examples}
    text = "One JSON object in UTF-8. The Content-Type header is ignored."
    return {"description": text, "required": True, "content": {"application/json": content}}


# Responses


def _build_success(success: Success) -> Schema:
    more = ("X-Ignored-Parameters", *(["Content-Encoding"] if success.schema else []), *headers.RATE_LIMIT_HEADERS)
    response: Schema = {"description": success.description, "headers": _refer_to_headers((*success.headers, *more))}
    if success.schema:
        content = {"schema": refer("schemas", success.schema), "example": success.example}
        response["content"] = {"application/json": content}
    return response


def _build_errors(endpoints: Iterable[Endpoint]) -> dict[str, Schema]:
    """Return one response for each status, with the codes of all operations."""
    used = {code for endpoint in endpoints if endpoint.operation for code in list_error_codes(endpoint)}
    groups: dict[int, list[Code]] = {}
    for code in ERROR_DOCS:
        if code in used:
            groups.setdefault(STATUS[code], []).append(code)
    return {_name_status(status): _build_error(status, codes) for status, codes in sorted(groups.items())}


def _name_status(status: int) -> str:
    """Return the phrase of a status as a name, such as "NotFound"."""
    return _PHRASES[status].replace(" ", "")


def _build_error(status: int, codes: list[Code]) -> Schema:
    examples = {
        code: {"summary": ERROR_DOCS[code].when, "value": {"error": ERROR_DOCS[code].example}} for code in codes
    }
    limit_headers = () if status in _STATUSES_BEFORE_LIMIT else headers.RATE_LIMIT_HEADERS
    return {
        "description": f"{_PHRASES[status]}. " + " ".join(f"`{code}`: {ERROR_DOCS[code].when}" for code in codes),
        "headers": _refer_to_headers(("X-Error-Code", *_EXTRA_HEADERS.get(status, ()), *limit_headers)),
        "content": {"application/json": {"schema": refer("schemas", "ApiError"), "examples": examples}},
    }


def _refer_to_headers(more: Iterable[str]) -> Schema:
    return {name: refer("headers", name) for name in (*headers.COMMON_HEADERS, *more)}


# Schemas


def _build_schemas() -> dict[str, Schema]:
    return {
        "Listing": _build_record(),
        "Listings": _build_object({"listings": {"type": "array", "items": refer("schemas", "Listing")}}),
        "ListingCreate": _build_create(),
        "ListingUpdate": _build_update(),
        "ListingPut": _build_put(),
        **_build_batch(),
        **_build_batch_results(),
        "Created": _build_object({"id": _build_record_field("id"), "message": {"type": "string"}}),
        "Confirmation": _build_object({"message": {"type": "string"}}),
        "ApiError": _build_object({"error": {"type": "string", "description": "One plain sentence for people."}}),
        **_build_changes(),
        "RateLimit": _build_rate_limit(),
        **ENUMS,
        "ImageUrl": build_image_url(),
        "ErrorCode": {"type": "string", "enum": list(ERROR_DOCS)},
    }


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


def _build_body_field(name: str, *, null: bool = False) -> Schema:
    """Return the schema of a field in a request body."""
    schema = build_schema(FIELDS[name].rule)
    return (allow_null(schema) if null else schema) | _build_field_texts(name)


def _build_create() -> Schema:
    """Return the schema of a new listing. It states defaults in words: generators make a field with one required."""
    fields = {name: _build_body_field(name, null=name not in REQUIRED) for name in FIELDS}
    for name, schema in fields.items():
        if (default := _find_default(name)) is not None:
            schema["description"] += f" Default: `{msgspec.json.encode(default).decode()}`."
    return {
        "type": "object",
        "description": (
            "A new listing. null is the same as leaving a field out. Unknown and read-only fields are ignored."
        ),
        "required": list(REQUIRED),
        "properties": fields,
    }


def _find_default(name: str) -> object:
    """Return the value of a field that was never sent, or None if it has no default."""
    default = get_default(name) if name not in REQUIRED else None
    return msgspec.json.decode(str(default)) if isinstance(FIELDS[name].rule, Images) else default


def _build_update() -> Schema:
    return {
        "type": "object",
        "description": (
            "The fields to update. null resets an optional field to its default. Unknown and read-only fields are "
            "ignored."
        ),
        "properties": {name: _build_body_field(name, null=field.clearable) for name, field in FIELDS.items()},
    }


def _build_put() -> Schema:
    update = _build_update()
    return update | {
        "description": (
            "The fields to update, or a new listing, which also needs `title` and `content`. Unknown and read-only "
            "fields are ignored."
        ),
        "required": ["external_id"],
        "properties": update["properties"] | {"external_id": _build_body_field("external_id")},
    }


_RESULT_CODES: tuple[Code, ...] = (
    *("invalid_request", "account_full", "not_owner", "listing_not_found", "external_id_taken"),
    *("precondition_failed", "dependency_failed"),
)


def _build_batch() -> dict[str, Schema]:
    """Return the schemas of a batch and its operations."""
    kinds = _build_operations()
    items = {"minItems": 1, "maxItems": batch.MAX_OPERATIONS, "items": refer("schemas", "BatchOperation")}
    atomic = {
        "type": "boolean",
        "description": "Whether to undo all operations if one fails. Default: `false`; with `If-Match` always `true`.",
    }
    names = {kind: f"{kind.title()}Operation" for kind in kinds}
    return {
        "Batch": {
            "type": "object",
            "description": "Writes in the order in which they run. Errors are reported per operation.",
            "required": ["operations"],
            "properties": {"operations": {"type": "array", **items}, "atomic": atomic},
        },
        "OperationRef": {
            "type": ["string", "integer"],
            "maxLength": batch.MAX_REF_LENGTH,
            "description": "Your own reference for the operation, which its result repeats.",
        },
        "BatchOperation": {
            "oneOf": [refer("schemas", name) for name in names.values()],
            "discriminator": {
                "propertyName": "op",
                "mapping": {kind: refer("schemas", name)["$ref"] for kind, name in names.items()},
            },
        },
        **{names[kind]: schema for kind, schema in kinds.items()},
    }


def _build_operations() -> dict[str, Schema]:
    """Return the schema of each kind of operation."""
    listing_id = _build_record_field("id")
    kinds = {
        "create": {"listing": refer("schemas", "ListingCreate")},
        "update": {"id": listing_id, "changes": refer("schemas", "ListingUpdate")},
        "put": {"listing": refer("schemas", "ListingPut")},
        "delete": {"id": listing_id},
        "restore": {"id": listing_id},
    }
    tag = {"type": "string", "description": "Like the header If-Match: the ETag of the listing as you read it."}
    return {
        kind: {
            "type": "object",
            "required": ["op", *more],
            "properties": {
                "op": {"type": "string", "const": kind},
                **more,
                **({} if kind == "create" else {"if_match": tag}),
                "ref": refer("schemas", "OperationRef"),
            },
        }
        for kind, more in kinds.items()
    }


def _build_batch_results() -> dict[str, Schema]:
    """Return the schemas of the results of a batch. The status and the form of the body tell them apart."""
    errors = sorted({STATUS[code] for code in _RESULT_CODES})
    etag = {"etag": {"type": "string", "description": "The new ETag of the listing. Not sent with a dry run."}}
    code = {"code": refer("schemas", "ErrorCode")}
    listing_id = READ_ONLY_FIELDS["id"].schema | {"description": "The id of the listing that a put created or updated."}
    put = {"op": refer("schemas", "PutOutcome"), "id": listing_id}
    changed = refer("schemas", "ChangedFields")
    preview = {"before": allow_null(changed), "after": changed}
    kinds: Mapping[str, tuple[Schema, str, Schema, str]] = {
        "CreateResult": ({"const": 201}, "Created", put | etag, "A create that was applied, also by a put."),
        "ChangeResult": (
            *({"const": 200}, "Confirmation", put | etag | preview),
            "An update, a delete, a restore, or any operation of a dry run, with the fields that it would change.",
        ),
        "FailedResult": ({"enum": errors}, "ApiError", code, "An operation that was not applied."),
    }
    reference = refer("schemas", "OperationRef")
    results = {
        "type": "array",
        "minItems": 1,
        "maxItems": batch.MAX_OPERATIONS,
        "items": refer("schemas", "BatchResult"),
    }
    return {
        "BatchResults": _build_object({"results": results}),
        "BatchResult": {"oneOf": [refer("schemas", name) for name in kinds]},
        **{
            name: _build_object(
                {"ref": reference, "status": {"type": "integer", **status}, **more, "body": refer("schemas", body)}
            )
            | {"description": text, "required": ["status", "body"]}
            for name, (status, body, more, text) in kinds.items()
        },
    }


def _build_changes() -> dict[str, Schema]:
    """Return the schemas of change sets."""
    number = READ_ONLY_FIELDS["id"].schema
    identifier = number | {"minimum": 0}
    values = _build_object({name: _build_record_field(name) for name in (*FIELDS, "deleted_at")})
    change = {
        "id": _build_record_field("id"),
        "external_id": _build_record_field("external_id") | {"description": "The external id that it has now."},
        "before": allow_null(refer("schemas", "ChangedFields")),
        "after": refer("schemas", "ChangedFields"),
    }
    change_set = {
        "id": number | {"description": "Ascends by one with each change set of the account."},
        "time": READ_ONLY_FIELDS["created_at"].schema | {"description": f"When it was written, {TIME_FORMAT}."},
        "actor": refer("schemas", "ChangeActor"),
        "kind": refer("schemas", "ChangeKind"),
        "changes": {"type": "array", "items": refer("schemas", "Change")},
    }
    return {
        "ChangeSets": _build_object(
            {
                "change_sets": {"type": "array", "items": refer("schemas", "ChangeSet")},
                "last": identifier | {"description": "The id to continue from."},
                "more": {"type": "boolean", "description": "Whether there are further change sets."},
            }
        ),
        "ChangeSet": _build_object(change_set) | {"description": "What one write changed."},
        "Change": _build_object(change) | {"description": "A change of one listing. A create has null in `before`."},
        "ChangedFields": values | {"required": [], "description": "The changed fields only."},
        "ChangeActor": _build_object(
            {
                "type": refer("schemas", "ActorType"),
                "name": {"type": "string", "description": "Of a key."},
                "hint": {"type": "string", "description": "The key with its middle part left out."},
                "id": number | {"description": "Of an import: the id of its first change set."},
            }
        )
        | {"required": ["type"]},
    }


def _build_rate_limit() -> Schema:
    descriptions = {
        "limit": "Maximum number of requests in a window.",
        "window": "Length of the window in seconds.",
        "remaining": "Remaining requests.",
        "reset": "Unix time at which the oldest counted request leaves the window and one more becomes available.",
    }
    number: Schema = {"type": ["integer", "null"], "minimum": 0}
    return _build_object({name: number | {"description": text} for name, text in descriptions.items()})
