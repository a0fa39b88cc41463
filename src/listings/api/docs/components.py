"""The schemas of request and response bodies in the OpenAPI document."""

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from listings.api import batch
from listings.api.docs.schemas import (
    ENUMS,
    FIELD_DOCS,
    READ_ONLY_FIELDS,
    RULE_COMPONENTS,
    TIME_FORMAT,
    allow_null,
    list_values,
    refer,
    relax,
)
from listings.api.docs.texts import ERROR_DOCS
from listings.domain.errors import Code
from listings.domain.faults import FAULTS
from listings.domain.fields import FIELDS, REQUIRED, get_default
from listings.domain.listing_json import Record
from listings.domain.reverts import ConflictReason
from listings.domain.rules import Schema

_ID, _TIME = relax(READ_ONLY_FIELDS["id"].schema), relax(READ_ONLY_FIELDS["created_at"].schema)

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer"}
_ERROR: Schema = _TEXT | {"description": "One plain sentence for people."}
_FAULTS: Mapping[str, Schema] = {
    "errors": {
        "type": "array",
        "items": refer("schemas", "FieldFault"),
        "description": "Sent with `Prefer: errors=detailed`: the invalid fields, if there are any.",
    }
}


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
        "Created": _build_open({"id": _build_record_field("id"), "message": _TEXT}, ["id"]),
        "Confirmation": _build_open({"message": _TEXT}, []),
        "ErrorBody": _build_object({"error": _ERROR, **_FAULTS}) | {"required": ["error"]},
        "FieldFault": _build_object(
            {
                "field": _TEXT | {"description": "A field such as `images[0]`, a parameter or a header; may be empty."},
                "code": list_values(*FAULTS),
                "message": _ERROR,
            }
        ),
        **_build_changes(),
        **_build_reverts(),
        **_build_images(),
        **_build_key(),
        "RateLimit": _build_rate_limit(),
        **ENUMS,
        **RULE_COMPONENTS,
        "ErrorCode": {"type": "string", "enum": list(ERROR_DOCS)},
    }


def _build_object(properties: Mapping[str, Any]) -> Schema:
    return {
        "type": "object",
        "required": list(properties),
        "properties": dict(properties),
        "additionalProperties": False,
    }


def _build_open(properties: Mapping[str, Any], required: list[str]) -> Schema:  # with the fields of a record
    return _build_object(properties) | {"required": required, "additionalProperties": True}


def _build_record_field(name: str) -> Schema:
    if name in READ_ONLY_FIELDS:
        return relax(READ_ONLY_FIELDS[name].schema) | _build_field_texts(name)
    schema = relax(FIELDS[name].rule.schema)
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
    schema = FIELDS[name].rule.schema
    return (allow_null(schema) if null else schema) | _build_field_texts(name)


def _build_create() -> Schema:
    fields = {name: _build_body_field(name, null=name not in REQUIRED) for name in FIELDS}
    for name, schema in fields.items():
        if name not in REQUIRED and (default := get_default(name)) is not None:
            # In words, because a `default` makes generators require a field.
            text = msgspec.json.encode(FIELDS[name].rule.to_json(default)).decode().removesuffix(".0")
            schema["description"] += f" Default: `{text}`."
    return {
        "type": "object",
        "description": (
            "A new listing. null is the same as leaving a field out. Unknown and read-only fields are ignored."
        ),
        "required": list(REQUIRED),
        "properties": fields,
    }


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


_REF: Schema = {  # without a type: generators for PHP lose a value that may have two
    "description": "Your own reference for the operation, which its result repeats: an integer, or a string of at most "
    f"{batch.MAX_REF_LENGTH} characters."
}


def _build_batch() -> dict[str, Schema]:
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
    listing_id = READ_ONLY_FIELDS["id"].schema | _build_field_texts("id")
    external_id = _build_body_field("external_id") | {"description": "Instead of `id`, of which one is required."}
    target = {"id": listing_id, "external_id": external_id}
    kinds = {
        "create": {"listing": refer("schemas", "ListingCreate")},
        "update": {**target, "changes": refer("schemas", "ListingUpdate")},
        "put": {"listing": refer("schemas", "ListingPut")},
        "delete": target,
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
            "required": ["op", *(name for name in more if "external_id" not in more or name not in target)],
            "properties": {
                "op": {"type": "string", "const": kind},
                **more,
                **({} if kind == "create" else {"if_match": tag}),
                "ref": _REF,
            },
        }
        for kind, more in kinds.items()
    }


