"""The schemas of request and response bodies in the OpenAPI document."""

from collections.abc import Mapping
from typing import Any

import msgspec

from listings.api import batch, params
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
from listings.api.docs.texts import ERROR_DOCS
from listings.domain.errors import STATUS, Code
from listings.domain.fields import FIELDS, REQUIRED, Images, get_default
from listings.domain.listing_json import Record


def build_component_schemas() -> dict[str, Schema]:
    """Return the schemas that the operations refer to, by name."""
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
        **_build_reverts(),
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
    """Return the schema of a new listing. It states defaults in words: a `default` makes generators require a field."""
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
    tag = {
        "type": "string",
        "maxLength": batch.MAX_TAGS_LENGTH,
        "description": "Like the header If-Match: the ETag of the listing as you read it.",
    }
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
        "revert": number | {"description": "The id of its revert, if it belongs to one."},
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
        "ChangeSet": _build_object(change_set)
        | {
            "description": "What one write changed.",
            "required": [name for name in change_set if name != "revert"],
        },
        "Change": _build_object(change) | {"description": "A change of one listing. A create has null in `before`."},
        "ChangedFields": values | {"required": [], "description": "The changed fields only."},
        "ChangeActor": _build_change_actor(),
    }


def _build_change_actor() -> Schema:
    actor = {
        "type": refer("schemas", "ActorType"),
        "name": {"type": "string", "description": "Of a key."},
        "hint": {"type": "string", "description": "The key with its middle part left out."},
        "id": READ_ONLY_FIELDS["id"].schema | {"description": "Of a key, or of an import: its first change set."},
    }
    return _build_object(actor) | {"required": ["type"]}


def _build_revert_request() -> Schema:
    number = READ_ONLY_FIELDS["id"].schema
    time = build_schema(params.LIST_PARAMETERS["updated_since"])
    return {
        "type": "object",
        "description": "What to revert: exactly one of change, import, revert and key.",
        "properties": {
            "change": number | {"description": "The id of a change set."},
            "import": number | {"description": "The id of an import."},
            "revert": number | {"description": "The id of an earlier revert."},
            "key": number | {"description": "The id of one of your keys, with `since`."},
            "since": time | {"description": "Time of the key's first change to revert, in UTC, not in the future."},
            "until": time | {"description": "Time of its last one, in UTC. A date alone means 00:00:00. Default: now."},
            "overwrite": {"type": "boolean", "description": "Whether to overwrite later changes. Default: `false`."},
        },
    }


def _build_reverts() -> dict[str, Schema]:
    """Return the schemas of reverts."""
    number = allow_null(READ_ONLY_FIELDS["id"].schema)
    count: Schema = {"type": "integer", "minimum": 0}
    counts = {
        "reverted": count | {"description": "Listings that were changed."},
        "unchanged": count | {"description": "Listings that needed no change."},
        "conflicts": count | {"description": "Conflicts."},
    }
    conflict = {
        "id": _build_record_field("id"),
        "external_id": _build_record_field("external_id") | {"description": "The external id that it has now."},
        "reason": refer("schemas", "ConflictReason"),
        "fields": {"type": "array", "items": {"type": "string"}, "description": "The fields that stay as they are."},
        "change": number | {"description": "The change set that changed them later."},
        "holder": number | {"description": "The listing that has the external id."},
    }
    changes = {"type": "array", "items": refer("schemas", "Change")}
    revert = {
        "id": number | {"description": "The id of its first change set. null for a dry run."},
        "status": refer("schemas", "RevertStatus"),
        "progress": {"type": "number", "format": "double", "minimum": 0, "maximum": 1}
        | {"description": "The part of the changes that has been read; for a dry run, 1 if it read all, or else 0."},
        "counts": refer("schemas", "RevertCounts"),
        "conflicts": {"type": "array", "items": refer("schemas", "RevertConflict")},
        "last": count | {"description": "The conflict to continue from."},
        "more": {"type": "boolean", "description": "Whether there are further conflicts."},
        "changes": changes | {"description": "What a dry run would write; otherwise empty."},
    }
    return {
        "RevertRequest": _build_revert_request(),
        "Revert": _build_object(revert),
        "RevertCounts": _build_object(counts),
        "RevertConflict": _build_object(conflict) | {"description": "Fields of a listing that were not reverted."},
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