def _build_batch_results() -> dict[str, Schema]:
    result = {  # one for all operations, because not every generator reads alternatives
        "ref": _REF,
        "status": {"type": "integer", "description": "That of the single request: 201, 200, or an error."},
        "op": list_values("create", "update") | {"description": "What a put did, or would do."},
        "id": _ID | {"description": "The id of the listing that a put created or updated."},
        "etag": _TEXT | {"description": "The new ETag of the listing. Not sent with a dry run or an error."},
        "code": list_values(*_RESULT_CODES) | {"description": "The error code, if the operation was not applied."},
        "before": allow_null(refer("schemas", "ChangedFields")),
        "after": refer("schemas", "ChangedFields"),
        "body": refer("schemas", "BatchResultBody"),
    }
    body = {
        "id": _ID | {"description": "The id of the new listing."},
        "message": _TEXT | {"description": "What was done, or would be."},
        "error": _ERROR,
        **_FAULTS,
    }
    return {
        "BatchResults": _build_object({"results": {"type": "array", "items": refer("schemas", "BatchResult")}}),
        "BatchResult": _build_object(result)
        | {
            "description": "The outcome of one operation. `before` and `after` are those of a dry run.",
            "required": ["status", "body"],
        },
        "BatchResultBody": _build_object(body) | {"required": []},
    }


_ACTORS = ("key", "member", "operator", "import")
_CHANGE_KINDS = ("created", "updated", "deleted", "restored", "batch", "import", "reverted")


def _build_changes() -> dict[str, Schema]:
    names = (*FIELDS, "created_at", "updated_at", "deleted_at")
    values = _build_object({name: _build_record_field(name) for name in names})
    change = {
        "id": _build_record_field("id"),
        "external_id": _build_record_field("external_id") | {"description": "The external id that it has now."},
        "before": allow_null(refer("schemas", "ChangedFields")),
        "after": refer("schemas", "ChangedFields"),
    }
    change_set = {
        "id": _ID | {"description": "Ascends by one with each change set of the account."},
        "time": _TIME | {"description": f"When it was written, {TIME_FORMAT}."},
        "actor": refer("schemas", "ChangeActor"),
        "kind": list_values(*_CHANGE_KINDS),
        "revert": _ID | {"description": "The id of its revert, if it belongs to one."},
        "group": _TEXT | {"description": "Its name of X-Change-Group, or `#` and the id of its bulk action."},
        "changes": {"type": "array", "items": refer("schemas", "Change")},
    }
    return {
        "ChangeSets": _build_object(
            {
                "change_sets": {"type": "array", "items": refer("schemas", "ChangeSet")},
                "last": _ID | {"description": "The id to continue from."},
                "more": {"type": "boolean", "description": "Whether there are further change sets."},
            }
        ),
        "ChangeSet": _build_object(change_set)
        | {
            "description": "What one write changed.",
            "required": [name for name in change_set if name not in {"revert", "group"}],
        },
        "Change": _build_object(change) | {"description": "A change of one listing. A create has null in `before`."},
        "ChangedFields": values | {"required": [], "description": "The changed fields only."},
        "ChangeActor": _build_change_actor(),
        **_build_groups(),
    }


def _build_groups() -> dict[str, Schema]:
    group = {
        "id": _ID | {"description": "The id of its first change set."},
        "kind": list_values("import", "bulk", "group", "revert")
        | {"description": "bulk: a bulk action of the console. group: named with X-Change-Group."},
        "group": allow_null(_TEXT) | {"description": "Its name, or `#` and the id. null for other kinds."},
        "actor": refer("schemas", "ChangeActor"),
        "since": _TIME | {"description": f"Time of its first change set, {TIME_FORMAT}."},
        "until": _TIME | {"description": f"Time of its last change set, {TIME_FORMAT}."},
        "last": _ID | {"description": "The id of its last change set."},
        "change_sets": _COUNT | {"description": "The number of change sets."},
        "changes": _COUNT | {"description": "The number of changes of listings."},
        "undo": allow_null(refer("schemas", "RevertRequest")),
    }
    page = {
        "groups": {"type": "array", "items": refer("schemas", "ChangeGroup")},
        "last": _ID | {"description": "The id to continue from. 0: there are no groups."},
        "more": {"type": "boolean", "description": "Whether there are older groups."},
    }
    return {
        "ChangeGroups": _build_object(page),
        "ChangeGroup": _build_object(group) | {"description": "Change sets that are undone together with `undo`."},
    }


def _build_change_actor() -> Schema:
    actor = {
        "type": list_values(*_ACTORS) | {"description": "member: the signed-in owner of the account."},
        "name": _TEXT | {"description": "Of a key."},
        "hint": _TEXT | {"description": "The key with its middle part left out."},
        "id": _ID | {"description": "Of a key, or of an import: its first change set."},
    }
    return _build_object(actor) | {"required": ["type"]}


def _build_revert_request() -> Schema:
    return {
        "type": "object",
        "description": "What to revert: exactly one of change, import, revert, group and key.",
        "properties": {
            "change": _ID | {"description": "The id of a change set."},
            "import": _ID | {"description": "The id of an import."},
            "revert": _ID | {"description": "The id of an earlier revert."},
            "group": _TEXT | {"description": "A name of X-Change-Group, or `#` and the id of a bulk action."},
            "key": {"description": "The id of one of your keys, or `self` for the one that you send, with `since`."},
            "since": _TEXT | {"description": "Time of the key's first change to revert, in UTC, not in the future."},
            "until": _TEXT | {"description": "Time of its last one, in UTC. A date means 00:00:00. Default: now."},
            "overwrite": {"type": "boolean", "description": "Whether to overwrite later changes. Default: `false`."},
        },
    }


def _build_reverts() -> dict[str, Schema]:
    number = allow_null(_ID)
    counts = {
        "reverted": _COUNT | {"description": "Listings that were restored completely."},
        "unchanged": _COUNT | {"description": "Listings that needed no change."},
        "conflicts": _COUNT | {"description": "Conflicts of all other listings, of which each has at least one."},
    }
    conflict = {
        "id": _build_record_field("id"),
        "external_id": _build_record_field("external_id") | {"description": "The external id that it has now."},
        "reason": list_values(*get_args(ConflictReason))
        | {"description": "changed_later: in another change set. external_id_taken: by the listing in holder."},
        "fields": {"type": "array", "items": {"type": "string"}, "description": "The fields that stay as they are."},
        "change": number | {"description": "The change set that changed them later."},
        "holder": number | {"description": "The listing that has the external id."},
    }
    changes = {"type": "array", "items": refer("schemas", "Change")}
    revert = {
        "id": number | {"description": "The number of the revert. null for a dry run."},
        "status": list_values("running", "finished", "planned") | {"description": "planned: of a dry run."},
        "progress": {"type": "number", "format": "double"}
        | {"description": "The part of the changes that has been read."},
        "counts": refer("schemas", "RevertCounts"),
        "conflicts": {"type": "array", "items": refer("schemas", "RevertConflict")},
        "last": _COUNT | {"description": "The conflict to continue from."},
        "more": {"type": "boolean", "description": "Whether there are further conflicts."},
        "changes": changes | {"description": "What a dry run would write; otherwise empty."},
        "since": _TIME | {"description": "Only for a dry run of a group: the time of its first change set."},
        "until": _TIME | {"description": "Only for a dry run of a group: the time of its last change set."},
    }
    return {
        "RevertRequest": _build_revert_request(),
        "Revert": _build_object(revert) | {"required": [name for name in revert if name not in {"since", "until"}]},
        "RevertCounts": _build_object(counts),
        "RevertConflict": _build_object(conflict) | {"description": "Fields of a listing that were not reverted."},
    }


def _build_images() -> dict[str, Schema]:
    image = {
        "url": _TEXT | {"description": "The URL of the JPEG, for `images` of a listing."},
        "width": _COUNT | {"description": "Of the JPEG, in pixels: at most 1,600."},
        "height": _COUNT | {"description": "Of the JPEG, in pixels: at most 1,600."},
    }
    stored = {
        "size": _COUNT | {"description": "The bytes of all its files."},
        "created_at": _TIME | {"description": f"Time of the last upload, {TIME_FORMAT}."},
    }
    listings: Schema = {"type": "array", "items": _ID, "description": "The ids of the listings that show the picture."}
    return {
        "Image": _build_object(image),
        "StoredImage": _build_object(image | stored),
        "Images": _build_object({"images": {"type": "array", "items": refer("schemas", "StoredImage")}}),
        "ImageDeletion": _build_object({"message": _TEXT, "listings": listings}),
    }


def _build_key() -> dict[str, Schema]:
    time, limit = allow_null(_TIME), allow_null(_COUNT) | {"description": "null: there is no limit."}
    key = {
        "id": _ID,
        "account_id": _ID,
        "name": _TEXT,
        "access": list_values("read", "write"),
        "mode": list_values("live", "test"),
        "expires_at": time | {"description": "When the key ends; null: never."},
        "plan_expires_at": time | {"description": "When the plan ends."},
        "listings": refer("schemas", "ListingCounts"),
        "text_bytes": _COUNT | {"description": "Titles, descriptions and image URLs of listings that are not deleted."},
        "stored_bytes": _COUNT | {"description": "All that is stored, with deleted listings and changes."},
        "picture_bytes": _COUNT | {"description": "The files of uploaded pictures."},
        "limits": refer("schemas", "AccountLimits"),
    }
    return {
        "KeyDetails": _build_object(key),
        "ListingCounts": _build_object(dict.fromkeys(("active", "inactive", "deleted"), _COUNT)),
        "AccountLimits": _build_object(
            dict.fromkeys(("listings", "text_bytes", "stored_bytes", "picture_bytes"), limit)
        ),
    }


def _build_rate_limit() -> Schema:
    descriptions = {
        "limit": "Maximum number of requests in a window.",
        "window": "Length of the window in seconds.",
        "remaining": "Remaining requests.",
        "reset": "Unix time at which the oldest counted request leaves the window and one more becomes available.",
    }
    number: Schema = {"type": ["integer", "null"]}
    return _build_object({name: number | {"description": text} for name, text in descriptions.items()})
